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
//! A thread adds up four products, and then adds these sums, as in [`dots`].

use cuda_std::cp_async;
use cuda_std::prelude::*;

use super::sum::{self, Quads};
use super::*;

macro_rules! sweep {
    (
        $(#[$doc:meta])*
        $name:ident, $unaligned:ident, $summary:literal, rows $m:literal, pending $pending:literal
    ) => {
        kernel_module! {
            $(#[$doc])*
            $name, $unaligned, $summary, Sweep<$m, $pending>,
            Tile { bm: $m, bn: BN, bk: BK, tm: $m, tn: 4 },
            // A is small, and moved one by one; C is looked at by the kernel.
            wide [false, true, false],
            threads super::THREADS, min_blocks 2, "sweep.rs"
        }
    };
}

sweep! {
    /// M up to 8.
    sweep_8x128, sweep_8x128_unaligned, "8x128 outputs, 4 columns per lane, warps along K",
    rows 8, pending 4
}

sweep! {
    /// M up to 4, vector times matrix among them.
    sweep_4x128, sweep_4x128_unaligned, "4x128 outputs, 4 columns per lane, warps along K",
    rows 4, pending 4
}

/// Threads per block, and warps.
const THREADS: u32 = 256;
const WARPS: u32 = THREADS / 32;
/// Columns of a block: four for each lane.
const BN: u32 = 4 * 32;
/// Rows of B that a warp takes in each step, and the step along K.
const WARP_K: u32 = 4;
const BK: u32 = WARP_K * WARPS;

/// The geometry: rows of C per block, and how many steps may still be on their way when one
/// computes.
struct Sweep<const M: usize, const PENDING: u32>;

impl<const M: usize, const PENDING: u32> Sweep<M, PENDING> {
    const BM: u32 = M as u32;
    /// Steps in shared memory, and elements from one to the next.
    const SLOTS: u32 = PENDING + 2;
    const SLOT_A: u32 = Self::BM * BK;
    const SLOT_B: u32 = BK * BN;
    /// Fours of outputs that a thread stores once the warps have added up.
    const SHARE: usize = M.div_ceil(WARPS as usize);

    /// The slots, in which the sums of all warps have room in the end.
    const SHARED_BYTES: u64 = (Self::SLOTS * (Self::SLOT_A + Self::SLOT_B)) as u64 * 4;

    const CONSISTENT: () = {
        assert!(Self::SLOT_A <= THREADS, "a thread copies one element of A, or none");
        assert!((WARPS * Self::BM * BN) as u64 * 4 <= Self::SHARED_BYTES, "sums have room");
        assert!(M <= sum::MOST_QUADS, "a thread's outputs fit its registers");
    };

    /// # Safety
    /// As for the entry points.
    #[inline(always)]
    unsafe fn gemm<const ALIGNED: bool>(call: Call) {
        const { Self::CONSISTENT };
        let Call { m, n, a, lda, b, ldb, partials, counters, .. } = call;
        let tid = thread::thread_idx_x();
        let (warp, lane) = (tid / 32, tid % 32);
        let (block_row, block_col) = (thread::block_idx_y() * Self::BM, thread::block_idx_x() * BN);
        // SAFETY: as the launch promises.
        let c = unsafe { call.output() };

        let (begin, end) = call.split();

        let smem = shared::dynamic_shared_mem::<f32>();
        let warp_k = warp * WARP_K;
        let b_smem = smem.add(warp_k * BN); // (SLOTS, BK, BN)
        let a_smem = smem.add(Self::SLOTS * Self::SLOT_B); // (SLOTS, BM, BK)

        // What this thread copies in each step: of its warp's rows of B four elements each, side
        // by side or 32 apart, and an element of A.
        let (width, apart) = if ALIGNED { (4, BN) } else { (1, 32) };
        let (row_a, col_a) = (tid / BK, tid % BK);
        let mut from_a =
            a.wrapping_add((block_row + row_a) as usize * lda as usize + (begin + col_a) as usize);
        let to_a = a_smem.add(tid);
        let has_row = block_row + row_a < m;
        let mut from_b = b.wrapping_add(
            (begin + warp_k) as usize * ldb as usize + (block_col + lane * width) as usize,
        );
        let to_b = b_smem.add(lane * width);
        let cols = n.saturating_sub(block_col + lane * width);
        // Asks for the next step, where `left` of K is left; for nothing if none is.
        let mut copy = |left: u32, slot: u32| {
            if left > 0 {
                let to = to_b.add(slot * Self::SLOT_B);
                for row in 0..WARP_K {
                    let from = from_b.wrapping_add(row as usize * ldb as usize);
                    for col in (0..BN).step_by(apart as usize) {
                        let inside = warp_k + row < left && col < cols;
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
                if tid < Self::SLOT_A {
                    let to = to_a.add(slot * Self::SLOT_A);
                    // SAFETY: as above, one element of A.
                    unsafe { cp_async::copy_or_zero(to, from_a, has_row && col_a < left) };
                }
                from_a = from_a.wrapping_add(BK as usize);
                from_b = from_b.wrapping_add(BK as usize * ldb as usize);
            }
            cp_async::commit_group();
        };

        // The thread's four columns of each row.
        let mut sums: Quads = [[0.0; 4]; sum::MOST_QUADS];
        let mut left = end.saturating_sub(begin);
        for slot in 0..Self::SLOTS - 1 {
            copy(left.saturating_sub(slot * BK), slot);
        }
        let mut slot = 0;
        while left > 0 {
            // The next step has arrived, and nobody uses the slot before it any more.
            cp_async::wait_group::<PENDING>();
            thread::sync_threads();
            let free = if slot == 0 { Self::SLOTS - 1 } else { slot - 1 };
            copy(left.saturating_sub((Self::SLOTS - 1) * BK), free);

            let a_tile = a_smem.add(slot * Self::SLOT_A);
            let b_tile = b_smem.add(slot * Self::SLOT_B);
            let mut fours_b = [[0.0f32; 4]; WARP_K as usize];
            for row in 0..WARP_K {
                // SAFETY: inside the slot, which was waited for before the barrier; a multiple
                // of four.
                fours_b[row as usize] = unsafe { b_tile.load4(row * BN + lane * 4) };
            }
            for i in 0..M {
                // SAFETY: as above.
                let four_a = unsafe { a_tile.load4(i as u32 * BK + warp_k) };
                for j in 0..4 {
                    let mut sum = four_a[0] * fours_b[0][j];
                    for e in 1..4 {
                        sum = fma(four_a[e], fours_b[e][j], sum);
                    }
                    sums[i][j] += sum;
                }
            }
            slot = if slot + 1 == Self::SLOTS { 0 } else { slot + 1 };
            left = left.saturating_sub(BK);
        }

        // From here on, `sums[i]` is the quad with the number `whose.quad(i)`: a row.
        let whose = sum::Whose { quads: Self::BM, threads: 32, in_group: lane, group: warp };
        // SAFETY: shared memory has room for all sums, all copies were waited for, and every
        // thread of the block comes here.
        unsafe { sum::add_groups::<WARPS>(whose, smem, &mut sums) };
        if thread::grid_dim_z() > 1 {
            // SAFETY: as the launch promises; every thread of the block comes here.
            let last = unsafe { sum::add_splits::<WARPS>(whose, partials, counters, &mut sums) };
            if !last {
                return;
            }
        }
        // The launch only promises that B is aligned.
        let aligned = ALIGNED && c.is_aligned();
        for i in 0..Self::SHARE {
            if whose.has::<WARPS>(i) {
                let (row, col) = (block_row + whose.quad::<WARPS>(i), block_col + lane * 4);
                // SAFETY: each quad of the tile belongs to one thread.
                unsafe {
                    let old = c.old4(aligned, row, col);
                    c.put4_over(aligned, row, col, sums[i], old);
                }
            }
        }
    }
}
