//! Instructions that access only some bytes of a word.

use super::address::{Pointers, range, resolve, resolve_each};
use super::element::Transfer;
use super::machine::{NO_SLOT, SPACES, bits, space_of};
use super::op::{Cx, Handler, Op};
use crate::fault::{Access, AddressSpace, FaultKind};

/// Which byte of a word of `bytes` bytes the address of a lane was rounded down from: what is in
/// slot `low`, if there is one, which has 64-bit lanes if `wide`.
///
/// # Safety
/// The slot has lanes of that size.
#[inline(always)]
pub(super) unsafe fn first(cx: &Cx<'_>, lane: usize, (low, wide): (u32, bool), bytes: u32) -> u32 {
    // SAFETY: by contract.
    let low = unsafe {
        match (low, wide) {
            (NO_SLOT, _) => 0,
            (low, true) => *cx.slot::<u64>(low).add(lane) as u32,
            (low, false) => *cx.slot::<u32>(low).add(lane),
        }
    };
    low & (bytes - 1)
}

/// The host memory of a word of `bytes` bytes. The bytes `touched`, a mask, must be inside of what
/// it lies in. The others may lie past its end, where the host has room for them.
fn resolve_word(
    cx: &Cx<'_>,
    lane: usize,
    (address, bytes): (u64, u32),
    touched: u32,
    (space, access): (AddressSpace, Access),
) -> Result<*mut u8, FaultKind> {
    if !address.is_multiple_of(bytes.into()) {
        return Err(FaultKind::Misaligned { address, bytes, access, space });
    }
    if let Ok(host) = range(cx, lane as u32, address, bytes, space, access) {
        return Ok(host);
    }
    let mut word = std::ptr::null_mut();
    for byte in bits(touched) {
        let host = range(cx, lane as u32, address + byte as u64, 1, space, access)?;
        word = host.wrapping_sub(byte);
    }
    Ok(word)
}

/// A load of a word of which one byte counts: `d` destination, `a` address slot; [`Cx::extra`]
/// from `x`: offset, space, whether the address has 64 bits, slot of what it was rounded down by,
/// a packed [`Transfer`].
pub(crate) struct LoadWord;

// SAFETY: touches only the slots named.
unsafe impl Handler for LoadWord {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: by the contract of the trait; the pointers are good for a word.
        unsafe {
            let transfer = Transfer::unpack(cx.extra[op.x as usize + 4]);
            let one = |_: &Cx<'_>, _: usize, first: u32| 1 << first;
            let Some(pointers) = resolve_words(cx, op, transfer.bytes, Access::Load, one) else {
                return true;
            };
            for i in cx.active() {
                *cx.slot::<u32>(op.d).add(i) = transfer.load(pointers[i]) as u32;
            }
        }
        false
    }
}

/// Host addresses of the words that lanes access: `op.a` address slot; [`Cx::extra`] from `op.x` as
/// for [`LoadWord`], with [`NO_SLOT`] where all bytes must be inside. `touched` gives the bytes
/// that a lane accesses, from the lane and the byte that its address was rounded down from.
///
/// # Safety
/// The words describe slot `op.a`.
pub(super) unsafe fn resolve_words(
    cx: &mut Cx<'_>,
    op: &Op,
    bytes: u32,
    access: Access,
    touched: impl Fn(&Cx<'_>, usize, u32) -> u32,
) -> Option<Pointers> {
    let [offset, space, wide, low] = std::array::from_fn(|i| cx.extra[op.x as usize + i]);
    let (space, wide) = (SPACES[space as usize], wide != 0);
    let one = |cx: &Cx<'_>, lane: usize, address: u64| {
        let is_local = || space_of(address) == Some(AddressSpace::Local);
        match (space, low) {
            (AddressSpace::Generic, _) if access == Access::Atomic && is_local() => {
                Err(FaultKind::LocalAtomic { address })
            }
            (_, NO_SLOT) => resolve(cx, lane as u32, address, bytes, space, access),
            _ => {
                // SAFETY: by contract.
                let touched = touched(cx, lane, unsafe { first(cx, lane, (low, wide), bytes) });
                resolve_word(cx, lane, (address, bytes), touched, (space, access))
            }
        }
    };
    // SAFETY: by contract.
    unsafe { resolve_each(cx, op, (wide, offset), (bytes, space), one) }
}
