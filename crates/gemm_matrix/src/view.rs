//! Borrowed matrices: a whole one, or elements of a slice with a leading dimension.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;

use crate::matrix::Matrix;

/// The problem with a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// A leading dimension shorter than the rows.
    #[error("the leading dimension is {ld}, and must be at least the {cols} columns")]
    LeadingDimension {
        /// Its value, in elements.
        ld: usize,
        /// The row's length, in elements.
        cols: usize,
    },
    /// A slice that ends before the matrix does.
    #[error("the matrix needs {needed} elements, and the slice has {len}; pass a longer one")]
    TooShort {
        /// Elements from the first to the last of the matrix.
        needed: u128,
        /// Elements of the slice.
        len: usize,
    },
    /// A slice that is longer than the matrix, in a copy that must use all of it.
    #[error("the matrix has {elements} elements, and the slice {len}; pass a shorter one")]
    TooLong {
        /// Elements of the matrix.
        elements: u128,
        /// Elements of the slice.
        len: usize,
    },
    /// A matrix of another library that is not row-major, or whose rows are in reverse order.
    #[error(
        "the matrix is not row-major; pass its transpose if that is, or copy it to row-major order"
    )]
    NotRowMajor,
}

/// A row-major matrix in borrowed memory. Gaps between rows are not borrowed.
///
/// ```
/// use gemm_matrix::{Matrix, MatrixRef};
///
/// // Two rows of two, three elements apart.
/// let data = [1.0, 2.0, 9.0, 3.0, 4.0];
/// let view = MatrixRef::new(&data, 2, 2, 3)?;
/// assert_eq!((view.rows(), view.cols(), view.ld()), (2, 2, 3));
/// assert_eq!(view.row(1), [3.0, 4.0]);
///
/// let all = MatrixRef::from(&Matrix::zeros(4, 5)).ld();
/// assert_eq!(all, 5);
/// # Ok::<(), gemm_matrix::ViewError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MatrixRef<'a> {
    first: NonNull<f32>,
    rows: usize,
    cols: usize,
    ld: usize,
    elements: PhantomData<&'a [f32]>,
}

/// A row-major matrix in mutably borrowed memory. Gaps between rows are not borrowed.
///
/// ```
/// use gemm_matrix::MatrixMut;
///
/// let mut data = [0.0; 5];
/// let mut view = MatrixMut::new(&mut data, 2, 2, 3)?;
/// for (first, row) in view.runs_mut(2) {
///     row.fill(first as f32 + 1.0);
/// }
/// assert_eq!(data, [1.0, 1.0, 0.0, 3.0, 3.0]);
/// # Ok::<(), gemm_matrix::ViewError>(())
/// ```
#[derive(Debug)]
pub struct MatrixMut<'a> {
    first: NonNull<f32>,
    rows: usize,
    cols: usize,
    ld: usize,
    elements: PhantomData<&'a mut [f32]>,
}

// SAFETY: it stands for shared slices, one for each row.
unsafe impl Send for MatrixRef<'_> {}
// SAFETY: as above.
unsafe impl Sync for MatrixRef<'_> {}
// SAFETY: it stands for exclusive slices, one for each row.
unsafe impl Send for MatrixMut<'_> {}
// SAFETY: as above.
unsafe impl Sync for MatrixMut<'_> {}

/// Elements from a matrix's first to its last, with the leading dimension `ld`.
///
/// The last row ends after its last element, not after `ld` elements.
///
/// ```
/// assert_eq!(gemm_matrix::span(2, 2, 3), 5);
/// ```
pub fn span(rows: usize, cols: usize, ld: usize) -> u128 {
    match rows {
        0 => 0,
        _ => (rows as u128 - 1) * ld as u128 + cols as u128,
    }
}

/// Whether a slice of `len` elements has room for a matrix.
fn expect_room(len: usize, rows: usize, cols: usize, ld: usize) -> Result<(), ViewError> {
    if ld < cols {
        return Err(ViewError::LeadingDimension { ld, cols });
    }
    let needed = span(rows, cols, ld);
    if needed > len as u128 {
        return Err(ViewError::TooShort { needed, len });
    }
    Ok(())
}

/// The number and the length of the contiguous runs of a matrix.
///
/// `dense` says that the matrix and its copy both have no gaps between rows.
fn runs(rows: usize, cols: usize, dense: bool) -> (usize, usize) {
    match (rows == 0 || cols == 0, dense) {
        (true, _) => (0, 1),
        // The product is at most the length of the slice.
        (false, true) => (1, rows * cols),
        (false, false) => (rows, cols),
    }
}

impl<'a> MatrixRef<'a> {
    /// `rows` x `cols` elements from the slice's first on, with rows `ld` elements apart.
    ///
    /// # Errors
    ///
    /// [`ViewError::LeadingDimension`] or [`ViewError::TooShort`].
    pub fn new(data: &'a [f32], rows: usize, cols: usize, ld: usize) -> Result<Self, ViewError> {
        expect_room(data.len(), rows, cols, ld)?;
        // SAFETY: the slice has all rows, and is borrowed for `'a`.
        Ok(unsafe { Self::from_raw(NonNull::from(data).cast(), [rows, cols, ld]) })
    }

    /// `rows` x `cols` elements at this address, with rows `ld` elements apart.
    ///
    /// # Safety
    ///
    /// - Each row is `cols` elements that are borrowed for `'a`.
    /// - `ld` is at least `cols`, and all rows lie in one allocation.
    pub(crate) unsafe fn from_raw(first: NonNull<f32>, [rows, cols, ld]: [usize; 3]) -> Self {
        Self { first, rows, cols, ld, elements: PhantomData }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The leading dimension, in elements.
    pub fn ld(&self) -> usize {
        self.ld
    }

    /// One row, as a slice.
    ///
    /// # Panics
    ///
    /// If the row is out of bounds.
    pub fn row(&self, row: usize) -> &'a [f32] {
        assert!(row < self.rows, "row {row} of a {} x {} matrix", self.rows, self.cols);
        // SAFETY: a row of the matrix, which is borrowed for `'a`.
        unsafe { slice::from_raw_parts(self.first.add(row * self.ld).as_ptr(), self.cols) }
    }

    /// The longest contiguous runs of elements, here and in a copy with leading dimension `ld`.
    ///
    /// Each has its offset in the copy, and its elements.
    pub fn runs(&self, ld: usize) -> impl Iterator<Item = (usize, &'a [f32])> + use<'a> {
        let Self { first, rows, cols, ld: own, .. } = *self;
        let (count, len) = runs(rows, cols, own == cols && ld == cols);
        (0..count).map(move |row| {
            // SAFETY: a row of the matrix, or all rows if there are no gaps; they are borrowed for
            // `'a`.
            let run = unsafe { slice::from_raw_parts(first.add(row * own).as_ptr(), len) };
            (row * ld, run)
        })
    }
}

impl<'a> MatrixMut<'a> {
    /// A matrix to be written: see [`MatrixRef::new`].
    ///
    /// # Errors
    ///
    /// See [`MatrixRef::new`].
    pub fn new(
        data: &'a mut [f32],
        rows: usize,
        cols: usize,
        ld: usize,
    ) -> Result<Self, ViewError> {
        expect_room(data.len(), rows, cols, ld)?;
        // SAFETY: the slice has all rows, and is borrowed for `'a`, mutably.
        Ok(unsafe { Self::from_raw(NonNull::from(data).cast(), [rows, cols, ld]) })
    }

    /// A matrix to be written: see [`MatrixRef::from_raw`].
    ///
    /// # Safety
    ///
    /// The contract of [`MatrixRef::from_raw`], and each row is borrowed mutably.
    pub(crate) unsafe fn from_raw(first: NonNull<f32>, [rows, cols, ld]: [usize; 3]) -> Self {
        Self { first, rows, cols, ld, elements: PhantomData }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The contiguous runs, for writing: see [`MatrixRef::runs`].
    pub fn runs_mut(&mut self, ld: usize) -> impl Iterator<Item = (usize, &mut [f32])> {
        let Self { first, rows, cols, ld: own, .. } = *self;
        let (count, len) = runs(rows, cols, own == cols && ld == cols);
        (0..count).map(move |row| {
            // SAFETY: as in `MatrixRef::runs`, and mutably: no two runs share an element.
            let run = unsafe { slice::from_raw_parts_mut(first.add(row * own).as_ptr(), len) };
            (row * ld, run)
        })
    }
}

/// The leading dimension of a matrix with these strides between rows and between columns.
#[cfg(any(feature = "ndarray", feature = "faer"))]
pub(crate) fn leading_dimension(
    [rows, cols]: [usize; 2],
    [row_stride, col_stride]: [isize; 2],
) -> Result<usize, ViewError> {
    // The stride between rows is meaningless without a second row, and so is that between columns
    // without a second column.
    if rows == 0 || cols == 0 {
        return Ok(cols);
    }
    if cols > 1 && col_stride != 1 {
        return Err(ViewError::NotRowMajor);
    }
    if rows == 1 {
        return Ok(cols);
    }
    let ld = usize::try_from(row_stride).map_err(|_| ViewError::NotRowMajor)?;
    match ld < cols {
        true => Err(ViewError::LeadingDimension { ld, cols }),
        false => Ok(ld),
    }
}

impl<'a> From<&'a Matrix> for MatrixRef<'a> {
    fn from(matrix: &'a Matrix) -> Self {
        let (rows, cols) = (matrix.rows(), matrix.cols());
        // SAFETY: the matrix is borrowed for `'a`.
        unsafe { Self::from_raw(NonNull::from(matrix.as_slice()).cast(), [rows, cols, cols]) }
    }
}

impl<'a> From<&'a mut Matrix> for MatrixMut<'a> {
    fn from(matrix: &'a mut Matrix) -> Self {
        let (rows, cols) = (matrix.rows(), matrix.cols());
        // SAFETY: the matrix is borrowed for `'a`, mutably.
        unsafe { Self::from_raw(NonNull::from(matrix.as_mut_slice()).cast(), [rows, cols, cols]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_as_long_as_both_sides_allow() {
        let data: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let offsets = |rows, cols, own, ld| -> Vec<_> {
            let view = MatrixRef::new(&data, rows, cols, own).unwrap();
            view.runs(ld).map(|(at, run)| (at, run[0] as usize, run.len())).collect()
        };
        assert_eq!(offsets(3, 4, 4, 4), [(0, 0, 12)]);
        assert_eq!(offsets(3, 2, 2, 5), [(0, 0, 2), (5, 2, 2), (10, 4, 2)]);
        assert_eq!(offsets(2, 2, 7, 2), [(0, 0, 2), (2, 7, 2)]);
        assert_eq!(offsets(0, 4, 4, 4), []);
        assert_eq!(offsets(4, 0, 3, 0), []);
        let mut copy = data.clone();
        let mut view = MatrixMut::new(&mut copy, 2, 2, 7).unwrap();
        for (at, run) in view.runs_mut(2) {
            run.fill(-(at as f32));
        }
        assert_eq!(
            (copy[0], copy[1], copy[2], copy[7], copy[8], copy[9]),
            (0., 0., 2., -2., -2., 9.)
        );
    }

    #[test]
    fn views_do_not_reach_over_the_end() {
        let data = [0.0; 5];
        assert!(MatrixRef::new(&data, 2, 2, 3).is_ok());
        let refused = |rows, cols, ld| MatrixRef::new(&data, rows, cols, ld).unwrap_err();
        assert_eq!(refused(2, 3, 3), ViewError::TooShort { needed: 6, len: 5 });
        assert_eq!(refused(2, 3, 2), ViewError::LeadingDimension { ld: 2, cols: 3 });
        let most = usize::MAX;
        assert!(matches!(refused(most, most, most), ViewError::TooShort { .. }));
    }
}
