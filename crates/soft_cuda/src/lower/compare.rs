//! Comparisons, and choices between two values.

use super::alu::fields;
use super::context::{Context, Result};
use super::ir::{Class, Field, V};
use super::lowering::Lowering;
use super::pick::{pick_bits, pick_int};
use super::ty::{Kind, Ty};
use crate::exec::alu;
use crate::exec::float::{self, Flushed, TESTS};
use crate::exec::lanes::{Map3, Select, SetP};
use crate::exec::{NO_SLOT, OpFn, pick, pick_compact};
use crate::ptx::ast::Operand;

impl Lowering<'_> {
    pub(super) fn setp(&mut self, at: &mut Context<'_>) -> Result<()> {
        const PREDICATE: Ty = Ty { kind: Kind::Predicate, bits: 1 };
        let ty = at.ty()?;
        let (run, swap) = self.comparison(at, ty)?;
        let combine = at.take_one(&["and", "or", "xor"]);
        let want = if combine.is_some() { 4 } else { 3 };
        if at.inst.operands.len() != want {
            return Err(at.bad_operands(&format!("it takes {want}")));
        }
        let (a, b) = (self.src(at, at.operand(1)?, ty)?, self.src(at, at.operand(2)?, ty)?);
        let (a, b) = if swap { (b, a) } else { (a, b) };
        let mut f = setp_fields(0, a, b);
        if let Some(op) = combine {
            let (c, negated) = self.predicate(at, at.operand(3)?)?;
            f[3] = Field::Use(c);
            f[4] = Field::Raw(op as u32 | u32::from(negated) << 2);
        }
        f[0] = match at.operand(0)? {
            Operand::Pair(p, q) => {
                f[5] = Field::Def(self.dst(at, q, PREDICATE)?);
                Field::Def(self.dst(at, p, PREDICATE)?)
            }
            one => Field::Def(self.dst(at, one, PREDICATE)?),
        };
        self.emit(at, run, f);
        Ok(())
    }

    /// `set`: a comparison whose result is a number.
    pub(super) fn set(&mut self, at: &mut Context<'_>) -> Result<()> {
        let ty = at.ty()?;
        let result = at.ty()?;
        let (run, swap) = self.comparison(at, ty)?;
        let [d, a, b] = at.operands()?;
        let (a, b) = (self.src(at, a, ty)?, self.src(at, b, ty)?);
        let (a, b) = if swap { (b, a) } else { (a, b) };
        let p = self.register(Class::Predicate);
        self.emit(at, run, setp_fields(p, a, b));
        let yes = if result.is_float() { 1f32.to_bits() } else { u32::MAX };
        if result.bits != 32 {
            return Err(at.unsupported("its result is `.u32`, `.s32` or `.f32`"));
        }
        let (yes, no) = (self.narrow(yes), self.narrow(0));
        let d = self.dst(at, d, result)?;
        self.emit(at, pick::<Select<u32>>(self.path), fields(d, &[yes, no, p], 0));
        Ok(())
    }

    /// The function that compares, and whether the operands swap places.
    pub(super) fn comparison(&self, at: &mut Context<'_>, ty: Ty) -> Result<(OpFn, bool)> {
        const NAMES: [&str; 18] = [
            "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu",
            "gtu", "geu", "num", "nan",
        ];
        let Some(name) = at.take_one(&NAMES).map(|i| NAMES[i]) else {
            return Err(at.unsupported("it needs a comparison such as `.lt`"));
        };
        let path = self.path;
        if ty.is_float() {
            let ftz = at.take("ftz");
            let name_swapped = match name {
                "gt" => "lt",
                "ge" => "le",
                "gtu" => "ltu",
                "geu" => "leu",
                same => same,
            };
            macro_rules! compact {
                ($f:ident) => {
                    match (ty.bits, ftz) {
                        (32, false) => pick_compact::<SetP<float::$f<f32>>>(),
                        (32, true) => pick_compact::<SetP<Flushed<float::$f<f32>>>>(),
                        _ => pick_compact::<SetP<float::$f<f64>>>(),
                    }
                };
            }
            // What kernels live on.
            macro_rules! compare {
                ($f:ident) => {
                    match (ty.bits, ftz) {
                        (32, false) => pick::<SetP<float::$f<f32>>>(path),
                        _ => compact!($f),
                    }
                };
            }
            let run = match name_swapped {
                "eq" => compare!(Eq),
                "ne" => compact!(Ne),
                "lt" => compare!(Lt),
                "le" => compare!(Le),
                "equ" => compact!(Equ),
                "neu" => compare!(Neu),
                "ltu" => compact!(Ltu),
                "leu" => compact!(Leu),
                "num" => compact!(Num),
                "nan" => compact!(IsNan),
                _ => return Err(at.unsupported("floats have no such comparison")),
            };
            return Ok((run, name_swapped != name));
        }
        // `lo`, `ls`, `hi`, `hs` are unsigned whatever the type says.
        let (plain, ty) = match name {
            "lo" => ("lt", Ty { kind: Kind::Unsigned, ..ty }),
            "ls" => ("le", Ty { kind: Kind::Unsigned, ..ty }),
            "hi" => ("gt", Ty { kind: Kind::Unsigned, ..ty }),
            "hs" => ("ge", Ty { kind: Kind::Unsigned, ..ty }),
            same => (same, ty),
        };
        let run = match plain {
            _ if !ty.is_int() => None,
            "eq" => pick_bits!(path, ty, SetP, Eq),
            "ne" => pick_bits!(path, ty, SetP, Ne),
            "lt" | "gt" => pick_int!(path, ty, SetP, Lt),
            "le" | "ge" => pick_int!(path, ty, SetP, Le),
            _ => return Err(at.unsupported("integers have no such comparison")),
        };
        match run {
            Some(run) => Ok((run, matches!(plain, "gt" | "ge"))),
            None => Err(at.unsupported("it is not available for this type")),
        }
    }

    pub(super) fn testp(&mut self, at: &mut Context<'_>) -> Result<()> {
        let ty = at.ty()?;
        let Some(test) = at.take_one(&TESTS) else {
            return Err(at.unsupported("it needs a property such as `.finite`"));
        };
        let [d, a] = at.operands()?;
        let a = self.src(at, a, ty)?;
        let d = self.dst(at, d, Ty { kind: Kind::Predicate, bits: 1 })?;
        let (run, bits) = match ty {
            Ty { kind: Kind::Float, bits: 32 } => {
                let bits = u64::from((test as f32).to_bits());
                (pick_compact::<SetP<float::TestP<f32>>>(), bits)
            }
            Ty { kind: Kind::Float, .. } => {
                (pick_compact::<SetP<float::TestP<f64>>>(), (test as f64).to_bits())
            }
            _ => return Err(at.unsupported("it takes `.f32` or `.f64`")),
        };
        let test = self.constant(ty, bits);
        self.emit(at, run, setp_fields(d, a, test));
        Ok(())
    }

    pub(super) fn selp(&mut self, at: &mut Context<'_>) -> Result<()> {
        let ty = at.ty()?;
        if ty.bits < 16 {
            return Err(at.unsupported("it is not available for this type"));
        }
        let [d, a, b, p] = at.operands()?;
        let (a, b) = (self.src(at, a, ty)?, self.src(at, b, ty)?);
        let (p, negated) = self.predicate(at, p)?;
        let d = self.dst(at, d, ty)?;
        let (a, b) = if negated { (b, a) } else { (a, b) };
        let run = self.select(ty);
        self.emit(at, run, fields(d, &[a, b, p], 0));
        Ok(())
    }

    fn select(&self, ty: Ty) -> OpFn {
        match ty.class() {
            Class::Wide => pick::<Select<u64>>(self.path),
            _ => pick::<Select<u32>>(self.path),
        }
    }

    pub(super) fn slct(&mut self, at: &mut Context<'_>) -> Result<()> {
        let c = at.ty()?;
        at.take("ftz");
        let ty = at.ty()?;
        let run = match (ty.bits, c) {
            (32, Ty { kind: Kind::Signed, bits: 32 }) => pick_compact::<Map3<alu::Slct<u32>>>(),
            (64, Ty { kind: Kind::Signed, bits: 32 }) => pick_compact::<Map3<alu::Slct<u64>>>(),
            (32, Ty { kind: Kind::Float, bits: 32 }) => pick_compact::<Map3<alu::SlctF<u32>>>(),
            (64, Ty { kind: Kind::Float, bits: 32 }) => pick_compact::<Map3<alu::SlctF<u64>>>(),
            _ => return Err(at.unsupported("it is not available for these types")),
        };
        self.apply(at, run, ty, &[ty, ty, c], 0)
    }
}

/// Fields of a comparison `d = a, b` that nothing is combined with.
pub(super) fn setp_fields(d: V, a: V, b: V) -> [Field; 6] {
    let none = Field::Raw(NO_SLOT);
    [Field::Def(d), Field::Use(a), Field::Use(b), none, Field::Raw(0), none]
}
