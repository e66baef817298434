//! `griddepcontrol.wait`: what comes behind it comes after the launch in front.

use super::op::{Cx, Handler, Op};

/// `griddepcontrol.wait`, where races are looked for.
pub(crate) struct PriorWait;

// SAFETY: touches no slot.
unsafe impl Handler for PriorWait {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, _op: &Op) -> bool {
        if let Some(checker) = &mut cx.checker {
            checker.known.wait_prior(cx.warp, cx.mask);
        }
        false
    }
}
