//! The checks of accesses of device memory.

use std::sync::Arc;

use super::access::{AccessKind, Conflict, Site};
use super::checker::{Checker, RECENT};
use super::lanes::AlignedLanes;
use super::machine::{FULL, LANES, bits};
use super::packed::{mbarrier_of, time_of};
use super::recorder::WarpFault;
use crate::fault::{AddressSpace, Earlier, FaultKind};
use crate::memory::Allocation;

impl Checker<'_> {
    /// Checks and notes plain loads from device memory at `addresses`, each `more` bytes on, by
    /// instruction number `number`.
    #[inline(always)]
    pub(crate) fn global_loads(
        &mut self,
        (warp, mask): (usize, u32),
        (number, site): (u32, Site),
        (addresses, more): (&[u64; LANES], u64),
    ) -> Result<(), (u32, FaultKind)> {
        if self.plain_loads((warp, mask), (number, site), (addresses, more)) {
            return Ok(());
        }
        let addresses = addresses.map(|address| address.wrapping_add(more));
        self.globals((warp, mask), site, &addresses, &|_, _| false)
    }

    /// Checks and notes accesses of device memory at `addresses`. `same` is as in
    /// [`shared`](Checker::shared).
    pub(crate) fn globals(
        &mut self,
        (warp, mask): (usize, u32),
        site: Site,
        addresses: &[u64; LANES],
        same: &dyn Fn(usize, usize) -> bool,
    ) -> Result<(), (u32, FaultKind)> {
        if mask == FULL && self.whole_groups(warp, site, addresses) {
            return Ok(());
        }
        for lane in bits(mask) {
            let result =
                self.global((warp, lane), site, addresses[lane], |other| same(lane, other));
            result.map_err(|kind| (lane as u32, kind))?;
        }
        Ok(())
    }

    /// Checks and notes plain loads or stores of a whole warp that access groups of words, all of
    /// them written if it loads them. Returns `false`, and has noted nothing, if it is not that
    /// simple.
    #[inline(always)]
    fn whole_groups(&mut self, warp: usize, site: Site, addresses: &[u64; LANES]) -> bool {
        let store = site.kind == AccessKind::Store;
        if self.quiet || !store && site.kind != AccessKind::Load {
            return false;
        }
        let Some(index) = self.find(site.line, addresses[0]) else { return false };
        if !self.is_after_prior(warp, index) {
            return false;
        }
        let allocation = &self.snapshot.all()[index];
        let (place, base) = ((index, allocation.size), allocation.base);
        let end = allocation.size.saturating_sub(site.bytes.into());
        let offsets = addresses.map(|address| address.wrapping_sub(base));
        if offsets.iter().any(|&offset| offset > end) {
            return false;
        }
        let written = allocation.written.as_ref().filter(|_| self.launch.checks.memory);
        let bytes = u64::from(site.bytes);
        let lanes = offsets.iter().zip(0..);
        let row = lanes
            .fold(0, |differ, (at, lane)| differ | (at.wrapping_sub(offsets[0]) ^ (lane * bytes)))
            == 0;
        let each = |f: &dyn Fn(u64, u64) -> bool| match row {
            true => f(offsets[0], LANES as u64 * bytes),
            false => offsets.iter().all(|&offset| f(offset, bytes)),
        };
        if !store && !written.is_none_or(|written| each(&|at, n| written.covers(at, n))) {
            return false;
        }
        let by_word = self.launch.global.by_word(index);
        if store || by_word {
            self.put_loads_of(index);
        }
        if store && !by_word {
            self.launch.global.use_words(place);
        }
        let noted = self.launch.global.access_groups(&self.known, place, warp, site, &offsets);
        if noted
            && store
            && let Some(written) = written
        {
            each(&|at, n| {
                written.mark(at, n);
                true
            });
        }
        noted
    }

    /// Whether all that a warp does with an allocation comes after the launch in front and after
    /// all other streams.
    #[inline(always)]
    fn is_after_prior(&self, warp: usize, index: usize) -> bool {
        let comes_after = || self.known.common(warp, self.known.agents.prior()) != 0;
        !self.launch.is_beside[index] && (self.launch.front.is_none() || comes_after())
    }

    /// The access by the launch in front, or by another stream, with which that of a lane races.
    #[inline(never)]
    fn prior_conflict(
        &self,
        (warp, lane): (usize, usize),
        site: Site,
        address: u64,
    ) -> Option<Earlier> {
        if self.quiet {
            return None;
        }
        let has_waited = || self.known.knows(warp, lane, self.known.agents.prior(), 1);
        let front = self.launch.front.as_ref().filter(|_| !has_waited());
        let front = front.and_then(|prior| prior.conflict(address, site));
        front.or_else(|| {
            let mut beside = self.launch.beside.iter();
            let found = beside.find_map(|prior| prior.conflict(address, site))?;
            Some(Earlier { is_beside: true, ..found })
        })
    }

    /// Notes loads of one allocation that holds nothing to be checked, by instruction number
    /// `number`. Returns `false` if it is not that simple.
    #[inline(always)]
    pub(crate) fn plain_loads(
        &mut self,
        (warp, mask): (usize, u32),
        (number, site): (u32, Site),
        (addresses, more): (&[u64; LANES], u64),
    ) -> bool {
        let first = addresses[mask.trailing_zeros() as usize].wrapping_add(more);
        let Some(index) = self.find(site.line, first) else { return false };
        if !self.is_after_prior(warp, index) {
            return false;
        }
        let allocation = &self.snapshot.all()[index];
        let Some(last) = allocation.size.checked_sub(site.bytes.into()) else { return false };
        let base = allocation.base.wrapping_sub(more);
        // Changed in place: a loop over both arrays is not compiled to vectors.
        let (mut offsets, mut signs) = (AlignedLanes(*addresses), 0);
        for offset in &mut offsets.0 {
            *offset = offset.wrapping_sub(base);
            signs |= *offset | last.wrapping_sub(*offset);
        }
        let offsets = &offsets.0;
        // No allocation is so large that a difference is of another sign.
        let inside = signs >> 63 == 0 || bits(mask).all(|lane| offsets[lane] <= last);
        if !inside || !allocation.written.as_ref().is_none_or(|written| written.whole()) {
            return false;
        }
        if self.launch.global.by_word(index) {
            self.put_loads_of(index);
            let allocation = (index, allocation.size);
            let (known, by) = (&self.known, (warp, mask));
            return self.launch.global.note_loads(known, allocation, by, site, offsets);
        }
        let by = ((warp, mask), self.known.place(warp));
        let time = time_of(&self.known, warp, site.kind);
        // The stages of a pipeline have mbarriers of their own.
        let number = match site.kind {
            AccessKind::AsyncLoad => number.wrapping_add(mbarrier_of(time)),
            _ => number,
        };
        self.loads.note(index, (number, site), by, (time, offsets));
        if self.loads.is_long() {
            self.put_loads();
        }
        true
    }

    /// If there are loads from an allocation on the log, puts all of that where other clusters
    /// find it.
    #[inline(always)]
    fn put_loads_of(&mut self, index: usize) {
        if self.loads.has(index) {
            self.put_loads();
        }
    }

    /// Puts the loads on the log where other clusters find them.
    #[inline(never)]
    pub(crate) fn put_loads(&mut self) {
        for (index, record) in self.loads.take() {
            let allocation = &self.snapshot.all()[index];
            let (site, warp, place) = (record.site, record.warp, (index, allocation.size));
            let Err((lane, offset, conflict)) = self.launch.global.put(&self.known, place, record)
            else {
                continue;
            };
            let race = matches!(conflict, Conflict::Race(_));
            if if race { self.launch.checks.races } else { self.launch.checks.memory } {
                let kind = self.global_fault(conflict, site, allocation, offset);
                let fault = WarpFault { lane: lane as u32, line: site.line, kind };
                self.late.push((warp as u32, fault));
            }
        }
    }

    /// The end of the cluster: the loads that turned out to be races, by warp.
    pub(crate) fn finish(&mut self) -> Vec<(u32, WarpFault)> {
        self.put_loads();
        std::mem::take(&mut self.late)
    }

    #[cold]
    fn global_fault(
        &self,
        conflict: Conflict,
        site: Site,
        allocation: &Allocation,
        offset: u64,
    ) -> FaultKind {
        let place = global_place(allocation, offset);
        self.fault(conflict, site, AddressSpace::Global, allocation.base + offset, place)
    }

    /// The place in the snapshot of the allocation that contains `address`, for the instruction at
    /// PTX line `line`.
    #[inline(always)]
    fn find(&mut self, line: u32, address: u64) -> Option<usize> {
        let all = self.snapshot.all();
        let recent = &mut self.recent[line as usize % RECENT];
        let inside = |of: &Arc<Allocation>| address.wrapping_sub(of.base) < of.size;
        if all.get(*recent).is_some_and(inside) {
            return Some(*recent);
        }
        let found = self.snapshot.index_of(address)?;
        *recent = found;
        Some(found)
    }

    /// Checks and notes an access of device memory by one lane.
    pub(crate) fn global(
        &mut self,
        (warp, lane): (usize, usize),
        site: Site,
        address: u64,
        same: impl Fn(usize) -> bool,
    ) -> Result<(), FaultKind> {
        // What lies nowhere is the access's own fault.
        let Some(index) = self.find(site.line, address) else { return Ok(()) };
        let allocation = &self.snapshot.all()[index];
        let offset = address - allocation.base;
        if offset + u64::from(site.bytes) > allocation.size {
            return Ok(());
        }
        if !self.is_after_prior(warp, index)
            && let Some(earlier) = self.prior_conflict((warp, lane), site, address)
        {
            let (space, place) = (AddressSpace::Global, global_place(allocation, offset));
            let (access, earlier) = (site.kind.access(), Box::new(earlier));
            return Err(FaultKind::DataRace { space, address, place, access, earlier });
        }
        if site.kind.writes() || self.launch.global.by_word(index) {
            self.put_loads_of(index);
        }
        if site.kind.writes() && !self.launch.global.by_word(index) {
            self.launch.global.use_words((index, allocation.size));
        }
        let conflict = 'found: {
            let checks = self.launch.checks;
            if checks.memory
                && let Some(written) = &allocation.written
            {
                let quiet = self.quiet || !site.kind.reads();
                if !quiet && !written.covers(offset, site.bytes.into()) {
                    break 'found Conflict::Uninitialised;
                }
                if site.kind.writes() && !site.kind.pending() {
                    written.mark(offset, site.bytes.into());
                }
            }
            let place = (index, allocation.size);
            let shadow = &self.launch.global;
            match shadow.access(&self.known, place, (warp, lane), (site, self.quiet), offset, same)
            {
                Err(Conflict::Race(_)) if !checks.races => return Ok(()),
                Err(Conflict::ReadOnlyCache(_)) if !checks.memory => return Ok(()),
                Err(conflict) => conflict,
                Ok(()) => return Ok(()),
            }
        };
        Err(self.global_fault(conflict, site, allocation, offset))
    }
}

fn global_place(&Allocation { base, size, .. }: &Allocation, offset: u64) -> String {
    format!("byte {offset} of the {size}-byte allocation at {base:#x}")
}
