//! The copies of B.

use core::marker::PhantomData;

use cuda_std::cp_async;
use cuda_std::hint::black_box;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

use super::{copiers, max, min, power_of_two, row_b, swapped};
use crate::device::geometry::Geometry;

/// A thread's share of a block's tiles of B, BK x BN, which is copied in fours if `ALIGNED`.
///
/// If not, B may lie transposed, or it is copied in pairs if its rows consist of pairs.
pub struct CopyB<G, const ALIGNED: bool> {
    /// As in [`CopyA`](super::CopyA).
    pub(super) from: *const f32,
    ldb: u32,
    to: SharedPtr<f32>,
    /// Columns from the tile's first to the edge of B.
    cols: u32,
    reads: ReadsB,
    geometry: PhantomData<G>,
}

/// How B is read: a single value, since registers are few.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadsB {
    /// Along rows: in quads if `ALIGNED`, or element by element.
    Rows,
    /// Along rows, two elements at a time.
    Pairs,
    /// As the transpose.
    Transposed,
}

/// How a block's threads cover a tile of B.
///
/// A copy has `width` elements, and one pass covers `rows` and `cols`.
#[derive(Clone, Copy)]
struct Walk {
    width: u32,
    rows: u32,
    cols: u32,
}

impl Walk {
    /// Where a thread's share begins: see [`CopyA`](super::CopyA)'s `place`.
    #[inline(always)]
    fn place(self, tid: u32) -> [u32; 2] {
        [tid * self.width / self.cols, tid * self.width % self.cols]
    }
}

impl<G: Geometry, const ALIGNED: bool> CopyB<G, ALIGNED> {
    /// Quads fill rows of any length.
    const COPIERS: u32 = if ALIGNED { G::THREADS } else { copiers(G::THREADS) };

    /// In quads if `ALIGNED`, otherwise element by element; below, in pairs. A small tile needs
    /// fewer threads.
    const WALK: Walk = match ALIGNED {
        true => Self::walk(4, G::BN),
        false => Self::walk(1, min(power_of_two(G::BN), 32)),
    };
    const PAIRS: Walk = Self::walk(2, min(power_of_two(G::BN), 64));

    const fn walk(width: u32, cols: u32) -> Walk {
        Walk { width, rows: Self::COPIERS * width / cols, cols }
    }

    /// Whether quads go through the L1 cache.
    ///
    /// If N fits the tile's few columns, all blocks read the same lines at the same time, and would
    /// all ask the L2 cache. With a wide C, L1 makes a product up to 18 % slower.
    const THROUGH_L1: bool = G::BN <= 16;

    /// Counterparts for a transposed B. Its neighbours are rows of B: as wide a run as for the
    /// columns of a plain A.
    const ROWS_T: u32 = max(16, G::THREADS / G::BN);
    const COLS_T: u32 = Self::COPIERS / Self::ROWS_T;

    const EVEN: () = {
        let walks = if ALIGNED { [Self::WALK; 2] } else { [Self::WALK, Self::PAIRS] };
        let mut i = 0;
        while i < walks.len() {
            let Walk { rows, cols, .. } = walks[i];
            assert!(
                G::BN.is_multiple_of(cols)
                    && (G::BK.is_multiple_of(rows) || rows > G::BK)
                    && (ALIGNED || rows.is_multiple_of(2)),
                "every thread that copies has the same share of B"
            );
            i += 1;
        }
        assert!(
            G::BN.is_multiple_of(Self::COLS_T)
                && G::BK.is_multiple_of(Self::ROWS_T)
                && (ALIGNED || Self::COLS_T.is_multiple_of(4)),
            "likewise of its transpose"
        );
    };

    /// For the tiles that begin at column `col` of B, which has `n` columns, and go on from row
    /// `k0`.
    #[inline(always)]
    pub fn new(
        b: *const f32,
        ldb: u32,
        transposed: bool,
        n: u32,
        k0: u32,
        col: u32,
        smem: SharedPtr<f32>,
    ) -> Self {
        const { Self::EVEN };
        // With an even number of columns, a pair is in bounds or out of bounds as a whole.
        let has_pairs = (ldb | n).is_multiple_of(2) && (b as usize).is_multiple_of(8);
        let reads = match () {
            () if ALIGNED => ReadsB::Rows,
            () if transposed => ReadsB::Transposed,
            () if has_pairs => ReadsB::Pairs,
            () => ReadsB::Rows,
        };
        let transposed = reads == ReadsB::Transposed;
        let [row, tid_col] = Self::place(thread::thread_idx_x(), reads);
        let (cols, k) = (n.saturating_sub(col), (k0 + row) as usize);
        let col = (col + tid_col) as usize;
        let first = if transposed { col * ldb as usize + k } else { k * ldb as usize + col };
        CopyB {
            from: b.wrapping_add(first),
            ldb,
            to: smem.add(row_b(G::BN, ALIGNED, row)).add(if ALIGNED {
                tid_col
            } else {
                swapped(tid_col, row)
            }),
            cols,
            reads,
            geometry: PhantomData,
        }
    }

    /// Where a thread's share begins: see [`CopyA`](super::CopyA)'s `place`.
    #[inline(always)]
    fn place(tid: u32, reads: ReadsB) -> [u32; 2] {
        match reads {
            ReadsB::Rows => Self::WALK.place(tid),
            ReadsB::Pairs => Self::PAIRS.place(tid),
            ReadsB::Transposed => [tid % Self::ROWS_T, tid / Self::ROWS_T],
        }
    }

    /// As [`CopyA::copy`](super::CopyA::copy), with `k_left` rows of B left.
    ///
    /// # Safety
    /// As for [`CopyA::copy`](super::CopyA::copy). If `ALIGNED`, B is as the entry points say.
    #[inline(always)]
    pub unsafe fn copy<const WHOLE: bool>(&mut self, offset: u32, k_left: u32) {
        let tid = black_box(thread::thread_idx_x());
        if Self::COPIERS < G::THREADS && tid >= Self::COPIERS {
            return;
        }
        // SAFETY: the same contract.
        unsafe {
            match self.reads {
                ReadsB::Pairs if !ALIGNED => {
                    self.copy_rows::<WHOLE>(Self::PAIRS, tid, offset, k_left);
                }
                ReadsB::Transposed if !ALIGNED => {
                    self.copy_transposed::<WHOLE>(offset, k_left, [0, 1]);
                    self.from = self.from.wrapping_add(G::BK as usize);
                }
                _ => self.copy_rows::<WHOLE>(Self::WALK, tid, offset, k_left),
            }
        }
    }

    /// [`copy`](Self::copy) for a B that is not transposed.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy); the walk is the one that `new` has chosen.
    #[inline(always)]
    unsafe fn copy_rows<const WHOLE: bool>(
        &mut self,
        walk: Walk,
        tid: u32,
        offset: u32,
        k_left: u32,
    ) {
        let (to, mut from) = (self.to.add(offset), self.from);
        let [tid_row, tid_col] = walk.place(tid);
        let (rows, cols) = (k_left.saturating_sub(tid_row), self.cols.saturating_sub(tid_col));
        if walk.rows <= G::BK || tid_row < G::BK {
            for row in (0..G::BK).step_by(walk.rows as usize) {
                for col in (0..G::BN).step_by(walk.cols as usize) {
                    let to = to.add(row_b(G::BN, ALIGNED, row) + col);
                    let from = from.wrapping_add(col as usize);
                    let inside = row < rows && col < cols;
                    // SAFETY: this thread's own words of the stage. They are inside B if they are
                    // read, all that are copied together.
                    unsafe {
                        match (walk.width, WHOLE) {
                            (4, true) if Self::THROUGH_L1 => cp_async::copy4_ca(to, from),
                            (4, false) if Self::THROUGH_L1 => {
                                cp_async::copy4_ca_zfill(to, from, inside);
                            }
                            (4, true) => cp_async::copy4(to, from),
                            (4, false) => cp_async::copy4_zfill(to, from, inside),
                            (2, true) => cp_async::copy2(to, from),
                            (2, false) => cp_async::copy2_zfill(to, from, inside),
                            (_, true) => cp_async::copy(to, from),
                            (_, false) => cp_async::copy_zfill(to, from, inside),
                        }
                    }
                }
                from = from.wrapping_add(walk.rows as usize * self.ldb as usize);
            }
        }
        // The walk has ended where the next tile starts, unless one step covered all rows.
        self.from = if walk.rows <= G::BK {
            from
        } else {
            self.from.wrapping_add(G::BK as usize * self.ldb as usize)
        };
    }

    /// Copies part number `part` of `parts`, of a transposed B.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy).
    #[inline(always)]
    pub(super) unsafe fn copy_transposed<const WHOLE: bool>(
        &self,
        offset: u32,
        k_left: u32,
        [part, parts]: [u32; 2],
    ) {
        let to = self.to.add(offset);
        let tid = black_box(thread::thread_idx_x());
        if Self::COPIERS < G::THREADS && tid >= Self::COPIERS {
            return;
        }
        let [tid_row, tid_col] = Self::place(tid, ReadsB::Transposed);
        let (rows, cols) = (k_left.saturating_sub(tid_row), self.cols.saturating_sub(tid_col));
        let ldb = black_box(self.ldb) as usize;
        let (down, across) = (G::BK / Self::ROWS_T, G::BN / Self::COLS_T);
        for i in part * down * across / parts..(part + 1) * down * across / parts {
            let (row, col) = (i % down * Self::ROWS_T, i / down * Self::COLS_T);
            let to = to.add(row_b(G::BN, ALIGNED, row) + col);
            let from = self.from.wrapping_add(col as usize * ldb + row as usize);
            // SAFETY: this thread's own word of the stage, and inside B if it is read.
            unsafe {
                if WHOLE {
                    cp_async::copy(to, from);
                } else {
                    cp_async::copy_zfill(to, from, row < rows && col < cols);
                }
            }
        }
    }
}
