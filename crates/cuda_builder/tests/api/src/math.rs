//! Mathematical functions: a kernel for each.
//!
//! `FUNCTIONS` has the same functions for the CPU.

use cuda_std::prelude::*;

/// A function of one or two numbers, by the name of its kernel.
pub struct Function<T> {
    /// The kernel.
    pub kernel: &'static str,
    /// What it computes.
    pub compute: fn(T, T) -> T,
}

macro_rules! functions {
    ($ty:ident: $($kernel:ident = |$x:ident, $y:ident| $result:expr;)*) => {
        $(
            /// The function of `x[i]` and `y[i]`.
            ///
            /// # Safety
            /// `y` and `out` have as many elements as `x`; nothing else touches `out`.
            #[kernel]
            pub unsafe fn $kernel(x: &[$ty], y: *const $ty, out: *mut $ty) {
                let i = thread::index_1d() as usize;
                if let Some(&$x) = x.get(i) {
                    // SAFETY: as the launch promises.
                    unsafe {
                        let $y = *y.add(i);
                        *out.add(i) = $result;
                    }
                }
            }
        )*

        /// The functions.
        #[cfg(not(target_arch = "nvptx64"))]
        pub const FUNCTIONS: &[Function<$ty>] = &[$(Function {
            kernel: stringify!($kernel),
            compute: |$x, $y| $result,
        }),*];
    };
}

/// Of `f32`.
pub mod narrow {
    use super::*;
    functions! { f32:
        floor_f32 = |x, _y| GpuFloat::floor(x);
        ceil_f32 = |x, _y| GpuFloat::ceil(x);
        round_f32 = |x, _y| GpuFloat::round(x);
        rint_f32 = |x, _y| GpuFloat::round_ties_even(x);
        trunc_f32 = |x, _y| GpuFloat::trunc(x);
        fract_f32 = |x, _y| GpuFloat::fract(x);
        signum_f32 = |x, y| GpuFloat::copysign(GpuFloat::abs(x), y) + GpuFloat::signum(x);
        fma_f32 = |x, y| GpuFloat::mul_add(x, y, x);
        div_euclid_f32 = |x, y| GpuFloat::div_euclid(x, y);
        rem_euclid_f32 = |x, y| GpuFloat::rem_euclid(x, y);
        powi_f32 = |x, y| GpuFloat::powi(x, y as i32);
        powf_f32 = |x, y| GpuFloat::powf(x, y);
        sqrt_f32 = |x, _y| GpuFloat::sqrt(x);
        exp_f32 = |x, _y| GpuFloat::exp(x);
        exp2_f32 = |x, _y| GpuFloat::exp2(x);
        exp10_f32 = |x, _y| GpuFloat::exp10(x);
        ln_f32 = |x, _y| GpuFloat::ln(x);
        log_f32 = |x, y| GpuFloat::log(x, y);
        log2_f32 = |x, _y| GpuFloat::log2(x);
        log10_f32 = |x, _y| GpuFloat::log10(x);
        cbrt_f32 = |x, _y| GpuFloat::cbrt(x);
        hypot_f32 = |x, y| GpuFloat::hypot(x, y);
        sin_f32 = |x, _y| GpuFloat::sin(x);
        cos_f32 = |x, _y| GpuFloat::cos(x);
        tan_f32 = |x, _y| GpuFloat::tan(x);
        sin_cos_f32 = |x, _y| GpuFloat::sin_cos(x).0 + GpuFloat::sin_cos(x).1;
        asin_f32 = |x, _y| GpuFloat::asin(x);
        acos_f32 = |x, _y| GpuFloat::acos(x);
        atan_f32 = |x, _y| GpuFloat::atan(x);
        atan2_f32 = |x, y| GpuFloat::atan2(x, y);
        exp_m1_f32 = |x, _y| GpuFloat::exp_m1(x);
        ln_1p_f32 = |x, _y| GpuFloat::ln_1p(x);
        sinh_f32 = |x, _y| GpuFloat::sinh(x);
        cosh_f32 = |x, _y| GpuFloat::cosh(x);
        tanh_f32 = |x, _y| GpuFloat::tanh(x);
        asinh_f32 = |x, _y| GpuFloat::asinh(x);
        acosh_f32 = |x, _y| GpuFloat::acosh(x);
        atanh_f32 = |x, _y| GpuFloat::atanh(x);
        sinpi_f32 = |x, _y| FloatExt::sinpi(x);
        cospi_f32 = |x, _y| FloatExt::cospi(x);
        erf_f32 = |x, _y| FloatExt::error_function(x);
        erfc_f32 = |x, _y| FloatExt::complementary_error_function(x);
        erfc_inv_f32 = |x, _y| FloatExt::inv_complementary_error_function(x);
        erfcx_f32 = |x, _y| FloatExt::scaled_complementary_error_function(x);
        norm_cdf_f32 = |x, _y| FloatExt::norm_cdf(x);
        inv_norm_cdf_f32 = |x, _y| FloatExt::inv_norm_cdf(x);
        frexp_f32 = |x, _y| FloatExt::frexp(x).0 + FloatExt::frexp(x).1 as f32;
        ilogb_f32 = |x, _y| FloatExt::unbiased_exp(x) as f32;
        ldexp_f32 = |x, y| FloatExt::ldexp(x, y as i32);
        scale_by_n_f32 = |x, y| FloatExt::scale_by_n(x, y as i32);
        gamma_f32 = |x, _y| FloatExt::gamma(x);
        log_gamma_f32 = |x, _y| FloatExt::log_gamma(x);
        rcbrt_f32 = |x, _y| FloatExt::rcbrt(x);
        saturate_f32 = |x, _y| FloatExt::saturate(x);
        j0_f32 = |x, _y| FloatExt::j0(x);
        j1_f32 = |x, _y| FloatExt::j1(x);
        jn_f32 = |x, y| FloatExt::jn(x, y as i32 % 5);
        y0_f32 = |x, _y| FloatExt::y0(x);
        y1_f32 = |x, _y| FloatExt::y1(x);
        yn_f32 = |x, y| FloatExt::yn(x, y as i32 % 5);
    }
}

/// Of `f64`.
pub mod wide {
    use super::*;
    functions! { f64:
        floor_f64 = |x, _y| GpuFloat::floor(x);
        ceil_f64 = |x, _y| GpuFloat::ceil(x);
        round_f64 = |x, _y| GpuFloat::round(x);
        rint_f64 = |x, _y| GpuFloat::round_ties_even(x);
        trunc_f64 = |x, _y| GpuFloat::trunc(x);
        fract_f64 = |x, _y| GpuFloat::fract(x);
        signum_f64 = |x, y| GpuFloat::copysign(GpuFloat::abs(x), y) + GpuFloat::signum(x);
        fma_f64 = |x, y| GpuFloat::mul_add(x, y, x);
        div_euclid_f64 = |x, y| GpuFloat::div_euclid(x, y);
        rem_euclid_f64 = |x, y| GpuFloat::rem_euclid(x, y);
        powi_f64 = |x, y| GpuFloat::powi(x, y as i32);
        powf_f64 = |x, y| GpuFloat::powf(x, y);
        sqrt_f64 = |x, _y| GpuFloat::sqrt(x);
        exp_f64 = |x, _y| GpuFloat::exp(x);
        exp2_f64 = |x, _y| GpuFloat::exp2(x);
        exp10_f64 = |x, _y| GpuFloat::exp10(x);
        ln_f64 = |x, _y| GpuFloat::ln(x);
        log_f64 = |x, y| GpuFloat::log(x, y);
        log2_f64 = |x, _y| GpuFloat::log2(x);
        log10_f64 = |x, _y| GpuFloat::log10(x);
        cbrt_f64 = |x, _y| GpuFloat::cbrt(x);
        hypot_f64 = |x, y| GpuFloat::hypot(x, y);
        sin_f64 = |x, _y| GpuFloat::sin(x);
        cos_f64 = |x, _y| GpuFloat::cos(x);
        tan_f64 = |x, _y| GpuFloat::tan(x);
        sin_cos_f64 = |x, _y| GpuFloat::sin_cos(x).0 + GpuFloat::sin_cos(x).1;
        asin_f64 = |x, _y| GpuFloat::asin(x);
        acos_f64 = |x, _y| GpuFloat::acos(x);
        atan_f64 = |x, _y| GpuFloat::atan(x);
        atan2_f64 = |x, y| GpuFloat::atan2(x, y);
        exp_m1_f64 = |x, _y| GpuFloat::exp_m1(x);
        ln_1p_f64 = |x, _y| GpuFloat::ln_1p(x);
        sinh_f64 = |x, _y| GpuFloat::sinh(x);
        cosh_f64 = |x, _y| GpuFloat::cosh(x);
        tanh_f64 = |x, _y| GpuFloat::tanh(x);
        asinh_f64 = |x, _y| GpuFloat::asinh(x);
        acosh_f64 = |x, _y| GpuFloat::acosh(x);
        atanh_f64 = |x, _y| GpuFloat::atanh(x);
        sinpi_f64 = |x, _y| FloatExt::sinpi(x);
        cospi_f64 = |x, _y| FloatExt::cospi(x);
        erf_f64 = |x, _y| FloatExt::error_function(x);
        erfc_f64 = |x, _y| FloatExt::complementary_error_function(x);
        erfc_inv_f64 = |x, _y| FloatExt::inv_complementary_error_function(x);
        erfcx_f64 = |x, _y| FloatExt::scaled_complementary_error_function(x);
        norm_cdf_f64 = |x, _y| FloatExt::norm_cdf(x);
        inv_norm_cdf_f64 = |x, _y| FloatExt::inv_norm_cdf(x);
        frexp_f64 = |x, _y| FloatExt::frexp(x).0 + FloatExt::frexp(x).1 as f64;
        ilogb_f64 = |x, _y| FloatExt::unbiased_exp(x) as f64;
        ldexp_f64 = |x, y| FloatExt::ldexp(x, y as i32);
        scale_by_n_f64 = |x, y| FloatExt::scale_by_n(x, y as i32);
        gamma_f64 = |x, _y| FloatExt::gamma(x);
        log_gamma_f64 = |x, _y| FloatExt::log_gamma(x);
        rcbrt_f64 = |x, _y| FloatExt::rcbrt(x);
        saturate_f64 = |x, _y| FloatExt::saturate(x);
        j0_f64 = |x, _y| FloatExt::j0(x);
        j1_f64 = |x, _y| FloatExt::j1(x);
        jn_f64 = |x, y| FloatExt::jn(x, y as i32 % 5);
        y0_f64 = |x, _y| FloatExt::y0(x);
        y1_f64 = |x, _y| FloatExt::y1(x);
        yn_f64 = |x, y| FloatExt::yn(x, y as i32 % 5);
    }
}
