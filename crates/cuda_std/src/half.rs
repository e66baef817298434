//! 16-bit floats (the feature `half`): the types of the crate `half`, pairs of them, and
//! arithmetic.
//!
//! - [`struct@f16`] and [`bf16`] are those of the crate `half`, whose own operators compute in
//!   software.
//! - [`f16x2`] and [`bf16x2`] are pairs in one register; their operators are one instruction each.
//! - [`add`], [`fma`], [`max`] and the other functions here are the instructions of these names,
//!   for all four types. Each rounds once, to the nearest number, ties to even; a NaN comes out as
//!   `7fff`. They do not flush subnormal numbers, and ptxas does not fuse them.
//! - [`Half::widen`] and [`Half::narrow`] convert in one instruction.
//!
//! | type | `fma`, `neg`, `abs` | `add`, `sub`, `mul` | `min`, `max` | atomic addition |
//! |---|---|---|---|---|
//! | `f16`, `f16x2` | sm_53 | sm_53 | sm_80 | sm_70, sm_60 |
//! | `bf16`, `bf16x2` | sm_80 | sm_90; from sm_80 on as `fma` | sm_80 | sm_90 |

use cuda_std_macros::gpu_only;

pub use half::{bf16, f16};

use crate::warp::WarpShuffleValue;

mod arithmetic;
mod atomic;
mod operators;
mod pair;

pub use arithmetic::{
    Arithmetic, abs, add, fma, fma_relu, max, max_nan, min, min_nan, mul, neg, setp_eq, setp_ge,
    setp_gt, setp_le, setp_lt, setp_ne, sub,
};
pub use atomic::{AtomicAdd, atomic_add_device};
pub use pair::{bf16x2, f16x2};

/// A 16-bit float.
pub trait Half: Copy {
    /// This value in 32 bits.
    #[must_use]
    fn widen(self) -> f32;

    /// The nearest value in 16 bits; ties go to an even one.
    #[must_use]
    fn narrow(value: f32) -> Self;
}

macro_rules! convert {
    ($name:ident($argument:ident: $from:ty, $in:ident) -> $to:ty, $out:ident = $op:literal;) => {
        #[gpu_only]
        #[inline(always)]
        fn $name($argument: $from) -> $to {
            let result: $to;
            // SAFETY: arithmetic on registers.
            unsafe {
                core::arch::asm!(
                    concat!($op, " {}, {};"),
                    out($out) result,
                    in($in) $argument,
                    options(pure, nomem, nostack, preserves_flags),
                );
            }
            result
        }
    };
}

convert! { f32_of_f16(bits: u16, reg16) -> f32, reg32 = "cvt.f32.f16"; }
convert! { f16_of_f32(value: f32, reg32) -> u16, reg16 = "cvt.rn.f16.f32"; }
convert! { bf16_of_f32(value: f32, reg32) -> u16, reg16 = "cvt.rn.bf16.f32"; }

impl Half for f16 {
    /// `cvt.f32.f16`.
    #[inline(always)]
    fn widen(self) -> f32 {
        match cfg!(target_arch = "nvptx64") {
            true => f32_of_f16(self.to_bits()),
            false => self.to_f32(),
        }
    }

    /// `cvt.rn.f16.f32`.
    #[inline(always)]
    fn narrow(value: f32) -> Self {
        match cfg!(target_arch = "nvptx64") {
            true => f16::from_bits(f16_of_f32(value)),
            false => f16::from_f32(value),
        }
    }
}

impl Half for bf16 {
    /// A shift.
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    /// `cvt.rn.bf16.f32`, sm_80.
    #[inline(always)]
    fn narrow(value: f32) -> Self {
        match cfg!(target_arch = "nvptx64") {
            true => bf16::from_bits(bf16_of_f32(value)),
            false => bf16::from_f32(value),
        }
    }
}

macro_rules! shuffle {
    ($($ty:ident)*) => {$(
        impl WarpShuffleValue for $ty {
            #[inline(always)]
            fn map_words(self, shuffle: impl Fn(u32) -> u32) -> $ty {
                $ty::from_bits(shuffle(self.to_bits().into()) as u16)
            }
        }
    )*};
}

shuffle! { f16 bf16 }
