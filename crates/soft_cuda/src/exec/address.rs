//! From addresses to host memory.
//!
//! What all lanes access is checked against one range at once: the allocation that the operation
//! accessed last, or the block's shared memory. Whatever does not fit there goes through
//! [`resolve`], lane by lane, which either finds the memory or says what is wrong.

use super::cluster;
use super::lanes::W;
use super::machine::{
    FULL, LANES, LOCAL_BASE, LOCAL_WINDOW, PARAM_WINDOW, SHARED_BASE, SHARED_WINDOW,
};
use super::op::{CACHE, CacheEntry, Cx, Op};
use crate::error::Place;
use crate::fault::{Access, AddressSpace, FaultKind};

/// A register lane that holds an address.
pub(crate) trait AddressWidth: Copy {
    /// Whether all of `lanes` addresses, less `base`, are at most `limit` and
    /// multiples of `align`. `limit` is less than half of the type's range.
    ///
    /// # Safety
    /// 32 addresses at `lanes` can be read.
    unsafe fn inside(lanes: *const Self, mask: u32, base: Self, limit: Self, align: Self) -> bool;
}

macro_rules! address {
    ($($ty:ident)*) => {$(
        impl AddressWidth for $ty {
            #[inline(always)]
            unsafe fn inside(lanes: *const $ty, mask: u32, base: $ty, limit: $ty, align: $ty) -> bool {
                const SIGN: $ty = 1 << ($ty::BITS - 1);
                // The sign says whether any offset exceeds `limit`.
                let mut bad = 0 as $ty;
                for i in 0..LANES {
                    // SAFETY: by contract.
                    let offset = unsafe { *lanes.add(i) }.wrapping_sub(base);
                    let offset = if mask == FULL || mask >> i & 1 != 0 { offset } else { 0 };
                    let over = (offset | limit.wrapping_sub(offset)) & SIGN;
                    bad |= over | (offset & (align - 1));
                }
                bad == 0
            }
        }
    )*};
}
address!(u32 u64);

/// What a load by a whole warp asks of its addresses, so that it need not go lane by lane.
pub(super) trait Addresses {
    /// Whether all of 32 addresses, less `base`, are at most `limit` and multiples of `align`.
    /// `limit` is less than half of the type's range.
    ///
    /// # Safety
    /// 32 addresses can be read, and the host has the instructions.
    unsafe fn inside64(lanes: *const u64, base: u64, limit: u64, align: u64) -> bool;

    /// As [`inside64`](Addresses::inside64).
    ///
    /// # Safety
    /// The same.
    unsafe fn inside32(lanes: *const u32, base: u32, limit: u32, align: u32) -> bool;

    /// Whether all addresses of a chunk are the same.
    ///
    /// # Safety
    /// 16 addresses can be read, and the host has the instructions.
    unsafe fn uniform64(lanes: *const u64) -> bool;

    /// Whether the addresses of two chunks are the same.
    ///
    /// # Safety
    /// As for [`uniform64`](Addresses::uniform64), for both.
    unsafe fn same64(one: *const u64, other: *const u64) -> bool;

    /// Whether each address of a chunk is `step` more than the one before.
    ///
    /// # Safety
    /// As for [`uniform64`](Addresses::uniform64).
    unsafe fn progression32(lanes: *const u32, step: u32) -> bool;
}

/// [`Addresses`] by loops, on any host.
pub(super) struct Loops;

impl Addresses for Loops {
    #[inline(always)]
    unsafe fn inside64(lanes: *const u64, base: u64, limit: u64, align: u64) -> bool {
        // SAFETY: by contract.
        unsafe { u64::inside(lanes, FULL, base, limit, align) }
    }

    #[inline(always)]
    unsafe fn inside32(lanes: *const u32, base: u32, limit: u32, align: u32) -> bool {
        // SAFETY: by contract.
        unsafe { u32::inside(lanes, FULL, base, limit, align) }
    }

    #[inline(always)]
    unsafe fn uniform64(lanes: *const u64) -> bool {
        // SAFETY: by contract.
        let lanes = unsafe { lanes.cast::<[u64; W]>().read() };
        lanes.iter().fold(0, |differ, lane| differ | lane ^ lanes[0]) == 0
    }

    #[inline(always)]
    unsafe fn same64(one: *const u64, other: *const u64) -> bool {
        // SAFETY: by contract.
        let [one, other] = unsafe { [one, other].map(|lanes| lanes.cast::<[u64; W]>().read()) };
        one.iter().zip(&other).fold(0, |differ, (one, other)| differ | one ^ other) == 0
    }

    #[inline(always)]
    unsafe fn progression32(lanes: *const u32, step: u32) -> bool {
        // SAFETY: by contract.
        let lanes = unsafe { lanes.cast::<[u32; W]>().read() };
        let wanted = |i: usize| lanes[0].wrapping_add(step.wrapping_mul(i as u32));
        lanes.iter().enumerate().fold(0, |differ, (i, lane)| differ | lane ^ wanted(i)) == 0
    }
}

/// Finds the one allocation that all active lanes access, and returns what to
/// add to a lane's register for the host address.
///
/// # Safety
/// `op.a` is a slot of 64-bit lanes.
#[inline(always)]
pub(super) unsafe fn one_allocation(
    cx: &mut Cx<'_>,
    op: &Op,
    offset: u32,
    bytes: u32,
) -> Option<(u64, *mut u8)> {
    let (offset, bytes) = (i64::from(offset as i32) as u64, u64::from(bytes));
    let index = cache_index(op);
    // SAFETY: by contract.
    unsafe {
        let lanes = cx.slot::<u64>(op.a);
        let entry = cx.cache[index];
        let base = entry.base.wrapping_sub(offset);
        if bytes <= entry.size && u64::inside(lanes, cx.mask, base, entry.size - bytes, bytes) {
            return Some((base, entry.host));
        }
        let entry = look_up(cx, *lanes.add(cx.mask.trailing_zeros() as usize), offset)?;
        cx.cache[index] = entry;
        let base = entry.base.wrapping_sub(offset);
        (bytes <= entry.size && u64::inside(lanes, cx.mask, base, entry.size - bytes, bytes))
            .then_some((base, entry.host))
    }
}

/// Where the cache has what `op` accessed last.
#[inline(always)]
fn cache_index(op: &Op) -> usize {
    (std::ptr::from_ref(op) as usize / size_of::<Op>()) % CACHE
}

/// The allocation that `op`, or another one, accessed last.
#[inline(always)]
pub(super) fn cached(cx: &Cx<'_>, op: &Op) -> CacheEntry {
    cx.cache[cache_index(op)]
}

/// The allocation that contains the address of one lane.
#[inline(never)]
fn look_up(cx: &Cx<'_>, lane: u64, offset: u64) -> Option<CacheEntry> {
    let found = cx.snapshot.find(lane.wrapping_add(offset))?;
    Some(CacheEntry { base: found.base, size: found.size, host: found.host() })
}

/// Whether all active lanes access shared memory properly, and what to
/// subtract from a lane's register for the offset into it.
///
/// # Safety
/// `op.a` is a slot of 32-bit lanes.
#[inline(always)]
pub(super) unsafe fn shared32(cx: &Cx<'_>, op: &Op, offset: u32, bytes: u32) -> Option<u32> {
    let base = SHARED_BASE.wrapping_sub(offset);
    // SAFETY: by contract.
    let inside = cx.shared_size >= bytes
        && unsafe { u32::inside(cx.slot(op.a), cx.mask, base, cx.shared_size - bytes, bytes) };
    inside.then_some(base)
}

/// Host addresses of all lanes; those of inactive lanes are null.
pub(super) type Pointers = [*mut u8; LANES];

/// The host memory that all active lanes access, if it is in one range. `wide` is whether the
/// addresses in slot `op.a` have 64 bits.
///
/// # Safety
/// Slot `op.a` has lanes of the size that `wide` says.
#[inline(always)]
unsafe fn together(
    cx: &mut Cx<'_>,
    op: &Op,
    (wide, offset): (bool, u32),
    bytes: u32,
    space: AddressSpace,
) -> Option<Pointers> {
    let mut out = [std::ptr::null_mut(); LANES];
    // SAFETY: by contract; what `one_allocation` and `shared32` return is inside their memory.
    unsafe {
        match (space, wide) {
            (AddressSpace::Global | AddressSpace::Generic, true) => {
                if let Some((base, host)) = one_allocation(cx, op, offset, bytes) {
                    for lane in cx.active() {
                        let address = *cx.slot::<u64>(op.a).add(lane);
                        out[lane] = host.add(address.wrapping_sub(base) as usize);
                    }
                    return Some(out);
                }
            }
            (AddressSpace::Shared, false) => {
                if let Some(base) = shared32(cx, op, offset, bytes) {
                    for lane in cx.active() {
                        let address = *cx.slot::<u32>(op.a).add(lane);
                        out[lane] = cx.shared.add(address.wrapping_sub(base) as usize);
                    }
                    return Some(out);
                }
            }
            _ => {}
        }
    }
    None
}

/// The host memory that all active lanes access, where the operation has no path of its own or
/// left it: by one range if they fit, else lane by lane. `wide` is as for [`together`].
///
/// # Safety
/// As for [`together`].
#[inline(never)]
pub(super) unsafe fn resolve_lanes(
    cx: &mut Cx<'_>,
    op: &Op,
    (wide, offset): (bool, u32),
    bytes: u32,
    space: AddressSpace,
    access: Access,
) -> Option<Pointers> {
    let one = |cx: &Cx<'_>, lane: usize, address: u64| {
        resolve(cx, lane as u32, address, bytes, space, access)
    };
    // SAFETY: by contract.
    unsafe { resolve_each(cx, op, (wide, offset), (bytes, space), one) }
}

/// As [`resolve_lanes`], where `one` finds the memory of one lane at its address.
///
/// # Safety
/// As for [`together`].
#[inline(always)]
pub(super) unsafe fn resolve_each(
    cx: &mut Cx<'_>,
    op: &Op,
    (wide, offset): (bool, u32),
    (bytes, space): (u32, AddressSpace),
    one: impl Fn(&Cx<'_>, usize, u64) -> Result<*mut u8, FaultKind>,
) -> Option<Pointers> {
    // SAFETY: by contract.
    if let Some(pointers) = unsafe { together(cx, op, (wide, offset), bytes, space) } {
        return Some(pointers);
    }
    let mut out = [std::ptr::null_mut(); LANES];
    for lane in cx.active() {
        // SAFETY: by contract.
        let address = unsafe { address_of(cx, lane, (op.a, wide, offset)) };
        match one(cx, lane, address) {
            Ok(host) => out[lane] = host,
            Err(kind) => {
                cx.fail(lane as u32, kind);
                return None;
            }
        }
    }
    Some(out)
}

/// The address of one lane: slot, whether it has 64 bits, and offset.
///
/// # Safety
/// The slot has lanes of that size.
#[inline(always)]
pub(crate) unsafe fn address_of(
    cx: &Cx<'_>,
    lane: usize,
    (slot, wide, offset): (u32, bool, u32),
) -> u64 {
    // SAFETY: by contract.
    unsafe {
        if wide {
            (*cx.slot::<u64>(slot).add(lane)).wrapping_add(i64::from(offset as i32) as u64)
        } else {
            u64::from((*cx.slot::<u32>(slot).add(lane)).wrapping_add(offset))
        }
    }
}

/// The host memory behind one access of one lane.
pub(crate) fn resolve(
    cx: &Cx<'_>,
    lane: u32,
    address: u64,
    bytes: u32,
    space: AddressSpace,
    access: Access,
) -> Result<*mut u8, FaultKind> {
    if !address.is_multiple_of(bytes.into()) {
        return Err(FaultKind::Misaligned { address, bytes, access, space });
    }
    find(cx, lane, (address, bytes), space, space, access)
}

/// As [`resolve`] for a global source of `have` bytes, aligned to `align`, of one lane of `op`: it
/// is looked for first where `op` accessed memory last.
#[inline(always)]
pub(crate) fn resolve_source(
    cx: &mut Cx<'_>,
    op: &Op,
    lane: u32,
    address: u64,
    (have, align): (u32, u32),
) -> Result<*mut u8, FaultKind> {
    let index = cache_index(op);
    let CacheEntry { base, size, host } = cx.cache[index];
    let (offset, bytes) = (address.wrapping_sub(base), u64::from(have));
    if is_aligned(address, align) && bytes <= size && offset <= size - bytes {
        // SAFETY: `offset + bytes <= size`, the size of what `host` points to.
        return Ok(unsafe { host.add(offset as usize) });
    }
    let (space, access) = (AddressSpace::Global, Access::Copy);
    if !is_aligned(address, align) {
        return Err(FaultKind::Misaligned { address, bytes: align, access, space });
    }
    let found = find(cx, lane, (address, have), space, space, access)?;
    cx.cache[index] = look_up(cx, address, 0).unwrap_or(CacheEntry::EMPTY);
    Ok(found)
}

/// As [`resolve`] for the block's shared memory, which a copy writes.
#[inline(always)]
pub(crate) fn resolve_target(
    cx: &Cx<'_>,
    lane: u32,
    address: u64,
    bytes: u32,
) -> Result<*mut u8, FaultKind> {
    let offset = address.wrapping_sub(SHARED_BASE.into());
    let inside = cx.shared_size >= bytes && offset <= u64::from(cx.shared_size - bytes);
    if inside && is_aligned(address, bytes) {
        // SAFETY: `offset + bytes <= shared_size`.
        return Ok(unsafe { cx.shared.add(offset as usize) });
    }
    resolve(cx, lane, address, bytes, AddressSpace::Shared, Access::Copy)
}

/// Whether an address is a multiple of `align`, a power of two.
#[inline(always)]
fn is_aligned(address: u64, align: u32) -> bool {
    address & u64::from(align - 1) == 0
}

/// As [`resolve`], whatever the alignment.
pub(crate) fn range(
    cx: &Cx<'_>,
    lane: u32,
    address: u64,
    bytes: u32,
    space: AddressSpace,
    access: Access,
) -> Result<*mut u8, FaultKind> {
    find(cx, lane, (address, bytes), space, space, access)
}

/// `named` is the space the instruction names, for messages.
fn find(
    cx: &Cx<'_>,
    lane: u32,
    (address, bytes): (u64, u32),
    space: AddressSpace,
    named: AddressSpace,
    access: Access,
) -> Result<*mut u8, FaultKind> {
    let within = |host: *mut u8, base: u32, size: u32| {
        let offset = address.wrapping_sub(u64::from(base));
        if offset <= u64::from(size) && u64::from(size) - offset >= u64::from(bytes) {
            // SAFETY: `offset + bytes <= size`, the size of what `host` points to.
            return Ok(unsafe { host.add(offset as usize) });
        }
        let (base, size) = (u64::from(base), u64::from(size));
        let place = if size == 0 {
            Place::Nowhere
        } else if address < base {
            Place::Before { base, size, distance: base - address }
        } else {
            Place::After { base, size, past_end: (address - base) as i64 - size as i64 }
        };
        Err(FaultKind::OutOfBounds { address, bytes, access, space: named, place })
    };
    match space {
        AddressSpace::Global | AddressSpace::Const => {
            let found = cx.snapshot.find(address);
            if let Some(host) = found.and_then(|found| found.resolve(address, bytes.into())) {
                return Ok(host);
            }
            Err(match cx.memory.place(address) {
                Place::Freed { base, size, allocated, freed } => {
                    FaultKind::UseAfterFree { address, bytes, access, base, size, allocated, freed }
                }
                place => FaultKind::OutOfBounds { address, bytes, access, space: named, place },
            })
        }
        AddressSpace::Shared => within(cx.shared, SHARED_BASE, cx.shared_size),
        AddressSpace::SharedCluster => cluster::find(cx, (address, bytes), named, access),
        AddressSpace::Local => {
            // SAFETY: every lane has `local_size` bytes, one after the other.
            let host = unsafe { cx.local.add((lane * cx.local_size) as usize) };
            within(host, LOCAL_BASE, cx.local_size)
        }
        AddressSpace::Param if access != Access::Load => {
            Err(FaultKind::ReadOnly { address, space: named })
        }
        AddressSpace::Param => within(cx.params.as_ptr().cast_mut().cast(), 0, cx.params_size),
        AddressSpace::Generic => {
            const SIZE: u64 = 1 << 32;
            let windows = [
                (SHARED_WINDOW, AddressSpace::SharedCluster),
                (LOCAL_WINDOW, AddressSpace::Local),
                (PARAM_WINDOW, AddressSpace::Param),
            ];
            for (window, inner) in windows {
                if address.wrapping_sub(window) < SIZE {
                    return find(cx, lane, (address - window, bytes), inner, named, access);
                }
            }
            find(cx, lane, (address, bytes), AddressSpace::Global, named, access)
        }
    }
}
