//! Logic and shifts, bit by bit.

use super::alu::fields;
use super::context::{Context, Result};
use super::ir::Field;
use super::lowering::Lowering;
use super::pick::{compact_bits, pick_bits};
use super::ty::{Kind, Ty};
use crate::exec::alu;
use crate::exec::lanes::{Map1, Map2, Map3, PredLogic};
use crate::exec::{pick, pick_compact};
use crate::ptx::ast::Operand;

impl Lowering<'_> {
    pub(super) fn logic(&mut self, base: &str, at: &mut Context<'_>) -> Result<()> {
        let ty = at.ty()?;
        if ty.kind == Kind::Predicate {
            let [d, a, b] = at.operands()?;
            let (a, not_a) = self.predicate(at, a)?;
            let (b, not_b) = self.predicate(at, b)?;
            let d = self.dst(at, d, ty)?;
            let op = match base {
                "and" => 0,
                "or" => 1,
                _ => 2,
            };
            let x = op | u32::from(not_a) << 3 | u32::from(not_b) << 4;
            self.emit(at, pick_compact::<PredLogic>(), fields(d, &[a, b], x));
            return Ok(());
        }
        if base == "and" {
            self.note_rounding(at, ty)?;
        }
        let run = match base {
            "and" => pick_bits!(self.path, ty, Map2, And),
            "or" => pick_bits!(self.path, ty, Map2, Or),
            _ => pick_bits!(self.path, ty, Map2, Xor),
        };
        self.apply_or(at, run, ty, &[ty, ty], 0)
    }

    pub(super) fn not(&mut self, base: &str, at: &mut Context<'_>) -> Result<()> {
        let ty = at.ty()?;
        if ty.kind == Kind::Predicate && base == "not" {
            let [d, a] = at.operands()?;
            let (a, negated) = self.predicate(at, a)?;
            let d = self.dst(at, d, ty)?;
            let x = if negated { 4 } else { 3 };
            self.emit(at, pick_compact::<PredLogic>(), fields(d, &[a, a], x));
            return Ok(());
        }
        let run = match base {
            "not" => compact_bits!(ty, Map1, Not),
            _ => compact_bits!(ty, Map1, CNot),
        };
        self.apply_or(at, run, ty, &[ty], 0)
    }

    pub(super) fn shf(&mut self, at: &mut Context<'_>) -> Result<()> {
        let right = match at.take_one(&["l", "r"]) {
            Some(right) => right as u32,
            None => return Err(at.unsupported("it needs `.l` or `.r`")),
        };
        let clamp = clamp(at)?;
        let ty = narrow(at)?;
        let run = pick_compact::<Map3<alu::Shf>>();
        self.apply(at, run, ty, &[ty, ty, Ty::U32], right | clamp << 1)
    }

    /// `vshr`, of parts of registers. What is shifted right fits, so `.sat` says nothing.
    pub(super) fn vshr(&mut self, at: &mut Context<'_>) -> Result<()> {
        let signed = match at.mods.as_slice() {
            [d @ ("u32" | "s32"), a, "u32", ..] if d == a => *d == "s32",
            _ => return Err(at.unsupported("its types are `.u32` or `.s32` twice, and `.u32`")),
        };
        at.mods.drain(..3);
        at.take("sat");
        let clamp = clamp(at)?;
        let second = at.take_one(&alu::SECONDS).map_or(0, |second| second as u32 + 1);
        let (d, a, b, c) = match at.inst.operands.as_slice() {
            [d, a, b] if second == 0 => (d, a, b, self.narrow(0)),
            [d, a, b, c] if second != 0 => (d, a, b, self.src(at, c, Ty::B32)?),
            [d, _, _, _] if part(d).1 < alu::PARTS.len() => {
                return Err(at.unsupported("its destination is a whole register"));
            }
            _ => return Err(at.bad_operands("a third source is for a second operation")),
        };
        let ((a, a_part), (b, b_part)) = (part(a), part(b));
        let (a, b) = (self.src(at, &a, Ty::B32)?, self.src(at, &b, Ty::B32)?);
        let d = self.dst(at, d, Ty::B32)?;
        let parts = a_part as u32 | (b_part as u32) << 3;
        let x = parts | u32::from(signed) << 6 | clamp << 7 | second << 8;
        self.emit(at, pick_compact::<Map3<alu::Vshr>>(), fields(d, &[a, b, c], x));
        Ok(())
    }

    pub(super) fn bfi(&mut self, at: &mut Context<'_>) -> Result<()> {
        let ty = at.ty()?;
        let run = match ty.bits {
            32 => pick_compact::<alu::Bfi<u32>>(),
            64 => pick_compact::<alu::Bfi<u64>>(),
            _ => return Err(at.unsupported("it is not available for this type")),
        };
        let [d, a, b, pos, len] = at.operands()?;
        let (a, b) = (self.src(at, a, ty)?, self.src(at, b, ty)?);
        let (pos, len) = (self.src(at, pos, Ty::U32)?, self.src(at, len, Ty::U32)?);
        let d = self.dst(at, d, ty)?;
        let mut f = fields(d, &[a, b, pos], 0);
        f[5] = Field::Use(len);
        self.emit(at, run, f);
        Ok(())
    }

    pub(super) fn bmsk(&mut self, at: &mut Context<'_>) -> Result<()> {
        let clamp = clamp(at)?;
        let ty = narrow(at)?;
        self.apply(at, pick_compact::<Map2<alu::Bmsk>>(), ty, &[ty, ty], clamp)
    }

    pub(super) fn szext(&mut self, at: &mut Context<'_>) -> Result<()> {
        let clamp = clamp(at)?;
        let ty = narrow(at)?;
        let run = match ty.signed() {
            true => pick_compact::<Map2<alu::SzExt<i32>>>(),
            false => pick_compact::<Map2<alu::SzExt<u32>>>(),
        };
        self.apply(at, run, ty, &[ty, Ty::U32], clamp)
    }

    pub(super) fn fns(&mut self, at: &mut Context<'_>) -> Result<()> {
        let ty = narrow(at)?;
        self.apply(at, pick_compact::<Map3<alu::Fns>>(), ty, &[ty, ty, ty], 0)
    }

    pub(super) fn lop3(&mut self, at: &mut Context<'_>) -> Result<()> {
        let ty = at.ty()?;
        let [d, a, b, c, table] = at.operands()?;
        let &Operand::Int(table @ 0..=255) = table else {
            return Err(at.bad_operands("its last operand is a constant from 0 to 255"));
        };
        if ty.bits != 32 {
            return Err(at.unsupported("it takes `.b32`"));
        }
        let sources = [self.src(at, a, ty)?, self.src(at, b, ty)?, self.src(at, c, ty)?];
        let d = self.dst(at, d, ty)?;
        let run = pick::<Map3<alu::Lop3<u32>>>(self.path);
        self.emit(at, run, fields(d, &sources, table as u32));
        Ok(())
    }
}

/// The register of an operand, and the number of its part.
fn part(operand: &Operand) -> (Operand, usize) {
    if let Operand::Name(name) = operand
        && let Some((register, part)) = name.rsplit_once('.')
        && let Some(number) = alu::PARTS.iter().position(|&p| p == part)
    {
        return (Operand::Name(register.to_owned()), number);
    }
    (operand.clone(), alu::PARTS.len())
}

/// Claims whether amounts are clamped or wrap.
fn clamp(at: &mut Context<'_>) -> Result<u32> {
    match at.take_one(&["wrap", "clamp"]) {
        Some(clamp) => Ok(clamp as u32),
        None => Err(at.unsupported("it needs `.wrap` or `.clamp`")),
    }
}

/// Claims an integer type of 32 bits.
fn narrow(at: &mut Context<'_>) -> Result<Ty> {
    let ty = at.ty()?;
    if ty.bits != 32 || !ty.is_int() {
        return Err(at.unsupported("it takes 32 bits"));
    }
    Ok(ty)
}
