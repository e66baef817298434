//! The copies of A.

use core::marker::PhantomData;

use cuda_std::cp_async;
use cuda_std::hint::black_box;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

use super::{copiers, min, padded_row, swapped};
use crate::device::geometry::Geometry;

/// A thread's share of a block's tiles of A, BM x BK, which go to shared memory transposed.
///
/// If A lies transposed and is `ALIGNED`, two elements are copied at a time: swapping leaves each
/// pair whole.
pub struct CopyA<G, const ALIGNED: bool> {
    /// The first element of the share in the next tile.
    from: *const f32,
    lda: u32,
    /// The place of that element in the first stage.
    to: SharedPtr<f32>,
    /// Rows from the tile's first to the edge of A.
    rows: u32,
    /// Whether A lies as its transpose.
    transposed: bool,
    geometry: PhantomData<G>,
}

impl<G: Geometry, const ALIGNED: bool> CopyA<G, ALIGNED> {
    const COPIERS: u32 = copiers(G::THREADS);

    /// Rows and columns that the block copies in one go. Two rows of sixteen per warp were fastest.
    /// A tile of few rows needs more columns.
    const ROWS: u32 = min(Self::COPIERS / 16, G::BM);
    const COLS: u32 = Self::COPIERS / Self::ROWS;

    /// Counterparts for a transposed A. Its neighbours are rows of A, and a thread copies `WIDTH`
    /// of them at once.
    const WIDTH: u32 = if ALIGNED { 2 } else { 1 };
    const ROWS_T: u32 = min(G::BM, 32 * Self::WIDTH);
    const COLS_T: u32 = Self::COPIERS * Self::WIDTH / Self::ROWS_T;

    const EVEN: () = assert!(
        G::BM.is_multiple_of(Self::ROWS)
            && Self::ROWS.is_multiple_of(4)
            && G::BK.is_multiple_of(Self::COLS)
            && Self::COLS.is_multiple_of(2)
            && G::BM.is_multiple_of(Self::ROWS_T)
            && Self::ROWS_T.is_multiple_of(4)
            && (G::BK.is_multiple_of(Self::COLS_T) || Self::COLS_T > G::BK)
            && Self::COLS_T.is_multiple_of(2),
        "every thread that copies has the same share of A"
    );

    /// For the tiles that begin at `row` of A, which has `m` rows, and go on from column `k0`.
    #[inline(always)]
    pub fn new(
        a: *const f32,
        lda: u32,
        transposed: bool,
        m: u32,
        row: u32,
        k0: u32,
        smem: SharedPtr<f32>,
    ) -> Self {
        const { Self::EVEN };
        let [tid_row, col] = Self::place(thread::thread_idx_x(), transposed);
        let (rows, k) = (m.saturating_sub(row), (k0 + col) as usize);
        let row = (row + tid_row) as usize;
        let first = if transposed { k * lda as usize + row } else { row * lda as usize + k };
        CopyA {
            from: a.wrapping_add(first),
            lda,
            to: smem.add(padded_row(G::BM, col) + swapped(tid_row, col)),
            rows,
            transposed,
            geometry: PhantomData,
        }
    }

    /// The row and the column of a tile where a thread's share begins.
    #[inline(always)]
    fn place(tid: u32, transposed: bool) -> [u32; 2] {
        let lanes_t = Self::ROWS_T / Self::WIDTH;
        if transposed {
            [tid % lanes_t * Self::WIDTH, tid / lanes_t]
        } else {
            [tid / Self::COLS, tid % Self::COLS]
        }
    }

    /// Asks for the share in the next tile.
    ///
    /// It goes to the stage at `offset` elements from the first. `k_left` columns of A are left.
    /// With `WHOLE`, the tile is in bounds.
    ///
    /// # Safety
    /// `new` and the parameters tell the truth about A, and nothing uses the stage.
    #[inline(always)]
    pub unsafe fn copy<const WHOLE: bool>(&mut self, offset: u32, k_left: u32) {
        let (to, mut from) = (self.to.add(offset), self.from);
        // Recomputed in each step, so that it takes no registers in between.
        let tid = black_box(thread::thread_idx_x());
        if Self::COPIERS < G::THREADS && tid >= Self::COPIERS {
            return;
        }
        let [tid_row, tid_col] = Self::place(tid, self.transposed);
        let (rows, cols) = (self.rows.saturating_sub(tid_row), k_left.saturating_sub(tid_col));
        if self.transposed {
            let lda = black_box(self.lda) as usize;
            if Self::COLS_T <= G::BK || tid_col < G::BK {
                for col in (0..G::BK).step_by(Self::COLS_T as usize) {
                    for row in (0..G::BM).step_by(Self::ROWS_T as usize) {
                        let to = to.add(padded_row(G::BM, col) + row);
                        let from = from.wrapping_add(row as usize);
                        let inside = WHOLE || row < rows && col < cols;
                        // SAFETY: as below; if two are copied together, both are in bounds or
                        // neither.
                        unsafe { Self::copy_transposed::<WHOLE>(to, from, inside) };
                    }
                    from = from.wrapping_add(Self::COLS_T as usize * lda);
                }
            }
            self.from = self.from.wrapping_add(G::BK as usize * lda);
            return;
        }
        for row in (0..G::BM).step_by(Self::ROWS as usize) {
            for col in (0..G::BK).step_by(Self::COLS as usize) {
                let (to, from) =
                    (to.add(padded_row(G::BM, col) + row), from.wrapping_add(col as usize));
                // SAFETY: this thread's own word of the stage, and inside A if it is read.
                unsafe {
                    if WHOLE {
                        cp_async::copy(to, from);
                    } else {
                        cp_async::copy_zfill(to, from, row < rows && col < cols);
                    }
                }
            }
            from = from.wrapping_add(Self::ROWS as usize * self.lda as usize);
        }
        self.from = self.from.wrapping_add(G::BK as usize);
    }

    /// # Safety
    /// As for [`copy`](Self::copy); zeros if not `inside`.
    #[inline(always)]
    unsafe fn copy_transposed<const WHOLE: bool>(
        to: SharedPtr<f32>,
        from: *const f32,
        inside: bool,
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            match (ALIGNED, WHOLE) {
                (true, true) => cp_async::copy2(to, from),
                (true, false) => cp_async::copy2_zfill(to, from, inside),
                (false, true) => cp_async::copy(to, from),
                (false, false) => cp_async::copy_zfill(to, from, inside),
            }
        }
    }
}
