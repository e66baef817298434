//! The kernel of all tiles.

use cuda_std::cp_async;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

use super::Call;
use super::copy::{CopyA, CopyB, row_a, swapped_a};
use super::sum::{self, Quads};
use crate::swizzle::swizzled_tile;

/// The geometry: the block's tile and its step along K, a warp's tile, outputs per thread, all
/// as in the ladder; the groups of warps that share out each step; how many tiles may still be
/// on their way when one computes; and the threads that follow from these.
pub struct Tiled<
    const BM: u32,
    const BN: u32,
    const BK: u32,
    const WM: u32,
    const WN: u32,
    const TM: usize,
    const TN: usize,
    const GROUPS: u32,
    const PENDING: u32,
    const THREADS: u32,
>;

impl<
    const BM: u32,
    const BN: u32,
    const BK: u32,
    const WM: u32,
    const WN: u32,
    const TM: usize,
    const TN: usize,
    const GROUPS: u32,
    const PENDING: u32,
    const THREADS: u32,
> Tiled<BM, BN, BK, WM, WN, TM, TN, GROUPS, PENDING, THREADS>
{
    /// Threads across a warp's tile, warps across the block's, and threads in a group.
    const LANES_N: u32 = WN / TN as u32;
    const WARPS_N: u32 = BN / WN;
    const GROUP: u32 = BM / WM * Self::WARPS_N * 32;
    /// Steps of a group in each step of the block.
    const GROUP_K: u32 = BK / GROUPS;

    /// Tiles in shared memory, and elements from one to the next.
    const STAGES: u32 = PENDING + 2;
    const STAGE_A: u32 = row_a(BM, BK);
    const STAGE_B: u32 = BK * BN;

    /// Outputs of a thread, in fours; fours in a row of them; how many are its own once the
    /// groups have added up; and how many of these it stores at a time.
    const QUADS: usize = TM * TN / 4;
    const ROW: usize = TN / 4;
    const SHARE: usize = Self::QUADS.div_ceil(GROUPS as usize);
    const PART: usize = if Self::SHARE < 4 { Self::SHARE } else { 4 };

    const CONSISTENT: () = {
        assert!(WM / TM as u32 * Self::LANES_N == 32, "the lanes of a warp fill its tile");
        assert!(Self::GROUP * GROUPS == THREADS, "groups of threads make the block");
        assert!(TM.is_multiple_of(4) && TN.is_multiple_of(4), "fragments are loaded in fours");
        assert!(Self::QUADS <= sum::MOST_QUADS, "a thread's outputs fit its registers");
        assert!(Self::SHARE.is_multiple_of(Self::PART), "all outputs are stored");
        assert!(BK.is_multiple_of(GROUPS), "every group has the same share of a step");
        assert!(Self::GROUP_K.is_multiple_of(2), "each step begins with the same fragments");
    };

    /// Shared memory per block: the slots, or what the groups leave there in the end.
    pub const SHARED_BYTES: u64 = {
        let slots = (Self::STAGES * (Self::STAGE_A + Self::STAGE_B)) as u64 * 4;
        let sums = (GROUPS * BM * BN) as u64 * 4;
        if slots > sums { slots } else { sums }
    };

    /// # Safety
    /// As for the entry points.
    #[inline(always)]
    pub unsafe fn gemm<const ALIGNED: bool>(call: Call) {
        const { Self::CONSISTENT };
        let Call { m, n, a, lda, b, ldb, partials, counters, .. } = call;
        let tid = thread::thread_idx_x();
        let (block_y, block_x) = swizzled_tile();
        let (block_row, block_col) = (block_y * BM, block_x * BN);
        // SAFETY: as the launch promises.
        let c = unsafe { call.output() };

        // What this thread computes: its group's share of every step.
        let (group, in_group) = (tid / Self::GROUP, tid % Self::GROUP);
        let (warp, lane) = (in_group / 32, in_group % 32);
        let (warp_row, warp_col) = (warp / Self::WARPS_N * WM, warp % Self::WARPS_N * WN);
        let (lane_row, lane_col) = (lane / Self::LANES_N * 4, lane % Self::LANES_N * 4);
        let group_k = group * Self::GROUP_K;

        let (begin, end) = call.split();

        let smem = shared::dynamic_shared_mem::<f32>();
        let a_smem = smem; // (STAGES, BK, BM), padded
        let b_smem = smem.add(Self::STAGES * Self::STAGE_A); // (STAGES, BK, BN)
        let a_frag = a_smem.add(row_a(BM, group_k) + warp_row);
        let b_frag = b_smem.add(group_k * BN + warp_col);

        let mut copy_a = CopyA::<BM, BK, THREADS>::new(a, lda, m, block_row, begin, a_smem);
        let mut copy_b =
            CopyB::<BN, BK, THREADS, ALIGNED>::new(b, ldb, n, begin, block_col, b_smem);
        // Whether every tile of this block lies inside, but for the last step along K.
        let interior = block_row + BM <= m && block_col + BN <= n;
        // Asks for the next tile, where `left` of K is left; if none is, for zeros or nothing.
        let mut copy_tile = |left: u32, slot: u32, zeros: bool| {
            let (slot_a, slot_b) = (slot * Self::STAGE_A, slot * Self::STAGE_B);
            // SAFETY: the matrices are as the launch promises, and nobody uses the slot before
            // the copies are waited for.
            unsafe {
                if interior && left >= BK {
                    copy_a.copy::<true>(slot_a, left);
                    copy_b.copy::<true>(slot_b, left);
                } else if left > 0 || zeros {
                    copy_a.copy::<false>(slot_a, left);
                    copy_b.copy::<false>(slot_b, left);
                }
            }
            cp_async::commit_group();
        };

        let mut acc = [[0.0f32; TN]; TM];

        let mut left = end.saturating_sub(begin);
        for slot in 0..Self::STAGES - 1 {
            // An empty sum is a step of zeros: a way around the loop would make it slower.
            copy_tile(left.saturating_sub(slot * BK), slot, slot == 0);
        }

        let tile = |slot: u32| (a_frag.add(slot * Self::STAGE_A), b_frag.add(slot * Self::STAGE_B));
        let mut frag_a = [[0.0f32; TM]; 2];
        let mut frag_b = [[0.0f32; TN]; 2];
        let mut slot = 0;
        // The first tile has arrived.
        cp_async::wait_group::<PENDING>();
        // SAFETY: the loop is the same for all threads of the block.
        unsafe { thread::sync_threads_aligned() };
        let (mut a_tile, mut b_tile) = tile(slot);
        // SAFETY: inside the tiles, which were waited for before the barrier.
        unsafe {
            frag_a[0] = fragment::<WM, TM>(a_tile, lane_row);
            frag_b[0] = fragment::<WN, TN>(b_tile, lane_col);
        }
        loop {
            // All have read what was in the slot before this one.
            let free = if slot == 0 { Self::STAGES - 1 } else { slot - 1 };
            copy_tile(left.saturating_sub((Self::STAGES - 1) * BK), free, false);
            for kk in 0..Self::GROUP_K - 1 {
                let (this, next) = (kk as usize % 2, (kk as usize + 1) % 2);
                // SAFETY: as above.
                unsafe {
                    let (a_row, b_row) = (a_tile.add(row_a(BM, kk + 1)), b_tile.add((kk + 1) * BN));
                    let stored = fragment::<WM, TM>(a_row, lane_row);
                    frag_a[next] =
                        core::array::from_fn(|i| stored[swapped_a(i as u32, kk + 1) as usize]);
                    frag_b[next] = fragment::<WN, TN>(b_row, lane_col);
                }
                multiply_add(&frag_a[this], &frag_b[this], &mut acc);
            }
            left = left.saturating_sub(BK);
            if left == 0 {
                break;
            }
            // The next tile has arrived. Its first fragments are on their way during the
            // last products of this one, and its barrier is behind it.
            slot = if slot + 1 == Self::STAGES { 0 } else { slot + 1 };
            cp_async::wait_group::<PENDING>();
            // SAFETY: as above.
            unsafe { thread::sync_threads_aligned() };
            (a_tile, b_tile) = tile(slot);
            // SAFETY: as above.
            unsafe {
                frag_a[0] = fragment::<WM, TM>(a_tile, lane_row);
                frag_b[0] = fragment::<WN, TN>(b_tile, lane_col);
            }
            multiply_add(&frag_a[1], &frag_b[1], &mut acc);
        }
        multiply_add(&frag_a[1], &frag_b[1], &mut acc);

        let mut sums: Quads = [[0.0; 4]; sum::MOST_QUADS];
        for quad in 0..Self::QUADS {
            for j in 0..4 {
                sums[quad][j] = acc[quad / Self::ROW][quad % Self::ROW * 4 + j];
            }
        }
        // From here on, `sums[i]` is the quad with the number `whose.quad(i)`.
        let whose = sum::Whose { quads: Self::QUADS as u32, threads: Self::GROUP, in_group, group };
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

        let place = |i: usize| {
            let quad = whose.quad::<GROUPS>(i);
            let (i_row, i_col) = (quad / Self::ROW as u32, quad % Self::ROW as u32);
            let row = i_row / 4 * (WM / (TM as u32 / 4)) + i_row % 4;
            let col = i_col * (WN / Self::ROW as u32);
            (block_row + warp_row + lane_row + row, block_col + warp_col + lane_col + col)
        };
        // The launch only promises that B is aligned.
        let aligned = ALIGNED && c.is_aligned();
        // A part of the old C is asked for before the first of it is overwritten.
        for first in (0..Self::SHARE).step_by(Self::PART) {
            let mut old = [[0.0; 4]; 4];
            for i in 0..Self::PART {
                let (row, col) = place(first + i);
                if whose.has::<GROUPS>(first + i) {
                    // SAFETY: each quad of the tile belongs to one thread.
                    old[i] = unsafe { c.old4(aligned, row, col) };
                }
            }
            for i in 0..Self::PART {
                let (row, col) = place(first + i);
                if whose.has::<GROUPS>(first + i) {
                    // SAFETY: as above.
                    unsafe { c.store4_over(aligned, row, col, sums[first + i], old[i]) };
                }
            }
        }
    }
}

/// `acc += a * b`, an outer product. Down a column and up the next, as in [`persistent`](crate::persistent).
#[inline(always)]
fn multiply_add<const TM: usize, const TN: usize>(
    a: &[f32; TM],
    b: &[f32; TN],
    acc: &mut [[f32; TN]; TM],
) {
    for j in 0..TN {
        for step in 0..TM {
            let i = if j % 2 == 0 { step } else { TM - 1 - step };
            acc[i][j] = fma(a[i], b[j], acc[i][j]);
        }
    }
}

/// The values of one row of a tile that a thread uses: groups of four, evenly spaced. The
/// threads of a warp read neighbouring groups.
///
/// # Safety
/// `row` points to a row of `LEN` elements in shared memory, stored before the last barrier;
/// `first` is a multiple of four below `LEN * 4 / COUNT`.
#[inline(always)]
unsafe fn fragment<const LEN: u32, const COUNT: usize>(
    row: SharedPtr<f32>,
    first: u32,
) -> [f32; COUNT] {
    let mut values = [0.0; COUNT];
    let groups = COUNT / 4;
    for group in 0..groups {
        // SAFETY: inside the row; `first` and the spacing are multiples of four.
        let four = unsafe { row.load4(first + group as u32 * (LEN / groups as u32)) };
        for j in 0..4 {
            values[group * 4 + j] = four[j];
        }
    }
    values
}
