//! The copies of a block's tiles to shared memory.
//!
//! A thread has one address per matrix, and steps from there: everything else about a copy is
//! a constant, or was worked out before the loop. Past an edge a copy stores zeros and reads
//! nothing, so that its address need not lie in the matrix.

use core::marker::PhantomData;

use cuda_std::cp_async;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

use super::geometry::Geometry;

/// Where row `k` of a transposed tile of A begins. Two rows lie side by side, and each pair is
/// padded. In odd rows the pairs of elements in each four are swapped: so the sixteen columns and
/// two rows of A that a warp copies at a time go to 32 banks.
pub const fn row_a(bm: u32, k: u32) -> u32 {
    k / 2 * (2 * bm + 4) + k % 2 * bm
}

/// Where element `m` of a row lies in it.
pub const fn swapped_a(m: u32, k: u32) -> u32 {
    m ^ (k % 2 * 2)
}

const fn min(x: u32, y: u32) -> u32 {
    if x < y { x } else { y }
}

/// A thread's share of a block's tiles of A, BM x BK, which go to shared memory transposed.
pub struct CopyA<G> {
    /// The first element of the share in the next tile.
    from: *const f32,
    lda: u32,
    /// The place of that element in the first stage.
    to: SharedPtr<f32>,
    /// Its column in the tile.
    col: u32,
    /// Rows from there to the edge of A.
    rows: u32,
    geometry: PhantomData<G>,
}

impl<G: Geometry> CopyA<G> {
    /// Rows and columns that the block copies in one go. Two rows of sixteen per warp were the
    /// fastest; a tile of few rows needs more columns.
    const ROWS: u32 = min(G::THREADS / 16, G::BM);
    const COLS: u32 = G::THREADS / Self::ROWS;

    const EVEN: () = assert!(
        G::BM.is_multiple_of(Self::ROWS)
            && Self::ROWS.is_multiple_of(4)
            && G::BK.is_multiple_of(Self::COLS)
            && Self::COLS.is_multiple_of(2),
        "every thread copies the same share of A"
    );

    /// For the tiles that begin at `row` of A, `m` rows in all, and go on from column `k0`.
    #[inline(always)]
    pub fn new(a: *const f32, lda: u32, m: u32, row: u32, k0: u32, smem: SharedPtr<f32>) -> Self {
        const { Self::EVEN };
        let (tid_row, col) =
            (thread::thread_idx_x() / Self::COLS, thread::thread_idx_x() % Self::COLS);
        let first = (row + tid_row) as usize * lda as usize + (k0 + col) as usize;
        CopyA {
            from: a.wrapping_add(first),
            lda,
            to: smem.add(row_a(G::BM, col) + swapped_a(tid_row, col)),
            col,
            rows: m.saturating_sub(row + tid_row),
            geometry: PhantomData,
        }
    }

    /// Asks for the share in the next tile, which goes to the stage at `offset` elements from
    /// the first. `k_left` columns of A are left; `WHOLE`: the tile is inside.
    ///
    /// # Safety
    /// `new` and the parameters tell the truth about A, and nothing uses the stage.
    #[inline(always)]
    pub unsafe fn copy<const WHOLE: bool>(&mut self, offset: u32, k_left: u32) {
        let (to, mut from) = (self.to.add(offset), self.from);
        let cols = k_left.saturating_sub(self.col);
        for row in (0..G::BM).step_by(Self::ROWS as usize) {
            for col in (0..G::BK).step_by(Self::COLS as usize) {
                let (to, from) = (to.add(row_a(G::BM, col) + row), from.wrapping_add(col as usize));
                // SAFETY: this thread's own word of the stage; inside A where it is read.
                unsafe {
                    if WHOLE {
                        cp_async::copy(to, from);
                    } else {
                        cp_async::copy_zfill(to, from, row < self.rows && col < cols);
                    }
                }
            }
            from = from.wrapping_add(Self::ROWS as usize * self.lda as usize);
        }
        self.from = self.from.wrapping_add(G::BK as usize);
    }
}

/// A thread's share of a block's tiles of B, BK x BN, four elements at a time where `ALIGNED`.
pub struct CopyB<G, const ALIGNED: bool> {
    /// As in [`CopyA`].
    from: *const f32,
    ldb: u32,
    to: SharedPtr<f32>,
    /// The row of the share in its tile.
    row: u32,
    /// Columns from there to the edge of B.
    cols: u32,
    geometry: PhantomData<G>,
}

impl<G: Geometry, const ALIGNED: bool> CopyB<G, ALIGNED> {
    /// Elements that a thread copies at once.
    const WIDTH: u32 = if ALIGNED { 4 } else { 1 };
    /// Columns and rows that the block copies in one go. A small tile needs fewer threads.
    const COLS: u32 = if ALIGNED { G::BN } else { min(G::BN, 32) };
    const ROWS: u32 = G::THREADS * Self::WIDTH / Self::COLS;

    const EVEN: () = assert!(
        G::BN.is_multiple_of(Self::COLS)
            && (G::BK.is_multiple_of(Self::ROWS) || Self::ROWS > G::BK),
        "every thread that copies has the same share of B"
    );

    /// For the tiles that begin at column `col` of B, `n` columns in all, and go on from row
    /// `k0`.
    #[inline(always)]
    pub fn new(b: *const f32, ldb: u32, n: u32, k0: u32, col: u32, smem: SharedPtr<f32>) -> Self {
        const { Self::EVEN };
        let at = thread::thread_idx_x() * Self::WIDTH;
        let (row, tid_col) = (at / Self::COLS, at % Self::COLS);
        let first = (k0 + row) as usize * ldb as usize + (col + tid_col) as usize;
        CopyB {
            from: b.wrapping_add(first),
            ldb,
            to: smem.add(row * G::BN + tid_col),
            row,
            cols: n.saturating_sub(col + tid_col),
            geometry: PhantomData,
        }
    }

    /// As [`CopyA::copy`], with `k_left` rows of B left.
    ///
    /// # Safety
    /// As for [`CopyA::copy`]; where `ALIGNED`, B is as the entry points say.
    #[inline(always)]
    pub unsafe fn copy<const WHOLE: bool>(&mut self, offset: u32, k_left: u32) {
        let (to, mut from) = (self.to.add(offset), self.from);
        let rows = k_left.saturating_sub(self.row);
        if Self::ROWS <= G::BK || self.row < G::BK {
            for row in (0..G::BK).step_by(Self::ROWS as usize) {
                for col in (0..G::BN).step_by(Self::COLS as usize) {
                    let (to, from) = (to.add(row * G::BN + col), from.wrapping_add(col as usize));
                    let inside = row < rows && col < self.cols;
                    // SAFETY: this thread's own words of the stage; inside B where they are
                    // read, four together where they are four.
                    unsafe {
                        match (ALIGNED, WHOLE) {
                            (true, true) => cp_async::copy4(to, from),
                            (true, false) => cp_async::copy4_zfill(to, from, inside),
                            (false, true) => cp_async::copy(to, from),
                            (false, false) => cp_async::copy_zfill(to, from, inside),
                        }
                    }
                }
                from = from.wrapping_add(Self::ROWS as usize * self.ldb as usize);
            }
        }
        // The walk has ended where the next tile starts, unless it was one step for all.
        self.from = if Self::ROWS <= G::BK {
            from
        } else {
            self.from.wrapping_add(G::BK as usize * self.ldb as usize)
        };
    }
}
