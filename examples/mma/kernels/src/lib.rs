//! What runs on the GPU: a product of matrices on tensor cores.
//!
//! One instruction of a warp, `mma.sync.m16n8k16`, multiplies 16 x 16 elements of A by 16 x 8 of B
//! and adds that to 16 x 8 sums. The 32 lanes hold all three in their registers, each a few
//! elements of them: its *fragments*. They are made of 8 x 8 matrices, and of each of these a lane
//! has two neighbours. [`cuda_std::mma`] has the tables of which lane has which.
//!
//! ```text
//!                       B  | b0 |    a0 to a3, b0 and b1: 8 x 8 elements, one register of each lane
//!                          | b1 |    c0 and c1, c2 and c3: 8 x 8 sums, two registers of each lane
//!
//!   A  | a0 a2 |   sums  | c0, c1 |
//!      | a1 a3 |         | c2, c3 |
//! ```
//!
//! `ldmatrix` brings elements to the lanes that want them, from shared memory. Each lane says where
//! a row of 8 elements begins: lanes 0 to 7 those of the first matrix, 8 to 15 those of the second,
//! and so on. Of each matrix it gets its two neighbours, most often of a row that another lane
//! pointed to.
//!
//! The two are neighbours along K: of a row of A, but of a column of B. B lies row by row, so that
//! its loads transpose each matrix on the way (`ldmatrix.trans`).

#![no_std]

use cuda_std::half::bf16;
use cuda_std::mma::{Bf16, FragmentA, FragmentB, ldmatrix_x2_trans, ldmatrix_x4, mma};
use cuda_std::prelude::*;

/// Rows of C of a block, which is one warp.
pub const M: usize = 16;
/// Columns of C of a block.
pub const N: usize = 8;
/// What one `mma` multiplies along K.
const K: usize = 16;
/// The threads of a warp.
pub const LANES: usize = 32;

/// `c = a * b`, row-major: `a` is m x k, `b` is k x n, and `c` is m x n. A block
/// for each [`M`] x [`N`] elements of `c` is launched, in rows of blocks.
///
/// Each step along K copies a tile of `a` and one of `b` to shared memory. Outside of the matrices
/// there are zeros, which add nothing to a sum: so no size need be a multiple of anything.
#[kernel(block = LANES as u32)]
pub fn matmul(m: u32, n: u32, k: u32, a: &[bf16], b: &[bf16], mut c: DisjointSlice<f32>) {
    let [m, n, k] = [m, n, k].map(|size| size as usize);
    assert!(a.len() == m * k && b.len() == k * n && c.len() == m * n);
    let a_smem = shared_array![u16; M * K];
    let b_smem = shared_array![u16; K * N];
    let block = thread::index() as usize / LANES;
    let (row, col) = (block / n.div_ceil(N) * M, block % n.div_ceil(N) * N);
    let lane = thread::thread_idx_x();

    let mut sums = [0.0; 4];
    for k0 in (0..k).step_by(K) {
        // SAFETY: a barrier lies behind what was loaded before, and one before what is loaded next.
        unsafe {
            copy(a, k, row, k0, K, a_smem);
            copy(b, n, k0, col, N, b_smem);
        }
        thread::sync_threads();
        // SAFETY: the whole warp is here. All rows lie inside of the tiles, which were stored
        // before the barrier, and begin on 16 bytes: the arrays do on 128, and rows are of 16 and
        // 32 bytes.
        unsafe {
            // Lanes 0 to 15 point to the left halves of the 16 rows of A, 16 to 31 to the right
            // ones.
            let a = ldmatrix_x4(a_smem.add(lane % 16 * K as u32 + lane / 16 * 8));
            // Lanes 0 to 15 point to the 16 rows of B. What the others say does not count.
            let b = ldmatrix_x2_trans(b_smem.add(lane % 16 * N as u32));
            sums = mma(FragmentA::<Bf16, 4>::from_bits(a), FragmentB::from_bits(b), sums);
        }
        thread::sync_threads();
    }

    for (i, sum) in sums.into_iter().enumerate() {
        let lane = lane as usize;
        let (row, col) = (row + lane / 4 + i / 2 * 8, col + lane % 4 * 2 + i % 2);
        if row < m && col < n {
            // SAFETY: in bounds, and of this block's tile, of which this lane alone has it.
            unsafe { *c.as_mut_ptr().add(row * n + col) = sum };
        }
    }
}

/// Copies a tile of `columns` columns that begins at (`row`, `col`) of a matrix, whose rows have
/// `width` elements. The lanes of the warp take turns.
///
/// # Safety
/// Nothing else accesses `tile` between the barriers before and behind this.
unsafe fn copy<const LEN: usize>(
    matrix: &[bf16],
    width: usize,
    row: usize,
    col: usize,
    columns: usize,
    tile: SharedArray<u16, LEN>,
) {
    for i in (thread::thread_idx_x() as usize..LEN).step_by(LANES) {
        let (row, col) = (row + i / columns, col + i % columns);
        // Beyond the last row is beyond the end of the slice.
        let element = match matrix.get(row * width + col) {
            Some(&element) if col < width => element,
            _ => bf16::ZERO,
        };
        // SAFETY: inside of the array, and each lane stores elements of its own.
        unsafe { tile.store(i as u32, element.to_bits()) };
    }
}
