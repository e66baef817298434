//! Rung 8, `vec4`: 128-bit loads, and nothing else.
//!
//! # The idea
//!
//! This rung begins a second path, which starts again from `naive` and comes to shared memory last.
//! `vec4`, `regtile` and `smem2d` are slower than `tile2d`; the two paths meet at `transposed`.
//!
//! There is no shared memory here, but vector accesses: one 128-bit load brings four neighbours of
//! B. With four rows of A that is a tile of 4 x 4 outputs in registers, for five loads per step.
//!
//! ```text
//!               B
//!             +---------+----+------+
//!           i |         |oooo|      |   one 128-bit load
//!             +---------+----+------+
//!    A   i      C
//!   +--+--+   +---------+----+------+
//!   |  |o |   |         |xxxx|      |
//!   |  |o |   |         |xxxx|      |   x = the 4 x 4 outputs
//!   |  |o |   |         |xxxx|      |       of one thread
//!   |  |o |   |         |xxxx|      |
//!   +--+--+   +---------+----+------+
//! ```
//!
//! # What changed
//!
//! Against `naive`:
//!
//! - 16 outputs per thread, and 128-bit accesses to B and C.
//! - Five loads replace 32: 84 % of the load instructions are gone.
//! - A thread past the edge of C reads the last row or column again and stores nothing. So the loop
//!   has no bounds to check.
//! - 128-bit accesses need aligned matrices. All others have a second entry point, which loads the
//!   four elements one by one (see `matrix`).
//!
//! # What should get better, and what comes next
//!
//! Each element loaded feeds two FMAs, where `naive` has half of one: the arithmetic intensity of
//! an N x N tile is N/2. `tile2d` has N = 8 and loads that a block shares, so it stays ahead.
//! `regtile` doubles N.

use cuda_std::prelude::*;
use cuda_std::vec;

use crate::abi::{
    Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target, Tile, Unaligned,
};
use crate::device::output::matrix::Output;

/// Rows of C per block.
const BM: u32 = 64;
/// Columns of C per block.
const BN: u32 = 64;
/// Rows of C per thread.
const TM: u32 = 4;
/// Columns of C per thread.
const TN: u32 = 4;

/// Threads across the block's tile, and all of them.
const THREADS_N: u32 = BN / TN;
const THREADS: u32 = BM / TM * THREADS_N;

/// What the host needs to launch [`vec4()`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "vec4",
    summary: "a second path, without shared memory: 128-bit loads, 4x4 outputs per thread",
    origin: Some("a textbook's section on GEMM, 8.4.3: gemm_use_128"),
    tile: Tile { bm: BM, bn: BN, bk: 1, tm: TM, tn: TN },
    block: [THREADS, 1],
    grid: GridOrder::ColumnsAlongX,
    shared: Shared::Static(0),
    unaligned: Some(Unaligned::of_all("vec4_unaligned")),
    abi: KernelAbi::Gemm,
    arithmetic: Arithmetic::Fma,
    target: Target::Sm80,
    source: include_str!("vec4.rs"),
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
#[kernel(block = THREADS, min_blocks = 2, variants(ALIGNED = true as _ | false as unaligned))]
pub unsafe fn vec4<const ALIGNED: bool>(
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
    let row = thread::block_idx_y() * BM + tid / THREADS_N * TM;
    let col = thread::block_idx_x() * BN + tid % THREADS_N * TN;

    // Where this thread's rows of A start, and its columns of B.
    let mut a_rows = [a; TM as usize];
    let mut b_cols = [b; TN as usize];
    for i in 0..TM {
        let row = (row + i).min(m - 1);
        // SAFETY: a row of A.
        a_rows[i as usize] = unsafe { a.add(row as usize * lda as usize) };
    }
    for j in 0..TN {
        // Four at a time stay four neighbours: all inside, or all replaced.
        let col = if ALIGNED { col.min(n - TN) + j } else { (col + j).min(n - 1) };
        // SAFETY: a column of B.
        b_cols[j as usize] = unsafe { b.add(col as usize) };
    }

    let mut acc = [[0.0f32; TN as usize]; TM as usize];

    for i in 0..k as usize {
        // SAFETY: i < k: an element of these rows of A, and of these columns of B.
        let (frag_a, frag_b) = unsafe {
            let offset = i * ldb as usize;
            let frag_b = if ALIGNED {
                vec::load4(b_cols[0].add(offset))
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
            c.store4::<ALIGNED>(row + i, col, acc[i as usize]);
        }
    }
}
