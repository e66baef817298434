//! Borrowed matrices: all of one, or elements in a slice with a leading dimension.

use crate::Matrix;

/// What is wrong with a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// A leading dimension shorter than the rows it separates.
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
    /// An array whose rows are not stored element after element.
    #[error("the rows of the array are not contiguous; copy it to row-major order first")]
    NotRowMajor,
}

/// A row-major matrix in borrowed memory.
///
/// ```
/// use gemm_matrix::MatrixRef;
///
/// // Two rows of two, three elements apart.
/// let data = [1.0, 2.0, 9.0, 3.0, 4.0];
/// let matrix = MatrixRef::new(&data, 2, 2, 3)?;
/// assert_eq!(matrix.row(1), [3.0, 4.0]);
/// # Ok::<(), gemm_matrix::ViewError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MatrixRef<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    ld: usize,
}

/// A row-major matrix in borrowed memory, to be written.
#[derive(Debug)]
pub struct MatrixMut<'a> {
    data: &'a mut [f32],
    rows: usize,
    cols: usize,
    ld: usize,
}

/// How many elements a view must reach over.
fn expect_room(len: usize, rows: usize, cols: usize, ld: usize) -> Result<(), ViewError> {
    if ld < cols {
        return Err(ViewError::LeadingDimension { ld, cols });
    }
    // The last row ends after its last element, not after `ld` of them.
    let needed = match rows {
        0 => 0,
        _ => (rows as u128 - 1) * ld as u128 + cols as u128,
    };
    if needed > len as u128 {
        return Err(ViewError::TooShort { needed, len });
    }
    Ok(())
}

/// Of a matrix: how many runs of neighbouring elements there are, and how long each is, if both
/// it and its copy, with these leading dimensions, have them side by side.
fn runs(rows: usize, cols: usize, dense: bool) -> (usize, usize) {
    match (rows == 0 || cols == 0, dense) {
        (true, _) => (0, 1),
        // The product is no more than the slice has.
        (false, true) => (1, rows * cols),
        (false, false) => (rows, cols),
    }
}

impl<'a> MatrixRef<'a> {
    /// `rows` x `cols` elements, from the slice's first one on; `ld` elements lie between the
    /// beginnings of rows.
    ///
    /// # Errors
    ///
    /// [`ViewError::LeadingDimension`] or [`ViewError::TooShort`].
    pub fn new(data: &'a [f32], rows: usize, cols: usize, ld: usize) -> Result<Self, ViewError> {
        expect_room(data.len(), rows, cols, ld)?;
        Ok(Self { data, rows, cols, ld })
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The leading dimension, in elements.
    pub fn ld(&self) -> usize {
        self.ld
    }

    /// One row.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    pub fn row(&self, row: usize) -> &'a [f32] {
        assert!(row < self.rows, "row {row} of a {} x {} matrix", self.rows, self.cols);
        &self.data[row * self.ld..][..self.cols]
    }

    /// The longest runs of elements that lie side by side here and in a copy with the leading
    /// dimension `ld`: where each begins in the copy, and the elements.
    pub fn runs(&self, ld: usize) -> impl Iterator<Item = (usize, &'a [f32])> + use<'a> {
        let Self { data, rows, cols, ld: own } = *self;
        let (count, len) = runs(rows, cols, own == cols && ld == cols);
        (0..count).map(move |row| (row * ld, &data[row * own..][..len]))
    }
}

impl<'a> MatrixMut<'a> {
    /// As [`MatrixRef::new`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn new(
        data: &'a mut [f32],
        rows: usize,
        cols: usize,
        ld: usize,
    ) -> Result<Self, ViewError> {
        expect_room(data.len(), rows, cols, ld)?;
        Ok(Self { data, rows, cols, ld })
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// As [`MatrixRef::runs`].
    pub fn runs_mut(&mut self, ld: usize) -> impl Iterator<Item = (usize, &mut [f32])> {
        let (rows, cols, own) = (self.rows, self.cols, self.ld);
        let (count, len) = runs(rows, cols, own == cols && ld == cols);
        let step = if count > 1 { own } else { len };
        let rows = self.data.chunks_mut(step.max(1)).take(count);
        rows.enumerate().map(move |(row, elements)| (row * ld, &mut elements[..len]))
    }
}

impl<'a> From<&'a Matrix> for MatrixRef<'a> {
    fn from(matrix: &'a Matrix) -> Self {
        let (rows, cols) = (matrix.rows(), matrix.cols());
        Self { data: matrix.as_slice(), rows, cols, ld: cols }
    }
}

impl<'a> From<&'a mut Matrix> for MatrixMut<'a> {
    fn from(matrix: &'a mut Matrix) -> Self {
        let (rows, cols) = (matrix.rows(), matrix.cols());
        Self { data: matrix.as_mut_slice(), rows, cols, ld: cols }
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
