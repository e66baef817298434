//! Matrices of 16-bit floats in a device's memory.

use std::cmp::Ordering;
use std::fmt;

use gemm_matrix::{Element, Matrix, MatrixRef, ViewError};
use kernels_gpu::abi::tensor_core::InputType;

use super::memory::{Memory, copy_from_host, copy_to_host};
use crate::device::Device;
use crate::error::Error;
use crate::stream::Stream;

/// Elements of 16 bytes, on which a row begins: bulk copies take no other rows.
const VECTOR: usize = 8;

/// A row-major matrix of `bf16` or `f16` in a device's memory, whose rows begin on 16 bytes. It belongs
/// to one [`Stream`].
///
/// On the host its elements are f32, or the bits of the 16-bit ones. Going to f32 is exact, and coming
/// from there rounds to the nearest, ties to even.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceHalfMatrix, InputType, Matrix};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// // 8 bits: 257 lies between 256 and 258.
/// let host = Matrix::from_vec(1, 3, vec![0.5, 257.0, -3.0]);
/// let matrix = DeviceHalfMatrix::from_host(&device, InputType::Bf16, &host)?;
/// assert_eq!(matrix.download()?.as_slice(), [0.5, 256.0, -3.0]);
/// assert_eq!((matrix.input(), matrix.ld()), (InputType::Bf16, 8));
///
/// // Bits are taken as they are: 1 and -2 as `f16`.
/// let bits = [0x3c00, 0xc000];
/// let mut matrix = DeviceHalfMatrix::from_bits(&device, InputType::F16, &bits, 2, 1)?;
/// assert_eq!(matrix.download()?.as_slice(), [1.0, -2.0]);
/// matrix.upload(&Matrix::from_vec(2, 1, vec![-2.0, 1.0]))?;
/// assert_eq!(matrix.download_bits()?, [0xc000, 0x3c00]);
/// matrix.fill_buffer(0x3c00)?;
/// assert_eq!(matrix.download()?.as_slice(), [1.0, 1.0]);
/// assert_eq!(DeviceHalfMatrix::zeros(&device, InputType::F16, 1, 2)?.download_bits()?, [0, 0]);
/// assert!(matrix.upload_bits(&bits[1..]).is_err());
/// assert!(matrix.upload(&Matrix::zeros(1, 2)).is_err());
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
pub struct DeviceHalfMatrix {
    memory: Memory,
    input: InputType,
    rows: usize,
    cols: usize,
}

impl fmt::Debug for DeviceHalfMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, input, rows, cols } = self;
        let mut parts = f.debug_struct("DeviceHalfMatrix");
        parts.field("input", input).field("rows", rows).field("cols", cols);
        parts.field("stream", memory.stream()).finish()
    }
}

impl DeviceHalfMatrix {
    /// Allocates a matrix of zeros on a stream; `&device` stands for the device's own.
    ///
    /// # Errors
    ///
    /// [`Error::MatrixTooLarge`] if the elements cannot be counted; [`Error::Driver`], for one if
    /// there is too little memory.
    pub fn zeros(
        on: impl Into<Stream>,
        input: InputType,
        rows: usize,
        cols: usize,
    ) -> Result<Self, Error> {
        const MAX: usize = isize::MAX as usize / 4;
        // The bytes of a row are counted even if there is none.
        let elements = (cols as u128).next_multiple_of(VECTOR as u128) * rows.max(1) as u128;
        if elements > MAX as u128 {
            return Err(Error::MatrixTooLarge { rows, cols, elements, max: MAX });
        }
        // Two elements to a word: the leading dimension is even.
        let memory = Memory::zeroed(&on.into(), rows * cols.next_multiple_of(VECTOR) / 2)?;
        Ok(Self { memory, input, rows, cols })
    }

    /// Allocates a matrix, and copies a host matrix into it, rounded.
    ///
    /// # Errors
    ///
    /// As for [`DeviceHalfMatrix::zeros`].
    pub fn from_host<'m>(
        on: impl Into<Stream>,
        input: InputType,
        matrix: impl Into<MatrixRef<'m>>,
    ) -> Result<Self, Error> {
        let matrix = matrix.into();
        let mut copy = Self::zeros(on, input, matrix.rows(), matrix.cols())?;
        copy.upload(matrix)?;
        Ok(copy)
    }

    /// Allocates a matrix, and copies the bits of 16-bit elements into it, row after row, as
    /// `half::bf16::to_bits` and `half::f16::to_bits` give them.
    ///
    /// # Errors
    ///
    /// As for [`DeviceHalfMatrix::zeros`], and [`Error::View`] if there are not exactly
    /// `rows * cols`.
    pub fn from_bits(
        on: impl Into<Stream>,
        input: InputType,
        bits: &[u16],
        rows: usize,
        cols: usize,
    ) -> Result<Self, Error> {
        let mut copy = Self::zeros(on, input, rows, cols)?;
        copy.upload_bits(bits)?;
        Ok(copy)
    }

    /// Copies a host matrix of the same shape into this one, rounded, after what the stream was given
    /// before, and waits for it.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] or [`Error::Driver`].
    pub fn upload<'m>(&mut self, matrix: impl Into<MatrixRef<'m>>) -> Result<(), Error> {
        let matrix = matrix.into();
        let (rows, cols) = (matrix.rows(), matrix.cols());
        if [rows, cols] != [self.rows, self.cols] {
            let (need_rows, need_cols) = (self.rows, self.cols);
            let what = "the host's matrix";
            return Err(Error::Shape { what, rows, cols, need_rows, need_cols });
        }
        let element = Self::element(self.input);
        self.copy_rows(|row| element.encode(matrix.row(row)))
    }

    /// As [`DeviceHalfMatrix::upload`], of the bits of 16-bit elements, row after row.
    ///
    /// # Errors
    ///
    /// [`Error::View`] if there are too few or too many; [`Error::Driver`].
    pub fn upload_bits(&mut self, bits: &[u16]) -> Result<(), Error> {
        let cols = self.cols;
        let (elements, len) = (self.rows as u128 * cols as u128, bits.len());
        match elements.cmp(&(len as u128)) {
            Ordering::Greater => return Err(ViewError::TooShort { needed: elements, len }.into()),
            Ordering::Less => return Err(ViewError::TooLong { elements, len }.into()),
            Ordering::Equal => {}
        }
        self.copy_rows(|row| {
            bits[row * cols..][..cols].iter().flat_map(|bits| bits.to_le_bytes()).collect()
        })
    }

    /// Copies all rows from the host, each as the bytes of its elements.
    fn copy_rows(&mut self, row: impl Fn(usize) -> Vec<u8>) -> Result<(), Error> {
        let pitch = 2 * self.ld();
        let mut bytes = vec![0u8; pitch * self.rows];
        if bytes.is_empty() {
            return Ok(());
        }
        for (i, to) in bytes.chunks_exact_mut(pitch).enumerate() {
            to[..2 * self.cols].copy_from_slice(&row(i));
        }
        let stream = self.stream();
        let _exclusive = stream.exclusive();
        // SAFETY: the memory has these bytes, and the next line waits for the copy.
        let copied = unsafe { copy_from_host(stream, self.address(), &bytes) };
        stream.synchronize().and(copied)
    }

    /// Enqueues the setting of every element to these bits, also of those that fill rows up to 16 bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn fill_buffer(&mut self, bits: u16) -> Result<(), Error> {
        self.memory.fill(u32::from(bits) << 16 | u32::from(bits))
    }

    /// What a host matrix is on a device: each element rounded to the nearest of the type, ties to
    /// even.
    #[must_use]
    pub fn rounded(input: InputType, matrix: &Matrix) -> Matrix {
        matrix.clone().rounded(Self::element(input))
    }

    /// The type as the host knows it.
    #[must_use]
    pub const fn element(input: InputType) -> Element {
        match input {
            InputType::Bf16 => Element::Bf16,
            InputType::F16 => Element::F16,
        }
    }

    /// Copies the matrix to the host, after what the stream was given before.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`], or [`Error::KernelFault`] if a kernel failed before.
    pub fn download(&self) -> Result<Matrix, Error> {
        let (pitch, bytes) = self.bytes()?;
        let rows = bytes.chunks_exact(pitch);
        let elements = rows.flat_map(|row| Self::element(self.input).decode(&row[..2 * self.cols]));
        Ok(Matrix::from_vec(self.rows, self.cols, elements.collect()))
    }

    /// As [`DeviceHalfMatrix::download`], as the bits of the elements, row after row.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn download_bits(&self) -> Result<Vec<u16>, Error> {
        let (pitch, bytes) = self.bytes()?;
        let rows = bytes.chunks_exact(pitch);
        let elements = rows.flat_map(|row| row[..2 * self.cols].as_chunks().0);
        Ok(elements.map(|&bytes| u16::from_le_bytes(bytes)).collect())
    }

    /// Bytes from one row to the next, at least 1, and all bytes.
    fn bytes(&self) -> Result<(usize, Vec<u8>), Error> {
        let (stream, pitch) = (self.stream(), 2 * self.ld());
        let mut bytes = vec![0u8; pitch * self.rows];
        if !bytes.is_empty() {
            let _exclusive = stream.exclusive();
            // SAFETY: the memory has so many, and nobody looks at them before the next line.
            let copied = unsafe { copy_to_host(stream, self.memory.address(), &mut bytes) };
            stream.synchronize().and(copied)?;
        }
        Ok((pitch.max(1), bytes))
    }

    /// The type of the elements.
    pub fn input(&self) -> InputType {
        self.input
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The leading dimension: the columns, rounded up to 16 bytes.
    pub fn ld(&self) -> usize {
        self.cols.next_multiple_of(VECTOR)
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

    /// The device whose memory this is.
    pub fn device(&self) -> &Device {
        self.stream().device()
    }

    /// The stream that uses the matrix.
    pub fn stream(&self) -> &Stream {
        self.memory.stream()
    }

    /// The address of the first element.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, DeviceChoice, Stream};

    #[test]
    fn a_matrix_moves_to_another_stream() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let mut matrix = DeviceHalfMatrix::zeros(&device, InputType::F16, 1, 2).unwrap();
        matrix.fill_buffer(0x3c00).unwrap();
        let stream = Stream::new(&device).unwrap();
        matrix.move_to(&stream).unwrap();
        assert!(matrix.stream().is_same(&stream) && matrix.device().is_same(&device));
        assert_eq!(matrix.download_bits().unwrap(), [0x3c00; 2]);
        let other = Device::open(DeviceChoice::Soft).unwrap();
        let refused = matrix.move_to(&other.stream());
        assert!(matches!(refused, Err(Error::WrongDevice { .. })));
    }

    #[test]
    fn shapes_at_the_edges() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        for [rows, cols] in [[0, 3], [3, 0], [0, 0], [3, 9], [usize::MAX, 0]] {
            let bits: Vec<u16> = (0..rows * cols).map(|i| i as u16).collect();
            let matrix = DeviceHalfMatrix::from_bits(&device, InputType::Bf16, &bits, rows, cols);
            let matrix = matrix.unwrap();
            assert_eq!(matrix.download_bits().unwrap(), bits);
            let host = matrix.download().unwrap();
            assert_eq!((host.rows(), host.cols()), (rows, cols));
            let again = DeviceHalfMatrix::from_host(&device, InputType::Bf16, &host).unwrap();
            assert_eq!(again.download_bits().unwrap(), bits);
        }
        let too_large = [
            [0, usize::MAX],
            [0, usize::MAX - 7],
            [0, usize::MAX / 2 + 1],
            [usize::MAX, 8],
            [1 << 40, 1 << 40],
        ];
        for [rows, cols] in too_large {
            let refused = DeviceHalfMatrix::zeros(&device, InputType::F16, rows, cols);
            let says = format!("a matrix of {rows} x {cols} takes a buffer of ");
            let refused = refused.unwrap_err().to_string();
            assert!(refused.starts_with(&says), "{refused}");
        }
        let short = DeviceHalfMatrix::from_bits(&device, InputType::F16, &[1, 2, 3], 2, 2);
        assert!(matches!(short, Err(Error::View(ViewError::TooShort { needed: 4, len: 3 }))));
        let long = DeviceHalfMatrix::from_bits(&device, InputType::F16, &[1, 2, 3, 4, 5], 2, 2);
        assert!(matches!(long, Err(Error::View(ViewError::TooLong { elements: 4, len: 5 }))));
        let none = DeviceHalfMatrix::from_bits(&device, InputType::F16, &[1], 0, 9);
        assert!(matches!(none, Err(Error::View(ViewError::TooLong { elements: 0, len: 1 }))));
    }
}
