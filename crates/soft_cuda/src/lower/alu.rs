//! Instructions that compute: everything without an address or a jump. Arithmetic is here,
//! the others in `logic`, `compare` and `convert`.

use super::context::{Context, Result};
use super::ir::{Class, Field, InstKind, V};
use super::lowering::Lowering;
use super::pick::{compact_bits, compact_float, compact_int, pick_bits, pick_float, pick_int};
use super::ty::{Kind, Ty};
use crate::exec::alu::{self, PERMUTES};
use crate::exec::float::{self, FTZ, NAN, SAT, XORSIGN};
use crate::exec::lanes::{Map1, Map2, Map3};
use crate::exec::special::ActiveMask;
use crate::exec::{OpFn, pick, pick_compact};

/// Fields of an operation with up to three sources.
pub(super) fn fields(d: V, sources: &[V], x: u32) -> [Field; 6] {
    let source = |i: usize| sources.get(i).map_or(Field::Raw(0), |&v| Field::Use(v));
    [Field::Def(d), source(0), source(1), source(2), Field::Raw(x), Field::Raw(0)]
}

impl Lowering<'_> {
    /// Lowers `base` if it is an instruction of this file.
    pub(super) fn arithmetic(&mut self, base: &str, at: &mut Context<'_>) -> Result<bool> {
        match base {
            "mov" => self.mov(at)?,
            "add" | "sub" => self.add(base, at)?,
            "addc" | "subc" => self.carry(base, at, true)?,
            "mul" | "mad" => self.mul(base, at)?,
            "madc" | "mul24" | "mad24" => self.product(base, at)?,
            "fma" => self.fma(at)?,
            "div" | "rem" | "min" | "max" => self.binary(base, at)?,
            "neg" | "abs" => self.sign(base, at)?,
            "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" => {
                self.function(base, at)?;
            }
            "copysign" => {
                let ty = at.ty()?;
                let run = match ty {
                    Ty { kind: Kind::Float, bits: 32 } => {
                        pick_compact::<Map2<float::CopySign<f32>>>()
                    }
                    Ty { kind: Kind::Float, .. } => pick_compact::<Map2<float::CopySign<f64>>>(),
                    _ => return Err(at.unsupported("it takes `.f32` or `.f64`")),
                };
                self.apply(at, run, ty, &[ty, ty], 0)?;
            }
            "testp" => self.testp(at)?,
            "and" | "or" | "xor" => self.logic(base, at)?,
            "not" | "cnot" => self.not(base, at)?,
            "shl" | "shr" => {
                let ty = at.ty()?;
                let run = match base {
                    "shl" => pick_bits!(self.path, ty, Map2, Shl),
                    _ => pick_int!(self.path, ty, Map2, Shr),
                };
                self.apply_or(at, run, ty, &[ty, Ty::U32], 0)?;
            }
            "shf" => self.shf(at)?,
            "vshr" => self.vshr(at)?,
            "popc" | "clz" => {
                let ty = at.ty()?;
                let run = match base {
                    "popc" => compact_bits!(ty, Map1, Popc),
                    _ => compact_bits!(ty, Map1, Clz),
                };
                self.apply_or(at, run, Ty::B32, &[ty], 0)?;
            }
            "brev" => {
                let ty = at.ty()?;
                let run = compact_bits!(ty, Map1, Brev);
                self.apply_or(at, run, ty, &[ty], 0)?;
            }
            "bfind" => {
                let shift = at.take("shiftamt");
                let ty = at.ty()?;
                let run = compact_int!(ty, Map1, Bfind);
                self.apply_or(at, run, Ty::B32, &[ty], shift.into())?;
            }
            "bfe" => {
                let ty = at.ty()?;
                let run = compact_int!(ty, Map3, Bfe);
                self.apply_or(at, run, ty, &[ty, Ty::U32, Ty::U32], 0)?;
            }
            "bfi" => self.bfi(at)?,
            "bmsk" => self.bmsk(at)?,
            "szext" => self.szext(at)?,
            "fns" => self.fns(at)?,
            "lop3" => self.lop3(at)?,
            "prmt" => {
                let mode = at.take_one(&PERMUTES).unwrap_or(0) as u32;
                let ty = at.ty()?;
                if ty.bits != 32 {
                    return Err(at.unsupported("it takes `.b32`"));
                }
                self.apply(at, pick_compact::<Map3<alu::Prmt>>(), ty, &[ty, ty, ty], mode)?;
            }
            "sad" => {
                let ty = at.ty()?;
                let run = compact_int!(ty, Map3, Sad);
                self.apply_or(at, run, ty, &[ty, ty, ty], 0)?;
            }
            "dp4a" | "dp2a" => self.dot(base, at)?,
            "selp" => self.selp(at)?,
            "slct" => self.slct(at)?,
            "setp" => self.setp(at)?,
            "set" => self.set(at)?,
            "cvt" => self.cvt(at)?,
            "activemask" => {
                let ty = at.ty()?;
                if ty.bits != 32 {
                    return Err(at.unsupported("it takes `.b32`"));
                }
                let [d] = at.operands()?;
                let d = self.dst(at, d, ty)?;
                self.emit(at, pick_compact::<ActiveMask>(), fields(d, &[], 0));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Emits `d = run(sources...)`, with the types given.
    pub(super) fn apply(
        &mut self,
        at: &Context<'_>,
        run: OpFn,
        d: Ty,
        sources: &[Ty],
        x: u32,
    ) -> Result<()> {
        let want = sources.len() + 1;
        if at.inst.operands.len() != want {
            let got = at.inst.operands.len();
            return Err(at.bad_operands(&format!("it takes {want}, but {got} are given")));
        }
        let mut registers = Vec::with_capacity(sources.len());
        for (i, &ty) in sources.iter().enumerate() {
            registers.push(self.src(at, at.operand(i + 1)?, ty)?);
        }
        let d = self.dst(at, at.operand(0)?, d)?;
        self.emit(at, run, fields(d, &registers, x));
        Ok(())
    }

    pub(super) fn apply_or(
        &mut self,
        at: &Context<'_>,
        run: Option<OpFn>,
        d: Ty,
        sources: &[Ty],
        x: u32,
    ) -> Result<()> {
        match run {
            Some(run) => self.apply(at, run, d, sources, x),
            None => Err(at.unsupported("it is not available for this type")),
        }
    }

    /// Claims `.ftz` and `.sat`, and a rounding if the operation is one of IEEE 754.
    fn float_flags(&self, at: &mut Context<'_>, rounded: bool) -> u32 {
        let names: &[&str] = if rounded { &["rn", "rz", "rm", "rp"] } else { &[] };
        let rounding = at.take_one(names).map_or(0, float::rounding_flag);
        let ftz = if at.take("ftz") { FTZ } else { 0 };
        rounding | ftz | if at.take("sat") { SAT } else { 0 }
    }

    fn add(&mut self, base: &str, at: &mut Context<'_>) -> Result<()> {
        if at.mods.contains(&"cc") {
            return self.carry(base, at, false);
        }
        let ty = at.ty()?;
        let add = base == "add";
        if ty.is_float() {
            let flags = self.float_flags(at, true);
            let run = match add {
                true => pick_float!(self.path, ty, flags, Map2, Add),
                false => pick_float!(self.path, ty, flags, Map2, Sub),
            };
            return self.apply_or(at, run, ty, &[ty, ty], flags);
        }
        if ty == (Ty { kind: Kind::Signed, bits: 32 }) && at.take("sat") {
            let run = pick_compact::<Map2<alu::AddSat>>();
            return self.apply(at, run, ty, &[ty, ty], (!add).into());
        }
        let run = match add {
            _ if !ty.is_int() => None,
            true => pick_bits!(self.path, ty, Map2, Add),
            false => pick_bits!(self.path, ty, Map2, Sub),
        };
        self.apply_or(at, run, ty, &[ty, ty], 0)?;
        if add && ty.bits == 32 {
            self.mark(InstKind::Add);
        }
        Ok(())
    }

    /// A sum or a difference with a carry.
    fn carry(&mut self, base: &str, at: &mut Context<'_>, reads: bool) -> Result<()> {
        let writes = at.take("cc");
        let ty = at.ty()?;
        let [d, a, b] = at.operands()?;
        let (a, b) = (self.src(at, a, ty)?, self.src(at, b, ty)?);
        let d = self.dst(at, d, ty)?;
        let x = u32::from(base.starts_with("sub")) | carry_flags(reads, writes);
        self.carry_chain(at, ty, (d, a, b), x)
    }

    /// Emits `d = a + b` or `a - b` with a carry; `x` says how.
    fn carry_chain(
        &mut self,
        at: &Context<'_>,
        ty: Ty,
        (d, a, b): (V, V, V),
        x: u32,
    ) -> Result<()> {
        let run = match ty.bits {
            32 if ty.is_int() => pick_compact::<alu::Carry<u32>>(),
            64 if ty.is_int() => pick_compact::<alu::Carry<u64>>(),
            _ => return Err(at.unsupported("it is not available for this type")),
        };
        let carry = match self.carry {
            Some(carry) => carry,
            None => self.register(Class::Predicate),
        };
        self.carry = Some(carry);
        let mut f = fields(d, &[a, b], x);
        f[3] = match (x & alu::READS_CARRY != 0, x & alu::WRITES_CARRY != 0) {
            (false, true) => Field::Def(carry),
            (true, false) => Field::Use(carry),
            _ => Field::Both(carry),
        };
        self.emit(at, run, f);
        Ok(())
    }

    /// Products of integers that are written to a register before something is added: with a
    /// carry, with saturation, or of 24 bits.
    fn product(&mut self, base: &str, at: &mut Context<'_>) -> Result<()> {
        let ty = at.ty()?;
        let (short, adds) = (base.ends_with("24"), base.starts_with("mad"));
        let Some(high) = at.take_one(&["lo", "hi"]) else {
            return Err(at.unsupported("it needs `.lo` or `.hi`"));
        };
        let signed = ty == Ty { kind: Kind::Signed, bits: 32 };
        let chain = match (base == "madc", !short && at.take("cc")) {
            (false, false) => None,
            (reads, writes) => Some(carry_flags(reads, writes)),
        };
        let saturated = adds && high == 1 && signed && chain.is_none() && at.take("sat");
        let run = match (short, high) {
            _ if !ty.is_int() || ty.bits < 32 => None,
            (true, _) if ty.bits == 32 && signed => Some(pick_compact::<Map2<alu::Mul24<i32>>>()),
            (true, _) if ty.bits == 32 => Some(pick_compact::<Map2<alu::Mul24<u32>>>()),
            (true, _) => None,
            (false, 0) => pick_bits!(self.path, ty, Map2, MulLo),
            (false, _) => compact_int!(ty, Map2, MulHi),
        };
        if !adds {
            return self.apply_or(at, run, ty, &[ty, ty], high as u32);
        }
        let Some(run) = run else {
            return Err(at.unsupported("it is not available for this type"));
        };
        let [d, a, b, c] = at.operands()?;
        let (a, b, c) = (self.src(at, a, ty)?, self.src(at, b, ty)?, self.src(at, c, ty)?);
        let (product, d) = (self.register(ty.class()), self.dst(at, d, ty)?);
        self.emit(at, run, fields(product, &[a, b], high as u32));
        match chain {
            Some(x) => self.carry_chain(at, ty, (d, product, c), x)?,
            None => {
                let run = match saturated {
                    true => pick_compact::<Map2<alu::AddSat>>(),
                    false => pick_compact::<Map2<alu::Add<u32>>>(),
                };
                self.emit(at, run, fields(d, &[product, c], 0));
            }
        }
        Ok(())
    }

    fn mul(&mut self, base: &str, at: &mut Context<'_>) -> Result<()> {
        let mad = base == "mad";
        let float = matches!(at.mods.last(), Some(&("f32" | "f64")));
        if mad && !float && ["cc", "sat"].iter().any(|m| at.mods.contains(m)) {
            return self.product(base, at);
        }
        let ty = at.ty()?;
        if ty.is_float() {
            let flags = self.float_flags(at, true);
            let run = match mad {
                true => pick_float!(self.path, ty, flags, Map3, Fma),
                false => pick_float!(self.path, ty, flags, Map2, Mul),
            };
            let sources = [ty, ty, ty];
            return self.apply_or(at, run, ty, &sources[..if mad { 3 } else { 2 }], flags);
        }
        if !ty.is_int() {
            return Err(at.unsupported("it is not available for this type"));
        }
        let wide = Ty { kind: ty.kind, bits: ty.bits * 2 };
        let (run, result) = match (at.take_one(&["lo", "hi", "wide"]), mad) {
            (Some(0), false) => (pick_bits!(self.path, ty, Map2, MulLo), ty),
            (Some(0), true) => (pick_bits!(self.path, ty, Map3, MadLo), ty),
            (Some(1), false) => (compact_int!(ty, Map2, MulHi), ty),
            (Some(1), true) => (compact_int!(ty, Map3, MadHi), ty),
            (Some(_), mad) => {
                let run = match (ty.bits, ty.signed(), mad) {
                    (16, false, false) => pick_compact::<Map2<alu::MulWide<u16>>>(),
                    (16, true, false) => pick_compact::<Map2<alu::MulWide<i16>>>(),
                    (32, false, false) => pick::<Map2<alu::MulWide<u32>>>(self.path),
                    (32, true, false) => pick::<Map2<alu::MulWide<i32>>>(self.path),
                    (16, false, true) => pick_compact::<Map3<alu::MadWide<u16>>>(),
                    (16, true, true) => pick_compact::<Map3<alu::MadWide<i16>>>(),
                    (32, false, true) => pick_compact::<Map3<alu::MadWide<u32>>>(),
                    (32, true, true) => pick_compact::<Map3<alu::MadWide<i32>>>(),
                    _ => return Err(at.unsupported("it is not available for this type")),
                };
                (Some(run), wide)
            }
            (None, _) => return Err(at.unsupported("it needs `.lo`, `.hi` or `.wide`")),
        };
        let sources = [ty, ty, result];
        self.apply_or(at, run, result, &sources[..if mad { 3 } else { 2 }], 0)
    }

    fn fma(&mut self, at: &mut Context<'_>) -> Result<()> {
        let ty = at.ty()?;
        let flags = self.float_flags(at, true);
        let run = match ty.is_float() {
            true => pick_float!(self.path, ty, flags, Map3, Fma),
            false => None,
        };
        self.apply_or(at, run, ty, &[ty, ty, ty], flags)?;
        if ty.bits == 32 && flags == 0 {
            self.mark(InstKind::Fma);
        }
        Ok(())
    }

    fn dot(&mut self, base: &str, at: &mut Context<'_>) -> Result<()> {
        let (Some(b), Some(a)) = (at.mods.pop(), at.mods.pop()) else {
            return Err(at.unsupported("it takes two types"));
        };
        let signs = match (a, b) {
            ("u32", "u32") => 0,
            ("s32", "u32") => 1,
            ("u32", "s32") => 2,
            ("s32", "s32") => 3,
            _ => return Err(at.unsupported("its types are `.u32` or `.s32`")),
        };
        let (run, half) = match (base, at.take_one(&["lo", "hi"])) {
            ("dp4a", None) => (pick_compact::<Map3<alu::Dp4a>>(), 0),
            ("dp2a", Some(half)) => (pick_compact::<Map3<alu::Dp2a>>(), half as u32),
            ("dp2a", None) => return Err(at.unsupported("it needs `.lo` or `.hi`")),
            _ => return Err(at.unsupported("it has no `.lo` and `.hi`")),
        };
        let b32 = Ty::B32;
        self.apply(at, run, b32, &[b32, b32, b32], signs | half << 2)
    }

    fn binary(&mut self, base: &str, at: &mut Context<'_>) -> Result<()> {
        let ty = at.ty()?;
        if ty.is_float() && base != "rem" {
            let mut flags = 0;
            let run = if base == "div" {
                // All forms are computed as the exact one.
                let approximate = at.take_one(&["approx", "full"]).is_some();
                flags |= self.float_flags(at, !approximate);
                compact_float!(ty, Map2, Div)
            } else {
                flags |= if at.take("ftz") { FTZ } else { 0 };
                flags |= if at.take("NaN") { NAN } else { 0 };
                if at.take("xorsign") {
                    at.take("abs");
                    flags |= XORSIGN;
                }
                match base {
                    "min" => pick_float!(self.path, ty, flags, Map2, Min),
                    _ => pick_float!(self.path, ty, flags, Map2, Max),
                }
            };
            return self.apply_or(at, run, ty, &[ty, ty], flags);
        }
        let run = match base {
            _ if !ty.is_int() => None,
            "div" => compact_int!(ty, Map2, Div),
            "rem" => compact_int!(ty, Map2, Rem),
            "min" => pick_int!(self.path, ty, Map2, Min),
            _ => pick_int!(self.path, ty, Map2, Max),
        };
        self.apply_or(at, run, ty, &[ty, ty], 0)
    }

    fn sign(&mut self, base: &str, at: &mut Context<'_>) -> Result<()> {
        let ty = at.ty()?;
        let flags = if ty.is_float() && at.take("ftz") { FTZ } else { 0 };
        let neg = base == "neg";
        let run = match (ty.is_float(), neg) {
            (true, true) => pick_float!(self.path, ty, flags, Map1, Neg),
            (true, false) => pick_float!(self.path, ty, flags, Map1, Abs),
            (false, _) if !ty.is_int() => None,
            (false, true) => compact_bits!(ty, Map1, Neg),
            (false, false) => compact_int!(ty, Map1, Abs),
        };
        self.apply_or(at, run, ty, &[ty], flags)
    }

    fn function(&mut self, base: &str, at: &mut Context<'_>) -> Result<()> {
        let ty = at.ty()?;
        if !ty.is_float() {
            return Err(at.unsupported("it is not available for this type"));
        }
        let rounded = !at.take("approx") && matches!(base, "rcp" | "sqrt");
        let flags = self.float_flags(at, rounded);
        let run = match base {
            "rcp" if ty.bits == 64 && flags == FTZ => Some(pick_compact::<Map1<float::UpperRcp>>()),
            "rsqrt" if ty.bits == 64 && flags == FTZ => {
                Some(pick_compact::<Map1<float::UpperRsqrt>>())
            }
            "rcp" => compact_float!(ty, Map1, Rcp),
            "sqrt" => compact_float!(ty, Map1, Sqrt),
            "rsqrt" => compact_float!(ty, Map1, Rsqrt),
            _ if ty.bits == 64 => None,
            "ex2" => compact_float!(ty, Map1, Ex2),
            "lg2" => compact_float!(ty, Map1, Lg2),
            "sin" => compact_float!(ty, Map1, Sin),
            "cos" => compact_float!(ty, Map1, Cos),
            _ => compact_float!(ty, Map1, Tanh),
        };
        self.apply_or(at, run, ty, &[ty], flags)
    }
}

/// What [`alu::Carry`] does with the carry.
fn carry_flags(reads: bool, writes: bool) -> u32 {
    let flag = |set, flag| if set { flag } else { 0 };
    flag(reads, alu::READS_CARRY) | flag(writes, alu::WRITES_CARRY)
}
