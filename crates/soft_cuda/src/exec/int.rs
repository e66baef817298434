//! Integer types of registers.

use super::lanes::Lane;

/// An integer type of a register.
pub(crate) trait Int: Lane + Copy + PartialOrd {
    /// The type twice as wide.
    type Wide: Lane;
    const BITS: u32;
    const SIGNED: bool;
    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    fn mul_hi(self, b: Self) -> Self;
    fn mul_wide(self, b: Self) -> Self::Wide;
    fn add_wide(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn div(self, b: Self) -> Self;
    fn rem(self, b: Self) -> Self;
    fn and(self, b: Self) -> Self;
    fn or(self, b: Self) -> Self;
    fn xor(self, b: Self) -> Self;
    fn shl(self, by: u32) -> Self;
    fn shr(self, by: u32) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn bits64(self) -> u64;
    fn of_bits(bits: u64) -> Self;
}

macro_rules! int {
    ($($ty:ident, $wide:ident, $widest:ident, $signed:literal, $unsigned:ident;)*) => {$(
        impl Int for $ty {
            type Wide = $wide;
            const BITS: u32 = $ty::BITS;
            const SIGNED: bool = $signed;
            #[inline(always)]
            fn add(self, b: $ty) -> $ty {
                self.wrapping_add(b)
            }
            #[inline(always)]
            fn sub(self, b: $ty) -> $ty {
                self.wrapping_sub(b)
            }
            #[inline(always)]
            fn mul(self, b: $ty) -> $ty {
                self.wrapping_mul(b)
            }
            #[inline(always)]
            fn mul_hi(self, b: $ty) -> $ty {
                ((self as $widest * b as $widest) >> $ty::BITS) as $ty
            }
            #[inline(always)]
            fn mul_wide(self, b: $ty) -> $wide {
                (self as $wide).wrapping_mul(b as $wide)
            }
            #[inline(always)]
            fn add_wide(a: $wide, b: $wide) -> $wide {
                a.wrapping_add(b)
            }
            #[inline(always)]
            fn div(self, b: $ty) -> $ty {
                // PTX leaves division by zero open; GPUs give all ones.
                if b == 0 { $ty::of_bits(u64::MAX) } else { self.wrapping_div(b) }
            }
            #[inline(always)]
            fn rem(self, b: $ty) -> $ty {
                if b == 0 { self } else { self.wrapping_rem(b) }
            }
            #[inline(always)]
            fn and(self, b: $ty) -> $ty {
                self & b
            }
            #[inline(always)]
            fn or(self, b: $ty) -> $ty {
                self | b
            }
            #[inline(always)]
            fn xor(self, b: $ty) -> $ty {
                self ^ b
            }
            #[inline(always)]
            fn shl(self, by: u32) -> $ty {
                let shifted = self.wrapping_shl(by);
                if by < $ty::BITS { shifted } else { 0 }
            }
            #[inline(always)]
            fn shr(self, by: u32) -> $ty {
                // Shifting by the width or more leaves only copies of the sign.
                let by_most = if by < $ty::BITS { by } else { $ty::BITS - 1 };
                let shifted = self.wrapping_shr(by_most);
                if $signed || by < $ty::BITS { shifted } else { 0 }
            }
            #[inline(always)]
            fn neg(self) -> $ty {
                self.wrapping_neg()
            }
            #[inline(always)]
            fn abs(self) -> $ty {
                if self < 0 as $ty { self.wrapping_neg() } else { self }
            }
            #[inline(always)]
            fn bits64(self) -> u64 {
                self as $unsigned as u64
            }
            #[inline(always)]
            fn of_bits(bits: u64) -> $ty {
                bits as $ty
            }
        }
    )*};
}

// The wide type of 64-bit integers is never used: PTX has no 64-bit `.wide`.
#[allow(unused_comparisons, reason = "one macro for signed and unsigned types")]
mod types {
    use super::*;
    int! {
        u16, u32, u32, false, u16;
        i16, i32, i32, true, u16;
        u32, u64, u64, false, u32;
        i32, i64, i64, true, u32;
        u64, u64, u128, false, u64;
        i64, i64, i128, true, u64;
    }
}
