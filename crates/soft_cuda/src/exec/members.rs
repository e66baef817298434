//! Instructions with a member mask: who takes part, and their execution.

use super::code::{Code, Collective, End};
use super::machine::bits;
use super::op::Cx;

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

/// Executes a collective for the lanes `mask`: once for each member mask.
pub(super) fn execute(cx: &mut Cx<'_>, collective: &Collective, mask: u32) {
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
        // SAFETY: the operation was decoded for this kernel.
        unsafe { (collective.op.run)(cx, &collective.op) };
    }
}
