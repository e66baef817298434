//! How a product is computed: what its error depends on, beside the matrices.

use gemm_matrix::Element;

use super::check::{Bound, LAMBDA, SLACK, U};

/// What [`Products::Tf32x3`] loses of both factors and their small parts' product, at most 9 u, and in the sums of
/// small ones, less than 1 u; the rest is for a step that is not whole.
const SPLIT: f64 = 12.0;

/// Two factors of a product, each off by less than 2^-10 of itself.
const CUT_OFF: f64 = 2.0 / 1024.0 + 1.0 / (1 << 20) as f64;

/// How products are multiplied and added up. Sums are in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Products {
    /// By FMAs, in any order.
    #[default]
    Fma,
    /// By tensor cores.
    TensorCore,
    /// By tensor cores, of f32 that they take as TF32, rounded or cut off: of the matrices as they were before.
    Tf32,
    /// By tensor cores, of f32 in two parts of TF32 each, the sums of [`TF32X3_STEP`](Self::TF32X3_STEP) steps
    /// along K in them and all others by FADDs.
    Tf32x3,
}

impl Products {
    /// Steps along K that tensor cores add up, of [`Tf32x3`](Self::Tf32x3).
    pub const TF32X3_STEP: usize = 32;
}

/// The type and the way in which a product is computed. C is in f32, and the default is that throughout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arithmetic {
    /// The type of A and B. The matrices of the [`Problem`](crate::Problem) are rounded to it
    /// already.
    pub input: Element,
    /// How they are multiplied.
    pub products: Products,
}

impl Arithmetic {
    /// `g` of [the crate](crate), for an inner dimension.
    pub(super) fn factor(self, bound: Bound, depth: usize) -> f64 {
        /// Roundings of the largest sum per step along K.
        const TENSOR_CORE: f64 = 9.0 / 8.0;
        /// And how much their spread is, at most, per root of a step.
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

    /// What the root mean square of the errors is at most, in units of the norms, for random matrices: see
    /// [the crate](crate).
    pub(super) fn rms_factor(self, depth: usize) -> f64 {
        let k = depth.max(1) as f64;
        let root = k.sqrt();
        let additions = U * ((1.0 + 7.0 / k) / 2.0).sqrt();
        // All instructions, and three roundings of the sum at the end.
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

    /// Numbers smaller than this one lose bits where they are aligned to others: they count as if
    /// they were as large.
    pub(super) fn floor(self) -> f64 {
        match self.products {
            Products::Fma => 0.0,
            Products::TensorCore | Products::Tf32 => self.input.min_positive(),
            // 2^-103: from there on the lower part of a number is zero or a normal number of TF32.
            Products::Tf32x3 => f32::MIN_POSITIVE as f64 * (1u32 << 23) as f64,
        }
    }
}

/// The nearest TF32 number: eight bits of exponent and eleven of significand; of two as near the one whose last
/// bit is zero. Bulk copies to a tensor map of TF32 round so, too.
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
