//! Arithmetic and comparisons of 16-bit floats and of pairs of them.

use cuda_std_macros::gpu_only;

#[cfg(not(target_feature = "sm_90"))]
use super::Half;
use super::pair::{bf16x2, f16x2};
use super::{bf16, f16};

/// A type that this module's functions compute with: [`struct@f16`], [`bf16`], [`f16x2`] or
/// [`bf16x2`].
pub trait Arithmetic: Copy {
    /// The result of comparisons: a `bool`, or one for each half, the lower one first.
    type Compared;

    #[doc(hidden)]
    fn add(self, b: Self) -> Self;
    #[doc(hidden)]
    fn sub(self, b: Self) -> Self;
    #[doc(hidden)]
    fn mul(self, b: Self) -> Self;
    #[doc(hidden)]
    fn fma(self, b: Self, c: Self) -> Self;
    #[doc(hidden)]
    fn fma_relu(self, b: Self, c: Self) -> Self;
    #[doc(hidden)]
    fn min(self, b: Self) -> Self;
    #[doc(hidden)]
    fn max(self, b: Self) -> Self;
    #[doc(hidden)]
    fn min_nan(self, b: Self) -> Self;
    #[doc(hidden)]
    fn max_nan(self, b: Self) -> Self;
    #[doc(hidden)]
    fn neg(self) -> Self;
    #[doc(hidden)]
    fn abs(self) -> Self;
    #[doc(hidden)]
    fn setp_eq(self, b: Self) -> Self::Compared;
    #[doc(hidden)]
    fn setp_ne(self, b: Self) -> Self::Compared;
    #[doc(hidden)]
    fn setp_lt(self, b: Self) -> Self::Compared;
    #[doc(hidden)]
    fn setp_le(self, b: Self) -> Self::Compared;
    #[doc(hidden)]
    fn setp_gt(self, b: Self) -> Self::Compared;
    #[doc(hidden)]
    fn setp_ge(self, b: Self) -> Self::Compared;
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($first:ident $(, $argument:ident)*) -> $result:ty;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        #[must_use]
        pub fn $name<T: Arithmetic>($first: T $(, $argument: T)*) -> $result {
            $first.$name($($argument),*)
        }
    )*};
}

functions! {
    /// `a + b` (`add.rn`).
    add(a, b) -> T;
    /// `a - b` (`sub.rn`).
    sub(a, b) -> T;
    /// `a * b` (`mul.rn`).
    mul(a, b) -> T;
    /// `a * b + c`, rounded once (`fma.rn`).
    fma(a, b, c) -> T;
    /// As [`fma`], but 0 where that is negative (`fma.rn.relu`, sm_80).
    fma_relu(a, b, c) -> T;
    /// The smaller one; of a number and a NaN, the number; -0 is smaller than 0 (`min`, sm_80).
    min(a, b) -> T;
    /// The larger one; of a number and a NaN, the number (`max`, sm_80).
    max(a, b) -> T;
    /// As [`min`], but NaN if one of them is (`min.NaN`, sm_80).
    min_nan(a, b) -> T;
    /// As [`max`], but NaN if one of them is (`max.NaN`, sm_80).
    max_nan(a, b) -> T;
    /// `-a` (`neg`).
    neg(a) -> T;
    /// `a` without its sign (`abs`).
    abs(a) -> T;
    /// Whether `a == b` (`setp.eq`).
    setp_eq(a, b) -> T::Compared;
    /// Whether `a != b`, which a NaN is to all (`setp.neu`).
    setp_ne(a, b) -> T::Compared;
    /// Whether `a < b` (`setp.lt`).
    setp_lt(a, b) -> T::Compared;
    /// Whether `a <= b` (`setp.le`).
    setp_le(a, b) -> T::Compared;
    /// Whether `a > b` (`setp.gt`).
    setp_gt(a, b) -> T::Compared;
    /// Whether `a >= b` (`setp.ge`).
    setp_ge(a, b) -> T::Compared;
}

/// Methods that are one instruction each: what its bits are, and its type.
macro_rules! instructions {
    ($class:ident $bits:ty, $suffix:literal: $($name:ident($($b:ident)*) = $op:literal $holes:literal;)*) => {$(
        #[gpu_only]
        #[inline(always)]
        fn $name(self $(, $b: Self)*) -> Self {
            let result: $bits;
            // SAFETY: arithmetic on registers.
            unsafe {
                core::arch::asm!(
                    concat!($op, ".", $suffix, " {}", $holes, ";"),
                    out($class) result,
                    in($class) self.to_bits(),
                    $(in($class) $b.to_bits(),)*
                    options(pure, nomem, nostack, preserves_flags),
                );
            }
            Self::from_bits(result)
        }
    )*};
}

/// The methods that all architectures have that have any.
macro_rules! common {
    ($class:ident $bits:ty, $suffix:literal) => {
        instructions! { $class $bits, $suffix:
            fma(b c) = "fma.rn" ", {}, {}, {}";
            fma_relu(b c) = "fma.rn.relu" ", {}, {}, {}";
            min(b) = "min" ", {}, {}";
            max(b) = "max" ", {}, {}";
            min_nan(b) = "min.NaN" ", {}, {}";
            max_nan(b) = "max.NaN" ", {}, {}";
            neg() = "neg" ", {}";
            abs() = "abs" ", {}";
        }
    };
}

macro_rules! sums {
    ($class:ident $bits:ty, $suffix:literal) => {
        instructions! { $class $bits, $suffix:
            add(b) = "add.rn" ", {}, {}";
            sub(b) = "sub.rn" ", {}, {}";
            mul(b) = "mul.rn" ", {}, {}";
        }
    };
}

/// Comparisons: of one number each, or of two.
macro_rules! comparisons {
    ($kind:ident $class:ident $suffix:literal) => {
        comparisons! { @ $kind $class $suffix:
            setp_eq = "eq";
            setp_ne = "neu";
            setp_lt = "lt";
            setp_le = "le";
            setp_gt = "gt";
            setp_ge = "ge";
        }
    };
    (@ one $class:ident $suffix:literal: $($name:ident = $op:literal;)*) => {$(
        #[gpu_only]
        #[inline(always)]
        fn $name(self, b: Self) -> bool {
            let result: u32;
            // SAFETY: compares registers.
            unsafe {
                core::arch::asm!(
                    "{{",
                    ".reg .pred p;",
                    concat!("setp.", $op, ".", $suffix, " p, {a}, {b};"),
                    "selp.u32 {result}, 1, 0, p; }}",
                    result = out(reg32) result,
                    a = in($class) self.to_bits(),
                    b = in($class) b.to_bits(),
                    options(pure, nomem, nostack),
                );
            }
            result != 0
        }
    )*};
    (@ two $class:ident $suffix:literal: $($name:ident = $op:literal;)*) => {$(
        #[gpu_only]
        #[inline(always)]
        fn $name(self, b: Self) -> [bool; 2] {
            let (low, high): (u32, u32);
            // SAFETY: compares registers.
            unsafe {
                core::arch::asm!(
                    "{{",
                    ".reg .pred p;",
                    ".reg .pred q;",
                    concat!("setp.", $op, ".", $suffix, " p|q, {a}, {b};"),
                    "selp.u32 {low}, 1, 0, p;",
                    "selp.u32 {high}, 1, 0, q; }}",
                    low = lateout(reg32) low,
                    high = lateout(reg32) high,
                    a = in($class) self.to_bits(),
                    b = in($class) b.to_bits(),
                    options(pure, nomem, nostack),
                );
            }
            [low != 0, high != 0]
        }
    )*};
}

/// Operations of `bf16` that use other instructions before sm_90.
///
/// Sums and products use `fma`, which rounds once and gives zeros of the same sign. Comparisons use
/// f32.
#[cfg(not(target_feature = "sm_90"))]
macro_rules! before_sm_90 {
    ($splat:path, |$a:ident, $b:ident, $compare:ident| $compared:expr) => {
        #[inline(always)]
        fn add(self, b: Self) -> Self {
            self.fma($splat(0x3f80), b)
        }

        #[inline(always)]
        fn sub(self, b: Self) -> Self {
            b.fma($splat(0xbf80), self)
        }

        #[inline(always)]
        fn mul(self, b: Self) -> Self {
            self.fma(b, $splat(0x8000))
        }

        before_sm_90! { @ |$a, $b, $compare| $compared;
            setp_eq = eq;
            setp_ne = ne;
            setp_lt = lt;
            setp_le = le;
            setp_gt = gt;
            setp_ge = ge;
        }
    };
    (@ |$a:ident, $b:ident, $compare:ident| $compared:expr; $($name:ident = $op:ident;)*) => {$(
        #[inline(always)]
        fn $name(self, b: Self) -> Self::Compared {
            let ($a, $b, $compare) = (self.widen(), b.widen(), |a: f32, b: f32| a.$op(&b));
            $compared
        }
    )*};
}

impl Arithmetic for f16 {
    type Compared = bool;
    sums! { reg16 u16, "f16" }
    common! { reg16 u16, "f16" }
    comparisons! { one reg16 "f16" }
}

impl Arithmetic for f16x2 {
    type Compared = [bool; 2];
    sums! { reg32 u32, "f16x2" }
    common! { reg32 u32, "f16x2" }
    comparisons! { two reg32 "f16x2" }
}

impl Arithmetic for bf16 {
    type Compared = bool;
    common! { reg16 u16, "bf16" }
    #[cfg(target_feature = "sm_90")]
    sums! { reg16 u16, "bf16" }
    #[cfg(target_feature = "sm_90")]
    comparisons! { one reg16 "bf16" }
    #[cfg(not(target_feature = "sm_90"))]
    before_sm_90! { bf16::from_bits, |a, b, compare| compare(a, b) }
}

impl Arithmetic for bf16x2 {
    type Compared = [bool; 2];
    common! { reg32 u32, "bf16x2" }
    #[cfg(target_feature = "sm_90")]
    sums! { reg32 u32, "bf16x2" }
    #[cfg(target_feature = "sm_90")]
    comparisons! { two reg32 "bf16x2" }
    #[cfg(not(target_feature = "sm_90"))]
    before_sm_90! { bf16x2::of, |a, b, compare| [compare(a[0], b[0]), compare(a[1], b[1])] }
}
