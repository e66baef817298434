//! The arithmetic of a product, on which its error depends beside the matrices.

use gemm_matrix::Element;

use super::check::{Bound, LAMBDA, SLACK, U};

/// The losses of [`Products::Tf32x3`], in units of u.
///
/// Both factors and their small parts' product lose at most 9 u. The sums of small products lose
/// less than 1 u. The rest covers a partial step.
const SPLIT: f64 = 12.0;

/// The relative loss of a product whose two factors each lose less than 2^-10.
const CUT_OFF: f64 = 2.0 / 1024.0 + 1.0 / (1 << 20) as f64;

/// The multiplication and addition of products; sums are f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Products {
    /// FMAs, in any order.
    #[default]
    Fma,
    /// Tensor cores.
    TensorCore,
    /// Tensor cores on f32 converted to TF32, rounded or truncated; the matrices are the
    /// unconverted ones.
    Tf32,
    /// Tensor cores on f32 split in two TF32 parts.
    ///
    /// Tensor cores sum [`TF32X3_STEP`](Self::TF32X3_STEP) steps along K, and FADDs do all other
    /// additions.
    Tf32x3,
}

impl Products {
    /// Steps along K that tensor cores sum for [`Tf32x3`](Self::Tf32x3).
    pub const TF32X3_STEP: usize = 32;
}

/// The element type and the arithmetic of a product; the default is f32 throughout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arithmetic {
    /// The type of A and B. The matrices of the [`Problem`](crate::Problem) are already rounded to
    /// it.
    pub input: Element,
    /// The multiplication of A and B.
    pub products: Products,
}

impl Arithmetic {
    /// `g` of [the crate](crate), for an inner dimension.
    pub(super) fn factor(self, bound: Bound, depth: usize) -> f64 {
        /// The most roundings of the largest sum per step along K.
        const TENSOR_CORE: f64 = 9.0 / 8.0;
        /// The largest spread of the roundings, per root of a step.
        const SPREAD: f64 = 3.0;
        let k = depth as f64;
        if self.products == Products::Fma {
            return bound.factor(depth);
        }
        if self.products == Products::Tf32x3 {
            let additions = bound.factor(depth.div_ceil(Products::TF32X3_STEP));
            let in_step = depth.min(Products::TF32X3_STEP) as f64;
            return (TENSOR_CORE * in_step + SPLIT) * U * SLACK + additions;
        }
        let cut_off = if self.products == Products::Tf32 { CUT_OFF } else { 0.0 };
        let worst = (TENSOR_CORE * k + 4.0) * U;
        let rounding = match bound {
            Bound::WorstCase => worst,
            Bound::Probabilistic => (LAMBDA * SPREAD * (k + 2.0).sqrt() * U).exp_m1().min(worst),
        };
        (cut_off + (1.0 + cut_off) * rounding) * SLACK
    }

    /// The bound of the errors' root mean square for random matrices, in units of the norms.
    ///
    /// See [the crate](crate).
    pub(super) fn rms_factor(self, depth: usize) -> f64 {
        let k = depth.max(1) as f64;
        let root = k.sqrt();
        let additions = U * ((1.0 + 7.0 / k) / 2.0).sqrt();
        // All instructions, and three roundings of the final sum.
        let tensor_core = |k: f64| (0.75 * (k + 4.0).powf(1.5) / k + 3.0 / k.sqrt()) * U;
        let factor = match self.products {
            Products::Fma => additions,
            Products::TensorCore => tensor_core(k),
            Products::Tf32 => CUT_OFF / root + (1.0 + CUT_OFF) * tensor_core(k),
            Products::Tf32x3 => {
                let step = k.min(Products::TF32X3_STEP as f64);
                (SPLIT * U + tensor_core(step) * step.sqrt()) / root + additions
            }
        };
        factor * SLACK
    }

    /// The magnitude below which a number counts as this large.
    ///
    /// Smaller numbers lose bits when they are aligned to others.
    pub(super) fn floor(self) -> f64 {
        match self.products {
            Products::Fma => 0.0,
            Products::TensorCore | Products::Tf32 => self.input.min_positive(),
            // 2^-103: from there on, the lower part of a number is zero or a normal number of TF32.
            Products::Tf32x3 => f32::MIN_POSITIVE as f64 * (1u32 << 23) as f64,
        }
    }
}

/// The nearest TF32 number, with 8 bits of exponent and 11 of significand.
///
/// Ties go to the number whose last bit is zero. Bulk copies with a TF32 tensor map round in this
/// way.
///
/// ```
/// use gemm_verify::nearest_tf32;
///
/// let last = 2f32.powi(-10);
/// assert_eq!(nearest_tf32(1.0 + last / 2.0), 1.0);
/// assert_eq!(nearest_tf32(1.0 + 1.5 * last), 1.0 + 2.0 * last);
/// assert_eq!(nearest_tf32(f32::MAX), f32::INFINITY);
/// ```
pub fn nearest_tf32(x: f32) -> f32 {
    let bits = x.to_bits();
    let bits = bits.wrapping_add(0xfff + (bits >> 13 & 1)) & !0x1fff;
    if x.is_nan() { x } else { f32::from_bits(bits) }
}
