//! Instructions with a member mask: who takes part, and their execution.

use super::code::{Code, Collective, End};
use super::machine::bits;
use super::op::Cx;
use crate::fault::FaultKind;

pub(super) fn collective_at(code: &Code, pc: u32) -> &Collective {
    match code.segments[pc as usize].end {
        End::Collective(index) => &code.collectives[index as usize],
        _ => unreachable!("a split waits for a collective only at one"),
    }
}

/// Whether the member masks of the lanes `mask` are covered by `mask`.
pub(super) fn complete(cx: &Cx<'_>, members: u32, mask: u32, live: u32) -> bool {
    complete_in(cx, members, mask, live, mask)
}

/// Whether the member masks of the lanes `mask` are covered by `all`. Lanes
/// that have exited are not waited for.
pub(super) fn complete_in(cx: &Cx<'_>, members: u32, mask: u32, live: u32, all: u32) -> bool {
    bits(mask).all(|lane| {
        // SAFETY: `members` is a slot of 32-bit lanes of this kernel.
        let wanted = unsafe { *cx.slot::<u32>(members).add(lane) };
        wanted & live & !all == 0
    })
}

/// Executes a collective at PTX line `line` for the lanes `mask`: once for each member mask.
/// `live` are the lanes that have not exited.
pub(super) fn execute(
    cx: &mut Cx<'_>,
    collective: &Collective,
    (mask, live): (u32, u32),
    line: u32,
) -> Result<(), (u32, FaultKind)> {
    let mut left = mask;
    while left != 0 {
        let first = left.trailing_zeros() as usize;
        // SAFETY: `members` is a slot of 32-bit lanes of this kernel.
        let members = unsafe { cx.slot::<u32>(collective.members) };
        // SAFETY: as above.
        let same = |lane: &usize| unsafe { *members.add(*lane) == *members.add(first) };
        let group = bits(left).filter(same).fold(0, |group, lane| group | 1 << lane);
        left &= !group;
        cx.mask = group;
        if cx.checks.sync {
            // SAFETY: `members` is a slot of 32-bit lanes of this kernel.
            if let Err((lane, kind)) = check(cx, unsafe { *members.add(first) }, group, live)
                && cx.found(lane, line, kind)
                && let Some(fault) = cx.fault.take()
            {
                return Err((fault.lane, fault.kind));
            }
        }
        if collective.anywhere
            && let Some(checker) = &mut cx.checker
        {
            checker.known.sync_warp(cx.warp, group);
        }
        // SAFETY: the operation was decoded for this kernel.
        if unsafe { (collective.op.run)(cx, &collective.op) }
            && let Some(fault) = cx.fault.take()
        {
            return Err((fault.lane, fault.kind));
        }
    }
    Ok(())
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
