//! PTX types.

use super::ir::Class;

/// What a type's bits mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bits,
    Unsigned,
    Signed,
    Float,
    Predicate,
    /// `f16x2` and other types that few instructions take.
    Other,
}

/// A PTX type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ty {
    pub kind: Kind,
    /// 1 for predicates.
    pub bits: u32,
}

impl Ty {
    pub(super) const B32: Ty = Ty { kind: Kind::Bits, bits: 32 };
    pub(super) const U32: Ty = Ty { kind: Kind::Unsigned, bits: 32 };
    pub(super) const F32: Ty = Ty { kind: Kind::Float, bits: 32 };
    pub(super) const B64: Ty = Ty { kind: Kind::Bits, bits: 64 };

    pub(super) fn parse(name: &str) -> Option<Ty> {
        let (kind, bits) = match name {
            "pred" => (Kind::Predicate, 1),
            "f32" => (Kind::Float, 32),
            "f64" => (Kind::Float, 64),
            "f16" | "bf16" => (Kind::Other, 16),
            "f16x2" | "bf16x2" => (Kind::Other, 32),
            _ => {
                let kind = match name.as_bytes().first()? {
                    b'b' => Kind::Bits,
                    b'u' => Kind::Unsigned,
                    b's' => Kind::Signed,
                    _ => return None,
                };
                let bits = match &name[1..] {
                    "8" => 8,
                    "16" => 16,
                    "32" => 32,
                    "64" => 64,
                    _ => return None,
                };
                (kind, bits)
            }
        };
        Some(Ty { kind, bits })
    }

    pub(super) fn class(self) -> Class {
        match self {
            Ty { kind: Kind::Predicate, .. } => Class::Predicate,
            Ty { bits: 64, .. } => Class::Wide,
            _ => Class::Narrow,
        }
    }

    pub(super) fn signed(self) -> bool {
        self.kind == Kind::Signed
    }

    pub(super) fn is_int(self) -> bool {
        matches!(self.kind, Kind::Bits | Kind::Unsigned | Kind::Signed)
    }

    pub(super) fn is_float(self) -> bool {
        self.kind == Kind::Float
    }
}
