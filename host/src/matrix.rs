//! Matrices of f32, on the host and on a device.

use cust::memory::{CopyDestination, DeviceBuffer, DevicePointer};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rayon::prelude::*;

use crate::device::Device;
use crate::error::Error;

/// A dense row-major matrix on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    rows: usize,
    cols: usize,
    data: Vec<f32>,
}

/// Elements of a matrix of this shape.
///
/// # Panics
///
/// If a `usize` cannot count them.
fn elements(rows: usize, cols: usize) -> usize {
    let elements = rows.checked_mul(cols);
    elements.unwrap_or_else(|| panic!("a {rows} x {cols} matrix has more than 2^64 elements"))
}

impl Matrix {
    /// A matrix of zeros. The memory must be known to be there: see
    /// [`crate::memory`].
    ///
    /// # Panics
    ///
    /// If there are more elements than a `Vec` can hold.
    pub fn zeros(rows: usize, cols: usize) -> Self {
        Self { rows, cols, data: vec![0.0; elements(rows, cols)] }
    }

    /// A matrix of these elements, row after row.
    ///
    /// # Panics
    ///
    /// If there are not exactly `rows * cols` elements.
    pub fn from_vec(rows: usize, cols: usize, data: Vec<f32>) -> Self {
        assert_eq!(data.len(), elements(rows, cols), "a {rows} x {cols} matrix");
        Self { rows, cols, data }
    }

    /// A matrix whose element (row, col) is what the function returns.
    ///
    /// # Panics
    ///
    /// As [`Matrix::zeros`].
    pub fn from_fn(rows: usize, cols: usize, mut f: impl FnMut(usize, usize) -> f32) -> Self {
        let data = (0..elements(rows, cols)).map(|i| f(i / cols, i % cols)).collect();
        Self { rows, cols, data }
    }

    /// Random elements, uniform over the multiples of 2^-23 in [-1, 1).
    ///
    /// The same seed and stream give the same matrix on every machine, whatever the
    /// number of threads. Use another stream for each matrix of a problem.
    ///
    /// # Panics
    ///
    /// As [`Matrix::zeros`].
    pub fn random(rows: usize, cols: usize, seed: u64, stream: u64) -> Self {
        // A piece of the key stream for each chunk of elements, one word each.
        const CHUNK: usize = 1 << 14;
        let mut data = vec![0.0; elements(rows, cols)];
        data.par_chunks_mut(CHUNK).enumerate().for_each(|(i, chunk)| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(stream);
            rng.set_word_pos((i * CHUNK) as u128);
            for value in chunk {
                *value = (rng.next_u32() >> 8) as f32 * (1.0 / (1 << 23) as f32) - 1.0;
            }
        });
        Self { rows, cols, data }
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The elements, row after row.
    pub fn as_slice(&self) -> &[f32] {
        &self.data
    }

    /// The elements, row after row.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        &mut self.data
    }

    /// One row.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    pub fn row(&self, row: usize) -> &[f32] {
        assert!(row < self.rows, "row {row} of a {} x {} matrix", self.rows, self.cols);
        &self.data[row * self.cols..][..self.cols]
    }

    /// One element.
    ///
    /// # Panics
    ///
    /// If it is outside.
    pub fn at(&self, row: usize, col: usize) -> f32 {
        self.row(row)[col]
    }
}

/// Where a matrix lies in its buffer, in elements.
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
/// larger than the matrix.
pub struct DeviceMatrix<'d> {
    device: &'d Device,
    buffer: DeviceBuffer<f32>,
    rows: usize,
    cols: usize,
    layout: Layout,
}

impl<'d> DeviceMatrix<'d> {
    /// Allocates a dense matrix of zeros.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`], for one if there is too little memory.
    pub fn zeros(device: &'d Device, rows: usize, cols: usize) -> Result<Self, Error> {
        Self::zeros_in(device, rows, cols, Layout::dense(cols))
    }

    /// Allocates a matrix of zeros in a buffer of zeros with this layout.
    ///
    /// # Errors
    ///
    /// [`Error::LeadingDimension`] if `ld` is less than `cols`; [`Error::TooLarge`] if the
    /// buffer's size cannot be counted; [`Error::Driver`].
    pub fn zeros_in(
        device: &'d Device,
        rows: usize,
        cols: usize,
        layout: Layout,
    ) -> Result<Self, Error> {
        if layout.ld < cols {
            return Err(Error::LeadingDimension { what: "ld", ld: layout.ld, cols });
        }
        // The last row ends after its last element, not after `ld` of them.
        let span = match rows {
            0 => Some(0),
            _ => (rows - 1).checked_mul(layout.ld).and_then(|n| n.checked_add(cols)),
        };
        const MAX: usize = isize::MAX as usize / 4;
        let len = span
            .and_then(|n| n.checked_add(layout.offset)?.checked_add(layout.tail))
            .filter(|&n| n <= MAX)
            .ok_or(Error::TooLarge { what: "matrix", value: usize::MAX, max: MAX })?;
        device.make_current()?;
        let buffer = match len {
            // The driver has no allocation of no bytes, and `zeroed` would touch it.
            // SAFETY: without elements there is none to be uninitialised.
            0 => unsafe { DeviceBuffer::uninitialized(0) },
            _ => DeviceBuffer::zeroed(len),
        }
        .map_err(|e| device.error("allocating device memory", e))?;
        Ok(Self { device, buffer, rows, cols, layout })
    }

    /// Allocates a dense matrix and copies a host matrix into it.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn from_host(device: &'d Device, matrix: &Matrix) -> Result<Self, Error> {
        let mut copy = Self::zeros(device, matrix.rows, matrix.cols)?;
        copy.upload(matrix)?;
        Ok(copy)
    }

    /// Copies a host matrix of the same shape into this one, row by row; what lies
    /// around and between the rows stays as it is.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] or [`Error::Driver`].
    pub fn upload(&mut self, matrix: &Matrix) -> Result<(), Error> {
        if (matrix.rows, matrix.cols) != (self.rows, self.cols) {
            return Err(Error::Shape {
                what: "the host's matrix",
                rows: matrix.rows,
                cols: matrix.cols,
                need_rows: self.rows,
                need_cols: self.cols,
            });
        }
        self.device.make_current()?;
        for (at, from, len) in self.runs() {
            self.buffer
                .index(at..at + len)
                .copy_from(&matrix.data[from..from + len])
                .map_err(|e| self.device.error("copying to the device", e))?;
        }
        Ok(())
    }

    /// Copies the matrix to the host.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`], or [`Error::KernelFault`] if a kernel failed before.
    pub fn download(&self) -> Result<Matrix, Error> {
        self.device.synchronize()?;
        let mut matrix = Matrix::zeros(self.rows, self.cols);
        for (at, to, len) in self.runs() {
            self.buffer
                .index(at..at + len)
                .copy_to(&mut matrix.data[to..to + len])
                .map_err(|e| self.device.error("copying from the device", e))?;
        }
        Ok(matrix)
    }

    /// Sets every word of the buffer, in and around the matrix, to these bits.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn fill_buffer(&mut self, bits: u32) -> Result<(), Error> {
        self.device.make_current()?;
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.buffer.set_32(bits).map_err(|e| self.device.error("filling device memory", e))
    }

    /// Copies the whole buffer to the host, with what lies around the matrix.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`], or [`Error::KernelFault`] if a kernel failed before.
    pub fn download_buffer(&self) -> Result<Vec<f32>, Error> {
        self.device.synchronize()?;
        let mut words = vec![0.0; self.buffer.len()];
        self.buffer
            .copy_to(words.as_mut_slice())
            .map_err(|e| self.device.error("copying from the device", e))?;
        Ok(words)
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
    pub fn device(&self) -> &'d Device {
        self.device
    }

    /// The address of the first element.
    pub fn as_device_ptr(&self) -> DevicePointer<f32> {
        // An offset of an empty buffer is never read or written.
        self.buffer.as_device_ptr().wrapping_add(self.layout.offset)
    }

    /// The longest runs of neighbouring elements: (position in the buffer, position
    /// in a dense matrix, length), all in elements.
    fn runs(&self) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let Self { rows, cols, layout: Layout { offset, ld, .. }, .. } = *self;
        // The product is no more than the buffer has: see `zeros_in`.
        let (count, len) = match (rows * cols, ld == cols) {
            (0, _) => (0, 0),
            (all, true) => (1, all),
            (_, false) => (rows, cols),
        };
        (0..count).map(move |i| (offset + i * ld, i * cols, len))
    }
}

impl Drop for DeviceMatrix<'_> {
    fn drop(&mut self) {
        // The buffer is freed in the current context; see `Device::drop`.
        let _ = self.device.make_current();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_matrices_are_reproducible_and_distinct() {
        let a = Matrix::random(300, 200, 42, 1);
        assert_eq!(a, Matrix::random(300, 200, 42, 1));
        assert_ne!(a, Matrix::random(300, 200, 42, 2));
        assert_ne!(a, Matrix::random(300, 200, 43, 1));
        // The first elements do not depend on how many follow, so not on the chunks.
        assert_eq!(a.as_slice()[..50], Matrix::random(1, 50, 42, 1).data);
        let single = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        assert_eq!(a, single.install(|| Matrix::random(300, 200, 42, 1)));
    }

    /// Shapes whose product wraps to 0, and to a few.
    #[test]
    fn more_elements_than_can_be_counted_are_refused() {
        for [rows, cols] in [[1 << 33, 1 << 31], [1 << 63, 2], [(1 << 32) + 1, (1 << 32) + 1]] {
            type Make = fn(usize, usize) -> Matrix;
            let makers: [(&str, Make); 4] = [
                ("from_vec", |rows, cols| {
                    Matrix::from_vec(rows, cols, vec![0.0; rows.wrapping_mul(cols).min(9)])
                }),
                ("zeros", Matrix::zeros),
                ("from_fn", |rows, cols| Matrix::from_fn(rows, cols, |_, _| panic!("called"))),
                ("random", |rows, cols| Matrix::random(rows, cols, 1, 1)),
            ];
            for (name, make) in makers {
                let Err(panic) = std::panic::catch_unwind(|| make(rows, cols)) else {
                    panic!("{name} makes a {rows} x {cols} matrix")
                };
                let text = panic.downcast_ref::<String>().unwrap();
                assert!(
                    text.contains(&format!("{rows} x {cols} matrix has more")),
                    "{name}: {text}"
                );
            }
        }
    }

    #[test]
    fn rows_outside_are_refused() {
        let empty_rows = Matrix::zeros(3, 0);
        assert!(empty_rows.row(2).is_empty());
        assert!(std::panic::catch_unwind(|| empty_rows.row(3).len()).is_err());
        // 2^63 * 2 wraps to 0.
        assert!(std::panic::catch_unwind(|| Matrix::zeros(1, 2).at(1 << 63, 0)).is_err());
    }

    #[test]
    fn random_elements_fill_the_interval() {
        let a = Matrix::random(512, 512, 7, 0);
        assert!(a.data.iter().all(|x| (-1.0..1.0).contains(x)));
        let mean = a.data.iter().map(|&x| f64::from(x)).sum::<f64>() / a.data.len() as f64;
        let power = a.data.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / a.data.len() as f64;
        // Five standard deviations of the mean and of the mean square.
        approx::assert_abs_diff_eq!(mean, 0.0, epsilon = 5.0 * (1.0 / 3.0f64).sqrt() / 512.0);
        approx::assert_abs_diff_eq!(
            power,
            1.0 / 3.0,
            epsilon = 5.0 * (4.0 / 45.0f64).sqrt() / 512.0
        );
    }
}
