//! Rung 14, `warptile`: tiles for warps, and more outputs per thread.
//!
//! # The idea
//!
//! Between the block's tile and the thread's tile the hardware has another level: the warp. Its 32
//! threads issue their shared loads together, so their 32 tiles should form a compact part of C.
//! Here that is 64 x 64, from 8 x 4 threads.
//!
//! ```text
//!   block 128 x 256: 2 x 4 warps     warp 64 x 64: in each 32 x 16 cell, 8 x 4 threads,
//!   +------+------+------+------+    and each has 4 x 4 outputs of every cell
//!   |  w0  |  w1  |  w2  |  w3  |    +----+----+----+----+
//!   +------+------+------+------+    |    |    |    |    |  32
//!   |  w4  |  w5  |  w6  |  w7  |    +----+----+----+----+
//!   +------+------+------+------+    |    |    |    |    |
//!                                    +----+----+----+----+
//!                                      16
//! ```
//!
//! If one block has all registers of a multiprocessor, a thread can have 8 x 16 outputs. It reads
//! 24 values from shared memory for 128 FMAs, where 8 x 8 reads 16 for 64.
//!
//! # What changed
//!
//! - A thread and a block have twice the columns, and a warp's threads are close together.
//! - The rows of the tile of A are padded by four words, so that the transposing stores have fewer
//!   bank conflicts.
//! - A block swizzle (raster) orders the tiles of C: blocks that run at the same time form a
//!   compact part of it, eight tiles high. They find each other's rows and columns in the L2 cache.
//!
//! # What should get better, and what comes next
//!
//! Shared loads per FMA fall by a quarter, which leaves more issue slots to arithmetic. But a tile
//! still goes through registers to shared memory: 24 registers, and an instruction to load and one
//! to store. `async_copy` needs neither.

use cuda_std::prelude::*;

use crate::abi::{
    Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target, Tile, Unaligned,
};
use crate::device::operand::fragment::{fragment, fragment16};
use crate::device::operand::input::Input;
use crate::device::operand::share::{load_share, store_share, store_share_transposed};
use crate::device::output::matrix::Output;
use crate::device::schedule::raster::rasterized_tile;

/// Rows of C per block.
const BM: u32 = 128;
/// Columns of C per block.
const BN: u32 = 256;
/// Step along K.
const BK: u32 = 16;
/// Rows and columns of C per warp.
const WM: u32 = 64;
const WN: u32 = 64;
/// Rows of C per thread, in two groups of four, half a warp's tile apart.
const TM: u32 = 8;
/// Columns of C per thread, in four groups of four, a quarter of a warp's tile apart.
const TN: u32 = 16;

/// Threads across a warp's tile, warps across the block's, and all threads.
const LANES_N: u32 = WN / TN;
const WARPS_N: u32 = BN / WN;
const THREADS: u32 = BM / WM * WARPS_N * 32;

/// Elements from one row of a tile to the next. Rows of A are padded.
const LD_A: u32 = BM + 4;
const LD_B: u32 = BN;

/// Rows of A, and of B, that the block loads in one go, four elements per thread.
const STRIDE_A: u32 = THREADS * 4 / BK;
const STRIDE_B: u32 = THREADS * 4 / BN;
/// 128-bit loads of A, and of B, per thread and tile.
const LOADS_A: usize = (BM / STRIDE_A) as usize;
const LOADS_B: usize = (BK / STRIDE_B) as usize;

const _: () = assert!(WM / TM * LANES_N == 32, "the lanes of a warp fill its tile");
const _: () = assert!(BM.is_multiple_of(STRIDE_A), "every thread loads the same share of A");
const _: () = assert!(BK.is_multiple_of(STRIDE_B), "every thread loads the same share of B");

/// What the host needs to launch [`warptile()`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "warptile",
    summary: "warp tiles of 64x64, 8x16 outputs per thread, block swizzle for the L2 cache",
    origin: None,
    tile: Tile { bm: BM, bn: BN, bk: BK, tm: TM, tn: TN },
    block: [THREADS, 1],
    grid: GridOrder::ColumnsAlongX,
    shared: Shared::Dynamic(|_| 2 * (BK * LD_A + BK * LD_B) as u64 * 4),
    unaligned: Some(Unaligned::of_all("warptile_unaligned")),
    abi: KernelAbi::Gemm,
    arithmetic: Arithmetic::Fma,
    target: Target::Sm80,
    source: include_str!("warptile.rs"),
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
pub unsafe fn warptile<const ALIGNED: bool>(
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
    let (a_row, a_col) = (tid * 4 / BK, tid * 4 % BK);
    let (b_row, b_col) = (tid * 4 / BN, tid * 4 % BN);

    let a_smem = shared::dynamic_shared_mem::<f32>(); // (2, BK, LD_A)
    let b_smem = a_smem.add(2 * BK * LD_A); // (2, BK, LD_B)

    let mut acc = [[0.0f32; TN as usize]; TM as usize];

    // Load the first tile: global to registers to shared.
    // SAFETY: the matrices are as the launch promises; inside the tiles, and each thread
    // stores its own words.
    unsafe {
        let tile_a = load_share::<ALIGNED, STRIDE_A, LOADS_A>(a, block_row + a_row, a_col);
        let tile_b = load_share::<ALIGNED, STRIDE_B, LOADS_B>(b, b_row, block_col + b_col);
        store_share_transposed::<LD_A, STRIDE_A, LOADS_A>(a_smem, tile_a, a_row, a_col);
        store_share::<LD_B, STRIDE_B, LOADS_B>(b_smem, tile_b, b_row, b_col);
    }
    thread::sync_threads();

    let mut frag_a = [[0.0f32; TM as usize]; 2];
    let mut frag_b = [[0.0f32; TN as usize]; 2];
    // SAFETY: inside the tiles, and stored before the barrier.
    unsafe {
        frag_a[0] = fragment::<WM>(a_smem.add(warp_row), lane_row);
        frag_b[0] = fragment16::<WN>(b_smem.add(warp_col), lane_col);
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

        // Compute: for each k of the tile, an outer product of 8 values of A and 16 of B.
        for kk in 0..BK {
            let (this, next) = (kk as usize % 2, (kk as usize + 1) % 2);
            if kk + 1 == BK {
                buffer ^= 1;
                // SAFETY: inside the other tiles, which nobody reads before the barrier,
                // and each thread stores its own words.
                unsafe {
                    store_share_transposed::<LD_A, STRIDE_A, LOADS_A>(
                        a_smem.add(buffer * BK * LD_A),
                        tile_a,
                        a_row,
                        a_col,
                    );
                    store_share::<LD_B, STRIDE_B, LOADS_B>(
                        b_smem.add(buffer * BK * LD_B),
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
                frag_a[next] = fragment::<WM>(a_smem.add(row * LD_A + warp_row), lane_row);
                frag_b[next] = fragment16::<WN>(b_smem.add(row * LD_B + warp_col), lane_col);
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
        let row = block_row + warp_row + lane_row + i / 4 * (WM / 2) + i % 4;
        for group in 0..TN / 4 {
            let col = block_col + warp_col + lane_col + group * (WN / 4);
            let mut four = [0.0; 4];
            for j in 0..4 {
                four[j] = acc[i as usize][group as usize * 4 + j];
            }
            // SAFETY: each thread has its own outputs.
            unsafe { c.store4::<ALIGNED>(row, col, four) };
        }
    }
}
