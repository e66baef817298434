//! What runs on the GPU.

#![no_std]

use cuda_std::prelude::*;

/// `out[i] = a[i] + b[i]`, for each element of `a`.
///
/// # Safety
/// `out` has as many elements as `a`, and nothing else touches it.
#[kernel]
pub unsafe fn add(a: &[f32], b: &[f32], out: *mut f32) {
    let i = thread::index_1d() as usize;
    if i < a.len() {
        // A `b` that is too short is a panic, which says where.
        let sum = a[i] + b[i];
        // SAFETY: `i` is in bounds, and belongs to this thread alone.
        unsafe { *out.add(i) = sum };
    }
}
