//! GEMM with the arguments of BLAS and cuBLAS, on column-major device matrices.
//!
//! For programs that call cuBLAS. The arguments and their order are cuBLAS's, and so are the rules
//! for operands that are not read. The differences:
//!
//! - A [`Handle`] has a stream from the beginning, and a call borrows the handle mutably.
//! - alpha and beta are each a number or an address in device memory ([`Factor`]), where cuBLAS has
//!   a pointer mode per handle.
//! - With alpha in device memory, A and B must be readable even if alpha is 0.
//! - Infinite and NaN factors are refused as numbers, and accepted in device memory.
//! - A wrong argument is an [`Error`](crate::Error) that names it. A refused call enqueues nothing.
//! - The first call of a shape chooses a kernel, loads it and allocates its memory. Later calls of
//!   that shape find the plan in the handle.
//! - A handle keeps up to [`MAX_PLANS`] plans. It drops all of them for one more, or for one that
//!   lacks memory.
//! - During the capture of a graph, only calls with a kept plan work. The graph uses memory of
//!   these plans: launch it only while the handle has had no other shapes.
//!
//! | cuBLAS | here |
//! |---|---|
//! | `cublasCreate`, `cublasSetStream` | [`Handle::new`], [`Handle::on`] |
//! | `cublasSetMathMode` | [`Handle::compute_f32_in`] |
//! | `cublasSgemm` | [`sgemm`] |
//! | `cublasSgemmStridedBatched` | [`sgemm_strided_batched`] |
//! | `cublasSgemmBatched` | [`sgemm_batched`] |
//! | `cublasGemmEx` with `CUDA_R_16BF`, `CUDA_R_16F` or `CUDA_R_32F` | [`gemm_ex`] |
//! | `CUBLAS_COMPUTE_32F`, `CUBLAS_COMPUTE_32F_FAST_TF32` | [`Compute`](crate::Compute): `F32`, or `Bf16` and `F16` for 16 bits; `Tf32` |
//! | `cublasGemmStridedBatchedEx` | [`gemm_strided_batched_ex`] |
//! | `CUBLAS_POINTER_MODE_DEVICE` | [`Factor::Device`] |
//! | `cublasLtMatmul` with an epilogue | [`Product`](crate::Product) |
//!
//! A column-major matrix is the transpose of a row-major one. The kernels therefore compute
//! `C^T = op(B)^T op(A)^T` on row-major matrices, and nothing is copied.

#![expect(clippy::too_many_arguments, reason = "they are those of BLAS")]

mod arguments;
mod gemm_ex;
mod handle;
mod sgemm;
#[cfg(test)]
mod tests;

pub use arguments::{Factor, Op};
pub use gemm_ex::{gemm_ex, gemm_strided_batched_ex};
pub use handle::{Handle, MAX_PLANS};
pub use sgemm::{sgemm, sgemm_batched, sgemm_strided_batched};
