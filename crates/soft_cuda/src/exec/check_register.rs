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
            checker.warpgroup_lines[cx.warp].push(op.x);
        }
        absent != 0 && {
            let warp = cx.warp as u32 % cx.shape.warps;
            let kind = FaultKind::WarpgroupDivergence { warp };
            cx.found(cx.mask.trailing_zeros(), op.x, kind)
        }
    }
}

/// The warps of a warpgroup that did not all execute the same `setmaxnreg` and `wgmma`, whose lines
/// are `changes` by warp, in a cluster of blocks of so many warps: one of them, and the line of the
/// first that another one lacks.
pub(super) fn warpgroup_divergence(
    changes: &[Vec<u32>],
    block_warps: usize,
) -> Option<(usize, u32)> {
    const GROUP: usize = 4;
    let mut groups = changes.chunks(block_warps).enumerate().flat_map(|(rank, warps)| {
        let groups = warps.chunks(GROUP).enumerate();
        groups.map(move |(group, warps)| (rank * block_warps + group * GROUP, warps))
    });
    groups.find_map(|(first, warps)| {
        let most = warps.iter().max_by_key(|lines| lines.len())?;
        let line = |of: &Vec<u32>| {
            let at = (0..most.len()).find(|&i| of.get(i) != most.get(i))?;
            Some(most[at])
        };
        let (warp, line) = warps.iter().enumerate().find_map(|(w, of)| Some((w, line(of)?)))?;
        Some((first + warp, line))
    })
}
