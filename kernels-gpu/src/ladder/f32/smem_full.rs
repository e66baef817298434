//! Rung 3, `smem_full`: what a block needs, all of it, in shared memory.
//!
//! # The idea
//!
//! The 32 x 32 threads of a block read the same 32 rows of A and the same 32 columns of B, each
//! element 32 times. Shared memory is on the chip, and every thread of the block sees it. So copy
//! the rows and columns there once, and read them from there.
//!
//! ```text
//!                        B    BN = 32
//!                           +------+
//!                           |######|
//!                         K |######|  b_smem (K, BN)
//!      A      K             |######|
//!           +-----------+   +------+
//!   BM = 32 |###########|   |  C   |
//!           +-----------+   +------+
//!           a_smem (BM, K)
//! ```
//!
//! # What changed
//!
//! Before the loop over K the block copies its panel of A and its panel of B, and waits at a
//! barrier. Each thread copies an equal share, and neighbours copy neighbours.
//!
//! # What should get better, and what comes next
//!
//! Global loads fall to a 32nd, but little of the gain is left:
//!
//! - The panels need 2 * 32 * K * 4 bytes, so the size of shared memory limits K.
//! - Long before that limit only one block fits on a multiprocessor, and nothing runs while it
//!   copies.
//!
//! `smem_tile` cuts K into tiles.

use cuda_std::prelude::*;

use crate::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target, Tile};
use crate::device::operand::input::Input;
use crate::device::output::matrix::Output;

/// Rows of C per block.
const BM: u32 = 32;
/// Columns of C per block.
const BN: u32 = 32;

/// What the host needs to launch [`smem_full()`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "smem_full",
    summary: "the whole inner dimension in shared memory",
    origin: Some("a blog post on shared memory and registers: gemmOnGPU2DShareMem"),
    tile: Tile { bm: BM, bn: BN, bk: 1, tm: 1, tn: 1 },
    block: [BN, BM],
    grid: GridOrder::ColumnsAlongX,
    shared: Shared::Dynamic(|k| (BM as u64 + BN as u64) * k as u64 * 4),
    unaligned: None,
    abi: KernelAbi::Gemm,
    arithmetic: Arithmetic::Fma,
    target: Target::Sm80,
    source: include_str!("smem_full.rs"),
    variants: &[],
    reads_anywhere: [false; 2],
    compensates: false,
};

/// `C = alpha * A * B + beta * C`, one output per thread.
///
/// # Safety
/// - The grid covers C with blocks as [`DESCRIPTOR`] says, with the dynamic shared memory that it
///   names.
/// - `a`, `b` and `c` are device pointers to matrices of m x k, k x n and m x n elements. The
///   leading dimensions are `lda >= k`, `ldb >= n` and `ldc >= n`.
/// - Nothing else writes A or B, or touches C, during the launch.
#[kernel(block = (BN, BM))]
pub unsafe fn smem_full(
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

    let a_smem = shared::dynamic_shared_mem::<f32>(); // (BM, K)
    let b_smem = a_smem.add(BM * k); // (K, BN)

    // Load: a row of A by the 32 threads of a warp, a row of B by another 32.
    let mut i = tx;
    while i < k {
        // SAFETY: inside (BM, K), and each thread stores its own words.
        unsafe { a_smem.store(ty * k + i, a.get(row, i)) };
        i += BN;
    }
    let mut i = ty;
    while i < k {
        // SAFETY: inside (K, BN), and each thread stores its own words.
        unsafe { b_smem.store(i * BN + tx, b.get(i, col)) };
        i += BM;
    }
    thread::sync_threads();

    // Compute.
    let mut acc = 0.0;
    for i in 0..k {
        // SAFETY: inside the panels, and stored before the barrier.
        acc = unsafe { fma(a_smem.load(ty * k + i), b_smem.load(i * BN + tx), acc) };
    }

    // SAFETY: each thread has its own (row, col).
    unsafe { c.store(row, col, acc) };
}
