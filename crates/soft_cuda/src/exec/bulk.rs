//! Bulk copies (`cp.async.bulk`) between global and shared memory, and to that of other blocks, and
//! bulk reductions (`cp.reduce.async.bulk`) from shared memory.
//!
//! A copy to shared memory is performed when it is issued. That nobody may look
//! before a wait for its mbarrier is checked by [`super::order`]. A copy to
//! global memory is performed when its thread waits for its group, as `cp.async`
//! does, and at the latest when the block ends (see [`super::unwaited`]): a kernel that
//! overwrites the source too early stores wrong data here, every time.

use super::access::{AccessKind, Site};
use super::address::{address_of, range};
use super::boxes::{Transport, check_box, check_written, copy_box};
use super::element::{self, Element};
use super::groups::{CopyTarget, Groups, Store};
use super::machine::{LANES, NO_SLOT, RANK_SHIFT, SPACES, bits};
use super::mbarrier;
use super::op::{Cx, Handler, Op};
use super::order::Issued;
use super::rmw::{OPERATIONS, Reduction};
use crate::fault::{Access, AddressSpace, FaultKind};
use crate::tensor::{MAP_BYTES, TensorMap};

/// Alignment of a tensor copy's shared memory.
const TENSOR_ALIGN: u32 = 128;
/// Alignment and granularity of everything else.
const ALIGN: u32 = 16;

/// An address operand: slot, whether it has 64 bits, offset, number of the space.
#[derive(Clone, Copy)]
struct Operand {
    address: (u32, bool, u32),
    space: AddressSpace,
}

/// Words of [`Cx::extra`] per address operand.
const WORDS: usize = 4;

impl Operand {
    /// Number `i` of the operands at `words`.
    fn at(words: &[u32], i: usize) -> Operand {
        let w = &words[i * WORDS..][..WORDS];
        Operand { address: (w[0], w[1] != 0, w[2]), space: SPACES[w[3] as usize] }
    }

    /// # Safety
    /// The operand was decoded for the kernel that runs.
    unsafe fn of(self, cx: &Cx<'_>, lane: usize) -> u64 {
        // SAFETY: by contract.
        unsafe { address_of(cx, lane, self.address) }
    }
}

/// The offset into the cluster's shared memory of `bytes` bytes at a shared address, which has to
/// be aligned.
fn shared(
    cx: &Cx<'_>,
    lane: usize,
    (address, space): (u64, AddressSpace),
    bytes: u64,
    align: u32,
) -> Result<u32, FaultKind> {
    let access = Access::Copy;
    if !address.is_multiple_of(align.into()) {
        return Err(FaultKind::Misaligned { address, bytes: align, access, space });
    }
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    let host = range(cx, lane as u32, address, bytes, space, access)?;
    Ok(cx.cluster_offset_of(host) as u32)
}

/// The tensor map at an address.
fn tensor_map(
    cx: &Cx<'_>,
    lane: usize,
    (address, space): (u64, AddressSpace),
) -> Result<TensorMap, FaultKind> {
    let access = Access::Load;
    if !address.is_multiple_of(64) {
        return Err(FaultKind::Misaligned { address, bytes: 64, access, space });
    }
    let host = range(cx, lane as u32, address, MAP_BYTES, space, access)?;
    let mut bytes = [0; MAP_BYTES as usize];
    for (i, byte) in bytes.iter_mut().enumerate() {
        // SAFETY: `range` checked that the bytes can be read.
        *byte = unsafe { u8::load_atomic(host.add(i)) };
    }
    TensorMap::from_bytes(&bytes).ok_or(FaultKind::BadTensorMap { address, rank: None })
}

/// A copy to shared memory: `y` number of coordinates of a tensor copy, 0 for
/// plain bytes, whose number is in slot `c`; `a` slot of the ranks that it goes to, as a mask, or
/// [`NO_SLOT`]. [`Cx::extra`] from `x`: the operands destination, source or tensor map, and
/// mbarrier, the PTX line, a packed [`Reduction`] or 0, the slots of the coordinates.
pub(crate) struct Load;

// SAFETY: touches only the slots named.
unsafe impl Handler for Load {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        for lane in cx.active() {
            // SAFETY: by the contract of the trait.
            if let Err(kind) = unsafe { load(cx, op, lane) } {
                return cx.fail(lane as u32, kind);
            }
        }
        false
    }
}

/// # Safety
/// As for [`Load`].
#[inline(never)]
unsafe fn load(cx: &mut Cx<'_>, op: &Op, lane: usize) -> Result<(), FaultKind> {
    let words = &cx.extra[op.x as usize..];
    let [dst, src, barrier] = [0, 1, 2].map(|i| Operand::at(words, i));
    let (line, slots) = (words[3 * WORDS], &words[3 * WORDS + 2..][..op.y as usize]);
    let how = (line, Reduction::unpack(words[3 * WORDS + 1]));
    // SAFETY: by contract.
    let (to, from, barrier) = unsafe { (dst.of(cx, lane), src.of(cx, lane), barrier.of(cx, lane)) };
    let from = match slots.is_empty() {
        // SAFETY: `c` has 32-bit lanes.
        true => Source::Bytes((from, src.space), unsafe { *cx.slot::<u32>(op.c).add(lane) }),
        false => {
            // SAFETY: by contract.
            let (map, start) = unsafe { tensor(cx, lane, (from, src.space), slots, false) }?;
            Source::Tensor(map, start)
        }
    };
    if op.a == NO_SLOT {
        return load_to(cx, lane, how, (to, barrier, dst.space), &from);
    }
    // SAFETY: `a` has 32-bit lanes.
    let ranks = unsafe { *cx.slot::<u32>(op.a).add(lane) } & 0xffff;
    for rank in bits(ranks) {
        if rank as u32 >= cx.blocks {
            return Err(FaultKind::BadRank { rank: rank as u32, blocks: cx.blocks });
        }
        // The same place in the shared memory of that block.
        let there =
            |address: u64| address & ((1 << RANK_SHIFT) - 1) | (rank as u64 + 1) << RANK_SHIFT;
        let space = AddressSpace::SharedCluster;
        load_to(cx, lane, how, (there(to), there(barrier), space), &from)?;
    }
    Ok(())
}

/// What a copy to shared memory copies: bytes at an address of a space, and how many; or the box
/// of a tensor at some coordinates.
enum Source {
    Bytes((u64, AddressSpace), u32),
    Tensor(TensorMap, [i32; 5]),
}

/// Copies or reduces to an address of shared memory, and reports to the mbarrier at another one.
fn load_to(
    cx: &mut Cx<'_>,
    lane: usize,
    (line, reduction): (u32, Option<Reduction>),
    (to, barrier, space): (u64, u64, AddressSpace),
    from: &Source,
) -> Result<(), FaultKind> {
    let (index, component, phase) = mbarrier::of_copy(cx, lane, barrier, space)?;
    let issued = Issued { warp: cx.warp, line, component, phase, reduces: reduction.is_some() };
    let (thread, phase) = ((cx.warp, lane), (index, phase));
    let kind = if reduction.is_some() { AccessKind::Atomic } else { AccessKind::Copy };
    let site = |bytes| Site { line, kind, bytes };
    let bytes = match from {
        &Source::Bytes(from, bytes) => {
            let (at, host) = plain(cx, lane, (to, space), from, bytes)?;
            cx.order.copy(issued, at, bytes)?;
            check_load(cx, lane, site(bytes), at, phase)?;
            if from.1 == AddressSpace::Shared {
                if reduction.is_none() {
                    cx.check_other_block(to, at)?;
                }
                let from = cx.cluster_offset_of(host) as u32;
                cx.order.read(cx.warp, line, from, bytes)?;
                cx.check(lane, line, |c| c.read_bulk(thread, line, (from, bytes), Some(phase)))?;
            } else {
                let site = Site { line, kind: AccessKind::AsyncLoad, bytes };
                cx.check(lane, line, |checker| checker.global(thread, site, from.0, |_| false))?;
            }
            // SAFETY: `plain` checked both ends.
            unsafe {
                let to = cx.cluster_shared.add(at as usize);
                match reduction {
                    Some(reduction) => reduction.apply(to, host, bytes),
                    None => element::copy(to, host, bytes, bytes),
                }
            }
            bytes.into()
        }
        Source::Tensor(map, start) => {
            let bytes = map.box_bytes();
            let at = shared(cx, lane, (to, space), bytes, TENSOR_ALIGN)?;
            cx.order.copy(issued, at, bytes as u32)?;
            check_load(cx, lane, site(bytes as u32), at, phase)?;
            check_box(cx, (lane, line), map, *start, AccessKind::AsyncLoad, None)?;
            copy_box(cx, lane, map, *start, at, Transport::Load)?;
            bytes
        }
    };
    cx.bulk_bytes += bytes;
    mbarrier::copied(cx, index, bytes as i64)
}

/// Checks a copy to offset `at` of the cluster's shared memory that is complete with a phase of an
/// mbarrier.
fn check_load(
    cx: &mut Cx<'_>,
    lane: usize,
    site: Site,
    at: u32,
    phase: (usize, u32),
) -> Result<(), FaultKind> {
    let thread = (cx.warp, lane);
    let to = cx.rank_and_address(at);
    let remote = (to.0 != cx.rank).then_some(to);
    cx.check(lane, site.line, |checker| checker.copy_bulk(thread, site, (at, remote), phase))
}

/// Checks a copy of plain bytes. Returns the offset into the cluster's shared memory and the
/// host address of the bytes at the other end.
fn plain(
    cx: &Cx<'_>,
    lane: usize,
    inner: (u64, AddressSpace),
    (address, space): (u64, AddressSpace),
    bytes: u32,
) -> Result<(u32, *mut u8), FaultKind> {
    let access = Access::Copy;
    if !address.is_multiple_of(ALIGN.into()) {
        return Err(FaultKind::Misaligned { address, bytes: ALIGN, access, space });
    }
    if !bytes.is_multiple_of(ALIGN) {
        return Err(FaultKind::BulkSize { bytes });
    }
    let at = shared(cx, lane, inner, bytes.into(), ALIGN)?;
    Ok((at, range(cx, lane as u32, address, bytes, space, access)?))
}

/// The tensor map at `place`, and the coordinates in `slots`, of a store or a load.
///
/// # Safety
/// `slots` are slots of 32-bit lanes.
unsafe fn tensor(
    cx: &Cx<'_>,
    lane: usize,
    place: (u64, AddressSpace),
    slots: &[u32],
    store: bool,
) -> Result<(TensorMap, [i32; 5]), FaultKind> {
    let map = tensor_map(cx, lane, place)?;
    if map.rank() != slots.len() {
        let (address, rank) = (place.0, Some(map.rank() as u32));
        return Err(FaultKind::BadTensorMap { address, rank });
    }
    let mut start = [0; 5];
    for (at, &slot) in start.iter_mut().zip(slots) {
        // SAFETY: by contract.
        *at = unsafe { *cx.slot::<i32>(slot).add(lane) };
    }
    if start[0] % (ALIGN / map.element_bytes()) as i32 != 0 || store && start[0] < 0 {
        return Err(FaultKind::TensorStart { start: start[0], store });
    }
    Ok((map, start))
}

/// A copy to global memory: as [`Load`], with the operands destination or
/// tensor map, and source. A tensor copy has no packed [`Reduction`], but the number of
/// its operation plus 1, or 0.
pub(crate) struct Save;

// SAFETY: touches only the slots named.
unsafe impl Handler for Save {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        if let Some(checker) = &mut cx.checker {
            checker.known.begin_store(cx.warp);
        }
        for lane in cx.active() {
            // SAFETY: by the contract of the trait.
            if let Err(kind) = unsafe { save(cx, op, lane) } {
                return cx.fail(lane as u32, kind);
            }
        }
        false
    }
}

/// # Safety
/// As for [`Save`].
#[inline(never)]
unsafe fn save(cx: &mut Cx<'_>, op: &Op, lane: usize) -> Result<(), FaultKind> {
    let words = &cx.extra[op.x as usize..];
    let [dst, src] = [0, 1].map(|i| Operand::at(words, i));
    let (line, slots) = (words[2 * WORDS], &words[2 * WORDS + 2..][..op.y as usize]);
    let how = words[2 * WORDS + 1];
    // SAFETY: by contract.
    let (address, inner) = unsafe { (dst.of(cx, lane), (src.of(cx, lane), src.space)) };
    let (from, bytes, to, reduction) = if slots.is_empty() {
        // SAFETY: `c` has 32-bit lanes.
        let bytes = unsafe { *cx.slot::<u32>(op.c).add(lane) };
        let (from, _) = plain(cx, lane, inner, (address, dst.space), bytes)?;
        (from, bytes, CopyTarget::Bytes { address, bytes }, Reduction::unpack(how))
    } else {
        // SAFETY: by contract.
        let (map, start) = unsafe { tensor(cx, lane, (address, dst.space), slots, true) }?;
        let from = shared(cx, lane, inner, map.box_bytes(), TENSOR_ALIGN)?;
        let reduction = tensor_reduction(&map, how)?;
        (from, map.box_bytes() as u32, CopyTarget::Tensor { map, start }, reduction)
    };
    cx.order.read(cx.warp, line, from, bytes)?;
    let thread = (cx.warp, lane);
    cx.check(lane, line, |checker| checker.read_bulk(thread, line, (from, bytes), None))?;
    cx.bulk_bytes += u64::from(bytes);
    let number = cx.checker.as_ref().map_or(0, |checker| checker.known.stores_now(cx.warp));
    cx.stores[cx.warp].push(lane, Store { from, to, reduction, line, number, performed: false });
    Ok(())
}

/// The reduction of a tensor's elements by the operation whose number plus 1 is `how`; `None` of 0.
fn tensor_reduction(map: &TensorMap, how: u32) -> Result<Option<Reduction>, FaultKind> {
    let Some(number) = how.checked_sub(1) else { return Ok(None) };
    let (operation, element) = (&OPERATIONS[number as usize], map.element());
    let mut found = element.types().iter().filter_map(|ty| operation.of(ty, true));
    let none = FaultKind::TensorReduction { operation: operation.name, element };
    found.next().map(Some).ok_or(none)
}

/// `cp.async.bulk.commit_group`.
pub(crate) struct BulkCommit;

// SAFETY: touches no slot.
unsafe impl Handler for BulkCommit {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, _op: &Op) -> bool {
        let lanes = cx.active();
        cx.stores[cx.warp].commit(lanes);
        false
    }
}

/// `cp.async.bulk.wait_group` with `x` groups left over; `y` is whether it waits for the reads
/// alone.
pub(crate) struct BulkWait;

// SAFETY: touches no slot.
unsafe impl Handler for BulkWait {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        match wait(cx, u64::from(op.x), op.y != 0) {
            Ok(()) => false,
            Err((lane, kind)) => cx.fail(lane as u32, kind),
        }
    }
}

/// Performs the stores in all but the latest `keep` groups. What they write others may access once
/// a thread has waited for more than that they have `read`.
#[inline(never)]
fn wait(cx: &mut Cx<'_>, keep: u64, read: bool) -> Result<(), (usize, FaultKind)> {
    let (warp, lanes) = (cx.warp, cx.mask);
    let mut stores = std::mem::replace(&mut cx.stores[warp], Groups::new());
    let (mut performed, mut waited) = (Ok(()), [0; LANES]);
    for (lane, store) in stores.due_mut(lanes, keep) {
        waited[lane] = store.number;
        if std::mem::replace(&mut store.performed, true) {
            continue;
        }
        performed = performed.and_then(|()| {
            let done = perform(cx, lane, store).and_then(|()| match read {
                true => note(cx, lane, store, true),
                false => Ok(()),
            });
            done.map_err(|kind| (lane, kind))
        });
    }
    let due: Vec<_> = if read { Vec::new() } else { stores.due(lanes, Some(keep)).collect() };
    for (lane, store) in due {
        performed =
            performed.and_then(|()| note(cx, lane, &store, false).map_err(|kind| (lane, kind)));
    }
    if let Some(checker) = &mut cx.checker {
        for lane in bits(lanes).filter(|&lane| waited[lane] != 0) {
            checker.known.wait_stores(warp, lane, waited[lane]);
        }
    }
    cx.stores[warp] = stores;
    performed
}

/// Copies what a store stores.
pub(super) fn perform(cx: &Cx<'_>, lane: usize, store: &Store) -> Result<(), FaultKind> {
    let (address, bytes) = match &store.to {
        CopyTarget::Tensor { map, start } => {
            let how = Transport::Store(store.reduction);
            return copy_box(cx, lane, map, *start, store.from, how);
        }
        &CopyTarget::Bytes { address, bytes } => (address, bytes),
    };
    let host = range(cx, lane as u32, address, bytes, AddressSpace::Global, Access::Copy)?;
    // SAFETY: `range` checked the destination, and `save` the source.
    unsafe {
        let from = cx.cluster_shared.add(store.from as usize);
        match store.reduction {
            Some(reduction) => reduction.apply(host, from, bytes),
            None => (0..bytes as usize).for_each(|i| u8::store_atomic(host.add(i), *from.add(i))),
        }
    }
    Ok(())
}

/// Checks and notes what a store has written, on the account of its thread, or `pending`, as long
/// as nobody has waited for it.
pub(super) fn note(
    cx: &mut Cx<'_>,
    lane: usize,
    store: &Store,
    pending: bool,
) -> Result<(), FaultKind> {
    let line = store.line;
    let kind = match (store.reduction, pending) {
        (None, false) => AccessKind::Copy,
        (None, true) => AccessKind::PendingCopy,
        (Some(_), false) => AccessKind::Atomic,
        (Some(_), true) => AccessKind::PendingAtomic,
    };
    match &store.to {
        CopyTarget::Tensor { map, start } => {
            check_box(cx, (lane, line), map, *start, kind, store.reduction)
        }
        &CopyTarget::Bytes { address, bytes } => {
            check_written(cx, (lane, line), (address, bytes), kind, store.reduction)
        }
    }
}
