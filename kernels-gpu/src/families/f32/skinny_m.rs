//! Skinny M: for a C of a few rows, down to vector times matrix.
//!
//! # The idea
//!
//! If M is 8 or less, a product takes as long as reading B once. Here nobody shares B: the slices
//! of a block (slice-K, see [`tiled`](super::tiled)) are its warps. In each step a warp has four
//! rows of B, and each of its lanes four columns. So each row is read as whole lines, by copies
//! that need no registers.
//!
//! ```text
//!               n ->  lane 0      lane 1            lane 31
//!   warp 0  k = 0 .. 3   | . . . . | . . . . |  ...  | . . . . |
//!   warp 1  k = 4 .. 7   | . . . . | . . . . |  ...  | . . . . |
//!   ...
//!   warp 0  k = 32 .. 35 | . . . . | . . . . |  ...  | . . . . |    next step
//! ```
//!
//! If a block has 32 columns, a slice is eight lanes, and the picture's warp has four slices.
//!
//! # What is different from the tiles
//!
//! The tiles do the same in steps twice as long. Here copies for five steps of 16 KiB are in flight
//! at the start of each step, and each stage is refilled as soon as it was used. All slices use A,
//! which is small. A thread adds up four products, and then adds these sums, as in
//! [`skinny_n`](super::skinny_n).

use core::marker::PhantomData;

use cuda_std::cp_async;
use cuda_std::prelude::*;

use super::kernel::kernel_module;
use crate::abi::KernelAbi;
use crate::abi::layout::TRANSPOSED_A;
use crate::device::geometry::{Geometry, stages};
use crate::device::pipeline::dependent_launch;
use crate::device::reduce::split_k::{
    MAX_QUADS, OutputPartition, Quads, reduce_slices, reduce_splits,
};
use crate::device::schedule::split_k::Params;

// A is small, and copied element by element, and the kernel checks C's alignment itself. So only B
// is vectorized, and A and C may lie transposed: see `skinny_n`.

kernel_module! {
    /// M up to 8.
    skinny_m_8x128,
    "8x128 outputs, 4 columns per lane, warps along K",
    SkinnyM {
        BM: 8, BN: 128, BK: 32, WM: 8, WN: 128, TM: 8, TN: 4, SLICES: 8, STAGES: 6
    },
    vectorized [false, true, false], transposed [Reads::Anywhere, Reads::Copied],
    transposes_c true, min_blocks 2, "skinny_m.rs"
}

kernel_module! {
    /// M up to 4.
    skinny_m_4x128,
    "4x128 outputs, 4 columns per lane, warps along K",
    SkinnyM {
        BM: 4, BN: 128, BK: 32, WM: 4, WN: 128, TM: 4, TN: 4, SLICES: 8, STAGES: 6
    },
    vectorized [false, true, false], transposed [Reads::Anywhere, Reads::Copied],
    transposes_c true, min_blocks 2, "skinny_m.rs"
}

kernel_module! {
    /// M up to 2: vector times matrix. From 4096 columns on there are as many blocks as a large GPU
    /// has multiprocessors, so no tile needs a split-K reduction.
    skinny_m_2x32,
    "2x32 outputs, 4 columns per lane, lanes and warps along K",
    SkinnyM {
        BM: 2, BN: 32, BK: 128, WM: 2, WN: 32, TM: 2, TN: 4, SLICES: 32, STAGES: 6
    },
    vectorized [false, true, false], transposed [Reads::Anywhere, Reads::Copied],
    transposes_c true, min_blocks 2, "skinny_m.rs"
}

kernel_module! {
    /// M up to 2, in batches, with a K of a few steps or one.
    skinny_m_2x64,
    "2x64 outputs, 4 columns per lane, lanes and warps along K",
    SkinnyM {
        BM: 2, BN: 64, BK: 64, WM: 2, WN: 64, TM: 2, TN: 4, SLICES: 16, STAGES: 3
    },
    vectorized [false, true, false], transposed [Reads::Anywhere, Reads::Copied],
    transposes_c true, min_blocks 4, "skinny_m.rs"
}

/// The kernel, for a geometry. `TM` and `TN` are the geometry's: stable Rust allows only parameters
/// as lengths of arrays.
struct SkinnyM<G, const TM: usize, const TN: usize>(PhantomData<G>);

impl<G: Geometry, const TM: usize, const TN: usize> SkinnyM<G, TM, TN> {
    const ABI: KernelAbi = KernelAbi::SplitK;
    const COMPENSATES: bool = false;

    /// Elements of a stage, which has a tile of B and then one of A.
    const STAGE_A: u32 = G::BM * G::BK;
    const STAGE_B: u32 = G::BK * G::BN;
    const STAGE: u32 = Self::STAGE_A + Self::STAGE_B;

    /// Quads that a thread stores after the slice-K reduction.
    const OWN: usize = TM.div_ceil(G::SLICES as usize);

    /// The stages, which later have room for the sums of all slices.
    const SHARED_BYTES: u64 = (G::STAGES * Self::STAGE) as u64 * 4;

    /// A short K needs fewer stages, so that more blocks fit.
    const fn shared_bytes(k: u32) -> u64 {
        let stages = (stages::<G>(k) * Self::STAGE) as u64 * 4;
        if stages > Self::SUMS_BYTES { stages } else { Self::SUMS_BYTES }
    }

    /// Bytes of the slices' sums, which lie there in the end.
    const SUMS_BYTES: u64 = (G::SLICES * G::BM * G::BN) as u64 * 4;

    const CONSISTENT: () = {
        assert!(TM == G::TM as usize && TN == G::TN as usize, "arrays are as long as they are");
        assert!(G::TM == G::BM && TM <= MAX_QUADS, "a thread has a quad of each row");
        assert!(G::TN == 4 && G::SLICE_K == 4, "a thread has 4 x 4 of B in each step");
        assert!(32 % G::SLICE_THREADS == 0, "a slice lies in a warp");
        assert!(Self::STAGE_A <= G::THREADS, "a thread copies one element of A, or none");
        assert!(Self::SUMS_BYTES <= Self::SHARED_BYTES, "the slices' sums have room");
    };

    /// # Safety
    /// As for the entry points.
    #[inline(always)]
    unsafe fn gemm<const ALIGNED: bool>(params: Params) {
        const { Self::CONSISTENT };
        // SAFETY: as the launch promises.
        let (params, split) = unsafe { params.of_block() };
        let Params { m, n, a, lda, b, ldb, layout, .. } = params;
        let tid = thread::thread_idx_x();
        let (slice, lane) = (tid / G::SLICE_THREADS, tid % G::SLICE_THREADS);
        let (block_row, block_col) = (thread::block_idx_y() * G::BM, thread::block_idx_x() * G::BN);

        let (begin, end) = params.range(split);

        let smem = shared::dynamic_shared_mem::<f32>();
        let slice_k = slice * G::SLICE_K;
        let b_smem = smem.add(slice_k * G::BN); // (BK, BN), of each stage
        let a_smem = smem.add(Self::STAGE_B); // (BM, BK)

        // What this thread copies in each step. From each of its slice's rows of B it copies four
        // elements, side by side or `SLICE_THREADS` apart. Of A it copies one element.
        let (width, apart) = if ALIGNED { (4, G::BN) } else { (1, G::SLICE_THREADS) };
        let (row_a, col_a) = (tid / G::BK, tid % G::BK);
        // Distances from one row of A to the next, and from one column.
        let [to_row, to_col] =
            if layout & TRANSPOSED_A != 0 { [1, lda as usize] } else { [lda as usize, 1] };
        let mut from_a = a.wrapping_add(
            (block_row + row_a) as usize * to_row + (begin + col_a) as usize * to_col,
        );
        let to_a = a_smem.add(tid);
        let has_row = block_row + row_a < m;
        let mut from_b = b.wrapping_add(
            (begin + slice_k) as usize * ldb as usize + (block_col + lane * width) as usize,
        );
        let to_b = b_smem.add(lane * width);
        let cols = n.saturating_sub(block_col + lane * width);
        // Copies the next step, with `left` of K left; nothing if none is.
        let mut copy = |left: u32, stage: u32| {
            if left > 0 {
                let to = to_b.add(stage * Self::STAGE);
                for row in 0..G::SLICE_K {
                    let from = from_b.wrapping_add(row as usize * ldb as usize);
                    for col in (0..G::BN).step_by(apart as usize) {
                        let inside = slice_k + row < left && col < cols;
                        let (to, from) =
                            (to.add(row * G::BN + col), from.wrapping_add(col as usize));
                        // SAFETY: this thread's own place in a stage that nobody uses before the
                        // copies are waited for. It is inside B if it is read; if four elements are
                        // copied, all four are.
                        unsafe {
                            if ALIGNED {
                                cp_async::copy4_zfill(to, from, inside);
                            } else {
                                cp_async::copy_zfill(to, from, inside);
                            }
                        }
                    }
                }
                if tid < Self::STAGE_A {
                    let to = to_a.add(stage * Self::STAGE);
                    // SAFETY: as above, for one element of A.
                    unsafe { cp_async::copy_zfill(to, from_a, has_row && col_a < left) };
                }
                from_a = from_a.wrapping_add(G::BK as usize * to_col);
                from_b = from_b.wrapping_add(G::BK as usize * ldb as usize);
            }
            cp_async::commit_group();
        };

        // The thread's four columns of each row.
        let mut sums: Quads = [[0.0; 4]; MAX_QUADS];
        let mut left = end.saturating_sub(begin);
        dependent_launch::begin();
        for stage in 0..G::STAGES - 1 {
            copy(left.saturating_sub(stage * G::BK), stage);
        }
        let mut stage = 0;
        while left > 0 {
            // The next step has arrived, and nobody still uses the stage before it.
            G::wait_for_oldest();
            thread::sync_threads();
            let free = if stage == 0 { G::STAGES - 1 } else { stage - 1 };
            copy(left.saturating_sub((G::STAGES - 1) * G::BK), free);

            let a_tile = a_smem.add(stage * Self::STAGE);
            let b_tile = b_smem.add(stage * Self::STAGE);
            let mut fours_b = [[0.0f32; 4]; 4];
            for row in 0..G::SLICE_K {
                // SAFETY: inside the stage, which was waited for before the barrier; a multiple
                // of four.
                fours_b[row as usize] = unsafe { b_tile.load4(row * G::BN + lane * 4) };
            }
            for i in 0..TM {
                // SAFETY: as above.
                let four_a = unsafe { a_tile.load4(i as u32 * G::BK + slice_k) };
                for j in 0..4 {
                    let mut sum = four_a[0] * fours_b[0][j];
                    for e in 1..4 {
                        sum = fma(four_a[e], fours_b[e][j], sum);
                    }
                    sums[i][j] += sum;
                }
            }
            stage = if stage + 1 == G::STAGES { 0 } else { stage + 1 };
            left = left.saturating_sub(G::BK);
        }

        let outputs =
            OutputPartition { quads: G::BM, threads: G::SLICE_THREADS, in_slice: lane, slice };
        // SAFETY: shared memory has room for all sums, all copies were waited for, and every
        // thread of the block comes here.
        unsafe { reduce_slices::<G>(outputs, smem, &mut sums) };
        // From here on, `sums[i]` is quad `outputs.quad::<G>(i)`, which is also its row.
        if split.count > 1 {
            let (partials, counters) = params.workspace(G::BM * G::BN);
            // SAFETY: as the launch promises; every thread of the block comes here.
            if !unsafe { reduce_splits::<G>(outputs, split, partials, counters, &mut sums) } {
                return;
            }
        }
        // SAFETY: as the launch promises.
        let (c, c_transposed) = unsafe { params.output_or_transpose() };
        // The launch only promises that B is aligned.
        let aligned = ALIGNED && !c_transposed && c.is_aligned();
        if params.epilogue.is_some() || c_transposed {
            let epilogue = params.epilogue();
            for i in 0..Self::OWN {
                if outputs.has::<G>(i) {
                    let (row, col) = (block_row + outputs.quad::<G>(i), block_col + lane * 4);
                    let at = |j: usize| {
                        let (row, col) = (row, col + j as u32);
                        if c_transposed { (col, row) } else { (row, col) }
                    };
                    // SAFETY: as below.
                    unsafe { c.store_epilogue(epilogue, aligned, 4, at, sums[i]) };
                }
            }
            return;
        }
        for i in 0..Self::OWN {
            if outputs.has::<G>(i) {
                let (row, col) = (block_row + outputs.quad::<G>(i), block_col + lane * 4);
                // SAFETY: each quad of the tile belongs to one thread.
                unsafe {
                    let old = c.load4(aligned, row, col);
                    c.store4_over(aligned, row, col, sums[i], old);
                }
            }
        }
    }
}
