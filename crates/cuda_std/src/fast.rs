//! Fast forms of mathematical functions, with the approximate instructions (`.approx`).
//!
//! The errors are those that the PTX ISA names. Subnormal numbers are kept unless a function says
//! otherwise.

use cuda_std_macros::gpu_only;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

use core::f32::consts::{LN_2, LOG2_E};

use crate::float::unary;

unary! {
    /// The sine (`sin.approx.f32`): an absolute error of about 2^-20.5 from -2π to 2π, which grows
    /// with the argument beyond.
    sin = "sin.approx.f32";
    /// The cosine (`cos.approx.f32`): as [`sin`].
    cos = "cos.approx.f32";
    /// 2^`x` (`ex2.approx.f32`), to about 2^-22 relatively.
    exp2 = "ex2.approx.f32";
    /// As [`exp2`], with subnormal numbers as zeros: one instruction instead of four
    /// (`ex2.approx.ftz.f32`).
    exp2_ftz = "ex2.approx.ftz.f32";
    /// The logarithm to base 2 (`lg2.approx.f32`): an absolute error of about 2^-22 from 0.5 to 2,
    /// a relative one of about 2^-22 elsewhere.
    log2 = "lg2.approx.f32";
    /// `1 / x` (`rcp.approx.f32`), to 1 ULP.
    recip = "rcp.approx.f32";
    /// As [`recip`], with subnormal numbers as zeros (`rcp.approx.ftz.f32`).
    recip_ftz = "rcp.approx.ftz.f32";
    /// The square root (`sqrt.approx.f32`), to about 2^-23 relatively.
    sqrt = "sqrt.approx.f32";
    /// 1 divided by the square root (`rsqrt.approx.f32`), to 2^-22.9 relatively.
    rsqrt = "rsqrt.approx.f32";
    /// The hyperbolic tangent (`tanh.approx.f32`, sm_75), to 2^-11 relatively.
    tanh = "tanh.approx.f32";
}

/// `x / y` (`div.approx.f32`), to 2 ULP where `y` is from 2^-126 to 2^126.
#[gpu_only]
#[inline(always)]
#[must_use]
pub fn div(x: f32, y: f32) -> f32 {
    let result: f32;
    // SAFETY: arithmetic on registers.
    unsafe {
        asm!(
            "div.approx.f32 {}, {}, {};",
            out(reg32) result,
            in(reg32) x,
            in(reg32) y,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    result
}

/// The sine and the cosine.
#[inline(always)]
#[must_use]
pub fn sin_cos(x: f32) -> (f32, f32) {
    (sin(x), cos(x))
}

/// The tangent: [`sin`] divided by [`cos`].
#[inline(always)]
#[must_use]
pub fn tan(x: f32) -> f32 {
    div(sin(x), cos(x))
}

/// e^`x`: [`exp2`] of `x` times log2(e).
#[inline(always)]
#[must_use]
pub fn exp(x: f32) -> f32 {
    exp2(x * LOG2_E)
}

/// The natural logarithm: [`log2`] times ln(2).
#[inline(always)]
#[must_use]
pub fn ln(x: f32) -> f32 {
    log2(x) * LN_2
}

/// `x` to the power `y`: [`exp2`] of `y` times [`log2`] of `x`.
#[inline(always)]
#[must_use]
pub fn powf(x: f32, y: f32) -> f32 {
    exp2(y * log2(x))
}
