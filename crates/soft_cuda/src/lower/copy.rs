//! `cp.async`.

use super::address::space_number;
use super::context::{Context, Result};
use super::ir::{Class, Field};
use super::lowering::Lowering;
use super::ty::Ty;
use crate::exec::lanes::Select;
use crate::exec::mbarrier::CopyArrive;
use crate::exec::{FULL, NO_SLOT, copy, pick, pick_compact};
use crate::ptx::ast::{Operand, Space};

impl Lowering<'_> {
    pub(super) fn cp_async(&mut self, at: &mut Context<'_>) -> Result<()> {
        let raw = Field::Raw;
        if at.take("commit_group") {
            self.emit(at, pick_compact::<copy::CopyCommit>(), [raw(0); 6]);
            return Ok(());
        }
        if at.take("wait_all") || at.mods.contains(&"wait_group") {
            let left = if at.take("wait_group") {
                let [Operand::Int(left @ 0..=0xffff)] = at.operands()? else {
                    return Err(at.bad_operands("the number of groups is a constant"));
                };
                *left as u32
            } else {
                FULL
            };
            let fields = [raw(0), raw(0), raw(0), raw(0), raw(left), raw(0)];
            self.emit(at, pick_compact::<copy::CopyWait>(), fields);
            return Ok(());
        }
        if at.take("mbarrier") {
            return self.copy_arrive(at);
        }
        let only_cg = match at.take_one(&["ca", "cg"]) {
            Some(which) => which == 1,
            None => return Err(at.unsupported("only `.ca` and `.cg` copies are available")),
        };
        let policy = at.take("L2::cache_hint");
        at.take_all(|m| m.starts_with("L2::"));
        if !(at.take("shared") || at.take("shared::cta")) || !at.take("global") {
            return Err(at.unsupported("it copies from `.global` to `.shared`"));
        }
        let given = at.inst.operands.len() - usize::from(policy && at.inst.operands.len() > 3);
        let to = self.address(at, at.operand(0)?, Some(Space::Shared))?;
        let from = self.address(at, at.operand(1)?, Some(Space::Global))?;
        let &Operand::Int(bytes) = at.operand(2)? else {
            return Err(at.bad_operands("its size is a constant"));
        };
        if !matches!((bytes, only_cg), (16, _) | (4 | 8, false)) {
            return Err(at.bad_operands("`.cg` copies 16 bytes, `.ca` 4, 8 or 16"));
        }
        let have = match given {
            3 => raw(NO_SLOT),
            4 => match at.operand(3)? {
                // A predicate: ignore the source, and write zeros.
                operand @ (Operand::Name(_) | Operand::Not(_))
                    if matches!(operand, Operand::Not(_))
                        || self.class_of(operand) == Some(Class::Predicate) =>
                {
                    let (p, negated) = self.predicate(at, operand)?;
                    let (none, all) = (self.narrow(0), self.narrow(bytes as u32));
                    let (a, b) = if negated { (all, none) } else { (none, all) };
                    let v = self.register(Class::Narrow);
                    let select = pick::<Select<u32>>(self.path);
                    let fields = [
                        Field::Def(v),
                        Field::Use(a),
                        Field::Use(b),
                        Field::Use(p),
                        raw(0),
                        raw(0),
                    ];
                    self.emit(at, select, fields);
                    Field::Use(v)
                }
                operand => Field::Use(self.src(at, operand, Ty::U32)?),
            },
            _ => return Err(at.bad_operands("it takes 3 or 4")),
        };
        self.race_check(at, &to, false);
        let extra = [bytes as u32, to.wide.into(), to.offset, from.offset, at.inst.line];
        let fields = [raw(0), Field::Use(to.base), Field::Use(from.base), have, raw(0), raw(0)];
        let run = pick_compact::<copy::CpAsync>();
        self.emit_extra(at, run, fields, extra.into_iter().map(raw).collect());
        Ok(())
    }

    /// `cp.async.mbarrier.arrive`.
    fn copy_arrive(&mut self, at: &mut Context<'_>) -> Result<()> {
        self.since(at, 80)?;
        let raw = Field::Raw;
        if !at.take("arrive") {
            return Err(at.unsupported("only `cp.async.mbarrier.arrive` is available"));
        }
        let expect = !at.take("noinc");
        let space = self.space(at);
        if at.ty()? != Ty::B64 {
            return Err(at.unsupported("it takes `.b64`"));
        }
        let [address] = at.operands()?;
        let address = self.address(at, address, space)?;
        let fields = [
            raw(0),
            Field::Use(address.base),
            raw(address.wide.into()),
            raw(address.offset),
            raw(expect.into()),
            raw(space_number(address.space)),
        ];
        self.emit(at, pick_compact::<CopyArrive>(), fields);
        Ok(())
    }
}
