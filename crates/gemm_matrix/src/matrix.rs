//! f32 matrices on the host.

use crate::element::Element;

/// A dense row-major matrix on the host.
///
/// ```
/// use gemm_matrix::Matrix;
///
/// let mut matrix = Matrix::from_fn(2, 3, |row, col| (10 * row + col) as f32);
/// assert_eq!(matrix, Matrix::from_vec(2, 3, vec![0.0, 1.0, 2.0, 10.0, 11.0, 12.0]));
/// assert_eq!((matrix.rows(), matrix.cols(), matrix.at(1, 2)), (2, 3, 12.0));
/// matrix.as_mut_slice()[0] = 7.0;
/// assert_eq!(matrix.row(0), [7.0, 1.0, 2.0]);
/// assert_eq!(Matrix::zeros(1, 2).into_vec(), [0.0, 0.0]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    rows: usize,
    cols: usize,
    data: Vec<f32>,
}

/// The number of elements of this shape.
///
/// # Panics
///
/// If they overflow a `usize`.
fn elements(rows: usize, cols: usize) -> usize {
    let elements = rows.checked_mul(cols);
    elements.unwrap_or_else(|| panic!("a {rows} x {cols} matrix has more than 2^64 elements"))
}

impl Matrix {
    /// A matrix of zeros. Make sure beforehand that memory suffices.
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
    #[track_caller]
    pub fn from_vec(rows: usize, cols: usize, data: Vec<f32>) -> Self {
        let (len, elements) = (data.len(), elements(rows, cols));
        assert!(len == elements, "{len} elements, and a {rows} x {cols} matrix has {elements}");
        Self { rows, cols, data }
    }

    /// A matrix whose element (row, col) is `f(row, col)`.
    ///
    /// # Panics
    ///
    /// See [`Matrix::zeros`].
    pub fn from_fn(rows: usize, cols: usize, mut f: impl FnMut(usize, usize) -> f32) -> Self {
        let data = (0..elements(rows, cols)).map(|i| f(i / cols, i % cols)).collect();
        Self { rows, cols, data }
    }

    /// Random elements, uniform over the multiples of 2^-23 in [-1, 1).
    ///
    /// A seed and a stream give the same matrix on every machine, with any number of threads. Use
    /// another stream for each matrix of a problem. Needs the feature `random`.
    ///
    /// ```
    /// use gemm_matrix::Matrix;
    ///
    /// let (a, b) = (Matrix::random(30, 50, 42, 1), Matrix::random(50, 20, 42, 2));
    /// assert!(a != Matrix::random(30, 50, 42, 2) && a == Matrix::random(30, 50, 42, 1));
    /// ```
    ///
    /// # Panics
    ///
    /// See [`Matrix::zeros`].
    #[cfg(feature = "random")]
    pub fn random(rows: usize, cols: usize, seed: u64, stream: u64) -> Self {
        use rand_chacha::ChaCha8Rng;
        use rand_chacha::rand_core::{Rng, SeedableRng};
        use rayon::prelude::*;

        // Each chunk of elements has its own piece of the key stream, one word per element.
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

    /// Rounds all elements to a type.
    #[must_use]
    pub fn rounded(mut self, element: Element) -> Self {
        self.data.iter_mut().for_each(|x| *x = element.round(*x));
        self
    }

    /// The transpose.
    ///
    /// ```
    /// use gemm_matrix::Matrix;
    ///
    /// let matrix = Matrix::from_vec(2, 3, vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// assert_eq!(matrix.transposed(), Matrix::from_vec(3, 2, vec![1.0, 4.0, 2.0, 5.0, 3.0, 6.0]));
    /// ```
    #[must_use]
    pub fn transposed(&self) -> Self {
        // Blocks fit the cache, so that no line is fetched for a single element.
        const BLOCK: usize = 32;
        let Self { rows, cols, .. } = *self;
        let mut transposed = Self::zeros(cols, rows);
        if self.data.is_empty() {
            // Without columns there may be any number of rows.
            return transposed;
        }
        for row0 in (0..rows).step_by(BLOCK) {
            for col0 in (0..cols).step_by(BLOCK) {
                for row in row0..rows.min(row0 + BLOCK) {
                    for col in col0..cols.min(col0 + BLOCK) {
                        transposed.data[col * rows + row] = self.data[row * cols + col];
                    }
                }
            }
        }
        transposed
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
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

    /// The elements, row after row, without a copy.
    pub fn into_vec(self) -> Vec<f32> {
        self.data
    }

    /// One row, as a slice.
    ///
    /// # Panics
    ///
    /// If the row is out of bounds.
    pub fn row(&self, row: usize) -> &[f32] {
        assert!(row < self.rows, "row {row} of a {} x {} matrix", self.rows, self.cols);
        &self.data[row * self.cols..][..self.cols]
    }

    /// One element.
    ///
    /// # Panics
    ///
    /// If the element is out of bounds.
    pub fn at(&self, row: usize, col: usize) -> f32 {
        self.row(row)[col]
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
        // The first elements do not depend on the number of elements, so not on the chunks.
        assert_eq!(a.as_slice()[..50], Matrix::random(1, 50, 42, 1).data);
        let single = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        assert_eq!(a, single.install(|| Matrix::random(300, 200, 42, 1)));
    }

    /// Shapes whose product wraps to 0, or to a small number.
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
