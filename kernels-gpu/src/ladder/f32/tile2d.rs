//! Rung 7, `tile2d`: each thread computes an 8 x 8 tile of C.
//!
//! # The idea
//!
//! A thread keeps TM rows and TN columns of C in registers. For each k it reads TM + TN values from
//! shared memory for TM * TN FMAs. With 8 x 8 that is 16 loads for 64 FMAs, a quarter of a load per
//! result. One output per thread needs two loads.
//!
//! ```text
//!                     B tile        BN = 128
//!                   +---------------------------+
//!           BK = 8  |  o   o   o   o   o   o    |  o = the 8 values of B that one thread
//!                   +---------------------------+      holds for one k
//!   A tile  BK        C tile
//!   +-----+         +---------------------------+
//!   |  o  |         |  x   x   x   x   x   x    |
//!   |     |         |                           |
//!   |  o  | BM=128  |  x   x   x   x   x   x    |  x = its 8 x 8 outputs, 16 apart in
//!   |     |         |                           |      both directions
//!   |  o  |         |  x   x   x   x   x   x    |
//!   +-----+         +---------------------------+
//! ```
//!
//! # What changed
//!
//! The block's tile of C grew to 128 x 128, and a thread's from a column of 8 to a square of 8 x 8.
//!
//! The outputs of a thread lie 16 apart, not side by side. So the 16 threads of a row read 16
//! neighbouring words of B at a time, each from its own bank. With eight neighbouring columns per
//! thread, four threads would share each bank. Stores to C are coalesced for the same reason.
//!
//! # What should get better, and what comes next
//!
//! Loads per result fall to K/64 from global memory, and to K/4 from shared memory. The shared
//! loads are the bottleneck: one word each, 16 for every 64 FMAs. A 128-bit load brings four words.
//!
//! The next three rungs come to 128-bit loads by another path, which starts again without shared
//! memory. `transposed` goes on from here.

use cuda_std::prelude::*;

use crate::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target, Tile};
use crate::device::operand::input::Input;
use crate::device::output::matrix::Output;

/// Rows of C per block.
const BM: u32 = 128;
/// Columns of C per block.
const BN: u32 = 128;
/// Step along K.
const BK: u32 = 8;
/// Rows of C per thread.
const TM: u32 = 8;
/// Columns of C per thread.
const TN: u32 = 8;

/// Threads down and across the block's tile, and all of them.
const THREADS_M: u32 = BM / TM;
const THREADS_N: u32 = BN / TN;
const THREADS: u32 = THREADS_M * THREADS_N;

/// Rows of A, and of B, that the block loads in one go.
const STRIDE_A: u32 = THREADS / BK;
const STRIDE_B: u32 = THREADS / BN;

const _: () =
    assert!(BM.is_multiple_of(TM) && BN.is_multiple_of(TN), "thread tiles fill the block's tile");
const _: () = assert!(BM.is_multiple_of(STRIDE_A), "every thread loads the same share of A");
const _: () = assert!(BK.is_multiple_of(STRIDE_B), "every thread loads the same share of B");

/// What the host needs to launch [`tile2d()`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "tile2d",
    summary: "8x8 outputs per thread, tiles of A and B in shared memory",
    origin: Some("two tutorials on 2-D thread tiles"),
    tile: Tile { bm: BM, bn: BN, bk: BK, tm: TM, tn: TN },
    block: [THREADS, 1],
    grid: GridOrder::ColumnsAlongX,
    shared: Shared::Static((BM * BK + BK * BN) * 4),
    unaligned: None,
    abi: KernelAbi::Gemm,
    arithmetic: Arithmetic::Fma,
    target: Target::Sm80,
    source: include_str!("tile2d.rs"),
    variants: &[],
    reads_anywhere: [false; 2],
    compensates: false,
};

/// `C = alpha * A * B + beta * C`, 8 x 8 outputs per thread.
///
/// # Safety
/// - The grid covers C with blocks as [`DESCRIPTOR`] says.
/// - `a`, `b` and `c` are device pointers to matrices of m x k, k x n and m x n elements. The
///   leading dimensions are `lda >= k`, `ldb >= n` and `ldc >= n`.
/// - Nothing else writes A or B, or touches C, during the launch.
#[kernel(block = THREADS, min_blocks = 2)]
pub unsafe fn tile2d(
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
    let (thread_row, thread_col) = (tid / THREADS_N, tid % THREADS_N);
    let (a_row, a_col) = (tid / BK, tid % BK);
    let (b_row, b_col) = (tid / BN, tid % BN);

    let a_smem = shared_array![f32; (BM * BK) as usize]; // (BM, BK)
    let b_smem = shared_array![f32; (BK * BN) as usize]; // (BK, BN)

    let mut acc = [[0.0f32; TN as usize]; TM as usize];

    let mut k0 = 0;
    while k0 < k {
        // Load.
        // SAFETY: inside the tiles, and each thread stores its own words.
        unsafe {
            for y in (a_row..BM).step_by(STRIDE_A as usize) {
                a_smem.store(y * BK + a_col, a.get(block_row + y, k0 + a_col));
            }
            for y in (b_row..BK).step_by(STRIDE_B as usize) {
                b_smem.store(y * BN + b_col, b.get(k0 + y, block_col + b_col));
            }
        }
        thread::sync_threads();

        // Compute: for each k of the tile, an outer product of 8 values of A and 8 of B.
        for kk in 0..BK {
            let mut frag_a = [0.0f32; TM as usize];
            let mut frag_b = [0.0f32; TN as usize];
            // SAFETY: inside the tiles, and stored before the barrier.
            unsafe {
                for i in 0..TM {
                    let y = thread_row + i * THREADS_M;
                    frag_a[i as usize] = a_smem.load(y * BK + kk);
                }
                for j in 0..TN {
                    let x = thread_col + j * THREADS_N;
                    frag_b[j as usize] = b_smem.load(kk * BN + x);
                }
            }
            for i in 0..TM as usize {
                for j in 0..TN as usize {
                    acc[i][j] = fma(frag_a[i], frag_b[j], acc[i][j]);
                }
            }
        }
        thread::sync_threads();
        k0 += BK;
    }

    for i in 0..TM {
        for j in 0..TN {
            let row = block_row + thread_row + i * THREADS_M;
            let col = block_col + thread_col + j * THREADS_N;
            // SAFETY: each thread has its own outputs.
            unsafe { c.store(row, col, acc[i as usize][j as usize]) };
        }
    }
}
