//! `malloc` and `free`, which the driver of a GPU defines.

use super::op::{Cx, Handler, Op};
use crate::fault::FaultKind;

/// `malloc`: `d` receives the address, or 0; `a` bytes.
pub(crate) struct Malloc;

// SAFETY: touches only the slots `d` and `a`.
unsafe impl Handler for Malloc {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        for lane in cx.active() {
            // SAFETY: both slots have 64-bit lanes.
            unsafe {
                *cx.slot::<u64>(op.d).add(lane) = cx.heap.alloc(*cx.slot::<u64>(op.a).add(lane));
            }
        }
        false
    }
}

/// `free`: `a` address.
pub(crate) struct Free;

// SAFETY: touches only the slot `a`.
unsafe impl Handler for Free {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        for lane in cx.active() {
            // SAFETY: the slot has 64-bit lanes.
            let address = unsafe { *cx.slot::<u64>(op.a).add(lane) };
            if !cx.heap.free(address) {
                return cx.fail(lane as u32, FaultKind::BadFree { address });
            }
        }
        false
    }
}
