//! Named barriers: `bar` and `barrier`.

use super::block::{BlockError, Worker};
use super::code::{Barrier, BarrierKind};
use super::machine::{ALL_BARRIERS, BARRIERS, FULL, LANES, NO_SLOT, bits};
use super::split::{Split, State};
use crate::fault::FaultKind;

/// Warps of a warpgroup.
const WARPGROUP: usize = 4;

impl<'k> Worker<'k> {
    /// The splits that wait at a barrier of the block with a rank.
    fn at_barriers(&self, rank: usize) -> impl Iterator<Item = (usize, usize, Split, &'k Barrier)> {
        let code = self.launch.code;
        self.warps_of(rank).flat_map(move |w| {
            self.warps[w].splits.iter().enumerate().filter_map(move |(s, split)| {
                let State::Barrier(index) = split.state else { return None };
                let barrier = &code.barriers[index as usize];
                (!barrier.kind.is_of_cluster()).then_some((w, s, *split, barrier))
            })
        })
    }

    /// A register lane of some warp.
    fn register(&self, warp: usize, slot: u32, lane: u32) -> u32 {
        let at = warp * self.stride + slot as usize;
        // SAFETY: `slot` is a slot of 32-bit lanes of this kernel.
        unsafe {
            let file = self.registers.start().add(at);
            *file.cast::<u32>().add(lane as usize)
        }
    }

    /// The barrier number and thread count that a waiting split gave.
    fn operands(
        &self,
        (warp, split, barrier): (usize, Split, &Barrier),
    ) -> Result<(u32, Option<u32>), BlockError> {
        if barrier.kind == BarrierKind::Warpgroup {
            return Ok(self.warpgroup(warp));
        }
        let lane = split.mask.trailing_zeros();
        let bad = |reason| Err(self.fault(warp, split, FaultKind::BadBarrier { reason }));
        let id = self.register(warp, barrier.id, lane);
        if id >= BARRIERS {
            return bad(format!("its number is {id}, but only 0 to {} exist", BARRIERS - 1));
        }
        if bits(split.mask).any(|lane| self.register(warp, barrier.id, lane as u32) != id) {
            return bad("the threads of a warp name different barriers".to_owned());
        }
        if barrier.count == NO_SLOT {
            return Ok((id, None));
        }
        let count = self.register(warp, barrier.count, lane);
        if count == 0 || !count.is_multiple_of(LANES as u32) {
            return bad(format!("its thread count is {count}, but must be a multiple of 32"));
        }
        Ok((id, Some(count)))
    }

    /// The barrier of the warpgroup of a warp, and the threads of its warps that have not exited.
    fn warpgroup(&self, warp: usize) -> (u32, Option<u32>) {
        let group = warp % self.launch.warps() / WARPGROUP;
        let first = warp - warp % self.launch.warps() % WARPGROUP;
        let warps = self.warps[first..].iter().take(WARPGROUP);
        let live = warps.filter(|warp| warp.live != 0).count();
        (BARRIERS + group as u32, Some((live * LANES) as u32))
    }

    /// Lets the threads of all barriers that are complete go on. Returns
    /// whether there were any.
    pub(super) fn complete_barriers(&mut self) -> Result<bool, BlockError> {
        let mut any = false;
        for rank in 0..self.blocks() {
            any |= self.complete_barriers_of(rank)?;
        }
        Ok(any)
    }

    /// The same for the block with a rank.
    fn complete_barriers_of(&mut self, rank: usize) -> Result<bool, BlockError> {
        let mut any = self.take_arrivals(rank)?;
        for id in 0..ALL_BARRIERS {
            let mut here = Vec::new();
            let mut expected = None;
            for (warp, index, split, barrier) in self.at_barriers(rank) {
                let (its, count) = self.operands((warp, split, barrier))?;
                if its == id {
                    here.push((warp, index, split, *barrier));
                    self.same_count(warp, split, expected, count, here.len() == 1)?;
                    expected = expected.or(count);
                }
            }
            if here.is_empty() {
                continue;
            }
            let warps = &self.warps[self.warps_of(rank)];
            let live: u32 = warps.iter().map(|warp| warp.live.count_ones()).sum();
            let done = match expected {
                None => {
                    here.iter().map(|(_, _, split, _)| split.mask.count_ones()).sum::<u32>() == live
                }
                Some(count) => self.arrived((rank, id), &here) >= count,
            };
            if !done {
                continue;
            }
            if let Some(count) = expected
                && self.cx.checks.sync
                && self.arrived((rank, id), &here) > count
            {
                let (warp, _, split, _) = here[here.len() - 1];
                let arrived = self.arrived((rank, id), &here);
                let reason = format!("{arrived} threads are at barrier {id}, which counts {count}");
                return Err(self.fault(warp, split, FaultKind::BadBarrier { reason }));
            }
            let apart = here.iter().find(|&&(warp, _, split, barrier)| {
                let together =
                    here.iter().filter(|other| other.0 == warp && other.2.pc == split.pc);
                let together = together.fold(0, |mask, other| mask | other.2.mask);
                barrier.aligned && together != self.warps[warp].live
            });
            if let Some(&(warp, _, split, _)) = apart {
                if self.warps[warp].ready() {
                    // The other lanes may still come.
                    continue;
                }
                let waiting = self.waiting(warp);
                return Err(self.fault(warp, split, FaultKind::BarrierDivergence { waiting }));
            }
            self.reduce(&here);
            self.arrivals[rank * ALL_BARRIERS as usize + id as usize] = 0;
            self.expiries = 0;
            match id < BARRIERS {
                true => self.order(&here, (rank, id), expected.is_none()),
                false => {
                    // A wait for a product orders nothing but that product, for all its warps.
                    let warps: Vec<usize> = here.iter().map(|&(warp, ..)| warp).collect();
                    self.cx.order.complete_products(&warps);
                    if let Some(checker) = &mut self.cx.checker {
                        checker.known.complete_products(&warps);
                    }
                }
            }
            // From the back, so that removing one split moves none that is still to come.
            for &(warp, index, _, barrier) in here.iter().rev() {
                self.warps[warp].resume(index, barrier.next);
            }
            any = true;
        }
        Ok(any)
    }

    /// What those did that leave a barrier together comes before what they do next. `all` says
    /// whether nobody else in the block is left.
    fn order(&mut self, here: &[(usize, usize, Split, Barrier)], barrier: (usize, u32), all: bool) {
        self.cx.order.sync(here.iter().map(|&(warp, ..)| warp), barrier);
        if let Some(checker) = &mut self.cx.checker {
            let lanes: Vec<_> = here
                .iter()
                .map(|&(warp, _, split, _)| (warp, split.mask, split.mask == self.warps[warp].live))
                .collect();
            checker.known.sync(&lanes, barrier, all);
        }
    }

    /// Fails if a thread gives another count for a barrier than those before it, unless it is the
    /// first.
    fn same_count(
        &self,
        warp: usize,
        split: Split,
        expected: Option<u32>,
        count: Option<u32>,
        first: bool,
    ) -> Result<(), BlockError> {
        let all = self.launch.warps() as u32 * LANES as u32;
        let [expected, count] = [expected, count].map(|count| count.unwrap_or(all));
        if first || expected == count || !self.cx.checks.sync {
            return Ok(());
        }
        let reason = format!("it is for {count} threads here, and for {expected} elsewhere");
        Err(self.fault(warp, split, FaultKind::BadBarrier { reason }))
    }

    /// Threads at a barrier with a count: whole warps count as 32.
    fn arrived(&self, (rank, id): (usize, u32), here: &[(usize, usize, Split, Barrier)]) -> u32 {
        let mut threads = self.arrivals[rank * ALL_BARRIERS as usize + id as usize];
        for w in self.warps_of(rank) {
            let warp = &self.warps[w];
            let mask = here.iter().filter(|h| h.0 == w).fold(0, |mask, h| mask | h.2.mask);
            threads +=
                if mask != 0 && mask == warp.live { LANES as u32 } else { mask.count_ones() };
        }
        threads
    }

    /// Counts the splits at `bar.arrive` and lets them go on at once.
    fn take_arrivals(&mut self, rank: usize) -> Result<bool, BlockError> {
        let arriving: Vec<_> = self
            .at_barriers(rank)
            .filter(|(.., barrier)| barrier.kind == BarrierKind::Arrive)
            .collect();
        for &(warp, index, split, barrier) in arriving.iter().rev() {
            let (id, _) = self.operands((warp, split, barrier))?;
            let whole = split.mask == self.warps[warp].live;
            self.arrivals[rank * ALL_BARRIERS as usize + id as usize] +=
                if whole { LANES as u32 } else { split.mask.count_ones() };
            self.cx.order.arrive(warp, id);
            if let Some(checker) = &mut self.cx.checker {
                checker.known.arrive(warp, split.mask, id);
            }
            self.warps[warp].resume(index, barrier.next);
        }
        Ok(!arriving.is_empty())
    }

    /// Hands out the results of `bar.red`.
    fn reduce(&mut self, here: &[(usize, usize, Split, Barrier)]) {
        let (mut count, mut all, mut one) = (0, true, false);
        let is_reduction = |barrier: &Barrier| {
            matches!(barrier.kind, BarrierKind::Popc | BarrierKind::And | BarrierKind::Or)
        };
        for &(warp, _, split, barrier) in here.iter().filter(|h| is_reduction(&h.3)) {
            self.enter(warp);
            // SAFETY: `src` is a predicate of this kernel.
            let value = unsafe { self.cx.pred(barrier.src) };
            let set = split.mask & if barrier.negated { !value } else { value };
            count += set.count_ones();
            all &= set == split.mask;
            one |= set != 0;
        }
        for &(warp, _, split, barrier) in here.iter().filter(|h| is_reduction(&h.3)) {
            self.enter(warp);
            self.cx.mask = split.mask;
            // SAFETY: `dst` is a predicate or, for `popc`, a slot of 32-bit
            // lanes of this kernel.
            unsafe {
                match barrier.kind {
                    BarrierKind::Popc => {
                        for lane in bits(split.mask) {
                            *self.cx.slot::<u32>(barrier.dst).add(lane) = count;
                        }
                    }
                    BarrierKind::And => self.cx.set_pred(barrier.dst, if all { FULL } else { 0 }),
                    _ => self.cx.set_pred(barrier.dst, if one { FULL } else { 0 }),
                }
            }
        }
    }
}
