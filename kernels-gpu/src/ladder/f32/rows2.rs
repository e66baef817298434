//! Rung 5, `rows2`: two outputs per thread.
//!
//! # The idea
//!
//! A thread that computes two outputs in the same column loads each value of B once for both. That
//! is three shared loads for two FMAs, where one output per thread needs four.
//!
//! ```text
//!               B tile
//!              +-------o------+
//!      A tile    C tile
//!     +------+ +-------|------+
//!     |oooooo| |-------x      |  ty          x = the two outputs
//!     |      | |       |      |                  of one thread
//!     |oooooo| |-------x      |  ty + 16
//!     +------+ +--------------+
//! ```
//!
//! # What changed
//!
//! The block is 32 x 16 threads for the same 32 x 32 tile of C. Each thread copies two elements of
//! A and two of B, and keeps two sums.
//!
//! # What should get better, and what comes next
//!
//! Shared loads fall by a quarter, and half the threads do the same work. `tile1d` goes the whole
//! way: eight outputs in a column.

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
/// Rows of C per thread.
const TM: u32 = 2;

/// Threads down the block's tile: a thread's rows lie this far apart.
const THREADS_M: u32 = BM / TM;

const _: () = assert!(BK == BN && BK == BM, "each thread loads TM elements of A and TM of B");

/// What the host needs to launch [`rows2()`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "rows2",
    summary: "two rows of outputs per thread",
    origin: Some("a blog post on shared memory and registers: gemmOnGPU2DRegMem"),
    tile: Tile { bm: BM, bn: BN, bk: BK, tm: TM, tn: 1 },
    block: [BN, THREADS_M],
    grid: GridOrder::ColumnsAlongX,
    shared: Shared::Static((BM * BK + BK * BN) * 4),
    unaligned: None,
    abi: KernelAbi::Gemm,
    arithmetic: Arithmetic::Fma,
    target: Target::Sm80,
    source: include_str!("rows2.rs"),
    variants: &[],
    reads_anywhere: [false; 2],
    compensates: false,
};

/// `C = alpha * A * B + beta * C`, two outputs per thread.
///
/// # Safety
/// - The grid covers C with blocks as [`DESCRIPTOR`] says.
/// - `a`, `b` and `c` are device pointers to matrices of m x k, k x n and m x n elements. The
///   leading dimensions are `lda >= k`, `ldb >= n` and `ldc >= n`.
/// - Nothing else writes A or B, or touches C, during the launch.
#[kernel(block = (BN, THREADS_M))]
pub unsafe fn rows2(
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
    let block_row = thread::block_idx_y() * BM;
    let col = thread::block_idx_x() * BN + tx;
    // SAFETY: as the launch promises.
    let (a, b, c) = unsafe {
        (Input::new(a, lda, m, k), Input::new(b, ldb, k, n), Output::new(c, ldc, m, n, alpha, beta))
    };

    let a_smem = shared_array![f32; (BM * BK) as usize]; // (BM, BK)
    let b_smem = shared_array![f32; (BK * BN) as usize]; // (BK, BN)

    let mut acc = [0.0f32; TM as usize];

    let mut k0 = 0;
    while k0 < k {
        // Load.
        for i in 0..TM {
            let y = ty + i * THREADS_M;
            // SAFETY: inside the tiles, and each thread stores its own words.
            unsafe {
                a_smem.store(y * BK + tx, a.get(block_row + y, k0 + tx));
                b_smem.store(y * BN + tx, b.get(k0 + y, col));
            }
        }
        thread::sync_threads();

        // Compute.
        for kk in 0..BK {
            // SAFETY: inside the tiles, and stored before the barrier.
            unsafe {
                let b_value = b_smem.load(kk * BN + tx);
                for i in 0..TM {
                    let a_value = a_smem.load((ty + i * THREADS_M) * BK + kk);
                    acc[i as usize] = fma(a_value, b_value, acc[i as usize]);
                }
            }
        }
        thread::sync_threads();
        k0 += BK;
    }

    for i in 0..TM {
        // SAFETY: each thread has its own outputs.
        unsafe { c.store(block_row + ty + i * THREADS_M, col, acc[i as usize]) };
    }
}
