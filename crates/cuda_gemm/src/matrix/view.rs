//! Borrowed matrices: all of one, a part of one, or a part of another buffer.

use std::marker::PhantomData;
use std::ops::Range;

use cust::memory::{DevicePointer, DeviceSlice};
use gemm_matrix::{Matrix, MatrixMut, MatrixRef, span};

use super::memory::{copy_from_host, copy_to_host};
use crate::error::Error;
use crate::stream::Stream;

/// A row-major matrix in a device's memory, borrowed: see [`DeviceMatrixRef::from_slice`] and
/// [`DeviceMatrix`](crate::DeviceMatrix) for examples.
#[derive(Clone, Copy, Debug)]
pub struct DeviceMatrixRef<'a> {
    stream: &'a Stream,
    address: u64,
    rows: usize,
    cols: usize,
    ld: usize,
}

/// A row-major matrix in a device's memory, borrowed to be written.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm, Matrix};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let one = DeviceMatrix::from_host(&device, &Matrix::from_fn(2, 2, |_, _| 1.0))?;
/// let mut c = DeviceMatrix::zeros(&device, 5, 2)?;
/// // The upper part is a product, the lower part a copy.
/// let (above, mut below) = c.view_mut().split_at_row(2)?;
/// device.auto()?.prepare(Gemm::new(2, 2, 2))?.enqueue(&one, &one, above)?;
/// below.upload(&Matrix::from_fn(3, 2, |_, _| 3.0))?;
/// assert_eq!(c.download()?.as_slice(), [2.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Debug)]
pub struct DeviceMatrixMut<'a> {
    view: DeviceMatrixRef<'a>,
    exclusive: PhantomData<&'a mut [f32]>,
}

impl<'a> DeviceMatrixRef<'a> {
    /// `rows` x `cols` elements with this leading dimension, whose memory is borrowed.
    pub(super) fn new(stream: &'a Stream, address: u64, [rows, cols, ld]: [usize; 3]) -> Self {
        Self { stream, address, rows, cols, ld }
    }

    /// A matrix that lies in another's buffer: `rows` x `cols` elements, from the slice's first
    /// one on, with the leading dimension `ld`.
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
    /// let matrix = unsafe { DeviceMatrixRef::from_slice(&stream, &slice, 2, 2, 3)? };
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
    /// The slice is initialised, and in the memory of the stream's device. Whatever else is done
    /// with it, on another stream or on none, is over before the view is made, and begins after
    /// the stream's work with it is done.
    pub unsafe fn from_slice(
        stream: &'a Stream,
        slice: &'a DeviceSlice<f32>,
        rows: usize,
        cols: usize,
        ld: usize,
    ) -> Result<Self, Error> {
        expect_room(slice.len(), [rows, cols, ld])?;
        Ok(Self::new(stream, slice.as_device_ptr().as_raw(), [rows, cols, ld]))
    }

    /// Another matrix at the same place; it has room there.
    pub(super) fn reshaped(self, [rows, cols, ld]: [usize; 3]) -> Self {
        Self { rows, cols, ld, ..self }
    }

    /// A part of the matrix, which has the same leading dimension.
    ///
    /// # Errors
    ///
    /// [`Error::Submatrix`] if it is not within the matrix.
    pub fn submatrix(self, rows: Range<usize>, cols: Range<usize>) -> Result<Self, Error> {
        let is_within = |range: &Range<usize>, len| range.start <= range.end && range.end <= len;
        if !is_within(&rows, self.rows) || !is_within(&cols, self.cols) {
            return Err(Error::Submatrix { rows, cols, of_rows: self.rows, of_cols: self.cols });
        }
        // Of an empty matrix no address is used.
        let offset = rows.start.wrapping_mul(self.ld).wrapping_add(cols.start);
        let address = self.address.wrapping_add((offset as u64).wrapping_mul(4));
        Ok(Self::new(self.stream, address, [rows.len(), cols.len(), self.ld]))
    }

    /// Copies the matrix to the host, after what the stream was given before.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`], or [`Error::KernelFault`] if a kernel failed before.
    pub fn download(&self) -> Result<Matrix, Error> {
        let mut matrix = Matrix::zeros(self.rows, self.cols);
        self.download_to(&mut matrix)?;
        Ok(matrix)
    }

    /// As [`DeviceMatrixRef::download`], into memory that is there already.
    ///
    /// # Errors
    ///
    /// As there, and [`Error::Shape`].
    pub fn download_to<'m>(&self, matrix: impl Into<MatrixMut<'m>>) -> Result<(), Error> {
        let mut matrix = matrix.into();
        self.expect_shape("the host's matrix", matrix.rows(), matrix.cols())?;
        let _exclusive = self.stream.exclusive();
        let copied = matrix.runs_mut(self.ld).try_for_each(|(offset, run)| {
            let address = self.address.wrapping_add(4 * offset as u64);
            // SAFETY: the matrix has these elements, which are initialised, since it was made or
            // by the contract of `from_slice`. Nobody looks at the copy before the next line.
            unsafe { copy_to_host(self.stream, address, run) }
        });
        self.stream.synchronize().and(copied)
    }

    fn expect_shape(&self, what: &'static str, rows: usize, cols: usize) -> Result<(), Error> {
        if (rows, cols) == (self.rows, self.cols) {
            return Ok(());
        }
        Err(Error::Shape { what, rows, cols, need_rows: self.rows, need_cols: self.cols })
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

    /// The stream that uses the matrix.
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// The address of the first element.
    pub fn as_device_ptr(&self) -> DevicePointer<f32> {
        DevicePointer::from_raw(self.address)
    }
}

impl<'a> DeviceMatrixMut<'a> {
    pub(super) fn new(stream: &'a Stream, address: u64, shape: [usize; 3]) -> Self {
        Self { view: DeviceMatrixRef::new(stream, address, shape), exclusive: PhantomData }
    }

    /// As [`DeviceMatrixRef::from_slice`], to be written.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn from_slice(
        stream: &'a Stream,
        slice: &'a mut DeviceSlice<f32>,
        rows: usize,
        cols: usize,
        ld: usize,
    ) -> Result<Self, Error> {
        // SAFETY: the caller's contract.
        let view = unsafe { DeviceMatrixRef::from_slice(stream, slice, rows, cols, ld) }?;
        Ok(Self { view, exclusive: PhantomData })
    }

    /// As [`DeviceMatrixRef::submatrix`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn submatrix(self, rows: Range<usize>, cols: Range<usize>) -> Result<Self, Error> {
        Ok(Self { view: self.view.submatrix(rows, cols)?, exclusive: PhantomData })
    }

    /// The matrix above a row, and the rest of it.
    ///
    /// # Errors
    ///
    /// [`Error::Submatrix`] if there are not so many rows.
    pub fn split_at_row(self, row: usize) -> Result<(Self, Self), Error> {
        let Self { view, exclusive } = self;
        let (above, below) = (0..row, row..view.rows);
        Ok((
            Self { view: view.submatrix(above, 0..view.cols)?, exclusive },
            Self { view: view.submatrix(below, 0..view.cols)?, exclusive },
        ))
    }

    /// Copies a host matrix of the same shape into this one, after what the stream was given
    /// before, and waits for it; what lies between the rows stays as it is.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] or [`Error::Driver`].
    pub fn upload<'m>(&mut self, matrix: impl Into<MatrixRef<'m>>) -> Result<(), Error> {
        let (view, matrix) = (&self.view, matrix.into());
        view.expect_shape("the host's matrix", matrix.rows(), matrix.cols())?;
        let _exclusive = view.stream.exclusive();
        let copied = matrix.runs(view.ld).try_for_each(|(offset, run)| {
            let address = view.address.wrapping_add(4 * offset as u64);
            // SAFETY: the matrix has these elements, and the next line waits for the copy.
            unsafe { copy_from_host(view.stream, address, run) }
        });
        view.stream.synchronize().and(copied)
    }

    /// The same matrix for as long as it is borrowed; nothing else may write it then.
    pub(super) fn into_view(self) -> DeviceMatrixRef<'a> {
        self.view
    }

    /// The same matrix, to be read.
    pub fn view(&self) -> DeviceMatrixRef<'_> {
        self.view
    }

    /// The same matrix, for a shorter time.
    pub fn view_mut(&mut self) -> DeviceMatrixMut<'_> {
        DeviceMatrixMut { view: self.view, exclusive: PhantomData }
    }
}

/// Whether a buffer of so many elements holds a matrix.
pub(super) fn expect_room(len: usize, [rows, cols, ld]: [usize; 3]) -> Result<(), Error> {
    if ld < cols {
        return Err(Error::LeadingDimension { what: "ld", ld, cols });
    }
    let needed = span(rows, cols, ld);
    if needed > len as u128 {
        return Err(Error::BufferTooShort { needed, len });
    }
    Ok(())
}
