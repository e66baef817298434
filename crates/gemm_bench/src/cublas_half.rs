//! cuBLAS with A and B in 16 bits: the baseline of the kernels for tensor cores.
//!
//! What is compared is `cublasGemmEx` with the types that those have: A and B of `bf16` or `f16`, C, alpha
//! and beta of f32, and f32 for the sums (`CUBLAS_COMPUTE_32F`).

use std::ffi::{c_int, c_void};

use cuda_gemm::{DeviceHalfMatrix, DeviceMatrixMut, Error as GemmError, Gemm, InputType};

use crate::cublas::{Cublas, OP_N, Started, check};
use crate::error::Error;

/// `CUDA_R_32F`, `CUDA_R_16F` and `CUDA_R_16BF`.
const R_32F: c_int = 0;
const R_16F: c_int = 2;
const R_16BF: c_int = 14;
/// `CUBLAS_COMPUTE_32F`, and `CUBLAS_GEMM_DEFAULT`: cuBLAS chooses the algorithm.
const COMPUTE_32F: c_int = 68;
const DEFAULT_ALGORITHM: c_int = -1;

/// A product of A and B in 16 bits that cuBLAS can compute: only the matrices are missing.
pub struct CublasHalf {
    cublas: Cublas,
    gemm: Gemm,
    input: InputType,
}

impl CublasHalf {
    /// Checks a product, once for any number of calls.
    ///
    /// # Errors
    ///
    /// What [`Gemm::validate`] finds; [`cuda_gemm::Error::TensorCoreShape`] for transposes and batches,
    /// which are not compared.
    pub fn new(cublas: &Cublas, gemm: Gemm, input: InputType) -> Result<Self, Error> {
        gemm.validate()?;
        if gemm.trans_a || gemm.trans_b || gemm.batch != 1 {
            let (what, hint) = ("transposes and batches in 16 bits", "store A and B as multiplied");
            return Err(GemmError::TensorCoreShape { kernel: "cublas", what, hint }.into());
        }
        Ok(Self { cublas: cublas.clone(), gemm, input })
    }

    /// The product.
    pub fn gemm(&self) -> &Gemm {
        &self.gemm
    }

    /// The type of A's and B's elements.
    pub fn input(&self) -> InputType {
        self.input
    }

    /// Enqueues the product on the device's stream, and returns at once.
    ///
    /// # Errors
    ///
    /// [`Error::Gemm`] if a matrix is not what was prepared for; [`Error::Cublas`] if the call fails.
    pub fn enqueue(
        &self,
        a: &DeviceHalfMatrix,
        b: &DeviceHalfMatrix,
        c: DeviceMatrixMut<'_>,
    ) -> Result<(), Error> {
        let Started { stream, functions, handle, .. } = &*self.cublas.0;
        let Gemm { m, n, alpha, beta, .. } = self.gemm;
        let c = c.view();
        let operands = [
            ("A", a.stream(), [a.rows(), a.cols()]),
            ("B", b.stream(), [b.rows(), b.cols()]),
            ("C", c.stream(), [c.rows(), c.cols()]),
        ];
        for ((what, of, [rows, cols]), [need_rows, need_cols]) in
            operands.into_iter().zip(self.gemm.shapes())
        {
            if !of.is_same(stream) {
                return Err(GemmError::WrongStream { what }.into());
            }
            if [rows, cols] != [need_rows, need_cols] {
                return Err(GemmError::Shape { what, rows, cols, need_rows, need_cols }.into());
            }
        }
        for (what, matrix) in [("A", a), ("B", b)] {
            if matrix.input() != self.input {
                let (found, planned) = (matrix.input().name(), self.input.name());
                return Err(GemmError::PlannedType { what, found, planned }.into());
            }
        }
        if m == 0 || n == 0 {
            return Ok(());
        }
        stream.device().make_current()?;
        let _exclusive = stream.exclusive();
        // All fit: `Gemm::validate` accepted them. A leading dimension is at least 1 for cuBLAS.
        let size = |value: usize| value as c_int;
        let [lda, ldb, ldc] = [a.ld(), b.ld(), c.ld()].map(|ld| size(ld.max(1)));
        let kind = match self.input {
            InputType::Bf16 => R_16BF,
            InputType::F16 => R_16F,
        };
        let [a, b] = [a, b].map(|matrix| matrix.address() as *const c_void);
        let to = c.as_device_ptr().as_raw() as *mut c_void;
        let (alpha, beta) = ((&raw const alpha).cast(), (&raw const beta).cast());
        // cuBLAS counts columns where we count rows: C^T = B^T A^T is computed.
        let [m, n, k] = [size(m), size(n), size(self.gemm.depth())];
        // SAFETY: the matrices are on the handle's device, and have these sizes and leading dimensions.
        // C is borrowed mutably, so it is neither A nor B. All stay allocated until the work is done,
        // because freeing device memory waits for it. The factors are read during the call.
        let status = unsafe {
            (functions.gemm_ex)(
                *handle,
                OP_N,
                OP_N,
                n,
                m,
                k,
                alpha,
                b,
                kind,
                ldb,
                a,
                kind,
                lda,
                beta,
                to,
                R_32F,
                ldc,
                COMPUTE_32F,
                DEFAULT_ALGORITHM,
            )
        };
        check("cublasGemmEx", status)
    }
}
