//! Rung 1, `naive`: one thread, one output.
//!
//! # The idea
//!
//! Each of the M x N outputs is a dot product of a row of A and a column of B, and none depends on
//! another. So each output gets a thread, and the thread loops over K.
//!
//! ```text
//!              B          n
//!            +-----------|-------+
//!          K |           |       |
//!            +-----------|-------+
//!    A   K                C
//!   +---------+          +-----------+-------+
//!   |         |          |           :       |
//! m |=========|        m |...........x       |   x = one thread
//!   |         |          |                   |
//!   +---------+          +-------------------+
//! ```
//!
//! # What it costs
//!
//! `threadIdx.x` walks the *rows* of C, as the nested loops of a CPU would. A warp is 32 threads
//! with consecutive `threadIdx.x`, here 16 rows by 2 columns.
//!
//! Memory is served in sectors of 32 bytes. A warp's load or store costs as much as the sectors
//! that its request touches:
//!
//! - Each step of the loop loads 16 elements of A that lie `lda` apart: 16 sectors per request. 32
//!   neighbours would need 4.
//! - The next seven steps may find those sectors in the L1 cache, but each requests all 16 again.
//! - The store to C also touches 16 sectors.
//!
//! Two loads feed one FMA: the memory pipeline is busy, and the arithmetic units wait.
//!
//! # What comes next
//!
//! `coalesced` swaps the two axes, and nothing else.

use cuda_std::prelude::*;

use crate::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target, Tile};
use crate::device::output::matrix::Output;

/// Rows of C per block.
const BM: u32 = 16;
/// Columns of C per block.
const BN: u32 = 16;

/// What the host needs to launch [`naive()`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "naive",
    summary: "one thread, one output; threadIdx.x walks rows",
    origin: Some("a textbook's section on GEMM, 8.4.2: gemm_naive"),
    tile: Tile { bm: BM, bn: BN, bk: 1, tm: 1, tn: 1 },
    block: [BM, BN],
    grid: GridOrder::RowsAlongX,
    shared: Shared::Static(0),
    unaligned: None,
    abi: KernelAbi::Gemm,
    arithmetic: Arithmetic::Fma,
    target: Target::Sm80,
    source: include_str!("naive.rs"),
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
#[kernel(block = (BM, BN))]
pub unsafe fn naive(
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
    let row = thread::block_idx_x() * BM + thread::thread_idx_x();
    let col = thread::block_idx_y() * BN + thread::thread_idx_y();
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
