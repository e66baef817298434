//! C as an FMA kernel stores it: `alpha * sum + beta * C`, only in bounds.
//!
//! Alignment is as in [`operand::input`](crate::device::operand::input).

use cuda_std::prelude::*;
use cuda_std::vec;

use crate::device::operand::input::Input;

/// C: `rows` x `cols` elements, with the leading dimension `ld`, and the factors that apply.
#[derive(Clone, Copy)]
pub struct Output {
    pub(crate) pointer: *mut f32,
    pub(crate) ld: u32,
    pub(crate) rows: u32,
    pub(crate) cols: u32,
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
}

impl Output {
    /// A matrix of `rows` x `cols` elements at `pointer`, with the leading dimension `ld`, that
    /// takes `alpha * acc + beta * C`.
    ///
    /// # Safety
    /// That is what lies there, in global memory, and nothing but this launch touches it.
    #[inline(always)]
    pub unsafe fn new(
        pointer: *mut f32,
        ld: u32,
        rows: u32,
        cols: u32,
        alpha: f32,
        beta: f32,
    ) -> Self {
        Output { pointer, ld, rows, cols, alpha, beta }
    }

    /// Writes `alpha * acc + beta * C` to element (row, col), or nothing outside.
    ///
    /// With `beta == 0` C is not read, so it may hold anything, even NaN. BLAS demands this, and a
    /// caller may pass memory that nothing has written.
    ///
    /// # Safety
    /// No other thread stores this element.
    #[inline(always)]
    pub unsafe fn store(self, row: u32, col: u32, acc: f32) {
        if row < self.rows && col < self.cols {
            let result = self.alpha * acc;
            // SAFETY: in bounds, and this thread's own.
            unsafe {
                let c = self.pointer.add(row as usize * self.ld as usize + col as usize);
                *c = if self.beta == 0.0 { result } else { fma(self.beta, *c, result) };
            }
        }
    }

    /// [`store`](Self::store) for TM x TN elements, the first at (row, col).
    ///
    /// The others are `apart` rows and columns from one to the next. With `beta != 0`, four rows of
    /// C are loaded before the first of them is overwritten.
    ///
    /// # Safety
    /// No other thread stores these elements.
    #[inline(always)]
    pub unsafe fn store_spaced<const TM: usize, const TN: usize>(
        self,
        row: u32,
        col: u32,
        apart: [u32; 2],
        acc: &[[f32; TN]; TM],
    ) {
        let step = apart[0] as usize * self.ld as usize;
        let first = self.pointer.wrapping_add(row as usize * self.ld as usize + col as usize);
        let (rows, cols) = (self.rows.saturating_sub(row), self.cols.saturating_sub(col));
        let is_inside =
            |i: usize, j: usize| i as u32 * apart[0] < rows && j as u32 * apart[1] < cols;
        let place = |i: usize, j: usize| first.wrapping_add(i * step + j * apart[1] as usize);
        for begin in (0..TM).step_by(4) {
            let end = if begin + 4 < TM { begin + 4 } else { TM };
            let mut old = [[0.0f32; TN]; TM];
            if self.beta != 0.0 {
                for i in begin..end {
                    for j in 0..TN {
                        if is_inside(i, j) {
                            // SAFETY: in bounds, and this thread's own.
                            old[i][j] = unsafe { *place(i, j) };
                        }
                    }
                }
                for i in begin..end {
                    for j in 0..TN {
                        old[i][j] *= self.beta;
                    }
                }
            }
            for i in begin..end {
                for j in 0..TN {
                    if is_inside(i, j) {
                        // SAFETY: as above.
                        unsafe { *place(i, j) = fma(self.alpha, acc[i][j], old[i][j]) };
                    }
                }
            }
        }
    }

    /// Whether [`store4_unchecked`](Self::store4_unchecked) may store all of a tile.
    ///
    /// The tile must be inside, its rows aligned, and C not read.
    #[inline(always)]
    pub fn is_vectorizable(self, row: u32, col: u32, rows: u32, cols: u32) -> bool {
        self.beta == 0.0
            && (self.pointer as usize).is_multiple_of(16)
            && self.ld.is_multiple_of(4)
            && row + rows <= self.rows
            && col + cols <= self.cols
    }

    /// Writes `alpha * acc` to the four elements from (row, col) on along the row. `col` is a
    /// multiple of four.
    ///
    /// # Safety
    /// They are inside, their row is aligned to 16 bytes, and no other thread touches them.
    #[inline(always)]
    pub unsafe fn store4_unchecked(self, row: u32, col: u32, acc: F32x4) {
        // SAFETY: the caller's contract.
        unsafe {
            let c = self.pointer.add(row as usize * self.ld as usize + col as usize);
            vec::store4(c, acc.map(|acc| self.alpha * acc));
        }
    }

    /// [`store`](Self::store) for the four elements from (row, col) on along the row. `col` is a
    /// multiple of four.
    ///
    /// # Safety
    /// No other thread stores these elements. If `ALIGNED`, the matrix is as the module says.
    #[inline(always)]
    pub unsafe fn store4<const ALIGNED: bool>(self, row: u32, col: u32, acc: F32x4) {
        if !ALIGNED {
            for j in 0..4 {
                // SAFETY: the caller's contract.
                unsafe { self.store(row, col + j, acc[j as usize]) };
            }
            return;
        }
        if row < self.rows && col < self.cols {
            let mut result = acc.map(|acc| self.alpha * acc);
            // SAFETY: `cols` is a multiple of four, so that all four are in bounds, and the
            // row and `col` keep the address a multiple of 16.
            unsafe {
                let c = self.pointer.add(row as usize * self.ld as usize + col as usize);
                if self.beta != 0.0 {
                    let before = vec::load4(c);
                    for j in 0..4 {
                        result[j] = fma(self.beta, before[j], result[j]);
                    }
                }
                vec::store4(c, result);
            }
        }
    }

    /// [`store`](Self::store) for a thread's sums of `wgmma`: see [`cuda_std::sm_90a::wgmma`].
    ///
    /// The first is at (row, col), an even column. Four neighbouring lanes store 32 bytes of a row,
    /// so a warp's access consists of whole sectors.
    ///
    /// # Safety
    /// No other thread stores these elements.
    #[inline(always)]
    pub unsafe fn store_fragments<const SUMS: usize>(self, row: u32, col: u32, acc: &[f32; SUMS]) {
        // Of the sums, neighbours come in pairs. Then follows the next row, eight below, and then
        // the next eight columns.
        let (rows, width) = (9, SUMS as u32 * 2 - 6);
        let is_paired = self.beta == 0.0
            && (self.pointer as usize).is_multiple_of(8)
            && self.ld.is_multiple_of(2)
            && row + rows <= self.rows
            && col + width <= self.cols;
        if is_paired {
            let first = self.pointer.wrapping_add(row as usize * self.ld as usize + col as usize);
            for (i, pair) in acc.chunks_exact(2).enumerate() {
                let to = first.wrapping_add(i % 2 * 8 * self.ld as usize + i / 2 * 8);
                // SAFETY: inside, on 8 bytes, and this thread's own.
                unsafe { vec::store(to, [self.alpha * pair[0], self.alpha * pair[1]]) };
            }
            return;
        }
        for (i, sum) in acc.iter().enumerate() {
            let i = i as u32;
            // SAFETY: this thread's own.
            unsafe { self.store(row + i / 2 % 2 * 8, col + i / 4 * 8 + i % 2, *sum) };
        }
    }

    /// Whether the matrix is as the module says for `ALIGNED`: the same for all threads.
    #[inline(always)]
    pub fn is_aligned(self) -> bool {
        self.begins_aligned() && self.cols.is_multiple_of(4)
    }

    /// Whether all rows begin on 16 bytes; they may end anywhere.
    #[inline(always)]
    pub fn begins_aligned(self) -> bool {
        (self.pointer as usize).is_multiple_of(16) && self.ld.is_multiple_of(4)
    }

    /// The four elements of C from (row, col) on along the row, with 0 for those outside.
    ///
    /// With `beta == 0` all four are 0, and nothing is read. Several of these calls, followed by
    /// their [`store4_over`](Self::store4_over), wait for memory only once.
    ///
    /// # Safety
    /// As for [`store4`](Self::store4). If `aligned`, [`is_aligned`](Self::is_aligned).
    #[inline(always)]
    pub unsafe fn load4(self, aligned: bool, row: u32, col: u32) -> F32x4 {
        if self.beta == 0.0 {
            return [0.0; 4];
        }
        // SAFETY: C can also be read.
        unsafe {
            let c = Input::new(self.pointer, self.ld, self.rows, self.cols);
            if aligned { c.get4::<true>(row, col) } else { c.get4::<false>(row, col) }
        }
    }

    /// [`store4`](Self::store4), if the four elements of C are known to be `old`.
    ///
    /// # Safety
    /// As for [`store4`](Self::store4). If `aligned`, [`is_aligned`](Self::is_aligned).
    #[inline(always)]
    pub unsafe fn store4_over(self, aligned: bool, row: u32, col: u32, acc: F32x4, old: F32x4) {
        let mut result = acc.map(|acc| self.alpha * acc);
        if self.beta != 0.0 {
            for j in 0..4 {
                result[j] = fma(self.beta, old[j], result[j]);
            }
        }
        let c = self.pointer.wrapping_add(row as usize * self.ld as usize + col as usize);
        if aligned {
            if row < self.rows && col < self.cols {
                // SAFETY: as in `store4`.
                unsafe { vec::store4(c, result) };
            }
            return;
        }
        for j in 0..4 {
            if row < self.rows && col + (j as u32) < self.cols {
                // SAFETY: in bounds, and this thread's own.
                unsafe { *c.add(j) = result[j] };
            }
        }
    }
}
