//! Functions that `libm` lacks, in f64.

use core::f64::consts::{FRAC_1_SQRT_2, PI, SQRT_2};

/// The square root of π, inverted.
const FRAC_1_SQRT_PI: f64 = 0.564_189_583_547_756_3;

/// The nearest multiple of 1/2, as its number of halves from 0 to 3, and what is left over, times
/// π: at most π / 4. Both are exact before the product.
fn half_turns(x: f64) -> (u32, f64) {
    let halves = libm::rint(x * 2.0);
    let left = x - halves * 0.5;
    // Not as an integer, in which large ones would not fit.
    let quarter = halves - 4.0 * libm::floor(halves * 0.25);
    (quarter as u32, left * PI)
}

pub fn sinpi(x: f64) -> f64 {
    if !x.is_finite() {
        return f64::NAN;
    }
    let (halves, left) = half_turns(x);
    let magnitude = match halves {
        0 => libm::sin(left),
        1 => libm::cos(left),
        2 => -libm::sin(left),
        _ => -libm::cos(left),
    };
    // The sine of a whole number is a zero of its sign.
    if magnitude == 0.0 { magnitude.abs().copysign(x) } else { magnitude }
}

pub fn cospi(x: f64) -> f64 {
    if !x.is_finite() {
        return f64::NAN;
    }
    let (halves, left) = half_turns(x);
    match halves {
        0 => libm::cos(left),
        1 => -libm::sin(left) + 0.0,
        2 => -libm::cos(left),
        _ => libm::sin(left) + 0.0,
    }
}

/// e^(x^2) erfc(x).
pub fn erfcx(x: f64) -> f64 {
    if x < 12.0 {
        // The square and what its rounding lost: e^(h + l) = e^h (1 + l).
        let high = x * x;
        let low = libm::fma(x, x, -high);
        let factor = libm::exp(high);
        if factor.is_infinite() {
            return 2.0 * factor;
        }
        return libm::fma(factor, low, factor) * libm::erfc(x);
    }
    // The asymptotic series (Abramowitz and Stegun, 7.1.23); from 12 on its terms fall below the
    // last bit before they grow again.
    let t = 0.5 / (x * x);
    let (mut sum, mut term) = (1.0, 1.0);
    let mut odd = 1.0;
    while odd < 24.0 {
        term *= -odd * t;
        sum += term;
        odd += 2.0;
    }
    sum / x * FRAC_1_SQRT_PI
}

pub fn norm_cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

pub fn erfc_inv(x: f64) -> f64 {
    -inv_norm_cdf(0.5 * x) / SQRT_2
}

/// Wichura's algorithm AS 241 (Applied Statistics 37, 1988), PPND16, whose relative error is about
/// 10^-16.
#[expect(clippy::excessive_precision, reason = "the digits as they were published")]
pub fn inv_norm_cdf(p: f64) -> f64 {
    #[rustfmt::skip]
    const CENTRE: [[f64; 8]; 2] = [
        [
            3.387_132_872_796_366_608, 133.141_667_891_784_377_45, 1_971.590_950_306_551_442_7,
            13_731.693_765_509_461_125, 45_921.953_931_549_871_457, 67_265.770_927_008_700_853,
            33_430.575_583_588_128_105, 2_509.080_928_730_122_672_7,
        ],
        [
            1.0, 42.313_330_701_600_911_252, 687.187_007_492_057_908_3,
            5_394.196_021_424_751_107_7, 21_213.794_301_586_595_867, 39_307.895_800_092_710_61,
            28_729.085_735_721_942_674, 5_226.495_278_852_854_561,
        ],
    ];
    #[rustfmt::skip]
    const MIDDLE: [[f64; 8]; 2] = [
        [
            1.423_437_110_749_683_577_34, 4.630_337_846_156_545_295_9, 5.769_497_221_460_691_405_5,
            3.647_848_324_763_204_605_04, 1.270_458_252_452_368_382_58,
            0.241_780_725_177_450_611_77, 0.022_723_844_989_269_184_583_8,
            7.745_450_142_783_414_076_4e-4,
        ],
        [
            1.0, 2.053_191_626_637_758_821_87, 1.676_384_830_183_803_849_4,
            0.689_767_334_985_100_004_55, 0.148_103_976_427_480_074_59,
            0.015_198_666_563_616_457_196_6, 5.475_938_084_995_344_946e-4,
            1.050_750_071_644_416_843_24e-9,
        ],
    ];
    #[rustfmt::skip]
    const TAIL: [[f64; 8]; 2] = [
        [
            6.657_904_643_501_103_777_2, 5.463_784_911_164_114_369_9, 1.784_826_539_917_291_335_8,
            0.296_560_571_828_504_891_23, 0.026_532_189_526_576_123_093,
            1.242_660_947_388_078_438_6e-3, 2.711_555_568_743_487_578_15e-5,
            2.010_334_399_292_288_132_65e-7,
        ],
        [
            1.0, 0.599_832_206_555_887_937_69, 0.136_929_880_922_735_805_31,
            0.014_875_361_290_850_615_025, 7.868_691_311_456_132_591e-4,
            1.846_318_317_510_054_681_8e-5, 1.421_511_758_316_445_888_7e-7,
            2.044_263_103_389_939_785_64e-15,
        ],
    ];
    let ratio = |[over, under]: [[f64; 8]; 2], x: f64| {
        let evaluate = |c: [f64; 8]| {
            ((((((c[7] * x + c[6]) * x + c[5]) * x + c[4]) * x + c[3]) * x + c[2]) * x + c[1]) * x
                + c[0]
        };
        evaluate(over) / evaluate(under)
    };
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        return q * ratio(CENTRE, 0.180_625 - q * q);
    }
    let tail = if q < 0.0 { p } else { 1.0 - p };
    if tail.is_nan() || tail < 0.0 {
        return f64::NAN;
    }
    if tail == 0.0 {
        return f64::INFINITY.copysign(q);
    }
    let r = libm::sqrt(-libm::log(tail));
    let magnitude = if r <= 5.0 { ratio(MIDDLE, r - 1.6) } else { ratio(TAIL, r - 5.0) };
    magnitude.copysign(q)
}
