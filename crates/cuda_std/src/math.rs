//! Mathematical functions, as methods of `f32` and `f64`.
//!
//! [`GpuFloat`] has those that `std` gives floats on the CPU, and [`FloatExt`] further ones. They
//! come from three places:
//!
//! - instructions of the GPU, if it has one;
//! - this crate, for the functions of π, the scaled and the inverse error function and the normal
//!   distribution;
//! - the crate [`libm`], for all others.
//!
//! A kernel gives the same bits as a program on the CPU that calls them. [`fast`](crate::fast) has
//! faster, less exact forms.
#![doc = include_str!("math/ulp.md")]

mod statistics;

/// Declares a trait of floats, whose methods are functions of `f32` and `f64`.
macro_rules! float_trait {
    (
        $(#[$trait_doc:meta])* $trait:ident;
        $($(#[$doc:meta])* fn $name:ident($self:ident $(, $argument:ident: $ty:ty)*) -> $result:ty
            = $narrow:expr, $wide:expr;)*
    ) => {
        $(#[$trait_doc])*
        pub trait $trait: Copy {$(
            $(#[$doc])*
            #[must_use]
            fn $name($self $(, $argument: $ty)*) -> $result;
        )*}

        impl $trait for f32 {$(
            #[inline(always)]
            fn $name($self $(, $argument: $ty)*) -> $result {
                $narrow($self $(, $argument)*)
            }
        )*}

        impl $trait for f64 {$(
            #[inline(always)]
            fn $name($self $(, $argument: $ty)*) -> $result {
                $wide($self $(, $argument)*)
            }
        )*}
    };
}

/// Functions of one instruction, or a few, on the GPU: there the compiler's intrinsics, elsewhere
/// `libm`'s functions.
mod basic {
    macro_rules! basic {
        ($($name:ident($($argument:ident),*): $ty:ty = $intrinsic:ident, $function:ident;)*) => {$(
            #[inline(always)]
            pub fn $name($($argument: $ty),*) -> $ty {
                #[cfg(target_arch = "nvptx64")]
                {
                    core::intrinsics::$intrinsic($($argument),*)
                }
                #[cfg(not(target_arch = "nvptx64"))]
                {
                    libm::$function($($argument),*)
                }
            }
        )*};
    }

    basic! {
        floor32(x): f32 = floorf32, floorf;
        floor64(x): f64 = floorf64, floor;
        ceil32(x): f32 = ceilf32, ceilf;
        ceil64(x): f64 = ceilf64, ceil;
        trunc32(x): f32 = truncf32, truncf;
        trunc64(x): f64 = truncf64, trunc;
        round32(x): f32 = roundf32, roundf;
        round64(x): f64 = roundf64, round;
        rint32(x): f32 = round_ties_even_f32, rintf;
        rint64(x): f64 = round_ties_even_f64, rint;
        sqrt32(x): f32 = sqrtf32, sqrtf;
        sqrt64(x): f64 = sqrtf64, sqrt;
        fma32(x, y, z): f32 = fmaf32, fmaf;
        fma64(x, y, z): f64 = fmaf64, fma;
    }
}

float_trait! {
    /// The methods that `std` gives floats on the CPU.
    GpuFloat;
    /// The largest integer that is not greater.
    fn floor(self) -> Self = basic::floor32, basic::floor64;
    /// The smallest integer that is not less.
    fn ceil(self) -> Self = basic::ceil32, basic::ceil64;
    /// The nearest integer; halves away from 0.
    fn round(self) -> Self = basic::round32, basic::round64;
    /// The nearest integer; halves to an even one.
    fn round_ties_even(self) -> Self = basic::rint32, basic::rint64;
    /// The integer part.
    fn trunc(self) -> Self = basic::trunc32, basic::trunc64;
    /// The fractional part.
    fn fract(self) -> Self = |x| x - basic::trunc32(x), |x| x - basic::trunc64(x);
    /// The magnitude.
    fn abs(self) -> Self = f32::abs, f64::abs;
    /// 1 or -1, of the same sign, or NaN.
    fn signum(self) -> Self = f32::signum, f64::signum;
    /// The magnitude, with the sign of `sign`.
    fn copysign(self, sign: Self) -> Self = f32::copysign, f64::copysign;
    /// `self * a + b`, rounded once.
    fn mul_add(self, a: Self, b: Self) -> Self = basic::fma32, basic::fma64;
    /// The quotient, as the integer that leaves [`rem_euclid`](Self::rem_euclid).
    fn div_euclid(self, rhs: Self) -> Self = div_euclid32, div_euclid64;
    /// The remainder that is not negative.
    fn rem_euclid(self, rhs: Self) -> Self = rem_euclid32, rem_euclid64;
    /// `self` to the power of an integer.
    fn powi(self, n: i32) -> Self = |x: f32, n: i32| libm::pow(x.into(), n.into()) as f32,
        |x: f64, n: i32| libm::pow(x, n.into());
    /// `self` to the power `n`.
    fn powf(self, n: Self) -> Self = libm::powf, libm::pow;
    /// The square root, correctly rounded.
    fn sqrt(self) -> Self = basic::sqrt32, basic::sqrt64;
    /// e^`self`.
    fn exp(self) -> Self = libm::expf, libm::exp;
    /// 2^`self`.
    fn exp2(self) -> Self = libm::exp2f, libm::exp2;
    /// 10^`self`.
    fn exp10(self) -> Self = libm::exp10f, libm::exp10;
    /// The natural logarithm.
    fn ln(self) -> Self = libm::logf, libm::log;
    /// The logarithm to any base.
    fn log(self, base: Self) -> Self = |x, base| libm::logf(x) / libm::logf(base),
        |x, base| libm::log(x) / libm::log(base);
    /// The logarithm to base 2.
    fn log2(self) -> Self = libm::log2f, libm::log2;
    /// The logarithm to base 10.
    fn log10(self) -> Self = libm::log10f, libm::log10;
    /// The cube root.
    fn cbrt(self) -> Self = libm::cbrtf, libm::cbrt;
    /// `sqrt(self^2 + other^2)`, without overflow on the way.
    fn hypot(self, other: Self) -> Self = libm::hypotf, libm::hypot;
    /// The sine.
    fn sin(self) -> Self = libm::sinf, libm::sin;
    /// The cosine.
    fn cos(self) -> Self = libm::cosf, libm::cos;
    /// The tangent.
    fn tan(self) -> Self = libm::tanf, libm::tan;
    /// The arcsine.
    fn asin(self) -> Self = libm::asinf, libm::asin;
    /// The arccosine.
    fn acos(self) -> Self = libm::acosf, libm::acos;
    /// The arctangent.
    fn atan(self) -> Self = libm::atanf, libm::atan;
    /// The angle of the point (`other`, `self`).
    fn atan2(self, other: Self) -> Self = libm::atan2f, libm::atan2;
    /// The sine and the cosine.
    fn sin_cos(self) -> (Self, Self) = libm::sincosf, libm::sincos;
    /// e^`self` - 1, exact near 0.
    fn exp_m1(self) -> Self = libm::expm1f, libm::expm1;
    /// ln(1 + `self`), exact near 0.
    fn ln_1p(self) -> Self = libm::log1pf, libm::log1p;
    /// The hyperbolic sine.
    fn sinh(self) -> Self = libm::sinhf, libm::sinh;
    /// The hyperbolic cosine.
    fn cosh(self) -> Self = libm::coshf, libm::cosh;
    /// The hyperbolic tangent.
    fn tanh(self) -> Self = libm::tanhf, libm::tanh;
    /// The inverse hyperbolic sine.
    fn asinh(self) -> Self = libm::asinhf, libm::asinh;
    /// The inverse hyperbolic cosine.
    fn acosh(self) -> Self = libm::acoshf, libm::acosh;
    /// The inverse hyperbolic tangent.
    fn atanh(self) -> Self = libm::atanhf, libm::atanh;
}

float_trait! {
    /// Further functions, under the names of Rust-CUDA.
    FloatExt;
    /// The cosine of π `self`.
    fn cospi(self) -> Self = narrow(statistics::cospi), statistics::cospi;
    /// The sine of π `self`.
    fn sinpi(self) -> Self = narrow(statistics::sinpi), statistics::sinpi;
    /// The sine and the cosine of π `self`.
    fn sincospi(self) -> (Self, Self) = |x: f32| (x.sinpi(), x.cospi()),
        |x: f64| (x.sinpi(), x.cospi());
    /// The error function.
    fn error_function(self) -> Self = libm::erff, libm::erf;
    /// 1 minus the error function, exact where that is near 1.
    fn complementary_error_function(self) -> Self = libm::erfcf, libm::erfc;
    /// The inverse of the complementary error function, for arguments between 0 and 2.
    fn inv_complementary_error_function(self) -> Self = narrow(statistics::erfc_inv),
        statistics::erfc_inv;
    /// e^(`self`^2) times the complementary error function.
    fn scaled_complementary_error_function(self) -> Self = narrow(statistics::erfcx),
        statistics::erfcx;
    /// The cumulative distribution function of the standard normal distribution.
    fn norm_cdf(self) -> Self = narrow(statistics::norm_cdf), statistics::norm_cdf;
    /// The inverse of [`norm_cdf`](Self::norm_cdf), for arguments between 0 and 1.
    fn inv_norm_cdf(self) -> Self = narrow(statistics::inv_norm_cdf), statistics::inv_norm_cdf;
    /// A fraction that is 0 or from 0.5 to 1, and the exponent of its power of two.
    fn frexp(self) -> (Self, i32) = libm::frexpf, libm::frexp;
    /// The exponent, as an integer.
    fn unbiased_exp(self) -> i32 = libm::ilogbf, libm::ilogb;
    /// `self` * 2^`exp`.
    fn ldexp(self, exp: i32) -> Self = libm::ldexpf, libm::ldexp;
    /// `self` * 2^`exp`.
    fn scale_by_n(self, exp: i32) -> Self = libm::scalbnf, libm::scalbn;
    /// The gamma function.
    fn gamma(self) -> Self = libm::tgammaf, libm::tgamma;
    /// The natural logarithm of the magnitude of the gamma function.
    fn log_gamma(self) -> Self = libm::lgammaf, libm::lgamma;
    /// ln(1 + `self`), exact near 0.
    fn log1p(self) -> Self = libm::log1pf, libm::log1p;
    /// 1 divided by the cube root.
    fn rcbrt(self) -> Self = |x: f32| 1.0 / libm::cbrtf(x), |x: f64| 1.0 / libm::cbrt(x);
    /// The nearest value from 0 to 1; 0 for NaN.
    fn saturate(self) -> Self = |x: f32| if x > 0.0 { x.min(1.0) } else { 0.0 },
        |x: f64| if x > 0.0 { x.min(1.0) } else { 0.0 };
    /// The Bessel function of the first kind, of order 0.
    fn j0(self) -> Self = libm::j0f, libm::j0;
    /// The Bessel function of the first kind, of order 1.
    fn j1(self) -> Self = libm::j1f, libm::j1;
    /// The Bessel function of the first kind.
    fn jn(self, order: i32) -> Self = |x, order| libm::jnf(order, x), |x, order| libm::jn(order, x);
    /// The Bessel function of the second kind, of order 0.
    fn y0(self) -> Self = libm::y0f, libm::y0;
    /// The Bessel function of the second kind, of order 1.
    fn y1(self) -> Self = libm::y1f, libm::y1;
    /// The Bessel function of the second kind.
    fn yn(self, order: i32) -> Self = |x, order| libm::ynf(order, x), |x, order| libm::yn(order, x);
}

/// A function of `f64` for `f32`. It rounds twice, but changes the result for only one argument in
/// 2^29.
#[inline(always)]
fn narrow(wide: impl Fn(f64) -> f64) -> impl Fn(f32) -> f32 {
    move |x| wide(x.into()) as f32
}

macro_rules! euclidean {
    ($($ty:ident, $div:ident, $rem:ident, $fmod:ident, $trunc:ident;)*) => {$(
        fn $div(x: $ty, rhs: $ty) -> $ty {
            let quotient = basic::$trunc(x / rhs);
            match libm::$fmod(x, rhs) < 0.0 {
                true if rhs > 0.0 => quotient - 1.0,
                true => quotient + 1.0,
                false => quotient,
            }
        }

        fn $rem(x: $ty, rhs: $ty) -> $ty {
            let remainder = libm::$fmod(x, rhs);
            if remainder < 0.0 { remainder + rhs.abs() } else { remainder }
        }
    )*};
}

euclidean! {
    f32, div_euclid32, rem_euclid32, fmodf, trunc32;
    f64, div_euclid64, rem_euclid64, fmod, trunc64;
}
