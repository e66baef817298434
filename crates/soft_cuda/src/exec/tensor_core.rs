//! What a tensor core computes, bit for bit as an H200 does (`tests/run/tensor`).
//!
//! One instruction adds all products of an element and the accumulator at once. Each product of two
//! significands is exact, and its exponent is the sum of the factors', without being normalised:
//! a significand below 4. Products and accumulator are aligned to the largest exponent of those
//! that are not zero, where 25 bits behind the point are kept and the rest is cut off, whatever the
//! sign. The sum of that is exact; it is cut off to f32, or rounded to the nearest f16.

use super::convert::{Conversion, Scalar};
use super::float::Float;
use super::lanes::W;
use super::round::Rounding;

/// Bits behind the point of an aligned product.
pub(super) const FRACTION: i32 = 25;
/// The exponent of a zero: that of a product with one is below every other.
const ZERO: i32 = -600;
/// At most the exponent of any product or accumulator but zero.
pub(super) const LEAST: i32 = -300;

/// An exponent, from the largest one on, with which nothing is left.
pub(super) const NOTHING: i32 = -64;

/// A type of inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    F16,
    Bf16,
    /// In 32 bits, of which the lowest 13 are ignored.
    Tf32,
}

/// All of [`Input`], in the order of the numbers that operations carry.
pub(crate) const INPUTS: [Input; 3] = [Input::F16, Input::Bf16, Input::Tf32];

impl Input {
    pub(crate) fn bytes(self) -> u32 {
        if self == Input::Tf32 { 4 } else { 2 }
    }
}

/// Inputs, taken apart.
#[derive(Default)]
pub(crate) struct Factors {
    /// In (-2, 2).
    pub(super) significands: Vec<f32>,
    pub(super) exponents: Vec<i32>,
    /// Infinities and NaN, by index; their significand is 0.
    specials: Vec<(usize, f32)>,
}

impl Factors {
    /// Takes the bits of inputs apart, with the opposite signs if `negated`.
    #[inline(always)]
    pub(crate) fn new(input: Input, bits: &[u32], negated: bool) -> Factors {
        let mut factors = Factors {
            significands: vec![0.0; bits.len()],
            exponents: vec![0; bits.len()],
            specials: Vec::new(),
        };
        let flip = u32::from(negated) << 31;
        let (significands, exponents) = (&mut factors.significands, &mut factors.exponents);
        let mut special = false;
        let all = significands.iter_mut().zip(exponents.iter_mut()).zip(bits);
        match input {
            Input::F16 => {
                for ((significand, exponent), &bits) in all {
                    let widened = (bits & 0x8000) << 16 | (bits & 0x3ff) << 13;
                    let field = bits >> 10 & 31;
                    special |= field == 31;
                    (*significand, *exponent) = take_apart(widened ^ flip, field, 15);
                }
            }
            Input::Bf16 | Input::Tf32 => {
                let (shift, keep) =
                    if input == Input::Bf16 { (16, u32::MAX) } else { (0, !0x1fff) };
                for ((significand, exponent), &bits) in all {
                    let widened = bits << shift & keep;
                    let field = widened >> 23 & 255;
                    special |= field == 255;
                    (*significand, *exponent) = take_apart(widened ^ flip, field, 127);
                }
            }
        }
        if special {
            factors.find_specials(input, bits, flip);
        }
        factors
    }

    #[cold]
    fn find_specials(&mut self, input: Input, bits: &[u32], flip: u32) {
        for (index, &bits) in bits.iter().enumerate() {
            let widened = match input {
                Input::F16 if bits >> 10 & 31 == 31 => {
                    (bits & 0x8000) << 16 | 0x7f80_0000 | (bits & 0x3ff) << 13
                }
                Input::F16 => continue,
                Input::Bf16 => bits << 16,
                Input::Tf32 => bits & !0x1fff,
            };
            let value = f32::from_bits(widened ^ flip);
            if !value.is_finite() {
                self.specials.push((index, value));
                self.significands[index] = 0.0;
            }
        }
    }

    /// A value whose sign and class are those of factor `index`.
    fn class(&self, index: usize) -> f64 {
        match self.specials.binary_search_by_key(&index, |&(at, _)| at) {
            Ok(at) => self.specials[at].1.into(),
            Err(_) => self.significands[index].into(),
        }
    }
}

/// Significand and exponent of a number with this sign, 23 bits of fraction and exponent field.
#[inline(always)]
fn take_apart(bits: u32, field: u32, bias: i32) -> (f32, i32) {
    let sign = bits & 0x8000_0000;
    let hidden = f32::from_bits(bits & 0x807f_ffff | 0x3f80_0000);
    let missing = if field == 0 { f32::from_bits(sign | 0x3f80_0000) } else { 0.0 };
    let exponent = (field as i32).max(1) - bias;
    let zero = field == 0 && bits & 0x007f_ffff == 0;
    (hidden - missing, if zero { ZERO } else { exponent })
}

/// Rows and columns of the result, and the inner dimension, which is at most 16. `cols` is a
/// multiple of [`W`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub rows: usize,
    pub cols: usize,
    pub depth: usize,
}

/// `acc += a * b`, all row-major. Rounds to f16 if `half`.
///
/// # Safety
/// As for `A`.
#[inline(always)]
pub(crate) unsafe fn multiply<A: AddUp>(
    acc: &mut [f32],
    a: &Factors,
    b: &Factors,
    extent: Extent,
    half: bool,
) {
    let Extent { rows, cols, depth } = extent;
    let special = !a.specials.is_empty() || !b.specials.is_empty();
    for row in 0..rows {
        let significands = &a.significands[row * depth..][..depth];
        let exponents = &a.exponents[row * depth..][..depth];
        for col in (0..cols).step_by(W) {
            let at = &mut acc[row * cols + col..][..W];
            let mut old = [0.0; W];
            old.copy_from_slice(at);
            let mut accumulators = ([0.0; W], [0; W]);
            for (j, old) in old.iter().enumerate() {
                let bits = old.to_bits();
                (accumulators.0[j], accumulators.1[j]) = take_apart(bits, bits >> 23 & 255, 127);
            }
            // SAFETY: by contract.
            let sums =
                unsafe { A::add_up(accumulators, (significands, exponents), b, (col, cols)) };
            let mut new = [0.0; W];
            let mut exact = true;
            for j in 0..W {
                let sum = sums.at(j);
                // To 24 bits, of which subnormal numbers have less.
                let cut = f64::from_bits(sum.to_bits() & !((1 << 29) - 1));
                new[j] = cut as f32;
                let is_normal = cut.abs() >= f64::from(f32::MIN_POSITIVE) || sum == 0.0;
                exact &= is_normal & old[j].is_finite();
            }
            if half || special || !exact {
                for (j, new) in new.iter_mut().enumerate() {
                    let class = class_of(old[j], a, b, (row, col + j), extent);
                    *new = class.unwrap_or_else(|| rounded(sums.at(j), half));
                }
            }
            at.copy_from_slice(&new);
        }
    }
}

/// One row of factors: their significands and exponents.
pub(crate) type Row<'a> = (&'a [f32], &'a [i32]);

/// The sums of one row for [`W`] columns, two halves each, since a sum of 16 products may need 33
/// bits; and their exponents: units of `2^(exponent - FRACTION)`.
pub(crate) struct Sums {
    pub halves: [[i32; W]; 2],
    pub top: [i32; W],
}

impl Sums {
    /// The sum of one column, exactly.
    #[inline(always)]
    fn at(&self, j: usize) -> f64 {
        let unit = f64::from_bits(((self.top[j] - FRACTION + 1023) as u64) << 52);
        (f64::from(self.halves[0][j]) + f64::from(self.halves[1][j])) * unit
    }
}

/// How [`Sums`] are computed.
pub(crate) trait AddUp {
    /// Adds the products of `row` with columns `col` on of `b`, which has `cols`, to accumulators
    /// of these significands and exponents.
    ///
    /// # Safety
    /// The host has what the implementor needs.
    unsafe fn add_up(
        accumulators: ([f32; W], [i32; W]),
        row: Row<'_>,
        b: &Factors,
        place: (usize, usize),
    ) -> Sums;
}

/// On any host.
pub(crate) struct Portable;

impl AddUp for Portable {
    #[inline(always)]
    unsafe fn add_up(
        accumulators: ([f32; W], [i32; W]),
        (significands, exponents): Row<'_>,
        b: &Factors,
        (col, cols): (usize, usize),
    ) -> Sums {
        let mut top = larger([LEAST; W], 0, accumulators.1);
        for (k, &exponent) in exponents.iter().enumerate() {
            top = larger(top, exponent, vector(&b.exponents, k * cols + col));
        }
        let mut halves = [terms((1.0, 0), accumulators, &top), [0; W]];
        for (k, (&significand, &exponent)) in significands.iter().zip(exponents).enumerate() {
            let at = k * cols + col;
            let with = (vector(&b.significands, at), vector(&b.exponents, at));
            halves = [halves[1], sum(halves[0], terms((significand, exponent), with, &top))];
        }
        Sums { halves, top }
    }
}

/// [`W`] of `values` from `at` on.
#[inline(always)]
fn vector<T: Copy + Default>(values: &[T], at: usize) -> [T; W] {
    let mut vector = [T::default(); W];
    vector.copy_from_slice(&values[at..][..W]);
    vector
}

/// The larger of `top` and `exponent + theirs`.
#[inline(always)]
fn larger(top: [i32; W], exponent: i32, theirs: [i32; W]) -> [i32; W] {
    let mut larger = [0; W];
    for j in 0..W {
        larger[j] = top[j].max(exponent + theirs[j]);
    }
    larger
}

#[inline(always)]
fn sum(a: [i32; W], b: [i32; W]) -> [i32; W] {
    let mut sum = [0; W];
    for j in 0..W {
        sum[j] = a[j] + b[j];
    }
    sum
}

/// Products of one factor and [`W`] others, aligned to the exponents `top`.
#[inline(always)]
fn terms(
    (significand, exponent): (f32, i32),
    (with, theirs): ([f32; W], [i32; W]),
    top: &[i32; W],
) -> [i32; W] {
    let mut terms = [0; W];
    for j in 0..W {
        terms[j] = aligned(significand * with[j], theirs[j] + (exponent - top[j]));
    }
    terms
}

/// A number below 4 times `2^exponent`, which is not positive, cut off behind [`FRACTION`] bits.
#[inline(always)]
fn aligned(value: f32, exponent: i32) -> i32 {
    let scale = f32::from_bits(((127 + FRACTION + exponent.max(NOTHING)) as u32) << 23);
    // SAFETY: below 2^27, and not NaN: `value` is finite, and so is the power of two.
    unsafe { (value * scale).to_int_unchecked() }
}

/// What a sum is stored as.
fn rounded(sum: f64, half: bool) -> f32 {
    if half {
        let rounding = Rounding::Nearest;
        let to_half =
            Conversion { to: Scalar::F16, from: Scalar::F64, rounding, integral: false, flags: 0 };
        return half_to_f32(to_half.apply(sum.to_bits()) as u16);
    }
    if sum.abs() < f64::from(f32::MIN_POSITIVE) {
        // In units of the last place, the smallest number of f32.
        let units = (sum.abs() * 2f64.powi(149)) as u32;
        return f32::from_bits(units | u32::from(sum.is_sign_negative()) << 31);
    }
    f64::from_bits(sum.to_bits() & !((1 << 29) - 1)) as f32
}

/// The value of an f16.
pub(crate) fn half_to_f32(bits: u16) -> f32 {
    let (flags, integral, rounding) = (0, false, Rounding::Nearest);
    let widen = Conversion { to: Scalar::F32, from: Scalar::F16, rounding, integral, flags };
    f32::from_bits(widen.apply(bits.into()) as u32)
}

/// The f16 that has this value, which it must be able to have.
pub(crate) fn f32_to_half(value: f32) -> u16 {
    let (flags, integral, rounding) = (0, false, Rounding::Nearest);
    let narrow = Conversion { to: Scalar::F16, from: Scalar::F32, rounding, integral, flags };
    narrow.apply(value.to_bits().into()) as u16
}

/// The NaN or infinity that an element becomes, if it does by an input or the accumulator.
fn class_of(
    old: f32,
    a: &Factors,
    b: &Factors,
    (row, col): (usize, usize),
    Extent { cols, depth, .. }: Extent,
) -> Option<f32> {
    let products = (0..depth).map(|k| a.class(row * depth + k) * b.class(k * cols + col));
    let sum = products.fold(f64::from(old), |sum, product| sum + product);
    // Finite factors are below 2 here, so that they never overflow.
    (!sum.is_finite()).then(|| (sum as f32).canonical())
}
