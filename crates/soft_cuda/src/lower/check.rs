//! The checks around accesses of memory.

use super::address::{Address, space_number};
use super::context::Context;
use super::ir::{Field, InstKind, V};
use super::lowering::Lowering;
use crate::exec::access::AccessKind;
use crate::exec::check_access::{
    ACQUIRES, CheckAccess, CheckGlobalLoad, CheckSharedLoad, Extent, Observe,
};
use crate::exec::{NO_SLOT, pick, pick_compact};
use crate::ptx::ast::Space;

/// What is checked of an access: its kind, the bytes of one element, and how many there are.
/// `values` are what a store writes, or the operands of an atomic with an `extent`; `wide` says
/// whether they have 64 bits. `low` is what the address was rounded down by (see [`super::words`]).
pub(super) struct Accessed<'a> {
    pub kind: AccessKind,
    pub element: u32,
    pub count: u32,
    pub values: &'a [Field],
    pub wide: bool,
    pub extent: Extent,
    pub low: Option<V>,
}

impl Lowering<'_> {
    /// Before an access: checks it.
    pub(super) fn check_access(&mut self, at: &Context<'_>, address: &Address, of: &Accessed<'_>) {
        self.race_check(at, address, !of.kind.writes());
        let shared = matches!(address.space, Some(Space::Shared | Space::SharedCluster));
        self.communicates |= of.kind.strong() && !shared;
        if !self.checks.accesses() || matches!(address.space, Some(Space::Param | Space::Const)) {
            return;
        }
        let granule = if of.low.is_some() { 0 } else { of.element.trailing_zeros() };
        if !matches!(address.space, Some(Space::Global)) {
            self.granule.shared = self.granule.shared.min(granule);
        }
        if !shared {
            let of_kind = match of.kind.writes() {
                true => &mut self.granule.writes,
                false => &mut self.granule.loads,
            };
            *of_kind = granule.min(*of_kind);
        }
        self.granule.partial |= of.extent != Extent::All;
        let plain = matches!(of.kind, AccessKind::Load | AccessKind::ReadOnly);
        let fast = match (address.space, address.wide) {
            (Some(Space::Shared), false) if plain => Some(pick::<CheckSharedLoad>(self.path)),
            (Some(Space::Global), true) if plain => Some(pick::<CheckGlobalLoad>(self.path)),
            _ => None,
        };
        if let Some(run) = fast {
            let raw = Field::Raw;
            let (line, bytes) = (raw(at.inst.line), raw(of.element * of.count));
            let read_only = raw((of.kind == AccessKind::ReadOnly).into());
            let base = Field::Use(address.base);
            self.checked_loads += 1;
            let number = raw(self.checked_loads);
            let fields = [line, base, read_only, number, raw(address.offset), bytes];
            self.emit(at, run, fields).kind = match shared {
                true => InstKind::CheckSharedLoad,
                false => InstKind::Check,
            };
            return;
        }
        let run = pick::<CheckAccess>(self.path);
        self.emit_check(at, address, (of, 0), run);
    }

    /// After a strong load or an atomic. `acquires` says whether it acquires what it reads, and if
    /// so, whether from blocks of the whole grid.
    pub(super) fn observe(
        &mut self,
        at: &Context<'_>,
        address: &Address,
        of: &Accessed<'_>,
        acquires: Option<bool>,
    ) {
        if self.checks.races && of.kind.strong() && of.kind.reads() {
            let number = ACQUIRES.iter().position(|&each| each == acquires).unwrap_or(0);
            self.emit_check(at, address, (of, number as u32), pick_compact::<Observe>());
        }
    }

    fn emit_check(
        &mut self,
        at: &Context<'_>,
        address: &Address,
        (of, y): (&Accessed<'_>, u32),
        run: crate::exec::OpFn,
    ) {
        let raw = Field::Raw;
        let words = [
            address.offset,
            space_number(address.space),
            address.wide.into(),
            of.element * of.count,
            of.kind.number(),
            at.inst.line,
            of.values.len() as u32,
            of.wide.into(),
            of.extent.number(),
        ];
        let low = of.low.map_or(raw(NO_SLOT), Field::Use);
        let extra = words.into_iter().map(raw).chain([low]).chain(of.values.iter().copied());
        let extra = extra.collect();
        let fields = [raw(0), Field::Use(address.base), raw(0), raw(0), raw(0), raw(y)];
        self.emit_extra(at, run, fields, extra).kind = InstKind::Check;
    }
}
