//! Skinny N: for a C of a few columns, down to matrix times vector.
//!
//! # The idea
//!
//! If N is 8 or less, a product takes as long as reading A once. The tiles transpose A as they copy
//! it to shared memory, because their threads share it for outer products. They can do so only four
//! bytes at a time. Here nobody shares A: each warp has four rows of its own, and its lanes walk
//! along K in groups of four, as A lies in memory.
//!
//! ```text
//!            k ->  lane 0      lane 1            lane 31    next step
//!   warp 0  row 0 | . . . . | . . . . |  ...  | . . . . |  ...
//!           row 1 | . . . . | . . . . |  ...  | . . . . |
//!           row 2 | . . . . | . . . . |  ...  | . . . . |
//!           row 3 | . . . . | . . . . |  ...  | . . . . |
//!   warp 1  row 4   ...
//! ```
//!
//! # What is different from the tiles
//!
//! The slices along K are the lanes of a warp: 32 of them, which add up by shuffles. All warps use
//! the same part of B in each step. B is small, and goes to shared memory transposed, so that a
//! lane finds its four k of a column side by side.
//!
//! Copies go into a circular buffer of stages, as in the tiles, because copies in flight need no
//! registers. A block has 48 to 80 KiB of A in flight: two to three times the 26 KB that hide the
//! latency of a multiprocessor's share of memory.
//!
//! # Few rows instead of few columns
//!
//! `C^T = B^T * A^T`. If B lies transposed, a C of few rows can be computed as one of few columns,
//! with C stored transposed. So the kernel accepts a B and a C that lie either way.
//!
//! # The sum
//!
//! A lane adds up four products, and then adds these sums. So its accumulation is a quarter as
//! long, and the rounding error grows with that length.
//!
//! With one column and few rows of C, a lane also keeps what rounding takes from products and sums
//! (Ogita, Rump and Oishi, *Accurate sum and dot product*, 2005). That costs ten operations per
//! product. Many rows leave no time for it, and the rms error of few elements varies most.
//!
//! In the end the lanes add up their values. Each step halves the values of a lane and doubles the
//! lanes that a value stands for, until each lane has its own. The order is the same every time.
//! The sums of splits are always added up with compensation, for any number of rows and columns.

use core::marker::PhantomData;

use cuda_std::prelude::*;
use cuda_std::{cp_async, vec};

use super::accumulator::{Accumulator, CompensatedSum};
use super::kernel::kernel_module;
use crate::abi::KernelAbi;
use crate::abi::layout::TRANSPOSED_B;
use crate::device::geometry::Geometry;
use crate::device::pipeline::dependent_launch;
use crate::device::reduce::split_k::{is_last_to_arrive, tile_number};
use crate::device::schedule::split_k::Params;

// B and C are small, and moved element by element. So only A is vectorized, and B and C may lie
// transposed.

kernel_module! {
    /// N up to 16, and slightly more.
    skinny_n_32x16,
    "32x16 outputs, 4 rows per warp, lanes along K",
    SkinnyN {
        BM: 32, BN: 16, BK: 128, WM: 4, WN: 16, TM: 4, TN: 16, SLICES: 32, STAGES: 4
    },
    vectorized [true, false, false], transposed [Reads::Copied, Reads::Anywhere],
    transposes_c true, min_blocks 2, "skinny_n.rs"
}

kernel_module! {
    /// N up to 8.
    skinny_n_32x8,
    "32x8 outputs, 4 rows per warp, lanes along K",
    SkinnyN {
        BM: 32, BN: 8, BK: 128, WM: 4, WN: 8, TM: 4, TN: 8, SLICES: 32, STAGES: 5
    },
    vectorized [true, false, false], transposed [Reads::Copied, Reads::Anywhere],
    transposes_c true, min_blocks 2, "skinny_n.rs"
}

kernel_module! {
    /// N up to 4.
    skinny_n_32x4,
    "32x4 outputs, 4 rows per warp, lanes along K",
    SkinnyN {
        BM: 32, BN: 4, BK: 128, WM: 4, WN: 4, TM: 4, TN: 4, SLICES: 32, STAGES: 6
    },
    vectorized [true, false, false], transposed [Reads::Copied, Reads::Anywhere],
    transposes_c true, min_blocks 2, "skinny_n.rs"
}

kernel_module! {
    /// N = 2.
    skinny_n_32x2,
    "32x2 outputs, 4 rows per warp, lanes along K",
    SkinnyN {
        BM: 32, BN: 2, BK: 128, WM: 4, WN: 2, TM: 4, TN: 2, SLICES: 32, STAGES: 6
    },
    vectorized [true, false, false], transposed [Reads::Copied, Reads::Anywhere],
    transposes_c true, min_blocks 2, "skinny_n.rs"
}

kernel_module! {
    /// Matrix times vector.
    skinny_n_32x1,
    "32x1 outputs, 4 rows per warp, lanes along K",
    SkinnyN {
        BM: 32, BN: 1, BK: 128, WM: 4, WN: 1, TM: 4, TN: 1, SLICES: 32, STAGES: 6
    },
    vectorized [true, false, false], transposed [Reads::Copied, Reads::Anywhere],
    transposes_c true, min_blocks 2, "skinny_n.rs"
}

/// The most values of a lane, for four rows and sixteen columns. Below: the most in the end.
const MAX_VALUES: usize = 64;
const MAX_OWN: usize = 2;
/// The most rows of C with which the rounding of one column is compensated.
const FEW: u32 = 512;
/// Splits whose sums a thread has in flight at once.
const AT_ONCE: u32 = 8;

/// The kernel, for a geometry. `TM` and `TN` are the geometry's: stable Rust allows only parameters
/// as lengths of arrays.
struct SkinnyN<G, const TM: usize, const TN: usize>(PhantomData<G>);

impl<G: Geometry, const TM: usize, const TN: usize> SkinnyN<G, TM, TN> {
    const ABI: KernelAbi = KernelAbi::SplitK;
    /// One column of few rows is compensated: see [`FEW`].
    const COMPENSATES: bool = G::BN == 1;

    /// Elements from one column of B to the next in shared memory. Columns are padded, so that
    /// copies of rows go to different banks.
    const LD_B: u32 = G::BK + 4;
    /// Elements from one stage to the next.
    const STAGE_A: u32 = G::BM * G::BK;
    const STAGE_B: u32 = G::BN * Self::LD_B;
    /// Sums of a warp. Below: how many a lane has in the end, and the number of lanes with the same
    /// ones.
    const VALUES: u32 = G::WM * G::WN;
    const OWN: u32 = Self::VALUES.div_ceil(32);
    const ALIKE: u32 = 32 * Self::OWN / Self::VALUES;
    /// Rows of B that the block copies in one go.
    const ROWS_B: u32 = G::THREADS / G::BN;
    /// Threads that add up the splits' sums of an element.
    const SHARERS: u32 = if G::BM * G::BN < G::THREADS { G::THREADS / (G::BM * G::BN) } else { 1 };

    const SHARED_BYTES: u64 = (G::STAGES * (Self::STAGE_A + Self::STAGE_B)) as u64 * 4;

    /// Shared memory per block for any K.
    const fn shared_bytes(_k: u32) -> u64 {
        Self::SHARED_BYTES
    }

    const CONSISTENT: () = {
        assert!(G::SLICES == 32 && G::SLICE_K == 4, "a lane has four of each step");
        assert!(G::WM == G::TM && G::WN == G::BN && G::WN == G::TN, "a lane has the warp's tile");
        assert!(G::BM == G::WM * G::THREADS / 32, "the warps have all rows");
        assert!(TM == G::TM as usize && TN == G::TN as usize, "arrays are as long as they are");
        assert!(
            Self::VALUES <= MAX_VALUES as u32 && Self::VALUES.is_power_of_two(),
            "a lane has two in the end at most"
        );
        assert!(G::THREADS.is_multiple_of(G::BN), "every thread copies one column of B");
        assert!(
            Self::SHARERS.is_power_of_two()
                && Self::SHARERS <= 32
                && (G::BM * G::BN).is_multiple_of(G::THREADS / Self::SHARERS),
            "those that share an element are in a warp, and all warps take the same number of elements"
        );
    };

    /// # Safety
    /// As for the entry points.
    #[inline(always)]
    unsafe fn gemm<const ALIGNED: bool>(params: Params) {
        const { Self::CONSISTENT };
        // SAFETY: the caller's contract.
        unsafe {
            match TN {
                1 if params.m <= FEW => Self::gemm_by::<CompensatedSum, ALIGNED>(params),
                _ => Self::gemm_by::<f32, ALIGNED>(params),
            }
        }
    }

    /// The kernel, with sums of the type `S`.
    ///
    /// # Safety
    /// As for the entry points.
    #[inline(always)]
    unsafe fn gemm_by<S: Accumulator, const ALIGNED: bool>(params: Params) {
        // SAFETY: as the launch promises.
        let (params, split) = unsafe { params.of_block() };
        let Params { m, n, a, lda, b, ldb, layout, .. } = params;
        let tid = thread::thread_idx_x();
        let (warp, lane) = (tid / 32, tid % 32);
        let (block_row, block_col) = (thread::block_idx_y() * G::BM, thread::block_idx_x() * G::BN);
        let row = block_row + warp * TM as u32;

        let (begin, end) = params.range(split);

        let smem = shared::dynamic_shared_mem::<f32>();
        let a_smem = smem.add(warp * TM as u32 * G::BK); // (STAGES, BM, BK)
        let b_smem = smem.add(G::STAGES * Self::STAGE_A); // (STAGES, BN, BK + padding)

        // What this thread copies in each step. From each of its warp's rows of A it copies four
        // elements, side by side or 32 apart. Of B it copies one element in every `ROWS_B` rows.
        let (width, apart) = if ALIGNED { (4, 128) } else { (1, 32) };
        let mut from_a =
            a.wrapping_add(row as usize * lda as usize + (begin + lane * width) as usize);
        let to_a = a_smem.add(lane * width);
        // Distances from one row of B to the next, and from one column; neighbouring threads copy
        // neighbours.
        let b_transposed = layout & TRANSPOSED_B != 0;
        let [to_row, to_col] = if b_transposed { [1, ldb as usize] } else { [ldb as usize, 1] };
        let (row_b, col_b) = if b_transposed {
            (tid % Self::ROWS_B, tid / Self::ROWS_B)
        } else {
            (tid / G::BN, tid % G::BN)
        };
        let mut from_b = b.wrapping_add(
            (begin + row_b) as usize * to_row + (block_col + col_b) as usize * to_col,
        );
        let to_b = b_smem.add(col_b * Self::LD_B + row_b);
        let has_col = block_col + col_b < n;
        // Copies the next step, with `left` of K left; nothing if none is.
        let mut copy = |left: u32, stage: u32| {
            if left > 0 {
                let to = to_a.add(stage * Self::STAGE_A);
                for r in 0..TM as u32 {
                    let from = from_a.wrapping_add(r as usize * lda as usize);
                    for col in (0..G::BK).step_by(apart) {
                        let inside = row + r < m && lane * width + col < left;
                        let (to, from) = (to.add(r * G::BK + col), from.wrapping_add(col as usize));
                        // SAFETY: this thread's own place in a stage that nobody uses before the
                        // copies are waited for. It is inside A if it is read; if four elements are
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
                let to = to_b.add(stage * Self::STAGE_B);
                for k in (0..G::BK).step_by(Self::ROWS_B as usize) {
                    if Self::ROWS_B <= G::BK || row_b < G::BK {
                        let from = from_b.wrapping_add(k as usize * to_row);
                        // SAFETY: as above, for one element of B.
                        unsafe {
                            cp_async::copy_zfill(to.add(k), from, has_col && row_b + k < left);
                        }
                    }
                }
                from_a = from_a.wrapping_add(G::BK as usize);
                from_b = from_b.wrapping_add(G::BK as usize * to_row);
            }
            cp_async::commit_group();
        };

        let mut sums = [[S::of(0.0); TN]; TM];
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

            let a_tile = a_smem.add(stage * Self::STAGE_A);
            let b_tile = b_smem.add(stage * Self::STAGE_B);
            let mut fours_a = [[0.0f32; 4]; TM];
            for i in 0..TM {
                // SAFETY: inside the stage, which was waited for before the barrier; a multiple of
                // four.
                fours_a[i] = unsafe { a_tile.load4(i as u32 * G::BK + lane * 4) };
            }
            for j in 0..TN {
                // SAFETY: as above.
                let four_b = unsafe { b_tile.load4(j as u32 * Self::LD_B + lane * 4) };
                for i in 0..TM {
                    sums[i][j] = sums[i][j].plus_products(fours_a[i], four_b);
                }
            }
            stage = if stage + 1 == G::STAGES { 0 } else { stage + 1 };
            left = left.saturating_sub(G::BK);
        }

        // The number of this lane's first sum among the block's, counted along rows of C.
        let own = Self::add_lanes(lane, &sums);
        let number = warp * Self::VALUES + lane / Self::ALIKE * Self::OWN;
        let is_owner = lane % Self::ALIKE == 0;
        // SAFETY: as the launch promises.
        let (c, c_transposed) = unsafe { params.output_or_transpose() };
        let position = |number: u32| {
            let (row, col) = (block_row + number / G::BN, block_col + number % G::BN);
            if c_transposed { (col, row) } else { (row, col) }
        };
        let splits = split.count;
        if splits == 1 {
            let at = |i: usize| position(number + i as u32);
            if is_owner {
                // SAFETY: one lane of one warp has these elements.
                unsafe {
                    match Self::OWN {
                        1 => c.store_each(params.epilogue(), [own[0]], at),
                        _ => c.store_each(params.epilogue(), own, at),
                    }
                }
            }
            return;
        }

        // As in `reduce_splits`, the last block to arrive adds up.
        let (partials, counters) = params.workspace(G::BM * G::BN);
        let tile = tile_number();
        let first = partials.wrapping_add((tile * splits) as usize * (G::BM * G::BN) as usize);
        let part = |z: u32| first.wrapping_add((z * G::BM * G::BN) as usize);
        if is_owner {
            for i in 0..Self::OWN as usize {
                // SAFETY: there is room for a tile per block, and this block fills its own.
                unsafe { *part(split.index).add(number as usize + i) = own[i] };
            }
        }
        // SAFETY: as the launch promises; every thread of the block comes here.
        if !unsafe { is_last_to_arrive(splits, counters, tile) } {
            return;
        }
        for number in
            (tid / Self::SHARERS..G::BM * G::BN).step_by((G::THREADS / Self::SHARERS) as usize)
        {
            let mut total = CompensatedSum::of(0.0);
            let mut begin = tid % Self::SHARERS;
            while begin < splits {
                let mut loaded = [0.0f32; AT_ONCE as usize];
                for i in 0..AT_ONCE {
                    // Past the end the last partial is loaded again, and not used.
                    let from = part((begin + i * Self::SHARERS).min(splits - 1));
                    // SAFETY: stored by the block of this split before it arrived.
                    [loaded[i as usize]] = unsafe { vec::load_cg(from.add(number as usize)) };
                }
                for i in 0..AT_ONCE {
                    if begin + i * Self::SHARERS < splits {
                        total = total.plus(CompensatedSum::of(loaded[i as usize]));
                    }
                }
                begin += AT_ONCE * Self::SHARERS;
            }
            for step in 0..Self::SHARERS.ilog2() {
                // SAFETY: whole warps come here, and the threads that share an element are in one
                // warp.
                total = total.plus(unsafe { total.shuffle_xor(1 << step) });
            }
            if tid.is_multiple_of(Self::SHARERS) {
                // SAFETY: one thread of the block that came last has this element.
                unsafe { c.store_each(params.epilogue(), [total.value()], |_| position(number)) };
            }
        }
    }

    /// Adds up the sums of all lanes.
    ///
    /// A lane gets those from number `lane / ALIKE * OWN` on, counted along rows of C.
    #[inline(always)]
    fn add_lanes<S: Accumulator>(lane: u32, sums: &[[S; TN]; TM]) -> [f32; MAX_OWN] {
        let mut values = [S::of(0.0); MAX_VALUES];
        for i in 0..TM {
            for j in 0..TN {
                values[i * TN + j] = sums[i][j];
            }
        }
        // Each lane keeps one half of its values, and gives the other half to the lane whose number
        // differs in one bit.
        for step in 0..5 {
            let distance = 16 >> step;
            let half = (Self::VALUES >> (step + 1)) as usize;
            let is_upper = lane & distance != 0;
            for v in 0..half.max(1) {
                let (kept, given) = match (half, is_upper) {
                    (0, _) => (values[v], values[v]),
                    (_, false) => (values[v], values[v + half]),
                    (_, true) => (values[v + half], values[v]),
                };
                // SAFETY: whole warps add up, with loops that are the same in every lane.
                values[v] = kept.plus(unsafe { given.shuffle_xor(distance) });
            }
        }
        [values[0].value(), values[1].value()]
    }
}
