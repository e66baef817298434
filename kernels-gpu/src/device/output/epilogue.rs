//! Epilogues: operations on a sum before it is stored, while it is still in registers.
//!
//! ```text
//! value = alpha * sum + beta * C     alpha and beta are parameters, or in device memory
//! value = value * scale              one for each row, or for each column
//! value = value + bias               likewise
//! value = activation(value)          ReLU, GELU or SiLU
//! C     = value + residual           a matrix of C's shape
//! ```
//!
//! Each of these is an [`Epilogue`], which says what it loads for an output and how it changes the
//! output. The launch says which operations there are ([`Parameters`]), so no kernel is compiled
//! again for any of them. Without an epilogue, a kernel stores as if it had none (`persistent` only
//! if it does not read C). That costs one branch, the same for all threads. Epilogues come after
//! the reductions of slice-K, split-K and stream-K, so they see only final sums.
//!
//! To add one: implement [`Epilogue`], give it a number in
//! [`operations`](crate::abi::epilogue::operations), and call
//! `visit` for it in `Output::apply_epilogue`.

use core::f32::consts::LOG2_E;

use cuda_std::prelude::*;
use cuda_std::{fast, vec};

use crate::abi::epilogue::Parameters;

/// An operation on an output.
pub trait Epilogue: Copy {
    /// The element that it reads for the output `next` columns right of (row, col), if any.
    ///
    /// Neighbours share one address computation.
    ///
    /// # Safety
    /// That output lies inside C.
    #[inline(always)]
    unsafe fn load(self, _row: u32, _col: u32, _next: usize) -> f32 {
        0.0
    }

    /// The output, from its value so far and what was loaded for it.
    fn apply(self, value: f32, loaded: f32) -> f32;
}

/// Loads an element of global memory. The compiler cannot know the space of a pointer in a
/// structure.
///
/// # Safety
/// It can be read.
#[inline(always)]
pub(super) unsafe fn element(pointer: *const f32) -> f32 {
    // SAFETY: the caller's contract.
    let [element] = unsafe { vec::load(pointer) };
    element
}

/// `max(value, 0)`, and NaN of NaN.
#[derive(Clone, Copy)]
pub(super) struct Relu;

impl Epilogue for Relu {
    #[inline(always)]
    fn apply(self, value: f32, _: f32) -> f32 {
        max_nan(value, 0.0)
    }
}

/// `x * P(X <= x)` of a normal distribution: `x / 2 * (1 + erf(x / sqrt(2)))`.
#[derive(Clone, Copy)]
pub(super) struct Gelu;

impl Epilogue for Gelu {
    #[inline(always)]
    fn apply(self, x: f32, _: f32) -> f32 {
        // P(X > a) = numerator / denominator * exp(-a^2 / 2). Both are polynomials in a; the
        // denominator also has a^4. The fit is minimax. Before rounding, its relative error is at
        // most 7.1e-8 * (1 + a^2 / 2) up to a = 13.2. From there on the exponential function is
        // flushed to 0.
        const NUMERATOR: [f32; 4] = [0.398_816_1, 2.993_253_7, 9.454_111, 13.801_935];
        const DENOMINATOR: [f32; 4] = [7.492_367_7, 24.845_28, 40.932_823, 27.603_872];
        let a = x.abs().min(20.0);
        let (mut above, mut below) = (NUMERATOR[0], a + DENOMINATOR[0]);
        for i in 1..4 {
            above = fma(above, a, NUMERATOR[i]);
            below = fma(below, a, DENOMINATOR[i]);
        }
        let exponential = fast::exp2_ftz(a * a * (-0.5 * LOG2_E));
        let tail = above * fast::recip_ftz(below) * exponential;
        fma(-a, tail, Relu.apply(x, 0.0))
    }
}

/// `x / (1 + 2^u)`, where u is `x * (linear + cubic * x^2)`.
#[derive(Clone, Copy)]
pub(super) struct Logistic {
    linear: f32,
    cubic: f32,
}

impl Logistic {
    /// Of the GELU by a tangent, `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`, which
    /// equals `x / (1 + exp(-2 v))`, where v is the argument of the tangent.
    pub(super) const GELU_TANH: Self = Self::with_cubic(-2.0 * 0.797_884_6 * LOG2_E, 0.044_715);
    /// Of `x / (1 + exp(-x))`.
    pub(super) const SILU: Self = Self::with_cubic(-LOG2_E, 0.0);

    const fn with_cubic(linear: f32, share: f32) -> Self {
        Self { linear, cubic: linear * share }
    }
}

impl Epilogue for Logistic {
    #[inline(always)]
    fn apply(self, x: f32, _: f32) -> f32 {
        // 0 times an infinite square would be NaN.
        let square = if self.cubic == 0.0 { 0.0 } else { x * x };
        let u = x * fma(self.cubic, square, self.linear);
        x * fast::recip_ftz(1.0 + fast::exp2_ftz(u))
    }
}

/// `value + residual`.
#[derive(Clone, Copy)]
pub(crate) struct Residual {
    pub(super) elements: *const f32,
    pub(super) ld: u32,
}

impl Epilogue for Residual {
    #[inline(always)]
    unsafe fn load(self, row: u32, col: u32, next: usize) -> f32 {
        let first = row as usize * self.ld as usize + col as usize;
        // SAFETY: the launch promises a matrix of C's shape.
        unsafe { element(self.elements.add(first).add(next)) }
    }

    #[inline(always)]
    fn apply(self, value: f32, residual: f32) -> f32 {
        value + residual
    }
}

impl Parameters {
    /// Whether there is anything to do: the same for all threads.
    #[inline(always)]
    pub fn is_some(&self) -> bool {
        self.operations != 0
    }

    /// Whether four neighbours in a row of the residual are a vector of 16 bytes, if the first
    /// one's column is a multiple of four.
    #[inline(always)]
    pub(super) fn has_aligned_residual(&self) -> bool {
        (self.residual as usize).is_multiple_of(16) && self.ld_residual.is_multiple_of(4)
    }

    #[inline(always)]
    pub(super) fn has(&self, operations: u32) -> bool {
        self.operations & operations != 0
    }

    /// The parameters of a product of the batch.
    #[inline(always)]
    pub fn of_product(mut self, product: u32) -> Self {
        let offset = |stride: u64| product as usize * stride as usize;
        self.scale = self.scale.wrapping_add(offset(self.stride_scale));
        self.bias = self.bias.wrapping_add(offset(self.stride_bias));
        self.residual = self.residual.wrapping_add(offset(self.stride_residual));
        self
    }
}
