//! The operation: GEMM in f32, as BLAS has it.

use crate::error::Error;

/// The largest m, n, k or leading dimension: kernels take them as `u32`, and
/// indices in rows and columns must fit an `i32` on every device.
pub const MAX_DIMENSION: usize = i32::MAX as usize;

/// `C = alpha * A * B + beta * C` in f32, all matrices row-major: A is m x k, B is
/// k x n, C is m x n. Leading dimensions are in elements.
///
/// BLAS rules: with `beta == 0` C is not read; with `alpha == 0` or `k == 0`
/// neither A nor B is read.
///
/// ```
/// use cuda_gemm::Gemm;
///
/// // A is 2 x 4; B is 4 x 3, with 8 elements from one row to the next; C is 2 x 3, and added to.
/// let gemm = Gemm::new(2, 3, 4).scaled(0.5, 1.0).strided(4, 8, 3);
/// gemm.validate()?;
/// assert_eq!((gemm.depth(), gemm.flops()), (4, 2.0 * 2.0 * 3.0 * 4.0));
/// assert_eq!(gemm.bytes(), 4 * (2 * 4 + 4 * 3 + 2 * 3));
/// assert!(Gemm { ldb: 2, ..gemm }.validate().is_err());
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gemm {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A and rows of B.
    pub k: usize,
    /// The factor of the product.
    pub alpha: f32,
    /// The factor of the old C.
    pub beta: f32,
    /// Leading dimension of A, at least k.
    pub lda: usize,
    /// Leading dimension of B, at least n.
    pub ldb: usize,
    /// Leading dimension of C, at least n.
    pub ldc: usize,
}

impl Gemm {
    /// `C = A * B` of densely stored matrices.
    pub const fn new(m: usize, n: usize, k: usize) -> Self {
        Self { m, n, k, alpha: 1.0, beta: 0.0, lda: k, ldb: n, ldc: n }
    }

    /// The same product with other factors.
    #[must_use]
    pub const fn scaled(self, alpha: f32, beta: f32) -> Self {
        Self { alpha, beta, ..self }
    }

    /// The same product with other leading dimensions, in elements.
    #[must_use]
    pub const fn strided(self, lda: usize, ldb: usize, ldc: usize) -> Self {
        Self { lda, ldb, ldc, ..self }
    }

    /// The inner dimension that is really summed over: none of it if alpha is 0.
    pub fn depth(&self) -> usize {
        if self.alpha == 0.0 { 0 } else { self.k }
    }

    /// Floating-point operations, by the field's convention: `2 * m * n * k`, and
    /// 0 where alpha is 0.
    pub fn flops(&self) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.depth() as f64
    }

    /// Checks what does not depend on a kernel or a device.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`], [`Error::LeadingDimension`] or [`Error::NotFinite`].
    pub fn validate(&self) -> Result<(), Error> {
        let sizes = [
            ("m", self.m),
            ("n", self.n),
            ("k", self.k),
            ("lda", self.lda),
            ("ldb", self.ldb),
            ("ldc", self.ldc),
        ];
        for (what, value) in sizes {
            if value > MAX_DIMENSION {
                return Err(Error::TooLarge { what, value, max: MAX_DIMENSION });
            }
        }
        let rows =
            [("lda", self.lda, self.k), ("ldb", self.ldb, self.n), ("ldc", self.ldc, self.n)];
        for (what, ld, cols) in rows {
            if ld < cols {
                return Err(Error::LeadingDimension { what, ld, cols });
            }
        }
        for (what, value) in [("alpha", self.alpha), ("beta", self.beta)] {
            if !value.is_finite() {
                return Err(Error::NotFinite { what, value });
            }
        }
        Ok(())
    }

    /// Bytes that densely stored A, B and C take together; the largest number where that is too
    /// small to count them.
    pub fn bytes(&self) -> u128 {
        let [m, n, k] = [self.m as u128, self.n as u128, self.k as u128];
        // Each product of two `usize` fits; their sum may not.
        (m * k).saturating_add(k * n).saturating_add(m * n).saturating_mul(4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alpha_zero_sums_over_nothing() {
        assert_eq!(Gemm::new(2, 3, 4).scaled(0.0, 1.0).depth(), 0);
        assert_eq!(Gemm::new(2, 3, 4).scaled(-0.0, 1.0).flops(), 0.0);
        assert_eq!(Gemm::new(2, 3, 4).flops(), 48.0);
    }
}
