//! Floating-point operations that `core` lacks on the GPU.

use cuda_std_macros::gpu_only;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

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

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = $op:literal;)*) => {$(
        $(#[$doc])*
        #[gpu_only]
        #[inline(always)]
        #[must_use]
        pub fn $name(x: f32) -> f32 {
            let result: f32;
            // SAFETY: arithmetic on registers.
            unsafe {
                asm!(
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

unary! {
    /// The square root, correctly rounded (`sqrt.rn.f32`).
    sqrt = "sqrt.rn.f32";
    /// `1 / x`, correctly rounded (`rcp.rn.f32`).
    recip = "rcp.rn.f32";
    /// `1 / sqrt(x)` with a relative error of about 2^-22 (`rsqrt.approx.f32`).
    rsqrt_approx = "rsqrt.approx.f32";
    /// `2^x` with a relative error of about 2^-22 (`ex2.approx.f32`).
    exp2_approx = "ex2.approx.f32";
    /// The base-2 logarithm, with an absolute error of about 2^-22 near 1
    /// (`lg2.approx.f32`).
    log2_approx = "lg2.approx.f32";
}
