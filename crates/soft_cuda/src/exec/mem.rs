//! Loads and stores.
//!
//! Each operation has a fast path that checks the addresses of all lanes
//! against one range at once: the allocation it accessed last, or the block's
//! shared memory. Whatever does not fit there goes through [`resolve`], lane
//! by lane, which either finds the memory or says what is wrong.
//!
//! Global memory is accessed by relaxed atomics (see [`crate::memory`]).
//! Shared and local memory belong to one block, which one host thread runs at
//! a time, so plain accesses do.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::{CACHE, CacheEntry, Cx, FULL, Handler, LANES, Op, bits};
use crate::error::{Access, AddressSpace, FaultKind, Place};
use crate::memory::{GLOBAL_BASE, GLOBAL_END};

/// Address of the first byte of shared memory in its own space. As on recent
/// GPUs it is not 0, so that a null pointer is caught.
pub(crate) const SHARED_BASE: u32 = 1024;
/// Address of the first byte of local memory in its own space.
pub(crate) const LOCAL_BASE: u32 = 1024;
/// What is added to a shared address to make it generic.
pub(crate) const SHARED_WINDOW: u64 = 0x0051_0000_0000_0000;
/// What is added to a local address to make it generic.
pub(crate) const LOCAL_WINDOW: u64 = 0x0052_0000_0000_0000;
/// What is added to a parameter address to make it generic.
pub(crate) const PARAM_WINDOW: u64 = 0x0053_0000_0000_0000;

/// An element as it lies in memory.
pub(crate) trait Element: Copy {
    const BYTES: u64;
    /// # Safety
    /// `at` is aligned and inside memory that is accessed only atomically.
    unsafe fn load_atomic(at: *const u8) -> Self;
    /// # Safety
    /// As for `load_atomic`.
    unsafe fn store_atomic(at: *mut u8, value: Self);
}

macro_rules! element {
    ($($ty:ty, $atomic:ty, $bits:ty;)*) => {$(
        impl Element for $ty {
            const BYTES: u64 = size_of::<$ty>() as u64;
            #[inline(always)]
            unsafe fn load_atomic(at: *const u8) -> $ty {
                // SAFETY: by contract.
                unsafe { (*at.cast::<$atomic>()).load(Relaxed) as $ty }
            }
            #[inline(always)]
            unsafe fn store_atomic(at: *mut u8, value: $ty) {
                // SAFETY: by contract.
                unsafe { (*at.cast::<$atomic>()).store(value as $bits, Relaxed) }
            }
        }
    )*};
}

element! {
    u8, AtomicU8, u8;
    i8, AtomicU8, u8;
    u16, AtomicU16, u16;
    i16, AtomicU16, u16;
    u32, AtomicU32, u32;
    i32, AtomicU32, u32;
    u64, AtomicU64, u64;
}

/// An element type and the register lane it is loaded to or stored from.
/// Loads extend by the element's sign, stores truncate.
pub(crate) trait Transfer {
    type Element: Element;
    type Slot: Copy;
    fn load(value: Self::Element) -> Self::Slot;
    fn store(slot: Self::Slot) -> Self::Element;
}

/// See [`Transfer`].
pub(crate) struct As<E, S>(PhantomData<(E, S)>);

macro_rules! transfer {
    ($($element:ty => $($slot:ty),*;)*) => {$($(
        impl Transfer for As<$element, $slot> {
            type Element = $element;
            type Slot = $slot;
            #[inline(always)]
            fn load(value: $element) -> $slot {
                value as $slot
            }
            #[inline(always)]
            fn store(slot: $slot) -> $element {
                slot as $element
            }
        }
    )*)*};
}

transfer! {
    u8 => u32, u64;
    i8 => u32, u64;
    u16 => u32, u64;
    i16 => u32, u64;
    u32 => u32, u64;
    i32 => u64;
    u64 => u64;
}

/// A register lane that holds an address.
pub(crate) trait Address: Copy {
    /// Whether all of `lanes` addresses, less `base`, are at most `limit` and
    /// multiples of `align`. `limit` is less than half of the type's range.
    ///
    /// # Safety
    /// 32 addresses at `lanes` can be read.
    unsafe fn inside(lanes: *const Self, mask: u32, base: Self, limit: Self, align: Self) -> bool;
}

macro_rules! address {
    ($($ty:ident)*) => {$(
        impl Address for $ty {
            #[inline(always)]
            unsafe fn inside(lanes: *const $ty, mask: u32, base: $ty, limit: $ty, align: $ty) -> bool {
                // The sign of `over` says whether any offset exceeds `limit`.
                let (mut over, mut low) = (0 as $ty, 0 as $ty);
                if mask == FULL {
                    for i in 0..LANES {
                        // SAFETY: by contract.
                        let offset = unsafe { *lanes.add(i) }.wrapping_sub(base);
                        over |= offset | limit.wrapping_sub(offset);
                        low |= offset;
                    }
                } else {
                    for i in 0..LANES {
                        // SAFETY: by contract.
                        let offset = unsafe { *lanes.add(i) }.wrapping_sub(base);
                        let offset = if mask >> i & 1 != 0 { offset } else { 0 };
                        over |= offset | limit.wrapping_sub(offset);
                        low |= offset;
                    }
                }
                (over >> ($ty::BITS - 1)) == 0 && low & (align - 1) == 0
            }
        }
    )*};
}
address!(u32 u64);

/// Finds the one allocation that all active lanes access, and returns what to
/// add to a lane's register for the host address.
///
/// # Safety
/// `op.a` is a slot of 64-bit lanes.
#[inline(always)]
unsafe fn one_allocation(cx: &mut Cx<'_>, op: &Op, bytes: u64) -> Option<(u64, *mut u8)> {
    let offset = i64::from(op.x as i32) as u64;
    let index = (std::ptr::from_ref(op) as usize / size_of::<Op>()) % CACHE;
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
/// `op.a` is a slot of `A` lanes.
#[inline(always)]
unsafe fn shared32(cx: &Cx<'_>, op: &Op, bytes: u32) -> Option<u32> {
    let base = SHARED_BASE.wrapping_sub(op.x);
    // SAFETY: by contract.
    let inside = cx.shared_size >= bytes
        && unsafe { u32::inside(cx.slot(op.a), cx.mask, base, cx.shared_size - bytes, bytes) };
    inside.then_some(base)
}

/// Host addresses of all lanes; those of inactive lanes are null.
type Pointers = [*mut u8; LANES];

/// The slow path: resolves lane by lane. `space` and `wide` (whether the
/// addresses have 64 bits) describe slot `a`.
///
/// # Safety
/// Slot `a` has lanes of the size that `wide` says.
#[inline(never)]
unsafe fn resolve_lanes(
    cx: &mut Cx<'_>,
    (a, wide, offset): (u32, bool, u32),
    bytes: u32,
    space: AddressSpace,
    access: Access,
) -> Option<Pointers> {
    let mut out = [std::ptr::null_mut(); LANES];
    for lane in cx.active() {
        // SAFETY: by contract.
        let address = unsafe { address_of(cx, lane, (a, wide, offset)) };
        match resolve(cx, lane as u32, address, bytes, space, access) {
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

/// As [`resolve`] for a global source of `have` bytes, aligned to `align`.
pub(crate) fn resolve_part(
    cx: &Cx<'_>,
    lane: u32,
    address: u64,
    have: u32,
    align: u32,
) -> Result<*mut u8, FaultKind> {
    let (space, access) = (AddressSpace::Global, Access::Copy);
    if !address.is_multiple_of(align.into()) {
        return Err(FaultKind::Misaligned { address, bytes: align, access, space });
    }
    find(cx, lane, (address, have), space, space, access)
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
                Place::Freed { base, size } => {
                    FaultKind::UseAfterFree { address, bytes, access, base, size }
                }
                place => FaultKind::OutOfBounds { address, bytes, access, space: named, place },
            })
        }
        AddressSpace::Shared => within(cx.shared, SHARED_BASE, cx.shared_size),
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
                (SHARED_WINDOW, AddressSpace::Shared),
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

/// The state space that a generic address lies in.
pub(crate) fn space_of(address: u64) -> Option<AddressSpace> {
    match address {
        GLOBAL_BASE..GLOBAL_END => Some(AddressSpace::Global),
        _ => match address >> 48 << 48 {
            SHARED_WINDOW => Some(AddressSpace::Shared),
            LOCAL_WINDOW => Some(AddressSpace::Local),
            PARAM_WINDOW => Some(AddressSpace::Param),
            _ => None,
        },
    }
}

/// Where a load's destinations or a store's sources are.
#[inline(always)]
fn parts(op: &Op) -> [u32; 4] {
    [op.d, op.b, op.c, op.y]
}

/// Calls `f` with every active lane.
#[inline(always)]
fn each(mask: u32, mut f: impl FnMut(usize)) {
    if mask == FULL {
        for lane in 0..LANES {
            f(lane);
        }
    } else {
        for lane in bits(mask) {
            f(lane);
        }
    }
}

/// Load of `N` elements from global or generic memory: `a` address slot (64-bit lanes),
/// `x` offset, `d`, `b`, `c`, `y` destinations.
pub(crate) struct LoadGlobal<T, const N: usize, const GENERIC: bool>(PhantomData<T>);

// SAFETY: touches only the slots named.
unsafe impl<T: Transfer, const N: usize, const GENERIC: bool> Handler
    for LoadGlobal<T, N, GENERIC>
{
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let bytes = T::Element::BYTES * N as u64;
        // SAFETY: the slots have the lane sizes of `T`; `one_allocation` and
        // `resolve_lanes` return only memory that the lanes may access.
        unsafe {
            if let Some((base, host)) = one_allocation(cx, op, bytes) {
                let lanes = cx.slot::<u64>(op.a);
                each(cx.mask, |i| {
                    let at = host.add((*lanes.add(i)).wrapping_sub(base) as usize);
                    load_atomic::<T, N>(cx, op, i, at);
                });
                return false;
            }
            let space = if GENERIC { AddressSpace::Generic } else { AddressSpace::Global };
            let from = (op.a, true, op.x);
            let Some(pointers) = resolve_lanes(cx, from, bytes as u32, space, Access::Load) else {
                return true;
            };
            each(cx.mask, |i| load_atomic::<T, N>(cx, op, i, pointers[i]));
        }
        false
    }
}

/// Loads one lane.
///
/// # Safety
/// `at` may be read for the access; the slots of `op` are those of a load.
#[inline(always)]
unsafe fn load_atomic<T: Transfer, const N: usize>(cx: &Cx<'_>, op: &Op, lane: usize, at: *mut u8) {
    for (k, slot) in parts(op).into_iter().take(N).enumerate() {
        // SAFETY: by contract.
        unsafe {
            let value = T::Element::load_atomic(at.add(k * size_of::<T::Element>()));
            *cx.slot::<T::Slot>(slot).add(lane) = T::load(value);
        }
    }
}

/// Store of `N` elements to global or generic memory: `a` address slot (64-bit lanes), `x`
/// offset, `d`, `b`, `c`, `y` sources.
pub(crate) struct StoreGlobal<T, const N: usize, const GENERIC: bool>(PhantomData<T>);

// SAFETY: touches only the slots named.
unsafe impl<T: Transfer, const N: usize, const GENERIC: bool> Handler
    for StoreGlobal<T, N, GENERIC>
{
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let bytes = T::Element::BYTES * N as u64;
        // SAFETY: as in `LoadGlobal`.
        unsafe {
            if let Some((base, host)) = one_allocation(cx, op, bytes) {
                let lanes = cx.slot::<u64>(op.a);
                each(cx.mask, |i| {
                    let at = host.add((*lanes.add(i)).wrapping_sub(base) as usize);
                    store_atomic::<T, N>(cx, op, i, at);
                });
                return false;
            }
            let space = if GENERIC { AddressSpace::Generic } else { AddressSpace::Global };
            let to = (op.a, true, op.x);
            let Some(pointers) = resolve_lanes(cx, to, bytes as u32, space, Access::Store) else {
                return true;
            };
            each(cx.mask, |i| store_atomic::<T, N>(cx, op, i, pointers[i]));
        }
        false
    }
}

/// Stores one lane.
///
/// # Safety
/// `at` may be written for the access; the slots of `op` are those of a store.
#[inline(always)]
unsafe fn store_atomic<T: Transfer, const N: usize>(
    cx: &Cx<'_>,
    op: &Op,
    lane: usize,
    at: *mut u8,
) {
    for (k, slot) in parts(op).into_iter().take(N).enumerate() {
        // SAFETY: by contract.
        unsafe {
            let value = T::store(*cx.slot::<T::Slot>(slot).add(lane));
            T::Element::store_atomic(at.add(k * size_of::<T::Element>()), value);
        }
    }
}

/// Load of a kernel parameter to `d`, from byte `x`.
pub(crate) struct LoadParam<T>(PhantomData<T>);

// SAFETY: touches only the slot `d`. That the parameter is inside the
// parameter bytes was checked when the operation was decoded.
unsafe impl<T: Transfer> Handler for LoadParam<T> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: as above.
        unsafe {
            let at = cx.params.as_ptr().cast::<u8>().add(op.x as usize);
            let value = T::load(at.cast::<T::Element>().read_unaligned());
            super::lanes::write_lanes(cx, op.d, |_| [value; super::lanes::W]);
        }
        false
    }
}

/// Load of `N` elements from shared memory by a 32-bit address; fields as for
/// [`LoadGlobal`].
pub(crate) struct LoadShared<T, const N: usize>(PhantomData<T>);

// SAFETY: touches only the slots named.
unsafe impl<T: Transfer, const N: usize> Handler for LoadShared<T, N> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let bytes = (T::Element::BYTES * N as u64) as u32;
        // SAFETY: the slots have the lane sizes of `T`; `shared32` checked
        // that every lane's access is inside shared memory and aligned.
        unsafe {
            if let Some(base) = shared32(cx, op, bytes) {
                let lanes = cx.slot::<u32>(op.a);
                each(cx.mask, |i| {
                    let at = cx.shared.add((*lanes.add(i)).wrapping_sub(base) as usize);
                    let values = at.cast::<[T::Element; N]>().read();
                    for (k, slot) in parts(op).into_iter().take(N).enumerate() {
                        *cx.slot::<T::Slot>(slot).add(i) = T::load(values[k]);
                    }
                });
                return false;
            }
            let from = (op.a, false, op.x);
            resolve_lanes(cx, from, bytes, AddressSpace::Shared, Access::Load);
        }
        true
    }
}

/// Store of `N` elements to shared memory by a 32-bit address; fields as for
/// [`StoreGlobal`].
pub(crate) struct StoreShared<T, const N: usize>(PhantomData<T>);

// SAFETY: touches only the slots named.
unsafe impl<T: Transfer, const N: usize> Handler for StoreShared<T, N> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let bytes = (T::Element::BYTES * N as u64) as u32;
        // SAFETY: as in `LoadShared`.
        unsafe {
            if let Some(base) = shared32(cx, op, bytes) {
                let lanes = cx.slot::<u32>(op.a);
                each(cx.mask, |i| {
                    let at = cx.shared.add((*lanes.add(i)).wrapping_sub(base) as usize);
                    for (k, slot) in parts(op).into_iter().take(N).enumerate() {
                        let value = T::store(*cx.slot::<T::Slot>(slot).add(i));
                        at.cast::<T::Element>().add(k).write(value);
                    }
                });
                return false;
            }
            let to = (op.a, false, op.x);
            resolve_lanes(cx, to, bytes, AddressSpace::Shared, Access::Store);
        }
        true
    }
}

/// Spaces, in the order of the numbers that operations carry.
pub(crate) const SPACES: [AddressSpace; 6] = [
    AddressSpace::Global,
    AddressSpace::Shared,
    AddressSpace::Local,
    AddressSpace::Param,
    AddressSpace::Const,
    AddressSpace::Generic,
];

/// A load from any space: `a` address slot; [`Cx::extra`] from `x`: offset,
/// space, whether the address has 64 bits, number of parts, their slots.
pub(crate) struct LoadAny<T>(PhantomData<T>);
/// A store to any space; fields as for [`LoadAny`].
pub(crate) struct StoreAny<T>(PhantomData<T>);

/// # Safety
/// `op` is a [`LoadAny`] or [`StoreAny`].
unsafe fn resolve_any<'k>(
    cx: &mut Cx<'k>,
    op: &Op,
    element: u64,
    access: Access,
) -> Option<(Pointers, &'k [u32])> {
    let words = &cx.extra[op.x as usize..];
    let [offset, space, wide, n] = [words[0], words[1], words[2], words[3]];
    let (space, bytes) = (SPACES[space as usize], element as u32 * n);
    // SAFETY: the words describe slot `a`.
    let pointers = unsafe { resolve_lanes(cx, (op.a, wide != 0, offset), bytes, space, access) }?;
    Some((pointers, &words[4..4 + n as usize]))
}

// SAFETY: touches only the slots named.
unsafe impl<T: Transfer> Handler for LoadAny<T> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: the slots have the lane sizes of `T`, the pointers are good.
        unsafe {
            let resolved = resolve_any(cx, op, T::Element::BYTES, Access::Load);
            let Some((pointers, slots)) = resolved else { return true };
            for i in cx.active() {
                for (k, &slot) in slots.iter().enumerate() {
                    let at = pointers[i].add(k * size_of::<T::Element>());
                    *cx.slot::<T::Slot>(slot).add(i) = T::load(T::Element::load_atomic(at));
                }
            }
        }
        false
    }
}

// SAFETY: touches only the slots named.
unsafe impl<T: Transfer> Handler for StoreAny<T> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: the slots have the lane sizes of `T`, the pointers are good.
        unsafe {
            let resolved = resolve_any(cx, op, T::Element::BYTES, Access::Store);
            let Some((pointers, slots)) = resolved else { return true };
            for i in cx.active() {
                for (k, &slot) in slots.iter().enumerate() {
                    let at = pointers[i].add(k * size_of::<T::Element>());
                    T::Element::store_atomic(at, T::store(*cx.slot::<T::Slot>(slot).add(i)));
                }
            }
        }
        false
    }
}

/// Host addresses for an atomic of `bytes` bytes; `op.a` and the first three
/// extra words are as for [`LoadAny`].
///
/// # Safety
/// As above.
pub(crate) unsafe fn resolve_atomic(cx: &mut Cx<'_>, op: &Op, bytes: u32) -> Option<Pointers> {
    let [offset, space, wide] = [0, 1, 2].map(|i| cx.extra[op.x as usize + i]);
    let space = SPACES[space as usize];
    // SAFETY: by contract.
    unsafe { resolve_lanes(cx, (op.a, wide != 0, offset), bytes, space, Access::Atomic) }
}

/// Copies `from_src` bytes and fills up to `bytes` with zeros.
///
/// # Safety
/// `dst` has room for `bytes`, `src` has `from_src` bytes.
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, from_src: u32, bytes: u32) {
    for i in 0..bytes as usize {
        // SAFETY: by contract.
        unsafe {
            let value = if i < from_src as usize { u8::load_atomic(src.add(i)) } else { 0 };
            dst.add(i).write(value);
        }
    }
}

/// A memory fence: `membar`, `fence`, and the ordered side of acquire loads
/// and release stores.
pub(crate) struct Fence;

// SAFETY: touches no slot.
unsafe impl Handler for Fence {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, _op: &Op) -> bool {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        cx.order.fence(cx.warp);
        false
    }
}

/// `isspacep`: predicate `d` = whether the generic address in slot `a` lies in
/// space number `x`.
pub(crate) struct IsSpace;

// SAFETY: touches only the slot `a` and the predicate `d`.
unsafe impl Handler for IsSpace {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let mut mask = 0;
        // SAFETY: `a` has 64-bit lanes.
        unsafe {
            for i in cx.active() {
                let space = space_of(*cx.slot::<u64>(op.a).add(i));
                mask |= u32::from(space == Some(SPACES[op.x as usize])) << i;
            }
            cx.set_pred(op.d, mask);
        }
        false
    }
}
