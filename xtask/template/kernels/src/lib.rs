//! What runs on the GPU.

#![no_std]

use cuda_std::prelude::*;

/// `out = a + b`. Each thread has elements of `out` that are its own.
#[kernel]
pub fn add(a: &[f32], b: &[f32], mut out: DisjointSlice<f32>) {
    for (i, out) in out.iter_mut() {
        // Beyond the end of `a` or `b` is a panic, which says where.
        *out = a[i] + b[i];
    }
}
