//! f32 products with cuBLAS.

use std::ffi::{c_int, c_longlong};

use cuda_gemm::{
    Compute, Device, DeviceMatrix, Error as GemmError, Extras, Gemm, OperandMut, OperandRef, Plan,
    expect_planned, find_kernel,
};

use crate::cublas::{Cublas, OP_N, OP_T, Started, check};
use crate::error::Error;

impl Cublas {
    /// Checks a product, once for any number of calls.
    ///
    /// # Errors
    ///
    /// The errors of [`Gemm::validate`], and those of
    /// [`Kernel::prepare`](cuda_gemm::Kernel::prepare) for a product with an epilogue.
    pub fn prepare(&self, gemm: Gemm) -> Result<CublasProduct, Error> {
        gemm.validate()?;
        require_plain(&gemm)?;
        let pass = match gemm.epilogue.is_none() {
            true => None,
            false => Some(Box::new(EpiloguePass::new(self.0.stream.device(), &gemm)?)),
        };
        Ok(CublasProduct { cublas: self.clone(), gemm, pass })
    }
}

/// Refuses products that are not compared: factors in device memory, and batches of pointers.
pub(crate) fn require_plain(gemm: &Gemm) -> Result<(), GemmError> {
    let what = match () {
        () if gemm.factors_on_device => "alpha and beta in device memory",
        () if gemm.pointers => "batches of pointers",
        () => return Ok(()),
    };
    Err(GemmError::Unsuited { kernel: "cublas", what })
}

/// A checked product for cuBLAS, from [`Cublas::prepare`]; only the matrices are missing.
///
/// With an epilogue, a pass over C follows `cublasSgemm`. The pass reads C, applies the epilogue,
/// and stores C, as fast as the memory allows.
pub struct CublasProduct {
    cublas: Cublas,
    gemm: Gemm,
    pass: Option<Box<EpiloguePass>>,
}

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

impl CublasProduct {
    /// The product.
    pub fn gemm(&self) -> &Gemm {
        &self.gemm
    }

    /// Enqueues the product on the device's stream, and returns at once.
    ///
    /// # Errors
    ///
    /// [`Error::Gemm`] if a matrix differs from the plan, as in
    /// [`Plan::run`](cuda_gemm::Plan::run), or [`Error::Cublas`] if the call fails.
    pub fn enqueue<'m>(
        &self,
        a: impl Into<OperandRef<'m>>,
        b: impl Into<OperandRef<'m>>,
        c: impl Into<OperandMut<'m>>,
    ) -> Result<(), Error> {
        self.enqueue_with(a, b, c, Extras::new())
    }

    /// Enqueues the product with its epilogue's inputs: see [`CublasProduct::enqueue`].
    ///
    /// # Errors
    ///
    /// See [`CublasProduct::enqueue`].
    pub fn enqueue_with<'m>(
        &self,
        a: impl Into<OperandRef<'m>>,
        b: impl Into<OperandRef<'m>>,
        c: impl Into<OperandMut<'m>>,
        extras: Extras<'m>,
    ) -> Result<(), Error> {
        let Self { cublas, gemm, pass } = self;
        let Started { stream, functions, handle, .. } = &*cublas.0;
        let Gemm { m, n, trans_a, trans_b, alpha, beta, lda, ldb, ldc, batch, .. } = *gemm;
        let c = c.into();
        let operands = [a.into(), b.into(), c.view()];
        expect_planned(stream, gemm, &operands)?;
        if m == 0 || n == 0 || batch == 0 {
            return Ok(());
        }
        let _current = stream.device().enter()?;
        let _exclusive = stream.exclusive();
        // All fit: `Gemm::validate` accepted them. For cuBLAS, a leading dimension is at least 1,
        // even without rows.
        let size = |value: usize| value as c_int;
        let leading = |value: usize| value.max(1) as c_int;
        let op = |trans| if trans { OP_T } else { OP_N };
        let [from_a, from_b, to_c] = operands.map(|operand| operand.address() as *mut f32);
        let [stride_a, stride_b, stride_c] = gemm.strides().map(|stride| stride as c_longlong);
        // cuBLAS is column-major, so A, B and C are transposes there: it computes C^T = op(B)^T
        // op(A)^T.
        let (ops, sizes) = ([op(trans_b), op(trans_a)], [size(n), size(m), size(gemm.depth())]);
        let (alpha, beta) = (&raw const alpha, &raw const beta);
        let [lda, ldb, ldc] = [lda, ldb, ldc].map(leading);
        // SAFETY:
        // - The matrices are on the handle's device, and have these sizes, leading dimensions and
        //   strides.
        // - C is borrowed mutably, so it is neither A nor B.
        // - All stay allocated until the work is done, because freeing device memory waits for it.
        // - The factors are read during the call: pointers to them are host pointers by default.
        let (call, status) = unsafe {
            let ([op_b, op_a], [n, m, k]) = (ops, sizes);
            match batch {
                1 => (
                    "cublasSgemm",
                    (functions.sgemm)(
                        *handle, op_b, op_a, n, m, k, alpha, from_b, ldb, from_a, lda, beta, to_c,
                        ldc,
                    ),
                ),
                _ => (
                    "cublasSgemmStridedBatched",
                    (functions.sgemm_strided_batched)(
                        *handle,
                        op_b,
                        op_a,
                        n,
                        m,
                        k,
                        alpha,
                        from_b,
                        ldb,
                        stride_b,
                        from_a,
                        lda,
                        stride_a,
                        beta,
                        to_c,
                        ldc,
                        stride_c,
                        size(batch),
                    ),
                ),
            }
        };
        check(call, status)?;
        match pass {
            Some(pass) => pass.enqueue(c, extras),
            None => Ok(()),
        }
    }
}
