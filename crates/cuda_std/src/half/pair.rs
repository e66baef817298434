//! Pairs of 16-bit floats in one register.

use cuda_std_macros::gpu_only;

use super::{Half, bf16, f16};
use crate::warp::WarpShuffleValue;

macro_rules! pairs {
    ($($(#[$doc:meta])* $name:ident of $half:ident, $narrow:ident = $op:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// It is 4 bytes, aligned to 4. The operators `+`, `-`, `*` and the sign are one
        /// instruction each ([`add`](super::add) and its like).
        #[allow(non_camel_case_types, reason = "as PTX and the crate `half` name such types")]
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(u32);

        impl $name {
            /// A pair, the lower half first.
            #[inline(always)]
            #[must_use]
            pub const fn new(low: $half, high: $half) -> Self {
                $name(low.to_bits() as u32 | (high.to_bits() as u32) << 16)
            }

            /// A pair of one number.
            #[inline(always)]
            #[must_use]
            pub const fn splat(value: $half) -> Self {
                $name::new(value, value)
            }

            /// A pair of equal bits.
            #[cfg(not(target_feature = "sm_90"))]
            #[allow(dead_code, reason = "of one of the two types")]
            #[inline(always)]
            pub(super) const fn of(bits: u16) -> Self {
                $name::splat($half::from_bits(bits))
            }

            /// The number in the lower half.
            #[inline(always)]
            #[must_use]
            pub const fn low(self) -> $half {
                $half::from_bits(self.0 as u16)
            }

            /// The number in the upper half.
            #[inline(always)]
            #[must_use]
            pub const fn high(self) -> $half {
                $half::from_bits((self.0 >> 16) as u16)
            }

            /// The bits, those of the lower half in the low ones.
            #[inline(always)]
            #[must_use]
            pub const fn to_bits(self) -> u32 {
                self.0
            }

            /// The pair with these bits.
            #[inline(always)]
            #[must_use]
            pub const fn from_bits(bits: u32) -> Self {
                $name(bits)
            }

            /// The values in 32 bits, that of the lower half first.
            #[inline(always)]
            #[must_use]
            pub fn widen(self) -> [f32; 2] {
                [self.low().widen(), self.high().widen()]
            }

            #[doc = concat!("The nearest numbers, the lower half first (`", $op, "`, sm_80).")]
            #[inline(always)]
            #[must_use]
            pub fn narrow([low, high]: [f32; 2]) -> Self {
                match cfg!(target_arch = "nvptx64") {
                    true => $name($narrow(low, high)),
                    false => $name::new($half::narrow(low), $half::narrow(high)),
                }
            }
        }

        #[gpu_only]
        #[inline(always)]
        fn $narrow(low: f32, high: f32) -> u32 {
            let result: u32;
            // SAFETY: arithmetic on registers.
            unsafe {
                core::arch::asm!(
                    concat!($op, " {}, {}, {};"),
                    out(reg32) result,
                    in(reg32) high,
                    in(reg32) low,
                    options(pure, nomem, nostack, preserves_flags),
                );
            }
            result
        }

        impl WarpShuffleValue for $name {
            #[inline(always)]
            fn map_words(self, shuffle: impl Fn(u32) -> u32) -> $name {
                $name(shuffle(self.0))
            }
        }

        // SAFETY: a number, which any bits are.
        #[cfg(all(feature = "launch", not(target_arch = "nvptx64")))]
        unsafe impl cust::memory::DeviceCopy for $name {}
    )*};
}

pairs! {
    /// Two [`struct@f16`] in one register (`.f16x2`).
    f16x2 of f16, narrow_f16x2 = "cvt.rn.f16x2.f32";
    /// Two [`bf16`] in one register (`.bf16x2`).
    bf16x2 of bf16, narrow_bf16x2 = "cvt.rn.bf16x2.f32";
}
