//! Tiles of 16-bit matrices with misaligned rows, loaded by asynchronous copies.
//!
//! If rows are aligned, each vector of a tile is copied straight to its place. If not, the aligned
//! vectors around a row are copied unchanged, one more per row. Then they are moved, through
//! registers, by the row's misalignment:
//!
//! ```text
//!   a row of the tile          0 1 2 3 4 5 6 7 8 9 ..
//!   copied as it lies    |. . . 0 1 2 3 4|5 6 7 8 9 ..      skipped: 3
//!   moved                |0 1 2 3 4 5 6 7|8 9 ..
//! ```
//!
//! In its place, the vectors of a row are swizzled by its number, so that `ldmatrix` reads from all
//! banks.

use core::array;

use cuda_std::cp_async;
use cuda_std::hint::black_box;
use cuda_std::shared::SharedPtr;
use cuda_std::vec;

use crate::device::operand::half_rows::{HalfRows, VECTOR, Words, eight_of};

/// A tile: `lines` rows of `vectors` vectors of eight elements, from (row, col) on.
#[derive(Clone, Copy)]
pub struct HalfTile {
    pub lines: u32,
    pub vectors: u32,
    /// Whether K runs from row to row; otherwise it runs along each row.
    pub mn: bool,
    pub matrix: HalfRows,
    pub row: u32,
    pub col: u32,
    /// How much of the tile is read along K, a multiple of eight. No more is copied.
    pub depth: u32,
}

impl HalfTile {
    /// Elements of shared memory for `lines` rows of `vectors` vectors that are copied as they lie.
    pub const fn as_it_lies(lines: u32, vectors: u32) -> u32 {
        lines * (vectors + 1) * VECTOR
    }

    /// Whether `threads` share a tile of `lines` and `vectors` evenly.
    ///
    /// Each thread has one vector in the same number of lines, which lie a multiple of eight apart.
    pub const fn is_shared_out([lines, vectors]: [u32; 2], threads: u32) -> bool {
        let step = threads / vectors;
        threads.is_multiple_of(vectors) && step.is_multiple_of(8) && lines.is_multiple_of(step)
    }

    /// Elements of a row that is copied as it lies.
    #[inline(always)]
    fn pitch(self) -> u32 {
        Self::as_it_lies(1, self.vectors)
    }

    /// Where a vector of a row lies in a tile of `vectors` vectors per row.
    #[inline(always)]
    pub fn place(vectors: u32, line: u32, vector: u32) -> u32 {
        (line * vectors + (vector ^ (line % 8))) * VECTOR
    }

    /// Whether all rows begin on 16 bytes.
    #[inline(always)]
    pub fn is_aligned(self) -> bool {
        (self.matrix.pointer as usize).is_multiple_of(16) && self.matrix.ld.is_multiple_of(VECTOR)
    }

    /// This thread's vectors, one every `step` rows, all with the same misalignment.
    ///
    /// `needed` is how much is needed along K.
    #[inline(always)]
    fn part(self, [thread, threads]: [u32; 2], needed: u32) -> Part {
        let Self { lines, vectors, mn, matrix: HalfRows { pointer, ld, .. }, row, col, depth } =
            self;
        let (line, vector, step) = (thread / vectors, thread % vectors, threads / vectors);
        let row = row + line;
        let first = pointer.wrapping_add(row as usize * ld as usize + col as usize);
        // A row along K may be needed only in part. If K runs from row to row, there may be fewer
        // rows.
        let is_needed = mn || vector * VECTOR < needed;
        let lines = if mn { depth } else { lines };
        let count = if is_needed { lines.saturating_sub(line).div_ceil(step) } else { 0 };
        Part {
            line,
            vector,
            step,
            count,
            row,
            first,
            apart: step as usize * ld as usize,
            skipped: first as usize as u32 / 2 % VECTOR,
        }
    }

    /// Elements of a row that are inside and needed.
    #[inline(always)]
    fn width(self) -> u32 {
        let needed = if self.mn { self.vectors * VECTOR } else { self.depth };
        self.matrix.cols.saturating_sub(self.col).min(needed)
    }

    /// Asks for the tile.
    ///
    /// If rows are aligned, elements outside of the matrix become zeros. If not, the tile is copied
    /// as it lies, and has to be [moved](Self::move_into).
    ///
    /// # Safety
    /// - All `threads` of a block call this, and the tile [is shared out](Self::is_shared_out)
    ///   among them.
    /// - Nobody else uses this shared memory.
    /// - The matrix is there, in global memory, and stays as it is.
    #[inline(always)]
    pub unsafe fn copy(self, to: SharedPtr<u16>, as_it_lies: SharedPtr<u16>, threads: [u32; 2]) {
        let Part { line, vector, step, count, mut row, mut first, apart, skipped } =
            // As they lie, elements may reach into one vector more.
            self.part(threads, self.depth + if self.is_aligned() { 0 } else { 1 });
        let HalfRows { pointer, ld, rows, cols } = self.matrix;
        let (width, most) = (self.width(), self.lines / step);
        if self.is_aligned() {
            let bytes = 2 * width.saturating_sub(vector * VECTOR).min(VECTOR);
            let to = to.add(Self::place(self.vectors, line, vector));
            let mut from = first.wrapping_add((vector * VECTOR) as usize);
            for i in 0..most {
                if i < count {
                    let bytes = if row < rows { bytes } else { 0 };
                    let to = to.add(i * step * self.vectors * VECTOR);
                    // SAFETY: inside, as far as it is read, and on 16 bytes.
                    unsafe { cp_async::copy16_zfill(to, from, bytes) };
                }
                row += step;
                from = from.wrapping_add(apart);
            }
            return;
        }
        let mut to = as_it_lies.add(line * self.pitch() + vector * VECTOR);
        // Elements from the row's first to the vector's first, which may be in front of it.
        let ahead = (vector * VECTOR).wrapping_sub(skipped).cast_signed();
        let begin = -self.col.cast_signed();
        let is_in_row = |ahead: i32| ahead >= begin && (ahead - begin) as u32 + VECTOR <= cols;
        // If there are no gaps between rows, elements around a row may also be read.
        let end = pointer.wrapping_add(rows as usize * ld as usize);
        let is_dense = ld == cols;
        // Behind `black_box`, so that the loop is not unrolled.
        for i in 0..black_box(most) {
            if i < count && row < rows {
                // The thread with the last vector also copies the next one.
                for next in 0..if vector + 1 == self.vectors { 2 } else { 1 } {
                    let (ahead, to) =
                        (ahead + (next * VECTOR).cast_signed(), to.add(next * VECTOR));
                    if width == 0 || ahead >= width.cast_signed() {
                        continue;
                    }
                    let from = first.wrapping_offset(ahead as isize);
                    let is_inside = is_in_row(ahead)
                        || is_dense
                            && from as usize >= pointer as usize
                            && from.wrapping_add(VECTOR as usize) as usize <= end as usize;
                    // SAFETY: inside, on 16 bytes, or else single elements of the row.
                    unsafe {
                        if is_inside {
                            cp_async::copy16_zfill(to, from, 2 * VECTOR);
                        } else {
                            copy_elements(from, to, |j| ((ahead + j.cast_signed()) as u32) < width);
                        }
                    }
                }
            }
            row += step;
            first = first.wrapping_add(apart);
            to = to.add(step * self.pitch());
        }
    }

    /// Moves what was copied as it lies to its place, with zeros outside of the matrix.
    ///
    /// If rows are aligned, everything is in its place already.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy). All threads have waited for it, with a barrier behind it.
    #[inline(always)]
    pub unsafe fn move_into(
        self,
        to: SharedPtr<u16>,
        as_it_lies: SharedPtr<u16>,
        threads: [u32; 2],
    ) {
        if self.is_aligned() {
            return;
        }
        let Part { line, vector, step, count, row, skipped, .. } = self.part(threads, self.depth);
        let inside = self.width().saturating_sub(vector * VECTOR).min(VECTOR);
        let from = as_it_lies.add(line * self.pitch() + vector * VECTOR).cast::<u32>();
        let to = to.add(Self::place(self.vectors, line, vector)).cast::<u32>();
        for i in 0..black_box(self.lines / step) {
            if i < count {
                let inside = if row + i * step < self.matrix.rows { inside } else { 0 };
                let from = from.add(i * step * self.pitch() / 2);
                let (mut near, mut far) = ([0; 4], [0; 4]);
                // SAFETY: in these rows, on 16 bytes. The elements read have been copied.
                unsafe {
                    if inside > 0 {
                        near = from.load_vec(0);
                    }
                    if skipped + inside > VECTOR {
                        far = from.load_vec(VECTOR / 2);
                    }
                    let ([a, b, c, d], [e, f, g, h]) = (near, far);
                    let mut words = eight_of([a, b, c, d, e, f, g, h], skipped);
                    if inside < VECTOR {
                        words = first_of(words, inside);
                    }
                    to.store_vec(i * step * self.vectors * VECTOR / 2, words);
                }
            }
        }
    }
}

/// A thread's part of the copies of a tile.
struct Part {
    /// The part's first row in the tile, and its vector in each row.
    line: u32,
    vector: u32,
    /// Rows from one to the next, and the number of rows.
    step: u32,
    count: u32,
    /// The first row's number in the matrix, and the address of its first element in the tile.
    row: u32,
    first: *const u16,
    /// Elements from one row to the next.
    apart: usize,
    /// Elements in front of the rows, in their first aligned vectors.
    skipped: u32,
}

/// Copies the elements of a vector that are there, with zeros for the others.
///
/// A vector is read as a whole.
///
/// # Safety
/// The elements that are said to be there are. Nobody else uses this shared memory, which is on 16
/// bytes.
#[inline(always)]
unsafe fn copy_elements(from: *const u16, to: SharedPtr<u16>, is_there: impl Fn(u32) -> bool) {
    let element = |j: u32| {
        if !is_there(j) {
            return 0;
        }
        // SAFETY: the caller's contract.
        let [element] = unsafe { vec::load(from.wrapping_add(j as usize)) };
        u32::from(element)
    };
    let words: Words = array::from_fn(|i| {
        let j = 2 * i as u32;
        element(j) | element(j + 1) << 16
    });
    // SAFETY: the caller's contract.
    unsafe { to.cast::<u32>().store_vec(0, words) };
}

/// The first `count` of eight elements, then zeros.
#[inline(always)]
fn first_of(words: Words, count: u32) -> Words {
    let word = |i: u32| match count.saturating_sub(2 * i) {
        0 => 0,
        1 => words[i as usize] & 0xffff,
        _ => words[i as usize],
    };
    [word(0), word(1), word(2), word(3)]
}
