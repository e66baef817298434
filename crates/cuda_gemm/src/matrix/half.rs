//! Matrices of 16-bit floats in a device's memory.

use std::fmt;

use gemm_matrix::{Element, Matrix, MatrixRef};
use kernels_gpu::InputType;

use super::memory::{Memory, copy_from_host, copy_to_host};
use crate::error::Error;
use crate::stream::Stream;

/// Elements of 16 bytes, on which a row begins: bulk copies take no other rows.
const VECTOR: usize = 8;

/// A row-major matrix of `bf16` or `f16` in a device's memory, whose rows begin on 16 bytes. It belongs
/// to one [`Stream`].
///
/// On the host its elements are f32: going there is exact, and coming from there rounds to the nearest,
/// ties to even.
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
    /// Allocates a matrix on a stream, and copies a host matrix into it, rounded; `&device` stands
    /// for the device's own stream.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if the elements cannot be counted; [`Error::Driver`], for one if there is
    /// too little memory.
    pub fn from_host<'m>(
        on: impl Into<Stream>,
        input: InputType,
        matrix: impl Into<MatrixRef<'m>>,
    ) -> Result<Self, Error> {
        let (stream, matrix) = (on.into(), matrix.into());
        let (rows, cols) = (matrix.rows(), matrix.cols());
        let ld = cols.next_multiple_of(VECTOR);
        const MAX: usize = isize::MAX as usize / 4;
        let elements = rows
            .checked_mul(ld)
            .filter(|&elements| elements <= MAX)
            .ok_or(Error::TooLarge { what: "matrix", value: usize::MAX, max: MAX })?;
        // Two elements to a word: `ld` is even.
        let memory = Memory::zeroed(&stream, elements / 2)?;
        let mut rounded = vec![0u8; 2 * elements];
        for (row, to) in rounded.chunks_exact_mut((2 * ld).max(1)).enumerate() {
            to[..2 * cols].copy_from_slice(&Self::element(input).encode(matrix.row(row)));
        }
        let copied = match elements {
            0 => Ok(()),
            _ => {
                let _exclusive = stream.exclusive();
                // SAFETY: the memory has these elements, and the next line waits for the copy.
                let copied = unsafe { copy_from_host(&stream, memory.address(), &rounded) };
                stream.synchronize().and(copied)
            }
        };
        copied.map(|()| Self { memory, input, rows, cols })
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
        let (stream, ld) = (self.stream(), self.ld());
        let mut bytes = vec![0u8; 2 * self.rows * ld];
        if !bytes.is_empty() {
            let _exclusive = stream.exclusive();
            // SAFETY: the memory has so many, and nobody looks at them before the next line.
            let copied = unsafe { copy_to_host(stream, self.memory.address(), &mut bytes) };
            stream.synchronize().and(copied)?;
        }
        let rows = bytes.chunks_exact((2 * ld).max(1));
        let elements = rows.flat_map(|row| Self::element(self.input).decode(&row[..2 * self.cols]));
        Ok(Matrix::from_vec(self.rows, self.cols, elements.collect()))
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

    /// The stream that uses the matrix.
    pub fn stream(&self) -> &Stream {
        self.memory.stream()
    }

    /// The address of the first element.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }
}
