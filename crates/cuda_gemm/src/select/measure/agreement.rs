//! Checks exactly whether kernels compute the same.
//!
//! A bound on rounding errors grows with K, and hides mistakes in long sums. So A and B hold small
//! integers here, and partial sums are integers of at most 2^21. All arithmetic is exact: f32,
//! TF32, bf16 and f16 hold such operands, and a tensor core's accumulator keeps 23 bits. Whatever
//! the order of a sum, its result is one number, and results must be equal.
//!
//! Alpha, beta, scale, bias and residual are also small integers. Only a smooth activation rounds.
//! Its argument is the same number in every kernel, so its values may differ by a few units in the
//! last place.

use gemm_matrix::{Activation, Element};

use crate::problem::Gemm;

/// No partial sum exceeds this.
const LARGEST_SUM: usize = 1 << 21;

/// The largest operand; products have up to its square.
const LARGEST_OPERAND: usize = 3;

/// The largest operand with exact sums. `None` if K is too long.
pub(super) fn largest_operand(k: usize) -> Option<u32> {
    let fits = |value: &usize| k.saturating_mul(value * value) <= LARGEST_SUM;
    (1..=LARGEST_OPERAND).rev().find(fits).map(|value| value as u32)
}

/// How far results may differ, in proportion.
pub(super) fn tolerance(gemm: &Gemm) -> f32 {
    match gemm.epilogue.activation {
        None | Some(Activation::Relu) => 0.0,
        Some(_) => match gemm.output {
            Element::F32 => 16.0 * f32::EPSILON,
            Element::F16 => 4.0 / 1024.0,
            Element::Bf16 => 4.0 / 128.0,
        },
    }
}

/// The first right result, with which others are compared.
pub(super) struct Agreement {
    tolerance: f32,
    reference: Option<Vec<f32>>,
}

impl Agreement {
    pub(super) fn new(tolerance: f32) -> Self {
        Self { tolerance, reference: None }
    }

    /// Compares a result, and says how it is wrong.
    pub(super) fn compare(&mut self, result: Vec<f32>) -> Result<(), String> {
        // C was NaN, and integers make none.
        if let Some(at) = result.iter().position(|value| value.is_nan()) {
            return Err(format!("element {at} is NaN or was not stored"));
        }
        let Some(reference) = &self.reference else {
            self.reference = Some(result);
            return Ok(());
        };
        let is_near = |(one, other): (&f32, &f32)| {
            // An infinity equals itself alone: in proportion to it, any difference is small.
            one == other || one.is_finite() && (one - other).abs() <= self.tolerance * one.abs()
        };
        match reference.iter().zip(&result).position(|pair| !is_near(pair)) {
            None if reference.len() == result.len() => Ok(()),
            None => Err(format!("{} elements instead of {}", result.len(), reference.len())),
            Some(at) => {
                Err(format!("element {at} is {}, and should be {}", result[at], reference[at]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Compute, Epilogue};

    #[test]
    fn operands_are_small_enough_for_exact_sums() {
        assert_eq!(largest_operand(1), Some(3));
        assert_eq!(largest_operand(LARGEST_SUM / 9), Some(3));
        assert_eq!(largest_operand(LARGEST_SUM / 9 + 1), Some(2));
        assert_eq!(largest_operand(LARGEST_SUM), Some(1));
        assert_eq!(largest_operand(LARGEST_SUM + 1), None);
        assert_eq!(largest_operand(usize::MAX), None);
    }

    #[test]
    fn a_wrong_result_is_found() {
        let mut exact = Agreement::new(0.0);
        exact.compare(vec![1.0, -2.0, f32::INFINITY, 0.0]).unwrap();
        exact.compare(vec![1.0, -2.0, f32::INFINITY, -0.0]).unwrap();
        for (wrong, says) in [
            (vec![1.0, -3.0, f32::INFINITY, 0.0], "element 1 is -3, and should be -2"),
            (vec![1.0, -2.0, 65504.0, 0.0], "element 2 is 65504, and should be inf"),
            (vec![1.0, -2.0, f32::INFINITY, f32::NAN], "element 3 is NaN or was not stored"),
            (vec![1.0], "1 elements instead of 4"),
        ] {
            assert_eq!(exact.compare(wrong).unwrap_err(), says);
        }
        // A first result that is wrong by itself is no reference.
        let mut first = Agreement::new(0.0);
        assert!(first.compare(vec![f32::NAN]).is_err());
        first.compare(vec![4.0]).unwrap();
        assert!(first.compare(vec![5.0]).is_err());
    }

    #[test]
    fn smooth_activations_alone_round() {
        let gemm = Gemm::new(8, 8, 8).computed_in(Compute::Bf16);
        assert_eq!(tolerance(&gemm), 0.0);
        let with = |activation| gemm.then(Epilogue::new().activation(activation));
        assert_eq!(tolerance(&with(Activation::Relu)), 0.0);
        let mut smooth = Agreement::new(tolerance(&with(Activation::Gelu)));
        smooth.compare(vec![100.0, 0.0]).unwrap();
        smooth.compare(vec![100.00001, 0.0]).unwrap();
        assert!(smooth.compare(vec![100.001, 0.0]).is_err());
        assert!(smooth.compare(vec![100.0, 0.001]).is_err());
        let mut smooth = Agreement::new(tolerance(&with(Activation::Gelu)));
        smooth.compare(vec![f32::INFINITY]).unwrap();
        assert!(smooth.compare(vec![65504.0]).is_err());
        smooth.compare(vec![f32::INFINITY]).unwrap();
    }
}
