//! Borrowed matrices: whole, parts, transposes and batches.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use cust::memory::{DeviceCopy, DevicePointer, DeviceSlice};
use gemm_matrix::{Element, Matrix, MatrixMut, Scalar};

use super::any_element::AnyElement;
use super::memory::copy_to_host;
use super::placement::{Placement, expect_room};
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
    stream: &'m Stream,
    placement: Placement,
    transposed: bool,
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
        let Self { stream, placement, transposed, .. } = self;
        let mut parts = f.debug_struct("DeviceMatrixRef");
        parts.field("stream", stream).field("placement", placement);
        parts.field("transposed", transposed).finish()
    }
}

impl<'m, T> DeviceMatrixRef<'m, T> {
    /// Borrows one matrix.
    pub(crate) fn new(
        stream: &'m Stream,
        element: Element,
        address: u64,
        shape: [usize; 2],
        ld: usize,
    ) -> Self {
        let placement = Placement { address, element, shape, ld, count: 1, stride: 0 };
        Self { stream, placement, transposed: false, elements: PhantomData }
    }

    /// The view, with the element type as a value alone.
    pub(super) fn of_any(self) -> DeviceMatrixRef<'m, AnyElement> {
        let Self { stream, placement, transposed, .. } = self;
        DeviceMatrixRef { stream, placement, transposed, elements: PhantomData }
    }

    pub(crate) fn placement(&self) -> Placement {
        self.placement
    }

    /// The element type.
    pub fn element(&self) -> Element {
        self.placement.element
    }

    /// Rows of each matrix.
    pub fn rows(&self) -> usize {
        self.placement.shape[usize::from(self.transposed)]
    }

    /// Columns of each matrix.
    pub fn cols(&self) -> usize {
        self.placement.shape[usize::from(!self.transposed)]
    }

    /// The leading dimension, in elements.
    pub fn ld(&self) -> usize {
        self.placement.ld
    }

    /// Whether memory holds the transpose, row by row.
    pub fn is_transposed(&self) -> bool {
        self.transposed
    }

    /// The number of matrices.
    pub fn count(&self) -> usize {
        self.placement.count
    }

    /// Elements from one matrix of a batch to the next; 0 if all are the same.
    pub fn stride(&self) -> usize {
        self.placement.stride
    }

    /// The stream that uses the matrices.
    pub fn stream(&self) -> &'m Stream {
        self.stream
    }

    /// The same matrices, used by another stream of the device.
    ///
    /// # Safety
    ///
    /// The stream is of the matrices' device. It waits for earlier work that writes them. Whoever
    /// writes or frees them later waits for that stream. See [`Stream::wait_for`].
    #[must_use]
    pub unsafe fn on(self, stream: &'m Stream) -> Self {
        Self { stream, ..self }
    }

    /// The address of the first element.
    pub fn address(&self) -> u64 {
        self.placement.address
    }

    /// The transpose of each matrix, in the same memory.
    #[must_use]
    pub fn t(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }

    /// A part of each matrix, with the same leading dimension.
    ///
    /// # Errors
    ///
    /// [`Error::Submatrix`] if the part is out of bounds.
    pub fn submatrix(self, rows: Range<usize>, cols: Range<usize>) -> Result<Self, Error> {
        let is_within = |range: &Range<usize>, len| range.start <= range.end && range.end <= len;
        if !is_within(&rows, self.rows()) || !is_within(&cols, self.cols()) {
            let (of_rows, of_cols) = (self.rows(), self.cols());
            return Err(Error::Submatrix { rows, cols, of_rows, of_cols });
        }
        let [down, along] = if self.transposed { [cols, rows] } else { [rows, cols] };
        let first = down.start.wrapping_mul(self.ld()).wrapping_add(along.start);
        let address = self.placement.offset(first);
        let shape = [down.len(), along.len()];
        Ok(Self { placement: Placement { address, shape, ..self.placement }, ..self })
    }

    /// Splits the matrix into a batch of `count` equally shaped matrices, one below the other.
    ///
    /// # Errors
    ///
    /// [`Error::Split`] if `count` does not divide the rows, or is 0; [`Error::NestedBatch`] if
    /// this is a batch.
    pub fn batch(self, count: usize) -> Result<Self, Error> {
        self.split("rows", usize::from(self.transposed), count)
    }

    /// Splits the matrix into a batch of `count` equally shaped matrices, side by side.
    ///
    /// # Errors
    ///
    /// [`Error::Split`] if `count` does not divide the columns, or is 0; [`Error::NestedBatch`] if
    /// this is a batch.
    pub fn batch_cols(self, count: usize) -> Result<Self, Error> {
        self.split("columns", usize::from(!self.transposed), count)
    }

    /// Splits a dimension of the stored matrix.
    fn split(self, what: &'static str, dimension: usize, count: usize) -> Result<Self, Error> {
        self.expect_one()?;
        let mut shape = self.placement.shape;
        let all = shape[dimension];
        if all.checked_rem(count) != Some(0) {
            return Err(Error::Split { what, all, count });
        }
        shape[dimension] = all / count;
        let stride = shape[dimension].wrapping_mul([self.ld(), 1][dimension]);
        Ok(Self { placement: Placement { shape, count, stride, ..self.placement }, ..self })
    }

    /// Turns each row into a matrix of this shape and leading dimension.
    ///
    /// A matrix whose leading dimension is the stride thus describes a batch with any stride.
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
    /// - [`Error::LeadingDimension`] if `ld` is less than the columns.
    /// - [`Error::BufferTooShort`] if a row has no room for such a matrix.
    /// - [`Error::NestedBatch`] or [`Error::Transposed`] if this is a batch or a transpose.
    pub fn rows_as_matrices(self, shape: [usize; 2], ld: usize) -> Result<Self, Error> {
        self.expect_one()?;
        if self.transposed {
            return Err(Error::Transposed);
        }
        let placement = self.placement;
        expect_room(placement.shape[1], shape, ld)?;
        let [count, _] = placement.shape;
        let placement = Placement { shape, ld, count, stride: placement.ld, ..placement };
        Ok(Self { placement, ..self })
    }

    /// Repeats one matrix for `count` products.
    ///
    /// # Errors
    ///
    /// [`Error::NestedBatch`] if this is a batch.
    pub fn broadcast(self, count: usize) -> Result<Self, Error> {
        self.expect_one()?;
        Ok(Self { placement: Placement { count, stride: 0, ..self.placement }, ..self })
    }

    pub(super) fn expect_one(&self) -> Result<(), Error> {
        match self.count() {
            1 => Ok(()),
            count => Err(Error::NestedBatch { count }),
        }
    }

    /// Whether a host matrix of this shape is like the one matrix of this view.
    pub(super) fn expect_host(&self, shape: [usize; 2]) -> Result<(), Error> {
        self.expect_one()?;
        Error::expect_shape("the host's matrix", shape, [self.rows(), self.cols()])
    }

    /// Copies the matrix to the host, after the stream's earlier work.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`], [`Error::KernelFault`] if an earlier kernel failed, or
    /// [`Error::NestedBatch`] for a batch.
    pub fn download(&self) -> Result<Matrix, Error> {
        let [rows, cols] = self.placement.shape;
        let mut matrix = Matrix::zeros(rows, cols);
        Self { transposed: false, ..*self }.download_to(&mut matrix)?;
        Ok(if self.transposed { matrix.transposed() } else { matrix })
    }

    /// Copies the matrix into an existing host matrix.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceMatrixRef::download`], and [`Error::Shape`].
    pub fn download_to<'h>(&self, matrix: impl Into<MatrixMut<'h>>) -> Result<(), Error> {
        let mut matrix = matrix.into();
        self.expect_host([matrix.rows(), matrix.cols()])?;
        if self.transposed {
            let transposed = self.download()?;
            for (i, (_, row)) in matrix.runs_mut(self.rows() + self.cols()).enumerate() {
                row.copy_from_slice(&transposed.as_slice()[i * row.len()..][..row.len()]);
            }
            return Ok(());
        }
        let (stream, element) = (self.stream, self.element());
        let _exclusive = stream.exclusive();
        if element == Element::F32 {
            let copied = matrix.runs_mut(self.ld()).try_for_each(|(offset, run)| {
                // SAFETY: the matrix has these elements, initialised when it was made or by its
                // maker's contract. Nobody reads the copy before the next line.
                unsafe { copy_to_host(stream, self.placement.offset(offset), run) }
            });
            return stream.synchronize().and(copied);
        }
        let mut runs = Vec::new();
        let copied = matrix.runs_mut(self.ld()).try_for_each(|(offset, run)| {
            let mut bytes = vec![0; run.len() * element.bytes()];
            // SAFETY: as above; the bytes stay where they are.
            let copied = unsafe { copy_to_host(stream, self.placement.offset(offset), &mut bytes) };
            runs.push((run, bytes));
            copied
        });
        stream.synchronize().and(copied)?;
        for (run, bytes) in runs {
            run.copy_from_slice(&element.decode(&bytes));
        }
        Ok(())
    }
}

impl<'m, T: Scalar> DeviceMatrixRef<'m, T> {
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
        Ok(Self::new(stream, T::ELEMENT, address, shape, ld))
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
        Ok(Self::new(stream, T::ELEMENT, address, shape, ld))
    }

    /// Copies the matrix to the host without conversion, row after row.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceMatrixRef::download`], and [`Error::Transposed`] for a transpose.
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        if self.transposed {
            return Err(Error::Transposed);
        }
        self.expect_one()?;
        let Placement { shape: [rows, cols], ld, .. } = self.placement;
        let stream = self.stream;
        let mut elements = Vec::<T>::with_capacity(rows * cols);
        if rows == 0 || cols == 0 {
            return Ok(elements);
        }
        let at_once = if ld == cols { rows * cols } else { cols };
        let _exclusive = stream.exclusive();
        let parts = elements.spare_capacity_mut()[..rows * cols].chunks_exact_mut(at_once);
        let copied = parts.enumerate().try_for_each(|(i, part)| {
            let address = self.placement.offset(i * ld);
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
        DevicePointer::from_raw(self.address())
    }
}
