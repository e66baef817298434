//! Dot products: for a C of a few columns.
//!
//! # The idea
//!
//! Where N is 8 or less, a product takes as long as it takes to read A once. The tiles turn A
//! around on its way to shared memory, so that their threads can share it as outer products
//! want it, and can only do so four bytes at a time. Here nobody shares A: each warp has four
//! rows of its own, and its lanes walk along K in groups of four, as A lies in memory.
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
//! All warps use the same part of B at each step. It is small: it goes to shared memory
//! turned around, so that a lane finds its four k of a column side by side.
//!
//! Copies go through a ring of slots, as in the tiles, because what is under way
//! there costs no registers: 64 to 80 KiB of A for each block, two to three times the 26 KB that
//! hide the latency of a multiprocessor's share of memory.
//!
//! # The sum
//!
//! A lane adds up four products, and then adds these sums: its part of a row is a quarter as
//! long a chain, and what rounding loses grows with that. In the end the lanes halve the number
//! of values that each has, and double what these stand for, until each has one: the same
//! order every time.

use cuda_std::prelude::*;
use cuda_std::{cp_async, vec, warp};

use super::*;

macro_rules! dots {
    (
        $(#[$doc:meta])*
        $name:ident, $unaligned:ident, $summary:literal, columns $n:literal, pending $pending:literal
    ) => {
        kernel_module! {
            $(#[$doc])*
            $name, $unaligned, $summary, Dots<$n, $pending>,
            Tile { bm: BM, bn: $n, bk: BK, tm: ROWS as u32, tn: $n },
            // B and C are small, and moved one by one.
            wide [true, false, false],
            threads super::THREADS, min_blocks 2, "dots.rs"
        }
    };
}

dots! {
    /// N up to 8.
    dots_32x8, dots_32x8_unaligned, "32x8 outputs, 4 rows per warp, lanes along K",
    columns 8, pending 3
}

dots! {
    /// N up to 4.
    dots_32x4, dots_32x4_unaligned, "32x4 outputs, 4 rows per warp, lanes along K",
    columns 4, pending 4
}

dots! {
    /// N = 2.
    dots_32x2, dots_32x2_unaligned, "32x2 outputs, 4 rows per warp, lanes along K",
    columns 2, pending 4
}

dots! {
    /// Matrix times vector.
    dots_32x1, dots_32x1_unaligned, "32x1 outputs, 4 rows per warp, lanes along K",
    columns 1, pending 4
}

/// Threads per block, and warps.
const THREADS: u32 = 256;
const WARPS: u32 = THREADS / 32;
/// Rows of a warp, and of a block.
const ROWS: usize = 4;
const BM: u32 = ROWS as u32 * WARPS;
/// The step along K: four for each lane.
const BK: u32 = 4 * 32;

/// Elements from one column of B to the next in shared memory: padded, so that copies that
/// come as rows go to different banks.
const LD_B: u32 = BK + 4;

/// Values that a lane has at most: those of four rows and eight columns.
const MOST_VALUES: usize = 32;

/// Parts of other splits that are under way at once.
const AT_ONCE: u32 = 8;

/// The geometry: columns of C per block, and how many steps may still be on their way when one
/// computes.
struct Dots<const N: usize, const PENDING: u32>;

impl<const N: usize, const PENDING: u32> Dots<N, PENDING> {
    const BN: u32 = N as u32;
    /// Steps in shared memory, and elements from one to the next.
    const STAGES: u32 = PENDING + 2;
    const STAGE_A: u32 = BM * BK;
    const STAGE_B: u32 = Self::BN * LD_B;
    /// Sums of a warp, and lanes that have the same one in the end.
    const VALUES: u32 = ROWS as u32 * Self::BN;
    const ALIKE: u32 = 32 / Self::VALUES;
    /// Rows of B that the block copies in one go.
    const ROWS_B: u32 = THREADS / Self::BN;

    const SHARED_BYTES: u64 = (Self::STAGES * (Self::STAGE_A + Self::STAGE_B)) as u64 * 4;

    const CONSISTENT: () = {
        assert!(Self::VALUES <= 32 && Self::VALUES.is_power_of_two(), "a lane has one in the end");
        assert!(Self::VALUES as usize <= MOST_VALUES, "there is room for all values");
        assert!(THREADS.is_multiple_of(Self::BN), "every thread copies one column of B");
    };

    /// # Safety
    /// As for the entry points.
    #[inline(always)]
    unsafe fn gemm<const ALIGNED: bool>(call: Call) {
        const { Self::CONSISTENT };
        let Call { m, n, a, lda, b, ldb, partials, counters, .. } = call;
        let tid = thread::thread_idx_x();
        let (warp, lane) = (tid / 32, tid % 32);
        let (block_row, block_col) = (thread::block_idx_y() * BM, thread::block_idx_x() * Self::BN);
        let row = block_row + warp * ROWS as u32;
        // SAFETY: as the launch promises.
        let c = unsafe { call.output() };

        let (begin, end) = call.split();

        let smem = shared::dynamic_shared_mem::<f32>();
        let a_smem = smem.add(warp * ROWS as u32 * BK); // (STAGES, BM, BK)
        let b_smem = smem.add(Self::STAGES * Self::STAGE_A); // (STAGES, BN, BK + padding)

        // What this thread copies in each step: of its warp's rows of A four elements each, side
        // by side or 32 apart, and one of B in every `ROWS_B` rows.
        let (width, apart) = if ALIGNED { (4, 128) } else { (1, 32) };
        let mut from_a =
            a.wrapping_add(row as usize * lda as usize + (begin + lane * width) as usize);
        let to_a = a_smem.add(lane * width);
        let (row_b, col_b) = (tid / Self::BN, tid % Self::BN);
        let mut from_b =
            b.wrapping_add((begin + row_b) as usize * ldb as usize + (block_col + col_b) as usize);
        let to_b = b_smem.add(col_b * LD_B + row_b);
        let has_col = block_col + col_b < n;
        // Asks for the next step, where `left` of K is left; for nothing if none is.
        let mut copy = |left: u32, slot: u32| {
            if left > 0 {
                let to = to_a.add(slot * Self::STAGE_A);
                for r in 0..ROWS as u32 {
                    let from = from_a.wrapping_add(r as usize * lda as usize);
                    for col in (0..BK).step_by(apart) {
                        let inside = row + r < m && lane * width + col < left;
                        let (to, from) = (to.add(r * BK + col), from.wrapping_add(col as usize));
                        // SAFETY: this thread's own place in a slot that nobody uses before the
                        // copies are waited for; inside A where it is read, and there as far
                        // as four elements where it is four.
                        unsafe {
                            if ALIGNED {
                                cp_async::copy4_or_zero(to, from, inside);
                            } else {
                                cp_async::copy_or_zero(to, from, inside);
                            }
                        }
                    }
                }
                let to = to_b.add(slot * Self::STAGE_B);
                for k in (0..BK).step_by(Self::ROWS_B as usize) {
                    if Self::ROWS_B <= BK || row_b < BK {
                        let from = from_b.wrapping_add(k as usize * ldb as usize);
                        // SAFETY: as above, one element of B.
                        unsafe {
                            cp_async::copy_or_zero(to.add(k), from, has_col && row_b + k < left);
                        }
                    }
                }
                from_a = from_a.wrapping_add(BK as usize);
                from_b = from_b.wrapping_add(BK as usize * ldb as usize);
            }
            cp_async::commit_group();
        };

        let mut sums = [[0.0f32; N]; ROWS];
        let mut left = end.saturating_sub(begin);
        for slot in 0..Self::STAGES - 1 {
            copy(left.saturating_sub(slot * BK), slot);
        }
        let mut slot = 0;
        while left > 0 {
            // The next step has arrived, and nobody uses the slot before it any more.
            cp_async::wait_group::<PENDING>();
            thread::sync_threads();
            let free = if slot == 0 { Self::STAGES - 1 } else { slot - 1 };
            copy(left.saturating_sub((Self::STAGES - 1) * BK), free);

            let a_tile = a_smem.add(slot * Self::STAGE_A);
            let b_tile = b_smem.add(slot * Self::STAGE_B);
            let mut fours_b = [[0.0f32; 4]; N];
            for j in 0..N {
                // SAFETY: inside the slot, which was waited for before the barrier; a multiple
                // of four.
                fours_b[j] = unsafe { b_tile.load4(j as u32 * LD_B + lane * 4) };
            }
            for i in 0..ROWS {
                // SAFETY: as above.
                let four_a = unsafe { a_tile.load4(i as u32 * BK + lane * 4) };
                for j in 0..N {
                    let mut sum = four_a[0] * fours_b[j][0];
                    for e in 1..4 {
                        sum = fma(four_a[e], fours_b[j][e], sum);
                    }
                    sums[i][j] += sum;
                }
            }
            slot = if slot + 1 == Self::STAGES { 0 } else { slot + 1 };
            left = left.saturating_sub(BK);
        }

        // The number of this lane's sum among those of its block, as rows of C.
        let sum = Self::add_lanes(lane, &sums);
        let number = warp * Self::VALUES + lane / Self::ALIKE;
        let place = |number: u32| (block_row + number / Self::BN, block_col + number % Self::BN);
        let is_owner = lane % Self::ALIKE == 0;
        let splits = thread::grid_dim_z();
        if splits == 1 {
            let (row, col) = place(number);
            if is_owner {
                // SAFETY: one lane of one warp has this element.
                unsafe { c.put(row, col, sum) };
            }
            return;
        }

        // As `sum::add_splits`: the last block to arrive adds up.
        let tile = thread::block_idx_y() * thread::grid_dim_x() + thread::block_idx_x();
        let first = partials.wrapping_add((tile * splits) as usize * (BM * Self::BN) as usize);
        let part = |z: u32| first.wrapping_add((z * BM * Self::BN) as usize);
        if is_owner {
            // SAFETY: room for a tile per block, of which this one fills its own.
            unsafe { *part(thread::block_idx_z()).add(number as usize) = sum };
        }
        // SAFETY: as the launch promises; every thread of the block comes here.
        if !unsafe { sum::is_last(counters, tile) } || tid * 4 >= BM * Self::BN {
            return;
        }
        let mut total = [0.0f32; 4];
        let mut begin = 0;
        while begin < splits {
            let mut loaded = [[0.0f32; 4]; AT_ONCE as usize];
            for ahead in 0..AT_ONCE {
                // Past the end the last once more, unused.
                let z = (begin + ahead).min(splits - 1);
                // SAFETY: stored by the block of this split before it arrived; a multiple of
                // four, as tiles are.
                loaded[ahead as usize] = unsafe { vec::load4_cg(part(z).add(tid as usize * 4)) };
            }
            for ahead in 0..AT_ONCE {
                if begin + ahead < splits {
                    for e in 0..4 {
                        total[e] += loaded[ahead as usize][e];
                    }
                }
            }
            begin += AT_ONCE;
        }
        for e in 0..4 {
            let (row, col) = place(tid * 4 + e);
            // SAFETY: one thread of the block that came last has this element.
            unsafe { c.put(row, col, total[e as usize]) };
        }
    }

    /// Adds up the sums of all lanes. A lane gets that with the number `lane / ALIKE`, counted
    /// along rows of C.
    #[inline(always)]
    fn add_lanes(lane: u32, sums: &[[f32; N]; ROWS]) -> f32 {
        let mut values = [0.0f32; MOST_VALUES];
        for i in 0..ROWS {
            for j in 0..N {
                values[i * N + j] = sums[i][j];
            }
        }
        // Each lane keeps one half of its values, and gives the other to the lane whose number
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
                let got =
                    unsafe { warp::warp_shuffle_xor(warp::FULL_MASK, given.to_bits(), distance) };
                values[v] = kept + f32::from_bits(got);
            }
        }
        values[0]
    }
}
