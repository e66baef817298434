//! How a product is computed: what its error depends on, beside the matrices.

use gemm_matrix::Element;

use super::check::{Bound, LAMBDA, SLACK, U};

/// How products are multiplied and added up. Sums are in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Products {
    /// By FMAs, in any order.
    #[default]
    Fma,
    /// By tensor cores.
    TensorCore,
    /// By tensor cores, with each f32 split in a high and a low TF32 part, and three products.
    Tf32x3,
}

/// The types and the way in which a product is computed. The default is f32 throughout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arithmetic {
    /// The type of A and B. The matrices of the [`Problem`](crate::Problem) are rounded to it
    /// already.
    pub input: Element,
    /// How they are multiplied.
    pub products: Products,
    /// The type of C.
    pub output: Element,
}

impl Arithmetic {
    /// `g` of [the crate](crate), for an inner dimension.
    pub(super) fn factor(self, bound: Bound, depth: usize) -> f64 {
        /// Roundings of the largest sum per step along K.
        const TENSOR_CORE: f64 = 9.0 / 8.0;
        /// And how much their spread is, at most, per root of a step.
        const SPREAD: f64 = 3.0;
        let k = depth as f64;
        let (worst, n, split) = match self.products {
            Products::Fma => return bound.factor(depth),
            Products::TensorCore => (TENSOR_CORE * k + 4.0, k + 2.0, 0.0),
            // The low parts of both factors are rounded, and their product is left out: 2^-22 each.
            Products::Tf32x3 => (3.0 * TENSOR_CORE * k + 4.0, 3.0 * k + 2.0, 12.0 * U),
        };
        let worst = worst * U;
        let rounding = match bound {
            Bound::WorstCase => worst,
            Bound::Probabilistic => (LAMBDA * SPREAD * n.sqrt() * U).exp_m1().min(worst),
        };
        (rounding + split) * SLACK
    }

    /// Numbers smaller than this one lose bits where they are aligned to others: they count as if
    /// they were as large.
    pub(super) fn floor(self) -> f64 {
        match self.products {
            Products::Fma => 0.0,
            _ => self.input.min_positive(),
        }
    }

    /// The unit roundoff of the result's last rounding, if that is not f32's own, and the
    /// spacing of its subnormal numbers.
    pub(super) fn last_rounding(self) -> (f64, f64) {
        match self.output {
            Element::F32 => (0.0, 0.0),
            output => {
                let unit = output.unit_roundoff();
                (unit * SLACK, output.min_positive() * 2.0 * unit)
            }
        }
    }
}
