//! Borrowed matrices with an element type: whole, parts, transposes and batches.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Range};

use cust::memory::{DeviceCopy, DevicePointer, DeviceSlice};
use gemm_matrix::{MatrixRef, Scalar};

use super::memory::copy_to_host;
use super::operand::{OperandMut, OperandRef, expect_room};
use crate::device::Stream;
use crate::error::Error;

/// A borrowed device matrix, or a batch of matrices of one shape.
///
/// A view carries rows, columns, a leading dimension, a transposition and a batch. It copies
/// nothing.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let matrix = DeviceMatrix::from_slice(&device, [4, 3], &[0f32, 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11.])?;
/// let part = matrix.submatrix(1..3, 1..3)?;
/// assert_eq!((part.rows(), part.cols(), part.ld()), (2, 2, 3));
/// assert_eq!(part.t().download()?.as_slice(), [4.0, 7.0, 5.0, 8.0]);
///
/// // Two matrices of 2 x 3, one below the other, and three of 4 x 1, side by side.
/// let below = matrix.batch(2)?;
/// assert_eq!((below.count(), below.rows(), below.stride()), (2, 2, 6));
/// let beside = matrix.view().batch_cols(3)?;
/// assert_eq!((beside.count(), beside.cols(), beside.stride()), (3, 1, 1));
/// // No view drops the batch.
/// assert!(below.batch(2).is_err() && below.download().is_err());
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
pub struct DeviceMatrixRef<'m, T> {
    pub(super) operand: OperandRef<'m>,
    elements: PhantomData<&'m [T]>,
}

impl<T> Clone for DeviceMatrixRef<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DeviceMatrixRef<'_, T> {}

impl<T> fmt::Debug for DeviceMatrixRef<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operand.fmt(f)
    }
}

impl<'m, T> Deref for DeviceMatrixRef<'m, T> {
    type Target = OperandRef<'m>;

    fn deref(&self) -> &OperandRef<'m> {
        &self.operand
    }
}

/// A mutably borrowed device matrix or batch.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Matrix, gemm};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let one = DeviceMatrix::from_slice(&device, [2, 2], &[1f32; 4])?;
/// let mut c = DeviceMatrix::<f32>::zeros(&device, [5, 2])?;
/// // The upper part is a product, the lower part a copy.
/// let (mut above, mut below) = c.view_mut().split_at_row(2)?;
/// gemm(&one, &one).run(&mut above)?;
/// below.upload(&Matrix::from_fn(3, 2, |_, _| 3.0))?;
/// assert_eq!(c.to_vec()?, [2.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
pub struct DeviceMatrixMut<'m, T> {
    pub(super) operand: OperandMut<'m>,
    elements: PhantomData<&'m mut [T]>,
}

impl<T> fmt::Debug for DeviceMatrixMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operand.fmt(f)
    }
}

impl<'m, T: Scalar> DeviceMatrixRef<'m, T> {
    /// Gives a view's elements this type.
    pub(super) fn new(operand: OperandRef<'m>) -> Self {
        Self { operand, elements: PhantomData }
    }

    /// A matrix in another buffer, from the slice's first element on.
    ///
    /// ```
    /// use cuda_gemm::{Device, DeviceChoice, DeviceMatrixRef};
    /// use cust::memory::DeviceBuffer;
    ///
    /// let device = Device::open(DeviceChoice::Soft)?;
    /// let stream = device.stream();
    /// let _current = device.enter()?;
    /// let buffer = DeviceBuffer::from_slice(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0f32]).unwrap();
    /// let slice = buffer.index(1..);
    /// // SAFETY: the buffer is on this device, and no other stream uses it.
    /// let matrix = unsafe { DeviceMatrixRef::from_slice(&stream, &slice, [2, 2], 3)? };
    /// assert_eq!(matrix.download()?.as_slice(), [1.0, 2.0, 4.0, 5.0]);
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LeadingDimension`], or [`Error::BufferTooShort`].
    ///
    /// # Safety
    ///
    /// - The slice is initialised, and in the memory of the stream's device.
    /// - Every other use of it, on another stream or on none, ends before the view is made, or
    ///   begins after the stream's work with it is done.
    pub unsafe fn from_slice(
        stream: &'m Stream,
        slice: &'m DeviceSlice<T>,
        shape: [usize; 2],
        ld: usize,
    ) -> Result<Self, Error>
    where
        T: DeviceCopy,
    {
        expect_room(slice.len(), shape, ld)?;
        let address = slice.as_device_ptr().as_raw();
        Ok(Self::new(OperandRef::new(stream, T::ELEMENT, address, shape, ld)))
    }

    /// A matrix at a device address that another library owns.
    ///
    /// # Errors
    ///
    /// [`Error::LeadingDimension`].
    ///
    /// # Safety
    ///
    /// The contract of [`DeviceMatrixRef::from_slice`], for the elements from the first to the last
    /// of the matrix. The address is aligned for them.
    pub unsafe fn from_address(
        stream: &'m Stream,
        address: u64,
        shape: [usize; 2],
        ld: usize,
    ) -> Result<Self, Error> {
        expect_room(usize::MAX, shape, ld)?;
        Ok(Self::new(OperandRef::new(stream, T::ELEMENT, address, shape, ld)))
    }

    /// The transpose of each matrix, in the same memory.
    #[must_use]
    pub fn t(self) -> Self {
        Self::new(self.operand.t())
    }

    /// A part of each matrix: see [`OperandRef::submatrix`].
    ///
    /// # Errors
    ///
    /// See [`OperandRef::submatrix`].
    pub fn submatrix(self, rows: Range<usize>, cols: Range<usize>) -> Result<Self, Error> {
        Ok(Self::new(self.operand.submatrix(rows, cols)?))
    }

    /// The matrix as a batch, one below the other: see [`OperandRef::batch`].
    ///
    /// # Errors
    ///
    /// See [`OperandRef::batch`].
    pub fn batch(self, count: usize) -> Result<Self, Error> {
        Ok(Self::new(self.operand.batch(count)?))
    }

    /// The matrix as a batch, side by side: see [`OperandRef::batch_cols`].
    ///
    /// # Errors
    ///
    /// See [`OperandRef::batch_cols`].
    pub fn batch_cols(self, count: usize) -> Result<Self, Error> {
        Ok(Self::new(self.operand.batch_cols(count)?))
    }

    /// Turns each row into a matrix.
    ///
    /// ```
    /// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Error, Matrix, gemm};
    ///
    /// let device = Device::open(DeviceChoice::Soft)?;
    /// // Two products of 2 x 3 and 3 x 1, with a leading dimension of 4, and 10 elements from one
    /// // A to the next: three more than each spans.
    /// let padded = DeviceMatrix::<f32>::from_host(&device, &Matrix::from_fn(2, 10, |_, i| i as f32))?;
    /// let a = padded.view().rows_as_matrices([2, 3], 4)?;
    /// assert_eq!((a.count(), a.stride(), a.ld()), (2, 10, 4));
    /// let b = DeviceMatrix::from_slice(&device, [3, 1], &[1f32; 3])?;
    /// let mut c = DeviceMatrix::<f32>::zeros(&device, [2, 5])?;
    /// gemm(a, &b).run(&mut c.view_mut().rows_as_matrices([2, 1], 1)?)?;
    /// assert_eq!(c.to_vec()?, [3.0, 15.0, 0.0, 0.0, 0.0, 3.0, 15.0, 0.0, 0.0, 0.0]);
    ///
    /// let refused = padded.view().rows_as_matrices([3, 3], 4);
    /// assert!(matches!(refused, Err(Error::BufferTooShort { needed: 11, len: 10 })));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`OperandRef::rows_as_matrices`].
    pub fn rows_as_matrices(self, shape: [usize; 2], ld: usize) -> Result<Self, Error> {
        Ok(Self::new(self.operand.rows_as_matrices(shape, ld)?))
    }

    /// Repeats one matrix for `count` products: see [`OperandRef::broadcast`].
    ///
    /// # Errors
    ///
    /// See [`OperandRef::broadcast`].
    pub fn broadcast(self, count: usize) -> Result<Self, Error> {
        Ok(Self::new(self.operand.broadcast(count)?))
    }

    /// Copies the matrix to the host without conversion, row after row.
    ///
    /// # Errors
    ///
    /// The errors of [`OperandRef::download`], and [`Error::Transposed`] for a transpose.
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        let view = &self.operand;
        if view.is_transposed() {
            return Err(Error::Transposed);
        }
        if view.count() != 1 {
            return Err(Error::NestedBatch { count: view.count() });
        }
        let ([rows, cols], ld, stream) = ([view.rows(), view.cols()], view.ld(), view.stream());
        let mut elements = Vec::<T>::with_capacity(rows * cols);
        if rows == 0 || cols == 0 {
            return Ok(elements);
        }
        let at_once = if ld == cols { rows * cols } else { cols };
        let _exclusive = stream.exclusive();
        let parts = elements.spare_capacity_mut()[..rows * cols].chunks_exact_mut(at_once);
        let copied = parts.enumerate().try_for_each(|(i, part)| {
            let address = view.address() + (i * ld * size_of::<T>()) as u64;
            // SAFETY: the matrix has these elements, initialised. Nobody reads the copy before it
            // is waited for.
            unsafe { copy_to_host(stream, address, part) }
        });
        stream.synchronize().and(copied)?;
        // SAFETY: all were copied.
        unsafe { elements.set_len(rows * cols) };
        Ok(elements)
    }

    /// The address of the first element.
    pub fn as_device_ptr(&self) -> DevicePointer<T>
    where
        T: DeviceCopy,
    {
        DevicePointer::from_raw(self.operand.address())
    }
}

impl<'m, T: Scalar> DeviceMatrixMut<'m, T> {
    /// Gives a view's elements this type.
    pub(super) fn new(operand: OperandMut<'m>) -> Self {
        Self { operand, elements: PhantomData }
    }

    /// A matrix in another buffer, for writing: see [`DeviceMatrixRef::from_slice`].
    ///
    /// # Errors
    ///
    /// See [`DeviceMatrixRef::from_slice`].
    ///
    /// # Safety
    ///
    /// The contract of [`DeviceMatrixRef::from_slice`].
    pub unsafe fn from_slice(
        stream: &'m Stream,
        slice: &'m mut DeviceSlice<T>,
        shape: [usize; 2],
        ld: usize,
    ) -> Result<Self, Error>
    where
        T: DeviceCopy,
    {
        // SAFETY: the caller's contract.
        let view = unsafe { DeviceMatrixRef::from_slice(stream, slice, shape, ld) }?;
        Ok(Self::new(OperandMut::new(view.operand)))
    }

    /// A matrix at a device address, for writing: see [`DeviceMatrixRef::from_address`].
    ///
    /// # Errors
    ///
    /// See [`DeviceMatrixRef::from_address`].
    ///
    /// # Safety
    ///
    /// The contract of [`DeviceMatrixRef::from_address`]. Nothing else names the elements while the
    /// view exists.
    pub unsafe fn from_address(
        stream: &'m Stream,
        address: u64,
        shape: [usize; 2],
        ld: usize,
    ) -> Result<Self, Error> {
        // SAFETY: the caller's contract.
        let view = unsafe { DeviceMatrixRef::<T>::from_address(stream, address, shape, ld) }?;
        Ok(Self::new(OperandMut::new(view.operand)))
    }

    /// A part of each matrix: see [`OperandRef::submatrix`].
    ///
    /// # Errors
    ///
    /// See [`OperandRef::submatrix`].
    pub fn submatrix(self, rows: Range<usize>, cols: Range<usize>) -> Result<Self, Error> {
        Ok(Self::new(self.operand.submatrix(rows, cols)?))
    }

    /// Splits the matrix into the rows above `row` and the rest.
    ///
    /// # Errors
    ///
    /// [`Error::Submatrix`] if `row` exceeds the rows.
    pub fn split_at_row(self, row: usize) -> Result<(Self, Self), Error> {
        let (above, below) = self.operand.split_at_row(row)?;
        Ok((Self::new(above), Self::new(below)))
    }

    /// The matrix as a batch, one below the other: see [`OperandRef::batch`].
    ///
    /// # Errors
    ///
    /// See [`OperandRef::batch`].
    pub fn batch(self, count: usize) -> Result<Self, Error> {
        Ok(Self::new(self.operand.batch(count)?))
    }

    /// The matrix as a batch, side by side: see [`OperandRef::batch_cols`].
    ///
    /// # Errors
    ///
    /// See [`OperandRef::batch_cols`].
    pub fn batch_cols(self, count: usize) -> Result<Self, Error> {
        Ok(Self::new(self.operand.batch_cols(count)?))
    }

    /// Turns each row into a matrix: see [`OperandRef::rows_as_matrices`].
    ///
    /// # Errors
    ///
    /// See [`OperandRef::rows_as_matrices`].
    pub fn rows_as_matrices(self, shape: [usize; 2], ld: usize) -> Result<Self, Error> {
        Ok(Self::new(self.operand.rows_as_matrices(shape, ld)?))
    }

    /// Copies a host matrix of this shape into this one: see [`OperandMut::upload`].
    ///
    /// # Errors
    ///
    /// See [`OperandMut::upload`].
    pub fn upload<'h>(&mut self, matrix: impl Into<MatrixRef<'h>>) -> Result<(), Error> {
        self.operand.upload(matrix)
    }

    /// The matrices, for reading.
    pub fn view(&self) -> DeviceMatrixRef<'_, T> {
        DeviceMatrixRef::new(self.operand.view())
    }

    /// The matrices, reborrowed for a shorter time.
    pub fn view_mut(&mut self) -> DeviceMatrixMut<'_, T> {
        DeviceMatrixMut::new(self.operand.view_mut())
    }

    /// The matrices, for reading during the whole borrow; nothing else may write them then.
    pub(super) fn into_view(self) -> DeviceMatrixRef<'m, T> {
        DeviceMatrixRef::new(self.operand.into_view())
    }
}
