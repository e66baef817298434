//! `cvt`: conversions between all scalar types.

use std::marker::PhantomData;

use super::float::{FTZ, Float, SAT};
use super::lanes::{F1, Lane};
use super::op::{Cx, Handler, Op};

/// A negative result is 0 (`.relu`).
pub(crate) const RELU: u32 = 16;

/// A scalar type, as `cvt` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    Int { bits: u32, signed: bool },
    F16,
    Bf16,
    F32,
    F64,
}

/// Scalars, in the order of the numbers that operations carry.
pub(crate) const SCALARS: [(&str, Scalar); 12] = [
    ("u8", Scalar::Int { bits: 8, signed: false }),
    ("s8", Scalar::Int { bits: 8, signed: true }),
    ("u16", Scalar::Int { bits: 16, signed: false }),
    ("s16", Scalar::Int { bits: 16, signed: true }),
    ("u32", Scalar::Int { bits: 32, signed: false }),
    ("s32", Scalar::Int { bits: 32, signed: true }),
    ("u64", Scalar::Int { bits: 64, signed: false }),
    ("s64", Scalar::Int { bits: 64, signed: true }),
    ("f16", Scalar::F16),
    ("bf16", Scalar::Bf16),
    ("f32", Scalar::F32),
    ("f64", Scalar::F64),
];

/// How `cvt` rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// To the nearest, ties to even.
    Nearest,
    Zero,
    Down,
    Up,
}

/// Roundings, in the order of the numbers that operations carry.
pub(crate) const ROUNDINGS: [Rounding; 4] =
    [Rounding::Nearest, Rounding::Zero, Rounding::Down, Rounding::Up];

/// An exact number: every value of every type is one.
#[derive(Debug, Clone, Copy)]
enum Number {
    Int(i128),
    Float(f64),
}

/// A conversion, as packed into an operation's `x`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conversion {
    pub to: Scalar,
    pub from: Scalar,
    pub rounding: Rounding,
    /// Round to an integral value even if the result is a float.
    pub integral: bool,
    /// [`FTZ`], [`SAT`] and [`RELU`].
    pub flags: u32,
}

impl Conversion {
    pub(crate) fn pack(self) -> u32 {
        let scalar = |s| SCALARS.iter().position(|&(_, other)| other == s).unwrap_or(0) as u32;
        let rounding = ROUNDINGS.iter().position(|&r| r == self.rounding).unwrap_or(0) as u32;
        scalar(self.to)
            | scalar(self.from) << 4
            | rounding << 8
            | u32::from(self.integral) << 12
            | self.flags << 16
    }

    fn unpack(x: u32) -> Conversion {
        Conversion {
            to: SCALARS[(x & 15) as usize].1,
            from: SCALARS[(x >> 4 & 15) as usize].1,
            rounding: ROUNDINGS[(x >> 8 & 3) as usize],
            integral: x >> 12 & 1 != 0,
            flags: x >> 16,
        }
    }

    /// Converts register bits.
    pub(crate) fn apply(self, bits: u64) -> u64 {
        let mut value = match self.from {
            Scalar::Int { bits: width, signed } => {
                let top = 64 - width;
                let raw = bits << top;
                Number::Int(if signed {
                    i128::from(raw as i64 >> top)
                } else {
                    i128::from(raw >> top)
                })
            }
            Scalar::F16 => Number::Float(from_small(bits as u16, 5, 10)),
            Scalar::Bf16 => Number::Float(f64::from(f32::from_bits((bits as u32) << 16))),
            Scalar::F32 => {
                let value = f32::from_bits(bits as u32);
                Number::Float(if self.flags & FTZ != 0 { value.flush() } else { value }.into())
            }
            Scalar::F64 => Number::Float(f64::from_bits(bits)),
        };
        let to_int = matches!(self.to, Scalar::Int { .. });
        if let Number::Float(float) = value
            && (self.integral || to_int)
        {
            value = Number::Float(match self.rounding {
                Rounding::Nearest => float.round_ties_even(),
                Rounding::Zero => float.trunc(),
                Rounding::Down => float.floor(),
                Rounding::Up => float.ceil(),
            });
        }
        if self.flags & SAT != 0 && !to_int {
            value = match value {
                // Written so that NaN and -0 become +0.
                Number::Float(float) => {
                    Number::Float(if float > 0.0 { float.min(1.0) } else { 0.0 })
                }
                Number::Int(int) => Number::Int(int.clamp(0, 1)),
            };
        }
        if self.flags & RELU != 0
            && let Number::Float(float) = value
            && float <= 0.0
        {
            value = Number::Float(0.0);
        }
        match self.to {
            Scalar::Int { bits: width, signed } => to_integer(value, width, signed, self),
            Scalar::F64 => match value {
                Number::Float(float) => float.canonical().to_bits(),
                Number::Int(int) => round_f64(int, self.rounding).to_bits(),
            },
            Scalar::F32 => u64::from(to_f32(value, self.rounding, self.flags).to_bits()),
            Scalar::F16 => u64::from(to_small(to_odd(value), self.rounding, 5, 10)),
            Scalar::Bf16 => u64::from(to_small(to_odd(value), self.rounding, 8, 7)),
        }
    }
}

/// Floats saturate; integers wrap unless `.sat`. NaN is 0, or the highest bit alone where
/// one of the two types has 64 bits: f64, s64 or u64.
fn to_integer(value: Number, width: u32, signed: bool, conversion: Conversion) -> u64 {
    let (low, high) = if signed {
        (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1)
    } else {
        (0, (1i128 << width) - 1)
    };
    let int = match value {
        Number::Float(float) if float.is_nan() => {
            match conversion.from == Scalar::F64 || width == 64 {
                true => 1 << (width - 1),
                false => 0,
            }
        }
        Number::Float(float) => (float as i128).clamp(low, high),
        Number::Int(int) if conversion.flags & SAT != 0 => int.clamp(low, high),
        Number::Int(int) => int,
    };
    // Narrow results are extended to the register by their sign.
    let top = 64 - width;
    let raw = (int as u64) << top;
    if signed { (raw as i64 >> top) as u64 } else { raw >> top }
}

fn round_f64(int: i128, rounding: Rounding) -> f64 {
    let near = int as f64;
    let error = int - near as i128;
    match rounding {
        Rounding::Zero if (error < 0) == (int > 0) && error != 0 => step(near, int < 0),
        Rounding::Down if error < 0 => near.next_down(),
        Rounding::Up if error > 0 => near.next_up(),
        _ => near,
    }
}

fn step(value: f64, up: bool) -> f64 {
    if up { value.next_up() } else { value.next_down() }
}

fn to_f32(value: Number, rounding: Rounding, flags: u32) -> f32 {
    let (near, error) = match value {
        Number::Int(int) => {
            let near = int as f32;
            (near, (int - near as i128).signum() as f64)
        }
        Number::Float(float) => {
            let near = float as f32;
            // An overflow to infinity has an error towards zero.
            let error = if f64::from(near).is_infinite() && float.is_finite() {
                -float.signum()
            } else {
                float - f64::from(near)
            };
            (near, error)
        }
    };
    let positive = match value {
        Number::Int(int) => int > 0,
        Number::Float(float) => float > 0.0,
    };
    let rounded = match rounding {
        Rounding::Zero if positive && error < 0.0 => near.next_down(),
        Rounding::Zero if !positive && error > 0.0 => near.next_up(),
        Rounding::Down if error < 0.0 => near.next_down(),
        Rounding::Up if error > 0.0 => near.next_up(),
        _ => near,
    };
    let flushed = if flags & FTZ != 0 { rounded.flush() } else { rounded };
    flushed.canonical()
}

/// The value of a small float with `e` exponent and `m` mantissa bits.
pub(crate) fn from_small(bits: u16, e: u32, m: u32) -> f64 {
    let sign = if bits >> (e + m) & 1 != 0 { -1.0 } else { 1.0 };
    let exponent = i32::from(bits >> m) & ((1 << e) - 1);
    let mantissa = f64::from(bits & ((1 << m) - 1));
    let bias = (1 << (e - 1)) - 1;
    let unit = 2f64.powi(-(m as i32));
    if exponent == (1 << e) - 1 {
        return if mantissa == 0.0 { sign * f64::INFINITY } else { f64::NAN };
    }
    if exponent == 0 {
        return sign * mantissa * unit * 2f64.powi(1 - bias);
    }
    sign * (1.0 + mantissa * unit) * 2f64.powi(exponent - bias)
}

/// A number as f64, with an odd last bit if it is not exact. Larger integers overflow f16, and bf16
/// has fewer bits than f64 by far, so that this cannot change what a small float is rounded to.
fn to_odd(value: Number) -> f64 {
    match value {
        Number::Int(int) => odd_f64(int),
        Number::Float(float) => float,
    }
}

/// Rounds to a small float with `e` exponent and `m` mantissa bits.
pub(crate) fn to_small(value: f64, rounding: Rounding, e: u32, m: u32) -> u16 {
    if value.is_nan() {
        return 0x7fff;
    }
    let sign = u16::from(value.is_sign_negative()) << (e + m);
    let bias = (1 << (e - 1)) - 1;
    let infinity = ((1u16 << e) - 1) << m;
    let magnitude = value.abs();
    if magnitude == f64::INFINITY {
        return sign | infinity;
    }
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(1 - bias);
    // In units of the last place of the result; at most 2^53, so exact.
    let scaled = magnitude * 2f64.powi(m as i32 - exponent);
    let negative = sign != 0;
    let units = match rounding {
        Rounding::Nearest => scaled.round_ties_even(),
        Rounding::Zero => scaled.floor(),
        Rounding::Down if !negative => scaled.floor(),
        Rounding::Up if negative => scaled.floor(),
        _ => scaled.ceil(),
    } as i64;
    // The hidden bit carries into the exponent field by itself.
    let encoded = units + (i64::from(exponent + bias - 1) << m);
    if encoded >= i64::from(infinity) {
        let away = match rounding {
            Rounding::Nearest => true,
            Rounding::Zero => false,
            Rounding::Down => negative,
            Rounding::Up => !negative,
        };
        return sign | if away { infinity } else { infinity - 1 };
    }
    sign | encoded as u16
}

/// An integer as f64, with an odd last bit if it is not exact.
fn odd_f64(int: i128) -> f64 {
    let down = round_f64(int, Rounding::Zero);
    if down as i128 == int { down } else { f64::from_bits(down.to_bits() | 1) }
}

/// Any conversion: `d` and `a` slots, `x` as packed by [`Conversion::pack`].
/// `A` and `D` are the lane types of the two registers.
pub(crate) struct Convert<A, D>(PhantomData<(A, D)>);

macro_rules! convert {
    ($($a:ty, $d:ty;)*) => {$(
        // SAFETY: touches only the slots `d` and `a`.
        unsafe impl Handler for Convert<$a, $d> {
            #[inline(always)]
            unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
                let conversion = Conversion::unpack(op.x);
                for i in cx.active() {
                    // SAFETY: the slots have these lane types.
                    unsafe {
                        let a = *cx.slot::<$a>(op.a).add(i);
                        *cx.slot::<$d>(op.d).add(i) = conversion.apply(u64::from(a)) as $d;
                    }
                }
                false
            }
        }
    )*};
}

convert! {
    u32, u32;
    u32, u64;
    u64, u32;
    u64, u64;
}

/// The conversions that Rust's `as` performs the same way, for speed: integers
/// of 32 and 64 bits, and from those to f32.
pub(crate) struct Cast<A, D>(PhantomData<(A, D)>);

macro_rules! cast {
    ($($a:ty => $($d:ty),*;)*) => {$($(
        impl F1 for Cast<$a, $d> {
            type A = $a;
            type D = $d;
            #[inline(always)]
            fn f(a: $a, _x: u32) -> $d {
                a as $d
            }
        }
    )*)*};
}

cast! {
    u16 => u32, u64;
    i16 => i32, i64;
    u32 => u16, u64, f32;
    i32 => i64, f32;
    u64 => u16, u32;
}

/// Two floats to a pair of small ones: `d` = `{a, b}` with `a` in the high
/// half; `x` as packed by [`Conversion::pack`].
pub(crate) struct ConvertPair;

// SAFETY: touches only the slots `d`, `a` and `b`.
unsafe impl Handler for ConvertPair {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let conversion = Conversion::unpack(op.x);
        for i in cx.active() {
            // SAFETY: the slots have 32-bit lanes.
            unsafe {
                let part = |slot| conversion.apply(u64::from(*cx.slot::<u32>(slot).add(i))) as u32;
                let pair = part(op.a) << 16 | part(op.b) & 0xffff;
                *cx.slot::<u32>(op.d).add(i) = pair;
            }
        }
        false
    }
}

const _: () = assert!(size_of::<<f32 as Lane>::Slot>() == 4);

/// f32 to tf32, kept in an f32: ten mantissa bits, the others zero. Ties go
/// away from zero if `x` is 1, else to even.
pub(crate) struct Tf32;

impl F1 for Tf32 {
    type A = u32;
    type D = u32;
    #[inline(always)]
    fn f(a: u32, x: u32) -> u32 {
        const DROPPED: u32 = 13;
        let half = 1 << (DROPPED - 1);
        let bias = if x != 0 { half } else { half - 1 + (a >> DROPPED & 1) };
        let rounded = a.wrapping_add(bias) & !((1 << DROPPED) - 1);
        let magnitude = a & 0x7fff_ffff;
        match magnitude {
            0x7f80_0001.. => 0x7fff_ffff,
            0x7f80_0000 => a,
            _ => rounded,
        }
    }
}
