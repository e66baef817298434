//! The operations of atomics and of bulk reductions.

/// What an atomic does with the old value and its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rmw {
    Add,
    Min,
    Max,
    MinSigned,
    MaxSigned,
    Inc,
    Dec,
    And,
    Or,
    Xor,
    Exchange,
    CompareExchange,
    AddFloat,
    AddF16,
    AddBf16,
    AddF16x2,
    AddBf16x2,
    MinF16,
    MaxF16,
    MinBf16,
    MaxBf16,
}

impl Rmw {
    /// An operation on integers, by its name in PTX; `xor` if it is none of the others.
    pub fn of_integers(operation: &str, is_signed: bool) -> Self {
        match (operation, is_signed) {
            ("add", _) => Rmw::Add,
            ("min", true) => Rmw::MinSigned,
            ("max", true) => Rmw::MaxSigned,
            ("min", false) => Rmw::Min,
            ("max", false) => Rmw::Max,
            ("inc", _) => Rmw::Inc,
            ("dec", _) => Rmw::Dec,
            ("and", _) => Rmw::And,
            ("or", _) => Rmw::Or,
            _ => Rmw::Xor,
        }
    }
}

/// All of [`Rmw`], in the order of the numbers that operations carry.
pub(crate) const RMWS: [Rmw; 21] = [
    Rmw::Add,
    Rmw::Min,
    Rmw::Max,
    Rmw::MinSigned,
    Rmw::MaxSigned,
    Rmw::Inc,
    Rmw::Dec,
    Rmw::And,
    Rmw::Or,
    Rmw::Xor,
    Rmw::Exchange,
    Rmw::CompareExchange,
    Rmw::AddFloat,
    Rmw::AddF16,
    Rmw::AddBf16,
    Rmw::AddF16x2,
    Rmw::AddBf16x2,
    Rmw::MinF16,
    Rmw::MaxF16,
    Rmw::MinBf16,
    Rmw::MaxBf16,
];

impl Rmw {
    /// Whether it can leave some bytes of a word as they are.
    pub(crate) fn keeps_bytes(self) -> bool {
        matches!(self, Rmw::And | Rmw::Or | Rmw::Xor | Rmw::CompareExchange)
    }

    /// The bytes, as a mask, that it may change with these operands, of a word of `bytes` bytes.
    #[inline(always)]
    pub(crate) fn changes(self, bytes: u32, [b, c]: [u32; 2]) -> u32 {
        let changed = match self {
            Rmw::And => !b,
            Rmw::Or | Rmw::Xor => b,
            Rmw::CompareExchange => b ^ c,
            _ => u32::MAX,
        };
        (0..bytes).filter(|byte| changed >> (8 * byte) & 0xff != 0).map(|byte| 1 << byte).sum()
    }
}

/// An operation of bulk reductions.
pub(crate) struct Operation {
    /// Its name in PTX.
    pub name: &'static str,
    /// The types of elements that it has in device memory.
    types: &'static [&'static str],
    /// How many of them it has in shared memory, from the first.
    in_shared: usize,
}

const ADDED: &[&str] = &["u32", "s32", "u64", "f32", "f64", "f16", "bf16"];
const ORDERED: &[&str] = &["u32", "s32", "u64", "s64", "f16", "bf16"];
const BITS: &[&str] = &["b32", "b64"];

/// All operations of bulk reductions, in the order of the numbers that instructions carry.
pub(crate) const OPERATIONS: [Operation; 8] = [
    Operation { name: "add", types: ADDED, in_shared: 3 },
    Operation { name: "min", types: ORDERED, in_shared: 2 },
    Operation { name: "max", types: ORDERED, in_shared: 2 },
    Operation { name: "inc", types: &["u32"], in_shared: 1 },
    Operation { name: "dec", types: &["u32"], in_shared: 1 },
    Operation { name: "and", types: BITS, in_shared: 1 },
    Operation { name: "or", types: BITS, in_shared: 1 },
    Operation { name: "xor", types: BITS, in_shared: 1 },
];

impl Operation {
    /// The reduction of elements of type `ty`, in device memory if `outer`, or else in shared
    /// memory; `None` if PTX has none.
    pub(crate) fn of(&self, ty: &str, outer: bool) -> Option<Reduction> {
        let types = if outer { self.types } else { &self.types[..self.in_shared] };
        if !types.contains(&ty) {
            return None;
        }
        let rmw = match (self.name, ty) {
            ("add", "f32" | "f64") => Rmw::AddFloat,
            ("add", "f16") => Rmw::AddF16,
            ("add", "bf16") => Rmw::AddBf16,
            ("min", "f16") => Rmw::MinF16,
            ("min", "bf16") => Rmw::MinBf16,
            ("max", "f16") => Rmw::MaxF16,
            ("max", "bf16") => Rmw::MaxBf16,
            (name, _) => Rmw::of_integers(name, ty.starts_with('s')),
        };
        let bits: u32 = ty.trim_start_matches(char::is_alphabetic).parse().ok()?;
        Some(Reduction { rmw, bytes: bits / 8 })
    }
}

/// The operation of a bulk reduction, and the bytes of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reduction {
    pub rmw: Rmw,
    /// 2, 4 or 8.
    pub bytes: u32,
}

impl Reduction {
    /// As one word that is not 0.
    pub(crate) fn pack(self) -> u32 {
        (self.rmw as u32) << 8 | self.bytes
    }

    /// What [`pack`](Self::pack) made a word of; `None` of 0, which stands for a plain copy.
    pub(crate) fn unpack(word: u32) -> Option<Reduction> {
        (word != 0).then(|| Reduction { rmw: RMWS[(word >> 8) as usize], bytes: word & 0xff })
    }

    /// The size of one access for the checks, where `bytes` bytes are copied or reduced.
    ///
    /// Atomics of 8 bytes race with smaller ones, and the checks tell them apart by this size.
    pub(crate) fn checked_at_once(reduction: Option<Reduction>, bytes: u32) -> u32 {
        match reduction {
            Some(Reduction { bytes: 8, .. }) => 8,
            Some(_) if bytes == 8 => 4,
            _ => bytes.max(1),
        }
    }
}
