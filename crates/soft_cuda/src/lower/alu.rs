//! Instructions that compute: everything without an address or a jump.

use super::ir::{Class, Field, InstKind, V};
use super::scopes::Binding;
use super::ty::{Kind, Ty};
use super::{Context, Lowering, Result};
use crate::exec::alu::{self, PERMUTES};
use crate::exec::convert::{self, Cast, Conversion, Convert, ROUNDINGS, Rounding, SCALARS, Scalar};
use crate::exec::float::{self, FTZ, Flushed, NAN, Plain, SAT, TESTS, XORSIGN};
use crate::exec::lanes::{Map1, Map2, Map3, PredLogic, Select, SetP};
use crate::exec::{NO_SLOT, OpFn, pick, pick_compact};
use crate::ptx::ast::Operand;

/// The function for an integer type of 16, 32 or 64 bits; `None` for others. Compact for 16 bits.
macro_rules! pick_int {
    ($path:expr, $ty:expr, $map:ident, $f:ident) => {
        match ($ty.bits, $ty.signed()) {
            (16, false) => Some(pick_compact::<$map<alu::$f<u16>>>()),
            (16, true) => Some(pick_compact::<$map<alu::$f<i16>>>()),
            (32, false) => Some(pick::<$map<alu::$f<u32>>>($path)),
            (32, true) => Some(pick::<$map<alu::$f<i32>>>($path)),
            (64, false) => Some(pick::<$map<alu::$f<u64>>>($path)),
            (64, true) => Some(pick::<$map<alu::$f<i64>>>($path)),
            _ => None,
        }
    };
}

/// As [`pick_int`], for operations that do not care about the sign.
macro_rules! pick_bits {
    ($path:expr, $ty:expr, $map:ident, $f:ident) => {
        match $ty.bits {
            16 => Some(pick_compact::<$map<alu::$f<u16>>>()),
            32 => Some(pick::<$map<alu::$f<u32>>>($path)),
            64 => Some(pick::<$map<alu::$f<u64>>>($path)),
            _ => None,
        }
    };
}

/// The function for f32 or f64; compact if there are flags.
macro_rules! pick_float {
    ($path:expr, $ty:expr, $flags:expr, $map:ident, $f:ident) => {
        match ($ty.bits, $flags) {
            (32, 0) => Some(pick::<$map<Plain<float::$f<f32>>>>($path)),
            (32, _) => Some(pick_compact::<$map<float::$f<f32>>>()),
            (64, _) => Some(pick::<$map<float::$f<f64>>>($path)),
            _ => None,
        }
    };
}

/// As [`pick_int`], always compact.
macro_rules! compact_int {
    ($ty:expr, $map:ident, $f:ident) => {
        match ($ty.bits, $ty.signed()) {
            (16, false) => Some(pick_compact::<$map<alu::$f<u16>>>()),
            (16, true) => Some(pick_compact::<$map<alu::$f<i16>>>()),
            (32, false) => Some(pick_compact::<$map<alu::$f<u32>>>()),
            (32, true) => Some(pick_compact::<$map<alu::$f<i32>>>()),
            (64, false) => Some(pick_compact::<$map<alu::$f<u64>>>()),
            (64, true) => Some(pick_compact::<$map<alu::$f<i64>>>()),
            _ => None,
        }
    };
}

/// As [`pick_bits`], always compact.
macro_rules! compact_bits {
    ($ty:expr, $map:ident, $f:ident) => {
        match $ty.bits {
            16 => Some(pick_compact::<$map<alu::$f<u16>>>()),
            32 => Some(pick_compact::<$map<alu::$f<u32>>>()),
            64 => Some(pick_compact::<$map<alu::$f<u64>>>()),
            _ => None,
        }
    };
}

/// As [`pick_float`], always compact.
macro_rules! compact_float {
    ($ty:expr, $map:ident, $f:ident) => {
        match $ty.bits {
            32 => Some(pick_compact::<$map<float::$f<f32>>>()),
            64 => Some(pick_compact::<$map<float::$f<f64>>>()),
            _ => None,
        }
    };
}

/// Fields of an operation with up to three sources.
fn fields(d: V, sources: &[V], x: u32) -> [Field; 6] {
    let source = |i: usize| sources.get(i).map_or(Field::Raw(0), |&v| Field::Use(v));
    [Field::Def(d), source(0), source(1), source(2), Field::Raw(x), Field::Raw(0)]
}

impl Lowering<'_> {
    /// Lowers `base` if it is an instruction of this file.
    pub(super) fn arithmetic(&mut self, base: &str, at: &mut Context<'_>) -> Result<bool> {
        match base {
            "mov" => self.mov(at)?,
            "add" | "sub" => self.add(base, at)?,
            "addc" | "subc" => self.carry_chain(base, at, true)?,
            "mul" | "mad" => self.mul(base, at)?,
            "mul24" | "mad24" => return Err(at.unsupported("use `mul.lo` or `mad.lo`")),
            "fma" => self.fma(at)?,
            "div" | "rem" | "min" | "max" => self.two(base, at)?,
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
            "dp4a" => {
                let (Some(b), Some(a)) = (at.mods.pop(), at.mods.pop()) else {
                    return Err(at.unsupported("it takes two types"));
                };
                let x = match (a, b) {
                    ("u32", "u32") => 0,
                    ("s32", "u32") => 1,
                    ("u32", "s32") => 2,
                    ("s32", "s32") => 3,
                    _ => return Err(at.unsupported("its types are `.u32` or `.s32`")),
                };
                let b32 = Ty::B32;
                self.apply(at, pick_compact::<Map3<alu::Dp4a>>(), b32, &[b32, b32, b32], x)?;
            }
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
                self.emit(at, pick_compact::<alu::ActiveMask>(), fields(d, &[], 0));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Emits `d = run(sources...)`, with the types given.
    fn apply(&mut self, at: &Context<'_>, run: OpFn, d: Ty, sources: &[Ty], x: u32) -> Result<()> {
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

    fn apply_or(
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

    /// Claims `.ftz`, `.sat` and the only rounding that is supported.
    fn float_flags(&self, at: &mut Context<'_>) -> u32 {
        at.take("rn");
        let ftz = if at.take("ftz") { FTZ } else { 0 };
        ftz | if at.take("sat") { SAT } else { 0 }
    }

    fn mov(&mut self, at: &mut Context<'_>) -> Result<()> {
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
            Some(((_, address, _), offset)) => {
                let address = address.wrapping_add_signed(offset);
                let holds = ty.bits >= 32 && address <= u64::MAX >> (64 - ty.bits);
                if !holds || ty.is_float() {
                    return Err(at.bad_operands("this type does not hold the address"));
                }
                self.constant(ty, address)
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
            64 => pick_compact::<alu::Unpack<u64>>(),
            _ => pick_compact::<alu::Unpack<u32>>(),
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
            self.emit(at, pick_compact::<alu::Pack64>(), fields(d, &sources, 0));
            return Ok(());
        }
        let whole = self.register(ty.class());
        let zero = self.constant(ty, 0);
        self.copy(at, whole, zero, ty);
        let run = match ty.bits {
            64 => pick_compact::<alu::Insert<u64>>(),
            _ => pick_compact::<alu::Insert<u32>>(),
        };
        for (i, &source) in sources.iter().enumerate() {
            let mut f = fields(whole, &[source], i as u32 * bits);
            f[0] = Field::Both(whole);
            self.emit(at, run, f);
        }
        self.copy(at, d, whole, ty);
        Ok(())
    }

    fn add(&mut self, base: &str, at: &mut Context<'_>) -> Result<()> {
        if at.mods.contains(&"cc") {
            return self.carry_chain(base, at, false);
        }
        let ty = at.ty()?;
        let add = base == "add";
        if ty.is_float() {
            let flags = self.float_flags(at);
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
        self.apply_or(at, run, ty, &[ty, ty], 0)
    }

    fn carry_chain(&mut self, base: &str, at: &mut Context<'_>, reads: bool) -> Result<()> {
        let writes = at.take("cc");
        let ty = at.ty()?;
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
        let [d, a, b] = at.operands()?;
        let (a, b) = (self.src(at, a, ty)?, self.src(at, b, ty)?);
        let d = self.dst(at, d, ty)?;
        let sub = u32::from(base.starts_with("sub"));
        let x = sub | u32::from(reads) << 1 | u32::from(writes) << 2;
        let mut f = fields(d, &[a, b], x);
        f[3] = match (reads, writes) {
            (false, true) => Field::Def(carry),
            (true, false) => Field::Use(carry),
            _ => Field::Both(carry),
        };
        self.emit(at, run, f);
        Ok(())
    }

    fn mul(&mut self, base: &str, at: &mut Context<'_>) -> Result<()> {
        let ty = at.ty()?;
        let mad = base == "mad";
        if ty.is_float() {
            let flags = self.float_flags(at);
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
        let flags = self.float_flags(at);
        let run = match ty.is_float() {
            true => pick_float!(self.path, ty, flags, Map3, Fma),
            false => None,
        };
        self.apply_or(at, run, ty, &[ty, ty, ty], flags)?;
        if ty.bits == 32
            && flags == 0
            && let Some(inst) = self.blocks[self.current as usize].insts.last_mut()
        {
            inst.kind = InstKind::Fma;
        }
        Ok(())
    }

    fn two(&mut self, base: &str, at: &mut Context<'_>) -> Result<()> {
        let ty = at.ty()?;
        if ty.is_float() && base != "rem" {
            let mut flags = 0;
            let run = if base == "div" {
                // All forms are computed as the exact one.
                at.take_one(&["approx", "full"]);
                flags |= self.float_flags(at);
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
        at.take("approx");
        let flags = self.float_flags(at);
        let run = match base {
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

    fn testp(&mut self, at: &mut Context<'_>) -> Result<()> {
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

    fn logic(&mut self, base: &str, at: &mut Context<'_>) -> Result<()> {
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
        let run = match base {
            "and" => pick_bits!(self.path, ty, Map2, And),
            "or" => pick_bits!(self.path, ty, Map2, Or),
            _ => pick_bits!(self.path, ty, Map2, Xor),
        };
        self.apply_or(at, run, ty, &[ty, ty], 0)
    }

    fn not(&mut self, base: &str, at: &mut Context<'_>) -> Result<()> {
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

    fn shf(&mut self, at: &mut Context<'_>) -> Result<()> {
        let right = match at.take_one(&["l", "r"]) {
            Some(right) => right as u32,
            None => return Err(at.unsupported("it needs `.l` or `.r`")),
        };
        let clamp = match at.take_one(&["wrap", "clamp"]) {
            Some(clamp) => clamp as u32,
            None => return Err(at.unsupported("it needs `.wrap` or `.clamp`")),
        };
        let ty = at.ty()?;
        if ty.bits != 32 {
            return Err(at.unsupported("it takes `.b32`"));
        }
        let run = pick_compact::<Map3<alu::Shf>>();
        self.apply(at, run, ty, &[ty, ty, Ty::U32], right | clamp << 1)
    }

    fn bfi(&mut self, at: &mut Context<'_>) -> Result<()> {
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

    fn lop3(&mut self, at: &mut Context<'_>) -> Result<()> {
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

    fn selp(&mut self, at: &mut Context<'_>) -> Result<()> {
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

    fn slct(&mut self, at: &mut Context<'_>) -> Result<()> {
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

    /// The function that compares, and whether the operands swap places.
    fn comparison(&self, at: &mut Context<'_>, ty: Ty) -> Result<(OpFn, bool)> {
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
            macro_rules! compare {
                ($f:ident) => {
                    match (ty.bits, ftz) {
                        (32, false) => pick::<SetP<float::$f<f32>>>(path),
                        (32, true) => pick_compact::<SetP<Flushed<float::$f<f32>>>>(),
                        _ => pick_compact::<SetP<float::$f<f64>>>(),
                    }
                };
            }
            let run = match name_swapped {
                "eq" => compare!(Eq),
                "ne" => compare!(Ne),
                "lt" => compare!(Lt),
                "le" => compare!(Le),
                "equ" => compare!(Equ),
                "neu" => compare!(Neu),
                "ltu" => compare!(Ltu),
                "leu" => compare!(Leu),
                "num" => compare!(Num),
                "nan" => compare!(IsNan),
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

    fn setp(&mut self, at: &mut Context<'_>) -> Result<()> {
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
    fn set(&mut self, at: &mut Context<'_>) -> Result<()> {
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

    fn cvt(&mut self, at: &mut Context<'_>) -> Result<()> {
        let from = at.mods.pop().unwrap_or_default();
        let to = at.mods.pop().unwrap_or_default();
        if to == "tf32" && from == "f32" {
            let away = match at.take_one(&["rna", "rn"]) {
                Some(0) => 1,
                Some(_) => 0,
                None => return Err(at.unsupported("it needs `.rna` or `.rn`")),
            };
            let run = pick_compact::<Map1<convert::Tf32>>();
            return self.apply(at, run, Ty::B32, &[Ty::F32], away);
        }
        let pair = matches!(to, "f16x2" | "bf16x2");
        let scalar = |name: &str| {
            let name = name.trim_end_matches("x2");
            SCALARS.iter().find(|(n, _)| *n == name).map(|&(_, scalar)| scalar)
        };
        let (Some(to_scalar), Some(from_scalar)) = (scalar(to), scalar(from)) else {
            return Err(at.unsupported("this pair of types is unknown"));
        };
        let names = ["rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi"];
        let rounding = at.take_one(&names);
        let flags = if at.take("ftz") { FTZ } else { 0 } | if at.take("sat") { SAT } else { 0 };
        let conversion = Conversion {
            to: to_scalar,
            from: from_scalar,
            rounding: rounding.map_or(Rounding::Nearest, |i| ROUNDINGS[i % 4]),
            integral: rounding.is_some_and(|i| i >= 4),
            flags,
        };
        let ty = |scalar| match scalar {
            Scalar::Int { bits: 64, .. } | Scalar::F64 => Ty::B64,
            _ => Ty::B32,
        };
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

    /// The class of a register operand.
    pub(super) fn class_of(&self, operand: &Operand) -> Option<Class> {
        match operand {
            Operand::Name(name) => match self.find(name)? {
                Binding::Register(_, ty) | Binding::Member { ty, .. } => Some(ty.class()),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Fields of a plain `setp`.
fn setp_fields(d: V, a: V, b: V) -> [Field; 6] {
    let none = Field::Raw(NO_SLOT);
    [Field::Def(d), Field::Use(a), Field::Use(b), none, Field::Raw(0), none]
}
