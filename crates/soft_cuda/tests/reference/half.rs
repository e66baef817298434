//! What arithmetic of 16-bit floats gives, in integers of 128 bits.

/// A format: bits of the exponent and of the mantissa.
#[derive(Clone, Copy, PartialEq)]
pub struct Format(pub u32, pub u32);

pub const F16: Format = Format(5, 10);
pub const BF16: Format = Format(8, 7);
pub const NAN: u16 = 0x7fff;

/// A finite number: a sign, and so many units of a power of two.
#[derive(Clone, Copy)]
pub struct Number {
    pub negative: bool,
    pub units: i128,
    pub power: i32,
}

impl Format {
    pub fn bias(self) -> i32 {
        (1 << (self.0 - 1)) - 1
    }

    pub fn infinity(self) -> u16 {
        ((1 << self.0) - 1) << self.1
    }

    pub fn is_nan(self, bits: u16) -> bool {
        bits & 0x7fff > self.infinity()
    }

    pub fn is_infinite(self, bits: u16) -> bool {
        bits & 0x7fff == self.infinity()
    }

    /// Without subnormals.
    #[allow(dead_code, reason = "each test takes what it needs")]
    pub fn flush(self, bits: u16) -> u16 {
        if bits & 0x7fff < 1 << self.1 { bits & 0x8000 } else { bits }
    }

    pub fn number(self, bits: u16) -> Number {
        let (field, mantissa) = (i32::from(bits & 0x7fff) >> self.1, bits & ((1 << self.1) - 1));
        let hidden = if field == 0 { 0 } else { 1 << self.1 };
        Number {
            negative: bits >> 15 != 0,
            units: i128::from(mantissa) + hidden,
            power: field.max(1) - self.bias() - self.1 as i32,
        }
    }

    /// The nearest number, ties to even.
    pub fn round(self, Number { negative, units, power }: Number) -> u16 {
        let sign = u16::from(negative) << 15;
        if units == 0 {
            return sign;
        }
        let top = power + 127 - units.leading_zeros() as i32;
        let last = (top - self.1 as i32).max(1 - self.bias() - self.1 as i32);
        let kept = match last - power {
            0 => units,
            up @ ..0 => units << -up,
            // Less than half of the last bit.
            127.. => 0,
            down => {
                let (kept, rest) = (units >> down, units & ((1 << down) - 1));
                let half = 1i128 << (down - 1);
                kept + i128::from(rest > half || rest == half && kept & 1 != 0)
            }
        };
        let field = i128::from(last + self.bias() + self.1 as i32 - 1) << self.1;
        sign | (kept + field).min(self.infinity().into()) as u16
    }

    /// `a * b + c`, rounded once.
    pub fn fma(self, a: u16, b: u16, c: u16) -> u16 {
        let infinite = self.is_infinite(a) || self.is_infinite(b);
        let sign = (a ^ b) & 0x8000;
        if [a, b, c].into_iter().any(|x| self.is_nan(x))
            || infinite && (a & 0x7fff == 0 || b & 0x7fff == 0)
            || infinite && self.is_infinite(c) && sign != c & 0x8000
        {
            return NAN;
        }
        if infinite || self.is_infinite(c) {
            return if infinite { sign | self.infinity() } else { c };
        }
        let (a, b, c) = (self.number(a), self.number(b), self.number(c));
        let (units, power) = (a.units * b.units, a.power + b.power);
        self.round(add(Number { negative: sign != 0, units, power }, c))
    }

    /// The smaller or the larger one, or a NaN if that is asked for.
    pub fn extreme(self, a: u16, b: u16, min: bool, nan: bool) -> u16 {
        match (self.is_nan(a), self.is_nan(b)) {
            (true, true) => NAN,
            (true, false) | (false, true) if nan => NAN,
            (true, false) => b,
            (false, true) => a,
            _ => {
                // As integers in the order of their values.
                let order = |x: u16| if x >> 15 != 0 { !x } else { x | 0x8000 };
                if (order(a) < order(b)) == min { a } else { b }
            }
        }
    }
}

/// The sum, or one that is rounded as it is.
fn add(a: Number, b: Number) -> Number {
    if a.units == 0 && b.units == 0 {
        return Number { negative: a.negative && b.negative, ..a };
    }
    let (high, low) =
        if a.units != 0 && (b.units == 0 || a.power >= b.power) { (a, b) } else { (b, a) };
    if low.units == 0 {
        return high;
    }
    let signed = |x: Number, units: i128| if x.negative { -units } else { units };
    // What is far below the last bit of the other only says in which direction that errs.
    let (sum, power) = match high.power - low.power {
        80.. => (signed(high, high.units << 80) + signed(low, 1), high.power - 80),
        near => (signed(high, high.units << near) + signed(low, low.units), low.power),
    };
    Number { negative: sum < 0, units: sum.abs(), power }
}

/// What an instruction gives for the operands `a`, `b` and `c`.
pub type Expected = fn(Format, u16, u16, u16) -> u16;

/// Instructions without their type, and how many operands they have.
pub const INSTRUCTIONS: [(&str, usize, Expected); 11] = [
    ("add", 2, |f, a, b, _| f.fma(a, one(f), b)),
    ("sub.rn", 2, |f, a, b, _| f.fma(a, one(f), b ^ 0x8000)),
    ("mul", 2, |f, a, b, _| f.fma(a, b, (a ^ b) & 0x8000)),
    ("fma.rn", 3, |f, a, b, c| f.fma(a, b, c)),
    ("fma.rn.relu", 3, |f, a, b, c| match f.fma(a, b, c) {
        bits if bits >> 15 != 0 => 0,
        bits => bits,
    }),
    ("min", 2, |f, a, b, _| f.extreme(a, b, true, false)),
    ("max", 2, |f, a, b, _| f.extreme(a, b, false, false)),
    ("min.NaN", 2, |f, a, b, _| f.extreme(a, b, true, true)),
    ("max.NaN", 2, |f, a, b, _| f.extreme(a, b, false, true)),
    ("neg", 1, |f, a, _, _| if f.is_nan(a) { NAN } else { a ^ 0x8000 }),
    ("abs", 1, |f, a, _, _| if f.is_nan(a) { NAN } else { a & 0x7fff }),
];

pub fn one(format: Format) -> u16 {
    (format.bias() as u16) << format.1
}

/// How many operands there are.
pub const THREADS: usize = 1 << 16;

/// Every number as `a`; `b` and `c` are of all kinds, and often near what makes a sum cancel.
pub fn operands() -> [Vec<u32>; 3] {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    const SPECIAL: [u16; 12] =
        [0, 0x8000, 1, 0x8001, 0x7c00, 0xfc00, 0x7f80, 0xff80, 0x7e00, 0x3c00, 0x0400, 0x8080];
    let mut half = |a: u16| {
        let random = next();
        match random >> 60 {
            0 => SPECIAL[(random % 12) as usize],
            1..4 => a ^ 0x8000 ^ (random & 3) as u16,
            4..6 => (a & 0x7f00) ^ (random & 0x80ff) as u16,
            _ => random as u16,
        }
    };
    let a: Vec<u32> = (0..THREADS as u32).map(|i| i | i.wrapping_mul(0x9e37) << 16).collect();
    let mut of = || {
        let pair = |&a: &u32| u32::from(half(a as u16)) | u32::from(half((a >> 16) as u16)) << 16;
        a.iter().map(pair).collect::<Vec<u32>>()
    };
    let (b, c) = (of(), of());
    [a, b, c]
}
