//! Video instructions (`vadd`, `vshr` and others): arithmetic of bytes, halves and words.

use super::lanes::F3;

/// The instructions, in the order of the numbers that operations carry.
pub(crate) const VIDEOS: [&str; 8] =
    ["vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset"];
/// What the third operand takes part in, in that order.
pub(crate) const SECONDS: [&str; 3] = ["add", "min", "max"];
/// Comparisons of `vset`, in that order.
pub(crate) const COMPARISONS: [&str; 6] = ["eq", "ne", "lt", "le", "gt", "ge"];
/// Parts of a register, in that order; the number behind them is all of it.
pub(crate) const PARTS: [&str; 6] = ["b0", "b1", "b2", "b3", "h0", "h1"];

/// A part of a register, and whether its number has a sign.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub number: u32,
    pub signed: bool,
}

impl Part {
    fn pack(self) -> u32 {
        self.number | u32::from(self.signed) << 3
    }

    fn unpack(x: u32) -> Part {
        Part { number: x & 7, signed: x & 8 != 0 }
    }

    /// Its bits, and the first of them.
    fn place(self) -> (u32, u32) {
        match self.number {
            byte @ 0..4 => (8, 8 * byte),
            half @ 4..6 => (16, 16 * (half - 4)),
            _ => (32, 0),
        }
    }

    fn of(self, word: u32) -> i128 {
        let (bits, first) = self.place();
        let raw = word << (32 - bits - first);
        match self.signed {
            true => i128::from(raw as i32 >> (32 - bits)),
            false => i128::from(raw >> (32 - bits)),
        }
    }

    fn clamp(self, value: i128) -> i128 {
        let bits = self.place().0 - u32::from(self.signed);
        value.clamp(if self.signed { -1 << bits } else { 0 }, (1 << bits) - 1)
    }

    /// `word` with this part replaced.
    fn merge(self, word: u32, value: u32) -> u32 {
        let (bits, first) = self.place();
        let mask = u32::MAX >> (32 - bits) << first;
        word & !mask | value << first & mask
    }
}

/// A video instruction, as packed into an operation's `x`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VideoOp {
    /// Index into [`VIDEOS`].
    pub number: u32,
    pub d: Part,
    pub a: Part,
    pub b: Part,
    pub saturates: bool,
    /// Whether a shift by more than 32 is one by 32, instead of one modulo 32.
    pub clamps: bool,
    /// Index into [`SECONDS`].
    pub second: Option<u32>,
    /// Index into [`COMPARISONS`].
    pub comparison: u32,
}

impl VideoOp {
    pub(crate) fn pack(self) -> u32 {
        self.number
            | self.d.pack() << 3
            | self.a.pack() << 7
            | self.b.pack() << 11
            | u32::from(self.saturates) << 15
            | u32::from(self.clamps) << 16
            | self.second.map_or(0, |second| second + 1) << 17
            | self.comparison << 19
    }

    fn unpack(x: u32) -> VideoOp {
        VideoOp {
            number: x & 7,
            d: Part::unpack(x >> 3),
            a: Part::unpack(x >> 7),
            b: Part::unpack(x >> 11),
            saturates: x >> 15 & 1 != 0,
            clamps: x >> 16 & 1 != 0,
            second: (x >> 17 & 3).checked_sub(1),
            comparison: x >> 19 & 7,
        }
    }

    fn apply(self, a: u32, b: u32, c: u32) -> u32 {
        let (a, b) = (self.a.of(a), self.b.of(b));
        let by = if self.clamps { b.min(32) } else { b & 31 };
        let result = match self.number {
            0 => a + b,
            1 => a - b,
            2 => (a - b).abs(),
            3 => a.min(b),
            4 => a.max(b),
            5 => a << by,
            6 => a >> by,
            _ => i128::from(match self.comparison {
                0 => a == b,
                1 => a != b,
                2 => a < b,
                3 => a <= b,
                4 => a > b,
                _ => a >= b,
            }),
        };
        let result = if self.saturates { self.d.clamp(result) } else { result };
        let other = if self.d.signed { i128::from(c as i32) } else { i128::from(c) };
        let result = match self.second {
            None => result,
            Some(0) => result + other,
            Some(1) => result.min(other),
            Some(_) => result.max(other),
        };
        self.d.merge(c, result as u32)
    }
}

/// A video instruction; `x` as packed by [`VideoOp::pack`].
pub(crate) struct Video;

impl F3 for Video {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    fn f(a: u32, b: u32, c: u32, x: u32) -> u32 {
        VideoOp::unpack(x).apply(a, b, c)
    }
}
