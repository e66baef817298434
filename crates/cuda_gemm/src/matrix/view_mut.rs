//! Borrowed matrices, for writing.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use cust::memory::{DeviceCopy, DeviceSlice};
use gemm_matrix::{Element, MatrixRef, Scalar};

use super::memory::copy_from_host;
use super::view::DeviceMatrixRef;
use crate::device::Stream;
use crate::error::Error;

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
    view: DeviceMatrixRef<'m, T>,
    exclusive: PhantomData<&'m mut [T]>,
}

impl<T> fmt::Debug for DeviceMatrixMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt(f)
    }
}

impl<'m, T> DeviceMatrixMut<'m, T> {
    /// Borrows a view's matrices mutably.
    pub(super) fn new(view: DeviceMatrixRef<'m, T>) -> Self {
        Self { view, exclusive: PhantomData }
    }

    /// A part of each matrix: see [`DeviceMatrixRef::submatrix`].
    ///
    /// # Errors
    ///
    /// See [`DeviceMatrixRef::submatrix`].
    pub fn submatrix(self, rows: Range<usize>, cols: Range<usize>) -> Result<Self, Error> {
        Ok(Self::new(self.view.submatrix(rows, cols)?))
    }

    /// Splits the matrix into the rows above `row` and the rest.
    ///
    /// # Errors
    ///
    /// [`Error::Submatrix`] if `row` exceeds the rows.
    pub fn split_at_row(self, row: usize) -> Result<(Self, Self), Error> {
        let (view, [rows, cols]) = (self.view, [self.view.rows(), self.view.cols()]);
        let [above, below] = [0..row, row..rows].map(|rows| view.submatrix(rows, 0..cols));
        Ok((Self::new(above?), Self::new(below?)))
    }

    /// The stream that uses the matrices.
    pub fn stream(&self) -> &'m Stream {
        self.view.stream()
    }

    /// The same matrices, used by another stream of the device.
    ///
    /// # Safety
    ///
    /// As for [`DeviceMatrixRef::on`]. That stream also waits for earlier work that reads them, and
    /// so do later readers for that stream.
    #[must_use]
    pub unsafe fn on(self, stream: &'m Stream) -> Self {
        // SAFETY: the caller's contract.
        Self::new(unsafe { self.view.on(stream) })
    }

    /// Splits the matrix into a batch, one below the other: see [`DeviceMatrixRef::batch`].
    ///
    /// # Errors
    ///
    /// See [`DeviceMatrixRef::batch`].
    pub fn batch(self, count: usize) -> Result<Self, Error> {
        Ok(Self::new(self.view.batch(count)?))
    }

    /// Splits the matrix into a batch, side by side: see [`DeviceMatrixRef::batch_cols`].
    ///
    /// # Errors
    ///
    /// See [`DeviceMatrixRef::batch_cols`].
    pub fn batch_cols(self, count: usize) -> Result<Self, Error> {
        Ok(Self::new(self.view.batch_cols(count)?))
    }

    /// Turns each row into a matrix: see [`DeviceMatrixRef::rows_as_matrices`].
    ///
    /// # Errors
    ///
    /// See [`DeviceMatrixRef::rows_as_matrices`].
    pub fn rows_as_matrices(self, shape: [usize; 2], ld: usize) -> Result<Self, Error> {
        Ok(Self::new(self.view.rows_as_matrices(shape, ld)?))
    }

    /// Copies a host matrix of this shape into this one, and waits.
    ///
    /// The copy follows the stream's earlier work. Elements are rounded to the nearest, ties to
    /// even. Gaps between rows stay unchanged.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`], [`Error::Driver`], or [`Error::NestedBatch`] for a batch.
    pub fn upload<'h>(&mut self, matrix: impl Into<MatrixRef<'h>>) -> Result<(), Error> {
        let (view, matrix) = (&self.view, matrix.into());
        view.expect_host([matrix.rows(), matrix.cols()])?;
        let (stream, element) = (view.stream(), view.element());
        let _exclusive = stream.exclusive();
        // Kept until the copies are done.
        let mut encoded = Vec::new();
        let copied = matrix.runs(view.ld()).try_for_each(|(offset, run)| {
            let address = view.placement().offset(offset);
            if element == Element::F32 {
                // SAFETY: the matrix has these elements, and the copy is waited for below.
                return unsafe { copy_from_host(stream, address, run) };
            }
            encoded.push(element.encode(run));
            let bytes = encoded.last().map_or(&[][..], |bytes| bytes);
            // SAFETY: as above; the vector that moves does not move the bytes.
            unsafe { copy_from_host(stream, address, bytes) }
        });
        stream.synchronize().and(copied)
    }

    /// The matrices, for reading.
    pub fn view(&self) -> DeviceMatrixRef<'_, T> {
        self.view
    }

    /// The matrices, reborrowed for a shorter time.
    pub fn view_mut(&mut self) -> DeviceMatrixMut<'_, T> {
        DeviceMatrixMut::new(self.view)
    }

    /// The matrices, for reading during the whole borrow; nothing else may write them then.
    pub(super) fn into_view(self) -> DeviceMatrixRef<'m, T> {
        self.view
    }
}

impl<'m, T: Scalar> DeviceMatrixMut<'m, T> {
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
        Ok(Self::new(view))
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
        Ok(Self::new(view))
    }
}
