//! Exact numbers, and how they are rounded.
//!
//! The host rounds to the nearest by itself. Every other rounding is computed here, in integers.

/// How a result is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// To the nearest, ties to even.
    Nearest,
    Zero,
    Down,
    Up,
    /// To the nearest, ties away from zero.
    Away,
}

/// Roundings, in the order of the numbers that operations carry.
pub(crate) const ROUNDINGS: [Rounding; 5] =
    [Rounding::Nearest, Rounding::Zero, Rounding::Down, Rounding::Up, Rounding::Away];

/// A finite number: `units` times two to the power of `power`, and less than one unit more if
/// `inexact`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exact {
    negative: bool,
    /// Less than 2^127.
    units: u128,
    power: i32,
    inexact: bool,
}

impl Exact {
    /// The highest bit of [`normal`](Exact::normal) units: a sum of two has one bit more.
    const TOP: u32 = 125;

    pub(crate) fn of_int(value: i128) -> Exact {
        Exact { negative: value < 0, units: value.unsigned_abs(), power: 0, inexact: false }
    }

    /// A finite float.
    pub(crate) fn of(value: f64) -> Exact {
        let bits = value.to_bits();
        let field = (bits >> 52) as i32 & 0x7ff;
        let hidden = u64::from(field != 0) << 52;
        Exact {
            negative: value.is_sign_negative(),
            units: u128::from(bits & ((1 << 52) - 1) | hidden),
            power: field.max(1) - 1075,
            inexact: false,
        }
    }

    /// The number with its highest bit at [`TOP`](Exact::TOP), unless it is zero.
    fn normal(self) -> Exact {
        let up = (self.units.leading_zeros() as i32) - (127 - Exact::TOP as i32);
        Exact { units: self.units << up, power: self.power - up, ..self }
    }

    /// The sum of two exact numbers. The rounding decides the sign of an exact zero.
    pub(crate) fn plus(self, other: Exact, rounding: Rounding) -> Exact {
        let negative = rounding == Rounding::Down;
        if self.units == 0 && other.units == 0 {
            let same = self.negative == other.negative;
            return Exact { negative: if same { self.negative } else { negative }, ..self };
        }
        if self.units == 0 || other.units == 0 {
            return if self.units == 0 { other } else { self };
        }
        let (mut a, mut b) = (self.normal(), other.normal());
        if (a.power, a.units) < (b.power, b.units) {
            (a, b) = (b, a);
        }
        let down = (a.power - b.power) as u32;
        let (low, inexact) = match down {
            0..=127 => (b.units >> down, b.units & ((1 << down) - 1) != 0),
            _ => (0, true),
        };
        if a.negative == b.negative {
            return Exact { units: a.units + low, inexact, ..a };
        }
        let units = a.units - low - u128::from(inexact);
        let negative = if units == 0 { negative } else { a.negative };
        Exact { negative, units, inexact, ..a }
    }

    /// The product of two exact floats.
    pub(crate) fn times(self, other: Exact) -> Exact {
        Exact {
            negative: self.negative != other.negative,
            units: self.units * other.units,
            power: self.power + other.power,
            inexact: false,
        }
    }

    /// The quotient of two exact floats, with at least 72 bits; `None` if the divisor is zero.
    pub(crate) fn over(self, other: Exact) -> Option<Exact> {
        let negative = self.negative != other.negative;
        if self.units == 0 || other.units == 0 {
            return (other.units != 0).then_some(Exact { negative, ..self });
        }
        let a = self.normal();
        let units = a.units / other.units;
        let inexact = !a.units.is_multiple_of(other.units);
        Some(Exact { negative, units, power: a.power - other.power, inexact })
    }

    /// The square root of an exact float, with at least 62 bits; `None` unless it is positive.
    pub(crate) fn sqrt(self) -> Option<Exact> {
        if self.negative || self.units == 0 {
            return None;
        }
        let mut a = self.normal();
        if a.power % 2 != 0 {
            (a.units, a.power) = (a.units >> 1, a.power + 1);
        }
        let units = a.units.isqrt();
        let inexact = units * units != a.units;
        Some(Exact { units, power: a.power / 2, inexact, ..a })
    }
}

/// A binary format of IEEE 754.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format {
    /// Bits of the exponent and of the mantissa.
    exponent: u32,
    mantissa: u32,
    /// The NaN that results are where none is kept.
    pub(crate) nan: u64,
}

pub(crate) const F16: Format = Format { exponent: 5, mantissa: 10, nan: 0x7fff };
/// The upper half of an f32.
pub(crate) const BF16: Format = Format { exponent: 8, mantissa: 7, nan: 0x7fff };
/// The upper 19 bits of an f32.
pub(crate) const TF32: Format = Format { exponent: 8, mantissa: 10, nan: 0x3_ffff };
pub(crate) const F32: Format = Format { exponent: 8, mantissa: 23, nan: 0x7fff_ffff };
pub(crate) const F64: Format = Format { exponent: 11, mantissa: 52, nan: 0xfff8 << 48 };

impl Format {
    const fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    const fn infinity(self) -> u64 {
        ((1 << self.exponent) - 1) << self.mantissa
    }

    /// The least normal number.
    pub(crate) const fn least(self) -> f64 {
        power_of_two(1 - self.bias())
    }

    /// The value of a number in a format smaller than f64.
    pub(crate) fn value(self, bits: u64) -> f64 {
        let Format { exponent, mantissa, .. } = self;
        let sign = bits >> (exponent + mantissa) & 1;
        let field = (bits >> mantissa) as i32 & ((1 << exponent) - 1);
        let units = bits & ((1 << mantissa) - 1);
        if field == (1 << exponent) - 1 {
            let infinity = if sign != 0 { -f64::INFINITY } else { f64::INFINITY };
            return if units == 0 { infinity } else { f64::NAN };
        }
        let magnitude = match field {
            0 => units as f64 * power_of_two(1 - self.bias() - mantissa as i32),
            _ => {
                let field = (field - self.bias() + 1023) as u64;
                f64::from_bits(field << 52 | units << (52 - mantissa))
            }
        };
        f64::from_bits(magnitude.to_bits() | sign << 63)
    }

    /// The quiet NaN with the sign of one of another format, and as much of its payload as fits.
    pub(crate) const fn nan_of(self, bits: u64, from: Format) -> u64 {
        let sign = bits >> (from.exponent + from.mantissa) & 1;
        let payload = bits << (64 - from.mantissa) >> (64 - self.mantissa);
        sign << (self.exponent + self.mantissa)
            | self.infinity()
            | 1 << (self.mantissa - 1)
            | payload
    }

    /// The bits of what a float is rounded to.
    pub(crate) fn of(self, value: f64, rounding: Rounding) -> u64 {
        if value.is_nan() {
            return self.nan;
        }
        if value.is_infinite() {
            let sign = u64::from(value < 0.0) << (self.exponent + self.mantissa);
            return sign | self.infinity();
        }
        self.round(Exact::of(value), rounding)
    }

    /// The bits of what a number is rounded to.
    pub(crate) fn round(self, number: Exact, rounding: Rounding) -> u64 {
        let Exact { negative, units, power, inexact } = number;
        let mantissa = self.mantissa as i32;
        let sign = u64::from(negative) << (self.exponent + self.mantissa);
        if units == 0 {
            return sign;
        }
        // Powers of the highest bit, and of the last one that is kept.
        let top = power + 127 - units.leading_zeros() as i32;
        let last = (top - mantissa).max(1 - self.bias() - mantissa);
        let (kept, half, rest) = match last - power {
            up @ ..=0 => (units << -up, false, inexact),
            down @ 1..=127 => {
                let half = 1 << (down - 1);
                (units >> down, units & half != 0, inexact || units & (half - 1) != 0)
            }
            _ => (0, false, true),
        };
        let away = match rounding {
            Rounding::Nearest => half && (rest || kept & 1 != 0),
            Rounding::Away => half,
            Rounding::Zero => false,
            Rounding::Down => negative && (half || rest),
            Rounding::Up => !negative && (half || rest),
        };
        // The hidden bit carries into the exponent field by itself.
        let field = (last + self.bias() + mantissa - 1) as u64;
        let encoded = kept as u64 + u64::from(away) + (field << self.mantissa);
        if encoded < self.infinity() {
            return sign | encoded;
        }
        let finite = match rounding {
            Rounding::Nearest | Rounding::Away => false,
            Rounding::Zero => true,
            Rounding::Down => !negative,
            Rounding::Up => negative,
        };
        sign | (self.infinity() - u64::from(finite))
    }
}

/// Two to a power in the range of normal numbers.
const fn power_of_two(power: i32) -> f64 {
    f64::from_bits(((power + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of all kinds, often near each other.
    fn operands(state: &mut u64) -> [f64; 3] {
        let mut next = || {
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            *state
        };
        let a = next() & !(1 << 62) | (next() & 1) << 62;
        let near = (a ^ 1 << 63).wrapping_add(next() >> 58);
        [a, if next() & 3 == 0 { near } else { next() }, next()]
            .map(|bits| match bits >> 57 & 7 {
                0 => bits & (1 << 63 | u64::MAX >> 12),
                1 => bits & !0 << 40,
                _ => bits,
            })
            .map(f64::from_bits)
            .map(|value| if value.is_finite() { value } else { 1.0 })
    }

    /// Rounded to the nearest, a result is the host's; the others are next to each other around it.
    fn check(exact: impl Fn(Rounding) -> Exact, host: f64, format: Format, host_bits: u64) {
        let of = |rounding| format.round(exact(rounding), rounding);
        let [near, zero, down, up, _] = ROUNDINGS.map(of);
        assert_eq!(near, host_bits, "{host:e}");
        let negative = down >> (format.exponent + format.mantissa) & 1 != 0;
        if host != 0.0 {
            assert!(near == down || near == up, "{host:e}");
            assert_eq!(zero, if host > 0.0 { down } else { up }, "{host:e}");
        }
        let step = if negative { down.wrapping_sub(up) } else { up.wrapping_sub(down) };
        let zeros = down == 1 << (format.exponent + format.mantissa) && up == 0;
        assert!(step <= 1 || zeros || host == 0.0, "{host:e}: {down:x} {up:x}");
    }

    #[test]
    fn to_the_nearest_is_what_the_host_computes() {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        for _ in 0..200_000 {
            let values = operands(&mut state);
            let [a, b, c] = values.map(Exact::of);
            let [x, y, z] = values;
            let wide = |exact: &dyn Fn(Rounding) -> Exact, host: f64| {
                check(exact, host, F64, host.to_bits());
            };
            wide(&|r| a.plus(b, r), x + y);
            wide(&|_| a.times(b), x * y);
            wide(&|r| a.times(b).plus(c, r), x.mul_add(y, z));
            if let Some(quotient) = a.over(b) {
                wide(&|_| quotient, x / y);
            }
            if let Some(root) = a.sqrt() {
                wide(&|_| root, x.sqrt());
            }
            let narrow = x as f32;
            check(|_| a, x, F32, narrow.to_bits().into());
        }
    }
}
