//! Loads from shared memory at constant distances.

use super::access::Part;
use super::lanes::W;
use super::machine::{FULL, LANES, SHARED_BASE};
use super::op::{Cx, Handler, Op};

/// `c` loads of `N` elements of 32 bits from shared memory: `a` slot of 32-bit addresses, `y` the
/// least offset. [`Cx::extra`] from `x`, for each: how much larger its offset is, PTX line, and its
/// destinations. `b` is whether the loads are checked. [`Cx::guarded`] from `d`: the same one by
/// one, each behind its check, if there are any. No destination shares its slot with the addresses.
pub(crate) struct SharedLoads<const N: usize>;

// SAFETY: touches only the slots named.
unsafe impl<const N: usize> Handler for SharedLoads<N> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let bytes = 4 * N as u32;
        let words = &cx.extra[op.x as usize..][..op.c as usize * (2 + N)];
        let base = SHARED_BASE.wrapping_sub(op.y);
        // SAFETY: the slots have 32-bit lanes.
        let mut offsets = unsafe { cx.slot::<[u32; LANES]>(op.a).read() };
        let (mut most, mut odd) = (0, 0);
        for offset in &mut offsets {
            *offset = offset.wrapping_sub(base);
            most = most.max(*offset);
            odd |= *offset & (bytes - 1);
        }
        let further = words.chunks_exact(2 + N).map(|load| load[0]).max().unwrap_or(0);
        let end = u64::from(most) + u64::from(further) + u64::from(bytes);
        // All lanes of all loads are inside of shared memory.
        let inside = end <= cx.shared_size.into() && odd == 0;
        if cx.mask != FULL || !inside || op.b != 0 && !check::<N>(cx, op, &offsets) {
            // SAFETY: by the contract of the trait.
            return unsafe { one_by_one::<N>(cx, op) };
        }
        for j in (0..LANES).step_by(W) {
            let offsets = &offsets[j..j + W];
            let (mut differ, mut skips) = (0, 0);
            for (i, offset) in offsets.iter().enumerate() {
                differ |= offset ^ offsets[0];
                skips |= offset ^ offsets[0].wrapping_add(bytes * i as u32);
            }
            for load in words.chunks_exact(2 + N) {
                let slots = &load[2..];
                // SAFETY: all accesses are inside of shared memory, and the slots have 32-bit
                // lanes.
                unsafe {
                    let from = cx.shared.add(load[0] as usize);
                    let at = |i: usize| from.add(offsets[i] as usize).cast::<[u32; N]>();
                    if differ == 0 {
                        let values = at(0).read();
                        for (&slot, value) in slots.iter().zip(values) {
                            cx.slot::<[u32; W]>(slot).add(j / W).write([value; W]);
                        }
                    } else if N == 1 && skips == 0 {
                        let values = at(0).cast::<[u32; W]>().read_unaligned();
                        cx.slot::<[u32; W]>(slots[0]).add(j / W).write(values);
                    } else {
                        let lanes: [[u32; N]; W] = std::array::from_fn(|i| at(i).read());
                        for (k, &slot) in slots.iter().enumerate() {
                            let values = lanes.map(|lane| lane[k]);
                            cx.slot::<[u32; W]>(slot).add(j / W).write(values);
                        }
                    }
                }
            }
        }
        false
    }
}

/// Has all loads checked and noted at once. Returns `false`, and has noted nothing, if they have
/// to be checked one by one.
#[inline(always)]
fn check<const N: usize>(cx: &mut Cx<'_>, op: &Op, offsets: &[u32; LANES]) -> bool {
    // In the cluster's shared memory.
    let own = cx.rank * cx.shared_stride;
    let offsets = offsets.map(|offset| offset + own);
    let warp = cx.warp;
    let words = &cx.extra[op.x as usize..][..op.c as usize * (2 + N)];
    let parts = words.chunks_exact(2 + N).map(|load| Part {
        offset: load[0],
        bytes: 4 * N as u32,
        line: load[1],
    });
    let Some(checker) = &mut cx.checker else { return true };
    checker.shared_loads_together(warp, (op.x, parts), &offsets)
}

/// The loads one by one.
///
/// # Safety
/// `op` is a [`SharedLoads`] of the kernel that runs.
#[inline(never)]
unsafe fn one_by_one<const N: usize>(cx: &mut Cx<'_>, op: &Op) -> bool {
    let each = if op.b != 0 { 2 } else { 1 };
    for load in 0..op.c as usize {
        for part in 0..each {
            let part = &cx.guarded[op.d as usize + load * each + part];
            // SAFETY: the operation belongs to the same kernel.
            if unsafe { (part.run)(cx, part) } {
                let line = cx.extra[op.x as usize + load * (2 + N) + 1];
                if let Some(fault) = &mut cx.fault {
                    fault.line = Some(line);
                }
                return true;
            }
        }
    }
    false
}
