//! The copies of a block's tiles to shared memory.

use cuda_std::cp_async;
use cuda_std::hint::black_box;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

use super::{Block, CHUNK, Geometry};

impl<
    const WARPS_M: u32,
    const WARPS_N: u32,
    const MT: usize,
    const NT: usize,
    const SUMS: usize,
    const BK: u32,
    const PENDING: u32,
    const SPLIT: bool,
> Geometry<WARPS_M, WARPS_N, MT, NT, SUMS, BK, PENDING, SPLIT>
{
    /// Asks for this thread's share of the tiles that begin at `k`.
    ///
    /// Elements out of bounds become zeros. Tiles past the end are not copied.
    ///
    /// # Safety
    /// The matrices are as the launch promises, and nobody uses the stage.
    #[inline(always)]
    pub(super) unsafe fn copy<const ALIGNED: bool>(block: Block, k: u32, to: SharedPtr<f32>) {
        let width = if ALIGNED { CHUNK } else { 1 };
        let tid = thread::thread_idx_x();
        // Sums and fragments leave no registers for addresses, so each step recomputes them.
        let (tid, k) = (black_box(tid), black_box(k));
        let first = tid * width;
        let (rows_a, rows_b) = (Self::THREADS * width / BK, Self::THREADS * width / Self::BN);
        let (row_a, col_a) = (first / BK, first % BK);
        let (row_b, col_b) = (first / Self::BN, first % Self::BN);
        let (to_a, to_b) = (to, to.add(Self::STAGE_A));
        let Block { a, b, end, .. } = block;
        let (row, col) = (black_box(block.row), black_box(block.col));
        // SAFETY: this thread's own elements of the stage. Only elements in bounds are read; if
        // `ALIGNED`, all four of a vector are in bounds or none.
        unsafe {
            if block.is_interior && k + BK <= end {
                let mut from = a.address(row + row_a, k + col_a);
                for i in (0..Self::BM).step_by(rows_a as usize) {
                    let to = to_a.add(Self::at_a(i + row_a, col_a));
                    if ALIGNED {
                        cp_async::copy4(to, from)
                    } else {
                        cp_async::copy(to, from)
                    }
                    from = from.wrapping_add(a.step(rows_a));
                }
                let mut from = b.address(k + row_b, col + col_b);
                for i in (0..BK).step_by(rows_b as usize) {
                    let to = to_b.add(Self::at_b(i + row_b, col_b));
                    if ALIGNED {
                        cp_async::copy4(to, from)
                    } else {
                        cp_async::copy(to, from)
                    }
                    from = from.wrapping_add(b.step(rows_b));
                }
                return;
            }
            if k >= end {
                return;
            }
            let copy = |to: SharedPtr<f32>, (from, is_inside): (*const f32, bool)| {
                if ALIGNED {
                    cp_async::copy4_zfill(to, from, is_inside);
                } else {
                    cp_async::copy_zfill(to, from, is_inside);
                }
            };
            // Behind `black_box`, so that these loops are not unrolled.
            let mut at = black_box(row_a);
            while at < Self::BM {
                copy(to_a.add(Self::at_a(at, col_a)), a.address_if_inside(row + at, k + col_a));
                at = black_box(at + rows_a);
            }
            at = black_box(row_b);
            while at < BK {
                copy(to_b.add(Self::at_b(at, col_b)), b.address_if_inside(k + at, col + col_b));
                at = black_box(at + rows_b);
            }
        }
    }
}
