//! Asynchronous copies (`cp.async`).
//!
//! A copy is performed when its thread waits for it, see [`super::groups`], or when a thread waits
//! for the mbarrier that it arrives at.

use super::access::{AccessKind, Site};
use super::groups::CopyToShared;
use super::machine::{FULL, LANES, NO_SLOT, bits};
use super::op::{Cx, Handler, Op};
use super::{address, element};

/// `cp.async`: `a` slot of the shared address, `b` slot of the global address,
/// `c` slot of the source size or [`NO_SLOT`];
/// [`Cx::extra`] from `x`: bytes, whether the shared address has 64 bits, the offsets of the two
/// addresses, and the PTX line.
pub(crate) struct CpAsync;

// SAFETY: touches only the slots `a`, `b` and `c`.
unsafe impl Handler for CpAsync {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: by the contract of the trait.
        unsafe { issue(cx, op) }
    }
}

/// # Safety
/// As for [`CpAsync`].
#[inline(never)]
unsafe fn issue(cx: &mut Cx<'_>, op: &Op) -> bool {
    let [bytes, wide, to_offset, from_offset, line] =
        std::array::from_fn(|i| cx.extra[op.x as usize + i]);
    let [to_offset, from_offset] = [to_offset, from_offset].map(|o| i64::from(o as i32) as u64);
    // SAFETY: by contract.
    let noted = unsafe { note_whole_loads(cx, op, bytes, from_offset, line) };
    if let Some(checker) = &mut cx.checker {
        checker.begin_copies();
    }
    for lane in cx.active() {
        // SAFETY: the slots have the lane sizes that the fields say.
        let (to, from, have) = unsafe {
            let to = if wide != 0 {
                (*cx.slot::<u64>(op.a).add(lane)).wrapping_add(to_offset)
            } else {
                u64::from((*cx.slot::<u32>(op.a).add(lane)).wrapping_add(to_offset as u32))
            };
            let from = (*cx.slot::<u64>(op.b).add(lane)).wrapping_add(from_offset);
            let have = match op.c {
                NO_SLOT => bytes,
                c => (*cx.slot::<u32>(c).add(lane)).min(bytes),
            };
            (to, from, have)
        };
        let dst = match address::resolve_target(cx, lane as u32, to, bytes) {
            Ok(dst) => dst,
            Err(kind) => return cx.fail(lane as u32, kind),
        };
        // A copy of no source bytes does not touch its source.
        let src = if have == 0 {
            std::ptr::null_mut()
        } else {
            match address::resolve_source(cx, op, lane as u32, from, (have, bytes)) {
                Ok(src) => src,
                Err(kind) => return cx.fail(lane as u32, kind),
            }
        };
        if cx.checker.is_some() {
            let (at, group) = (cx.cluster_offset_of(dst) as u32, cx.copies[cx.warp].group(lane));
            let (thread, site) =
                ((cx.warp, lane), Site { line, kind: AccessKind::Load, bytes: have });
            let checked = cx.check(lane, line, |checker| {
                checker.copy_async(thread, line, (at, bytes), group)?;
                if have == 0 || noted {
                    return Ok(());
                }
                checker.global(thread, site, from, |_| false)
            });
            if let Err(kind) = checked {
                return cx.fail(lane as u32, kind);
            }
        }
        cx.copies[cx.warp]
            .push(lane, CopyToShared { dst, src, bytes: bytes as u8, from_src: have as u8 });
    }
    false
}

/// Checks and notes what a whole warp loads, if all of its lanes have all bytes. Returns `false`
/// if that has to be done for each lane.
///
/// # Safety
/// As for [`CpAsync`].
unsafe fn note_whole_loads(
    cx: &mut Cx<'_>,
    op: &Op,
    bytes: u32,
    from_offset: u64,
    line: u32,
) -> bool {
    // SAFETY: the slots have the lane sizes that the fields say.
    let (addresses, whole) = unsafe {
        let whole = match op.c {
            NO_SLOT => true,
            c => cx.slot::<[u32; LANES]>(c).read().iter().all(|&have| have >= bytes),
        };
        (cx.slot::<[u64; LANES]>(op.b).read(), whole && cx.mask == FULL)
    };
    let warp = (cx.warp, cx.mask);
    let site = Site { line, kind: AccessKind::Load, bytes };
    let checker = cx.checker.as_mut().filter(|_| whole);
    checker.is_some_and(|checker| {
        checker.plain_loads(warp, (site.line, site), (&addresses, from_offset))
    })
}

/// `cp.async.commit_group`.
pub(crate) struct CopyCommit;

// SAFETY: touches no slot.
unsafe impl Handler for CopyCommit {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, _op: &Op) -> bool {
        let lanes = cx.active();
        cx.copies[cx.warp].commit(lanes);
        false
    }
}

/// Performs a copy that was issued.
fn perform(copy: CopyToShared) {
    // SAFETY: both ends were checked when the copy was issued; shared memory lives as long as the
    // block, and the launch keeps every allocation alive.
    unsafe { element::copy(copy.dst, copy.src, copy.from_src.into(), copy.bytes.into()) };
}

/// Performs the copies of a lane before its group `end`.
pub(super) fn perform_before(cx: &mut Cx<'_>, (warp, lane): (usize, usize), end: u64) {
    cx.copies[warp].due_before(1 << lane, [end; LANES]).for_each(|(_, copy)| perform(copy));
}

/// `cp.async.wait_group` with `x` groups left over, or `cp.async.wait_all` if
/// `x` is [`FULL`].
pub(crate) struct CopyWait;

// SAFETY: touches no slot.
unsafe impl Handler for CopyWait {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let keep = (op.x != FULL).then_some(u64::from(op.x));
        cx.copies[cx.warp].due(cx.mask, keep).for_each(|(_, copy)| perform(copy));
        if let Some(checker) = &mut cx.checker {
            for lane in bits(cx.mask) {
                let group = cx.copies[cx.warp].waited(lane, keep);
                checker.known.wait_copies(cx.warp, lane, group as u32);
            }
        }
        false
    }
}
