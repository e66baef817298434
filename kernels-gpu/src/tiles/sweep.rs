//! Sweeps over B: for a C of a few rows.
//!
//! # The idea
//!
//! Where M is 8 or less, a product takes as long as it takes to read B once. Here nobody shares
//! B: a warp has every eighth group of four rows for itself, and each of its lanes four
//! columns, so that each row is read as whole lines, by copies that take no registers.
//!
//! ```text
//!               n ->  lane 0      lane 1            lane 31
//!   warp 0  k = 0 .. 3   | . . . . | . . . . |  ...  | . . . . |
//!   warp 1  k = 4 .. 7   | . . . . | . . . . |  ...  | . . . . |
//!   ...
//!   warp 0  k = 32 .. 35 | . . . . | . . . . |  ...  | . . . . |    next step
//! ```
//!
//! The tiles do the same in steps twice as long: here copies of five steps of 16 KiB are under
//! way, and the next is asked for whenever one has come. All warps use A, which is small. Each
//! has sums of its own for the whole tile; they add up as the groups of a tile do.
//!
//! Where a block has 32 columns, a group of eight lanes does what a warp does in the picture.
//!
//! A thread adds up four products, and then adds these sums, as in [`dots`].

use cuda_std::cp_async;
use cuda_std::prelude::*;

use super::sum::{self, Quads};
use super::*;

macro_rules! sweep {
    (
        $(#[$doc:meta])*
        $name:ident, $unaligned:ident, $summary:literal,
        rows $m:literal, cols $n:literal, groups $groups:literal, pending $pending:literal
    ) => {
        kernel_module! {
            $(#[$doc])*
            $name, $unaligned, $summary, Sweep<$m, $n, $groups, $pending>,
            Tile { bm: $m, bn: $n, bk: GROUP_K * $groups, tm: $m, tn: 4 },
            // A is small, and moved one by one; C is looked at by the kernel.
            wide [false, true, false],
            threads super::THREADS, min_blocks 2, "sweep.rs"
        }
    };
}

sweep! {
    /// M up to 8.
    sweep_8x128, sweep_8x128_unaligned, "8x128 outputs, 4 columns per lane, warps along K",
    rows 8, cols 128, groups 8, pending 4
}

sweep! {
    /// M up to 4.
    sweep_4x128, sweep_4x128_unaligned, "4x128 outputs, 4 columns per lane, warps along K",
    rows 4, cols 128, groups 8, pending 4
}

sweep! {
    /// M up to 2, vector times matrix: with as many blocks from 4096 columns as a large GPU has
    /// multiprocessors, so that no blocks share a tile and have to meet.
    sweep_2x32, sweep_2x32_unaligned, "2x32 outputs, 4 columns per lane, lanes and warps along K",
    rows 2, cols 32, groups 32, pending 4
}

/// Threads per block.
const THREADS: u32 = 256;
/// Rows of B that a group of lanes takes in each step.
const GROUP_K: u32 = 4;

/// The geometry: rows and columns of C per block, groups of lanes along K, and how many steps may
/// still be on their way when one computes.
struct Sweep<const M: usize, const BN: u32, const GROUPS: u32, const PENDING: u32>;

impl<const M: usize, const BN: u32, const GROUPS: u32, const PENDING: u32>
    Sweep<M, BN, GROUPS, PENDING>
{
    const BM: u32 = M as u32;
    /// Lanes of a group, with four columns each, and the step along K.
    const LANES: u32 = BN / 4;
    const BK: u32 = GROUP_K * GROUPS;
    /// Steps in shared memory, and elements from one to the next.
    const STAGES: u32 = PENDING + 2;
    const STAGE_A: u32 = Self::BM * Self::BK;
    const STAGE_B: u32 = Self::BK * BN;
    /// Fours of outputs that a thread stores once the groups have added up.
    const SHARE: usize = M.div_ceil(GROUPS as usize);

    /// The slots, in which the sums of all groups have room in the end.
    const SHARED_BYTES: u64 = (Self::STAGES * (Self::STAGE_A + Self::STAGE_B)) as u64 * 4;

    const CONSISTENT: () = {
        assert!(Self::LANES * GROUPS == THREADS, "groups of lanes make the block");
        assert!(32 % Self::LANES == 0, "a group lies in a warp");
        assert!(Self::STAGE_A <= THREADS, "a thread copies one element of A, or none");
        assert!((GROUPS * Self::BM * BN) as u64 * 4 <= Self::SHARED_BYTES, "sums have room");
        assert!(M <= sum::MOST_QUADS, "a thread's outputs fit its registers");
    };

    /// # Safety
    /// As for the entry points.
    #[inline(always)]
    unsafe fn gemm<const ALIGNED: bool>(call: Call) {
        const { Self::CONSISTENT };
        let Call { m, n, a, lda, b, ldb, partials, counters, .. } = call;
        let tid = thread::thread_idx_x();
        let (group, lane) = (tid / Self::LANES, tid % Self::LANES);
        let (block_row, block_col) = (thread::block_idx_y() * Self::BM, thread::block_idx_x() * BN);
        // SAFETY: as the launch promises.
        let c = unsafe { call.output() };

        let (begin, end) = call.split();

        let smem = shared::dynamic_shared_mem::<f32>();
        let group_k = group * GROUP_K;
        let b_smem = smem.add(group_k * BN); // (STAGES, BK, BN)
        let a_smem = smem.add(Self::STAGES * Self::STAGE_B); // (STAGES, BM, BK)

        // What this thread copies in each step: of its group's rows of B four elements each, side
        // by side or as far apart as there are lanes, and an element of A.
        let (width, apart) = if ALIGNED { (4, BN) } else { (1, Self::LANES) };
        let (row_a, col_a) = (tid / Self::BK, tid % Self::BK);
        let mut from_a =
            a.wrapping_add((block_row + row_a) as usize * lda as usize + (begin + col_a) as usize);
        let to_a = a_smem.add(tid);
        let has_row = block_row + row_a < m;
        let mut from_b = b.wrapping_add(
            (begin + group_k) as usize * ldb as usize + (block_col + lane * width) as usize,
        );
        let to_b = b_smem.add(lane * width);
        let cols = n.saturating_sub(block_col + lane * width);
        // Asks for the next step, where `left` of K is left; for nothing if none is.
        let mut copy = |left: u32, slot: u32| {
            if left > 0 {
                let to = to_b.add(slot * Self::STAGE_B);
                for row in 0..GROUP_K {
                    let from = from_b.wrapping_add(row as usize * ldb as usize);
                    for col in (0..BN).step_by(apart as usize) {
                        let inside = group_k + row < left && col < cols;
                        let (to, from) = (to.add(row * BN + col), from.wrapping_add(col as usize));
                        // SAFETY: this thread's own place in a slot that nobody uses before the
                        // copies are waited for; inside B where it is read, and there as far
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
                if tid < Self::STAGE_A {
                    let to = to_a.add(slot * Self::STAGE_A);
                    // SAFETY: as above, one element of A.
                    unsafe { cp_async::copy_or_zero(to, from_a, has_row && col_a < left) };
                }
                from_a = from_a.wrapping_add(Self::BK as usize);
                from_b = from_b.wrapping_add(Self::BK as usize * ldb as usize);
            }
            cp_async::commit_group();
        };

        // The thread's four columns of each row.
        let mut sums: Quads = [[0.0; 4]; sum::MOST_QUADS];
        let mut left = end.saturating_sub(begin);
        for slot in 0..Self::STAGES - 1 {
            copy(left.saturating_sub(slot * Self::BK), slot);
        }
        let mut slot = 0;
        while left > 0 {
            // The next step has arrived, and nobody uses the slot before it any more.
            cp_async::wait_group::<PENDING>();
            thread::sync_threads();
            let free = if slot == 0 { Self::STAGES - 1 } else { slot - 1 };
            copy(left.saturating_sub((Self::STAGES - 1) * Self::BK), free);

            let a_tile = a_smem.add(slot * Self::STAGE_A);
            let b_tile = b_smem.add(slot * Self::STAGE_B);
            let mut fours_b = [[0.0f32; 4]; GROUP_K as usize];
            for row in 0..GROUP_K {
                // SAFETY: inside the slot, which was waited for before the barrier; a multiple
                // of four.
                fours_b[row as usize] = unsafe { b_tile.load4(row * BN + lane * 4) };
            }
            for i in 0..M {
                // SAFETY: as above.
                let four_a = unsafe { a_tile.load4(i as u32 * Self::BK + group_k) };
                for j in 0..4 {
                    let mut sum = four_a[0] * fours_b[0][j];
                    for e in 1..4 {
                        sum = fma(four_a[e], fours_b[e][j], sum);
                    }
                    sums[i][j] += sum;
                }
            }
            slot = if slot + 1 == Self::STAGES { 0 } else { slot + 1 };
            left = left.saturating_sub(Self::BK);
        }

        // From here on, `sums[i]` is the quad with the number `whose.quad(i)`: a row.
        let whose = sum::Whose { quads: Self::BM, threads: Self::LANES, in_group: lane, group };
        // SAFETY: shared memory has room for all sums, all copies were waited for, and every
        // thread of the block comes here.
        unsafe { sum::add_groups::<GROUPS>(whose, smem, &mut sums) };
        if thread::grid_dim_z() > 1 {
            // SAFETY: as the launch promises; every thread of the block comes here.
            let last = unsafe { sum::add_splits::<GROUPS>(whose, partials, counters, &mut sums) };
            if !last {
                return;
            }
        }
        // The launch only promises that B is aligned.
        let aligned = ALIGNED && c.is_aligned();
        for i in 0..Self::SHARE {
            if whose.has::<GROUPS>(i) {
                let (row, col) = (block_row + whose.quad::<GROUPS>(i), block_col + lane * 4);
                // SAFETY: each quad of the tile belongs to one thread.
                unsafe {
                    let old = c.old4(aligned, row, col);
                    c.store4_over(aligned, row, col, sums[i], old);
                }
            }
        }
    }
}
