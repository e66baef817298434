//! The boxes of tensors that bulk copies copy.

use super::access::{AccessKind, Site};
use super::address::range;
use super::element::Element;
use super::machine::{LANES, SHARED_BASE};
use super::op::Cx;
use super::rmw::Reduction;
use crate::fault::{Access, AddressSpace, FaultKind};
use crate::tensor::TensorMap;

/// What happens to a box.
#[derive(Debug, Clone, Copy)]
pub(super) enum Transport {
    /// It is copied to shared memory.
    Load,
    /// It is copied from shared memory, or reduced.
    Store(Option<Reduction>),
}

/// Transports the box of `map` at `start` to offset `at` of the cluster's shared memory, or from
/// there.
pub(super) fn copy_box(
    cx: &Cx<'_>,
    lane: usize,
    map: &TensorMap,
    start: [i32; 5],
    at: u32,
    how: Transport,
) -> Result<(), FaultKind> {
    let bytes = map.element_bytes();
    let elements = map.row_bytes() / bytes;
    for row in map.rows(start) {
        let inside = row.inside;
        let host = match inside.len() as u32 * bytes {
            0 => std::ptr::null_mut(),
            bytes => {
                let (space, access) = (AddressSpace::Global, Access::Copy);
                range(cx, lane as u32, row.address, bytes, space, access)?
            }
        };
        for i in 0..elements {
            // Swizzles repeat after less than the bytes from one block to the next.
            let to = map.swizzle().apply(SHARED_BASE + at + row.at + i * bytes) - SHARED_BASE;
            let from = inside.contains(&i).then(|| ((i - inside.start) * bytes) as usize);
            // SAFETY: the caller checked the box in shared memory, and a swizzle
            // permutes the bytes of a row, which has its span's length and
            // alignment; `range` checked the elements inside the tensor. All
            // are aligned, since the map's addresses are.
            unsafe {
                let to = cx.cluster_shared.add(to as usize);
                let from = from.map(|from| host.add(from));
                match bytes {
                    2 => copy_element::<u16>(to, from, how, map.fill_bits() as u16, |bits| bits),
                    8 => copy_element::<u64>(to, from, how, map.fill_bits(), |bits| bits),
                    _ => {
                        let convert = |bits| map.converted(bits);
                        copy_element::<u32>(to, from, how, map.fill_bits() as u32, convert);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Transports an element of a tensor.
///
/// A load writes what `convert` makes of the element, or `fill` outside of the tensor.
///
/// # Safety
/// Both places are aligned and hold an element.
#[inline(always)]
unsafe fn copy_element<T: Element>(
    inner: *mut u8,
    outer: Option<*mut u8>,
    how: Transport,
    fill: T,
    convert: impl Fn(T) -> T,
) {
    let element = inner.cast::<T>();
    // SAFETY: by contract.
    unsafe {
        match (how, outer) {
            (Transport::Load, Some(outer)) => element.write(convert(T::load_atomic(outer))),
            (Transport::Load, None) => element.write(fill),
            (Transport::Store(Some(reduction)), Some(outer)) => {
                reduction.apply(outer, inner, T::BYTES);
            }
            (Transport::Store(None), Some(outer)) => T::store_atomic(outer, element.read()),
            (Transport::Store(_), None) => {}
        }
    }
}

/// Checks and notes the accesses of device memory of a copy or reduction of a box, on the account
/// of its thread.
pub(super) fn check_box(
    cx: &mut Cx<'_>,
    (lane, line): (usize, u32),
    map: &TensorMap,
    start: [i32; 5],
    kind: AccessKind,
    reduction: Option<Reduction>,
) -> Result<(), FaultKind> {
    if !cx.checks.accesses() {
        return Ok(());
    }
    for row in map.rows(start).filter(|row| !row.inside.is_empty()) {
        let bytes = row.inside.len() as u32 * map.element_bytes();
        if kind != AccessKind::AsyncLoad {
            check_written(cx, (lane, line), (row.address, bytes), kind, reduction)?;
            continue;
        }
        let site = Site { line, kind, bytes };
        let (lanes, addresses) = ((cx.warp, 1 << lane), [row.address; LANES]);
        cx.check(lane, line, |checker| {
            let checked = checker.global_loads(lanes, (line, site), (&addresses, 0));
            checked.map_err(|(_, kind)| kind)
        })?;
    }
    Ok(())
}

/// Checks and notes that bytes of device memory at an address are copied to, or reduced.
pub(super) fn check_written(
    cx: &mut Cx<'_>,
    (lane, line): (usize, u32),
    (address, bytes): (u64, u32),
    kind: AccessKind,
    reduction: Option<Reduction>,
) -> Result<(), FaultKind> {
    let thread = (cx.warp, lane);
    let each = Reduction::checked_at_once(reduction, bytes);
    let site = Site { line, kind, bytes: each.min(bytes) };
    cx.check(lane, line, |checker| {
        (address..address + u64::from(bytes))
            .step_by(each as usize)
            .try_for_each(|at| checker.global(thread, site, at, |_| false))
    })
}
