//! GEMM as BLAS and cuBLAS have it: column-major matrices at device addresses, argument by argument.
//!
//! For programs that call cuBLAS: the arguments and their order are cuBLAS's, and so are the rules for
//! what is not read. What is different:
//!
//! - A [`Handle`] has a stream from the beginning, and is borrowed mutably by a call.
//! - alpha and beta are numbers, or addresses in device memory ([`Factor`]), instead of host or device
//!   pointers by the handle's mode.
//! - Where alpha is in device memory, A and B must be readable even if it is 0. Infinite and NaN factors are refused
//!   as numbers, and taken from device memory.
//! - A wrong argument is an [`Error`](crate::Error) that names it, and a call that is refused enqueues nothing.
//! - The first call of a shape chooses a kernel, loads it and allocates what it needs; calls alike find
//!   it in the handle, as long as no more than [`MAX_PLANS`] shapes are in use: one more, or one that lacks memory, and the
//!   handle begins anew. During the capture of a graph, only calls alike work, and the graph uses
//!   what the handle has allocated: launch it only while the handle has had no other shapes.
//!
//! | cuBLAS | here |
//! |---|---|
//! | `cublasCreate`, `cublasSetStream` | [`Handle::new`], [`Handle::on`] |
//! | `cublasSetMathMode` | [`Handle::compute_f32_in`] |
//! | `cublasSgemm` | [`sgemm`] |
//! | `cublasSgemmStridedBatched` | [`sgemm_strided_batched`] |
//! | `cublasSgemmBatched` | [`sgemm_batched`] |
//! | `cublasGemmEx`, of `CUDA_R_16BF`, `CUDA_R_16F` or `CUDA_R_32F` | [`gemm_ex`] |
//! | `CUBLAS_COMPUTE_32F`, `CUBLAS_COMPUTE_32F_FAST_TF32` | [`Compute`](crate::Compute): `F32` and, of 16 bits, `Bf16` and `F16`; `Tf32` |
//! | `cublasGemmStridedBatchedEx` | [`gemm_strided_batched_ex`] |
//! | `CUBLAS_POINTER_MODE_DEVICE` | [`Factor::Device`] |
//! | `cublasLtMatmul` with an epilogue | [`Plan::enqueue_with`](crate::Plan::enqueue_with) |
//!
//! A column-major matrix is the transpose of a row-major one, so that what is computed is
//! `C^T = op(B)^T op(A)^T` of row-major matrices: nothing is copied.

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
