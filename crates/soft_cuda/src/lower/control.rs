//! Instructions that jump, stop, wait, or need the lanes of a warp together.

use super::context::{Context, Result};
use super::ir::{B, Class, Field, Inst, InstKind, Terminator, V};
use super::lowering::Lowering;
use super::scopes::Binding;
use super::ty::{Kind, Ty};
use crate::error::LoadError;
use crate::exec::code::{BarrierKind, CollectiveKind};
use crate::exec::collective::{
    Elect, Match, REDUCTIONS, Redux, SHUFFLES, Shuffle, SyncWarp, VOTES, Vote,
};
use crate::exec::prior_wait::PriorWait;
use crate::exec::{NO_SLOT, OpFn, pick_compact};
use crate::ptx::ast::Operand;

const PREDICATE: Ty = Ty { kind: Kind::Predicate, bits: 1 };

impl<'m> Lowering<'m> {
    /// Lowers `base` if it is an instruction of this file.
    pub(super) fn control(&mut self, base: &str, at: &mut Context<'m>, exit: B) -> Result<bool> {
        let is_control = matches!(
            base,
            "bra"
                | "ret"
                | "exit"
                | "trap"
                | "call"
                | "bar"
                | "barrier"
                | "shfl"
                | "vote"
                | "match"
                | "redux"
                | "elect"
                | "nanosleep"
                | "setmaxnreg"
                | "griddepcontrol"
                | "brkpt"
                | "pmevent"
                | "brx"
        );
        let waits = base == "mbarrier" && at.mods.iter().any(|m| m.ends_with("_wait"));
        let whole = !is_control && at.mods.contains(&"aligned");
        if !is_control && !waits && !whole {
            return Ok(false);
        }
        let line = at.inst.line;
        if self.blocks[self.current as usize].end.is_some() {
            self.current = self.new_block();
        }
        if base == "bra" {
            self.bra(at)?;
            return Ok(true);
        }
        // Everything else with a guard is jumped around.
        let next = at.guard.take().map(|(predicate, negated)| {
            let (taken, next) = (self.new_block(), self.new_block());
            self.finish(Terminator::Branch { predicate, negated, taken, next }, line, false);
            self.current = taken;
            next
        });
        let mut known = true;
        match base {
            "ret" => {
                at.take("uni");
                let end = match self.entry {
                    true => Terminator::Exit,
                    false => Terminator::Goto(exit),
                };
                self.finish(end, line, true);
            }
            "exit" => self.finish(Terminator::Exit, line, true),
            "trap" => self.finish(Terminator::Trap, line, true),
            "call" => self.call(at)?,
            "bar" | "barrier" => self.barrier(base, at)?,
            "shfl" | "vote" | "match" | "redux" | "elect" => self.collective(base, at)?,
            "nanosleep" => {
                let ty = at.ty()?;
                let [time] = at.operands()?;
                self.src(at, time, ty)?;
            }
            "mbarrier" => self.mbarrier_wait(at)?,
            "setmaxnreg" => self.setmaxnreg(at)?,
            // A grid does not start before the one in front of it has ended.
            "griddepcontrol" => {
                let which = at.take_one(&["launch_dependents", "wait"]);
                if which == Some(1) && self.checks.races {
                    let run = pick_compact::<PriorWait>();
                    self.emit(at, run, [Field::Raw(0); 6]).kind = InstKind::Check;
                }
            }
            "brx" => self.brx(at)?,
            _ if whole => {
                self.converge(at, true);
                known = self.matrix(base, at)?;
            }
            _ => return Err(at.unsupported("debugging instructions are not available")),
        }
        if let Some(next) = next {
            self.start(next, line);
        }
        Ok(known)
    }

    /// Has the lanes of a warp wait for each other in front of an instruction that all of them
    /// execute together. They stay together until the block ends.
    pub(super) fn converge(&mut self, at: &Context<'_>, strict: bool) {
        if self.together == Some(self.current) {
            return;
        }
        let members = self.narrow(u32::MAX);
        let inst = self.collective_inst(at, pick_compact::<SyncWarp>(), [Field::Raw(0); 6]);
        let next = self.new_block();
        let kind = CollectiveKind::Whole { strict };
        let line = inst.line;
        self.finish(Terminator::Collective { inst, members, kind, next }, line, false);
        self.current = next;
        self.together = Some(next);
    }

    fn bra(&mut self, at: &mut Context<'_>) -> Result<()> {
        at.take("uni");
        let [Operand::Name(label)] = at.operands()? else {
            return Err(at.bad_operands("it takes a label"));
        };
        let target = match self.find(label) {
            Some(Binding::Label(target)) => target,
            Some(_) => return Err(at.bad_operands(&format!("`{label}` is not a label"))),
            None => {
                return Err(LoadError::Undeclared { line: at.inst.line, name: label.clone() });
            }
        };
        match at.guard.take() {
            None => self.finish(Terminator::Goto(target), at.inst.line, true),
            Some((predicate, negated)) => {
                let next = self.new_block();
                let end = Terminator::Branch { predicate, negated, taken: target, next };
                self.finish(end, at.inst.line, true);
                self.current = next;
            }
        }
        Ok(())
    }

    fn barrier(&mut self, base: &str, at: &mut Context<'_>) -> Result<()> {
        if base == "bar" && at.take("warp") {
            at.take("sync");
            let [mask] = at.operands()?;
            let members = self.src(at, mask, Ty::U32)?;
            let run = pick_compact::<SyncWarp>();
            let inst = self.collective_inst(at, run, [Field::Raw(0); 6]);
            self.end_collective(inst, members, CollectiveKind::Barrier);
            return Ok(());
        }
        if at.take("cluster") {
            return self.cluster_barrier(at);
        }
        at.take("cta");
        let aligned = at.take("aligned") || base == "bar";
        let operands = at.inst.operands.as_slice();
        let id = self.src(at, at.operand(0)?, Ty::U32);
        let (mut dst, mut src, mut count) = (None, None, None);
        let (kind, id) = match at.take_one(&["sync", "arrive", "red"]) {
            Some(0) => {
                if operands.len() > 2 {
                    return Err(at.bad_operands("it takes 1 or 2"));
                }
                count = operands.get(1);
                (BarrierKind::Sync, id?)
            }
            Some(1) => {
                count = Some(at.operand(1)?);
                (BarrierKind::Arrive, id?)
            }
            Some(_) => {
                let ty = at.ty()?;
                let kind = match at.take_one(&["popc", "and", "or"]) {
                    Some(0) => BarrierKind::Popc,
                    Some(1) => BarrierKind::And,
                    Some(_) => BarrierKind::Or,
                    None => return Err(at.unsupported("its reduction is unknown")),
                };
                let (d, id, rest) = match operands {
                    [d, id, rest @ ..] if !rest.is_empty() && rest.len() <= 2 => (d, id, rest),
                    _ => return Err(at.bad_operands("it takes 3 or 4")),
                };
                if rest.len() == 2 {
                    count = Some(&rest[0]);
                }
                src = Some(self.predicate(at, &rest[rest.len() - 1])?);
                let want = if kind == BarrierKind::Popc { 32 } else { 1 };
                if ty.bits != want {
                    return Err(at.unsupported("its type does not fit its reduction"));
                }
                dst = Some(self.dst(at, d, ty)?);
                (kind, self.src(at, id, Ty::U32)?)
            }
            None => return Err(at.unsupported("it needs `.sync`, `.arrive` or `.red`")),
        };
        let count = match count {
            Some(count) => Some(self.src(at, count, Ty::U32)?),
            None => None,
        };
        let next = self.new_block();
        let end = Terminator::Barrier { kind, aligned, id, count, dst, src, next };
        self.finish(end, at.inst.line, true);
        self.current = next;
        Ok(())
    }

    fn collective_inst(&self, at: &Context<'_>, run: OpFn, fields: [Field; 6]) -> Inst {
        let kind = InstKind::Plain;
        Inst {
            run,
            fields,
            extra: Vec::new(),
            parts: Vec::new(),
            line: at.inst.line,
            guard: None,
            kind,
        }
    }

    fn end_collective(&mut self, inst: Inst, members: V, kind: CollectiveKind) {
        let next = self.new_block();
        let line = inst.line;
        self.finish(Terminator::Collective { inst, members, kind, next }, line, true);
        self.current = next;
    }

    fn collective(&mut self, base: &str, at: &mut Context<'_>) -> Result<()> {
        if !at.take("sync") {
            return Err(at.unsupported("only the `.sync` form exists since sm_70"));
        }
        let (raw, none) = (Field::Raw, Field::Raw(NO_SLOT));
        let b32 = Ty::B32;
        let mut fields = [raw(0), raw(0), raw(0), raw(0), raw(0), none];
        let (run, members, kind);
        // A destination `d|p`.
        let split = |operand: &'_ Operand| match operand {
            Operand::Pair(d, p) => ((**d).clone(), Some((**p).clone())),
            one => (one.clone(), None),
        };
        match base {
            "shfl" => {
                let Some(mode) = at.take_one(&SHUFFLES) else {
                    return Err(at.unsupported("its mode is unknown"));
                };
                at.ty()?;
                let [d, a, b, c, mask] = at.operands()?;
                for (field, operand) in [(1, a), (2, b), (3, c)] {
                    fields[field] = Field::Use(self.src(at, operand, b32)?);
                }
                members = self.src(at, mask, b32)?;
                let (d, p) = split(d);
                if let Some(p) = p {
                    fields[5] = Field::Def(self.dst(at, &p, PREDICATE)?);
                }
                fields[0] = Field::Def(self.dst(at, &d, b32)?);
                fields[4] = raw(mode as u32);
                kind = CollectiveKind::Shuffle(mode as u32);
                run = pick_compact::<Shuffle>();
            }
            "vote" => {
                let Some(mode) = at.take_one(&VOTES) else {
                    return Err(at.unsupported("its mode is unknown"));
                };
                at.ty()?;
                let [d, p, mask] = at.operands()?;
                let (p, negated) = self.predicate(at, p)?;
                members = self.src(at, mask, b32)?;
                let ty = if VOTES[mode] == "ballot" { b32 } else { PREDICATE };
                fields[0] = Field::Def(self.dst(at, d, ty)?);
                fields[1] = Field::Use(p);
                fields[4] = raw(mode as u32 | u32::from(negated) << 2);
                kind = CollectiveKind::Vote(mode as u32);
                run = pick_compact::<Vote>();
            }
            "match" => {
                let Some(all) = at.take_one(&["any", "all"]) else {
                    return Err(at.unsupported("it needs `.any` or `.all`"));
                };
                let ty = at.ty()?;
                if ty.bits < 32 {
                    return Err(at.unsupported("it is not available for this type"));
                }
                let [d, a, mask] = at.operands()?;
                fields[1] = Field::Use(self.src(at, a, ty)?);
                members = self.src(at, mask, b32)?;
                let (d, p) = split(d);
                if let Some(p) = p {
                    fields[5] = Field::Def(self.dst(at, &p, PREDICATE)?);
                }
                fields[0] = Field::Def(self.dst(at, &d, b32)?);
                fields[4] = raw(all as u32);
                let wide = ty.class() == Class::Wide;
                kind = CollectiveKind::Match(all == 1, wide);
                run = match wide {
                    true => pick_compact::<Match<u64>>(),
                    false => pick_compact::<Match<u32>>(),
                };
            }
            "redux" => {
                let ty = at.ty()?;
                let Some(op) = at.take_one(&REDUCTIONS).filter(|_| ty.is_int()) else {
                    return Err(at.unsupported("its operation is unknown"));
                };
                let [d, a, mask] = at.operands()?;
                fields[1] = Field::Use(self.src(at, a, b32)?);
                members = self.src(at, mask, b32)?;
                fields[0] = Field::Def(self.dst(at, d, b32)?);
                let mode = op as u32 | u32::from(ty.signed()) << 3;
                fields[4] = raw(mode);
                kind = CollectiveKind::Redux(mode);
                run = pick_compact::<Redux>();
            }
            _ => {
                let [d, mask] = at.operands()?;
                let (Operand::Name(_), Some(p)) = split(d) else {
                    return Err(at.bad_operands("its destination is `d|p`"));
                };
                members = self.src(at, mask, b32)?;
                fields[5] = Field::Def(self.dst(at, &p, PREDICATE)?);
                fields[0] = match split(d).0 {
                    Operand::Name(name) if name == "_" => none,
                    d => Field::Def(self.dst(at, &d, b32)?),
                };
                kind = CollectiveKind::Elect;
                run = pick_compact::<Elect>();
            }
        }
        let inst = self.collective_inst(at, run, fields);
        self.end_collective(inst, members, kind);
        Ok(())
    }
}
