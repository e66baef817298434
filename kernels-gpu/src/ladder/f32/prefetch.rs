//! Rung 13, `prefetch`: the next tile one step ahead.
//!
//! # The idea
//!
//! This is `frag_prefetch` one level up. A load from global memory takes hundreds of cycles; a tile
//! takes thousands to compute. So load the next tile into registers before computing this one.
//! Store it into a *second* pair of shared tiles, so that nobody must wait before overwriting the
//! first.
//!
//! ```text
//!   global -> registers    load tile 1 ......      load tile 2 ......
//!   shared -> registers    |frag 0|frag 1|...|15|  |frag 0|...
//!   compute                       |fma 0 |...|14|15|      |fma 0|...
//!   registers -> shared                      |st|
//!                                               ^ the only barrier of the step
//! ```
//!
//! # What changed
//!
//! - Shared memory holds two tiles of A and two of B. Which pair is read and which is written swaps
//!   with every step along K.
//! - One barrier per step is left, not two.
//! - The last fragment of a tile is computed after the store and the barrier. So they overlap with
//!   arithmetic, and so does the load of the next tile's first fragment.
//! - Copies happen before the loop and in it, so they move into functions, which
//!   `device/operand/share.rs` holds.
//!
//! # What should get better, and what comes next
//!
//! Almost no cycles are spent waiting for global memory ("long scoreboard"). The rungs after this
//! one change the shape of the work itself: more outputs per thread, tiles for warps, copies that
//! need no registers. `warptile` begins.

use cuda_std::prelude::*;

use crate::abi::{
    Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target, Tile, Unaligned,
};
use crate::device::operand::fragment::fragment;
use crate::device::operand::input::Input;
use crate::device::operand::share::{load_share, store_share, store_share_transposed};
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
/// 128-bit loads of A, and of B, per thread and tile.
const LOADS_A: usize = (BM / STRIDE_A) as usize;
const LOADS_B: usize = (BK / STRIDE_B) as usize;

const _: () = assert!(BM.is_multiple_of(STRIDE_A), "every thread loads the same share of A");
const _: () = assert!(BK.is_multiple_of(STRIDE_B), "every thread loads the same share of B");

/// What the host needs to launch [`prefetch()`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "prefetch",
    summary: "the next tile loads while this one computes; two tiles in shared memory",
    origin: Some("a textbook's section on GEMM, 8.4.7: gemm_final"),
    tile: Tile { bm: BM, bn: BN, bk: BK, tm: TM, tn: TN },
    block: [THREADS, 1],
    grid: GridOrder::ColumnsAlongX,
    shared: Shared::Static(2 * (BK * BM + BK * BN) * 4),
    unaligned: Some(Unaligned::of_all("prefetch_unaligned")),
    abi: KernelAbi::Gemm,
    arithmetic: Arithmetic::Fma,
    target: Target::Sm80,
    source: include_str!("prefetch.rs"),
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
pub unsafe fn prefetch<const ALIGNED: bool>(
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

    let a_smem = shared_array![f32; (2 * BK * BM) as usize]; // (2, BK, BM)
    let b_smem = shared_array![f32; (2 * BK * BN) as usize]; // (2, BK, BN)

    let mut acc = [[0.0f32; TN as usize]; TM as usize];

    // Load the first tile: global to registers to shared.
    // SAFETY: the matrices are as the launch promises; inside the tiles, and each thread
    // stores its own words.
    unsafe {
        let tile_a = load_share::<ALIGNED, STRIDE_A, LOADS_A>(a, block_row + a_row, a_col);
        let tile_b = load_share::<ALIGNED, STRIDE_B, LOADS_B>(b, b_row, block_col + b_col);
        store_share_transposed::<BM, STRIDE_A, LOADS_A>(*a_smem, tile_a, a_row, a_col);
        store_share::<BN, STRIDE_B, LOADS_B>(*b_smem, tile_b, b_row, b_col);
    }
    thread::sync_threads();

    let mut frag_a = [[0.0f32; TM as usize]; 2];
    let mut frag_b = [[0.0f32; TN as usize]; 2];
    // SAFETY: inside the tiles, and stored before the barrier.
    unsafe {
        frag_a[0] = fragment::<BM>(*a_smem, thread_row);
        frag_b[0] = fragment::<BN>(*b_smem, thread_col);
    }

    let mut buffer = 0;
    let mut k0 = 0;
    while k0 < k {
        // Load: the next tile, into registers. Past the end of K it is all zeros.
        // SAFETY: the matrices are as the launch promises.
        let (tile_a, tile_b) = unsafe {
            (
                load_share::<ALIGNED, STRIDE_A, LOADS_A>(a, block_row + a_row, k0 + BK + a_col),
                load_share::<ALIGNED, STRIDE_B, LOADS_B>(b, k0 + BK + b_row, block_col + b_col),
            )
        };

        // Compute: for each k of the tile, an outer product of 8 values of A and 8 of B.
        for kk in 0..BK {
            let (this, next) = (kk as usize % 2, (kk as usize + 1) % 2);
            if kk + 1 == BK {
                buffer ^= 1;
                // SAFETY: inside the other tiles, which nobody reads before the barrier,
                // and each thread stores its own words.
                unsafe {
                    store_share_transposed::<BM, STRIDE_A, LOADS_A>(
                        a_smem.add(buffer * BK * BM),
                        tile_a,
                        a_row,
                        a_col,
                    );
                    store_share::<BN, STRIDE_B, LOADS_B>(
                        b_smem.add(buffer * BK * BN),
                        tile_b,
                        b_row,
                        b_col,
                    );
                }
                thread::sync_threads();
            }
            let row = buffer * BK + (kk + 1) % BK;
            // SAFETY: inside the tiles, and stored before the last barrier.
            unsafe {
                frag_a[next] = fragment::<BM>(a_smem.add(row * BM), thread_row);
                frag_b[next] = fragment::<BN>(b_smem.add(row * BN), thread_col);
            }
            for i in 0..TM as usize {
                for j in 0..TN as usize {
                    acc[i][j] = fma(frag_a[this][i], frag_b[this][j], acc[i][j]);
                }
            }
        }
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
