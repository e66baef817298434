//! What becomes of an f32 before tensor cores take it as TF32: they ignore its last 13 bits.

use cuda_std::mma::Tf32;

/// Half of the last bit that TF32 has.
const HALF: u32 = 1 << 12;

/// The nearest TF32 number, ties to even, with last bits that tensor cores ignore. Unless `CAREFUL`, NaN may become
/// any number.
#[inline(always)]
pub fn nearest<const CAREFUL: bool>(x: f32) -> f32 {
    match x.to_bits() {
        bits if CAREFUL && x.is_nan() => f32::from_bits(bits | 1 << 22),
        // A carry into the exponent is right, too.
        bits => f32::from_bits(bits.wrapping_add(HALF - 1 + (bits >> 13 & 1))),
    }
}

/// The nearest TF32 number, ties away from zero.
#[inline(always)]
pub fn rounded<const CAREFUL: bool>(x: f32) -> f32 {
    truncated(away::<CAREFUL>(x))
}

/// Splits a number that was [`rounded`] to `big` in two: that, and the same of what it leaves of a finite number, with
/// last bits that tensor cores ignore. Adds the rest to `check`, which is infinite or NaN then, unless `CAREFUL`, where a
/// number is not finite or overflows as TF32, whose parts may be wrong.
#[inline(always)]
pub fn split<const CAREFUL: bool>(x: f32, mut big: f32, check: &mut f32) -> [f32; 2] {
    let mut small = 0.0;
    let is_finite = !CAREFUL || x.is_finite();
    let overflows = CAREFUL && is_finite && !big.is_finite();
    if overflows {
        big = truncated(x);
    }
    // Infinity times a `small` of 0 would be NaN: `big` is a number that has its sign, with which every
    // product is what infinity gives, or is lost beside it.
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

/// As [`Tf32::round`], but for last bits that tensor cores ignore, and unless `CAREFUL` for NaN, and in fewer
/// instructions.
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
