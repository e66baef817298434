//! The boxes of tensors that bulk copies copy.

use super::access::{AccessKind, Site};
use super::address::range;
use super::element::Element;
use super::machine::{LANES, SHARED_BASE};
use super::op::Cx;
use crate::fault::{Access, AddressSpace, FaultKind};
use crate::tensor::TensorMap;

/// Copies the box of `map` at `start` to offset `at` of the cluster's shared memory, or back
/// if `store`.
pub(super) fn copy_box(
    cx: &Cx<'_>,
    lane: usize,
    map: &TensorMap,
    start: [i32; 5],
    at: u32,
    store: bool,
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
                    2 => copy_element::<u16>(to, from, store, map.fill_bits() as u16, |bits| bits),
                    _ => {
                        let convert = |bits| map.converted(bits);
                        copy_element::<u32>(to, from, store, map.fill_bits(), convert);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Copies an element of a tensor to shared memory, as `convert` makes it, or back if `store`; there `fill` is
/// where the tensor has none.
///
/// # Safety
/// Both places are aligned and hold an element.
#[inline(always)]
unsafe fn copy_element<T: Element>(
    inner: *mut u8,
    outer: Option<*mut u8>,
    store: bool,
    fill: T,
    convert: impl Fn(T) -> T,
) {
    let inner = inner.cast::<T>();
    // SAFETY: by contract.
    unsafe {
        match (store, outer) {
            (false, Some(outer)) => inner.write(convert(T::load_atomic(outer))),
            (false, None) => inner.write(fill),
            (true, Some(outer)) => T::store_atomic(outer, inner.read()),
            (true, None) => {}
        }
    }
}

/// Checks and notes the accesses of device memory of a copy of a box, on the account of its thread.
pub(super) fn check_box(
    cx: &mut Cx<'_>,
    (lane, line): (usize, u32),
    map: &TensorMap,
    start: [i32; 5],
    kind: AccessKind,
) -> Result<(), FaultKind> {
    if !cx.checks.accesses() {
        return Ok(());
    }
    for row in map.rows(start).filter(|row| !row.inside.is_empty()) {
        let site = Site { line, kind, bytes: row.inside.len() as u32 * map.element_bytes() };
        let (lanes, addresses) = ((cx.warp, 1 << lane), [row.address; LANES]);
        cx.check(lane, line, |checker| {
            let checked = match kind {
                AccessKind::AsyncLoad => checker.global_loads(lanes, (line, site), (&addresses, 0)),
                _ => checker.globals(lanes, site, &addresses, &|_, _| false),
            };
            checked.map_err(|(_, kind)| kind)
        })?;
    }
    Ok(())
}
