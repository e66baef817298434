//! Rung 4, `smem_tile`: the inner dimension in tiles.
//!
//! # The idea
//!
//! A sum over K can be cut into parts. Bring in a tile of A and a tile of B, use them up, and load
//! the next ones into the same place. Shared memory no longer depends on K.
//!
//! ```text
//!                     B   +------+
//!                         |      | <- next
//!                  BK=32  |######| <- this tile of B
//!                         |      |
//!      A     BK           +------+
//!    +------+---+------+  +------+
//!    |      |###|      |  |  C   |  BM = BN = 32
//!    +------+---+------+  +------+
//!            this tile of A, then the next ->
//! ```
//!
//! # What changed
//!
//! The loop over K runs in steps of 32, with two barriers in each:
//!
//! - At the first, all wait until the tile is complete.
//! - At the second, all wait until nobody computes from the tile any more. Then it may be
//!   overwritten.
//!
//! Every thread of the block goes through both, also those past the edge of C: a barrier that only
//! some threads reach is undefined behaviour. Elements past the edges are zeros.
//!
//! # What should get better, and what comes next
//!
//! Any K works, and several blocks fit on a multiprocessor: one computes while another waits for
//! memory. Now two loads from *shared* memory feed one FMA, and shared memory is the bottleneck.
//! `rows2` uses each value of B twice.

use cuda_std::prelude::*;

use crate::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target, Tile};
use crate::device::operand::input::Input;
use crate::device::output::matrix::Output;

/// Rows of C per block.
const BM: u32 = 32;
/// Columns of C per block.
const BN: u32 = 32;
/// Step along K.
const BK: u32 = 32;

const _: () = assert!(BK == BN && BK == BM, "each thread loads one element of A and one of B");

/// What the host needs to launch [`smem_tile()`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "smem_tile",
    summary: "tiles of A and B in shared memory, step by step along K",
    origin: Some("a blog post on shared memory and registers: gemmOnGPU2DShareMemV2"),
    tile: Tile { bm: BM, bn: BN, bk: BK, tm: 1, tn: 1 },
    block: [BN, BM],
    grid: GridOrder::ColumnsAlongX,
    shared: Shared::Static((BM * BK + BK * BN) * 4),
    unaligned: None,
    abi: KernelAbi::Gemm,
    arithmetic: Arithmetic::Fma,
    target: Target::Sm80,
    source: include_str!("smem_tile.rs"),
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
pub unsafe fn smem_tile(
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
    let (tx, ty) = (thread::thread_idx_x(), thread::thread_idx_y());
    let row = thread::block_idx_y() * BM + ty;
    let col = thread::block_idx_x() * BN + tx;
    // SAFETY: as the launch promises.
    let (a, b, c) = unsafe {
        (Input::new(a, lda, m, k), Input::new(b, ldb, k, n), Output::new(c, ldc, m, n, alpha, beta))
    };

    let a_smem = shared_array![f32; (BM * BK) as usize]; // (BM, BK)
    let b_smem = shared_array![f32; (BK * BN) as usize]; // (BK, BN)

    let mut acc = 0.0;

    let mut k0 = 0;
    while k0 < k {
        // Load.
        // SAFETY: inside the tiles, and each thread stores its own words.
        unsafe {
            a_smem.store(ty * BK + tx, a.get(row, k0 + tx));
            b_smem.store(ty * BN + tx, b.get(k0 + ty, col));
        }
        thread::sync_threads();

        // Compute.
        for kk in 0..BK {
            // SAFETY: inside the tiles, and stored before the barrier.
            acc = unsafe { fma(a_smem.load(ty * BK + kk), b_smem.load(kk * BN + tx), acc) };
        }
        thread::sync_threads();
        k0 += BK;
    }

    // SAFETY: each thread has its own (row, col).
    unsafe { c.store(row, col, acc) };
}
