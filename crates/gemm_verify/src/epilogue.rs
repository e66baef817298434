//! The epilogue of a product, in f64.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use gemm_matrix::{Activation, Axis, Matrix};

use crate::check::{SLACK, TINY, U};
use crate::error::Error;

/// The largest slope of an activation: GELU's is at most 1.129, and SiLU's 1.0998.
const SLOPE: f64 = 1.13;

/// Roundings of an activation, in units of its argument.
///
/// They include those of the exponential function that it uses.
const ACTIVATION_ROUNDINGS: f64 = 8.0;

/// The operations on each element of `alpha * A * B + beta * C`.
///
/// The order is `activation(value * scale + bias) + residual`.
/// [`Reference::then`](crate::Reference::then) accepts an epilogue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Epilogue<'a> {
    /// A factor for each row or each column.
    pub scale: Option<(Axis, &'a [f32])>,
    /// A summand for each row or each column.
    pub bias: Option<(Axis, &'a [f32])>,
    /// A function applied to each element.
    pub activation: Option<Activation>,
    /// A matrix of C's shape that is added last.
    pub residual: Option<&'a Matrix>,
}

impl Epilogue<'_> {
    /// Whether there are no operations.
    pub fn is_none(&self) -> bool {
        let Self { scale, bias, activation, residual } = self;
        scale.is_none() && bias.is_none() && activation.is_none() && residual.is_none()
    }

    /// Checks that the vectors and the matrix fit a C of this shape.
    pub(super) fn expect_shape(&self, rows: usize, cols: usize) -> Result<(), Error> {
        let vectors = [("the scale", self.scale), ("the bias", self.bias)];
        for (what, vector) in vectors {
            let Some((axis, elements)) = vector else { continue };
            let (len, need_cols) = (elements.len(), axis.len(rows, cols));
            if len != need_cols {
                return Err(Error::Shape { what, rows: 1, cols: len, need_rows: 1, need_cols });
            }
        }
        let Some(residual) = self.residual else { return Ok(()) };
        let (what, has) = ("the residual", [residual.rows(), residual.cols()]);
        match has == [rows, cols] {
            true => Ok(()),
            false => Err(Error::Shape {
                what,
                rows: has[0],
                cols: has[1],
                need_rows: rows,
                need_cols: cols,
            }),
        }
    }

    /// An element and its error bounds, from those of `alpha * A * B + beta * C`.
    pub(super) fn apply(
        &self,
        row: usize,
        col: usize,
        mut value: f64,
        mut bounds: [f64; 2],
    ) -> (f64, [f64; 2]) {
        let at = |(axis, elements): (Axis, &[f32])| f64::from(elements[axis.len(row, col)]);
        let rounding = |value: f64| if value.is_finite() { U * SLACK * value.abs() } else { 0.0 };
        // Unlike a product, a sum does not underflow.
        let product_rounding = |value: f64| rounding(value) + TINY;
        if let Some(scale) = self.scale {
            value *= at(scale);
            bounds = bounds.map(|bound| bound * at(scale).abs() + product_rounding(value));
        }
        if let Some(bias) = self.bias {
            value += at(bias);
            bounds = bounds.map(|bound| bound + rounding(value));
        }
        if let Some(activation) = self.activation {
            let roundings = ACTIVATION_ROUNDINGS * product_rounding(value);
            bounds = bounds.map(|bound| SLOPE * bound + roundings);
            value = activate(activation, value);
        }
        if let Some(residual) = self.residual {
            value += f64::from(residual.at(row, col));
            bounds = bounds.map(|bound| bound + rounding(value));
        }
        (value, bounds)
    }
}

/// Computes an activation in f64.
fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Relu if x < 0.0 => 0.0,
        Activation::Relu => x,
        // Not `1 + erf`, which cancels to 0 far below 0.
        Activation::Gelu if x == f64::NEG_INFINITY => 0.0,
        Activation::Gelu => 0.5 * x * libm::erfc(-x * FRAC_1_SQRT_2),
        Activation::GeluTanh => {
            let argument = (2.0 / PI).sqrt() * (x + 0.044715 * x.powi(3));
            x / (1.0 + (-2.0 * argument).exp())
        }
        Activation::Silu => x / (1.0 + (-x).exp()),
    }
}

#[cfg(test)]
mod tests {
    use approx::assert_relative_eq;

    use super::*;

    /// Expected values from Python's `math`.
    #[test]
    fn activations_are_the_known_ones() {
        for (activation, x, expected) in [
            (Activation::Relu, -1.0, 0.0),
            (Activation::Relu, 2.5, 2.5),
            (Activation::Gelu, 1.0, 0.841_344_746_068_542_9),
            (Activation::Gelu, -2.0, -0.045_500_263_896_358_44),
            (Activation::GeluTanh, 1.0, 0.841_191_990_608_276_8),
            (Activation::Silu, 1.0, 0.731_058_578_630_004_9),
        ] {
            assert_relative_eq!(activate(activation, x), expected, max_relative = 1e-9);
        }
        assert!(Activation::ALL.iter().all(|&one| activate(one, f64::NAN).is_nan()));
    }
}
