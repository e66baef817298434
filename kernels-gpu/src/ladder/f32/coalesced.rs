//! Rung 2, `coalesced`: neighbouring threads, neighbouring columns.
//!
//! # The idea
//!
//! The memory system serves the 32 addresses of a warp's load together, sector by sector.
//! Neighbouring addresses need 4 sectors, scattered ones up to 32. So `threadIdx.x`, which tells
//! the lanes of a warp apart, should walk along the rows of memory.
//!
//! ```text
//!               B
//!             +---------+-------+
//!           i |         |#######|   one 128-byte line
//!             +---------+-------+
//!    A   i      C
//!   +--+--+   +---------+-------+
//! m |  |# |   |         |01..31 |   a warp: 32 columns of one row
//!   +--+--+   +---------+-------+
//! ```
//!
//! # What changed
//!
//! `threadIdx.x` selects the column. The block is 32 x 32, so that a warp is one row of it. In one
//! step a warp has two requests:
//!
//! - It reads one element of A, the same for all lanes: 1 sector, where `naive` has 16.
//! - It reads 32 neighbours of B: 4 or 5 sectors, where `naive` has 1 or 2.
//!
//! # What should get better, and what comes next
//!
//! Requests touch fewer sectors, and stores to C fill theirs. Still two loads feed one FMA, and
//! every thread loads all the elements it needs. `smem_full` keeps them in shared memory.

use cuda_std::prelude::*;

use crate::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target, Tile};
use crate::device::output::matrix::Output;

/// Rows of C per block.
const BM: u32 = 32;
/// Columns of C per block.
const BN: u32 = 32;

/// What the host needs to launch [`coalesced()`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "coalesced",
    summary: "threadIdx.x walks columns: a warp reads and writes whole lines",
    origin: Some("a blog post on shared memory and registers: gemmOnGPU2D"),
    tile: Tile { bm: BM, bn: BN, bk: 1, tm: 1, tn: 1 },
    block: [BN, BM],
    grid: GridOrder::ColumnsAlongX,
    shared: Shared::Static(0),
    unaligned: None,
    abi: KernelAbi::Gemm,
    arithmetic: Arithmetic::Fma,
    target: Target::Sm80,
    source: include_str!("coalesced.rs"),
    variants: &[],
    reads_anywhere: [false; 2],
    compensates: false,
};

/// `C = alpha * A * B + beta * C`, one output per thread.
///
/// # Safety
/// - The grid covers C with blocks as [`DESCRIPTOR`] says.
/// - `a`, `b` and `c` are device pointers to matrices of m x k, k x n and m x n elements. The
///   leading dimensions are `lda >= k`, `ldb >= n` and `ldc >= n`.
/// - Nothing else writes A or B, or touches C, during the launch.
#[kernel(block = (BN, BM))]
pub unsafe fn coalesced(
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
    let row = thread::block_idx_y() * BM + thread::thread_idx_y();
    let col = thread::block_idx_x() * BN + thread::thread_idx_x();
    if row >= m || col >= n {
        return;
    }

    // SAFETY: row < m and col < n: the start of a row of A, and of a column of B.
    let (a_row, b_col) = unsafe { (a.add(row as usize * lda as usize), b.add(col as usize)) };

    let mut acc = 0.0;
    for i in 0..k as usize {
        // SAFETY: i < k: an element of this row of A, and of this column of B.
        acc = unsafe { fma(*a_row.add(i), *b_col.add(i * ldb as usize), acc) };
    }

    // SAFETY: C is as the launch promises, and each thread has its own (row, col).
    unsafe { Output::new(c, ldc, m, n, alpha, beta).store(row, col, acc) };
}
