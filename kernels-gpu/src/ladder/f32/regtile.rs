//! Rung 9, `regtile`: a larger tile in registers.
//!
//! # The idea
//!
//! The arithmetic intensity of an N x N tile is N/2, so make N eight. The 8 x 8 outputs are 2 x 2
//! blocks of 4 x 4, half a block's tile apart. That keeps the 128-bit loads of a warp side by side.
//!
//! ```text
//!                      B
//!                    +------+----+------+----+----+
//!                  i |      |oooo|      |oooo|    |   two 128-bit loads
//!                    +------+----+------+----+----+
//!    A   i             C     tc*4        64+tc*4
//!   +--+--+          +------+----+------+----+----+
//!   |  |o | tr*4     |      |xxxx|      |xxxx|    |
//!   |  |o |          |      |xxxx|      |xxxx|    |   x = the outputs of one
//!   |  |  |          |                            |       thread, 2 x 2 blocks of 4 x 4
//!   |  |o | 64+tr*4  |      |xxxx|      |xxxx|    |
//!   |  |o |          |      |xxxx|      |xxxx|    |
//!   +--+--+          +------+----+------+----+----+
//! ```
//!
//! # What changed
//!
//! A thread and a block have four times the outputs, in 2 x 2 blocks of 4 x 4.
//!
//! # What should get better, and what comes next
//!
//! A step has ten loads for 64 FMAs, where `vec4` has five for 16. But every thread still loads
//! what its neighbours load also, and fewer threads are left to hide latency. `tile2d`, with the
//! same 64 outputs per thread, is faster. `smem2d` shares the loads.

use cuda_std::prelude::*;
use cuda_std::vec;

use crate::abi::{
    Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target, Tile, Unaligned,
};
use crate::device::output::matrix::Output;

/// Rows of C per block.
const BM: u32 = 128;
/// Columns of C per block.
const BN: u32 = 128;
/// Rows of C per thread, in two groups of four, half a block apart.
const TM: u32 = 8;
/// Columns of C per thread, grouped like the rows.
const TN: u32 = 8;

/// Threads across the block's tile, and all of them.
const THREADS_N: u32 = BN / TN;
const THREADS: u32 = BM / TM * THREADS_N;

/// What the host needs to launch [`regtile()`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "regtile",
    summary: "the second path: 8x8 outputs per thread as 2x2 blocks of 4x4, no shared memory",
    origin: Some("a textbook's section on GEMM, 8.4.3: gemm_use_tile"),
    tile: Tile { bm: BM, bn: BN, bk: 1, tm: TM, tn: TN },
    block: [THREADS, 1],
    grid: GridOrder::ColumnsAlongX,
    shared: Shared::Static(0),
    unaligned: Some(Unaligned::of_all("regtile_unaligned")),
    abi: KernelAbi::Gemm,
    arithmetic: Arithmetic::Fma,
    target: Target::Sm80,
    source: include_str!("regtile.rs"),
    variants: &[],
    reads_anywhere: [false; 2],
    compensates: false,
};

/// `C = alpha * A * B + beta * C`.
///
/// # Safety
/// - The grid covers C with blocks as [`DESCRIPTOR`] says.
/// - `a`, `b` and `c` are device pointers to matrices of m x k, k x n and m x n elements. The
///   leading dimensions are `lda >= k`, `ldb >= n` and `ldc >= n`.
/// - Nothing else writes A or B, or touches C, during the launch.
/// - If `ALIGNED`, the pointers are multiples of 16 bytes, and `n`, `k`, `lda`, `ldb` and `ldc`
///   multiples of 4.
#[kernel(block = THREADS, variants(ALIGNED = true as _ | false as unaligned))]
pub unsafe fn regtile<const ALIGNED: bool>(
    m: u32,
    n: u32,
    k: u32,
    alpha: f32,
    a: *const f32,
    lda: u32,
    b: *const f32,
    ldb: u32,
    beta: f32,
    c: *mut f32,
    ldc: u32,
) {
    let tid = thread::thread_idx_x();
    let row = thread::block_idx_y() * BM + tid / THREADS_N * 4;
    let col = thread::block_idx_x() * BN + tid % THREADS_N * 4;

    // Where this thread's rows of A start, and its columns of B.
    let mut a_rows = [a; TM as usize];
    let mut b_cols = [b; TN as usize];
    for i in 0..TM {
        let row = (row + i / 4 * (BM / 2) + i % 4).min(m - 1);
        // SAFETY: a row of A.
        a_rows[i as usize] = unsafe { a.add(row as usize * lda as usize) };
    }
    for j in 0..TN {
        // Four at a time stay four neighbours: all inside, or all replaced.
        let quad = col + j / 4 * (BN / 2);
        let col = if ALIGNED { quad.min(n - 4) + j % 4 } else { (quad + j % 4).min(n - 1) };
        // SAFETY: a column of B.
        b_cols[j as usize] = unsafe { b.add(col as usize) };
    }

    let mut acc = [[0.0f32; TN as usize]; TM as usize];

    for i in 0..k as usize {
        // SAFETY: i < k: an element of these rows of A, and of these columns of B.
        let (frag_a, frag_b) = unsafe {
            let offset = i * ldb as usize;
            let frag_b = if ALIGNED {
                let [b0, b1, b2, b3] = vec::load4(b_cols[0].add(offset));
                let [b4, b5, b6, b7] = vec::load4(b_cols[4].add(offset));
                [b0, b1, b2, b3, b4, b5, b6, b7]
            } else {
                b_cols.map(|b_col| *b_col.add(offset))
            };
            (a_rows.map(|a_row| *a_row.add(i)), frag_b)
        };
        for i in 0..TM as usize {
            for j in 0..TN as usize {
                acc[i][j] = fma(frag_a[i], frag_b[j], acc[i][j]);
            }
        }
    }

    // SAFETY: C is as the launch promises, and each thread has its own outputs.
    unsafe {
        let c = Output::new(c, ldc, m, n, alpha, beta);
        for i in 0..TM {
            let row = row + i / 4 * (BM / 2) + i % 4;
            let [c0, c1, c2, c3, c4, c5, c6, c7] = acc[i as usize];
            c.store4::<ALIGNED>(row, col, [c0, c1, c2, c3]);
            c.store4::<ALIGNED>(row, col + BN / 2, [c4, c5, c6, c7]);
        }
    }
}
