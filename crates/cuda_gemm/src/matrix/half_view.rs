//! Borrowed matrices of 16-bit floats: all of one, a part of one, or a batch.

use std::marker::PhantomData;
use std::ops::Range;

use gemm_matrix::Matrix;
use kernels_gpu::abi::tensor_core::InputType;

use super::batch::part;
use super::half::DeviceHalfMatrix;
use super::memory::copy_to_host;
use super::view::expect_room;
use crate::error::Error;
use crate::stream::Stream;

/// A matrix of 16-bit floats, a part of one, or matrices of one shape at a constant stride, for a
/// strided batch of products.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceHalfMatrix, DeviceHalfRef, InputType};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let mut matrix = DeviceHalfMatrix::zeros(&device, InputType::F16, 6, 5)?;
/// let three = matrix.view().split_rows(3)?;
/// assert_eq!((three.rows(), three.cols(), three.count(), three.stride()), (2, 5, 3, 2 * 8));
/// let part = matrix.view().submatrix(1..3, 2..5)?;
/// assert_eq!((part.rows(), part.cols(), part.ld()), (2, 3, 8));
/// assert_eq!(part.broadcast(4).stride(), 0);
/// let five = matrix.view().split_cols(5)?;
/// assert_eq!((five.rows(), five.cols(), five.ld(), five.stride()), (6, 1, 8, 1));
/// // The same matrix, by its address, as one of another allocator would be.
/// // SAFETY: it has these elements, which nothing else uses.
/// let same = unsafe {
///     DeviceHalfRef::from_address(matrix.stream(), InputType::F16, matrix.address(), 6, 5, 8)?
/// };
/// assert_eq!(same.download()?, matrix.download()?);
/// assert_eq!(matrix.view_mut().split_rows(2)?.view().count(), 2);
/// assert!(matrix.view().submatrix(0..7, 0..1).is_err());
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DeviceHalfRef<'m> {
    stream: &'m Stream,
    address: u64,
    input: InputType,
    rows: usize,
    cols: usize,
    ld: usize,
    count: usize,
    stride: usize,
}

/// The same, borrowed to be written.
#[derive(Debug)]
pub struct DeviceHalfMut<'m> {
    view: DeviceHalfRef<'m>,
    exclusive: PhantomData<&'m mut [u16]>,
}

impl DeviceHalfMatrix {
    /// All of the matrix.
    pub fn view(&self) -> DeviceHalfRef<'_> {
        let (address, input) = (self.address(), self.input());
        let [rows, cols, ld] = [self.rows(), self.cols(), self.ld()];
        DeviceHalfRef { stream: self.stream(), address, input, rows, cols, ld, count: 1, stride: 0 }
    }

    /// All of the matrix, to be written.
    pub fn view_mut(&mut self) -> DeviceHalfMut<'_> {
        DeviceHalfMut { view: self.view(), exclusive: PhantomData }
    }
}

impl<'m> DeviceHalfRef<'m> {
    /// A matrix in memory that others have allocated, at the address of its first element.
    ///
    /// # Errors
    ///
    /// [`Error::LeadingDimension`] if `ld` is less than `cols`.
    ///
    /// # Safety
    ///
    /// The matrix is in the memory of the stream's device, aligned to 2 bytes and initialised; as long as
    /// the view lives and work with it is not done, nothing frees or writes it, but what is enqueued on the
    /// stream.
    pub unsafe fn from_address(
        stream: &'m Stream,
        input: InputType,
        address: u64,
        rows: usize,
        cols: usize,
        ld: usize,
    ) -> Result<Self, Error> {
        if ld < cols {
            return Err(Error::LeadingDimension { what: "ld", ld, cols });
        }
        Ok(Self { stream, address, input, rows, cols, ld, count: 1, stride: 0 })
    }

    /// Copies the matrix to the host, after what the stream was given before; of a batch, the first.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`], or [`Error::KernelFault`] if a kernel failed before.
    pub fn download(&self) -> Result<Matrix, Error> {
        let Self { stream, rows, cols, ld, .. } = *self;
        if rows == 0 || cols == 0 {
            return Ok(Matrix::zeros(rows, cols));
        }
        let mut bytes = vec![0; 2 * rows * cols];
        // All at once, unless there is something between the rows.
        let at_once = if ld == cols { rows } else { 1 };
        let _exclusive = stream.exclusive();
        let mut parts = bytes.chunks_exact_mut(2 * at_once * cols).enumerate();
        let copied = parts.try_for_each(|(i, part)| {
            let address = self.address.wrapping_add(2 * (i * at_once * ld) as u64);
            // SAFETY: the matrix has these elements, which are initialised, since it was made or by the
            // contract of `from_address`. Nobody looks at the copy before the next line.
            unsafe { copy_to_host(stream, address, part) }
        });
        stream.synchronize().and(copied)?;
        let elements = DeviceHalfMatrix::element(self.input).decode(&bytes);
        Ok(Matrix::from_vec(rows, cols, elements))
    }

    /// A part of each matrix.
    ///
    /// # Errors
    ///
    /// [`Error::Submatrix`] if it is not within it.
    pub fn submatrix(self, rows: Range<usize>, cols: Range<usize>) -> Result<Self, Error> {
        let is_within = |range: &Range<usize>, len| range.start <= range.end && range.end <= len;
        if !is_within(&rows, self.rows) || !is_within(&cols, self.cols) {
            return Err(Error::Submatrix { rows, cols, of_rows: self.rows, of_cols: self.cols });
        }
        // Of an empty matrix no address is used.
        let offset = rows.start.wrapping_mul(self.ld).wrapping_add(cols.start);
        let address = self.address.wrapping_add((offset as u64).wrapping_mul(2));
        Ok(Self { address, rows: rows.len(), cols: cols.len(), ..self })
    }

    /// So many matrices, which lie one below the other in this one.
    ///
    /// # Errors
    ///
    /// [`Error::Split`] if it does not have rows for so many.
    pub fn split_rows(self, count: usize) -> Result<Self, Error> {
        let rows = part("rows", self.rows, count)?;
        Ok(Self { rows, count, stride: rows.wrapping_mul(self.ld), ..self })
    }

    /// So many matrices, which lie side by side in this one.
    ///
    /// # Errors
    ///
    /// [`Error::Split`] if it does not have columns for so many.
    pub fn split_cols(self, count: usize) -> Result<Self, Error> {
        let cols = part("columns", self.cols, count)?;
        Ok(Self { cols, count, stride: cols, ..self })
    }

    /// Each row as a matrix of its own, `rows` x `cols` with the leading dimension `ld`; of a batch, those of the
    /// first: so a batch of any stride is a matrix that has it as its leading dimension.
    ///
    /// ```
    /// use cuda_gemm::{Device, DeviceChoice, DeviceHalfMatrix, Error, InputType, Matrix};
    ///
    /// let device = Device::open(DeviceChoice::Soft)?;
    /// // Two matrices of 2 x 3 with a leading dimension of 8, and 16 elements from one to the next.
    /// let host = Matrix::from_fn(2, 12, |row, i| (100 * row + i) as f32);
    /// let mut padded = DeviceHalfMatrix::from_host(&device, InputType::F16, &host)?;
    /// let two = padded.view().rows_as_matrices(2, 3, 8)?;
    /// assert_eq!((two.count(), two.stride(), two.ld()), (2, 16, 8));
    /// assert_eq!(two.download()?.as_slice(), [0.0, 1.0, 2.0, 8.0, 9.0, 10.0]);
    ///
    /// let refused = padded.view().rows_as_matrices(3, 3, 8);
    /// assert!(matches!(refused, Err(Error::BufferTooShort { needed: 19, len: 12 })));
    /// let to_write = padded.view_mut().rows_as_matrices(1, 12, 12)?;
    /// assert_eq!((to_write.view().count(), to_write.view().stride()), (2, 16));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LeadingDimension`] if `ld` is less than `cols`, and [`Error::BufferTooShort`] if a row has no room
    /// for such a matrix.
    pub fn rows_as_matrices(self, rows: usize, cols: usize, ld: usize) -> Result<Self, Error> {
        expect_room(self.cols, [rows, cols, ld])?;
        Ok(Self { rows, cols, ld, count: self.rows, stride: self.ld, ..self })
    }

    /// The same matrix for so many products.
    #[must_use]
    pub fn broadcast(self, count: usize) -> Self {
        Self { count, stride: 0, ..self }
    }

    /// The type of the elements.
    pub fn input(&self) -> InputType {
        self.input
    }

    /// Rows of each matrix.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of each matrix.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The leading dimension, in elements.
    pub fn ld(&self) -> usize {
        self.ld
    }

    /// How many matrices there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Elements from one matrix to the next; 0 if all are the same.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The stream that uses the matrix.
    pub fn stream(&self) -> &'m Stream {
        self.stream
    }

    /// The address of the first element.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl<'m> DeviceHalfMut<'m> {
    /// As [`DeviceHalfRef::from_address`], to be written.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Safety
    ///
    /// As there, and nothing reads it, either.
    pub unsafe fn from_address(
        stream: &'m Stream,
        input: InputType,
        address: u64,
        rows: usize,
        cols: usize,
        ld: usize,
    ) -> Result<Self, Error> {
        // SAFETY: the caller's contract.
        let view = unsafe { DeviceHalfRef::from_address(stream, input, address, rows, cols, ld) }?;
        Ok(Self { view, exclusive: PhantomData })
    }

    /// As [`DeviceHalfRef::submatrix`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn submatrix(self, rows: Range<usize>, cols: Range<usize>) -> Result<Self, Error> {
        Ok(Self { view: self.view.submatrix(rows, cols)?, ..self })
    }

    /// As [`DeviceHalfRef::split_rows`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn split_rows(self, count: usize) -> Result<Self, Error> {
        Ok(Self { view: self.view.split_rows(count)?, ..self })
    }

    /// As [`DeviceHalfRef::split_cols`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn split_cols(self, count: usize) -> Result<Self, Error> {
        Ok(Self { view: self.view.split_cols(count)?, ..self })
    }

    /// As [`DeviceHalfRef::rows_as_matrices`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn rows_as_matrices(self, rows: usize, cols: usize, ld: usize) -> Result<Self, Error> {
        Ok(Self { view: self.view.rows_as_matrices(rows, cols, ld)?, ..self })
    }

    /// The same, to be read.
    pub fn view(&self) -> DeviceHalfRef<'_> {
        self.view
    }
}

impl<'m> From<&'m DeviceHalfMatrix> for DeviceHalfRef<'m> {
    fn from(matrix: &'m DeviceHalfMatrix) -> Self {
        matrix.view()
    }
}

impl<'m> From<&'m mut DeviceHalfMatrix> for DeviceHalfMut<'m> {
    fn from(matrix: &'m mut DeviceHalfMatrix) -> Self {
        matrix.view_mut()
    }
}
