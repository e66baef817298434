//! Instructions with a member mask: who takes part, and their execution.

use super::code::{Code, Collective, CollectiveKind, End};
use super::machine::{LANES, bits};
use super::op::Cx;
use super::recorder::WarpFault;
use crate::fault::FaultKind;

pub(super) fn collective_at(code: &Code, pc: u32) -> &Collective {
    match code.segments[pc as usize].end {
        End::Collective(index) => &code.collectives[index as usize],
        _ => unreachable!("a split waits for a collective only at one"),
    }
}

/// The member mask that each lane gives at a collective.
pub(super) fn member_masks(cx: &Cx<'_>, collective: &Collective) -> [u32; LANES] {
    // SAFETY: `members` is a slot of 32-bit lanes of this kernel.
    unsafe { cx.slot::<[u32; LANES]>(collective.members).read() }
}

/// A collective, those of the lanes which execute it that come to this instruction, and its PTX
/// line.
pub(super) struct Site<'c> {
    pub collective: &'c Collective,
    pub lanes: u32,
    pub line: u32,
}

/// Executes a collective for the lanes of all `sites`, which are of one kind: once for each of
/// their member masks. `live` are the lanes that have not exited.
pub(super) fn execute(
    cx: &mut Cx<'_>,
    sites: &[Site<'_>],
    masks: &[u32; LANES],
    live: u32,
) -> Result<(), WarpFault> {
    let mut left = sites.iter().fold(0, |all, site| all | site.lanes);
    while left != 0 {
        let members = masks[left.trailing_zeros() as usize];
        let same = bits(left).filter(|&lane| masks[lane] == members);
        let group = same.fold(0, |group, lane| group | 1 << lane);
        left &= !group;
        let here = || sites.iter().filter(|site| site.lanes & group != 0);
        // What a whole warp executes has no mask.
        let has_mask = !matches!(sites[0].collective.kind, CollectiveKind::Whole { .. });
        if cx.checks.sync
            && has_mask
            && let Err((lane, kind)) = check(cx, members, group, live)
        {
            let line = here().find(|site| site.lanes >> lane & 1 != 0).map_or(0, |site| site.line);
            if cx.found(lane, line, kind)
                && let Some(fault) = cx.fault.take()
            {
                return Err(WarpFault { lane: fault.lane, line, kind: fault.kind });
            }
        }
        if sites[0].collective.kind == CollectiveKind::Barrier
            && let Some(checker) = &mut cx.checker
        {
            checker.known.sync_warp(cx.warp, group);
        }
        cx.party = group;
        if sites.len() == 1 {
            run(cx, &sites[0], group)?;
            continue;
        }
        // Each instruction finds what the lanes give that execute another where it has its own.
        let mut given = [0; LANES];
        for site in here() {
            bits(site.lanes & group).for_each(|lane| given[lane] = get(cx, site.collective, lane));
        }
        for site in here() {
            let others = group & !site.lanes;
            let mut own = [0; LANES];
            for lane in bits(others) {
                own[lane] = get(cx, site.collective, lane);
                set(cx, site.collective, lane, given[lane]);
            }
            run(cx, site, group & site.lanes)?;
            bits(others).for_each(|lane| set(cx, site.collective, lane, own[lane]));
        }
    }
    Ok(())
}

/// Executes the instruction of a site for `lanes`.
fn run(cx: &mut Cx<'_>, site: &Site<'_>, lanes: u32) -> Result<(), WarpFault> {
    cx.mask = lanes;
    let op = &site.collective.op;
    // SAFETY: the operation was decoded for this kernel.
    if unsafe { (op.run)(cx, op) }
        && let Some(fault) = cx.fault.take()
    {
        return Err(WarpFault { lane: fault.lane, line: site.line, kind: fault.kind });
    }
    Ok(())
}

/// The value that a lane gives to the others at a collective.
fn get(cx: &Cx<'_>, collective: &Collective, lane: usize) -> u64 {
    let slot = collective.op.a;
    // SAFETY: a predicate or a slot of this kernel, with lanes of this size.
    unsafe {
        match collective.kind {
            CollectiveKind::Barrier | CollectiveKind::Elect | CollectiveKind::Whole { .. } => 0,
            CollectiveKind::Vote(_) => u64::from(cx.pred(slot) >> lane & 1) ^ negated(collective),
            CollectiveKind::Match(_, true) => *cx.slot::<u64>(slot).add(lane),
            CollectiveKind::Shuffle(_) | CollectiveKind::Match(..) | CollectiveKind::Redux(_) => {
                u64::from(*cx.slot::<u32>(slot).add(lane))
            }
        }
    }
}

/// Puts a value where [`get`] reads it.
fn set(cx: &mut Cx<'_>, collective: &Collective, lane: usize, value: u64) {
    let slot = collective.op.a;
    // SAFETY: a predicate or a slot of this kernel, with lanes of this size.
    unsafe {
        match collective.kind {
            CollectiveKind::Barrier | CollectiveKind::Elect | CollectiveKind::Whole { .. } => {}
            CollectiveKind::Vote(_) => {
                cx.mask = 1 << lane;
                cx.set_pred(slot, ((value ^ negated(collective)) as u32) << lane);
            }
            CollectiveKind::Match(_, true) => *cx.slot::<u64>(slot).add(lane) = value,
            CollectiveKind::Shuffle(_) | CollectiveKind::Match(..) | CollectiveKind::Redux(_) => {
                *cx.slot::<u32>(slot).add(lane) = value as u32;
            }
        }
    }
}

/// 1 if a vote is on the negation of its predicate.
fn negated(collective: &Collective) -> u64 {
    u64::from(collective.op.x >> 2 & 1)
}

/// Fails unless the lanes `group`, which all give the mask `members`, are those of it that have
/// not exited.
fn check(cx: &Cx<'_>, members: u32, group: u32, live: u32) -> Result<(), (u32, FaultKind)> {
    let bad = |lanes: u32, reason: String| {
        Err((lanes.trailing_zeros(), FaultKind::BadMask { mask: members, reason }))
    };
    let outside = group & !members;
    if outside != 0 {
        return bad(outside, "it does not have the lane that executes this".to_owned());
    }
    let disagree = members & live & !group;
    if disagree != 0 {
        let lane = disagree.trailing_zeros();
        return bad(group, format!("lane {lane}, which it names, gives another mask"));
    }
    let missing = members & !cx.lanes;
    if missing != 0 {
        let lane = missing.trailing_zeros();
        return bad(group, format!("it names lane {lane}, which the block does not have"));
    }
    Ok(())
}
