//! Instructions of Hopper: `mbarrier` and bulk copies.

use super::address::{Address, space_number};
use super::context::{Context, Result};
use super::ir::InstKind;
use super::ir::{Field, Terminator, V};
use super::lowering::Lowering;
use super::ty::{Kind, Ty};
use crate::exec::check_register::SetMaxRegisters;
use crate::exec::mbarrier::{ACTIONS, Action, FenceInit, Mbarrier};
use crate::exec::racecheck::RaceCheck;
use crate::exec::rmw::{OPERATIONS, Reduction};
use crate::exec::{NO_SLOT, bulk, pick, pick_compact};
use crate::ptx::ast::{Operand, Space};

/// Dimensions of a tensor, as a modifier says them; the rank is the index plus 1.
const RANKS: [&str; 5] = ["1d", "2d", "3d", "4d", "5d"];
const COMPLETE_TX: &str = "mbarrier::complete_tx::bytes";

impl Lowering<'_> {
    /// Fails unless the module is written for `sm` or newer.
    pub(super) fn since(&self, at: &Context<'_>, sm: u32) -> Result<()> {
        if self.module.targets(sm) {
            return Ok(());
        }
        Err(at.unsupported(&format!(
            "it needs `.target sm_{sm}` or newer, but the module is for `{}`",
            self.module.target
        )))
    }

    /// `setmaxnreg`: registers are not allocated here, so it only has to be right.
    pub(super) fn setmaxnreg(&mut self, at: &mut Context<'_>) -> Result<()> {
        if self.module.target != "sm_90a" {
            self.since(at, 100)?;
        }
        let known = at.take_one(&["inc", "dec"]).is_some() && at.take("sync") && at.take("aligned");
        if !known || at.ty()? != (Ty { kind: Kind::Unsigned, bits: 32 }) {
            return Err(at.unsupported("it needs `.inc` or `.dec`, and `.sync.aligned.u32`"));
        }
        match at.operands()? {
            [Operand::Int(n @ 24..=256)] if n % 8 == 0 => {}
            _ => return Err(at.bad_operands("it takes a multiple of 8 from 24 to 256")),
        }
        if self.checks.sync {
            self.converge(at, false);
            let mut fields = [Field::Raw(0); 6];
            fields[4] = Field::Raw(at.inst.line);
            let run = pick_compact::<SetMaxRegisters>();
            self.emit(at, run, fields).kind = InstKind::Check;
        }
        Ok(())
    }

    /// An address operand as further operands of an operation.
    fn place(&self, address: &Address) -> [Field; 4] {
        let raw = Field::Raw;
        [
            Field::Use(address.base),
            raw(address.wide.into()),
            raw(address.offset),
            raw(space_number(address.space)),
        ]
    }

    /// What a fence between threads and asynchronous copies is checked for.
    pub(super) fn fence_init(&mut self, at: &Context<'_>) {
        if self.checks.sync {
            self.emit(at, pick_compact::<FenceInit>(), [Field::Raw(0); 6]).kind = InstKind::Check;
        }
    }

    /// Everything about an mbarrier but waiting for it.
    pub(super) fn mbarrier(&mut self, at: &mut Context<'_>) -> Result<()> {
        const NAMES: [&str; 5] = ["init", "inval", "arrive", "expect_tx", "complete_tx"];
        let arrives = at.take("arrive");
        let action = match (arrives, at.take_one(&NAMES).map(|which| NAMES[which])) {
            (true, None) => Action::Arrive,
            (true, Some("expect_tx")) => Action::ArriveExpectTx,
            (false, Some("init")) => Action::Init,
            (false, Some("inval")) => Action::Inval,
            (false, Some("expect_tx")) => Action::ExpectTx,
            (false, Some("complete_tx")) => Action::CompleteTx,
            _ => return Err(at.unsupported("this operation is unknown")),
        };
        self.since(
            at,
            if matches!(action, Action::Init | Action::Inval | Action::Arrive) { 80 } else { 90 },
        )?;
        let release = !at.take("relaxed");
        at.take_all(|m| ["release", "cta", "cluster"].contains(&m));
        let space = self.space(at);
        if at.ty()? != Ty::B64 {
            return Err(at.unsupported("it takes `.b64`"));
        }
        let raw = Field::Raw;
        let operands = at.inst.operands.as_slice();
        let (state, operands) = match operands {
            [state, rest @ ..] if arrives => (Some(state), rest),
            all => (None, all),
        };
        let (address, operand) = match (action, operands) {
            (Action::Inval | Action::Arrive, [address]) => (address, None),
            (Action::Inval, _) => return Err(at.bad_operands("it takes an address")),
            (_, [address, operand]) => (address, Some(operand)),
            _ => return Err(at.bad_operands("it takes an address and a number")),
        };
        let address = self.address(at, address, space)?;
        let operand = match operand {
            Some(operand) => Field::Use(self.src(at, operand, Ty::U32)?),
            None => raw(NO_SLOT),
        };
        let state = match state {
            Some(Operand::Name(name)) if name != "_" => {
                Field::Def(self.dst(at, &Operand::Name(name.clone()), Ty::B64)?)
            }
            Some(Operand::Name(_)) | None => raw(NO_SLOT),
            Some(_) => return Err(at.bad_operands("it takes a register for the state, or `_`")),
        };
        let number = ACTIONS.iter().position(|&a| a == action).unwrap_or(0) as u32;
        let fields = [state, Field::Use(address.base), operand, raw(0), raw(0), raw(number)];
        let space = space_number(address.space);
        let line = at.inst.line;
        let extra = [address.offset, space, address.wide.into(), release.into(), line];
        let run = pick_compact::<Mbarrier>();
        self.emit_extra(at, run, fields, extra.into_iter().map(raw).collect());
        Ok(())
    }

    /// `mbarrier.test_wait` and `mbarrier.try_wait`.
    pub(super) fn mbarrier_wait(&mut self, at: &mut Context<'_>) -> Result<()> {
        let tries = at.take_one(&["try_wait", "test_wait"]) == Some(0);
        self.since(at, if tries { 90 } else { 80 })?;
        let parity = at.take("parity");
        let acquire = !at.take("relaxed");
        at.take_all(|m| ["acquire", "cta", "cluster"].contains(&m));
        let space = self.space(at);
        if space == Some(Space::SharedCluster) {
            return Err(at.unsupported("it waits for mbarriers of its own block: `.shared::cta`"));
        }
        if at.ty()? != Ty::B64 {
            return Err(at.unsupported("it takes `.b64`"));
        }
        let (dst, address, phase) = match at.inst.operands.as_slice() {
            [dst, address, phase] => (dst, address, phase),
            [dst, address, phase, hint] if tries => {
                self.src(at, hint, Ty::U32)?;
                (dst, address, phase)
            }
            _ => return Err(at.bad_operands("it takes a predicate, an address and a phase")),
        };
        let phase = self.src(at, phase, if parity { Ty::U32 } else { Ty::B64 })?;
        let address = self.address(at, address, space)?;
        let dst = self.dst(at, dst, Ty { kind: Kind::Predicate, bits: 1 })?;
        // In a block of its own: it is executed again until it succeeds.
        let (alone, next) = (self.new_block(), self.new_block());
        self.start(alone, at.inst.line);
        let space = space_number(address.space);
        let address = (address.base, address.wide, address.offset, space);
        let end = Terminator::Wait { address, phase, parity, acquire, dst, next };
        self.finish(end, at.inst.line, true);
        self.current = next;
        Ok(())
    }

    /// `cp.async.bulk`, of which `cp.async.bulk` has been claimed.
    pub(super) fn bulk(&mut self, at: &mut Context<'_>) -> Result<()> {
        self.since(at, 90)?;
        let raw = Field::Raw;
        if at.take("commit_group") {
            self.emit(at, pick_compact::<bulk::BulkCommit>(), [raw(0); 6]);
            return Ok(());
        }
        if at.take("wait_group") {
            let read = at.take("read");
            let [Operand::Int(left @ 0..=0xffff)] = at.operands()? else {
                return Err(at.bad_operands("the number of groups is a constant"));
            };
            let fields = [raw(0), raw(0), raw(0), raw(0), raw(*left as u32), raw(read.into())];
            self.emit(at, pick_compact::<bulk::BulkWait>(), fields);
            return Ok(());
        }
        let is_prefetch = at.take("prefetch");
        let (reduces, tensor) = (at.take("reduce"), at.take("tensor"));
        let rank = if tensor {
            at.take("tile");
            match at.take_one(&RANKS) {
                Some(rank) => rank + 1,
                None => return Err(at.unsupported("it needs the tensor's dimensions")),
            }
        } else {
            0
        };
        if let Some(unknown) = at.mods.iter().find(|m| stem(m) == "im2col") {
            return Err(at.unsupported(&format!("the modifier `.{unknown}` is unknown")));
        }
        // A hint: nothing to do, but the operands must make sense.
        if let (true, true, [from]) = (is_prefetch, tensor, at.inst.operands.as_slice()) {
            at.take_all(|m| ["L2", "global"].contains(&m));
            self.outer(at, from, rank)?;
            return Ok(());
        }
        // The order of the spaces says which way: destination first.
        let spaces: Vec<&str> =
            at.mods.iter().copied().filter(|m| *m == "global" || m.starts_with("shared")).collect();
        at.take_all(|m| ["global", "shared::cta", "shared::cluster"].contains(&m));
        let policy = at.take("L2::cache_hint");
        let multicast = at.take("multicast::cluster");
        let reduction = match (reduces, tensor) {
            (true, false) => bulk_reduction(at, spaces.first() == Some(&"global"))?.pack(),
            // The tensor map has the type.
            (true, true) => match operation(at) {
                Some(number) => number as u32 + 1,
                None => return Err(at.unsupported("it needs the operation of a reduction")),
            },
            (false, _) => 0,
        };
        let operands = match (policy, at.inst.operands.as_slice()) {
            (true, [operands @ .., policy]) => {
                self.src(at, policy, Ty::B64)?;
                operands
            }
            (_, operands) => operands,
        };
        match *spaces {
            ["shared::cta" | "shared::cluster", "global"] | ["shared::cluster", "shared::cta"]
                if !(reduces && spaces[1] == "global") && at.take(COMPLETE_TX) =>
            {
                let cluster = spaces[0] == "shared::cluster";
                let shared = Some(if cluster { Space::SharedCluster } else { Space::Shared });
                let (ranks, operands) = match (multicast, operands) {
                    (true, [operands @ .., ranks]) if cluster => {
                        let b16 = Ty { kind: Kind::Bits, bits: 16 };
                        (Field::Use(self.src(at, ranks, b16)?), operands)
                    }
                    (true, _) => return Err(at.unsupported("it copies to `.shared::cluster`")),
                    (false, operands) => (raw(NO_SLOT), operands),
                };
                let (dst, src, bytes, barrier) = match (tensor, operands) {
                    (true, [dst, src, barrier]) => (dst, src, None, barrier),
                    (false, [dst, src, bytes, barrier]) => (dst, src, Some(bytes), barrier),
                    _ => return Err(at.bad_operands("they are too many or too few")),
                };
                let dst = self.address(at, dst, shared)?;
                let (src, start) = match spaces[1] {
                    "global" => self.outer(at, src, rank)?,
                    _ if tensor || multicast => {
                        return Err(at.unsupported("tensors are copied from `.global`"));
                    }
                    _ => (self.address(at, src, Some(Space::Shared))?, Vec::new()),
                };
                let barrier = self.address(at, barrier, shared)?;
                let how = (bytes, ranks, reduction);
                self.bulk_copy(at, &[dst, src, barrier], how, &start)
            }
            ["global", "shared::cta"] if at.take("bulk_group") => {
                let (dst, src, bytes) = match (tensor, operands) {
                    (true, [dst, src]) => (dst, src, None),
                    (false, [dst, src, bytes]) => (dst, src, Some(bytes)),
                    _ => return Err(at.bad_operands("they are too many or too few")),
                };
                let (dst, start) = self.outer(at, dst, rank)?;
                let src = self.address(at, src, Some(Space::Shared))?;
                // Blocks may spin on what others add up.
                self.communicates |= reduces;
                let how = (bytes, raw(NO_SLOT), reduction);
                self.bulk_copy(at, &[dst, src], how, &start)
            }
            _ => Err(at.unsupported(&format!(
                "only copies from `.global` to shared memory, copies and reductions of plain bytes from `.shared::cta` to `.shared::cluster` with `.{COMPLETE_TX}`, and both from `.shared::cta` to `.global` with `.bulk_group`, are available"
            ))),
        }
    }

    /// The operand of a bulk copy in global memory: an address, or a tensor map
    /// and the coordinates in it.
    fn outer(
        &mut self,
        at: &Context<'_>,
        operand: &Operand,
        rank: usize,
    ) -> Result<(Address, Vec<V>)> {
        match operand {
            Operand::Tensor(map, offset, start) if start.len() == rank => {
                let map = Operand::Address(Some(map.clone()), *offset);
                let start: Result<_> = start.iter().map(|x| self.src(at, x, Ty::U32)).collect();
                Ok((self.address(at, &map, None)?, start?))
            }
            Operand::Address(..) if rank == 0 => {
                Ok((self.address(at, operand, Some(Space::Global))?, Vec::new()))
            }
            _ => Err(at.bad_operands("it takes a tensor map with as many coordinates as dimensions, or, without `.tensor`, an address")),
        }
    }

    /// Emits a copy to shared memory, which has three places, and ranks that it goes to or none,
    /// or from there. `reduction` is 0, a packed [`Reduction`], or for tensors the number of
    /// the operation plus 1.
    fn bulk_copy(
        &mut self,
        at: &Context<'_>,
        places: &[Address],
        (bytes, ranks, reduction): (Option<&Operand>, Field, u32),
        start: &[V],
    ) -> Result<()> {
        let raw = Field::Raw;
        let bytes = match bytes {
            Some(bytes) => Field::Use(self.src(at, bytes, Ty::U32)?),
            None => raw(NO_SLOT),
        };
        let run = match places {
            [_, _, _] => pick_compact::<bulk::Load>(),
            _ => pick_compact::<bulk::Save>(),
        };
        let mut extra: Vec<Field> = places.iter().flat_map(|place| self.place(place)).collect();
        extra.push(raw(at.inst.line));
        extra.push(raw(reduction));
        extra.extend(start.iter().map(|&v| Field::Use(v)));
        let fields = [raw(0), ranks, raw(0), bytes, raw(0), raw(start.len() as u32)];
        self.emit_extra(at, run, fields, extra);
        Ok(())
    }

    /// Before an access in a kernel with bulk copies: checks it against them.
    pub(super) fn race_check(&mut self, at: &Context<'_>, address: &Address, load: bool) {
        let shared = matches!(address.space, None | Some(Space::Shared | Space::SharedCluster));
        if !self.bulk || !shared {
            return;
        }
        let raw = Field::Raw;
        let generic = address.space.is_none();
        let fields = [
            raw(at.inst.line),
            Field::Use(address.base),
            raw(address.wide.into()),
            raw(generic.into()),
            raw(address.offset),
            raw(load.into()),
        ];
        let run = pick::<RaceCheck>(self.path);
        self.emit(at, run, fields).kind = InstKind::Check;
    }
}

/// Claims the operation and the type of a reduction, to device memory if `outer`, or else to shared
/// memory.
fn bulk_reduction(at: &mut Context<'_>, outer: bool) -> Result<Reduction> {
    let noftz = at.take("noftz");
    let ty = at.mods.pop().unwrap_or_default();
    let found = operation(at).map(|number| &OPERATIONS[number]);
    let reduction = found.and_then(|operation| operation.of(ty, outer));
    let (Some(operation), Some(reduction)) = (found, reduction) else {
        return Err(at.unsupported("its operation is not available for its type and destination"));
    };
    let half = ["f16", "bf16"].contains(&ty);
    if noftz != (half && operation.name == "add") {
        return Err(
            at.unsupported("`.noftz` belongs to `.add` of `.f16` and `.bf16`, and only there")
        );
    }
    Ok(reduction)
}

/// Claims the operation of a reduction, as its number in [`OPERATIONS`].
fn operation(at: &mut Context<'_>) -> Option<usize> {
    at.take_one(&OPERATIONS.map(|operation| operation.name))
}

/// What a modifier is called before its first `::`.
fn stem(modifier: &str) -> &str {
    modifier.split("::").next().unwrap_or(modifier)
}
