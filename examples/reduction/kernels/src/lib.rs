//! What runs on the GPU.

#![no_std]

use core::sync::atomic::Ordering::Relaxed;

use cuda_std::atomic::AtomicF32;
use cuda_std::block::block_reduce;
use cuda_std::prelude::*;
use cuda_std::vec::Aligned;

/// Elements that a thread loads at a time.
const WIDTH: usize = 8;

/// `partial[block]` is the block's part of the sum of `x`.
///
/// Three steps, each over the results of the one before: a thread sums up what it loads, 16 bytes
/// at a time; a warp sums up its 32 threads by shuffles; the block sums up its warps through shared
/// memory. No order depends on chance, so that the sum has the same bits every time.
#[kernel(block = 256)]
pub fn sum(x: &[f32], partial: &[AtomicF32]) {
    let (head, body, tail) = Aligned::<[f32; WIDTH]>::split(x);
    let mut sums = [0.0; WIDTH];
    for i in thread::grid_stride(body.len()) {
        let Aligned(x) = body[i];
        for j in 0..WIDTH {
            sums[j] += x[j];
        }
    }
    let mut sum = sums.into_iter().sum();
    for rest in [head, tail] {
        for i in thread::grid_stride(rest.len()) {
            sum += rest[i];
        }
    }

    let scratch = shared_array![f32; 8];
    // SAFETY: all 256 threads are here, and `scratch` has an element for each of their 8 warps.
    let sum = unsafe { block_reduce(*scratch, sum, |a, b| a + b) };
    if thread::thread_idx_x() == 0 {
        partial[thread::block_idx_x() as usize].store(sum, Relaxed);
    }
}
