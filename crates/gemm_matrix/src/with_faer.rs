//! Matrices of `faer`, with the feature `faer`.
//!
//! `faer` stores matrices column after column, so that their transposes are row-major. With
//! transposes of A, B and C, the product is `C^T = B^T * A^T`.

use std::ptr::NonNull;

use faer::{MatMut, MatRef};

use crate::view::{MatrixMut, MatrixRef, ViewError, leading_dimension};

/// ```
/// use faer::Mat;
/// use gemm_matrix::{MatrixRef, ViewError};
///
/// let columns = Mat::from_fn(2, 3, |row, col| (10 * row + col) as f32);
/// let view = MatrixRef::try_from(columns.transpose())?;
/// assert_eq!((view.rows(), view.cols(), view.row(2)), (3, 2, &[2.0, 12.0][..]));
/// assert!(matches!(MatrixRef::try_from(columns.as_ref()), Err(ViewError::NotRowMajor)));
/// # Ok::<(), ViewError>(())
/// ```
///
/// # Errors
///
/// - [`ViewError::NotRowMajor`] if neighbours in a row are not contiguous, as in a column-major
///   matrix, or rows are in reverse order.
/// - [`ViewError::LeadingDimension`] if rows overlap.
impl<'a> TryFrom<MatRef<'a, f32>> for MatrixRef<'a> {
    type Error = ViewError;

    fn try_from(matrix: MatRef<'a, f32>) -> Result<Self, ViewError> {
        let (rows, cols) = matrix.shape();
        let ld = leading_dimension([rows, cols], [matrix.row_stride(), matrix.col_stride()])?;
        let first = NonNull::new(matrix.as_ptr().cast_mut()).unwrap_or(NonNull::dangling());
        // SAFETY: the matrix has these rows, and borrows them for `'a`.
        Ok(unsafe { Self::from_raw(first, [rows, cols, ld]) })
    }
}

/// Converts a mutable view, as for [`MatrixRef`].
impl<'a> TryFrom<MatMut<'a, f32>> for MatrixMut<'a> {
    type Error = ViewError;

    fn try_from(matrix: MatMut<'a, f32>) -> Result<Self, ViewError> {
        let (rows, cols) = matrix.shape();
        let ld = leading_dimension([rows, cols], [matrix.row_stride(), matrix.col_stride()])?;
        let first = NonNull::new(matrix.as_ptr_mut()).unwrap_or(NonNull::dangling());
        // SAFETY: the matrix has these rows, and borrows them for `'a`, mutably.
        Ok(unsafe { Self::from_raw(first, [rows, cols, ld]) })
    }
}

#[cfg(test)]
mod tests {
    use faer::Mat;

    use super::*;

    #[test]
    fn transposes_are_views() {
        let mut columns = Mat::from_fn(4, 3, |row, col| (10 * row + col) as f32);
        let part = columns.as_ref().submatrix(1, 1, 3, 2);
        let view = MatrixRef::try_from(part.transpose()).unwrap();
        assert_eq!((view.rows(), view.cols()), (2, 3));
        assert_eq!(view.ld(), columns.col_stride().unsigned_abs());
        assert_eq!(view.row(1), [12.0, 22.0, 32.0]);
        let part = columns.as_mut().submatrix_mut(2, 0, 2, 3);
        let mut view = MatrixMut::try_from(part.transpose_mut()).unwrap();
        view.runs_mut(7).for_each(|(_, column)| column.fill(-1.0));
        assert_eq!((columns[(1, 2)], columns[(2, 2)], columns[(3, 0)]), (12.0, -1.0, -1.0));
    }

    #[test]
    fn what_is_not_row_major_is_refused() {
        let mut columns = Mat::from_fn(4, 3, |row, col| (10 * row + col) as f32);
        let refused = |view: MatRef<'_, f32>| MatrixRef::try_from(view).unwrap_err();
        assert_eq!(refused(columns.as_ref()), ViewError::NotRowMajor);
        assert_eq!(refused(columns.transpose().reverse_rows()), ViewError::NotRowMajor);
        assert!(MatrixMut::try_from(columns.as_mut()).is_err());
        // A single column has no neighbour in its rows.
        let column = MatrixRef::try_from(columns.as_ref().submatrix(0, 1, 4, 1)).unwrap();
        assert_eq!((column.ld(), column.row(3)), (1, &[31.0][..]));
    }
}
