//! What happens where no split of a warp can run.
//!
//! Lanes at a collective execute it once every lane of their masks is there or has exited. That
//! may need lanes that wait to reconverge: these go on past their place then, as lanes of a GPU do,
//! and reconverge further on, come to the collective, or exit.

use super::code::{Code, Collective, CollectiveKind};
use super::machine::{LANES, bits};
use super::members::{Site, collective_at, execute, member_masks};
use super::op::Cx;
use super::phases::Barriers;
use super::recorder::WarpFault;
use super::split::{Node, ROOT, Release, Split, State};
use super::warp::Warp;
use crate::fault::{FaultKind, Waiting};

/// Lanes that wait at collectives; by lane, the member mask that it gives, and those lanes that it
/// may execute its collective with.
struct Waiters {
    lanes: u32,
    masks: [u32; LANES],
    company: [u32; LANES],
}

impl Waiters {
    /// The lanes whose collective is complete: all lanes of their masks that have not exited are
    /// at it, and it is also complete for these.
    fn complete(&self, live: u32) -> u32 {
        let mut lanes = self.lanes;
        loop {
            let met = |&lane: &usize| self.masks[lane] & live & !(lanes & self.company[lane]) == 0;
            let rest = bits(lanes).filter(met).fold(0, |all, lane| all | 1 << lane);
            if rest == lanes {
                return lanes;
            }
            lanes = rest;
        }
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
        let mut waiters = Waiters { lanes: 0, masks: [0; LANES], company: [0; LANES] };
        let splits = || self.splits.iter().filter(|split| split.state == State::Collective);
        for split in splits() {
            let given = member_masks(cx, collective_at(code, split.pc));
            bits(split.mask).for_each(|lane| waiters.masks[lane] = given[lane]);
            waiters.lanes |= split.mask;
        }
        let masks = &waiters.masks;
        for split in splits() {
            let kind = collective_at(code, split.pc).kind;
            // Those who come to the same instruction, and to another one of its kind.
            let (mut here, mut elsewhere) = (0, 0);
            for other in splits().filter(|other| collective_at(code, other.pc).kind == kind) {
                match kind {
                    _ if other.pc == split.pc => here |= other.mask,
                    CollectiveKind::Barrier => here |= other.mask,
                    CollectiveKind::Whole { .. } => {}
                    _ => elsewhere |= other.mask,
                }
            }
            for lane in bits(split.mask) {
                let alike = bits(elsewhere).filter(|&other| masks[other] == masks[lane]);
                waiters.company[lane] = alike.fold(here, |all, other| all | 1 << other);
            }
        }
        waiters
    }

    /// Lets lanes that wait at a collective in several splits execute it together, if each lane
    /// that they wait for is among them. Returns whether there were any.
    fn gather(&mut self, code: &Code, cx: &mut Cx<'_>) -> Result<bool, WarpFault> {
        let waiters = self.waiters(code, cx);
        let complete = waiters.complete(self.live);
        let at_it = |split: &&Split| split.state == State::Collective && split.mask & complete != 0;
        let Some(first) = self.splits.iter().find(at_it) else { return Ok(false) };
        let &Collective { kind, next, .. } = collective_at(code, first.pc);
        if let CollectiveKind::Whole { .. } = kind
            && self.unite(next)
        {
            return Ok(true);
        }
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

    /// Makes one split of all lanes, which have come to one place, and lets it go on at `next`.
    /// Fails if the lanes return from there to different places.
    ///
    /// Nobody is left who could wait for them where branches reconverge: only calls stay.
    fn unite(&mut self, next: u32) -> bool {
        let calls = self.splits.iter().map(|split| self.calls(split.node));
        let calls: Vec<Vec<usize>> = calls.collect();
        let same = |(&one, &other): (&usize, &usize)| {
            let [one_call, other_call] = [one, other].map(|node| self.nodes[node].as_ref());
            let together = one_call.zip(other_call).is_some_and(|(a, b)| a.returns_like(b));
            one == other || together
        };
        let alike = |other: &Vec<usize>| {
            other.len() == calls[0].len() && calls[0].iter().zip(other).all(same)
        };
        if !calls.iter().all(alike) {
            return false;
        }
        let kept: Vec<Node> = calls[0].iter().filter_map(|&n| self.nodes[n].take()).collect();
        let (mut node, frame) = (ROOT, self.splits[0].frame);
        self.nodes.clear();
        for call in kept.into_iter().rev() {
            let parent = std::mem::replace(&mut node, self.nodes.len());
            self.nodes.push(Some(Node { parent, pending: self.live, arrived: 0, ..call }));
        }
        self.splits.clear();
        self.splits.push(Split::new(next, self.live, node, frame));
        true
    }

    /// The calls that lead to a node, the last one first.
    fn calls(&self, node: usize) -> Vec<usize> {
        let of = |node: usize| self.nodes.get(node).and_then(Option::as_ref);
        let all = std::iter::successors(Some(node), |&node| of(node).map(|n| n.parent));
        all.filter(|&node| of(node).is_some_and(|n| n.activation.is_some())).collect()
    }

    /// Lets lanes that wait to reconverge go on without the others. Returns whether there were any.
    ///
    /// Whoever went around a barrier, or another instruction, that the lanes of a warp must execute
    /// together stays: that is an error.
    fn break_convergence(&mut self, code: &Code, cx: &Cx<'_>, release: Release) -> bool {
        let waiters = self.waiters(code, cx);
        let wanted = bits(waiters.lanes).fold(0, |wanted, lane| wanted | waiters.masks[lane]);
        let aligned = |split: &&Split| match split.state {
            State::Barrier(index) => code.barriers[index as usize].aligned,
            State::Collective => {
                collective_at(code, split.pc).kind == CollectiveKind::Whole { strict: true }
            }
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
                State::Collective => match collective_at(code, split.pc).kind {
                    CollectiveKind::Whole { .. } => {
                        "wait for the others; all 32 lanes must execute this instruction together"
                    }
                    _ => "wait for the other lanes of the warp",
                }
                .into(),
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
