//! Accesses of shared memory in kernels with bulk copies.

use super::machine::{LANES, SHARED_BASE, SHARED_WINDOW};
use super::op::{Cx, Handler, Op};
use crate::fault::Access;

/// Checks an access of shared memory against bulk copies, before the operation
/// that performs it: `a` address slot, `b` whether it has 64 bits, `c` whether
/// it is generic, `x` offset, `d` PTX line, `y` whether it is a load.
pub(crate) struct RaceCheck;

// SAFETY: touches only the slot `a`.
unsafe impl Handler for RaceCheck {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let access = if op.y != 0 { Access::Load } else { Access::Store };
        let base = SHARED_BASE.wrapping_sub(op.x);
        let window = if op.c != 0 { SHARED_WINDOW } else { 0 };
        let mut offsets = [0; LANES];
        for (lane, offset) in offsets.iter_mut().enumerate() {
            // SAFETY: `a` is a slot of lanes of the size that `b` says.
            unsafe {
                *offset = match op.b {
                    0 => match cx.blocks {
                        1 => (*cx.slot::<u32>(op.a).add(lane)).wrapping_sub(base),
                        _ => {
                            let address = (*cx.slot::<u32>(op.a).add(lane)).wrapping_add(op.x);
                            cx.cluster_offset(address.into()).unwrap_or(u32::MAX)
                        }
                    },
                    _ => {
                        let address = (*cx.slot::<u64>(op.a).add(lane)).wrapping_sub(window);
                        // What is no shared address becomes one out of bounds.
                        let address = address.wrapping_add(i64::from(op.x as i32) as u64);
                        cx.cluster_offset(address).unwrap_or(u32::MAX)
                    }
                };
            }
        }
        match cx.order.access((cx.warp, op.d, access), cx.mask, &offsets) {
            Ok(()) => false,
            Err((lane, kind)) => cx.fail(lane as u32, kind),
        }
    }
}
