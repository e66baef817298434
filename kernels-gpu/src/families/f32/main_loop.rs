//! The loop along K of [`tiled`](super::tiled).
//!
//! # Copies that are spread over a step
//!
//! All warps of a block ask for their copies right behind a barrier, and loads of fragments wait in
//! the same queue. A warp's copy of single elements occupies a multiprocessor for 3.9 cycles. So
//! the copies of a plain A and a transposed B delay the loads for a third of a step of
//! `tile_64x128`. Spreading the copies of B over the step avoids this, and makes such a product 6 %
//! faster. But it cuts the step up for the assembler, which costs other products up to 10 %. So
//! there are two loops (`NOTES.md`, "Cost of copies along K").

use core::marker::PhantomData;

use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

use super::accumulator::{Accumulator, CompensatedSum};
use super::copy::{Copies, padded_row, row_b, swapped};
use crate::device::geometry::Geometry;

/// A thread's part in the loop.
#[derive(Clone, Copy)]
pub struct MainLoop<G, const ALIGNED: bool, const TM: usize, const TN: usize> {
    /// The first elements of A and B in the first stage that this thread's warp multiplies.
    pub a_frag: SharedPtr<f32>,
    pub b_frag: SharedPtr<f32>,
    /// Offsets from there to the first elements that the thread multiplies.
    pub lane_row: u32,
    pub lane_col: u32,
    pub geometry: PhantomData<G>,
}

impl<G: Geometry, const ALIGNED: bool, const TM: usize, const TN: usize>
    MainLoop<G, ALIGNED, TM, TN>
{
    /// Whether copies of a transposed B are spread over a step.
    ///
    /// They are if the step is long, B is the larger operand, and there are slices. Then blocks are
    /// so few that no other has work meanwhile.
    pub const SPREADS: bool = !ALIGNED && G::SLICES > 1 && G::SLICE_K >= 16 && G::BN > G::BM;
    /// The parts of these copies, and the steps of a slice between them.
    const PARTS: u32 = 4;
    const APART: u32 = G::SLICE_K / Self::PARTS;

    /// Adds the products of the remaining `left` of K to `acc`.
    ///
    /// With `SPREAD`, B lies transposed, and its copies are spread over a step.
    ///
    /// # Safety
    /// - The fields are as they say.
    /// - `copies` has asked for all stages except one.
    /// - Every thread of the block comes here.
    #[inline(always)]
    pub unsafe fn run<const SPREAD: bool>(
        self,
        copies: &mut Copies<G, ALIGNED>,
        mut left: u32,
        acc: &mut [[f32; TN]; TM],
    ) {
        const {
            assert!(G::SLICE_K.is_multiple_of(2), "each step begins with the same fragments");
        }
        let tile = |stage: u32| {
            let stage_b = stage * Copies::<G, ALIGNED>::STAGE_B;
            (self.a_frag.add(stage * Copies::<G, ALIGNED>::STAGE_A), self.b_frag.add(stage_b))
        };
        let mut frag_a = [[0.0f32; TM]; 2];
        let mut frag_b = [[0.0f32; TN]; 2];
        let mut stage = 0;
        // The first tile has arrived.
        G::wait_for_oldest();
        // SAFETY: the loop is the same for all threads of the block.
        unsafe { thread::sync_threads_aligned() };
        let (mut a_tile, mut b_tile) = tile(stage);
        // SAFETY: inside the tiles, which were waited for before the barrier.
        unsafe {
            frag_a[0] = fragment(a_tile, self.lane_row, G::WM);
            frag_b[0] = fragment(b_tile, self.lane_col, G::WN);
        }
        loop {
            // All have read what was in the stage before this one.
            let free = if stage == 0 { G::STAGES - 1 } else { stage - 1 };
            let ahead = left.saturating_sub((G::STAGES - 1) * G::BK);
            if !SPREAD {
                // SAFETY: as above.
                unsafe { copies.copy_tile(ahead, free, false) };
            }
            for kk in 0..G::SLICE_K - 1 {
                if SPREAD && kk % Self::APART == 0 {
                    let part = [kk / Self::APART, Self::PARTS];
                    // SAFETY: as above.
                    unsafe { copies.copy_part(part, ahead, free) };
                }
                let (this, next) = (kk as usize % 2, (kk as usize + 1) % 2);
                // SAFETY: as above.
                unsafe {
                    let (a_row, b_row) = (
                        a_tile.add(padded_row(G::BM, kk + 1)),
                        b_tile.add(row_b(G::BN, ALIGNED, kk + 1)),
                    );
                    let stored = fragment::<TM>(a_row, self.lane_row, G::WM);
                    frag_a[next] =
                        core::array::from_fn(|i| stored[swapped(i as u32, kk + 1) as usize]);
                    let stored = fragment::<TN>(b_row, self.lane_col, G::WN);
                    frag_b[next] = core::array::from_fn(|j| match ALIGNED {
                        true => stored[j],
                        false => stored[swapped(j as u32, kk + 1) as usize],
                    });
                }
                outer_product(&frag_a[this], &frag_b[this], acc);
            }
            left = left.saturating_sub(G::BK);
            if left == 0 {
                break;
            }
            // The next tile has arrived. Its first fragments load, behind its barrier, during the
            // last products of this tile.
            stage = if stage + 1 == G::STAGES { 0 } else { stage + 1 };
            G::wait_for_oldest();
            // SAFETY: as above.
            unsafe { thread::sync_threads_aligned() };
            (a_tile, b_tile) = tile(stage);
            // SAFETY: as above.
            unsafe {
                frag_a[0] = fragment(a_tile, self.lane_row, G::WM);
                frag_b[0] = fragment(b_tile, self.lane_col, G::WN);
            }
            outer_product(&frag_a[1], &frag_b[1], acc);
        }
        outer_product(&frag_a[1], &frag_b[1], acc);
    }

    /// Sets `acc` to compensated sums, for a K of one step; this replaces [`run`](Self::run).
    ///
    /// `k_of_slice` is how much of K is in this thread's slice.
    ///
    /// # Safety
    /// - As for `run`.
    /// - No slice has more than its part of a step, which is even.
    /// - Copies of all stages except the first are of nothing.
    #[inline(always)]
    pub unsafe fn run_compensated(self, k_of_slice: u32, acc: &mut [[f32; TN]; TM]) {
        let mut sums = [[CompensatedSum::of(0.0); TN]; TM];
        G::wait_for_oldest();
        // SAFETY: every thread of the block comes here.
        unsafe { thread::sync_threads_aligned() };
        // Two rows at a time, since elements of odd rows are swapped.
        let rows = |first: u32, kk: u32| {
            // SAFETY: inside the tiles, since steps of a slice are even, and waited for before the
            // barrier. Past the end of K there are zeros.
            let (a, b) = unsafe {
                let a_row = self.a_frag.add(padded_row(G::BM, first) + padded_row(G::BM, kk));
                let b_row =
                    self.b_frag.add(row_b(G::BN, ALIGNED, first) + row_b(G::BN, ALIGNED, kk));
                (
                    fragment::<TM>(a_row, self.lane_row, G::WM),
                    fragment::<TN>(b_row, self.lane_col, G::WN),
                )
            };
            let a: [f32; TM] = core::array::from_fn(|i| a[swapped(i as u32, kk) as usize]);
            let b: [f32; TN] = core::array::from_fn(|j| match ALIGNED {
                true => b[j],
                false => b[swapped(j as u32, kk) as usize],
            });
            (a, b)
        };
        let mut first = 0;
        while first < k_of_slice {
            for kk in 0..2 {
                let (a, b) = rows(first, kk);
                for i in 0..TM {
                    for j in 0..TN {
                        sums[i][j] = sums[i][j].plus_product(a[i], b[j]);
                    }
                }
            }
            first += 2;
        }
        *acc = sums.map(|row| row.map(CompensatedSum::value));
        if acc.iter().flatten().all(|sum| sum.is_finite()) {
            return;
        }
        // A product may overflow by itself where an FMA does not. So these sums are plain.
        *acc = [[0.0; TN]; TM];
        let mut first = 0;
        while first < k_of_slice {
            for kk in 0..2 {
                let (a, b) = rows(first, kk);
                outer_product(&a, &b, acc);
            }
            first += 2;
        }
    }
}

/// This thread's values of one row of a warp's tile, which is `width` elements wide.
///
/// They are evenly spaced quads. The threads of a warp read neighbouring quads.
///
/// # Safety
/// - `row` points to that row in shared memory, stored before the last barrier.
/// - `first` is a multiple of four below the distance from quad to quad.
#[inline(always)]
unsafe fn fragment<const T: usize>(row: SharedPtr<f32>, first: u32, width: u32) -> [f32; T] {
    let mut values = [0.0; T];
    let quads = T / 4;
    for quad in 0..quads {
        // SAFETY: inside the row; `first` and the distance are multiples of four.
        let four = unsafe { row.load4(first + quad as u32 * (width / quads as u32)) };
        for j in 0..4 {
            values[quad * 4 + j] = four[j];
        }
    }
    values
}

/// `acc += a * b`, an outer product, down a column and up the next.
///
/// This is the order of [`persistent`](crate::ladder::f32::sm_90a::persistent).
#[inline(always)]
fn outer_product<const TM: usize, const TN: usize>(
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
