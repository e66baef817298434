//! The tiles: one kernel in many sizes, for products that do not fill the GPU with the
//! ladder's big ones.
//!
//! # The idea
//!
//! A product of 512 x 512 x 512 has sixteen tiles of 128 x 128 for 132 multiprocessors. A product
//! of 16 x 4096 x 4096 has most of its work along K. Two things fill the GPU: smaller tiles, and
//! parallelism along K, within a block and among blocks.
//!
//! # Slice-K
//!
//! A tile of 32 x 32 outputs has work for one warp, if each thread has 8 x 4 of them. One warp
//! hides no latency. So eight warps take the same tile, and each its own slice of every step along
//! K (four of them in the picture). Each has a sum of every output; at the end they add these up
//! through shared memory.
//!
//! ```text
//!            K ->
//!           step 0    step 1    step 2             C, BM x BN
//!         +---------+---------+---------+         +-----------+
//!      A  | 0 1 2 3 | 0 1 2 3 | 0 1 2 3 | ..      | sum of 0  |-+
//!         +---------+---------+---------+         |           | |-+   four sums of the tile
//!                                                 |           | | |-+ in one block's registers
//!      0 1 2 3: the slice of warp 0, 1, 2, 3      +-----------+ | | |
//!                                                   +-----------+ | |  then one, through
//!                                                     +-----------+ |  shared memory
//!                                                       +-----------+
//! ```
//!
//! The tile in shared memory is the block's, so that slice-K costs no more loads from global
//! memory; the reduction is one pass over the tile.
//!
//! # Split-K
//!
//! Slice-K gives a block more warps, but gives the GPU no more blocks. If C has fewer tiles than
//! the GPU has multiprocessors, K is also cut among blocks: `blockIdx.z` says which split a block
//! sums over.
//!
//! ```text
//!            K ->
//!         +-----------+-----------+-----------+
//!      A  |  split 0  |  split 1  |  split 2  |   the same tile of C, three blocks
//!         +-----------+-----------+-----------+
//!              |           |           |
//!          partial 0   partial 1   partial 2      in global memory; a counter per tile
//!              +-----------+-----------+
//!                          C                      added up by the block that arrives last
//! ```
//!
//! A block stores its partial sums, and then counts itself in. The block that finds that all others
//! have arrived loads all partials and adds them up: nobody waits for anybody. Each split stores
//! and loads a tile, so splits beyond those that fill the GPU are a loss.
//!
//! Both reductions add in a fixed order, whoever arrives last, so the same call gives the same bits
//! every time.
//!
//! # What else is different
//!
//! The rest is as in [`async_copy`](crate::ladder::f32::async_copy): copies into a circular buffer
//! of stages, with A transposed by four-byte copies. The fragments of the next step load while this
//! one computes, also from one tile to the next. FMAs go down a column and up the next, so few of
//! them read two registers of one bank.
//!
//! # Small M or N
//!
//! If M or N is small, B or A is read once, and the loop waits for memory alone. Then the bytes in
//! flight count: 4.8 TB/s times 700 ns of latency are 26 KB per multiprocessor of an H200. Tiles
//! for such products have two tiles per block, 66 to 72 KiB, in flight while the block computes on
//! a third. The copies need no registers, so the same kernel does both.
//!
//! Two limits are left. If N is small, A is still transposed four bytes at a time: see
//! [`skinny_n`](super::skinny_n). If M is small, the copies follow each other unevenly: see
//! [`skinny_m`](super::skinny_m).
//!
//! # Without slices
//!
//! With enough blocks, as in batches of small products, slices gain nothing. Tiles whose names end
//! in their step along K have one slice, or just enough slices to fill warps from a tiny tile.
//!
//! # Transposed operands
//!
//! Each operand may lie transposed. One branch, the same for all threads, chooses how a step is
//! copied; the tiles in shared memory are the same. A plain A and a transposed B are transposed on
//! the way, by copies of single elements. `main_loop.rs` says when a step's copies are issued.
//!
//! # Rows of C that begin anywhere
//!
//! A thread has four neighbours of a row. Stored one by one, they would spread a warp's store over
//! four times as many sectors. So a tile with misaligned rows goes through shared memory first, and
//! each store of a warp is one run of C.
//!
//! # How many blocks fit
//!
//! Registers and shared memory limit the number of blocks. `min_blocks` keeps the compiler to the
//! registers. The memory is checked against Hopper's 228 KiB; the system takes one KiB per block.
//! GPUs with less hold fewer blocks, and refuse a launch that holds none.

use core::marker::PhantomData;

use cuda_std::cp_async;
use cuda_std::hint::black_box;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

use super::copy::{Copies, CopyA, CopyB, padded_row, row_b};
use super::main_loop::MainLoop;
use crate::abi::KernelAbi;
use crate::abi::layout::{TRANSPOSED_A, TRANSPOSED_B};
use crate::device::geometry::Geometry;
use crate::device::output::matrix::Output;
use crate::device::output::places::{ColumnBias, OUTPUTS_AT_ONCE, QuadPlaces};
use crate::device::pipeline::dependent_launch;
use crate::device::reduce::split_k::{
    MAX_QUADS, OutputPartition, Quads, reduce_slices, reduce_splits,
};
use crate::device::schedule::raster::rasterized_tile;
use crate::device::schedule::split_k::Params;

/// The kernel, for a geometry. `TM` and `TN` are the geometry's: stable Rust allows only parameters
/// as lengths of arrays.
pub(super) struct Tiled<G, const TM: usize, const TN: usize>(PhantomData<G>);

/// The bias of a block's columns, which is copied to shared memory with the first tile.
#[derive(Clone, Copy)]
struct SharedBias<F> {
    at: SharedPtr<f32>,
    /// Maps a quad's number to its first column in the block's tile.
    col_of: F,
}

impl<F: Fn(usize) -> u32 + Copy> ColumnBias for SharedBias<F> {
    const EXISTS: bool = true;

    #[inline(always)]
    unsafe fn of_quad(self, in_row: usize) -> F32x4 {
        // SAFETY: there is one for each column, waited for before a barrier. A quad's column is a
        // multiple of four.
        unsafe { self.at.load4((self.col_of)(in_row)) }
    }
}

impl<G: Geometry, const TM: usize, const TN: usize> Tiled<G, TM, TN> {
    pub(super) const ABI: KernelAbi = KernelAbi::SplitK;
    pub(super) const COMPENSATES: bool = false;

    /// Threads across a warp's tile, and warps across the block's. A warp may have several slices.
    const LANES_N: u32 = G::WN / G::TN;
    const LANES: u32 = if G::SLICE_THREADS < 32 { G::SLICE_THREADS } else { 32 };
    const WARPS_N: u32 = G::BN / G::WN;

    /// Elements from one stage to the next.
    const STAGE_A: u32 = padded_row(G::BM, G::BK);
    const STAGE_B: [u32; 2] = [row_b(G::BN, false, G::BK), row_b(G::BN, true, G::BK)];

    /// Quads of a thread, and those in a row of them. Then its own quads after the slice-K
    /// reduction, and how many of these it stores at a time.
    const QUADS: usize = TM * TN / 4;
    const ROW: usize = TN / 4;
    const OWN: usize = Self::QUADS.div_ceil(G::SLICES as usize);
    const PART: usize = if Self::OWN < 4 { Self::OWN } else { 4 };
    /// Own quads that it takes through an epilogue at a time.
    const EPILOGUE_PART: usize =
        if Self::OWN < G::EPILOGUE_QUADS as usize { Self::OWN } else { G::EPILOGUE_QUADS as usize };
    /// Own quads in a row of them: slices take quads in turn.
    const OWN_IN_ROW: usize =
        if (G::SLICES as usize).is_multiple_of(Self::ROW) { 1 } else { Self::ROW };

    const CONSISTENT: () = {
        assert!(G::WM / G::TM * Self::LANES_N == Self::LANES, "the lanes of a warp fill its tile");
        assert!(G::BM.is_multiple_of(G::WM) && G::BN.is_multiple_of(G::WN), "warps fill a slice");
        assert!(
            G::TM.is_multiple_of(4) && G::TN.is_multiple_of(4),
            "fragments are loaded in fours"
        );
        assert!(TM == G::TM as usize && TN == G::TN as usize, "arrays are as long as they are");
        assert!(Self::QUADS <= MAX_QUADS, "a thread's outputs fit its registers");
        assert!(
            Self::OWN.is_multiple_of(Self::PART) && Self::OWN.is_multiple_of(Self::EPILOGUE_PART),
            "all outputs are stored"
        );
        assert!(
            Self::EPILOGUE_PART * 4 <= 2 * OUTPUTS_AT_ONCE
                && (Self::OWN_IN_ROW == 1 || Self::EPILOGUE_PART.is_multiple_of(Self::ROW)),
            "a part fits the registers for it, and has whole rows of quads"
        );
        assert!(
            G::THREADS >= G::BN && Self::BIAS_AT.is_multiple_of(4),
            "a thread copies an element of the bias, and loads four"
        );
        assert!(
            Self::OWN_IN_ROW == 1 || G::SLICES == 1 && Self::PART.is_multiple_of(Self::ROW),
            "a thread's own quads are in the same columns, or whole rows of them"
        );
        assert!(G::BK.is_multiple_of(G::SLICES), "every slice has the same part of a step");
        assert!(
            G::COMPENSATED_K <= G::BK && (G::COMPENSATED_K == 0 || G::SLICE_K.is_multiple_of(2)),
            "compensated sums are of one step, and rows of a slice are read two at a time"
        );
        assert!(G::SLICES.is_power_of_two(), "they are added up pairwise");
        assert!(
            G::THREADS.is_multiple_of(G::BN) && Self::STORES.is_multiple_of(2),
            "every thread stores the same share of a column of C"
        );
    };

    /// Elements from one row of C to the next in shared memory. Rows are padded, so that quads a
    /// thread tile apart lie in different banks.
    const LD_C: u32 = G::BN + 4;
    /// Rows of C that the block stores in one go, an element per thread. Below: how often it does
    /// so down a column.
    const ROWS_C: u32 = G::THREADS / G::BN;
    const STORES: u32 = G::BM / Self::ROWS_C;

    /// Where the bias of the block's columns lies in shared memory. It is behind the stages, and
    /// behind the slices' sums or the tile of C that later take their place.
    const BIAS_AT: u32 = {
        let stages = G::STAGES * (Self::STAGE_A + Self::STAGE_B[0]);
        let sums = if G::SLICES > 1 { G::SLICES * G::BM * G::BN } else { 0 };
        let c = G::BM * Self::LD_C;
        let most = if stages > sums { stages } else { sums };
        if most > c { most } else { c }
    };

    /// Shared memory per block.
    pub(super) const SHARED_BYTES: u64 = (Self::BIAS_AT + G::BN) as u64 * 4;

    /// Shared memory per block for any K.
    pub(super) const fn shared_bytes(_k: u32) -> u64 {
        Self::SHARED_BYTES
    }

    /// # Safety
    /// As for the entry points.
    #[inline(always)]
    pub(super) unsafe fn gemm<const ALIGNED: bool>(params: Params) {
        const { Self::CONSISTENT };
        // SAFETY: as the launch promises.
        let (params, split) = unsafe { params.of_block() };
        let Params { m, n, a, lda, b, ldb, layout, .. } = params;
        let tid = thread::thread_idx_x();
        let (block_y, block_x) = rasterized_tile();
        let (block_row, block_col) = (block_y * G::BM, block_x * G::BN);

        // What this thread computes: its slice of every step.
        let (slice_k, in_slice) = (tid / G::SLICE_THREADS * G::SLICE_K, tid % G::SLICE_THREADS);
        let [[warp_row, warp_col], [lane_row, lane_col]] = Self::place(in_slice);

        let (begin, end) = params.range(split);

        let smem = shared::dynamic_shared_mem::<f32>();
        let a_smem = smem; // (STAGES, BK, BM), padded
        let b_smem = smem.add(G::STAGES * Self::STAGE_A); // (STAGES, BK, BN), padded if not aligned
        let a_frag = a_smem.add(padded_row(G::BM, slice_k) + warp_row);
        let b_frag = b_smem.add(row_b(G::BN, ALIGNED, slice_k) + warp_col);

        let [a_transposed, b_transposed] =
            [TRANSPOSED_A, TRANSPOSED_B].map(|which| layout & which != 0);
        let copy_a = CopyA::<G, ALIGNED>::new(a, lda, a_transposed, m, block_row, begin, a_smem);
        let copy_b = CopyB::<G, ALIGNED>::new(b, ldb, b_transposed, n, begin, block_col, b_smem);
        let is_interior = block_row + G::BM <= m && block_col + G::BN <= n;
        let mut copies = Copies { a: copy_a, b: copy_b, is_interior };

        let mut acc = [[0.0f32; TN]; TM];

        let left = end.saturating_sub(begin);
        dependent_launch::begin();
        if params.epilogue.has_column_bias() {
            // Copied with the first tile: when the bias is needed, nothing would hide its latency.
            let (tid, epilogue) = (thread::thread_idx_x(), params.epilogue());
            if tid < G::BN {
                let (col, to) = (block_col + tid, smem.add(Self::BIAS_AT + tid));
                let from = epilogue.bias.wrapping_add(col as usize);
                // SAFETY: one for each column. Nothing else uses the place before the copy was
                // waited for.
                unsafe { cp_async::copy_zfill(to, from, col < n) };
            }
        }
        let mut stage = 0;
        while stage < G::STAGES - 1 {
            // An empty sum is a step of zeros: a branch around the loop would make it slower.
            let left = left.saturating_sub(stage * G::BK);
            // SAFETY: the matrices are as the launch promises, and nobody uses the stage before the
            // copies are waited for.
            unsafe { copies.copy_tile(left, stage, stage == 0) };
            // Behind `black_box`: one piece of code for all stages, since there are many ways to
            // copy.
            stage = black_box(stage + 1);
        }

        let main_loop = MainLoop::<G, ALIGNED, TM, TN> {
            a_frag,
            b_frag,
            lane_row,
            lane_col,
            geometry: PhantomData,
        };
        let compensates = (3..=G::COMPENSATED_K).contains(&params.k)
            && thread::grid_dim_x() * thread::grid_dim_y() * thread::grid_dim_z()
                <= G::COMPENSATED_BLOCKS;
        // SAFETY: all stages but one are being filled, and every thread of the block comes here.
        unsafe {
            if G::COMPENSATED_K > 0 && compensates {
                let k_of_slice = left.saturating_sub(slice_k).min(G::SLICE_K);
                main_loop.run_compensated(k_of_slice, &mut acc);
            } else if MainLoop::<G, ALIGNED, TM, TN>::SPREADS && b_transposed {
                main_loop.run::<true>(&mut copies, left, &mut acc);
            } else {
                main_loop.run::<false>(&mut copies, left, &mut acc);
            }
        }

        // Read again behind `black_box`, so that it takes no registers in the loop.
        let tid = black_box(thread::thread_idx_x());
        let (slice, in_slice) = (tid / G::SLICE_THREADS, tid % G::SLICE_THREADS);
        let mut sums: Quads = [[0.0; 4]; MAX_QUADS];
        for quad in 0..Self::QUADS {
            for j in 0..4 {
                sums[quad][j] = acc[quad / Self::ROW][quad % Self::ROW * 4 + j];
            }
        }
        let outputs = OutputPartition {
            quads: Self::QUADS as u32,
            threads: G::SLICE_THREADS,
            in_slice,
            slice,
        };
        if G::SLICES > 1 {
            // SAFETY: shared memory has room for all sums, all copies were waited for, and every
            // thread of the block comes here.
            unsafe { reduce_slices::<G>(outputs, smem, &mut sums) };
        }
        // From here on, `sums[i]` is quad `outputs.quad::<G>(i)`.
        if split.count > 1 {
            let (partials, counters) = params.workspace(G::BM * G::BN);
            // SAFETY: as the launch promises; every thread of the block comes here.
            let last = unsafe { reduce_splits::<G>(outputs, split, partials, counters, &mut sums) };
            if !last {
                return;
            }
        }

        // Read again, so that it takes no registers in the reductions either.
        let in_slice = black_box(thread::thread_idx_x()) % G::SLICE_THREADS;
        let [[warp_row, warp_col], [lane_row, lane_col]] = Self::place(in_slice);
        let position = |i: usize| {
            let quad = outputs.quad::<G>(i);
            let (i_row, i_col) = (quad / Self::ROW as u32, quad % Self::ROW as u32);
            let row = i_row / 4 * (G::WM / (G::TM / 4)) + i_row % 4;
            let col = i_col * (G::WN / Self::ROW as u32);
            (warp_row + lane_row + row, warp_col + lane_col + col)
        };
        // SAFETY: as the launch promises.
        let c = unsafe { params.output() };
        if params.epilogue.is_some() {
            let (epilogue, is_aligned) = (params.epilogue(), c.is_aligned());
            let column_bias =
                SharedBias { at: smem.add(Self::BIAS_AT), col_of: |quad: usize| position(quad).1 };
            let mut next = 0;
            while next < (Self::OWN / Self::EPILOGUE_PART) as u32 {
                // Behind `black_box`: one piece of code for all parts.
                let part = if Self::OWN > Self::EPILOGUE_PART { black_box(next) } else { 0 };
                let mut values = [0.0; 2 * OUTPUTS_AT_ONCE];
                for quad in 0..Self::OWN {
                    for j in 0..4 {
                        if quad / Self::EPILOGUE_PART == part as usize {
                            values[quad % Self::EPILOGUE_PART * 4 + j] = sums[quad][j];
                        }
                    }
                }
                let at = |quad: u32| {
                    let quad = quad as usize;
                    let (row, col) = position(quad);
                    // Out of bounds if a slice has no such quad.
                    let row = if outputs.has::<G>(quad) { block_row + row } else { u32::MAX };
                    (row, block_col + col)
                };
                let first = part * Self::EPILOGUE_PART as u32;
                let places = QuadPlaces { at, first, in_row: Self::OWN_IN_ROW, column_bias };
                let count = 4 * Self::EPILOGUE_PART;
                // SAFETY: as below.
                unsafe { c.store_epilogue(epilogue, is_aligned, count, places, values) };
                next = part + 1;
            }
            return;
        }
        if !c.is_aligned() {
            // SAFETY: at the first barrier every thread of the block is done with shared memory,
            // and at the second it has stored its quads. Each has its own.
            unsafe {
                thread::sync_threads_aligned();
                for i in 0..Self::OWN {
                    if outputs.has::<G>(i) {
                        let (row, col) = position(i);
                        smem.store4(row * Self::LD_C + col, sums[i]);
                    }
                }
                thread::sync_threads_aligned();
            }
            // SAFETY: each element of the tile belongs to one thread.
            unsafe {
                if Self::STORES.is_multiple_of(4) {
                    Self::store_columns::<4>(c, block_row, block_col, smem);
                } else {
                    Self::store_columns::<2>(c, block_row, block_col, smem);
                }
            }
            return;
        }
        // Load this part of the old C before overwriting any of it.
        for first in (0..Self::OWN).step_by(Self::PART) {
            let mut old = [[0.0; 4]; 4];
            for i in 0..Self::PART {
                let (row, col) = position(first + i);
                if outputs.has::<G>(first + i) {
                    // SAFETY: each quad of the tile belongs to one thread.
                    old[i] = unsafe { c.load4(true, block_row + row, block_col + col) };
                }
            }
            for i in 0..Self::PART {
                let (row, col) = position(first + i);
                if outputs.has::<G>(first + i) {
                    let (row, col) = (block_row + row, block_col + col);
                    // SAFETY: as above.
                    unsafe { c.store4_over(true, row, col, sums[first + i], old[i]) };
                }
            }
        }
    }

    /// Where a thread's outputs begin: its warp's in the block's tile, and its first quad in its
    /// warp's.
    ///
    /// `in_slice` is the thread's number in its slice.
    #[inline(always)]
    fn place(in_slice: u32) -> [[u32; 2]; 2] {
        let (warp, lane) = (in_slice / Self::LANES, in_slice % Self::LANES);
        let [row, col] = if TN == 4 && Self::LANES == 32 && Self::LANES_N < 32 {
            // Neighbouring lanes share their quad of B, and lanes two apart their quad of A. With a
            // single quad of B that was 3 to 6 % faster than whole rows of lanes; with two quads it
            // was no faster.
            [lane / (2 * Self::LANES_N) * 2 + lane % 2, lane / 2 % Self::LANES_N]
        } else {
            [lane / Self::LANES_N, lane % Self::LANES_N]
        };
        [[warp / Self::WARPS_N * G::WM, warp % Self::WARPS_N * G::WN], [row * 4, col * 4]]
    }

    /// Stores a tile of C from shared memory, `PART` elements of a thread at a time.
    ///
    /// The threads of a warp have neighbours in a row, so they store whole lines, wherever rows
    /// begin.
    ///
    /// # Safety
    /// The tile was stored before the last barrier, and no other block stores it.
    #[inline(always)]
    unsafe fn store_columns<const PART: usize>(
        c: Output,
        block_row: u32,
        block_col: u32,
        smem: SharedPtr<f32>,
    ) {
        let tid = thread::thread_idx_x();
        let (row, col) = (tid / G::BN, tid % G::BN);
        for first in (0..Self::STORES).step_by(PART) {
            let row = row + first * Self::ROWS_C;
            let mut column = [[0.0f32]; PART];
            for i in 0..PART {
                let row = row + i as u32 * Self::ROWS_C;
                // SAFETY: inside the tile.
                column[i] = [unsafe { smem.load(row * Self::LD_C + col) }];
            }
            let (row, col) = (block_row + row, block_col + col);
            // SAFETY: each element of the tile belongs to one thread.
            unsafe { c.store_spaced(row, col, [Self::ROWS_C, 0], &column) };
        }
    }
}
