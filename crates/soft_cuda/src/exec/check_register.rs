//! The check of registers that may not have been written.

use super::op::{Cx, Handler, Op};
use crate::fault::FaultKind;

/// Fails in a lane where predicate `a` does not say that register number `x` of
/// [`super::facts::Facts::watched`] was written. `d` is the PTX line.
pub(crate) struct CheckRegister;

// SAFETY: reads only the predicate `a`.
unsafe impl Handler for CheckRegister {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: by the contract of the trait.
        let unwritten = cx.mask & !unsafe { cx.pred(op.a) };
        if unwritten == 0 {
            return false;
        }
        let name = cx.checker.as_ref().and_then(|checker| checker.facts.watched.get(op.x as usize));
        let register = name.cloned().unwrap_or_default();
        let kind = FaultKind::UninitialisedRegister { register };
        cx.found(unwritten.trailing_zeros(), op.d, kind)
    }
}

/// `setmaxnreg` at PTX line `x`: notes that the warp has executed it.
pub(crate) struct SetMaxRegisters;

// SAFETY: touches no slot.
unsafe impl Handler for SetMaxRegisters {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let absent = cx.lanes & !cx.mask;
        if let Some(checker) = &mut cx.checker {
            checker.register_changes[cx.warp].push(op.x);
        }
        absent != 0 && {
            let warp = cx.warp as u32;
            let kind = FaultKind::WarpgroupDivergence { warp };
            cx.found(cx.mask.trailing_zeros(), op.x, kind)
        }
    }
}
