//! Floating-point arithmetic with NVIDIA's NaN, zero and denormal rules.
//!
//! A result of f32 that is NaN is always the canonical NaN, `7fffffff`. Arithmetic of f64 gives
//! one of its operands that are NaN, made quiet, and `fff8000000000000` if none is. The
//! operations of IEEE 754 are exact, in every rounding; `.approx` ones are
//! computed in f64 and rounded once, which keeps their documented error bounds
//! but not the bits of a GPU.

use std::marker::PhantomData;

use super::lanes::{Compare, F1, F2, F3, Lane};
use super::round::{Exact, F32, F64, Format, ROUNDINGS, Rounding};

/// Flush denormal inputs and results to zero (`.ftz`).
pub(crate) const FTZ: u32 = 1;
/// Clamp the result to [0, 1], NaN to 0 (`.sat`).
pub(crate) const SAT: u32 = 2;
/// `min` and `max` return NaN if an operand is NaN (`.NaN`).
pub(crate) const NAN: u32 = 4;
/// The result's sign is the exclusive or of the operands' (`.xorsign.abs`).
pub(crate) const XORSIGN: u32 = 8;
/// Where the flags have the number of the rounding; 0 is to the nearest.
const ROUNDING: u32 = 5;

/// The flag of a rounding by its number in [`ROUNDINGS`], which is less than 4.
pub(crate) fn rounding_flag(number: usize) -> u32 {
    (number as u32) << ROUNDING
}

#[inline(always)]
fn rounding(x: u32) -> Rounding {
    ROUNDINGS[(x >> ROUNDING & 3) as usize]
}

/// An IEEE type.
pub(crate) trait Float: Lane + Copy + PartialOrd {
    const ZERO: Self;
    const ONE: Self;
    const FORMAT: Format;
    fn of_bits(bits: u64) -> Self;
    fn canonical(self) -> Self;
    /// What the operation that computed `self` gives: as NaN, the first of `operands` that is one,
    /// made quiet, if the type keeps NaNs.
    fn settle<const N: usize>(self, operands: [Self; N]) -> Self;
    /// `self`, or a zero of its sign if it is denormal.
    fn flush(self) -> Self;
    fn nan(self) -> bool;
    fn negative(self) -> bool;
    fn abs(self) -> Self;
    fn neg(self) -> Self;
    fn copysign(self, sign: Self) -> Self;
    fn add(self, b: Self, rounding: Rounding) -> Self;
    fn sub(self, b: Self, rounding: Rounding) -> Self;
    fn mul(self, b: Self, rounding: Rounding) -> Self;
    fn div(self, b: Self, rounding: Rounding) -> Self;
    fn fma(self, b: Self, c: Self, rounding: Rounding) -> Self;
    fn sqrt(self, rounding: Rounding) -> Self;
    fn wide(self) -> f64;
    fn narrow(value: f64) -> Self;
}

/// What `f` makes of finite operands, in a rounding other than to the nearest. `None` is what the
/// host computes in every rounding, since nothing is rounded.
#[inline(always)]
fn directed<T: Float, const N: usize>(
    rounding: Rounding,
    operands: [T; N],
    f: impl Fn([Exact; N]) -> Option<Exact>,
) -> Option<T> {
    if rounding == Rounding::Nearest { None } else { exactly(rounding, operands, f) }
}

#[inline(never)]
fn exactly<T: Float, const N: usize>(
    rounding: Rounding,
    operands: [T; N],
    f: impl Fn([Exact; N]) -> Option<Exact>,
) -> Option<T> {
    let values = operands.map(T::wide);
    let finite = values.iter().all(|value| value.is_finite());
    let result = finite.then(|| f(values.map(Exact::of)))??;
    Some(T::of_bits(T::FORMAT.round(result, rounding)))
}

macro_rules! float {
    ($ty:ident, $bits:ident, $nan:literal, $keeps:literal, $format:ident) => {
        impl Float for $ty {
            const ZERO: $ty = 0.0;
            const ONE: $ty = 1.0;
            const FORMAT: Format = $format;
            #[inline(always)]
            fn of_bits(bits: u64) -> $ty {
                $ty::from_bits(bits as $bits)
            }
            #[inline(always)]
            fn canonical(self) -> $ty {
                self.settle([])
            }
            #[inline(always)]
            fn settle<const N: usize>(self, operands: [$ty; N]) -> $ty {
                // Of integers, so that no operand is taken for another NaN.
                let mut nan: $bits = $nan;
                for operand in operands.into_iter().rev() {
                    if $keeps && operand.is_nan() {
                        nan = operand.to_bits() | 1 << ($ty::MANTISSA_DIGITS - 2);
                    }
                }
                $ty::from_bits(if self.is_nan() { nan } else { self.to_bits() })
            }
            #[inline(always)]
            fn flush(self) -> $ty {
                if self.abs() < $ty::MIN_POSITIVE {
                    $ty::from_bits(self.to_bits() & (1 << ($bits::BITS - 1)))
                } else {
                    self
                }
            }
            #[inline(always)]
            fn nan(self) -> bool {
                self.is_nan()
            }
            #[inline(always)]
            fn negative(self) -> bool {
                self.to_bits() >> ($bits::BITS - 1) != 0
            }
            #[inline(always)]
            fn abs(self) -> $ty {
                $ty::from_bits(self.to_bits() & ($bits::MAX >> 1))
            }
            #[inline(always)]
            fn neg(self) -> $ty {
                $ty::from_bits(self.to_bits() ^ (1 << ($bits::BITS - 1)))
            }
            #[inline(always)]
            fn copysign(self, sign: $ty) -> $ty {
                $ty::copysign(self, sign)
            }
            #[inline(always)]
            fn add(self, b: $ty, rounding: Rounding) -> $ty {
                directed(rounding, [self, b], |[a, b]| Some(a.plus(b, rounding)))
                    .unwrap_or(self + b)
            }
            #[inline(always)]
            fn sub(self, b: $ty, rounding: Rounding) -> $ty {
                directed(rounding, [self, Float::neg(b)], |[a, b]| Some(a.plus(b, rounding)))
                    .unwrap_or(self - b)
            }
            #[inline(always)]
            fn mul(self, b: $ty, rounding: Rounding) -> $ty {
                directed(rounding, [self, b], |[a, b]| Some(a.times(b))).unwrap_or(self * b)
            }
            #[inline(always)]
            fn div(self, b: $ty, rounding: Rounding) -> $ty {
                directed(rounding, [self, b], |[a, b]| a.over(b)).unwrap_or(self / b)
            }
            #[inline(always)]
            fn fma(self, b: $ty, c: $ty, rounding: Rounding) -> $ty {
                directed(rounding, [self, b, c], |[a, b, c]| Some(a.times(b).plus(c, rounding)))
                    .unwrap_or(self.mul_add(b, c))
            }
            #[inline(always)]
            fn sqrt(self, rounding: Rounding) -> $ty {
                // Not left to `canonical`: LLVM 22 takes one NaN of a square root for another,
                // and drops what turns it into the canonical one.
                let nearest = if self >= 0.0 { $ty::sqrt(self) } else { $ty::from_bits($nan) };
                directed(rounding, [self], |[a]| a.sqrt()).unwrap_or(nearest)
            }
            #[inline(always)]
            fn wide(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn narrow(value: f64) -> $ty {
                value as $ty
            }
        }
    };
}

float!(f32, u32, 0x7fff_ffff, false, F32);
float!(f64, u64, 0xfff8_0000_0000_0000, true, F64);

/// Applies the input side of the flags.
#[inline(always)]
fn input<T: Float>(value: T, x: u32) -> T {
    if x & FTZ != 0 { value.flush() } else { value }
}

/// Applies the output side of the flags.
#[inline(always)]
fn output<T: Float>(value: T, x: u32) -> T {
    let mut value = value;
    if x & FTZ != 0 {
        value = value.flush();
    }
    if x & SAT != 0 {
        // Written so that NaN and -0 become +0.
        value = if value > T::ZERO { value } else { T::ZERO };
        value = if value < T::ONE { value } else { T::ONE };
    }
    value
}

/// Without flags; the flags word is known to be 0.
pub(crate) struct Plain<F>(PhantomData<F>);

macro_rules! plain {
    ($trait:ident($($arg:ident: $ty:ident),*)) => {
        impl<F: $trait> $trait for Plain<F> {
            $(type $ty = F::$ty;)*
            type D = F::D;
            #[inline(always)]
            fn f($($arg: F::$ty,)* _x: u32) -> F::D {
                F::f($($arg,)* 0)
            }
        }
    };
}
plain!(F1(a: A));
plain!(F2(a: A, b: B));
plain!(F3(a: A, b: B, c: C));

macro_rules! functions {
    ($(
        $(#[$doc:meta])*
        $name:ident($($arg:ident: $kind:ident),*) $nan:tt -> |$x:ident| $body:expr;
    )*) => {$(
        $(#[$doc])*
        pub(crate) struct $name<T>(PhantomData<T>);
        functions!(@impl $name ($($arg),*) $nan $x $body);
    )*};
    (@impl $name:ident ($a:ident) $nan:tt $x:ident $body:expr) => {
        impl<T: Float> F1 for $name<T> {
            type A = T;
            type D = T;
            #[inline(always)]
            fn f($a: T, $x: u32) -> T {
                let $a = input($a, $x);
                output($body, $x).settle($nan)
            }
        }
    };
    (@impl $name:ident ($a:ident, $b:ident) $nan:tt $x:ident $body:expr) => {
        impl<T: Float> F2 for $name<T> {
            type A = T;
            type B = T;
            type D = T;
            #[inline(always)]
            fn f($a: T, $b: T, $x: u32) -> T {
                let ($a, $b) = (input($a, $x), input($b, $x));
                output($body, $x).settle($nan)
            }
        }
    };
    (@impl $name:ident ($a:ident, $b:ident, $c:ident) $nan:tt $x:ident $body:expr) => {
        impl<T: Float> F3 for $name<T> {
            type A = T;
            type B = T;
            type C = T;
            type D = T;
            #[inline(always)]
            fn f($a: T, $b: T, $c: T, $x: u32) -> T {
                let ($a, $b, $c) = (input($a, $x), input($b, $x), input($c, $x));
                output($body, $x).settle($nan)
            }
        }
    };
}

// Brackets hold the operands that a NaN comes from, as an H200 has it: the first one first.
functions! {
    Add(a: T, b: T) [b, a] -> |x| a.add(b, rounding(x));
    Sub(a: T, b: T) [b, a] -> |x| a.sub(b, rounding(x));
    Mul(a: T, b: T) [b, a] -> |x| a.mul(b, rounding(x));
    Div(a: T, b: T) [a, b] -> |x| a.div(b, rounding(x));
    Fma(a: T, b: T, c: T) [b, c, a] -> |x| a.fma(b, c, rounding(x));
    /// IEEE reciprocal.
    Rcp(a: T) [a] -> |x| T::ONE.div(a, rounding(x));
    Sqrt(a: T) [a] -> |x| a.sqrt(rounding(x));
    Rsqrt(a: T) [a] -> |x| T::narrow(1.0 / a.wide().sqrt());
    Ex2(a: T) [] -> |x| T::narrow(a.wide().exp2());
    Lg2(a: T) [] -> |x| T::narrow(a.wide().log2());
    Sin(a: T) [] -> |x| T::narrow(a.wide().sin());
    Cos(a: T) [] -> |x| T::narrow(a.wide().cos());
    Tanh(a: T) [] -> |x| T::narrow(a.wide().tanh());
    Abs(a: T) [] -> |x| a.abs();
    Neg(a: T) [] -> |x| a.neg();
    Min(a: T, b: T) [] -> |x| extreme(a, b, x, true);
    Max(a: T, b: T) [] -> |x| extreme(a, b, x, false);
}

/// `min` and `max`: a single NaN operand loses (unless [`NAN`]), and -0 < +0.
#[inline(always)]
pub(crate) fn extreme<T: Float>(a: T, b: T, x: u32, min: bool) -> T {
    let sign = a.negative() != b.negative();
    let (a, b) = if x & XORSIGN != 0 { (a.abs(), b.abs()) } else { (a, b) };
    let less = a < b || (a == b && a.negative());
    let ordered = if less == min { a } else { b };
    // Adding makes a NaN of the two.
    let either = if x & NAN != 0 {
        a.add(b, Rounding::Nearest)
    } else if a.nan() {
        b
    } else {
        a
    };
    let value = if a.nan() || b.nan() { either } else { ordered };
    if x & XORSIGN != 0 && !value.nan() {
        let value = value.abs();
        if sign { value.neg() } else { value }
    } else {
        value
    }
}

/// Applies `f` to the upper 32 bits of an f64, and rounds the result to its upper 32 bits.
#[inline(always)]
fn upper(a: f64, f: impl Fn(f64) -> f64) -> f64 {
    const LOWER: u64 = u32::MAX as u64;
    let result = f(f64::from_bits(a.to_bits() & !LOWER).flush());
    if result.is_nan() {
        return f64::from_bits(0x7fff_ffff << 32);
    }
    f64::from_bits((result.to_bits() + (1 << 31)) & !LOWER).flush()
}

/// `rcp.approx.ftz.f64`.
pub(crate) struct UpperRcp;

impl F1 for UpperRcp {
    type A = f64;
    type D = f64;
    #[inline(always)]
    fn f(a: f64, _x: u32) -> f64 {
        upper(a, |a| 1.0 / a)
    }
}

/// `rsqrt.approx.ftz.f64`.
pub(crate) struct UpperRsqrt;

impl F1 for UpperRsqrt {
    type A = f64;
    type D = f64;
    #[inline(always)]
    fn f(a: f64, _x: u32) -> f64 {
        upper(a, |a| 1.0 / a.sqrt())
    }
}

/// `copysign`: the sign of `a` on the magnitude of `b`; bits otherwise untouched.
pub(crate) struct CopySign<T>(PhantomData<T>);

impl<T: Float> F2 for CopySign<T> {
    type A = T;
    type B = T;
    type D = T;
    #[inline(always)]
    fn f(a: T, b: T, _x: u32) -> T {
        b.copysign(a)
    }
}

/// `testp`: what it tests is the [`Compare`] type's second operand, as a number.
pub(crate) struct TestP<T>(PhantomData<T>);

/// The properties `testp` asks for, in the order of their numbers.
pub(crate) const TESTS: [&str; 6] =
    ["finite", "infinite", "number", "notanumber", "normal", "subnormal"];

impl<T: Float> Compare for TestP<T> {
    type T = T;
    #[inline(always)]
    fn f(a: T, test: T) -> bool {
        let class = a.wide().abs();
        let subnormal = class > 0.0 && a.flush().wide() == 0.0;
        match test.wide() as u32 {
            0 => class < f64::INFINITY,
            1 => class == f64::INFINITY,
            2 => !a.nan(),
            3 => a.nan(),
            4 => class > 0.0 && class < f64::INFINITY && !subnormal,
            _ => subnormal,
        }
    }
}

macro_rules! compares {
    ($($name:ident |$a:ident, $b:ident| $body:expr;)*) => {$(
        pub(crate) struct $name<T>(PhantomData<T>);
        impl<T: Float> Compare for $name<T> {
            type T = T;
            #[inline(always)]
            fn f($a: T, $b: T) -> bool {
                $body
            }
        }
    )*};
}

compares! {
    Eq |a, b| a == b;
    Ne |a, b| a != b && !a.nan() && !b.nan();
    Lt |a, b| a < b;
    Le |a, b| a <= b;
    Equ |a, b| a == b || a.nan() || b.nan();
    Neu |a, b| a != b;
    Ltu |a, b| a < b || a.nan() || b.nan();
    Leu |a, b| a <= b || a.nan() || b.nan();
    Num |a, b| !a.nan() && !b.nan();
    IsNan |a, b| a.nan() || b.nan();
}

/// A comparison of operands whose denormals are flushed first.
pub(crate) struct Flushed<F>(PhantomData<F>);

impl<F: Compare<T = f32>> Compare for Flushed<F> {
    type T = f32;
    #[inline(always)]
    fn f(a: f32, b: f32) -> bool {
        F::f(a.flush(), b.flush())
    }
}
