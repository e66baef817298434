//! Special registers, and `activemask`.

use std::marker::PhantomData;

use super::int::Int;
use super::lanes::{W, write_lanes};
use super::op::{Cx, Handler, Op};
use crate::fault::FaultKind;

/// `%lanemask_*`: `x` is 0 eq, 1 lt, 2 le, 3 gt, 4 ge.
pub(crate) fn lane_mask(kind: u32, lane: u32) -> u32 {
    let eq = 1u32 << lane;
    match kind {
        0 => eq,
        1 => eq - 1,
        2 => eq | (eq - 1),
        3 => !(eq | (eq - 1)),
        _ => !(eq - 1),
    }
}

/// `%clock`, `%clock64`, `%globaltimer`: nanoseconds since the launch began.
/// `S` is the lane of `d`; `x` shifts the value right.
pub(crate) struct ReadClock<S>(PhantomData<S>);

// SAFETY: touches only the slot `d`.
unsafe impl<T: Int> Handler for ReadClock<T> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let now = cx.started.elapsed().as_nanos() as u64 >> op.x;
        // SAFETY: `d` has lanes of `T`.
        unsafe {
            let d = cx.slot::<T::Slot>(op.d);
            for i in cx.active() {
                *d.add(i) = T::of_bits(now).put();
            }
        }
        false
    }
}

/// The address of a variable in the frame of the function that runs: `x` is its address in a
/// frame that lies first. `S` is the lane of `d`.
pub(crate) struct FrameAddress<S>(PhantomData<S>);

// SAFETY: touches only the slot `d`.
unsafe impl<T: Int> Handler for FrameAddress<T> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let address = T::of_bits(u64::from(cx.frame + op.x)).put();
        // SAFETY: `d` has lanes of `T`.
        unsafe { write_lanes(cx, op.d, |_| [address; W]) };
        false
    }
}

/// Checks that the index of a branch by a table, in slot `a`, is one of its `x` labels'.
pub(crate) struct BranchIndex;

// SAFETY: touches only the slot `a`.
unsafe impl Handler for BranchIndex {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        for lane in cx.active() {
            // SAFETY: `a` has 32-bit lanes.
            let index = unsafe { *cx.slot::<u32>(op.a).add(lane) };
            if index >= op.x {
                let kind = FaultKind::BadBranch { index, labels: op.x };
                return cx.fail(lane as u32, kind);
            }
        }
        false
    }
}

/// `activemask`.
pub(crate) struct ActiveMask;

// SAFETY: touches only the slot `d`.
unsafe impl Handler for ActiveMask {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let mask = cx.mask;
        // SAFETY: `d` has 32-bit lanes.
        unsafe { write_lanes(cx, op.d, |_| [mask; W]) };
        false
    }
}
