//! Borrowed matrices of 16-bit floats: all of one, a part of one, or a batch.

use std::marker::PhantomData;
use std::ops::Range;

use kernels_gpu::InputType;

use super::batch::part;
use super::half::DeviceHalfMatrix;
use crate::error::Error;
use crate::stream::Stream;

/// A matrix of 16-bit floats, a part of one, or matrices of one shape at a constant stride, for a
/// strided batch of products.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceHalfMatrix, InputType};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let mut matrix = DeviceHalfMatrix::zeros(&device, InputType::F16, 6, 5)?;
/// let three = matrix.view().split_rows(3)?;
/// assert_eq!((three.rows(), three.cols(), three.count(), three.stride()), (2, 5, 3, 2 * 8));
/// let part = matrix.view().submatrix(1..3, 2..5)?;
/// assert_eq!((part.rows(), part.cols(), part.ld()), (2, 3, 8));
/// assert_eq!(part.broadcast(4).stride(), 0);
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
