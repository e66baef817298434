//! Floating-point operations that are one instruction.

use cuda_std_macros::gpu_only;

/// `a * b + c`, rounded once (`fma.rn.f32`).
///
/// rustc never contracts `a * b + c` into this by itself: ask for it.
#[gpu_only]
#[inline(always)]
#[must_use]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    core::intrinsics::fmaf32(a, b, c)
}

/// `a * b + c` in f64, rounded once (`fma.rn.f64`).
#[gpu_only]
#[inline(always)]
#[must_use]
pub fn fma_f64(a: f64, b: f64, c: f64) -> f64 {
    core::intrinsics::fmaf64(a, b, c)
}

/// The larger one, and NaN if one of them is (`max.NaN.f32`, sm_80); of the two zeros +0.
/// [`f32::max`] takes the number of a number and a NaN.
#[gpu_only]
#[inline(always)]
#[must_use]
pub fn max_nan(a: f32, b: f32) -> f32 {
    let result: f32;
    // SAFETY: arithmetic on registers.
    unsafe {
        core::arch::asm!(
            "max.NaN.f32 {}, {}, {};",
            out(reg32) result,
            in(reg32) a,
            in(reg32) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    result
}

/// Declares functions of an `f32` that are one instruction.
macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = $op:literal;)*) => {$(
        $(#[$doc])*
        #[cuda_std_macros::gpu_only]
        #[inline(always)]
        #[must_use]
        pub fn $name(x: f32) -> f32 {
            let result: f32;
            // SAFETY: arithmetic on registers.
            unsafe {
                core::arch::asm!(
                    concat!($op, " {}, {};"),
                    out(reg32) result,
                    in(reg32) x,
                    options(pure, nomem, nostack, preserves_flags),
                );
            }
            result
        }
    )*};
}

pub(crate) use unary;

unary! {
    /// The square root, correctly rounded (`sqrt.rn.f32`).
    sqrt = "sqrt.rn.f32";
    /// `1 / x`, correctly rounded (`rcp.rn.f32`).
    recip = "rcp.rn.f32";
}
