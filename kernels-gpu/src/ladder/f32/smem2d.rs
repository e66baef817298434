//! Rung 10, `smem2d`: 128-bit loads through shared memory.
//!
//! # The idea
//!
//! `tile2d` shares its loads but makes them one word at a time. `regtile` has 128-bit loads but
//! shares nothing. Put the two together: tiles in shared memory, with 128-bit accesses.
//!
//! ```text
//!                      B tile          BN = 128
//!                    +------+----+------+----+----+
//!            BK = 16 |      |oooo|      |oooo|    |
//!                    +------+----+------+----+----+
//!   A tile (BM, BK)    C tile
//!   +------+         +------+----+------+----+----+
//!   |o     |         |      |xxxx|      |xxxx|    |
//!   |o     |         |      |xxxx|      |xxxx|    |   blocks of 4 x 4, as in `regtile`
//!   |      | BM=128  |                            |
//!   |o     |         |      |xxxx|      |xxxx|    |
//!   |o     |         |      |xxxx|      |xxxx|    |
//!   +------+         +------+----+------+----+----+
//! ```
//!
//! # What changed
//!
//! Against `regtile`: the block copies A and B for 16 steps to shared memory, with four loads per
//! thread. The threads by themselves make 160, so 97 % are gone.
//!
//! Against `tile2d`:
//!
//! - Copies are 128 bits wide, and a tile is 16 deep.
//! - A thread's outputs are 2 x 2 blocks of 4 x 4, so that its values of B are two 128-bit loads.
//!
//! # What should get better, and what comes next
//!
//! Against `regtile`, the wait for global memory is gone. `tile2d` is still faster, on Hopper at
//! least, for the last time on this path.
//!
//! The cause is A: the eight values that a thread needs for one k lie in eight rows of the tile.
//! The assembler loads four k of each row at once and keeps them all. That takes more than 128
//! registers, so only one block fits on a multiprocessor.
//!
//! `transposed` transposes the tile of A, and there the paths meet.

use cuda_std::prelude::*;

use crate::abi::{
    Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target, Tile, Unaligned,
};
use crate::device::operand::fragment::fragment;
use crate::device::operand::input::Input;
use crate::device::output::matrix::Output;

/// Rows of C per block.
const BM: u32 = 128;
/// Columns of C per block.
const BN: u32 = 128;
/// Step along K.
const BK: u32 = 16;
/// Rows of C per thread, in two groups of four, half a block apart.
const TM: u32 = 8;
/// Columns of C per thread, grouped like the rows.
const TN: u32 = 8;

/// Threads across the block's tile, and all of them.
const THREADS_N: u32 = BN / TN;
const THREADS: u32 = BM / TM * THREADS_N;

/// Rows of A, and of B, that the block loads in one go, four elements per thread.
const STRIDE_A: u32 = THREADS * 4 / BK;
const STRIDE_B: u32 = THREADS * 4 / BN;

const _: () = assert!(BM.is_multiple_of(STRIDE_A), "every thread loads the same share of A");
const _: () = assert!(BK.is_multiple_of(STRIDE_B), "every thread loads the same share of B");

/// What the host needs to launch [`smem2d()`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "smem2d",
    summary: "the second path: 128-bit copies through shared memory",
    origin: Some("a textbook's section on GEMM, 8.4.4: gemm_use_smem"),
    tile: Tile { bm: BM, bn: BN, bk: BK, tm: TM, tn: TN },
    block: [THREADS, 1],
    grid: GridOrder::ColumnsAlongX,
    shared: Shared::Static((BM * BK + BK * BN) * 4),
    unaligned: Some(Unaligned::of_all("smem2d_unaligned")),
    abi: KernelAbi::Gemm,
    arithmetic: Arithmetic::Fma,
    target: Target::Sm80,
    source: include_str!("smem2d.rs"),
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
pub unsafe fn smem2d<const ALIGNED: bool>(
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
    let (thread_row, thread_col) = (tid / THREADS_N * 4, tid % THREADS_N * 4);
    let (a_row, a_col) = (tid * 4 / BK, tid * 4 % BK);
    let (b_row, b_col) = (tid * 4 / BN, tid * 4 % BN);

    let a_smem = shared_array![f32; (BM * BK) as usize]; // (BM, BK)
    let b_smem = shared_array![f32; (BK * BN) as usize]; // (BK, BN)

    let mut acc = [[0.0f32; TN as usize]; TM as usize];

    let mut k0 = 0;
    while k0 < k {
        // Load.
        // SAFETY: inside the tiles, and each thread stores its own words.
        unsafe {
            for y in (a_row..BM).step_by(STRIDE_A as usize) {
                let value = a.get4::<ALIGNED>(block_row + y, k0 + a_col);
                a_smem.store4(y * BK + a_col, value);
            }
            for y in (b_row..BK).step_by(STRIDE_B as usize) {
                let value = b.get4::<ALIGNED>(k0 + y, block_col + b_col);
                b_smem.store4(y * BN + b_col, value);
            }
        }
        thread::sync_threads();

        // Compute: for each k of the tile, an outer product of 8 values of A and 8 of B.
        for kk in 0..BK {
            let mut frag_a = [0.0f32; TM as usize];
            // SAFETY: inside the tiles, and stored before the barrier.
            let frag_b = unsafe {
                for i in 0..TM {
                    let y = thread_row + i / 4 * (BM / 2) + i % 4;
                    frag_a[i as usize] = a_smem.load(y * BK + kk);
                }
                fragment::<BN>(b_smem.add(kk * BN), thread_col)
            };
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
        let row = block_row + thread_row + i / 4 * (BM / 2) + i % 4;
        let col = block_col + thread_col;
        let [c0, c1, c2, c3, c4, c5, c6, c7] = acc[i as usize];
        // SAFETY: each thread has its own outputs.
        unsafe {
            c.store4::<ALIGNED>(row, col, [c0, c1, c2, c3]);
            c.store4::<ALIGNED>(row, col + BN / 2, [c4, c5, c6, c7]);
        }
    }
}
