//! The operations in front of and behind accesses of memory in kernels that are checked.

use super::access::{AccessKind, KINDS, Site};
use super::address::address_of;
use super::checker::Checker;
use super::lanes::AlignedLanes;
use super::machine::{LANES, LOCAL_WINDOW, SHARED_BASE, SHARED_WINDOW, SPACES, bits, space_of};
use super::op::{Cx, Handler, Op};
use super::rmw::{RMWS, Rmw};
use super::subword;
use crate::fault::{Access, AddressSpace, FaultKind};

/// Words of [`Cx::extra`] in front of the slots of the values.
pub(crate) const WORDS: usize = 10;

/// Checks an access before the operation that performs it: `a` address slot; [`Cx::extra`] from
/// `x`: offset, space, whether the address has 64 bits, bytes per lane, number of the
/// [`AccessKind`], PTX line, how many values a store has or an [`Extent`] needs, whether they have
/// 64 bits, number of the [`Extent`], slot of what the address was rounded down by or
/// [`NO_SLOT`], the slots of the values.
pub(crate) struct CheckAccess;

/// Which of its bytes an access counts as an access of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    All,
    /// That which the address was rounded down from.
    First,
    /// That, and those that an atomic may change.
    Changed(Rmw),
}

impl Extent {
    pub(crate) fn number(self) -> u32 {
        match self {
            Extent::All => 0,
            Extent::First => 1,
            Extent::Changed(rmw) => 2 + rmw as u32,
        }
    }

    fn of(number: u32) -> Extent {
        match number {
            0 => Extent::All,
            1 => Extent::First,
            more => Extent::Changed(RMWS[more as usize - 2]),
        }
    }
}

/// Checks a plain load from shared memory by 32-bit addresses: `a` address slot, `x` offset, `y`
/// bytes per lane, `d` PTX line.
pub(crate) struct CheckSharedLoad;

// SAFETY: reads only the slot `a`.
unsafe impl Handler for CheckSharedLoad {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let base = SHARED_BASE.wrapping_sub(op.x);
        // SAFETY: `a` has 32-bit lanes.
        let mut offsets = AlignedLanes(unsafe { cx.slot::<[u32; LANES]>(op.a).read() });
        offsets.0.iter_mut().for_each(|offset| *offset = offset.wrapping_sub(base));
        cx.to_cluster_offsets(&mut offsets.0);
        let (warp, mask) = (cx.warp, cx.mask);
        let Some(checker) = &mut cx.checker else { return false };
        match checker.shared_loads((warp, mask), (op.d, op.y), &offsets.0) {
            Ok(()) => false,
            // SAFETY: by the contract of the trait.
            Err((lane, kind)) => unsafe { cx.found_by(op, lane, op.d, kind) },
        }
    }
}

/// Checks a plain load from device memory by 64-bit addresses: fields as for [`CheckSharedLoad`],
/// `b` is whether it goes through the read-only cache, and `c` the number of the load in its
/// function.
pub(crate) struct CheckGlobalLoad;

// SAFETY: reads only the slot `a`.
unsafe impl Handler for CheckGlobalLoad {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let offset = i64::from(op.x as i32) as u64;
        // SAFETY: `a` has 64-bit lanes, which a check does not write.
        let addresses = unsafe { &*cx.slot::<[u64; LANES]>(op.a) };
        let kind = if op.b != 0 { AccessKind::ReadOnly } else { AccessKind::Load };
        let site = Site { line: op.d, kind, bytes: op.y };
        let (warp, mask) = (cx.warp, cx.mask);
        let Some(checker) = &mut cx.checker else { return false };
        match checker.global_loads((warp, mask), (op.c, site), (addresses, offset)) {
            Ok(()) => false,
            // SAFETY: by the contract of the trait.
            Err((lane, kind)) => unsafe { cx.found_by(op, lane, op.d, kind) },
        }
    }
}

/// What [`CheckAccess`] has in [`Cx::extra`].
struct Words<'k> {
    address: (u32, bool, u32),
    space: AddressSpace,
    site: Site,
    wide: bool,
    extent: Extent,
    low: u32,
    values: &'k [u32],
}

impl<'k> Words<'k> {
    #[inline(always)]
    fn of(cx: &Cx<'k>, op: &Op) -> Words<'k> {
        let words = &cx.extra[op.x as usize..];
        let [offset, space, wide, bytes, kind, line, n, wide_values, extent, low] =
            std::array::from_fn(|i| words[i]);
        Words {
            address: (op.a, wide != 0, offset),
            space: SPACES[space as usize],
            site: Site { line, kind: KINDS[kind as usize], bytes },
            wide: wide_values != 0,
            extent: Extent::of(extent),
            low,
            values: &words[WORDS..][..n as usize],
        }
    }

    /// How far behind its address the first byte lies that a lane's access is of.
    ///
    /// # Safety
    /// As for [`same`](Words::same).
    unsafe fn first(&self, cx: &Cx<'_>, lane: usize) -> u32 {
        // SAFETY: by contract.
        unsafe { subword::first(cx, lane, (self.low, self.address.1), self.site.bytes) }
    }

    /// The bytes, as a mask, that a lane's access of a word is of, unless it is of all.
    ///
    /// # Safety
    /// As for [`same`](Words::same).
    unsafe fn touched(&self, cx: &Cx<'_>, lane: usize) -> u32 {
        // SAFETY: by contract; operands of words have 32-bit lanes.
        unsafe {
            let changed = match (self.extent, self.values) {
                (Extent::Changed(rmw), &[b, c]) => {
                    let operands = [b, c].map(|slot| *cx.slot::<u32>(slot).add(lane));
                    rmw.changes(self.site.bytes, operands)
                }
                _ => 0,
            };
            changed | 1 << self.first(cx, lane)
        }
    }

    /// Whether two lanes have the same values.
    ///
    /// # Safety
    /// The words are those of an operation of the kernel that runs.
    unsafe fn same(&self, cx: &Cx<'_>, a: usize, b: usize) -> bool {
        let store = self.site.kind.access() == Access::Store;
        store
            && self.values.iter().all(|&slot| {
                // SAFETY: the slots have lanes of this size.
                unsafe {
                    match self.wide {
                        true => *cx.slot::<u64>(slot).add(a) == *cx.slot::<u64>(slot).add(b),
                        false => *cx.slot::<u32>(slot).add(a) == *cx.slot::<u32>(slot).add(b),
                    }
                }
            })
    }
}

// SAFETY: reads only the slots named.
unsafe impl Handler for CheckAccess {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let Some(mut checker) = cx.checker.take() else { return false };
        // SAFETY: by the contract of the trait.
        let result = unsafe { check(cx, &mut checker, op) };
        cx.checker = Some(checker);
        match result {
            Ok(()) => false,
            Err((lane, kind)) => {
                let line = Words::of(cx, op).site.line;
                // SAFETY: by the contract of the trait.
                unsafe { cx.found_by(op, lane, line, kind) }
            }
        }
    }
}

/// # Safety
/// As for [`CheckAccess`].
#[inline(always)]
unsafe fn check(cx: &Cx<'_>, checker: &mut Checker<'_>, op: &Op) -> Result<(), (u32, FaultKind)> {
    let words = Words::of(cx, op);
    let (warp, mask, site) = (cx.warp, cx.mask, words.site);
    // SAFETY: by contract.
    let same = |a: usize, b: usize| unsafe { words.same(cx, a, b) };
    if site.kind.strong() && site.kind.writes() {
        let update = site.kind.access() == Access::Atomic;
        // SAFETY: by contract.
        unsafe { for_atomics(cx, &words, |lane, place| checker.publish(lane, update, place)) };
    }
    // SAFETY: by contract.
    let address = |lane: usize| unsafe { address_of(cx, lane, words.address) };
    if words.extent != Extent::All && checker.facts.granule.divides(site.bytes) {
        for lane in bits(mask) {
            // SAFETY: by contract.
            let mut touched = unsafe { words.touched(cx, lane) };
            while touched != 0 {
                let first = touched.trailing_zeros();
                let bytes = (touched >> first).trailing_ones();
                touched &= u32::MAX << (first + bytes);
                let (site, at) = (Site { bytes, ..site }, address(lane) + u64::from(first));
                let result = one(cx, checker, (warp, lane), site, words.space, at, &same);
                result.map_err(|kind| (lane as u32, kind))?;
            }
        }
        return Ok(());
    }
    match (words.space, words.address.1) {
        (AddressSpace::Shared, false) => {
            let base = SHARED_BASE.wrapping_sub(words.address.2);
            // SAFETY: `a` has 32-bit lanes.
            let lanes = unsafe { cx.slot::<[u32; LANES]>(op.a).read() };
            let mut offsets = lanes.map(|lane| lane.wrapping_sub(base));
            cx.to_cluster_offsets(&mut offsets);
            checker.shared((warp, mask), site, &offsets, same)
        }
        (AddressSpace::Global, _) => {
            checker.globals((warp, mask), site, &std::array::from_fn(address), &same)
        }
        _ => {
            for lane in bits(mask) {
                let at = address(lane);
                let result = one(cx, checker, (warp, lane), site, words.space, at, &same);
                result.map_err(|kind| (lane as u32, kind))?;
            }
            Ok(())
        }
    }
}

/// Checks the access of one lane in any space.
#[inline(never)]
fn one(
    cx: &Cx<'_>,
    checker: &mut Checker<'_>,
    (warp, lane): (usize, usize),
    site: Site,
    space: AddressSpace,
    address: u64,
    same: &dyn Fn(usize, usize) -> bool,
) -> Result<(), FaultKind> {
    let (space, address) = match space {
        AddressSpace::Generic => match space_of(address) {
            Some(AddressSpace::Shared) => (AddressSpace::Shared, address - SHARED_WINDOW),
            Some(AddressSpace::Local) => (AddressSpace::Local, address - LOCAL_WINDOW),
            Some(space) => (space, address),
            None => return Ok(()),
        },
        space => (space, address),
    };
    match space {
        AddressSpace::Shared | AddressSpace::SharedCluster => {
            let offset = cx.cluster_offset(address).unwrap_or(u32::MAX);
            let offsets = [offset; LANES];
            if offset != u32::MAX {
                checker.note_remote(cx.rank, cx.rank_and_address(offset), (warp, lane), site);
            }
            let result = checker.shared((warp, 1 << lane), site, &offsets, same);
            result.map_err(|(_, kind)| kind)
        }
        AddressSpace::Global => {
            checker.global((warp, lane), site, address, |other| same(lane, other))
        }
        AddressSpace::Local => checker.access_local((warp, lane), site, address),
        AddressSpace::Param | AddressSpace::Const | AddressSpace::Generic => Ok(()),
    }
}

/// Behind a strong load or an atomic, with the fields of [`CheckAccess`]: a fence will make
/// known what those released who wrote there; if `y` is one of [`ACQUIRES`], it does so itself,
/// from the block's or from all blocks.
pub(crate) struct Observe;

pub(crate) const ACQUIRES: [Option<bool>; 3] = [None, Some(false), Some(true)];

// SAFETY: reads only the slots named.
unsafe impl Handler for Observe {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let Some(mut checker) = cx.checker.take() else { return false };
        let (words, acquires) = (Words::of(cx, op), ACQUIRES[op.y as usize]);
        // SAFETY: by the contract of the trait.
        unsafe { for_atomics(cx, &words, |lane, place| checker.observe(lane, acquires, place)) };
        cx.checker = Some(checker);
        false
    }
}

/// Calls `f` with every lane, and with whether it accesses shared memory, and the offset there
/// or else the address.
///
/// # Safety
/// As for [`CheckAccess`].
unsafe fn for_atomics(
    cx: &Cx<'_>,
    words: &Words<'_>,
    mut f: impl FnMut((usize, usize), (bool, u64)),
) {
    for lane in bits(cx.mask) {
        // SAFETY: by contract.
        let address = unsafe {
            let address = address_of(cx, lane, words.address);
            address.wrapping_add(words.first(cx, lane).into())
        };
        let shared = match words.space {
            AddressSpace::Shared | AddressSpace::SharedCluster => Some(address),
            AddressSpace::Generic if space_of(address) == Some(AddressSpace::Shared) => {
                Some(address - SHARED_WINDOW)
            }
            _ => None,
        };
        let place = match shared.map(|address| cx.cluster_offset(address)) {
            Some(offset) => (true, offset.unwrap_or(u32::MAX).into()),
            None => (false, address),
        };
        f((cx.warp, lane), place);
    }
}
