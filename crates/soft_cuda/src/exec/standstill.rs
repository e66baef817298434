//! What happens where no split of a warp can run.
//!
//! Lanes at a collective execute it once every lane of their masks is there or has exited. That
//! may need lanes that wait to reconverge: these go on past their place then, as lanes of a GPU do,
//! and reconverge further on, come to the collective, or exit.

use super::code::{Code, CollectiveKind};
use super::machine::{LANES, bits};
use super::members::{Site, collective_at, execute, member_masks};
use super::op::Cx;
use super::phases::Barriers;
use super::recorder::WarpFault;
use super::split::{Node, Release, Split, State};
use super::warp::Warp;
use crate::fault::{FaultKind, Waiting};

/// Lanes that wait at collectives; by lane, the member mask that it gives, and the segment that the
/// collective ends.
struct Waiters {
    lanes: u32,
    masks: [u32; LANES],
    places: [u32; LANES],
}

impl Waiters {
    /// The lanes whose collective is complete: all lanes of their masks that have not exited are
    /// at it, and it is complete for these, too.
    fn complete(&self, code: &Code, live: u32) -> u32 {
        let mut lanes = self.lanes;
        loop {
            let wanted = |lane: usize| bits(self.masks[lane] & live);
            let meets_all = |lane: &usize| {
                wanted(*lane).all(|other| lanes >> other & 1 != 0 && self.meet(code, *lane, other))
            };
            let rest = bits(lanes).filter(meets_all).fold(0, |all, lane| all | 1 << lane);
            if rest == lanes {
                return lanes;
            }
            lanes = rest;
        }
    }

    /// Whether two lanes execute their collectives together.
    fn meet(&self, code: &Code, one: usize, other: usize) -> bool {
        let [a, b] = [one, other].map(|lane| self.places[lane]);
        let [kind, its] = [a, b].map(|pc| collective_at(code, pc).kind);
        let same = self.masks[one] == self.masks[other] || kind == CollectiveKind::Barrier;
        a == b || kind == its && same
    }
}

impl Warp {
    /// Lets lanes go on that wait for lanes of this warp alone. Returns whether any can run then.
    pub(super) fn stand_still(&mut self, code: &Code, cx: &mut Cx<'_>) -> Result<bool, WarpFault> {
        if self.gather(code, cx)? {
            return Ok(true);
        }
        if !self.splits.iter().all(|split| split.state == State::Collective) {
            return Ok(false);
        }
        // Only lanes that wait to reconverge could still come, or exit.
        if self.give_way(code, cx, Release::Any)? {
            return Ok(true);
        }
        let first = self.splits[0];
        let waiting = self.waiting(code, &cx.barriers, cx.warp as u32);
        Err(WarpFault {
            lane: first.mask.trailing_zeros(),
            line: code.segments[first.pc as usize].line,
            kind: FaultKind::BarrierDivergence { waiting },
        })
    }

    /// Lets lanes go on that others may wait for: those at a collective that is complete, or else
    /// some that wait to reconverge. Returns whether there were any.
    pub(super) fn give_way(
        &mut self,
        code: &Code,
        cx: &mut Cx<'_>,
        release: Release,
    ) -> Result<bool, WarpFault> {
        Ok(self.gather(code, cx)? || self.break_convergence(code, cx, release))
    }

    /// The lanes that wait at collectives.
    fn waiters(&self, code: &Code, cx: &Cx<'_>) -> Waiters {
        let mut waiters = Waiters { lanes: 0, masks: [0; LANES], places: [0; LANES] };
        for split in self.splits.iter().filter(|split| split.state == State::Collective) {
            let given = member_masks(cx, collective_at(code, split.pc));
            for lane in bits(split.mask) {
                (waiters.masks[lane], waiters.places[lane]) = (given[lane], split.pc);
            }
            waiters.lanes |= split.mask;
        }
        waiters
    }

    /// Lets lanes that wait at a collective in several splits execute it together, if each lane
    /// that they wait for is among them. Returns whether there were any.
    fn gather(&mut self, code: &Code, cx: &mut Cx<'_>) -> Result<bool, WarpFault> {
        let waiters = self.waiters(code, cx);
        let complete = waiters.complete(code, self.live);
        if complete == 0 {
            return Ok(false);
        }
        let first = waiters.places[complete.trailing_zeros() as usize];
        let kind = collective_at(code, first).kind;
        let mut sites: Vec<Site<'_>> = Vec::new();
        // From the back, so that removing one split moves none that is still to come.
        for at in (0..self.splits.len()).rev() {
            let Split { pc, mask, state: State::Collective, .. } = self.splits[at] else {
                continue;
            };
            let (collective, lanes) = (collective_at(code, pc), mask & complete);
            if collective.kind != kind || lanes == 0 {
                continue;
            }
            match sites.iter_mut().find(|site| std::ptr::eq(site.collective, collective)) {
                Some(site) => site.lanes |= lanes,
                None => {
                    let line = code.segments[pc as usize].line;
                    sites.push(Site { collective, lanes, line });
                }
            }
            if lanes == mask {
                self.resume(at, collective.next);
            } else {
                self.splits[at].mask &= !lanes;
                self.splits.push(Split { mask: lanes, ..self.splits[at] });
                self.resume(self.splits.len() - 1, collective.next);
            }
        }
        execute(cx, &sites, &waiters.masks, self.live)?;
        Ok(true)
    }

    /// Lets lanes that wait to reconverge go on without the others. Returns whether there were any.
    ///
    /// Whoever went around a barrier that the lanes of a warp must execute together stays: that is
    /// an error.
    fn break_convergence(&mut self, code: &Code, cx: &Cx<'_>, release: Release) -> bool {
        let waiters = self.waiters(code, cx);
        let wanted = bits(waiters.lanes).fold(0, |wanted, lane| wanted | waiters.masks[lane]);
        let aligned = |split: &&Split| match split.state {
            State::Barrier(index) => code.barriers[index as usize].aligned,
            _ => false,
        };
        let stuck = self.splits.iter().filter(aligned).fold(0, |all, split| all | split.mask);
        let nodes = self.nodes.iter_mut().flatten();
        let mut nodes = nodes.filter(|node| node.arrived != 0 && node.pending & stuck == 0);
        let inner_first = |node: &&mut Node| {
            (node.arrived & wanted == 0, (node.arrived | node.pending).count_ones())
        };
        let node = match release {
            Release::Any => nodes.min_by_key(inner_first),
            Release::Wanted => {
                nodes.filter(|node| node.arrived & wanted != 0).min_by_key(inner_first)
            }
            Release::First => nodes.next(),
            Release::Long => nodes.find(|node| node.long),
        };
        let Some(node) = node else { return false };
        let lanes = std::mem::take(&mut node.arrived);
        let split = Split::new(node.reconverge, lanes, node.parent, node.frame);
        self.splits.push(split);
        true
    }

    /// Notes which lanes wait to reconverge, as those that have waited for long if they still do
    /// when this is called again.
    pub(super) fn note_convergence(&mut self) {
        self.nodes.iter_mut().flatten().for_each(|node| node.long = node.arrived != 0);
    }

    /// Where the lanes stand, for messages.
    pub(crate) fn waiting(&self, code: &Code, barriers: &Barriers, warp: u32) -> Vec<Waiting> {
        let line = |pc: u32| code.segments[pc as usize].line;
        let splits = self.splits.iter().map(|split| {
            let reason = match split.state {
                State::Ready | State::Expired => "can run".into(),
                State::Barrier(_) => "wait at the barrier".into(),
                State::Collective => "wait for the other lanes of the warp".into(),
                State::Mbarrier(barrier) => barriers.describe(barrier),
            };
            Waiting { warp, lanes: split.mask, line: line(split.pc), reason }
        });
        let parked = self.nodes.iter().flatten().filter(|node| node.arrived != 0);
        let reconverging = parked.map(|node| {
            let (pc, lanes) = (node.reconverge, node.arrived);
            // The line of the first instruction there.
            let segment = &code.segments[pc as usize];
            let line = if segment.first < segment.last {
                code.lines[segment.first as usize]
            } else {
                segment.line
            };
            Waiting { warp, lanes, line, reason: "have passed it by and wait to reconverge".into() }
        });
        splits.chain(reconverging).collect()
    }
}
