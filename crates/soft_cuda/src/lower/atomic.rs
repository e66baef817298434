//! `atom` and `red`.

use super::address::space_number;
use super::check::Accessed;
use super::context::{Context, Result};
use super::ir::Field;
use super::lowering::Lowering;
use super::ty::{Kind, Ty};
use crate::exec::access::{AccessKind, Side};
use crate::exec::atomic::Atomic;
use crate::exec::check_access::Extent;
use crate::exec::rmw::{RMWS, Rmw};
use crate::exec::{NO_SLOT, pick_compact};
use crate::ptx::ast::Space;

/// Additions of 16-bit floats and of pairs of them, and the architecture that has them.
const HALVES: [(&str, Rmw, u32); 4] = [
    ("f16", Rmw::AddF16, 70),
    ("f16x2", Rmw::AddF16x2, 60),
    ("bf16", Rmw::AddBf16, 90),
    ("bf16x2", Rmw::AddBf16x2, 90),
];

impl Lowering<'_> {
    pub(super) fn atomic(&mut self, at: &mut Context<'_>, returns: bool) -> Result<()> {
        let policy = at.take("L2::cache_hint");
        let order = at.take_one(&["acquire", "release", "acq_rel"]);
        let (wide, of_block) = (at.wide(), at.mods.contains(&"cta"));
        let noftz = at.take("noftz");
        at.take_all(|m| ["relaxed", "cta", "cluster", "gpu", "sys"].contains(&m));
        let space = self.space(at);
        let half = at.mods.last().and_then(|name| HALVES.iter().find(|half| half.0 == *name));
        let ty = at.ty()?;
        let names = ["add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"];
        let Some(op) = at.take_one(&names) else {
            return Err(at.unsupported("its operation is unknown"));
        };
        let rmw = match (names[op], ty.kind) {
            ("add", Kind::Float) => Rmw::AddFloat,
            ("add", Kind::Other) if half.is_some_and(|_| noftz) => {
                let &(_, rmw, sm) = half.unwrap_or(&HALVES[0]);
                self.since(at, sm)?;
                rmw
            }
            ("exch", _) => Rmw::Exchange,
            ("cas", _) => Rmw::CompareExchange,
            (_, Kind::Float | Kind::Other | Kind::Predicate) => {
                return Err(at.unsupported("it is not available for this type"));
            }
            (operation, kind) => Rmw::of_integers(operation, kind == Kind::Signed),
        };
        let run = match ty.bits {
            16 if half.is_some() || rmw == Rmw::CompareExchange => pick_compact::<Atomic<u16>>(),
            32 => pick_compact::<Atomic<u32>>(),
            64 => pick_compact::<Atomic<u64>>(),
            _ => return Err(at.unsupported("it is not available for this type")),
        };
        let first = usize::from(returns);
        let values = if rmw == Rmw::CompareExchange { 2 } else { 1 };
        let want = first + 1 + values + usize::from(policy);
        if at.inst.operands.len() != want {
            return Err(at.bad_operands(&format!("it takes {want}")));
        }
        let address = self.address(at, at.operand(first)?, space)?;
        if address.space == Some(Space::Const) || address.param.is_some() {
            return Err(at.bad_operands("this memory is read-only"));
        }
        if address.space == Some(Space::Local) {
            return Err(at.bad_operands("atomics are for global and shared memory"));
        }
        let ty = if half.is_some() { Ty { kind: Kind::Bits, ..ty } } else { ty };
        let b = self.src(at, at.operand(first + 1)?, ty)?;
        let c = match values {
            2 => self.src(at, at.operand(first + 2)?, ty)?,
            _ => b,
        };
        let raw = Field::Raw;
        let d = match returns {
            true => Field::Def(self.dst(at, at.operand(0)?, ty)?),
            false => raw(NO_SLOT),
        };
        let number = RMWS.iter().position(|&r| r == rmw).unwrap_or(0) as u32;
        let fields =
            [d, Field::Use(address.base), Field::Use(b), Field::Use(c), raw(0), raw(number)];
        // By what it acquires and what it releases.
        if matches!(order, Some(1 | 2)) && self.checks.races {
            self.fence(at, wide, Side::Release);
        }
        let (element, wide_values) = (ty.bits / 8, ty.bits == 64);
        let (extent, low) = match rmw.keeps_bytes() && !wide_values {
            true => (Extent::Changed(rmw), self.low(at.operand(first)?, &address)),
            false => (Extent::All, None),
        };
        let operands = [Field::Use(b), Field::Use(c)];
        let of = Accessed {
            kind: if of_block { AccessKind::BlockAtomic } else { AccessKind::Atomic },
            element,
            count: 1,
            values: if extent == Extent::All { &[] } else { &operands },
            wide: wide_values,
            extent,
            low,
        };
        self.check_access(at, &address, &of);
        let head = [address.offset, space_number(address.space), address.wide.into()];
        let low = low.map_or(raw(NO_SLOT), Field::Use);
        let extra = head.into_iter().map(raw).chain([low]).collect();
        self.emit_extra(at, run, fields, extra);
        let acquires = matches!(order, Some(0 | 2));
        self.observe(at, &address, &of, acquires.then_some(wide));
        if acquires {
            self.fence(at, wide, Side::Acquire);
        }
        Ok(())
    }
}
