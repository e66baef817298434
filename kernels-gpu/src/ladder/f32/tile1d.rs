//! Rung 6, `tile1d`: a column of eight outputs per thread.
//!
//! # The idea
//!
//! Two outputs per thread saved a quarter of the shared loads; eight save almost half. A thread
//! with TM outputs in a column needs TM + 1 loads for TM FMAs.
//!
//! ```text
//!                 B tile      BN = 64
//!               +------o---------------+  BK = 8
//!     A tile      C tile
//!     +---+     +------|---------------+
//!     | o |     |      x               |
//!     | o |     |      x               |
//!     | : | BM  |      :   TM = 8      |  x = the outputs of one thread
//!     | o | =64 |      x               |
//!     |   |     |                      |
//!     +---+     +----------------------+
//! ```
//!
//! # What changed
//!
//! - The block's tile grew to 64 x 64, and the step along K shrank to 8. So each of 512 threads
//!   copies exactly one element of A and one of B.
//! - Threads are numbered in one dimension: they copy in one shape and compute in another.
//! - The rows of a thread are neighbours now.
//!
//! # What should get better, and what comes next
//!
//! Nine shared loads feed eight FMAs, and each element from global memory is used 64 times, not 32.
//! A longer column gains little: A still costs one load per FMA. `tile2d` reuses A as well.

use cuda_std::prelude::*;

use crate::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target, Tile};
use crate::device::operand::input::Input;
use crate::device::output::matrix::Output;

/// Rows of C per block.
const BM: u32 = 64;
/// Columns of C per block.
const BN: u32 = 64;
/// Step along K.
const BK: u32 = 8;
/// Rows of C per thread.
const TM: u32 = 8;

/// Threads per block.
const THREADS: u32 = BM / TM * BN;

const _: () = assert!(THREADS == BM * BK, "each thread loads one element of A");
const _: () = assert!(THREADS == BK * BN, "each thread loads one element of B");

/// What the host needs to launch [`tile1d()`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "tile1d",
    summary: "a column of eight outputs per thread",
    origin: Some("a tutorial on 1-D and 2-D thread tiles, section 1"),
    tile: Tile { bm: BM, bn: BN, bk: BK, tm: TM, tn: 1 },
    block: [THREADS, 1],
    grid: GridOrder::ColumnsAlongX,
    shared: Shared::Static((BM * BK + BK * BN) * 4),
    unaligned: None,
    abi: KernelAbi::Gemm,
    arithmetic: Arithmetic::Fma,
    target: Target::Sm80,
    source: include_str!("tile1d.rs"),
    variants: &[],
    reads_anywhere: [false; 2],
    compensates: false,
};

/// `C = alpha * A * B + beta * C`, eight outputs per thread.
///
/// # Safety
/// - The grid covers C with blocks as [`DESCRIPTOR`] says.
/// - `a`, `b` and `c` are device pointers to matrices of m x k, k x n and m x n elements. The
///   leading dimensions are `lda >= k`, `ldb >= n` and `ldc >= n`.
/// - Nothing else writes A or B, or touches C, during the launch.
#[kernel(block = THREADS)]
pub unsafe fn tile1d(
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
    let block_row = thread::block_idx_y() * BM;
    let block_col = thread::block_idx_x() * BN;
    // SAFETY: as the launch promises.
    let (a, b, c) = unsafe {
        (Input::new(a, lda, m, k), Input::new(b, ldb, k, n), Output::new(c, ldc, m, n, alpha, beta))
    };
    // What this thread computes, and what it copies.
    let (thread_row, thread_col) = (tid / BN * TM, tid % BN);
    let (a_row, a_col) = (tid / BK, tid % BK);
    let (b_row, b_col) = (tid / BN, tid % BN);

    let a_smem = shared_array![f32; (BM * BK) as usize]; // (BM, BK)
    let b_smem = shared_array![f32; (BK * BN) as usize]; // (BK, BN)

    let mut acc = [0.0f32; TM as usize];

    let mut k0 = 0;
    while k0 < k {
        // Load.
        // SAFETY: inside the tiles, and each thread stores its own words.
        unsafe {
            a_smem.store(a_row * BK + a_col, a.get(block_row + a_row, k0 + a_col));
            b_smem.store(b_row * BN + b_col, b.get(k0 + b_row, block_col + b_col));
        }
        thread::sync_threads();

        // Compute.
        for kk in 0..BK {
            // SAFETY: inside the tiles, and stored before the barrier.
            unsafe {
                let b_value = b_smem.load(kk * BN + thread_col);
                for i in 0..TM {
                    let a_value = a_smem.load((thread_row + i) * BK + kk);
                    acc[i as usize] = fma(a_value, b_value, acc[i as usize]);
                }
            }
        }
        thread::sync_threads();
        k0 += BK;
    }

    for i in 0..TM {
        // SAFETY: each thread has its own outputs.
        unsafe { c.store(block_row + thread_row + i, block_col + thread_col, acc[i as usize]) };
    }
}
