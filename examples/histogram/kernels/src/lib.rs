//! What runs on the GPU.

#![no_std]

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use cuda_std::prelude::*;
use cuda_std::vec::Aligned;

/// Elements that a thread loads at a time.
const WIDTH: usize = 16;

/// The number of intervals.
pub const BINS: usize = 256;

/// Counts the `values` in each of [`BINS`] equal intervals from `low` to `high`, which belongs to
/// the last. Others, and NaN, are not counted.
///
/// Each block counts in its shared memory, where atomic additions are fast, and adds what it
/// counted to the `counts` of all blocks once, at the end.
#[kernel(block = BINS as u32)]
pub fn histogram(values: &[f32], low: f32, high: f32, counts: &[AtomicU32]) {
    let own = shared_array![u32; BINS];
    let i = thread::thread_idx_x();
    // SAFETY: each thread has one of the elements, as there are as many threads.
    unsafe { own.store(i, 0) };
    thread::sync_threads();

    let scale = BINS as f32 / (high - low);
    let count = |value: f32| {
        if value >= low && value <= high {
            let bin = (((value - low) * scale) as u32).min(BINS as u32 - 1);
            // SAFETY: in bounds, zeroed before the barrier, and only added to.
            unsafe { own.fetch_add(bin, 1) };
        }
    };
    let (head, body, tail) = Aligned::<[f32; WIDTH]>::split(values);
    for i in thread::grid_stride(body.len()) {
        body[i].0.into_iter().for_each(count);
    }
    for rest in [head, tail] {
        thread::grid_stride(rest.len()).for_each(|i| count(rest[i]));
    }

    thread::sync_threads();
    // SAFETY: all additions were before the barrier.
    counts[i as usize].fetch_add(unsafe { own.load(i) }, Relaxed);
}
