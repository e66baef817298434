//! `mov` and `cvt`: values from one register to another, and from one type to another.

use super::alu::fields;
use super::context::{Context, Result};
use super::ir::{Class, Field};
use super::lowering::Lowering;
use super::scopes::Binding;
use super::ty::{Kind, Ty};
use crate::exec::convert::{self, Cast, Conversion, Convert, RELU, SCALARS, Scalar};
use crate::exec::float::{FTZ, SAT};
use crate::exec::lanes::{Map1, Map3, PredLogic};
use crate::exec::pack::{Insert, Pack64, Unpack};
use crate::exec::round::ROUNDINGS;
use crate::exec::{alu, pick, pick_compact};
use crate::ptx::ast::Operand;

impl Lowering<'_> {
    pub(super) fn mov(&mut self, at: &mut Context<'_>) -> Result<()> {
        let ty = at.ty()?;
        let [to, from] = at.operands()?;
        match (to, from) {
            (Operand::Vector(parts), _) => return self.unpack(at, ty, parts, from),
            (_, Operand::Vector(parts)) => return self.pack(at, ty, to, parts),
            _ => {}
        }
        if ty.kind == Kind::Predicate {
            let (a, negated) = self.predicate(at, from)?;
            let d = self.dst(at, to, ty)?;
            let x = if negated { 3 } else { 4 };
            self.emit(at, pick_compact::<PredLogic>(), fields(d, &[a, a], x));
            return Ok(());
        }
        if ty.bits < 16 {
            return Err(at.unsupported("it is not available for this type"));
        }
        let named = match from {
            Operand::Name(name) => self.symbol(name).map(|symbol| (symbol, 0)),
            Operand::Offset(name, offset) => match self.symbol(name) {
                Some(symbol) => Some((symbol, *offset)),
                None => return Err(at.bad_operands(&format!("`{name}` is not a variable"))),
            },
            _ => None,
        };
        let a = match named {
            Some(((space, address, _), offset)) => {
                let address = address.wrapping_add_signed(offset);
                let holds = ty.bits >= 32 && address <= u64::MAX >> (64 - ty.bits);
                if !holds || ty.is_float() {
                    return Err(at.bad_operands("this type does not hold the address"));
                }
                self.variable_address(at, (space, address), ty)
            }
            None => self.src(at, from, ty)?,
        };
        let d = self.dst(at, to, ty)?;
        self.copy(at, d, a, ty);
        Ok(())
    }

    fn part_bits(&self, at: &Context<'_>, ty: Ty, parts: &[Operand]) -> Result<u32> {
        match (ty.bits, parts.len()) {
            (64, 2) => Ok(32),
            (64, 4) | (32, 2) => Ok(16),
            _ => Err(at.unsupported("this split of a register is not available")),
        }
    }

    fn unpack(
        &mut self,
        at: &Context<'_>,
        ty: Ty,
        parts: &[Operand],
        from: &Operand,
    ) -> Result<()> {
        let bits = self.part_bits(at, ty, parts)?;
        let source = self.src(at, from, ty)?;
        // A part may go to the register that is taken apart.
        let whole = self.register(ty.class());
        self.copy(at, whole, source, ty);
        let run = match ty.bits {
            64 => pick_compact::<Unpack<u64>>(),
            _ => pick_compact::<Unpack<u32>>(),
        };
        for (i, part) in parts.iter().enumerate() {
            let d = self.dst(at, part, Ty { kind: Kind::Bits, bits })?;
            let mut f = fields(d, &[whole], bits);
            f[5] = Field::Raw(i as u32 * bits);
            self.emit(at, run, f);
        }
        Ok(())
    }

    fn pack(&mut self, at: &Context<'_>, ty: Ty, to: &Operand, parts: &[Operand]) -> Result<()> {
        let bits = self.part_bits(at, ty, parts)?;
        let mut sources = Vec::new();
        for part in parts {
            sources.push(self.src(at, part, Ty { kind: Kind::Bits, bits })?);
        }
        let d = self.dst(at, to, ty)?;
        if bits == 32 {
            self.emit(at, pick_compact::<Pack64>(), fields(d, &sources, 0));
            return Ok(());
        }
        let whole = self.register(ty.class());
        let zero = self.constant(ty, 0);
        self.copy(at, whole, zero, ty);
        let run = match ty.bits {
            64 => pick_compact::<Insert<u64>>(),
            _ => pick_compact::<Insert<u32>>(),
        };
        for (i, &source) in sources.iter().enumerate() {
            let mut f = fields(whole, &[source], i as u32 * bits);
            f[0] = Field::Both(whole);
            self.emit(at, run, f);
        }
        self.copy(at, d, whole, ty);
        Ok(())
    }

    pub(super) fn cvt(&mut self, at: &mut Context<'_>) -> Result<()> {
        if at.take("pack") {
            return self.pack_saturated(at);
        }
        let from = at.mods.pop().unwrap_or_default();
        let to = at.mods.pop().unwrap_or_default();
        let pair = matches!(to, "f16x2" | "bf16x2");
        let scalar = |name: &str| {
            let name = name.trim_end_matches("x2");
            SCALARS.iter().find(|(n, _)| *n == name).map(|&(_, scalar)| scalar)
        };
        let (Some(to_scalar), Some(from_scalar)) = (scalar(to), scalar(from)) else {
            return Err(at.unsupported("this pair of types is unknown"));
        };
        let float = |scalar| !matches!(scalar, Scalar::Int { .. });
        let names = ["rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi"];
        let rounding = at.take_one(&names);
        let integral = rounding.is_some_and(|i| i >= ROUNDINGS.len());
        let tf32 = to_scalar == Scalar::Tf32;
        let right = match (float(from_scalar), float(to_scalar)) {
            _ if tf32 => from_scalar == Scalar::F32 && matches!(rounding, Some(0 | 1 | 4)),
            _ if rounding == Some(4) || from_scalar == Scalar::Tf32 => false,
            (true, false) => integral || rounding.is_none(),
            (true, true) => !integral || bits_of(from_scalar) == bits_of(to_scalar),
            (false, true) => !integral,
            (false, false) => rounding.is_none(),
        };
        if !right {
            return Err(at.unsupported(
                "floats are rounded to integers, and to integral floats of their size, by `.rni`, `.rzi`, `.rmi` or `.rpi`, to other floats by `.rn`, `.rz`, `.rm` or `.rp`, and `.f32` to `.tf32` by `.rna`, `.rn` or `.rz`",
            ));
        }
        let small = matches!(to_scalar, Scalar::F16 | Scalar::Bf16) || tf32 && rounding != Some(4);
        let relu = small && from_scalar == Scalar::F32 && at.take("relu");
        // On the way to f16 an H200 flushes nothing.
        let ftz = !tf32 && at.take("ftz") && to_scalar != Scalar::F16;
        let flags = if ftz { FTZ } else { 0 }
            | if !tf32 && at.take("sat") { SAT } else { 0 }
            | if relu { RELU } else { 0 };
        let number = rounding.unwrap_or(0);
        let conversion = Conversion {
            to: to_scalar,
            from: from_scalar,
            rounding: ROUNDINGS[if integral { number - ROUNDINGS.len() } else { number }],
            integral,
            flags,
        };
        let ty = |scalar| if bits_of(scalar) == 64 { Ty::B64 } else { Ty::B32 };
        if pair {
            if from_scalar != Scalar::F32 {
                return Err(at.unsupported("pairs are converted from `.f32`"));
            }
            let run = pick_compact::<convert::ConvertPair>();
            let conversion = conversion.pack();
            return self.apply(at, run, Ty::B32, &[Ty::F32, Ty::F32], conversion);
        }
        let [d, a] = at.operands()?;
        // The registers may be wider than the types.
        let d_class = self.class_of(d).unwrap_or(ty(to_scalar).class());
        let a_class = self.class_of(a).unwrap_or(ty(from_scalar).class());
        let of = |class| if class == Class::Wide { Ty::B64 } else { Ty::B32 };
        let (d_ty, a_ty) = (of(d_class), of(a_class));
        if ty(to_scalar).bits > d_ty.bits || ty(from_scalar).bits > a_ty.bits {
            return Err(at.bad_operands("a register is narrower than its type"));
        }
        let Some(source) = Ty::parse(from) else {
            return Err(at.unsupported("this pair of types is unknown"));
        };
        let (a, d) = (self.src_in(at, a, source, a_class)?, self.dst(at, d, d_ty)?);
        let exact = d_ty == ty(to_scalar) && a_ty == ty(from_scalar);
        let fast = match (from, to) {
            _ if flags != 0 || !exact => None,
            ("u16", "u32" | "s32") => Some(pick_compact::<Map1<Cast<u16, u32>>>()),
            ("s16", "u32" | "s32") => Some(pick_compact::<Map1<Cast<i16, i32>>>()),
            ("u16", "u64" | "s64") => Some(pick_compact::<Map1<Cast<u16, u64>>>()),
            ("s16", "u64" | "s64") => Some(pick_compact::<Map1<Cast<i16, i64>>>()),
            ("u32", "u64" | "s64") => Some(pick::<Map1<Cast<u32, u64>>>(self.path)),
            ("s32", "u64" | "s64") => Some(pick::<Map1<Cast<i32, i64>>>(self.path)),
            ("u32" | "s32", "u16") => Some(pick_compact::<Map1<Cast<u32, u16>>>()),
            ("u64" | "s64", "u16") => Some(pick_compact::<Map1<Cast<u64, u16>>>()),
            ("u64" | "s64", "u32" | "s32") => Some(pick::<Map1<Cast<u64, u32>>>(self.path)),
            ("u32", "f32") if rounding == Some(0) => Some(pick::<Map1<Cast<u32, f32>>>(self.path)),
            ("s32", "f32") if rounding == Some(0) => Some(pick::<Map1<Cast<i32, f32>>>(self.path)),
            _ => None,
        };
        let run = fast.unwrap_or_else(|| match (a_class, d_class) {
            (Class::Wide, Class::Wide) => pick_compact::<Convert<u64, u64>>(),
            (Class::Wide, _) => pick_compact::<Convert<u64, u32>>(),
            (_, Class::Wide) => pick_compact::<Convert<u32, u64>>(),
            _ => pick_compact::<Convert<u32, u32>>(),
        });
        self.emit(at, run, fields(d, &[a], conversion.pack()));
        Ok(())
    }

    /// `cvt.pack`.
    fn pack_saturated(&mut self, at: &mut Context<'_>) -> Result<()> {
        const NAMES: [&str; 8] = ["u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"];
        let short = at.mods.last() == Some(&"b32");
        if short {
            at.mods.pop();
        }
        let from = at.mods.pop();
        let to = at.take_one(&NAMES);
        let (true, Some("s32"), Some(to)) = (at.take("sat"), from, to) else {
            return Err(at.unsupported("it needs `.sat`, the type of an element, and `.s32`"));
        };
        if short != (to > 1) {
            return Err(at.unsupported(
                "elements of less than 16 bits go below a third operand, `.b32`, and others do not",
            ));
        }
        let x = 16 >> (to / 2) | (to as u32 % 2) << 5;
        let operands = at.inst.operands.as_slice();
        let (d, a, b, c) = match operands {
            [d, a, b] if !short => (d, a, b, self.narrow(0)),
            [d, a, b, c] if short => (d, a, b, self.src(at, c, Ty::B32)?),
            _ => return Err(at.bad_operands("they are too many or too few")),
        };
        let s32 = Ty { kind: Kind::Signed, bits: 32 };
        let (a, b) = (self.src(at, a, s32)?, self.src(at, b, s32)?);
        let d = self.dst(at, d, Ty::B32)?;
        self.emit(at, pick_compact::<Map3<alu::PackSat>>(), fields(d, &[a, b, c], x));
        Ok(())
    }

    /// The class of a register operand.
    pub(super) fn class_of(&self, operand: &Operand) -> Option<Class> {
        match operand {
            Operand::Name(name) => match self.find(name)? {
                Binding::Member { ty, .. } => Some(ty.class()),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Bits of a scalar.
fn bits_of(scalar: Scalar) -> u32 {
    match scalar {
        Scalar::Int { bits, .. } => bits,
        Scalar::F16 | Scalar::Bf16 => 16,
        Scalar::Tf32 | Scalar::F32 => 32,
        Scalar::F64 => 64,
    }
}
