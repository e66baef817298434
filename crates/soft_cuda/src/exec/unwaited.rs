//! Bulk copies to device memory that nobody has waited for when their cluster ends: they complete
//! then, committed or not. Copies to shared memory need not, since nobody can read that any more.

use super::bulk::{note, perform};
use super::groups::Groups;
use super::op::Cx;
use super::recorder::WarpFault;
use crate::fault::FaultKind;

/// Completes the copies of a warp whose threads have exited. A copy whose read of its source nobody
/// awaited may read shared memory that the block no longer has.
pub(super) fn complete(cx: &mut Cx<'_>, warp: usize) -> Result<(), WarpFault> {
    cx.warp = warp;
    let stores = std::mem::replace(&mut cx.stores[warp], Groups::new());
    for (lane, store) in stores.all() {
        let fault = |kind| WarpFault { lane: lane as u32, line: store.line, kind };
        if !store.performed {
            perform(cx, lane, &store).map_err(fault)?;
            note(cx, lane, &store, true).map_err(fault)?;
            if cx.checks.sync {
                let address = cx.rank_and_address(store.from).1.into();
                let missing = fault(FaultKind::MissingWait { address });
                cx.recorder.take(cx.place, warp as u32, missing)?;
            }
        }
        // It was checked when it was performed, and is complete now.
        cx.be_quiet(true);
        let noted = note(cx, lane, &store, false);
        cx.be_quiet(false);
        noted.map_err(fault)?;
    }
    Ok(())
}
