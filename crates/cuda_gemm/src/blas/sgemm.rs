//! Products of f32 matrices.

use cust::memory::DevicePointer;

use super::arguments::{Factor, Op, row_major};
use super::handle::Handle;
use crate::error::Error;

/// `C = alpha * op(A) * op(B) + beta * C` for column-major f32 matrices, as `cublasSgemm`.
///
/// op(A) is m x k, op(B) is k x n, and C is m x n. [`Handle`] has an example;
/// [`Handle::compute_f32_in`] sets the precision.
///
/// # Errors
///
/// [`Error::BlasArgument`], [`Error::MixedFactors`], [`Error::NotFinite`], [`Error::TooLarge`] or
/// [`Error::Driver`]. The first call of a shape also returns the errors of
/// [`Auto::plan`](crate::Auto::plan) and [`PlanBuilder::prepare`](crate::PlanBuilder::prepare).
///
/// # Safety
///
/// - `a` and `b` point to A and B, all initialised, in the memory of the handle's device.
///   Exceptions: k is 0, or alpha is the number 0.
/// - `c` points to C in that memory, initialised unless beta is 0.
/// - Factors in device memory are initialised, in the same device's memory.
/// - All are aligned to 4 bytes, and C overlaps nothing else.
/// - Until the work is done, only work enqueued on the handle's stream frees any of them, writes A,
///   B or the factors, or accesses C.
pub unsafe fn sgemm(
    handle: &mut Handle,
    transa: Op,
    transb: Op,
    m: usize,
    n: usize,
    k: usize,
    alpha: impl Into<Factor>,
    a: DevicePointer<f32>,
    lda: usize,
    b: DevicePointer<f32>,
    ldb: usize,
    beta: impl Into<Factor>,
    c: DevicePointer<f32>,
    ldc: usize,
) -> Result<(), Error> {
    // Parameter numbers as BLAS counts them, without the handle.
    let lds = [(lda, 8), (ldb, 10), (ldc, 13)];
    let gemm = row_major("sgemm", [transa, transb], [m, n, k], lds)?;
    let gemm = gemm.computed_in(handle.f32_compute());
    // SAFETY: the caller's contract.
    unsafe { handle.enqueue(gemm, [alpha.into(), beta.into()], [b, a, c].map(|at| at.as_raw())) }
}

/// A strided batch of [`sgemm`] products, as `cublasSgemmStridedBatched`.
///
/// Strides count elements. A stride of 0 shares one A or B among all products.
///
/// # Errors
///
/// The errors of [`sgemm`], and [`Error::Overlap`] if two C overlap.
///
/// # Safety
///
/// The contract of [`sgemm`], for every product.
pub unsafe fn sgemm_strided_batched(
    handle: &mut Handle,
    transa: Op,
    transb: Op,
    m: usize,
    n: usize,
    k: usize,
    alpha: impl Into<Factor>,
    a: DevicePointer<f32>,
    lda: usize,
    stride_a: usize,
    b: DevicePointer<f32>,
    ldb: usize,
    stride_b: usize,
    beta: impl Into<Factor>,
    c: DevicePointer<f32>,
    ldc: usize,
    stride_c: usize,
    batch_count: usize,
) -> Result<(), Error> {
    let lds = [(lda, 8), (ldb, 11), (ldc, 15)];
    let gemm = row_major("sgemm_strided_batched", [transa, transb], [m, n, k], lds)?;
    let gemm = gemm.computed_in(handle.f32_compute());
    let gemm = gemm.batched(batch_count, [stride_b, stride_a, stride_c]);
    // SAFETY: the caller's contract.
    unsafe { handle.enqueue(gemm, [alpha.into(), beta.into()], [b, a, c].map(|at| at.as_raw())) }
}

/// A batch of [`sgemm`] products at arbitrary addresses, as `cublasSgemmBatched`.
///
/// `a`, `b` and `c` are arrays in device memory, with one address per product.
///
/// # Errors
///
/// The errors of [`sgemm`].
///
/// # Safety
///
/// - The contract of [`sgemm`], for every product.
/// - The arrays exist, are aligned to 8 bytes, and stay unchanged until the work is done.
/// - No two C overlap.
pub unsafe fn sgemm_batched(
    handle: &mut Handle,
    transa: Op,
    transb: Op,
    m: usize,
    n: usize,
    k: usize,
    alpha: impl Into<Factor>,
    a: DevicePointer<u64>,
    lda: usize,
    b: DevicePointer<u64>,
    ldb: usize,
    beta: impl Into<Factor>,
    c: DevicePointer<u64>,
    ldc: usize,
    batch_count: usize,
) -> Result<(), Error> {
    let lds = [(lda, 8), (ldb, 10), (ldc, 13)];
    let gemm = row_major("sgemm_batched", [transa, transb], [m, n, k], lds)?;
    let gemm = gemm.computed_in(handle.f32_compute());
    let gemm = gemm.batched_pointers(batch_count);
    // SAFETY: the caller's contract.
    unsafe { handle.enqueue(gemm, [alpha.into(), beta.into()], [b, a, c].map(|at| at.as_raw())) }
}
