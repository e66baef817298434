//! Asynchronous copies (`cp.async`).
//!
//! A copy is checked when it is issued but performed only when its thread
//! waits for it: a kernel that forgets to wait reads old data here, every time.

use super::{Cx, FULL, Handler, LANES, Op};
use super::{address, element};
use crate::error::{Access, AddressSpace};

/// One copy of one lane.
#[derive(Debug, Clone, Copy)]
struct Pending {
    lane: u32,
    /// Number of the lane's commit group it belongs to.
    group: u64,
    dst: *mut u8,
    src: *const u8,
    /// Bytes written; those after `from_src` are zeros.
    bytes: u32,
    from_src: u32,
}

/// The copies of one warp that nobody has waited for.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    pending: Vec<Pending>,
    /// Groups committed so far, by lane.
    committed: [u64; LANES],
}

impl Copies {
    /// Forgets everything, for a new block.
    pub(crate) fn clear(&mut self) {
        self.pending.clear();
        self.committed = [0; LANES];
    }

    /// Performs the copies of `lanes` in all but the latest `keep` groups;
    /// `None` also performs those that were not committed.
    fn wait(&mut self, lanes: u32, keep: Option<u64>) {
        let committed = self.committed;
        self.pending.retain(|copy| {
            let done = lanes >> copy.lane & 1 != 0
                && keep.is_none_or(|n| copy.group + n < committed[copy.lane as usize]);
            if done {
                // SAFETY: both ends were checked when the copy was issued;
                // shared memory lives as long as the block, and the launch
                // keeps every allocation alive.
                unsafe { element::copy(copy.dst, copy.src, copy.from_src, copy.bytes) };
            }
            !done
        });
    }
}

/// `cp.async`: `a` slot of the shared address, `b` slot of the global address,
/// `c` slot of the source size or [`NO_SLOT`](super::NO_SLOT);
/// [`Cx::extra`] from `x`: bytes, whether the shared address has 64 bits, and
/// the offsets of the two addresses.
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
    let [bytes, wide, to_offset, from_offset] = [0, 1, 2, 3].map(|i| cx.extra[op.x as usize + i]);
    let [to_offset, from_offset] = [to_offset, from_offset].map(|o| i64::from(o as i32) as u64);
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
                super::NO_SLOT => bytes,
                c => (*cx.slot::<u32>(c).add(lane)).min(bytes),
            };
            (to, from, have)
        };
        let dst = match address::resolve(
            cx,
            lane as u32,
            to,
            bytes,
            AddressSpace::Shared,
            Access::Copy,
        ) {
            Ok(dst) => dst,
            Err(kind) => return cx.fail(lane as u32, kind),
        };
        // A copy of no source bytes does not touch its source.
        let src = if have == 0 {
            std::ptr::null_mut()
        } else {
            match address::resolve_part(cx, lane as u32, from, have, bytes) {
                Ok(src) => src,
                Err(kind) => return cx.fail(lane as u32, kind),
            }
        };
        let group = cx.copies[cx.warp].committed[lane];
        cx.copies[cx.warp].pending.push(Pending {
            lane: lane as u32,
            group,
            dst,
            src,
            bytes,
            from_src: have,
        });
    }
    false
}

/// `cp.async.commit_group`.
pub(crate) struct Commit;

// SAFETY: touches no slot.
unsafe impl Handler for Commit {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, _op: &Op) -> bool {
        for lane in cx.active() {
            cx.copies[cx.warp].committed[lane] += 1;
        }
        false
    }
}

/// `cp.async.wait_group` with `x` groups left over, or `cp.async.wait_all` if
/// `x` is [`FULL`].
pub(crate) struct Wait;

// SAFETY: touches no slot.
unsafe impl Handler for Wait {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let keep = (op.x != FULL).then_some(u64::from(op.x));
        let mask = cx.mask;
        cx.copies[cx.warp].wait(mask, keep);
        false
    }
}
