//! Borrowed batches: matrices of one shape at constant strides, for a strided batch of products.

use std::marker::PhantomData;

use super::owned::DeviceMatrix;
use super::view::{DeviceMatrixMut, DeviceMatrixRef, expect_room};
use crate::error::Error;

/// Matrices of one shape in a device's memory, borrowed: what a
/// [batch](crate::Gemm::batched) of products takes.
///
/// A matrix is a batch of one.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm, Matrix};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// // Three products: of matrices one below the other, the same B for all, and side by side.
/// let a = DeviceMatrix::from_host(&device, &Matrix::from_fn(3 * 2, 4, |row, _| row as f32))?;
/// let b = DeviceMatrix::from_host(&device, &Matrix::from_fn(4, 1, |_, _| 0.25))?;
/// let mut c = DeviceMatrix::zeros(&device, 2, 3)?;
///
/// let (batch_a, batch_b) = (a.view().split_rows(3)?, b.view().broadcast(3));
/// let batch_c = c.view_mut().split_cols(3)?;
/// assert_eq!([batch_a.stride(), batch_b.stride(), batch_c.view().stride()], [8, 0, 1]);
/// assert_eq!((batch_a.count(), batch_a.first().rows()), (3, 2));
///
/// let gemm = Gemm::new(2, 1, 4).leading_dimensions(4, 1, 3).batched(3, [8, 0, 1]);
/// device.auto()?.prepare(gemm)?.enqueue(batch_a, batch_b, batch_c)?;
/// assert_eq!(c.download()?.as_slice(), [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DeviceBatchRef<'a> {
    first: DeviceMatrixRef<'a>,
    count: usize,
    stride: usize,
}

/// Matrices of one shape in a device's memory, borrowed to be written: see [`DeviceBatchRef`].
#[derive(Debug)]
pub struct DeviceBatchMut<'a> {
    batch: DeviceBatchRef<'a>,
    exclusive: PhantomData<&'a mut [f32]>,
}

impl<'a> DeviceBatchRef<'a> {
    /// How many matrices there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Elements from one matrix to the next; 0 if all are the same.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The first matrix, whose shape and leading dimension all have.
    pub fn first(&self) -> DeviceMatrixRef<'a> {
        self.first
    }
}

impl DeviceBatchMut<'_> {
    /// The same batch, to be read.
    pub fn view(&self) -> DeviceBatchRef<'_> {
        self.batch
    }
}

impl<'a> DeviceMatrixRef<'a> {
    /// The matrix as `count` matrices of equal shape, one below the other.
    ///
    /// # Errors
    ///
    /// [`Error::Split`] if `count` does not divide the rows, or is 0.
    pub fn split_rows(self, count: usize) -> Result<DeviceBatchRef<'a>, Error> {
        let rows = part("rows", self.rows(), count)?;
        let first = self.submatrix(0..rows, 0..self.cols())?;
        Ok(DeviceBatchRef { first, count, stride: rows.wrapping_mul(self.ld()) })
    }

    /// The matrix as `count` matrices of equal shape, side by side.
    ///
    /// # Errors
    ///
    /// [`Error::Split`] if `count` does not divide the columns, or is 0.
    pub fn split_cols(self, count: usize) -> Result<DeviceBatchRef<'a>, Error> {
        let cols = part("columns", self.cols(), count)?;
        let first = self.submatrix(0..self.rows(), 0..cols)?;
        Ok(DeviceBatchRef { first, count, stride: cols })
    }

    /// Each row as a matrix of its own, `rows` x `cols` with the leading dimension `ld`: so a batch of any
    /// stride is a matrix that has it as its leading dimension.
    ///
    /// ```
    /// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Error, Gemm, Matrix};
    ///
    /// let device = Device::open(DeviceChoice::Soft)?;
    /// // Two products of 2 x 3 and 3 x 1, with a leading dimension of 4, and 10 elements from one A
    /// // to the next: three more than each spans.
    /// let padded = DeviceMatrix::from_host(&device, &Matrix::from_fn(2, 10, |_, i| i as f32))?;
    /// let a = padded.view().rows_as_matrices(2, 3, 4)?;
    /// assert_eq!((a.count(), a.stride(), a.first().ld()), (2, 10, 4));
    /// let b = DeviceMatrix::from_host(&device, &Matrix::from_fn(3, 1, |_, _| 1.0))?;
    /// let mut c = DeviceMatrix::zeros(&device, 2, 5)?;
    ///
    /// let gemm = Gemm::new(2, 1, 3).leading_dimensions(4, 1, 1).batched(2, [10, 0, 5]);
    /// let plan = device.auto()?.prepare(gemm)?;
    /// plan.enqueue(a, b.view().broadcast(2), c.view_mut().rows_as_matrices(2, 1, 1)?)?;
    /// assert_eq!(c.download()?.as_slice(), [3.0, 15.0, 0.0, 0.0, 0.0, 3.0, 15.0, 0.0, 0.0, 0.0]);
    ///
    /// let refused = padded.view().rows_as_matrices(3, 3, 4);
    /// assert!(matches!(refused, Err(Error::BufferTooShort { needed: 11, len: 10 })));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LeadingDimension`] if `ld` is less than `cols`, and [`Error::BufferTooShort`] if a row has
    /// no room for such a matrix.
    pub fn rows_as_matrices(
        self,
        rows: usize,
        cols: usize,
        ld: usize,
    ) -> Result<DeviceBatchRef<'a>, Error> {
        expect_room(self.cols(), [rows, cols, ld])?;
        let first = self.reshaped([rows, cols, ld]);
        Ok(DeviceBatchRef { first, count: self.rows(), stride: self.ld() })
    }

    /// The same matrix for `count` products.
    pub fn broadcast(self, count: usize) -> DeviceBatchRef<'a> {
        DeviceBatchRef { first: self, count, stride: 0 }
    }
}

impl<'a> DeviceMatrixMut<'a> {
    /// As [`DeviceMatrixRef::split_rows`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn split_rows(self, count: usize) -> Result<DeviceBatchMut<'a>, Error> {
        Ok(DeviceBatchMut { batch: self.into_view().split_rows(count)?, exclusive: PhantomData })
    }

    /// As [`DeviceMatrixRef::split_cols`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn split_cols(self, count: usize) -> Result<DeviceBatchMut<'a>, Error> {
        Ok(DeviceBatchMut { batch: self.into_view().split_cols(count)?, exclusive: PhantomData })
    }
}

impl<'a> DeviceMatrixMut<'a> {
    /// As [`DeviceMatrixRef::rows_as_matrices`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn rows_as_matrices(
        self,
        rows: usize,
        cols: usize,
        ld: usize,
    ) -> Result<DeviceBatchMut<'a>, Error> {
        let batch = self.into_view().rows_as_matrices(rows, cols, ld)?;
        Ok(DeviceBatchMut { batch, exclusive: PhantomData })
    }
}

impl DeviceBatchMut<'_> {
    /// So many matrices, which lie one below the other in the only one.
    pub(super) fn split_rows(self, count: usize) -> Result<Self, Error> {
        Ok(Self { batch: self.batch.first.split_rows(count)?, ..self })
    }
}

/// How much of a matrix each of `count` parts has.
pub(super) fn part(what: &'static str, all: usize, count: usize) -> Result<usize, Error> {
    match all.checked_rem(count) {
        Some(0) => Ok(all / count),
        _ => Err(Error::Split { what, all, count }),
    }
}

impl<'a> From<DeviceMatrixRef<'a>> for DeviceBatchRef<'a> {
    fn from(first: DeviceMatrixRef<'a>) -> Self {
        Self { first, count: 1, stride: 0 }
    }
}

impl<'a> From<&'a DeviceMatrix> for DeviceBatchRef<'a> {
    fn from(matrix: &'a DeviceMatrix) -> Self {
        matrix.view().into()
    }
}

impl<'a> From<DeviceMatrixMut<'a>> for DeviceBatchMut<'a> {
    fn from(matrix: DeviceMatrixMut<'a>) -> Self {
        Self { batch: matrix.into_view().into(), exclusive: PhantomData }
    }
}

impl<'a> From<&'a mut DeviceMatrix> for DeviceBatchMut<'a> {
    fn from(matrix: &'a mut DeviceMatrix) -> Self {
        matrix.view_mut().into()
    }
}
