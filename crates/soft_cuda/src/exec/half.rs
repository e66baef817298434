//! Arithmetic of 16-bit floats, `f16` and `bf16`, and of pairs of them.
//!
//! Operands are exact in f64. What an operation gives there is rounded to an odd last bit where it
//! is not exact, so that rounding it to 16 bits is the only rounding. A NaN is `7fff`.

use std::marker::PhantomData;

use super::convert::RELU;
use super::float::{FTZ, SAT, extreme};
use super::lanes::{F1, F2, F3};
use super::round::{self, Format, Rounding};

/// A type of 16 bits.
pub(crate) trait Half {
    const FORMAT: Format;
}

/// `f16`: five bits of exponent.
pub(crate) struct F16;
/// `bf16`: the upper half of an f32.
pub(crate) struct Bf16;

impl Half for F16 {
    const FORMAT: Format = round::F16;
}

impl Half for Bf16 {
    const FORMAT: Format = round::BF16;
}

/// `value`, or a zero of its sign if it is subnormal in the format.
fn flush<T: Half>(value: f64) -> f64 {
    if value.abs() < T::FORMAT.least() { 0f64.copysign(value) } else { value }
}

fn input<T: Half>(bits: u32, x: u32) -> f64 {
    let value = T::FORMAT.value((bits & 0xffff).into());
    if x & FTZ != 0 { flush::<T>(value) } else { value }
}

fn output<T: Half>(mut value: f64, x: u32) -> u32 {
    if x & SAT != 0 {
        // Written so that NaN and -0 become +0.
        value = if value > 0.0 { value.min(1.0) } else { 0.0 };
    }
    if x & RELU != 0 && value <= 0.0 {
        value = 0.0;
    }
    let bits = T::FORMAT.of(value, Rounding::Nearest) as u32;
    if x & FTZ == 0 {
        return bits;
    }
    let rounded = flush::<T>(T::FORMAT.value(bits.into()));
    T::FORMAT.of(rounded, Rounding::Nearest) as u32
}

/// `a + b`, with an odd last bit if it is not exact.
fn add_to_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    if !sum.is_finite() {
        return sum;
    }
    // The error, which is exact.
    let part = sum - a;
    let error = (a - (sum - part)) + (b - part);
    if error == 0.0 || sum.to_bits() & 1 != 0 {
        return sum;
    }
    let away = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if away { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// What an operation computes of its operands, of which it uses the first ones.
pub(crate) trait Operation {
    fn f(operands: [f64; 3], x: u32) -> f64;
}

macro_rules! operations {
    ($($name:ident |$operands:pat_param, $x:pat_param| $body:expr;)*) => {$(
        pub(crate) struct $name;
        impl Operation for $name {
            fn f($operands: [f64; 3], $x: u32) -> f64 {
                $body
            }
        }
    )*};
}

operations! {
    Add |[a, b, _], _| add_to_odd(a, b);
    Sub |[a, b, _], _| add_to_odd(a, -b);
    Mul |[a, b, _], _| a * b;
    Fma |[a, b, c], _| add_to_odd(a * b, c);
    Min |[a, b, _], x| extreme(a, b, x, true);
    Max |[a, b, _], x| extreme(a, b, x, false);
    Neg |[a, ..], _| -a;
    Abs |[a, ..], _| a.abs();
}

/// An operation on `N` numbers of a format, which are one or both halves of a register.
pub(crate) struct Halves<O, T, const N: u32>(PhantomData<(O, T)>);

impl<O: Operation, T: Half, const N: u32> Halves<O, T, N> {
    fn each(operands: [u32; 3], x: u32) -> u32 {
        (0..N).fold(0, |all, i| {
            let one = operands.map(|bits| input::<T>(bits >> (16 * i), x));
            all | output::<T>(O::f(one, x), x) << (16 * i)
        })
    }
}

impl<O: Operation, T: Half, const N: u32> F1 for Halves<O, T, N> {
    type A = u32;
    type D = u32;
    fn f(a: u32, x: u32) -> u32 {
        Self::each([a, 0, 0], x)
    }
}

impl<O: Operation, T: Half, const N: u32> F2 for Halves<O, T, N> {
    type A = u32;
    type B = u32;
    type D = u32;
    fn f(a: u32, b: u32, x: u32) -> u32 {
        Self::each([a, b, 0], x)
    }
}

impl<O: Operation, T: Half, const N: u32> F3 for Halves<O, T, N> {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    fn f(a: u32, b: u32, c: u32, x: u32) -> u32 {
        Self::each([a, b, c], x)
    }
}

/// The f32 that has the value of one half of a register: the upper one if `x` has [`UPPER`].
pub(crate) struct Widen<T>(PhantomData<T>);

/// See [`Widen`].
pub(crate) const UPPER: u32 = 1 << 8;

impl<T: Half> F1 for Widen<T> {
    type A = u32;
    type D = f32;
    fn f(a: u32, x: u32) -> f32 {
        input::<T>(if x & UPPER != 0 { a >> 16 } else { a }, x) as f32
    }
}

/// The sum of two numbers of a format, or of two pairs of them: what an atomic addition stores.
pub(crate) fn sum<T: Half, const N: u32>(a: u32, b: u32) -> u32 {
    Halves::<Add, T, N>::each([a, b, 0], 0)
}

/// The smaller of two numbers of a format.
pub(crate) fn least<T: Half>(a: u32, b: u32) -> u32 {
    Halves::<Min, T, 1>::each([a, b, 0], 0)
}

/// The larger of two numbers of a format.
pub(crate) fn most<T: Half>(a: u32, b: u32) -> u32 {
    Halves::<Max, T, 1>::each([a, b, 0], 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_and_a_sum_are_rounded_once() {
        // 2^-24 * 2^-24 is far below the last bit of f64 beside 2048, and of f16 beside 1 + 2^-11,
        // which is a tie without it.
        let (tiny, one) = (0x0001, 0x3c00);
        let fma = |a, b, c| <Halves<Fma, F16, 1> as F3>::f(a, b, c, 0);
        assert_eq!(fma(tiny, tiny, one), one);
        assert_eq!(add_to_odd(1.0 + 2f64.powi(-11), 2f64.powi(-80)).to_bits() & 1, 1);
        assert_eq!(add_to_odd(1.0, -(2f64.powi(-80))), 1.0f64.next_down());
        assert_eq!(
            round::F16.of(add_to_odd(1.0 + 2f64.powi(-11), 2f64.powi(-80)), Rounding::Nearest),
            0x3c01
        );
    }
}
