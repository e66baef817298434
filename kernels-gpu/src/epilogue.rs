//! How every rung writes a result.

use cuda_std::prelude::*;

/// Writes `alpha * acc + beta * C` to one element of C.
///
/// With `beta == 0` C is not read, so that it may hold anything, NaN included: BLAS says
/// so, and so does a caller who passes memory that nothing has written.
///
/// # Safety
/// `c` is valid for reads and writes, and belongs to this thread alone.
#[inline(always)]
pub unsafe fn store(c: *mut f32, alpha: f32, acc: f32, beta: f32) {
    let result = alpha * acc;
    // SAFETY: the caller's contract.
    unsafe { *c = if beta == 0.0 { result } else { fma(beta, *c, result) } }
}
