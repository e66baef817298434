//! Arithmetic and comparisons of 16-bit floats, and of pairs of them.

use super::alu::fields;
use super::compare::setp_fields;
use super::context::{Context, Result};
use super::ir::{Class, Field, V};
use super::lowering::Lowering;
use super::ty::{Kind, Ty};
use crate::exec::convert::RELU;
use crate::exec::float::{FTZ, NAN, SAT, XORSIGN};
use crate::exec::half::{self, Bf16, F16, Halves, UPPER, Widen};
use crate::exec::lanes::{Map1, Map2, Map3};
use crate::exec::{NO_SLOT, OpFn, pick_compact};
use crate::ptx::ast::Operand;

/// A type of 16-bit floats.
#[derive(Clone, Copy)]
struct Halved {
    brain: bool,
    pair: bool,
}

impl Halved {
    fn parse(name: &str) -> Option<Halved> {
        let (brain, pair) = match name {
            "f16" => (false, false),
            "bf16" => (true, false),
            "f16x2" => (false, true),
            "bf16x2" => (true, true),
            _ => return None,
        };
        Some(Halved { brain, pair })
    }

    /// The register that holds one, as bits.
    fn register(self) -> Ty {
        Ty { kind: Kind::Bits, bits: if self.pair { 32 } else { 16 } }
    }
}

/// The function for an operation of a type, in a [`Map1`], [`Map2`] or [`Map3`].
macro_rules! pick_half {
    ($of:expr, $map:ident, $operation:ident) => {
        match ($of.brain, $of.pair) {
            (false, false) => pick_compact::<$map<Halves<half::$operation, F16, 1>>>(),
            (false, true) => pick_compact::<$map<Halves<half::$operation, F16, 2>>>(),
            (true, false) => pick_compact::<$map<Halves<half::$operation, Bf16, 1>>>(),
            (true, true) => pick_compact::<$map<Halves<half::$operation, Bf16, 2>>>(),
        }
    };
}

impl Lowering<'_> {
    /// Lowers `base` if it is an instruction of this file, for a type of this file.
    pub(super) fn half(&mut self, base: &str, at: &mut Context<'_>) -> Result<bool> {
        let Some(of) = at.mods.last().and_then(|name| Halved::parse(name)) else {
            return Ok(false);
        };
        let (run, sources): (OpFn, usize) = match base {
            "add" => (pick_half!(of, Map2, Add), 2),
            "sub" => (pick_half!(of, Map2, Sub), 2),
            "mul" => (pick_half!(of, Map2, Mul), 2),
            "fma" => (pick_half!(of, Map3, Fma), 3),
            "min" => (pick_half!(of, Map2, Min), 2),
            "max" => (pick_half!(of, Map2, Max), 2),
            "neg" => (pick_half!(of, Map1, Neg), 1),
            "abs" => (pick_half!(of, Map1, Abs), 1),
            "setp" => {
                at.mods.pop();
                self.setp_half(at, of)?;
                return Ok(true);
            }
            _ => return Ok(false),
        };
        at.mods.pop();
        let mut flags = 0;
        match base {
            "add" | "sub" | "mul" => {
                at.take("rn");
                if of.brain {
                    self.since(at, 90)?;
                }
                flags |= if !of.brain && at.take("sat") { SAT } else { 0 };
            }
            "fma" => {
                if !at.take("rn") {
                    return Err(at.unsupported("it needs `.rn`"));
                }
                flags |= if at.take("relu") { RELU } else { 0 };
                flags |= if !of.brain && flags == 0 && at.take("sat") { SAT } else { 0 };
                if of.brain || flags & RELU != 0 {
                    self.since(at, 80)?;
                }
            }
            "min" | "max" => {
                flags |= if at.take("NaN") { NAN } else { 0 };
                if at.take("xorsign") {
                    at.take("abs");
                    flags |= XORSIGN;
                }
                self.since(at, if flags & XORSIGN != 0 { 86 } else { 80 })?;
            }
            _ if of.brain => self.since(at, 80)?,
            _ => {}
        }
        flags |= if !of.brain && at.take("ftz") { FTZ } else { 0 };
        let ty = of.register();
        self.apply(at, run, ty, &[ty; 3][..sources], flags)?;
        Ok(true)
    }

    /// `setp`: as f32, in which all values are exact.
    fn setp_half(&mut self, at: &mut Context<'_>, of: Halved) -> Result<()> {
        const PREDICATE: Ty = Ty { kind: Kind::Predicate, bits: 1 };
        if of.brain {
            self.since(at, 90)?;
        }
        let ftz = if at.mods.contains(&"ftz") { FTZ } else { 0 };
        let (run, swap) = self.comparison(at, Ty::F32)?;
        let combine = at.take_one(&["and", "or", "xor"]);
        let want = if combine.is_some() { 4 } else { 3 };
        if at.inst.operands.len() != want {
            return Err(at.bad_operands(&format!("it takes {want}")));
        }
        let ty = of.register();
        let (a, b) = (self.src(at, at.operand(1)?, ty)?, self.src(at, at.operand(2)?, ty)?);
        let (a, b) = if swap { (b, a) } else { (a, b) };
        let combined = match combine {
            Some(op) => {
                let (c, negated) = self.predicate(at, at.operand(3)?)?;
                Some((c, op as u32 | u32::from(negated) << 2))
            }
            None => None,
        };
        let (p, q) = match at.operand(0)? {
            Operand::Pair(p, q) => (&**p, Some(&**q)),
            one => (one, None),
        };
        if of.pair && q.is_none() {
            return Err(at.bad_operands("its destination is `p|q`"));
        }
        // Of pairs: a predicate for each half. Of single ones, the second is of the opposite.
        let halves = [(p, 0), (q.unwrap_or(p), UPPER)];
        for (destination, upper) in &halves[..if of.pair { 2 } else { 1 }] {
            let mut f = setp_fields(0, self.widen(at, of, a, ftz | upper), 0);
            f[2] = Field::Use(self.widen(at, of, b, ftz | upper));
            if let Some((c, x)) = combined {
                f[3] = Field::Use(c);
                f[4] = Field::Raw(x);
            }
            f[5] = match q {
                Some(q) if !of.pair => Field::Def(self.dst(at, q, PREDICATE)?),
                _ => Field::Raw(NO_SLOT),
            };
            f[0] = Field::Def(self.dst(at, destination, PREDICATE)?);
            self.emit(at, run, f);
        }
        Ok(())
    }

    /// A register that holds the value of a half of `a` as f32.
    fn widen(&mut self, at: &Context<'_>, of: Halved, a: V, x: u32) -> V {
        let run = match of.brain {
            false => pick_compact::<Map1<Widen<F16>>>(),
            true => pick_compact::<Map1<Widen<Bf16>>>(),
        };
        let d = self.register(Class::Narrow);
        self.emit(at, run, fields(d, &[a], x));
        d
    }
}
