//! Matrices of `ndarray`, with the feature `ndarray`.

use std::ptr::NonNull;

use ndarray::{Array2, ArrayView2, ArrayViewMut2};

use crate::matrix::Matrix;
use crate::view::{MatrixMut, MatrixRef, ViewError, leading_dimension};

/// ```
/// use gemm_matrix::MatrixRef;
/// use ndarray::{Array2, s};
///
/// let array = Array2::<f32>::zeros((4, 6));
/// let view = MatrixRef::try_from(array.slice(s![1..3, 2..5]))?;
/// assert_eq!((view.rows(), view.cols(), view.ld()), (2, 3, 6));
/// assert!(MatrixRef::try_from(array.t()).is_err());
/// # Ok::<(), gemm_matrix::ViewError>(())
/// ```
///
/// # Errors
///
/// - [`ViewError::NotRowMajor`] if neighbours in a row are not contiguous, or rows are in reverse
///   order.
/// - [`ViewError::LeadingDimension`] if rows overlap, as broadcast rows do.
impl<'a> TryFrom<ArrayView2<'a, f32>> for MatrixRef<'a> {
    type Error = ViewError;

    fn try_from(array: ArrayView2<'a, f32>) -> Result<Self, ViewError> {
        let (rows, cols) = array.dim();
        let ld = leading_dimension([rows, cols], [array.strides()[0], array.strides()[1]])?;
        let first = NonNull::new(array.as_ptr().cast_mut()).unwrap_or(NonNull::dangling());
        // SAFETY: the array has these rows, and borrows them for `'a`.
        Ok(unsafe { Self::from_raw(first, [rows, cols, ld]) })
    }
}

/// Converts a mutable view, as for [`MatrixRef`].
impl<'a> TryFrom<ArrayViewMut2<'a, f32>> for MatrixMut<'a> {
    type Error = ViewError;

    fn try_from(mut array: ArrayViewMut2<'a, f32>) -> Result<Self, ViewError> {
        let (rows, cols) = array.dim();
        let ld = leading_dimension([rows, cols], [array.strides()[0], array.strides()[1]])?;
        let first = NonNull::new(array.as_mut_ptr()).unwrap_or(NonNull::dangling());
        // SAFETY: the array has these rows, and borrows them for `'a`, mutably.
        Ok(unsafe { Self::from_raw(first, [rows, cols, ld]) })
    }
}

/// ```
/// use gemm_matrix::Matrix;
/// use ndarray::{Array2, array};
///
/// let matrix = Matrix::from(array![[1.0, 2.0], [3.0, 4.0]]);
/// assert_eq!(matrix.row(1), [3.0, 4.0]);
/// assert_eq!(Array2::from(matrix), array![[1.0, 2.0], [3.0, 4.0]]);
/// ```
impl From<Matrix> for Array2<f32> {
    fn from(matrix: Matrix) -> Self {
        let shape = (matrix.rows(), matrix.cols());
        Self::from_shape_vec(shape, matrix.into_vec()).expect("as many elements as the shape has")
    }
}

/// Copies the elements only if the array is not row-major.
impl From<Array2<f32>> for Matrix {
    fn from(array: Array2<f32>) -> Self {
        let (rows, cols) = array.dim();
        let elements = match array.is_standard_layout() {
            true => {
                let (mut elements, first) = array.into_raw_vec_and_offset();
                elements.drain(..first.unwrap_or(0));
                elements.truncate(rows * cols);
                elements
            }
            false => array.iter().copied().collect(),
        };
        Self::from_vec(rows, cols, elements)
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, Axis, s};

    use super::*;

    fn counting(rows: usize, cols: usize) -> Array2<f32> {
        Array2::from_shape_fn((rows, cols), |(row, col)| (10 * row + col) as f32)
    }

    #[test]
    fn parts_of_arrays_are_views() {
        let array = counting(5, 7);
        let view = MatrixRef::try_from(array.slice(s![1..4, 2..5])).unwrap();
        assert_eq!((view.rows(), view.cols(), view.ld()), (3, 3, 7));
        assert_eq!(view.row(2), [32.0, 33.0, 34.0]);
        // Every other row.
        let view = MatrixRef::try_from(array.slice(s![..;2, ..])).unwrap();
        assert_eq!((view.rows(), view.ld(), view.row(2)[6]), (3, 14, 46.0));
        // A column, a row of a transposed one-column array, and an empty part.
        let view = MatrixRef::try_from(array.slice(s![.., 3..4])).unwrap();
        assert_eq!((view.ld(), view.row(4)), (7, &[43.0][..]));
        let view = MatrixRef::try_from(counting(1, 4).into_shape_with_order((4, 1)).unwrap().t())
            .map(|view| (view.rows(), view.cols(), view.ld()));
        assert_eq!(view, Ok((1, 4, 4)));
        assert_eq!(MatrixRef::try_from(array.slice(s![2..2, ..])).unwrap().rows(), 0);
        assert_eq!(MatrixRef::try_from(array.slice(s![.., 2..2])).unwrap().cols(), 0);
    }

    #[test]
    fn what_is_not_row_major_is_refused() {
        let array = counting(3, 4);
        let refused = |view: ArrayView2<'_, f32>| MatrixRef::try_from(view).unwrap_err();
        assert_eq!(refused(array.t()), ViewError::NotRowMajor);
        assert_eq!(refused(array.slice(s![.., ..;2])), ViewError::NotRowMajor);
        assert_eq!(refused(array.slice(s![..;-1, ..])), ViewError::NotRowMajor);
        let row = array.row(0);
        let same = row.broadcast((3, 4)).unwrap();
        assert_eq!(refused(same), ViewError::LeadingDimension { ld: 0, cols: 4 });
    }

    /// Two adjacent halves of an array are both borrowed mutably.
    #[test]
    fn halves_are_written_side_by_side() {
        let mut array = counting(3, 4);
        let (left, right) = array.view_mut().split_at(Axis(1), 1);
        let mut left = MatrixMut::try_from(left).unwrap();
        let mut right = MatrixMut::try_from(right).unwrap();
        let runs = left.runs_mut(1).zip(right.runs_mut(3));
        runs.for_each(|((_, left), (_, right))| left[0] = right.iter().sum());
        assert_eq!(array.column(0).to_vec(), [6.0, 36.0, 66.0]);
        assert!(MatrixMut::try_from(array.view_mut().reversed_axes()).is_err());
    }

    #[test]
    fn arrays_and_matrices_become_each_other() {
        let expected = Matrix::from_fn(3, 4, |row, col| (10 * row + col) as f32);
        assert_eq!(Matrix::from(counting(3, 4)), expected);
        assert_eq!(Array2::from(expected.clone()), counting(3, 4));
        assert_eq!(Matrix::from(counting(5, 6).slice_move(s![..3, ..4])), expected);
        let rows = counting(5, 4).slice_move(s![1..3, ..]);
        assert_eq!(Matrix::from(rows).as_slice(), &counting(5, 4).as_slice().unwrap()[4..12]);
        let columns = counting(4, 3).reversed_axes();
        assert_eq!(Matrix::from(columns).row(1), [1.0, 11.0, 21.0, 31.0]);
        assert_eq!(Matrix::from(Array2::zeros((3, 0))), Matrix::zeros(3, 0));
    }
}
