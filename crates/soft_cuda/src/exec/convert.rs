//! `cvt`: conversions between all scalar types.

use std::marker::PhantomData;

use super::float::{FTZ, Float, SAT};
use super::lanes::{F1, Lane};
use super::op::{Cx, Handler, Op};
use super::round::{self, Exact, Format, ROUNDINGS, Rounding};

/// A negative result is 0 (`.relu`).
pub(crate) const RELU: u32 = 16;

/// A scalar type, as `cvt` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    Int {
        bits: u32,
        signed: bool,
    },
    F16,
    Bf16,
    /// In a register of an f32: the bits that it has not are zero.
    Tf32,
    F32,
    F64,
}

impl Scalar {
    /// The format of a float; of an integer, its bits and whether it has a sign.
    fn format(self) -> Result<Format, (u32, bool)> {
        Ok(match self {
            Scalar::Int { bits, signed } => return Err((bits, signed)),
            Scalar::F16 => round::F16,
            Scalar::Bf16 => round::BF16,
            Scalar::Tf32 => round::TF32,
            Scalar::F32 => round::F32,
            Scalar::F64 => round::F64,
        })
    }
}

/// Scalars, in the order of the numbers that operations carry.
pub(crate) const SCALARS: [(&str, Scalar); 13] = [
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
    ("tf32", Scalar::Tf32),
    ("f32", Scalar::F32),
    ("f64", Scalar::F64),
];

/// A number: every value of every type is one.
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
            rounding: ROUNDINGS[(x >> 8 & 7) as usize],
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
            Scalar::F16 => Number::Float(round::F16.value(bits)),
            Scalar::Bf16 => Number::Float(f64::from(f32::from_bits((bits as u32) << 16))),
            Scalar::Tf32 | Scalar::F32 => {
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
                Rounding::Nearest | Rounding::Away => float.round_ties_even(),
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
        let format = match self.to.format() {
            Ok(format) => format,
            Err((width, signed)) => return to_integer(value, width, signed, self),
        };
        let rounded = match (self.to, value) {
            (_, Number::Float(float)) if float.is_nan() => self.nan(bits, format),
            // What the host rounds.
            (Scalar::F64, Number::Float(float)) => float.to_bits(),
            (Scalar::F32, Number::Float(float)) if self.rounding == Rounding::Nearest => {
                (float as f32).to_bits().into()
            }
            (_, Number::Float(float)) => format.of(float, self.rounding),
            (_, Number::Int(int)) => format.round(Exact::of_int(int), self.rounding),
        };
        match self.to {
            Scalar::F32 if self.flags & FTZ != 0 => {
                f32::from_bits(rounded as u32).flush().to_bits().into()
            }
            Scalar::Tf32 => rounded << TF32_DROPS,
            _ => rounded,
        }
    }

    /// What a NaN becomes as a float, as an H200 has it.
    fn nan(self, bits: u64, format: Format) -> u64 {
        match (self.from, self.to, self.from.format()) {
            (Scalar::F64, _, Ok(from)) | (_, Scalar::F64, Ok(from)) => format.nan_of(bits, from),
            // Cut or extended as any number; a signaling one stays so.
            (Scalar::Bf16, Scalar::F32, _) => (bits & 0xffff) << 16,
            (_, Scalar::Tf32, _) if self.rounding == Rounding::Away => bits >> TF32_DROPS,
            _ => format.nan,
        }
    }
}

/// Bits of an f32 that a tf32 has not.
const TF32_DROPS: u32 = 13;

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
