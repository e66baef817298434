//! What runs on the GPU.

#![no_std]

use cuda_std::block::block_reduce;
use cuda_std::prelude::*;

/// Threads of a block.
const THREADS: u32 = 128;

/// Normalises each row of a matrix to a mean of 0 and a variance of 1, then scales and shifts its
/// columns: `out = (x - mean) / sqrt(variance + epsilon) * gamma + beta`.
///
/// A block has a row of any length. The first pass brings it into the L1 cache, where the next two
/// find it: the variance is summed up from differences to the mean, because the difference of two
/// large sums would lose its digits.
///
/// # Safety
/// A block for each row of `x`; `out` has as many elements as `x`, and nothing else touches them.
#[kernel(block = THREADS)]
pub unsafe fn layer_norm(x: &[f32], gamma: &[f32], beta: &[f32], epsilon: f32, out: *mut f32) {
    let columns = gamma.len();
    let first = thread::block_idx_x() as usize * columns;
    let row = &x[first..first + columns];
    let own = || (thread::thread_idx_x() as usize..columns).step_by(THREADS as usize);
    let scratch = shared_array![f32; 4];
    let mean_of = |sum: f32| {
        // SAFETY: all threads are here, and `scratch` has an element for each of their warps.
        unsafe { block_reduce(*scratch, sum, |a, b| a + b) / columns as f32 }
    };

    let mean = mean_of(own().map(|i| row[i]).sum());
    let variance = mean_of(own().map(|i| (row[i] - mean) * (row[i] - mean)).sum());
    let scale = 1.0 / (variance + epsilon).sqrt();
    for i in own() {
        let value = (row[i] - mean) * scale * gamma[i] + beta[i];
        // SAFETY: an element of this block's row, and of this thread's columns.
        unsafe { *out.add(first + i) = value };
    }
}
