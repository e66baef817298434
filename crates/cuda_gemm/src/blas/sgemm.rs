//! Products of f32 matrices.

use cust::memory::DevicePointer;

use super::arguments::{Factor, Op, row_major};
use super::handle::Handle;
use crate::error::Error;

/// `C = alpha * op(A) * op(B) + beta * C`, column-major: op(A) is m x k, op(B) is k x n, C is m x n.
/// As `cublasSgemm`; [`Handle`] has an example, and says in which precision.
///
/// # Errors
///
/// [`Error::BlasArgument`], [`Error::MixedFactors`], [`Error::NotFinite`], [`Error::TooLarge`]; those of
/// [`Auto::product`](crate::Auto::product) and [`ProductBuilder::prepare`](crate::ProductBuilder::prepare) with the
/// first call of a shape; [`Error::Driver`].
///
/// # Safety
///
/// - Unless k is 0, or alpha is the number 0, `a` and `b` point to A and B, all initialised, in the memory of the
///   handle's device; `c` to C, initialised unless beta is 0; factors in device memory likewise.
/// - All are aligned to 4 bytes, C overlaps nothing else, and until the work is done nothing frees
///   them, writes A, B or factors, or touches C, but what is enqueued on the handle's stream.
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
    // Numbers of parameters, by BLAS's own counting, which does not count the handle.
    let lds = [(lda, 8), (ldb, 10), (ldc, 13)];
    let gemm = row_major("sgemm", [transa, transb], [m, n, k], lds)?;
    let gemm = gemm.computed_in(handle.f32_compute());
    // SAFETY: the caller's contract.
    unsafe { handle.enqueue(gemm, [alpha.into(), beta.into()], [b, a, c].map(|at| at.as_raw())) }
}

/// A batch of such products, whose matrices follow each other at strides, in elements; 0 for an A or B
/// that all share. As `cublasSgemmStridedBatched`.
///
/// # Errors
///
/// As for [`sgemm`], and [`Error::Overlap`] if two C overlap.
///
/// # Safety
///
/// As for [`sgemm`], of all products.
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
    if batch_count == 0 {
        return Ok(());
    }
    // SAFETY: the caller's contract.
    unsafe { handle.enqueue(gemm, [alpha.into(), beta.into()], [b, a, c].map(|at| at.as_raw())) }
}

/// A batch of such products, whose matrices lie anywhere: `a`, `b` and `c` are arrays of as many
/// addresses as there are products, in device memory. As `cublasSgemmBatched`.
///
/// # Errors
///
/// As for [`sgemm`].
///
/// # Safety
///
/// As for [`sgemm`], of all products; the arrays are there, aligned to 8 bytes, and stay as they are
/// until the work is done. No two C overlap.
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
    if batch_count == 0 {
        return Ok(());
    }
    let gemm = gemm.batched_pointers(batch_count);
    // SAFETY: the caller's contract.
    unsafe { handle.enqueue(gemm, [alpha.into(), beta.into()], [b, a, c].map(|at| at.as_raw())) }
}
