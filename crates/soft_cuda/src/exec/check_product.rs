//! The checks of registers that `wgmma` reads and writes.

use super::op::{Cx, Handler, Op};
use crate::fault::FaultKind;

/// An access of the register in slot `a`, which is one of a product's, by the instruction at PTX
/// line `x`: notes it for the next product, and fails if one in flight has the register.
pub(crate) struct CheckProductRegister;

// SAFETY: touches no slot.
unsafe impl Handler for CheckProductRegister {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let flight = &mut cx.products[cx.warp];
        flight.touch(op.a, op.x);
        let Some(product) = flight.holder(cx.extra, op.a) else { return false };
        let reason = format!(
            "this accesses a register of the product at line {product}, which is in flight; execute `wgmma.wait_group` first"
        );
        cx.found(cx.mask.trailing_zeros(), op.x, FaultKind::BadMatrix { reason })
    }
}
