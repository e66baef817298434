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

/// A number in two parts.
#[derive(Clone, Copy)]
pub struct Parts {
    /// The nearest TF32 number, ties away from zero.
    pub big: f32,
    /// The same of `rest`, with last bits that tensor cores ignore.
    pub small: f32,
    /// What `big` leaves of a finite number.
    pub rest: f32,
}

/// Splits a number in two. Unless `CAREFUL`, `rest` is infinite or NaN where a number is not finite or overflows as
/// TF32, and the parts may be wrong then.
#[inline(always)]
pub fn split<const CAREFUL: bool>(x: f32) -> Parts {
    split_at::<CAREFUL>(x, rounded::<CAREFUL>(x))
}

/// The nearest TF32 number, ties away from zero.
#[inline(always)]
pub fn rounded<const CAREFUL: bool>(x: f32) -> f32 {
    truncated(away::<CAREFUL>(x))
}

/// [`split`], of a number that was rounded to `big`.
#[inline(always)]
pub fn split_at<const CAREFUL: bool>(x: f32, big: f32) -> Parts {
    let mut parts = Parts { big, small: 0.0, rest: 0.0 };
    let is_finite = !CAREFUL || x.is_finite();
    let overflows = CAREFUL && is_finite && !big.is_finite();
    if overflows {
        parts.big = truncated(x);
    }
    // Infinity times a `small` of 0 would be NaN: `big` is a number that has its sign, with which every
    // product is what infinity gives, or is lost beside it.
    if CAREFUL && x.is_infinite() {
        parts.big = 1.0f32.copysign(x);
        parts.small = x;
    }
    if is_finite {
        parts.rest = x - parts.big;
        // Rounded up, the largest would become infinite after all.
        parts.small = if overflows { truncated(parts.rest) } else { away::<CAREFUL>(parts.rest) };
    }
    parts
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
