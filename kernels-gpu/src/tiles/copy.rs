//! The copies of a block's tiles to shared memory.
//!
//! A thread has one address per matrix, and steps from there: everything else about a copy is
//! a constant, or was worked out before the loop. Past an edge a copy stores zeros and reads
//! nothing, so that its address need not lie in the matrix.

use core::marker::PhantomData;

use cuda_std::cp_async;
use cuda_std::hint::black_box;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

use super::geometry::Geometry;

/// Where row `k` begins in a tile of rows of so many elements that is transposed as it is copied. Two rows lie
/// side by side, and each pair is padded. In odd rows the pairs of elements in each four are swapped: so the
/// sixteen neighbours along K, of two rows of A or two columns of B, that a warp copies at a time go to 32 banks.
pub const fn padded_row(width: u32, k: u32) -> u32 {
    k / 2 * (2 * width + 4) + k % 2 * width
}

/// Where element `at` of such a row lies in it.
pub const fn swapped(at: u32, k: u32) -> u32 {
    at ^ (k % 2 * 2)
}

/// Where row `k` of a tile of B begins, which is transposed where it is not copied in fours.
pub const fn row_b(bn: u32, aligned: bool, k: u32) -> u32 {
    if aligned { k * bn } else { padded_row(bn, k) }
}

const fn min(x: u32, y: u32) -> u32 {
    if x < y { x } else { y }
}

const fn max(x: u32, y: u32) -> u32 {
    if x > y { x } else { y }
}

/// Threads that copy in rows and columns that are powers of two: the last of a block of three warps do not.
const fn copiers(threads: u32) -> u32 {
    1 << threads.ilog2()
}

/// The largest power of two by which a size can be divided.
const fn power_of_two(size: u32) -> u32 {
    1 << size.trailing_zeros()
}

/// A thread's share of a block's tiles of A, BM x BK, which go to shared memory transposed. Of an A that
/// lies as its transpose two elements are copied at a time where `ALIGNED`: the swapped pairs stay whole.
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

    /// Rows and columns that the block copies in one go. Two rows of sixteen per warp were the
    /// fastest; a tile of few rows needs more columns.
    const ROWS: u32 = min(Self::COPIERS / 16, G::BM);
    const COLS: u32 = Self::COPIERS / Self::ROWS;

    /// The same of the transpose, whose neighbours are rows of A, so many of which a thread copies at
    /// once.
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

    /// For the tiles that begin at `row` of A, `m` rows in all, and go on from column `k0`.
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

    /// Asks for the share in the next tile, which goes to the stage at `offset` elements from
    /// the first. `k_left` columns of A are left; `WHOLE`: the tile is inside.
    ///
    /// # Safety
    /// `new` and the parameters tell the truth about A, and nothing uses the stage.
    #[inline(always)]
    pub unsafe fn copy<const WHOLE: bool>(&mut self, offset: u32, k_left: u32) {
        let (to, mut from) = (self.to.add(offset), self.from);
        // Worked out anew for each step: so it takes no registers in between.
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
                        // SAFETY: as below; two together where they are two.
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
                // SAFETY: this thread's own word of the stage; inside A where it is read.
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

/// A thread's share of a block's tiles of B, BK x BN, four elements at a time where `ALIGNED`. Where not,
/// B may lie as its transpose; if it does not, it is copied in pairs where its rows have them.
pub struct CopyB<G, const ALIGNED: bool> {
    /// As in [`CopyA`].
    from: *const f32,
    ldb: u32,
    to: SharedPtr<f32>,
    /// Columns from the tile's first to the edge of B.
    cols: u32,
    reads: ReadsB,
    geometry: PhantomData<G>,
}

/// How B is read: one value, since there are few registers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadsB {
    /// Along rows: in quads where the entry point says so, or element by element.
    Rows,
    /// Along rows, two elements at a time.
    Pairs,
    /// As the transpose.
    Transposed,
}

/// How a block walks over a tile of B: elements of a copy, and the rows and columns that its threads cover in one pass.
#[derive(Clone, Copy)]
struct Walk {
    width: u32,
    rows: u32,
    cols: u32,
}

impl Walk {
    /// As [`CopyA::place`].
    #[inline(always)]
    fn place(self, tid: u32) -> [u32; 2] {
        [tid * self.width / self.cols, tid * self.width % self.cols]
    }
}

impl<G: Geometry, const ALIGNED: bool> CopyB<G, ALIGNED> {
    /// Quads fill rows of any length.
    const COPIERS: u32 = if ALIGNED { G::THREADS } else { copiers(G::THREADS) };

    /// Element by element, or in quads where `ALIGNED`; and in pairs. A small tile needs fewer threads.
    const WALK: Walk = match ALIGNED {
        true => Self::walk(4, G::BN),
        false => Self::walk(1, min(power_of_two(G::BN), 32)),
    };
    const PAIRS: Walk = Self::walk(2, min(power_of_two(G::BN), 64));

    const fn walk(width: u32, cols: u32) -> Walk {
        Walk { width, rows: Self::COPIERS * width / cols, cols }
    }

    /// Whether quads go through the L1 cache: where N is no more than the tile's few columns, all blocks read the same lines at
    /// the same time, and each of them would ask the L2 cache. A wide C is up to 18 % slower so.
    const THROUGH_L1: bool = G::BN <= 16;

    /// The same of the transpose, whose neighbours are rows of B: as many of them as of a plain A's columns.
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

    /// For the tiles that begin at column `col` of B, `n` columns in all, and go on from row
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
        // With an even number of columns no pair is inside in part.
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

    /// As [`CopyA::place`].
    #[inline(always)]
    fn place(tid: u32, reads: ReadsB) -> [u32; 2] {
        match reads {
            ReadsB::Rows => Self::WALK.place(tid),
            ReadsB::Pairs => Self::PAIRS.place(tid),
            ReadsB::Transposed => [tid % Self::ROWS_T, tid / Self::ROWS_T],
        }
    }

    /// As [`CopyA::copy`], with `k_left` rows of B left.
    ///
    /// # Safety
    /// As for [`CopyA::copy`]; where `ALIGNED`, B is as the entry points say.
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

    /// The same of a B that is not transposed.
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
                    // SAFETY: this thread's own words of the stage; inside B where they are
                    // read, as many together as are copied at once.
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
        // The walk has ended where the next tile starts, unless it was one step for all.
        self.from = if walk.rows <= G::BK {
            from
        } else {
            self.from.wrapping_add(G::BK as usize * self.ldb as usize)
        };
    }

    /// A part of the copies of a transpose, of so many: its number among them, and how many there are.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy).
    #[inline(always)]
    unsafe fn copy_transposed<const WHOLE: bool>(
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
            // SAFETY: this thread's own word of the stage; inside B where it is read.
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

/// A thread's shares of the tiles of A and B.
pub struct Copies<G, const ALIGNED: bool> {
    pub a: CopyA<G, ALIGNED>,
    pub b: CopyB<G, ALIGNED>,
    /// Whether every tile of the block lies inside, but for the last step along K.
    pub is_interior: bool,
}

impl<G: Geometry, const ALIGNED: bool> Copies<G, ALIGNED> {
    /// Elements from one stage to the next.
    pub const STAGE_A: u32 = padded_row(G::BM, G::BK);
    pub const STAGE_B: u32 = row_b(G::BN, ALIGNED, G::BK);

    /// Copies the next tiles to a stage, where `left` of K is left; if none is, zeros or nothing.
    ///
    /// # Safety
    /// As for [`CopyA::copy`] and [`CopyB::copy`].
    #[inline(always)]
    pub unsafe fn copy_tile(&mut self, left: u32, stage: u32, zeros: bool) {
        let (to_a, to_b) = (stage * Self::STAGE_A, stage * Self::STAGE_B);
        // SAFETY: the caller's contract.
        unsafe {
            if self.is_interior && left >= G::BK {
                self.a.copy::<true>(to_a, left);
                self.b.copy::<true>(to_b, left);
            } else if left > 0 || zeros {
                self.a.copy::<false>(to_a, left);
                self.b.copy::<false>(to_b, left);
            }
        }
        cp_async::commit_group();
    }

    /// As [`copy_tile`](Self::copy_tile) where B lies as its transpose, in parts: with the first all of A,
    /// and with each as much of B.
    ///
    /// # Safety
    /// As for [`copy_tile`](Self::copy_tile); all parts of a tile follow each other.
    #[inline(always)]
    pub unsafe fn copy_part(&mut self, [part, parts]: [u32; 2], left: u32, stage: u32) {
        let (to_a, to_b) = (stage * Self::STAGE_A, stage * Self::STAGE_B);
        // SAFETY: the caller's contract.
        unsafe {
            if self.is_interior && left >= G::BK {
                if part == 0 {
                    self.a.copy::<true>(to_a, left);
                }
                self.b.copy_transposed::<true>(to_b, left, [part, parts]);
            } else if left > 0 {
                if part == 0 {
                    self.a.copy::<false>(to_a, left);
                }
                self.b.copy_transposed::<false>(to_b, left, [part, parts]);
            }
        }
        if part + 1 == parts {
            self.b.from = self.b.from.wrapping_add(G::BK as usize);
            cp_async::commit_group();
        }
    }
}
