//! Products by cuBLAS in f32.

use std::ffi::{c_int, c_longlong};

use cuda_gemm::launch::expect_planned;
use cuda_gemm::{
    Compute, Device, DeviceBatchMut, DeviceBatchRef, DeviceMatrix, Error as GemmError, Extras,
    Gemm, Plan, find_kernel,
};

use crate::cublas::{Cublas, OP_N, OP_T, Started, check};
use crate::error::Error;

impl Cublas {
    /// Checks a product, once for any number of calls.
    ///
    /// # Errors
    ///
    /// What [`Gemm::validate`] finds; those of [`Kernel::prepare`](cuda_gemm::Kernel::prepare) for a
    /// product with an epilogue.
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

/// Refuses what is not compared with cuBLAS: factors in device memory, and batches of pointers.
pub(crate) fn require_plain(gemm: &Gemm) -> Result<(), GemmError> {
    let what = match () {
        () if gemm.factors_on_device => "alpha and beta in device memory",
        () if gemm.pointers => "batches of pointers",
        () => return Ok(()),
    };
    Err(GemmError::Unsuited { kernel: "cublas", what })
}

/// A product that cuBLAS can compute; [`Cublas::prepare`] makes it: only the matrices are missing.
///
/// With an epilogue, `cublasSgemm` is followed by a pass over C, which reads it, applies the epilogue,
/// and stores it, as fast as the memory allows.
pub struct CublasProduct {
    cublas: Cublas,
    gemm: Gemm,
    pass: Option<Box<EpiloguePass>>,
}

/// The epilogue alone: a product with nothing to sum up, added to C, by a kernel that is made to write
/// a large C.
pub(crate) struct EpiloguePass {
    plan: Plan,
    /// A and B of no elements.
    empty: [DeviceMatrix; 2],
}

impl EpiloguePass {
    /// The kernel.
    const KERNEL: &str = "outer_32x128";

    pub(crate) fn new(device: &Device, gemm: &Gemm) -> Result<Self, Error> {
        let alone = Gemm { k: 0, lda: 0, ldb: gemm.n, stride_a: 0, stride_b: 0, ..*gemm };
        let alone = Gemm { trans_a: false, trans_b: false, ..alone }.scaled(1.0, 1.0);
        let alone = alone.computed_in(Compute::F32);
        let plan = device.kernel(find_kernel(Self::KERNEL)?)?.prepare(alone)?;
        let empty = |rows, cols| DeviceMatrix::zeros(device, rows, cols);
        Ok(Self { plan, empty: [empty(gemm.m, 0)?, empty(0, gemm.n)?] })
    }

    pub(crate) fn enqueue<'m>(
        &'m self,
        c: DeviceBatchMut<'m>,
        extras: Extras<'m>,
    ) -> Result<(), Error> {
        let batch = self.plan.launch_plan().gemm().batch;
        let [a, b] = self.empty.each_ref().map(|empty| empty.view().broadcast(batch));
        Ok(self.plan.enqueue_with(a, b, c, extras)?)
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
    /// [`Error::Gemm`] if a matrix is not what was prepared for, as
    /// [`Plan::enqueue`](cuda_gemm::Plan::enqueue) says; [`Error::Cublas`] if the call fails.
    pub fn enqueue<'m>(
        &self,
        a: impl Into<DeviceBatchRef<'m>>,
        b: impl Into<DeviceBatchRef<'m>>,
        c: impl Into<DeviceBatchMut<'m>>,
    ) -> Result<(), Error> {
        self.enqueue_with(a, b, c, Extras::new())
    }

    /// As [`CublasProduct::enqueue`], with what the product's epilogue reads.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn enqueue_with<'m>(
        &self,
        a: impl Into<DeviceBatchRef<'m>>,
        b: impl Into<DeviceBatchRef<'m>>,
        c: impl Into<DeviceBatchMut<'m>>,
        extras: Extras<'m>,
    ) -> Result<(), Error> {
        let Self { cublas, gemm, pass } = self;
        let Started { stream, functions, handle, .. } = &*cublas.0;
        let Gemm { m, n, trans_a, trans_b, alpha, beta, lda, ldb, ldc, batch, .. } = *gemm;
        let (a, b, c_batch) = (a.into(), b.into(), c.into());
        let operands = [a, b, c_batch.view()];
        expect_planned(stream, gemm, operands)?;
        if m == 0 || n == 0 || batch == 0 {
            return Ok(());
        }
        let _current = stream.device().enter()?;
        let _exclusive = stream.exclusive();
        // All fit: `Gemm::validate` accepted them. A leading dimension is at least 1
        // for cuBLAS, even where there are no rows.
        let size = |value: usize| value as c_int;
        let leading = |value: usize| value.max(1) as c_int;
        let op = |trans| if trans { OP_T } else { OP_N };
        let [a, b, c] =
            operands.map(|operand| operand.first().as_device_ptr().as_raw() as *mut f32);
        let [stride_a, stride_b, stride_c] = gemm.strides().map(|stride| stride as c_longlong);
        // cuBLAS counts columns where we count rows. What we call C is its transpose
        // there, and so are A and B: C^T = op(B)^T op(A)^T is computed.
        let (ops, sizes) = ([op(trans_b), op(trans_a)], [size(n), size(m), size(gemm.depth())]);
        let (alpha, beta) = (&raw const alpha, &raw const beta);
        let [lda, ldb, ldc] = [lda, ldb, ldc].map(leading);
        // SAFETY: the matrices are on the handle's device, and have these sizes, leading
        // dimensions and strides. C is borrowed mutably, so it is neither A nor B. All stay
        // allocated until the work is done, because freeing device memory waits for it. The factors
        // are read during the call: pointers to them are host pointers by default.
        let (call, status) = unsafe {
            let ([op_b, op_a], [n, m, k]) = (ops, sizes);
            match batch {
                1 => (
                    "cublasSgemm",
                    (functions.sgemm)(
                        *handle, op_b, op_a, n, m, k, alpha, b, ldb, a, lda, beta, c, ldc,
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
                        b,
                        ldb,
                        stride_b,
                        a,
                        lda,
                        stride_a,
                        beta,
                        c,
                        ldc,
                        stride_c,
                        size(batch),
                    ),
                ),
            }
        };
        check(call, status)?;
        match pass {
            Some(pass) => pass.enqueue(c_batch, extras),
            None => Ok(()),
        }
    }
}
