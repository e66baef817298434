//! Operations on the lanes of a warp together: shuffles, votes, matches and
//! reductions. The warp scheduler calls them with the lanes that execute the
//! instruction as the active mask, and all that take part as the party, whose
//! values are where the instruction has its own.

use super::lanes::Lane;
use super::machine::{FULL, LANES, NO_SLOT, bits};
use super::op::{Cx, Handler, Op};
use crate::fault::FaultKind;

/// Does nothing: `bar.warp.sync`.
pub(crate) struct SyncWarp;

// SAFETY: touches no slot.
unsafe impl Handler for SyncWarp {
    #[inline(always)]
    unsafe fn run(_cx: &mut Cx<'_>, _op: &Op) -> bool {
        false
    }
}

/// Modes of `shfl`, in the order of their numbers.
pub(crate) const SHUFFLES: [&str; 4] = ["up", "down", "bfly", "idx"];

/// `shfl`: `d` destination, `a` value, `b` lane or distance, `c` clamp and
/// segment mask, `y` predicate "source in range" or [`NO_SLOT`], `x` mode.
pub(crate) struct Shuffle;

// SAFETY: touches only the slots `d`, `a`, `b`, `c` and the predicate `y`.
unsafe impl Handler for Shuffle {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: the slots have 32-bit lanes.
        unsafe {
            let values = cx.slot::<[u32; LANES]>(op.a).read();
            let (b, c) = (cx.slot::<u32>(op.b), cx.slot::<u32>(op.c));
            let mut out = [0; LANES];
            let mut valid = 0;
            for lane in cx.active() {
                let (by, control) = (*b.add(lane) & 31, *c.add(lane));
                let (clamp, segment) = (control & 31, control >> 8 & 31);
                let own = lane as u32;
                let last = (own & segment) | (clamp & !segment);
                let first = own & segment;
                let (source, ok) = match op.x {
                    // The bound of `up` is its clamp, which is 0 by convention.
                    0 => (own.wrapping_sub(by), own as i32 - by as i32 >= last as i32),
                    1 => (own + by, own + by <= last),
                    2 => (own ^ by, own ^ by <= last),
                    _ => {
                        let source = first | (by & !segment);
                        (source, source <= last)
                    }
                };
                let source = if ok { source & 31 } else { own };
                if cx.checks.sync && cx.party >> source & 1 == 0 {
                    let reason =
                        format!("lane {source}, from which this reads, does not take part");
                    let kind = FaultKind::BadMask { mask: cx.party, reason };
                    return cx.fail(own, kind);
                }
                out[lane] = values[source as usize];
                valid |= u32::from(ok) << lane;
            }
            let d = cx.slot::<u32>(op.d);
            for lane in cx.active() {
                *d.add(lane) = out[lane];
            }
            if op.y != NO_SLOT {
                cx.set_pred(op.y, valid);
            }
        }
        false
    }
}

/// Modes of `vote`, in the order of their numbers.
pub(crate) const VOTES: [&str; 4] = ["all", "any", "uni", "ballot"];

/// `vote`: `d` predicate (or, for `ballot`, slot), `a` predicate, `x & 3`
/// mode, `x & 4` negates `a`.
pub(crate) struct Vote;

// SAFETY: touches only `d` and the predicate `a`.
unsafe impl Handler for Vote {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: by the contract of the trait.
        unsafe {
            let flip = if op.x & 4 != 0 { FULL } else { 0 };
            let votes = (cx.pred(op.a) ^ flip) & cx.party;
            let all = votes == cx.party;
            let result = match op.x & 3 {
                0 => all,
                1 => votes != 0,
                2 => all || votes == 0,
                _ => {
                    let d = cx.slot::<u32>(op.d);
                    for lane in cx.active() {
                        *d.add(lane) = votes;
                    }
                    return false;
                }
            };
            cx.set_pred(op.d, if result { FULL } else { 0 });
        }
        false
    }
}

/// `match`: `d` slot of the mask of lanes with an equal value, `a` value of
/// lanes `S`, `x` 0 any, 1 all; `y` predicate "all equal" or [`NO_SLOT`].
pub(crate) struct Match<S>(std::marker::PhantomData<S>);

// SAFETY: touches only the slots `d`, `a` and the predicate `y`.
unsafe impl<S: Copy + PartialEq> Handler for Match<S> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: the slots have the lane sizes used here.
        unsafe {
            let values = cx.slot::<[S; LANES]>(op.a).read();
            let d = cx.slot::<u32>(op.d);
            let mut all = 0;
            for lane in cx.active() {
                let equal = bits(cx.party)
                    .filter(|&other| values[other] == values[lane])
                    .fold(0, |mask, other| mask | 1 << other);
                let whole = equal == cx.party;
                all |= u32::from(whole) << lane;
                *d.add(lane) = if op.x == 0 || whole { equal } else { 0 };
            }
            if op.y != NO_SLOT {
                cx.set_pred(op.y, all);
            }
        }
        false
    }
}

/// Operations of `redux`, in the order of their numbers.
pub(crate) const REDUCTIONS: [&str; 6] = ["add", "min", "max", "and", "or", "xor"];

/// `redux`: `d` and `a` slots, `x & 7` operation, `x & 8` signed.
pub(crate) struct Redux;

// SAFETY: touches only the slots `d` and `a`.
unsafe impl Handler for Redux {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: the slots have 32-bit lanes.
        unsafe {
            let a = cx.slot::<u32>(op.a);
            let signed = op.x & 8 != 0;
            let less = |p: u32, q: u32| if signed { i32::get(p) < i32::get(q) } else { p < q };
            let result = bits(cx.party).map(|lane| *a.add(lane)).reduce(|p, q| match op.x & 7 {
                0 => p.wrapping_add(q),
                1 => {
                    if less(q, p) {
                        q
                    } else {
                        p
                    }
                }
                2 => {
                    if less(p, q) {
                        q
                    } else {
                        p
                    }
                }
                3 => p & q,
                4 => p | q,
                _ => p ^ q,
            });
            let d = cx.slot::<u32>(op.d);
            for lane in cx.active() {
                *d.add(lane) = result.unwrap_or(0);
            }
        }
        false
    }
}

/// `elect.sync`: `d` slot of the elected lane or [`NO_SLOT`], `y` predicate
/// "this lane is it".
pub(crate) struct Elect;

// SAFETY: touches only the slot `d` and the predicate `y`.
unsafe impl Handler for Elect {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let leader = cx.party.trailing_zeros();
        // SAFETY: `d` has 32-bit lanes.
        unsafe {
            if op.d != NO_SLOT {
                for lane in cx.active() {
                    *cx.slot::<u32>(op.d).add(lane) = leader;
                }
            }
            cx.set_pred(op.y, 1 << leader);
        }
        false
    }
}
