//! Loads and stores.
//!
//! Elements of 32 and 64 bits in global and shared memory, which kernels live on, have operations
//! of their own, which check all lanes at once (see [`super::address`]). All others share
//! [`LoadAny`] and [`StoreAny`].
//!
//! Shared and local memory belong to one block, which one host thread runs at
//! a time, so plain accesses do.

use std::marker::PhantomData;

use super::access::{SIDES, Side};
use super::address::{Addresses, Loops, Pointers, cached, one_allocation, resolve_lanes, shared32};
use super::element::{Element, Transfer};
use super::lanes::{W, write_lanes};
use super::machine::{FULL, LANES, RANK_SHIFT, SHARED_BASE, SHARED_WINDOW, SPACES, bits, space_of};
use super::op::{CacheEntry, Cx, Handler, Op};
#[cfg(target_arch = "x86_64")]
use super::{avx2::Avx2, avx512::Avx512};
use crate::fault::{Access, AddressSpace};

/// Where a load's destinations or a store's sources are.
#[inline(always)]
fn parts(op: &Op) -> [u32; 4] {
    [op.d, op.b, op.c, op.y]
}

/// Runs the block for every lane `$i` of a mask. No function that takes a closure, which might not
/// be inlined, and then not be compiled for the instruction set.
macro_rules! each {
    ($mask:expr, $i:ident, $body:block) => {
        if $mask == FULL {
            for $i in 0..LANES $body
        } else {
            for $i in bits($mask) $body
        }
    };
}

/// Load of `N` elements from global memory: `a` address slot (64-bit lanes), `x` offset,
/// `d`, `b`, `c`, `y` destinations.
pub(crate) struct LoadGlobal<T, const N: usize>(PhantomData<T>);

// SAFETY: touches only the slots named.
unsafe impl<T: Element, const N: usize> Handler for LoadGlobal<T, N> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: by the contract of the trait.
        unsafe { load_global::<T, N, Loops>(cx, op) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
    unsafe fn avx2(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: by the contract of the trait.
        unsafe { load_global::<T, N, Avx2>(cx, op) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
    unsafe fn avx512(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: by the contract of the trait.
        unsafe { load_global::<T, N, Avx512>(cx, op) }
    }

    #[inline(never)]
    unsafe fn compact(cx: &mut Cx<'_>, op: &Op) -> bool {
        let (bytes, space) = (T::BYTES * N as u32, AddressSpace::Global);
        // SAFETY: as in `run`.
        unsafe {
            let pointers = resolve_lanes(cx, op, (true, op.x), bytes, space, Access::Load);
            let Some(pointers) = pointers else { return true };
            cx.active().for_each(|i| load_atomic::<T, N>(cx, op, i, pointers[i]));
        }
        false
    }
}

/// [`LoadGlobal`], with the addresses looked at by `A`.
///
/// # Safety
/// As for [`Handler::run`], and the host has what `A` needs.
#[inline(always)]
unsafe fn load_global<T: Element, const N: usize, A: Addresses>(cx: &mut Cx<'_>, op: &Op) -> bool {
    let bytes = T::BYTES * N as u32;
    let CacheEntry { base, size, host } = cached(cx, op);
    let base = base.wrapping_sub(i64::from(op.x as i32) as u64);
    // SAFETY: the slots have the lane size of `T`; all lanes are inside of one allocation, or
    // `one_allocation` returns memory that they may access.
    unsafe {
        let lanes = cx.slot::<u64>(op.a);
        let of_size = u64::from(bytes);
        let inside = || of_size <= size && A::inside64(lanes, base, size - of_size, of_size);
        if cx.mask == FULL && inside() {
            let at =
                |i: usize| host.wrapping_sub(base as usize).wrapping_add(*lanes.add(i) as usize);
            for j in (0..LANES).step_by(W) {
                // Most addresses that are not all the same differ at the ends.
                if *lanes.add(j) == *lanes.add(j + W - 1) && A::uniform64(lanes.add(j)) {
                    let at = at(j);
                    for (k, &slot) in parts(op)[..N].iter().enumerate() {
                        let value = T::load_atomic(at.add(k * size_of::<T>()));
                        fill_chunk(cx, slot, j, value);
                    }
                } else if j != 0 && *lanes == *lanes.add(j) && A::same64(lanes, lanes.add(j)) {
                    // Both halves of a warp often load the same.
                    for &slot in &parts(op)[..N] {
                        let slot = cx.slot::<[T; W]>(slot);
                        slot.add(1).write(slot.read());
                    }
                } else {
                    for i in j..j + W {
                        load_atomic::<T, N>(cx, op, i, at(i));
                    }
                }
            }
            return false;
        }
        if let Some((base, host)) = one_allocation(cx, op, op.x, bytes) {
            let lanes = cx.slot::<u64>(op.a);
            each!(cx.mask, i, {
                let at = host.add((*lanes.add(i)).wrapping_sub(base) as usize);
                load_atomic::<T, N>(cx, op, i, at);
            });
            return false;
        }
        LoadGlobal::<T, N>::compact(cx, op)
    }
}

/// Gives all lanes of a chunk one value.
///
/// # Safety
/// `slot` has lanes of `T`, and `j` is the first of a chunk.
#[inline(always)]
unsafe fn fill_chunk<T: Copy>(cx: &Cx<'_>, slot: u32, j: usize, value: T) {
    // SAFETY: by contract.
    unsafe { cx.slot::<T>(slot).add(j).cast::<[T; W]>().write([value; W]) };
}

/// Loads one lane.
///
/// # Safety
/// `at` may be read for the access; the slots of `op` are those of a load.
#[inline(always)]
unsafe fn load_atomic<T: Element, const N: usize>(cx: &Cx<'_>, op: &Op, lane: usize, at: *mut u8) {
    for (k, &slot) in parts(op)[..N].iter().enumerate() {
        // SAFETY: by contract.
        unsafe { *cx.slot::<T>(slot).add(lane) = T::load_atomic(at.add(k * size_of::<T>())) };
    }
}

/// Store of `N` elements to global memory: `a` address slot (64-bit lanes), `x` offset,
/// `d`, `b`, `c`, `y` sources.
pub(crate) struct StoreGlobal<T, const N: usize>(PhantomData<T>);

// SAFETY: touches only the slots named.
unsafe impl<T: Element, const N: usize> Handler for StoreGlobal<T, N> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let bytes = T::BYTES * N as u32;
        // SAFETY: as in `LoadGlobal`.
        unsafe {
            if let Some((base, host)) = one_allocation(cx, op, op.x, bytes) {
                let lanes = cx.slot::<u64>(op.a);
                each!(cx.mask, i, {
                    let at = host.add((*lanes.add(i)).wrapping_sub(base) as usize);
                    store_atomic::<T, N>(cx, op, i, at);
                });
                return false;
            }
        }
        // SAFETY: by the contract of the trait.
        unsafe { Self::compact(cx, op) }
    }

    #[inline(never)]
    unsafe fn compact(cx: &mut Cx<'_>, op: &Op) -> bool {
        let (bytes, space) = (T::BYTES * N as u32, AddressSpace::Global);
        // SAFETY: as in `run`.
        unsafe {
            let pointers = resolve_lanes(cx, op, (true, op.x), bytes, space, Access::Store);
            let Some(pointers) = pointers else { return true };
            cx.active().for_each(|i| store_atomic::<T, N>(cx, op, i, pointers[i]));
        }
        false
    }
}

/// Stores one lane.
///
/// # Safety
/// `at` may be written for the access; the slots of `op` are those of a store.
#[inline(always)]
unsafe fn store_atomic<T: Element, const N: usize>(cx: &Cx<'_>, op: &Op, lane: usize, at: *mut u8) {
    for (k, &slot) in parts(op)[..N].iter().enumerate() {
        // SAFETY: by contract.
        unsafe { T::store_atomic(at.add(k * size_of::<T>()), *cx.slot::<T>(slot).add(lane)) };
    }
}

/// Load of `N` elements from shared memory by a 32-bit address; fields as for
/// [`LoadGlobal`].
pub(crate) struct LoadShared<T, const N: usize>(PhantomData<T>);

// SAFETY: touches only the slots named.
unsafe impl<T: Element, const N: usize> Handler for LoadShared<T, N> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: by the contract of the trait.
        unsafe { load_shared::<T, N, Loops>(cx, op) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
    unsafe fn avx2(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: by the contract of the trait.
        unsafe { load_shared::<T, N, Avx2>(cx, op) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
    unsafe fn avx512(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: by the contract of the trait.
        unsafe { load_shared::<T, N, Avx512>(cx, op) }
    }

    #[inline(never)]
    unsafe fn compact(cx: &mut Cx<'_>, op: &Op) -> bool {
        let (bytes, space) = (T::BYTES * N as u32, AddressSpace::Shared);
        // SAFETY: as in `run`.
        unsafe {
            let pointers = resolve_lanes(cx, op, (false, op.x), bytes, space, Access::Load);
            let Some(pointers) = pointers else { return true };
            cx.active().for_each(|i| load_atomic::<T, N>(cx, op, i, pointers[i]));
        }
        false
    }
}

/// [`LoadShared`], with the addresses looked at by `A`.
///
/// # Safety
/// As for [`Handler::run`], and the host has what `A` needs.
#[inline(always)]
unsafe fn load_shared<T: Element, const N: usize, A: Addresses>(cx: &mut Cx<'_>, op: &Op) -> bool {
    let bytes = T::BYTES * N as u32;
    // SAFETY: the slots have the lane size of `T`; every lane's access is inside of shared memory
    // and aligned, as `inside32` or `shared32` has found.
    unsafe {
        let (lanes, size) = (cx.slot::<u32>(op.a), cx.shared_size);
        let load = |i: usize, base: u32| {
            let at = cx.shared.add((*lanes.add(i)).wrapping_sub(base) as usize);
            let values = at.cast::<[T; N]>().read();
            for (k, &slot) in parts(op)[..N].iter().enumerate() {
                *cx.slot::<T>(slot).add(i) = values[k];
            }
        };
        let base = SHARED_BASE.wrapping_sub(op.x);
        let inside = || bytes <= size && A::inside32(lanes, base, size - bytes, bytes);
        if cx.mask == FULL && inside() {
            let at = |i: usize| {
                cx.shared.add((*lanes.add(i)).wrapping_sub(base) as usize).cast::<[T; N]>()
            };
            for j in (0..LANES).step_by(W) {
                if A::progression32(lanes.add(j), 0) {
                    let values = at(j).read();
                    for (&slot, &value) in parts(op)[..N].iter().zip(&values) {
                        fill_chunk(cx, slot, j, value);
                    }
                } else if N == 1 && A::progression32(lanes.add(j), bytes) {
                    let values = at(j).cast::<[T; W]>().read_unaligned();
                    cx.slot::<T>(op.d).add(j).cast::<[T; W]>().write(values);
                } else {
                    for i in j..j + W {
                        load(i, base);
                    }
                }
            }
            return false;
        }
        if let Some(base) = shared32(cx, op, op.x, bytes) {
            each!(cx.mask, i, {
                load(i, base);
            });
            return false;
        }
        LoadShared::<T, N>::compact(cx, op)
    }
}

/// Store of `N` elements to shared memory by a 32-bit address; fields as for
/// [`StoreGlobal`].
pub(crate) struct StoreShared<T, const N: usize>(PhantomData<T>);

// SAFETY: touches only the slots named.
unsafe impl<T: Element, const N: usize> Handler for StoreShared<T, N> {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let bytes = T::BYTES * N as u32;
        // SAFETY: as in `LoadShared`.
        unsafe {
            if let Some(base) = shared32(cx, op, op.x, bytes) {
                let lanes = cx.slot::<u32>(op.a);
                each!(cx.mask, i, {
                    let at = cx.shared.add((*lanes.add(i)).wrapping_sub(base) as usize);
                    for (k, &slot) in parts(op)[..N].iter().enumerate() {
                        at.cast::<T>().add(k).write(*cx.slot::<T>(slot).add(i));
                    }
                });
                return false;
            }
        }
        // SAFETY: by the contract of the trait.
        unsafe { Self::compact(cx, op) }
    }

    #[inline(never)]
    unsafe fn compact(cx: &mut Cx<'_>, op: &Op) -> bool {
        let (bytes, space) = (T::BYTES * N as u32, AddressSpace::Shared);
        // SAFETY: as in `run`.
        unsafe {
            let pointers = resolve_lanes(cx, op, (false, op.x), bytes, space, Access::Store);
            let Some(pointers) = pointers else { return true };
            cx.active().for_each(|i| store_atomic::<T, N>(cx, op, i, pointers[i]));
        }
        false
    }
}

/// Load of a kernel parameter to `d`, from byte `x`; `y` is a packed [`Transfer`].
pub(crate) struct LoadParam;

// SAFETY: touches only the slot `d`. That the parameter is inside the
// parameter bytes was checked when the operation was decoded.
unsafe impl Handler for LoadParam {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let transfer = Transfer::unpack(op.y);
        let mut raw = [0; 8];
        // SAFETY: as above.
        unsafe {
            let at = cx.params.as_ptr().cast::<u8>().add(op.x as usize);
            at.copy_to_nonoverlapping(raw.as_mut_ptr(), transfer.bytes as usize);
            let bits = transfer.extend(u64::from_le_bytes(raw));
            match transfer.wide {
                true => write_lanes(cx, op.d, |_| [bits; W]),
                false => write_lanes(cx, op.d, |_| [bits as u32; W]),
            }
        }
        false
    }
}

/// A load from any space: `a` address slot; [`Cx::extra`] from `x`: offset, space, whether the
/// address has 64 bits, a packed [`Transfer`], number of parts, their slots.
pub(crate) struct LoadAny;
/// A store to any space; fields as for [`LoadAny`].
pub(crate) struct StoreAny;

/// # Safety
/// `op` is a [`LoadAny`] or [`StoreAny`].
unsafe fn resolve_any<'k>(
    cx: &mut Cx<'k>,
    op: &Op,
    access: Access,
) -> Option<(Pointers, Transfer, &'k [u32])> {
    let words = &cx.extra[op.x as usize..];
    let [offset, space, wide, transfer, n] = [0, 1, 2, 3, 4].map(|i| words[i]);
    let (space, transfer) = (SPACES[space as usize], Transfer::unpack(transfer));
    let (from, bytes) = ((wide != 0, offset), transfer.bytes * n);
    // SAFETY: the words describe slot `a`.
    let pointers = unsafe { resolve_lanes(cx, op, from, bytes, space, access) }?;
    Some((pointers, transfer, &words[5..5 + n as usize]))
}

// SAFETY: touches only the slots named.
unsafe impl Handler for LoadAny {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: the slots have the lane size that the words say, the pointers are good.
        unsafe {
            let resolved = resolve_any(cx, op, Access::Load);
            let Some((pointers, transfer, slots)) = resolved else { return true };
            for i in cx.active() {
                for (k, &slot) in slots.iter().enumerate() {
                    let bits = transfer.load(pointers[i].add(k * transfer.bytes as usize));
                    match transfer.wide {
                        true => *cx.slot::<u64>(slot).add(i) = bits,
                        false => *cx.slot::<u32>(slot).add(i) = bits as u32,
                    }
                }
            }
        }
        false
    }
}

// SAFETY: touches only the slots named.
unsafe impl Handler for StoreAny {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: the slots have the lane size that the words say, the pointers are good.
        unsafe {
            let resolved = resolve_any(cx, op, Access::Store);
            let Some((pointers, transfer, slots)) = resolved else { return true };
            for i in cx.active() {
                for (k, &slot) in slots.iter().enumerate() {
                    let bits = match transfer.wide {
                        true => *cx.slot::<u64>(slot).add(i),
                        false => (*cx.slot::<u32>(slot).add(i)).into(),
                    };
                    transfer.store(pointers[i].add(k * transfer.bytes as usize), bits);
                }
            }
        }
        false
    }
}

/// A memory fence: `membar`, `fence`, and the ordered side of acquire loads
/// and release stores. `x` is whether it orders threads of other blocks, too; `y` its [`Side`].
pub(crate) struct Fence;

// SAFETY: touches no slot.
unsafe impl Handler for Fence {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        cx.order.fence(cx.warp);
        let side = SIDES[op.y as usize];
        // What an acquire makes known is noted where it is read.
        if let Some(checker) = &mut cx.checker
            && side != Side::Acquire
        {
            // What it loaded comes before what others write who know of this.
            checker.put_loads();
            checker.known.fence(cx.warp, cx.mask, op.x != 0, side);
        }
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
                let address = *cx.slot::<u64>(op.a).add(i);
                let inside = match (space_of(address), SPACES[op.x as usize]) {
                    (Some(AddressSpace::Shared), AddressSpace::SharedCluster) => true,
                    // A block's own shared memory has no rank in its addresses.
                    (Some(AddressSpace::Shared), AddressSpace::Shared) => {
                        (address - SHARED_WINDOW) >> RANK_SHIFT == 0
                    }
                    (space, other) => space == Some(other),
                };
                mask |= u32::from(inside) << i;
            }
            cx.set_pred(op.d, mask);
        }
        false
    }
}
