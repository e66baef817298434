//! Rounding and splitting of f32 for tensor cores, which ignore the last 13 bits.

use cuda_std::mma::Tf32;

/// Half of the last bit that TF32 has.
const HALF: u32 = 1 << 12;

/// The nearest TF32 number, ties to even.
///
/// The bits that tensor cores ignore are not cleared. Unless `CAREFUL`, NaN may become any number.
#[inline(always)]
pub fn nearest<const CAREFUL: bool>(x: f32) -> f32 {
    match x.to_bits() {
        bits if CAREFUL && x.is_nan() => f32::from_bits(bits | 1 << 22),
        // A carry into the exponent is also right.
        bits => f32::from_bits(bits.wrapping_add(HALF - 1 + (bits >> 13 & 1))),
    }
}

/// The nearest TF32 number, ties away from zero.
#[inline(always)]
pub fn rounded<const CAREFUL: bool>(x: f32) -> f32 {
    truncated(away::<CAREFUL>(x))
}

/// Splits a number into `big`, which is `x` after [`rounded`], and `small`.
///
/// `small` is the rest of a finite number, rounded; the bits that tensor cores ignore are not
/// cleared. The rest is added to `check`. Unless `CAREFUL`, `check` becomes infinite or NaN if `x`
/// is not finite or overflows as TF32. Then the parts may be wrong.
#[inline(always)]
pub fn split<const CAREFUL: bool>(x: f32, mut big: f32, check: &mut f32) -> [f32; 2] {
    let mut small = 0.0;
    let is_finite = !CAREFUL || x.is_finite();
    let overflows = CAREFUL && is_finite && !big.is_finite();
    if overflows {
        big = truncated(x);
    }
    // Infinity times a `small` of 0 would be NaN. So `big` is 1 with infinity's sign: each of its
    // products is what infinity gives, or is lost beside it.
    if CAREFUL && x.is_infinite() {
        big = 1.0f32.copysign(x);
        small = x;
    }
    if is_finite {
        let rest = x - big;
        *check += rest;
        // Rounded up, the largest would become infinite after all.
        small = if overflows { truncated(rest) } else { away::<CAREFUL>(rest) };
    }
    [big, small]
}

/// [`Tf32::round`] in fewer instructions.
///
/// The bits that tensor cores ignore are not cleared. Unless `CAREFUL`, NaN may become any number.
#[inline(always)]
fn away<const CAREFUL: bool>(x: f32) -> f32 {
    match CAREFUL {
        true => f32::from_bits(Tf32::round(x)),
        false => f32::from_bits(x.to_bits().wrapping_add(HALF)),
    }
}

/// Without the bits that tensor cores ignore.
#[inline(always)]
fn truncated(x: f32) -> f32 {
    f32::from_bits(x.to_bits() & !(2 * HALF - 1))
}
