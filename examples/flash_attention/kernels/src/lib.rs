//! What runs on the GPU.

#![no_std]

use cuda_std::fast;
use cuda_std::prelude::*;
use cuda_std::vec::Aligned;

/// Elements of a query, a key or a value.
pub const DIM: usize = 64;
/// Queries of a block, one for each thread.
pub const QUERIES: usize = 64;
/// Keys and values that a block has in shared memory at a time.
const KEYS: usize = 32;

/// What one access moves of a query, a key or a value.
pub type Quad = Aligned<[f32; 4]>;
/// A query, a key or a value.
pub type Row = [Quad; DIM / 4];

/// `out = softmax(q k^T / sqrt(DIM)) v`, for heads of `len` queries, keys and values each, which
/// follow each other in the slices. `len` is a multiple of [`QUERIES`], and a block for each that
/// many queries is launched.
///
/// The matrix of scores is never stored (Dao et al., 2022). A thread goes along the keys with the
/// largest score so far, the sum of the exponentials and the sum of the weighted values; where a
/// larger score comes, it scales down what it has.
#[kernel(block = QUERIES as u32)]
pub fn flash_attention(len: u32, q: &[Row], k: &[Row], v: &[Row], mut out: DisjointSlice<Row>) {
    let k_smem = shared_array![Quad; KEYS * DIM / 4];
    let v_smem = shared_array![Quad; KEYS * DIM / 4];
    let len = len as usize;
    assert!(len.is_multiple_of(QUERIES));
    let head = thread::block_idx_x() as usize * QUERIES / len * len;
    let query = &q[thread::index() as usize];

    // Indices of these are known once the loops are unrolled, so that they stay in registers.
    let (mut q, mut acc) = ([0.0; DIM], [0.0; DIM]);
    for i in 0..DIM {
        q[i] = query[i / 4].0[i % 4] / (DIM as f32).sqrt();
    }
    let (mut max, mut sum) = (f32::NEG_INFINITY, 0.0);
    for first in (0..len).step_by(KEYS) {
        let quads = KEYS.min(len - first) * DIM / 4;
        for (from, to) in [(k, *k_smem), (v, *v_smem)] {
            for i in (thread::thread_idx_x() as usize..quads).step_by(QUERIES) {
                let quad = from[head + first + i / (DIM / 4)][i % (DIM / 4)];
                // SAFETY: in bounds; each thread has elements of its own, and a barrier lies
                // between this and what others load of it.
                unsafe { to.write(i as u32, quad) };
            }
        }
        thread::sync_threads();
        for key in (0..quads as u32).step_by(DIM / 4) {
            let mut score = 0.0;
            for i in 0..DIM / 4 {
                // SAFETY: written before the barrier.
                let Aligned(k) = unsafe { k_smem.read(key + i as u32) };
                for j in 0..4 {
                    score = fma(q[4 * i + j], k[j], score);
                }
            }
            let larger = max.max(score);
            let (scale, weight) = (fast::exp(max - larger), fast::exp(score - larger));
            sum = fma(sum, scale, weight);
            max = larger;
            for i in 0..DIM / 4 {
                // SAFETY: as above.
                let Aligned(v) = unsafe { v_smem.read(key + i as u32) };
                for j in 0..4 {
                    acc[4 * i + j] = fma(acc[4 * i + j], scale, weight * v[j]);
                }
            }
        }
        thread::sync_threads();
    }
    if let Some(out) = out.get_mut() {
        for i in 0..DIM {
            out[i / 4].0[i % 4] = acc[i] / sum;
        }
    }
}
