//! Special registers, and `activemask`.

use std::marker::PhantomData;

use super::int::Int;
use super::lanes::{W, write_lanes};
use super::op::{Cx, Handler, Op};

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
pub(crate) struct Clock<S>(PhantomData<S>);

// SAFETY: touches only the slot `d`.
unsafe impl<T: Int> Handler for Clock<T> {
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
