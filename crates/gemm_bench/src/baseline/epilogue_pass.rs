//! An epilogue that cuBLAS lacks: a pass over its result.

use cuda_gemm::{Compute, Device, DeviceMatrix, Extras, Gemm, OperandMut, Plan, find_kernel};

use crate::error::Error;

/// The epilogue alone: a product without a sum, added to C.
///
/// Its kernel is made to write a large C.
pub(crate) struct EpiloguePass {
    plan: Plan<'static>,
    /// A and B without elements.
    empty: [DeviceMatrix<f32>; 2],
}

impl EpiloguePass {
    /// The kernel of the pass.
    const KERNEL: &str = "outer_32x128";

    pub(crate) fn new(device: &Device, gemm: &Gemm) -> Result<Self, Error> {
        let alone = Gemm { k: 0, lda: 0, ldb: gemm.n, stride_a: 0, stride_b: 0, ..*gemm };
        let alone = Gemm { trans_a: false, trans_b: false, ..alone }.scaled(1.0, 1.0);
        let alone = alone.computed_in(Compute::F32);
        let plan = device.kernel(find_kernel(Self::KERNEL)?)?.prepare(alone)?;
        let empty = |rows, cols| DeviceMatrix::zeros(device, [rows, cols]);
        Ok(Self { plan, empty: [empty(gemm.m, 0)?, empty(0, gemm.n)?] })
    }

    pub(crate) fn enqueue<'m>(
        &'m self,
        c: OperandMut<'m>,
        extras: Extras<'m>,
    ) -> Result<(), Error> {
        let batch = self.plan.gemm().batch;
        let [a, b] = self.empty.each_ref().map(|empty| empty.view().broadcast(batch));
        Ok(self.plan.run_with(a?, b?, c, extras)?)
    }
}
