//! Matrices that own their memory.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use cust::memory::{DeviceCopy, DevicePointer};
use gemm_matrix::{Element, Matrix, MatrixMut, MatrixRef, Scalar, ViewError, span};

use super::any_element::AnyElement;
use super::memory::{Memory, copy_from_host, copy_to_host};
use super::view::DeviceMatrixRef;
use super::view_mut::DeviceMatrixMut;
use crate::device::{Device, Stream};
use crate::error::Error;

/// The place of a matrix in its buffer, in elements.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Layout};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let layout = Layout { offset: 1, ld: 4, tail: 2 };
/// let matrix = DeviceMatrix::<f32>::zeros_in(&device, [2, 3], layout)?;
/// // The last row ends after its last element.
/// assert_eq!(matrix.download_buffer()?.len(), 1 + (4 + 3) + 2);
/// assert_eq!(DeviceMatrix::<f32>::zeros(&device, [2, 3])?.layout(), Layout::dense(3));
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Elements before the first row.
    pub offset: usize,
    /// The leading dimension, at least the number of columns.
    pub ld: usize,
    /// Elements after the last row's last element.
    pub tail: usize,
}

impl Layout {
    /// A layout of rows without gaps, and no elements around them.
    pub const fn dense(cols: usize) -> Self {
        Self { offset: 0, ld: cols, tail: 0 }
    }

    /// A layout whose rows begin on 16 bytes, which is fastest for kernels, for any element type.
    pub const fn padded(cols: usize) -> Self {
        // Eight elements of the smallest type.
        let ld = match cols.checked_next_multiple_of(8) {
            Some(ld) => ld,
            None => cols,
        };
        Self { offset: 0, ld, tail: 0 }
    }
}

/// A row-major device matrix in a buffer of its own, on one [`Stream`].
///
/// The buffer may be larger than the matrix.
///
/// Elements are `f32`, [`bf16`](crate::bf16) or [`f16`](crate::f16). A host [`Matrix`] is f32: a
/// download is exact, and an upload rounds to the nearest, ties to even.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Matrix, bf16};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let host = Matrix::from_fn(2, 3, |row, col| (10 * row + col) as f32);
/// let mut matrix = DeviceMatrix::<f32>::from_host(&device, &host)?;
/// assert_eq!(matrix.download()?, host);
///
/// // Its second column, and a new first row.
/// assert_eq!(matrix.submatrix(0..2, 1..2)?.download()?.as_slice(), [1.0, 11.0]);
/// matrix.submatrix_mut(0..1, 0..3)?.upload(&Matrix::from_vec(1, 3, vec![7.0, 8.0, 9.0]))?;
/// assert_eq!(matrix.to_vec()?, [7.0, 8.0, 9.0, 10.0, 11.0, 12.0]);
///
/// // Eight bits: 257 lies between 256 and 258.
/// let half = DeviceMatrix::<bf16>::from_host(&device, &Matrix::from_vec(1, 2, vec![0.5, 257.0]))?;
/// assert_eq!(half.to_vec()?, [0.5, 256.0].map(bf16::from_f32));
///
/// // What is enqueued on the other stream from now on comes after what was on this one.
/// let stream = cuda_gemm::Stream::new(&device)?;
/// matrix.move_to(&stream)?;
/// assert!(matrix.stream().is_same(&stream));
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
pub struct DeviceMatrix<T> {
    memory: Memory,
    element: Element,
    shape: [usize; 2],
    layout: Layout,
    elements: PhantomData<T>,
}

impl<T> fmt::Debug for DeviceMatrix<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, element, shape, layout, .. } = self;
        let mut parts = f.debug_struct("DeviceMatrix");
        parts.field("element", element).field("shape", shape).field("layout", layout);
        parts.field("stream", memory.stream()).finish()
    }
}

impl DeviceMatrix<AnyElement> {
    /// Allocates a matrix of zeros of this type on a stream, in a buffer of zeros with this layout.
    ///
    /// `&device` means the device's own stream.
    ///
    /// # Errors
    ///
    /// - [`Error::LeadingDimension`] if `ld` is less than the columns.
    /// - [`Error::MatrixTooLarge`] if the buffer's size overflows.
    /// - [`Error::Driver`], for example if memory is short.
    pub fn zeros_of(
        on: impl Into<Stream>,
        element: Element,
        shape: [usize; 2],
        layout: Layout,
    ) -> Result<Self, Error> {
        Self::allocate(&on.into(), element, shape, layout)
    }
}

impl<T> DeviceMatrix<T> {
    fn allocate(
        stream: &Stream,
        element: Element,
        shape: [usize; 2],
        layout: Layout,
    ) -> Result<Self, Error> {
        let [rows, cols] = shape;
        if layout.ld < cols {
            return Err(Error::LeadingDimension { what: "ld", ld: layout.ld, cols });
        }
        const MAX: usize = isize::MAX as usize / 4;
        // The largest possible numbers add up to 2^128 - 1.
        let around = layout.offset as u128 + layout.tail as u128;
        let elements = span(rows, cols, layout.ld) + around;
        let len = usize::try_from(elements)
            .ok()
            .filter(|&len| len <= MAX)
            .ok_or(Error::MatrixTooLarge { rows, cols, elements, max: MAX })?;
        let memory = Memory::zeroed(stream, (len * element.bytes()).div_ceil(4))?;
        Ok(Self { memory, element, shape, layout, elements: PhantomData })
    }

    /// Copies a host matrix of this shape into this one: see [`DeviceMatrixMut::upload`].
    ///
    /// # Errors
    ///
    /// See [`DeviceMatrixMut::upload`].
    pub fn upload<'h>(&mut self, matrix: impl Into<MatrixRef<'h>>) -> Result<(), Error> {
        self.view_mut().upload(matrix)
    }

    /// Copies the matrix to the host, after the stream's earlier work.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`], or [`Error::KernelFault`] if an earlier kernel failed.
    pub fn download(&self) -> Result<Matrix, Error> {
        self.view().download()
    }

    /// Copies the matrix into an existing host matrix.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceMatrix::download`], and [`Error::Shape`].
    pub fn download_to<'h>(&self, matrix: impl Into<MatrixMut<'h>>) -> Result<(), Error> {
        self.view().download_to(matrix)
    }

    /// Enqueues a fill of the whole buffer with these bits.
    ///
    /// This includes elements around the matrix. A 16-bit type gets the lower half of the bits.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn fill_buffer(&mut self, bits: u32) -> Result<(), Error> {
        let low = bits & 0xffff;
        self.memory.fill(if self.element.bytes() == 4 { bits } else { low << 16 | low })
    }

    /// The whole matrix.
    pub fn view(&self) -> DeviceMatrixRef<'_, T> {
        let (element, shape, ld) = (self.element, self.shape, self.layout.ld);
        DeviceMatrixRef::new(self.stream(), element, self.address(), shape, ld)
    }

    /// The whole matrix, for writing.
    pub fn view_mut(&mut self) -> DeviceMatrixMut<'_, T> {
        DeviceMatrixMut::new(self.view())
    }

    /// The transpose, in the same memory.
    pub fn t(&self) -> DeviceMatrixRef<'_, T> {
        self.view().t()
    }

    /// A part of the matrix, with the same leading dimension.
    ///
    /// # Errors
    ///
    /// [`Error::Submatrix`] if the part is out of bounds.
    pub fn submatrix(
        &self,
        rows: Range<usize>,
        cols: Range<usize>,
    ) -> Result<DeviceMatrixRef<'_, T>, Error> {
        self.view().submatrix(rows, cols)
    }

    /// A part of the matrix, for writing.
    ///
    /// # Errors
    ///
    /// See [`DeviceMatrix::submatrix`].
    pub fn submatrix_mut(
        &mut self,
        rows: Range<usize>,
        cols: Range<usize>,
    ) -> Result<DeviceMatrixMut<'_, T>, Error> {
        self.view_mut().submatrix(rows, cols)
    }

    /// The matrix as a batch, one below the other: see [`DeviceMatrixRef::batch`].
    ///
    /// # Errors
    ///
    /// See [`DeviceMatrixRef::batch`].
    pub fn batch(&self, count: usize) -> Result<DeviceMatrixRef<'_, T>, Error> {
        self.view().batch(count)
    }

    /// The matrix as a batch, for writing.
    ///
    /// # Errors
    ///
    /// See [`DeviceMatrix::batch`].
    pub fn batch_mut(&mut self, count: usize) -> Result<DeviceMatrixMut<'_, T>, Error> {
        self.view_mut().batch(count)
    }

    /// Moves the matrix to another stream of its device.
    ///
    /// Later work on that stream waits for the work enqueued so far on this one.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] or [`Error::Driver`].
    pub fn move_to(&mut self, stream: &Stream) -> Result<(), Error> {
        self.memory.move_to(stream, "the matrix")
    }

    /// The element type.
    pub fn element(&self) -> Element {
        self.element
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.shape[0]
    }

    /// The number of columns.
    pub fn cols(&self) -> usize {
        self.shape[1]
    }

    /// The place of the matrix in its buffer.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The device of the memory.
    pub fn device(&self) -> &Device {
        self.stream().device()
    }

    /// The stream that uses the matrix.
    pub fn stream(&self) -> &Stream {
        self.memory.stream()
    }

    /// The address of the first element.
    pub fn address(&self) -> u64 {
        // The offset of an empty buffer is never accessed.
        self.memory.address().wrapping_add((self.element.bytes() * self.layout.offset) as u64)
    }
}

impl<T: Scalar> DeviceMatrix<T> {
    /// Allocates a dense matrix of zeros; `&device` means the device's own stream.
    ///
    /// # Errors
    ///
    /// See [`AnyMatrix::zeros_of`](crate::AnyMatrix::zeros_of).
    pub fn zeros(on: impl Into<Stream>, shape: [usize; 2]) -> Result<Self, Error> {
        Self::zeros_in(on, shape, Layout::dense(shape[1]))
    }

    /// Allocates a matrix of zeros in a buffer of zeros with this layout.
    ///
    /// # Errors
    ///
    /// See [`AnyMatrix::zeros_of`](crate::AnyMatrix::zeros_of).
    pub fn zeros_in(
        on: impl Into<Stream>,
        shape: [usize; 2],
        layout: Layout,
    ) -> Result<Self, Error> {
        Self::allocate(&on.into(), T::ELEMENT, shape, layout)
    }

    /// Allocates a dense matrix and copies a host matrix into it.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn from_host<'h>(
        on: impl Into<Stream>,
        matrix: impl Into<MatrixRef<'h>>,
    ) -> Result<Self, Error> {
        let matrix = matrix.into();
        let mut copy = Self::zeros(on, [matrix.rows(), matrix.cols()])?;
        copy.upload(matrix)?;
        Ok(copy)
    }

    /// Allocates a dense matrix from elements of its own type, row after row.
    ///
    /// # Errors
    ///
    /// [`Error::View`] if the number of elements is not that of the matrix, or [`Error::Driver`].
    pub fn from_slice(
        on: impl Into<Stream>,
        shape: [usize; 2],
        elements: &[T],
    ) -> Result<Self, Error> {
        let mut copy = Self::zeros(on, shape)?;
        copy.copy_from(elements)?;
        Ok(copy)
    }

    /// Copies elements of the matrix's own type into a dense matrix, row after row.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceMatrix::from_slice`], and [`Error::LeadingDimension`] if rows have
    /// gaps.
    pub fn copy_from(&mut self, elements: &[T]) -> Result<(), Error> {
        let [rows, cols] = self.shape;
        let (needed, len) = (rows as u128 * cols as u128, elements.len());
        if needed > len as u128 {
            return Err(ViewError::TooShort { needed, len }.into());
        }
        if needed < len as u128 {
            return Err(ViewError::TooLong { elements: needed, len }.into());
        }
        if rows > 1 && self.layout.ld != cols {
            return Err(Error::LeadingDimension { what: "ld", ld: self.layout.ld, cols });
        }
        if elements.is_empty() {
            return Ok(());
        }
        let stream = self.stream();
        let _exclusive = stream.exclusive();
        // SAFETY: the matrix has these elements, and the copy is waited for.
        let copied = unsafe { copy_from_host(stream, self.address(), elements) };
        stream.synchronize().and(copied)
    }

    /// Copies the matrix to the host without conversion, row after row.
    ///
    /// # Errors
    ///
    /// See [`DeviceMatrix::download`].
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        self.view().to_vec()
    }

    /// Copies the whole buffer to the host, including elements around the matrix.
    ///
    /// # Errors
    ///
    /// See [`DeviceMatrix::download`].
    pub fn download_buffer(&self) -> Result<Vec<T>, Error> {
        let (layout, [rows, cols]) = (self.layout, self.shape);
        // Fits: the buffer was allocated.
        let len = layout.offset + span(rows, cols, layout.ld) as usize + layout.tail;
        let mut elements = Vec::<T>::with_capacity(len);
        let stream = self.stream();
        let _exclusive = stream.exclusive();
        let copied = match len {
            0 => Ok(()),
            // SAFETY: the buffer has this many elements, set when it was made. Nobody reads them
            // before the next line.
            _ => unsafe {
                let buffer = &mut elements.spare_capacity_mut()[..len];
                copy_to_host(stream, self.memory.address(), buffer)
            },
        };
        stream.synchronize().and(copied)?;
        // SAFETY: all were copied.
        unsafe { elements.set_len(len) };
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

#[cfg(test)]
mod tests;
