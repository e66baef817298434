//! Rung 11, `transposed`: the tile of A transposed.
//!
//! # The idea
//!
//! For one k a thread needs eight values of A from eight rows of the tile, each a separate load.
//! Stored transposed, `[k][m]`, they are two groups of four neighbours: two 128-bit loads.
//!
//! ```text
//!    A in global memory        a_smem, (BK, BM)
//!       k ->                      m ->
//!     +---------+               +-----------------------+
//!   m | 0 1 2 3 |             k | 0 . . .               |
//!   | | . . . . |    ==>      | | 1 . . .   <- one k, all
//!   v | . . . . |             v | 2 . . .      rows of A
//!     | . . . . |               | 3 . . .               |
//!     +---------+               +-----------------------+
//!    one 128-bit load          four stores
//! ```
//!
//! # What changed
//!
//! - Each 128-bit load from A is followed by four 32-bit stores to shared memory, once per tile.
//! - Each fragment of A becomes two 128-bit loads, sixteen times per tile.
//!
//! The second path now has what the first had, tiles in shared memory and 8 x 8 outputs, with
//! 128-bit loads besides. From here on there is one path again, and it is faster than `tile2d`.
//!
//! # What should get better, and what comes next
//!
//! There are four shared loads for 64 FMAs, and no more than 128 registers. So two blocks fit on a
//! multiprocessor, and one computes while the other copies.
//!
//! The four stores of a thread go to rows of the tile that lie a multiple of 32 words apart. That
//! is a four-way bank conflict, but the stores are few.
//!
//! The loop now waits: the very next instruction uses each fragment. `frag_prefetch` loads it one
//! step ahead.

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

/// What the host needs to launch [`transposed()`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "transposed",
    summary: "the tile of A stored [k][m], so that all shared loads are 128 bits",
    origin: Some(
        "a textbook's section on GEMM, 8.4.5: gemm_transpose_smem, and a tutorial's outlook",
    ),
    tile: Tile { bm: BM, bn: BN, bk: BK, tm: TM, tn: TN },
    block: [THREADS, 1],
    grid: GridOrder::ColumnsAlongX,
    shared: Shared::Static((BK * BM + BK * BN) * 4),
    unaligned: Some(Unaligned::of_all("transposed_unaligned")),
    abi: KernelAbi::Gemm,
    arithmetic: Arithmetic::Fma,
    target: Target::Sm80,
    source: include_str!("transposed.rs"),
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
pub unsafe fn transposed<const ALIGNED: bool>(
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

    let a_smem = shared_array![f32; (BK * BM) as usize]; // (BK, BM)
    let b_smem = shared_array![f32; (BK * BN) as usize]; // (BK, BN)

    let mut acc = [[0.0f32; TN as usize]; TM as usize];

    let mut k0 = 0;
    while k0 < k {
        // Load.
        // SAFETY: inside the tiles, and each thread stores its own words.
        unsafe {
            for y in (a_row..BM).step_by(STRIDE_A as usize) {
                let value = a.get4::<ALIGNED>(block_row + y, k0 + a_col);
                for j in 0..4 {
                    a_smem.store((a_col + j) * BM + y, value[j as usize]);
                }
            }
            for y in (b_row..BK).step_by(STRIDE_B as usize) {
                let value = b.get4::<ALIGNED>(k0 + y, block_col + b_col);
                b_smem.store4(y * BN + b_col, value);
            }
        }
        thread::sync_threads();

        // Compute: for each k of the tile, an outer product of 8 values of A and 8 of B.
        for kk in 0..BK {
            // SAFETY: inside the tiles, and stored before the barrier.
            let (frag_a, frag_b) = unsafe {
                (
                    fragment::<BM>(a_smem.add(kk * BM), thread_row),
                    fragment::<BN>(b_smem.add(kk * BN), thread_col),
                )
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
