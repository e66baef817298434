//! Rung 15, `async_copy`: a multistage pipeline of copies that need no registers.
//!
//! # The idea
//!
//! Since sm_80 a thread can ask for a copy from global to shared memory and go on (`cp.async`).
//! Nothing passes through registers, nothing is stored by hand, and several tiles can be in flight
//! at once. With three stages, two tiles are in flight while one is multiplied:
//!
//! ```text
//!   stage 0   tile 0 multiplied | tile 3 in flight .......... | tile 3 multiplied
//!   stage 1   tile 1 in flight  | tile 1 multiplied | tile 4 in flight ..........
//!   stage 2   tile 2 in flight .......... | tile 2 multiplied | tile 5 in flight
//! ```
//!
//! A copy of four bytes can go anywhere, so the copies of A transpose it.
//!
//! # What changed
//!
//! Against `warptile`:
//!
//! - Copies are asynchronous, in three stages.
//! - The registers that this frees go to a second block on the multiprocessor: a thread has 8 x 8
//!   outputs again. Sixteen warps hide each other's waits better than eight.
//! - The FMAs are ordered so that each shares an operand with the one before, which the register
//!   file's reuse cache can keep. Of eight such orders this one was the fastest.
//! - If a tile lies inside the matrices, as nearly all do, its copies check no edges.
//! - The copies moved from the loop into two functions, which are most of the diff.
//!
//! # What should get better, and what comes next
//!
//! Only the copies themselves move data between global and shared memory. The four-byte ones are
//! the price of transposing A: there are four times more than B needs, and they compete with the
//! fragments for shared memory. A version without them computed nonsense, and ran 7 % faster. In
//! `tma` one instruction copies a whole tile.

use cuda_std::cp_async;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

use crate::abi::{
    Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target, Tile, Unaligned,
};
use crate::device::operand::fragment::fragment;
use crate::device::operand::input::Input;
use crate::device::output::matrix::Output;
use crate::device::schedule::raster::rasterized_tile;

/// Rows of C per block.
const BM: u32 = 128;
/// Columns of C per block.
const BN: u32 = 128;
/// Step along K.
const BK: u32 = 16;
/// Rows and columns of C per warp.
const WM: u32 = 32;
const WN: u32 = 64;
/// Rows of C per thread, in two groups of four, half a warp's tile apart.
const TM: u32 = 8;
/// Columns of C per thread, in two groups of four, half a warp's tile apart.
const TN: u32 = 8;
/// Stages of the pipeline: one tile is multiplied, the others are in flight.
const STAGES: u32 = 3;

/// Threads across a warp's tile, warps across the block's, and all threads.
const LANES_N: u32 = WN / TN;
const WARPS_N: u32 = BN / WN;
const THREADS: u32 = BM / WM * WARPS_N * 32;

/// Elements from one row of a tile to the next. Rows of A are padded.
const LD_A: u32 = BM + 4;
const LD_B: u32 = BN;
/// Elements of a stage.
const STAGE_A: u32 = BK * LD_A;
const STAGE_B: u32 = BK * LD_B;

/// Rows of A that the block copies in one go, an element per thread; below, rows of B, four
/// elements per thread.
const STRIDE_A: u32 = THREADS / BK;
const STRIDE_B: u32 = THREADS * 4 / BN;

const _: () = assert!(WM / TM * LANES_N == 32, "the lanes of a warp fill its tile");
const _: () = assert!(BM.is_multiple_of(STRIDE_A), "every thread copies the same share of A");
const _: () = assert!(BK.is_multiple_of(STRIDE_B), "every thread copies the same share of B");

/// What the host needs to launch [`async_copy()`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "async_copy",
    summary: "multistage cp.async: three stages; A transposed by its copies",
    origin: None,
    tile: Tile { bm: BM, bn: BN, bk: BK, tm: TM, tn: TN },
    block: [THREADS, 1],
    grid: GridOrder::ColumnsAlongX,
    shared: Shared::Dynamic(|_| (STAGES * (STAGE_A + STAGE_B)) as u64 * 4),
    unaligned: Some(Unaligned::of_all("async_copy_unaligned")),
    abi: KernelAbi::Gemm,
    arithmetic: Arithmetic::Fma,
    target: Target::Sm80,
    source: include_str!("async_copy.rs"),
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
pub unsafe fn async_copy<const ALIGNED: bool>(
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
    let (block_y, block_x) = rasterized_tile();
    let (block_row, block_col) = (block_y * BM, block_x * BN);
    // SAFETY: as the launch promises.
    let (a, b, c) = unsafe {
        (Input::new(a, lda, m, k), Input::new(b, ldb, k, n), Output::new(c, ldc, m, n, alpha, beta))
    };
    // What this thread computes, and what it copies.
    let (warp, lane) = (tid / 32, tid % 32);
    let (warp_row, warp_col) = (warp / WARPS_N * WM, warp % WARPS_N * WN);
    let (lane_row, lane_col) = (lane / LANES_N * 4, lane % LANES_N * 4);
    let (a_row, a_col) = (tid / BK, tid % BK);
    let (b_row, b_col) = (tid * 4 / BN, tid * 4 % BN);

    let a_smem = shared::dynamic_shared_mem::<f32>(); // (STAGES, BK, LD_A)
    let b_smem = a_smem.add(STAGES * STAGE_A); // (STAGES, BK, LD_B)
    let a_to = a_smem.add(a_col * LD_A + a_row);
    let b_to = b_smem.add(b_row * LD_B + b_col);

    // Whether every tile of this block is in bounds, except in the last step along K.
    let interior = block_row + BM <= m && block_col + BN <= n;

    // Asks for the tile at k0, which goes to a stage; past the end of K for nothing.
    let copy_tile = |k0: u32, stage: u32| {
        if k0 < k {
            let whole = interior && k0 + BK <= k;
            // SAFETY: this thread's own words of the stage, which nobody uses before the copy
            // is waited for.
            unsafe {
                let (row, col) = (block_row + a_row, k0 + a_col);
                copy_a(a, row, col, a_to.add(stage * STAGE_A), whole);
                let (row, col) = (k0 + b_row, block_col + b_col);
                copy_b::<ALIGNED>(b, row, col, b_to.add(stage * STAGE_B), whole);
            }
        }
        cp_async::commit_group();
    };

    let mut acc = [[0.0f32; TN as usize]; TM as usize];

    for stage in 0..STAGES - 1 {
        copy_tile(stage * BK, stage);
    }

    let mut stage = 0;
    let mut k0 = 0;
    while k0 < k {
        // The tile at k0 has arrived, and nobody still uses the stage before it.
        cp_async::wait_group::<{ STAGES - 2 }>();
        thread::sync_threads();
        let free = if stage == 0 { STAGES - 1 } else { stage - 1 };
        copy_tile(k0 + (STAGES - 1) * BK, free);

        // Compute: for each k of the tile, an outer product of 8 values of A and 8 of B.
        let a_tile = a_smem.add(stage * STAGE_A + warp_row);
        let b_tile = b_smem.add(stage * STAGE_B + warp_col);
        let mut frag_a = [[0.0f32; TM as usize]; 2];
        let mut frag_b = [[0.0f32; TN as usize]; 2];
        // SAFETY: inside the tiles, which were waited for before the barrier.
        unsafe {
            frag_a[0] = fragment::<WM>(a_tile, lane_row);
            frag_b[0] = fragment::<WN>(b_tile, lane_col);
        }
        for kk in 0..BK {
            let (this, next) = (kk as usize % 2, (kk as usize + 1) % 2);
            if kk + 1 < BK {
                // SAFETY: as above.
                unsafe {
                    frag_a[next] = fragment::<WM>(a_tile.add((kk + 1) * LD_A), lane_row);
                    frag_b[next] = fragment::<WN>(b_tile.add((kk + 1) * LD_B), lane_col);
                }
            }
            // Down two columns and up the next two, left and right in turn.
            for pair in 0..TN as usize / 2 {
                for step in 0..TM as usize {
                    for side in 0..2 {
                        let i = if pair % 2 == 0 { step } else { TM as usize - 1 - step };
                        let j = pair * 2 + if step % 2 == 0 { side } else { 1 - side };
                        acc[i][j] = fma(frag_a[this][i], frag_b[this][j], acc[i][j]);
                    }
                }
            }
        }
        stage = if stage + 1 == STAGES { 0 } else { stage + 1 };
        k0 += BK;
    }

    for i in 0..TM {
        let row = block_row + warp_row + lane_row + i / 4 * (WM / 2) + i % 4;
        let col = block_col + warp_col + lane_col;
        let [c0, c1, c2, c3, c4, c5, c6, c7] = acc[i as usize];
        // SAFETY: each thread has its own outputs.
        unsafe {
            c.store4::<ALIGNED>(row, col, [c0, c1, c2, c3]);
            c.store4::<ALIGNED>(row, col + WN / 2, [c4, c5, c6, c7]);
        }
    }
}

/// Asks for this thread's share of a tile of A, transposed.
///
/// The share begins at (row, col). It goes to `to`, and STRIDE_A columns further each time.
///
/// # Safety
/// Nothing else uses those words of shared memory. If `whole`, all of it is in bounds.
#[inline(always)]
unsafe fn copy_a(a: Input, row: u32, col: u32, to: SharedPtr<f32>, whole: bool) {
    // SAFETY: the caller's contract.
    unsafe {
        if whole {
            // One address, and then steps: this runs once per tile.
            let mut from = a.address(row, col);
            for i in (0..BM).step_by(STRIDE_A as usize) {
                cp_async::copy(to.add(i), from);
                from = from.wrapping_add(a.step(STRIDE_A));
            }
        } else {
            for i in (0..BM).step_by(STRIDE_A as usize) {
                let (from, inside) = a.address_if_inside(row + i, col);
                cp_async::copy_zfill(to.add(i), from, inside);
            }
        }
    }
}

/// Asks for this thread's share of a tile of B, which is not transposed.
///
/// # Safety
/// As for [`copy_a`].
#[inline(always)]
unsafe fn copy_b<const ALIGNED: bool>(
    b: Input,
    row: u32,
    col: u32,
    to: SharedPtr<f32>,
    whole: bool,
) {
    // SAFETY: the caller's contract. If ALIGNED, four neighbours are in bounds together.
    unsafe {
        if ALIGNED && whole {
            let mut from = b.address(row, col);
            for i in (0..BK).step_by(STRIDE_B as usize) {
                cp_async::copy4(to.add(i * LD_B), from);
                from = from.wrapping_add(b.step(STRIDE_B));
            }
        } else if ALIGNED {
            for i in (0..BK).step_by(STRIDE_B as usize) {
                let (from, inside) = b.address_if_inside(row + i, col);
                cp_async::copy4_zfill(to.add(i * LD_B), from, inside);
            }
        } else {
            for i in (0..BK).step_by(STRIDE_B as usize) {
                for j in 0..4 {
                    let (from, inside) = b.address_if_inside(row + i, col + j);
                    cp_async::copy_zfill(to.add(i * LD_B + j), from, inside);
                }
            }
        }
    }
}
