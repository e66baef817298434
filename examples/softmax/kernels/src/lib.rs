//! What runs on the GPU.

#![no_std]

use cuda_std::block::block_reduce;
use cuda_std::fast;
use cuda_std::prelude::*;
use cuda_std::vec::Aligned;

/// Threads that share a row.
pub const THREADS: usize = 256;
/// Elements that a thread loads at a time.
const WIDTH: usize = 8;
/// The elements of a row that a thread has.
pub type Part = Aligned<[f32; WIDTH]>;
/// The elements of a row.
pub const COLUMNS: usize = THREADS * (size_of::<Part>() / size_of::<f32>());

/// The softmax of each row: `exp(x - max) / sum of exp(x - max)`.
///
/// A block has a row, which stays in registers between the one load and the one store.
#[kernel(block = THREADS as u32)]
pub fn softmax(x: &[Part], mut out: DisjointSlice<Part>) {
    let Aligned(mut x) = x[thread::index() as usize];
    let scratch = shared_array![f32; THREADS / 32];
    let reduce = |value, op: fn(f32, f32) -> f32| {
        // SAFETY: the whole block is here, and `scratch` has an element for each warp.
        unsafe { block_reduce(*scratch, value, op) }
    };

    let max = reduce(x.into_iter().fold(f32::NEG_INFINITY, f32::max), f32::max);
    for x in &mut x {
        *x = fast::exp(*x - max);
    }
    let sum = reduce(x.into_iter().sum(), |a, b| a + b);
    if let Some(out) = out.get_mut() {
        *out = Aligned(x.map(|x| x * (1.0 / sum)));
    }
}
