//! Matrices that own their memory.

use std::fmt;
use std::ops::Range;

use cust::memory::DevicePointer;
use gemm_matrix::{Matrix, MatrixMut, MatrixRef, span};

use super::memory::{Memory, copy_to_host};
use super::view::{DeviceMatrixMut, DeviceMatrixRef};
use crate::device::Device;
use crate::error::Error;
use crate::stream::Stream;

/// Where a matrix lies in its buffer, in elements.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Layout};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let layout = Layout { offset: 1, ld: 4, tail: 2 };
/// let matrix = DeviceMatrix::zeros_in(&device, 2, 3, layout)?;
/// // The last row ends after its last element.
/// assert_eq!(matrix.download_buffer()?.len(), 1 + (4 + 3) + 2);
/// assert_eq!(DeviceMatrix::zeros(&device, 2, 3)?.layout(), Layout::dense(3));
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Elements in front of the first row.
    pub offset: usize,
    /// The leading dimension, at least the number of columns.
    pub ld: usize,
    /// Elements behind the last row's last element.
    pub tail: usize,
}

impl Layout {
    /// Rows without a gap, and nothing around them.
    pub const fn dense(cols: usize) -> Self {
        Self { offset: 0, ld: cols, tail: 0 }
    }
}

/// A row-major matrix in a device's memory, in a buffer of its own that may be
/// larger than the matrix. It belongs to one [`Stream`].
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Matrix};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let host = Matrix::from_fn(2, 3, |row, col| (10 * row + col) as f32);
/// let mut matrix = DeviceMatrix::from_host(&device, &host)?;
/// assert_eq!(matrix.download()?, host);
///
/// // Its second column, and a new first row.
/// assert_eq!(matrix.submatrix(0..2, 1..2)?.download()?.as_slice(), [1.0, 11.0]);
/// matrix.submatrix_mut(0..1, 0..3)?.upload(&Matrix::from_vec(1, 3, vec![7.0, 8.0, 9.0]))?;
/// let mut copy = Matrix::zeros(2, 3);
/// matrix.download_to(&mut copy)?;
/// assert_eq!(copy.as_slice(), [7.0, 8.0, 9.0, 10.0, 11.0, 12.0]);
///
/// // What is enqueued on the other stream from now on comes after what was on this one.
/// let stream = cuda_gemm::Stream::new(&device)?;
/// matrix.move_to(&stream)?;
/// assert!(matrix.stream().is_same(&stream));
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
pub struct DeviceMatrix {
    memory: Memory,
    rows: usize,
    cols: usize,
    layout: Layout,
}

impl fmt::Debug for DeviceMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, rows, cols, layout } = self;
        let mut parts = f.debug_struct("DeviceMatrix");
        parts.field("rows", rows).field("cols", cols).field("layout", layout);
        parts.field("stream", memory.stream()).finish()
    }
}

impl DeviceMatrix {
    /// Allocates a dense matrix of zeros on a stream; `&device` stands for the device's own.
    ///
    /// # Errors
    ///
    /// [`Error::MatrixTooLarge`] if its size cannot be counted; [`Error::Driver`], for one if there
    /// is too little memory.
    pub fn zeros(on: impl Into<Stream>, rows: usize, cols: usize) -> Result<Self, Error> {
        Self::zeros_in(on, rows, cols, Layout::dense(cols))
    }

    /// Allocates a matrix of zeros in a buffer of zeros with this layout.
    ///
    /// # Errors
    ///
    /// [`Error::LeadingDimension`] if `ld` is less than `cols`; [`Error::MatrixTooLarge`] if the
    /// buffer's size cannot be counted; [`Error::Driver`].
    pub fn zeros_in(
        on: impl Into<Stream>,
        rows: usize,
        cols: usize,
        layout: Layout,
    ) -> Result<Self, Error> {
        if layout.ld < cols {
            return Err(Error::LeadingDimension { what: "ld", ld: layout.ld, cols });
        }
        const MAX: usize = isize::MAX as usize / 4;
        // The largest numbers that there are add up to 2^128 - 1.
        let around = layout.offset as u128 + layout.tail as u128;
        let elements = span(rows, cols, layout.ld) + around;
        let len = usize::try_from(elements)
            .ok()
            .filter(|&len| len <= MAX)
            .ok_or(Error::MatrixTooLarge { rows, cols, elements, max: MAX })?;
        let memory = Memory::zeroed(&on.into(), len)?;
        Ok(Self { memory, rows, cols, layout })
    }

    /// Allocates a dense matrix and copies a host matrix into it.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn from_host<'m>(
        on: impl Into<Stream>,
        matrix: impl Into<MatrixRef<'m>>,
    ) -> Result<Self, Error> {
        let matrix = matrix.into();
        let mut copy = Self::zeros(on, matrix.rows(), matrix.cols())?;
        copy.upload(matrix)?;
        Ok(copy)
    }

    /// Copies a host matrix of the same shape into this one, after what the stream was given
    /// before, and waits for it; what lies around and between the rows stays as it is.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] or [`Error::Driver`].
    pub fn upload<'m>(&mut self, matrix: impl Into<MatrixRef<'m>>) -> Result<(), Error> {
        self.view_mut().upload(matrix)
    }

    /// Copies the matrix to the host, after what the stream was given before.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`], or [`Error::KernelFault`] if a kernel failed before.
    pub fn download(&self) -> Result<Matrix, Error> {
        self.view().download()
    }

    /// As [`DeviceMatrix::download`], into memory that is there already.
    ///
    /// # Errors
    ///
    /// As there, and [`Error::Shape`].
    pub fn download_to<'m>(&self, matrix: impl Into<MatrixMut<'m>>) -> Result<(), Error> {
        self.view().download_to(matrix)
    }

    /// Sets every word of the buffer, in and around the matrix, to these bits.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn fill_buffer(&mut self, bits: u32) -> Result<(), Error> {
        self.memory.fill(bits)
    }

    /// Copies the whole buffer to the host, with what lies around the matrix.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`], or [`Error::KernelFault`] if a kernel failed before.
    pub fn download_buffer(&self) -> Result<Vec<f32>, Error> {
        let mut words = vec![0.0; self.memory.len()];
        let _exclusive = self.stream().exclusive();
        let copied = match words.is_empty() {
            true => Ok(()),
            // SAFETY: the buffer has so many words, set when it was made, and nobody looks at
            // them before the next line.
            false => unsafe { copy_to_host(self.stream(), self.memory.address(), &mut words) },
        };
        self.stream().synchronize().and(copied)?;
        Ok(words)
    }

    /// The whole matrix.
    pub fn view(&self) -> DeviceMatrixRef<'_> {
        let address = self.as_device_ptr().as_raw();
        DeviceMatrixRef::new(self.stream(), address, [self.rows, self.cols, self.layout.ld])
    }

    /// The whole matrix, to be written.
    pub fn view_mut(&mut self) -> DeviceMatrixMut<'_> {
        let address = self.as_device_ptr().as_raw();
        DeviceMatrixMut::new(self.stream(), address, [self.rows, self.cols, self.layout.ld])
    }

    /// A part of the matrix, which has the same leading dimension.
    ///
    /// # Errors
    ///
    /// [`Error::Submatrix`] if it is not within the matrix.
    pub fn submatrix(
        &self,
        rows: Range<usize>,
        cols: Range<usize>,
    ) -> Result<DeviceMatrixRef<'_>, Error> {
        self.view().submatrix(rows, cols)
    }

    /// A part of the matrix, to be written.
    ///
    /// # Errors
    ///
    /// As for [`DeviceMatrix::submatrix`].
    pub fn submatrix_mut(
        &mut self,
        rows: Range<usize>,
        cols: Range<usize>,
    ) -> Result<DeviceMatrixMut<'_>, Error> {
        self.view_mut().submatrix(rows, cols)
    }

    /// Moves the matrix to another stream of its device, whose later work waits for what this one
    /// was given so far.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] or [`Error::Driver`].
    pub fn move_to(&mut self, stream: &Stream) -> Result<(), Error> {
        self.memory.move_to(stream, "the matrix")
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Where the matrix lies in its buffer.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The device whose memory this is.
    pub fn device(&self) -> &Device {
        self.stream().device()
    }

    /// The stream that uses the matrix.
    pub fn stream(&self) -> &Stream {
        self.memory.stream()
    }

    /// The address of the first element.
    pub fn as_device_ptr(&self) -> DevicePointer<f32> {
        // An offset of an empty buffer is never read or written.
        let address = self.memory.address().wrapping_add(4 * self.layout.offset as u64);
        DevicePointer::from_raw(address)
    }
}

impl<'a> From<&'a DeviceMatrix> for DeviceMatrixRef<'a> {
    fn from(matrix: &'a DeviceMatrix) -> Self {
        matrix.view()
    }
}

impl<'a> From<&'a mut DeviceMatrix> for DeviceMatrixMut<'a> {
    fn from(matrix: &'a mut DeviceMatrix) -> Self {
        matrix.view_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceChoice;

    #[test]
    fn what_is_too_large_is_refused_by_its_size() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let (most, max) = (usize::MAX, isize::MAX as usize / 4);
        let refused = DeviceMatrix::zeros(&device, most / 4, 1).unwrap_err().to_string();
        let says = format!(
            "a matrix of {0} x 1 takes a buffer of {0} elements, and the longest possible has \
             {max}; use a smaller one",
            most / 4
        );
        assert_eq!(refused, says);
        // With all that is around it.
        let layout = Layout { offset: most, ld: most, tail: most };
        let refused = DeviceMatrix::zeros_in(&device, most, most, layout).unwrap_err();
        assert!(matches!(refused, Error::MatrixTooLarge { elements: u128::MAX, .. }));
    }
}
