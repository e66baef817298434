//! What runs on the GPU.

#![no_std]

use cuda_std::prelude::*;

/// `out = a + b`. Each thread has elements of `out` that are its own, and no other thread gets to
/// them: so nothing here is `unsafe`.
#[kernel]
pub fn vecadd(a: &[f32], b: &[f32], mut out: DisjointSlice<f32>) {
    for (i, out) in out.iter_mut() {
        // Beyond the end of `a` or `b` is a panic, which says where.
        *out = a[i] + b[i];
    }
}
