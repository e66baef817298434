//! `mbarrier`: barriers in shared memory that count arrivals and bytes.
//!
//! The eight bytes in shared memory say only which barrier they are, so that
//! one that was never initialised, or that something overwrote, is recognised.

use super::access::{AccessKind, Site};
use super::address;
use super::code::Wait;
use super::copy;
use super::machine::{LANES, NO_SLOT, SPACES};
use super::op::{Cx, Handler, Op};
use super::order::WarpClock;
use super::phases::MbarrierState;
use crate::fault::{Access, AddressSpace, FaultKind};

/// The largest arrival count, and the largest count of bytes.
const MAX_COUNT: u32 = (1 << 20) - 1;
/// The eight bytes of the initialised barrier number 0. The number changes the
/// lower half, which is not 0 for any.
const MAGIC: u64 = 0x6d62_6172_9d9d_9e8d;
/// What they hold after `mbarrier.inval`.
const INVALID: u64 = u64::MAX;

/// What an operation on a barrier does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Init,
    Inval,
    Arrive,
    ExpectTx,
    ArriveExpectTx,
    CompleteTx,
}

/// All of [`Action`], in the order of the numbers that operations carry.
pub(crate) const ACTIONS: [Action; 6] = [
    Action::Init,
    Action::Inval,
    Action::Arrive,
    Action::ExpectTx,
    Action::ArriveExpectTx,
    Action::CompleteTx,
];

/// The offset into the cluster's shared memory of the barrier that one lane names, and the
/// host address of its eight bytes.
fn place(
    cx: &Cx<'_>,
    lane: usize,
    address: u64,
    space: AddressSpace,
) -> Result<(u32, *mut u64), FaultKind> {
    let access = Access::Atomic;
    let host = address::resolve(cx, lane as u32, address, 8, space, access)?;
    match u32::try_from(cx.cluster_offset_of(host.cast_const())) {
        Ok(offset) if offset < cx.blocks * cx.shared_stride => Ok((offset, host.cast())),
        _ => Err(bad(format!("{address:#x} is not in shared memory, where mbarriers live"))),
    }
}

fn bad(reason: String) -> FaultKind {
    FaultKind::BadBarrier { reason }
}

/// What only threads of the barrier's own block may do.
fn elsewhere(address: u64) -> FaultKind {
    bad(format!(
        "the mbarrier at {address:#x} is of another block of the cluster, which may arrive there without taking the state, and nothing else"
    ))
}

/// The number of the initialised barrier that one lane names.
fn find(cx: &Cx<'_>, lane: usize, address: u64, space: AddressSpace) -> Result<usize, FaultKind> {
    let (offset, host) = place(cx, lane, address, space)?;
    // SAFETY: `place` checked that the eight bytes are inside shared memory and aligned.
    let word = unsafe { host.read() };
    let index = (word ^ MAGIC) as usize;
    let known = cx.barriers.all.get(index).filter(|barrier| barrier.at == offset);
    let (_, shared) = cx.rank_and_address(offset);
    let Some(barrier) = known else {
        return Err(bad(format!(
            "there is no mbarrier at {shared:#x}: `mbarrier.init` has not run, or something overwrote it"
        )));
    };
    let checker = cx.checker.as_ref();
    if let Some([x, y, z]) = checker.and_then(|c| c.not_after_init((cx.warp, lane), index)) {
        return Err(bad(format!(
            "the mbarrier at {shared:#x} is used without a barrier after thread ({x}, {y}, {z}) initialised it"
        )));
    }
    let (warp, clock) = barrier.by;
    if !cx.order.knows(cx.warp, warp, clock) {
        let warp = warp as u32 % cx.shape.warps;
        return Err(bad(format!(
            "the mbarrier at {shared:#x} is used without a barrier after warp {warp} initialised it"
        )));
    }
    Ok(index)
}

/// Completes the barrier's phase if nothing is missing.
fn advance(cx: &mut Cx<'_>, index: usize) {
    cx.barriers.changes += 1;
    let barrier = &mut cx.barriers.all[index];
    if barrier.pending == 0 && barrier.bytes == 0 {
        barrier.phase = barrier.phase.wrapping_add(1);
        barrier.completed += 1;
        barrier.pending = barrier.count;
        barrier.arrived.set(barrier.component, barrier.completed);
        barrier.done.clone_from(&barrier.arrived);
        if let Some(checker) = &cx.checker {
            barrier.released.clock.set(checker.known.agents.mbarrier(index), barrier.completed);
            barrier.acquired.clone_from(&barrier.released.clock);
        }
        cx.barriers.completions += 1;
    } else if barrier.lacks_only_copies() {
        // Who waits performs them.
        cx.barriers.completions += 1;
    }
}

/// `tx` bytes more are expected, or, if negative, have come.
fn transfer(cx: &mut Cx<'_>, index: usize, tx: i64) -> Result<(), FaultKind> {
    let barrier = &mut cx.barriers.all[index];
    barrier.bytes += tx;
    let (at, bytes) = (barrier.at, barrier.bytes);
    if bytes.unsigned_abs() > MAX_COUNT.into() {
        let address = cx.rank_and_address(at).1;
        return Err(bad(format!(
            "the mbarrier at {address:#x} expects {bytes} bytes, but {MAX_COUNT} is the limit"
        )));
    }
    Ok(())
}

/// The barrier of a bulk copy that one lane starts: its number, its component
/// of the clocks, and what that is once the current phase is complete.
pub(super) fn of_copy(
    cx: &Cx<'_>,
    lane: usize,
    address: u64,
    space: AddressSpace,
) -> Result<(usize, usize, u32), FaultKind> {
    let index = find(cx, lane, address, space)?;
    let barrier = &cx.barriers.all[index];
    if cx.checks.sync && !barrier.fenced {
        return Err(bad(format!(
            "a bulk copy uses the mbarrier at {:#x}, but no `fence.mbarrier_init` or `fence.proxy.async` came after its initialisation",
            cx.rank_and_address(barrier.at).1
        )));
    }
    Ok((index, barrier.component, barrier.completed + 1))
}

/// Tells barrier `index` that the bytes of a bulk copy have come.
pub(super) fn copied(cx: &mut Cx<'_>, index: usize, bytes: i64) -> Result<(), FaultKind> {
    transfer(cx, index, -bytes)?;
    advance(cx, index);
    Ok(())
}

/// Everything about a barrier but waiting: `a` address slot, `b` slot of the
/// count or the bytes, `d` slot of the resulting state or [`NO_SLOT`], `y` the
/// number of the [`Action`]; [`Cx::extra`] from `x`: offset, space, whether the
/// address has 64 bits, whether an arrival releases, PTX line.
pub(crate) struct Mbarrier;

// SAFETY: touches only the slots `a`, `b` and `d`.
unsafe impl Handler for Mbarrier {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        for lane in cx.active() {
            // SAFETY: by the contract of the trait.
            if let Err(kind) = unsafe { act(cx, op, lane) } {
                return cx.fail(lane as u32, kind);
            }
        }
        false
    }
}

/// # Safety
/// As for [`Mbarrier`].
#[inline(never)]
unsafe fn act(cx: &mut Cx<'_>, op: &Op, lane: usize) -> Result<(), FaultKind> {
    let [offset, space, wide, release, line] = [0, 1, 2, 3, 4].map(|i| cx.extra[op.x as usize + i]);
    let space = SPACES[space as usize];
    // SAFETY: the extra words describe slot `a`, and `b` has 32-bit lanes.
    let (address, operand) = unsafe {
        let operand = if op.b == NO_SLOT { 1 } else { *cx.slot::<u32>(op.b).add(lane) };
        (address::address_of(cx, lane, (op.a, wide != 0, offset)), operand)
    };
    let index = match ACTIONS[op.y as usize] {
        Action::Init => return init(cx, lane, address, space, operand),
        _ => find(cx, lane, address, space)?,
    };
    let (state, at) = (cx.barriers.all[index].phase, cx.barriers.all[index].at);
    let (rank, own) = (cx.rank_and_address(at), cx.rank);
    if rank.0 != own {
        let action = ACTIONS[op.y as usize];
        if action == Action::Inval || op.d != NO_SLOT {
            return Err(elsewhere(address));
        }
        let thread = (cx.warp, lane);
        let site = Site { line, kind: AccessKind::Atomic, bytes: 8 };
        if let Some(checker) = &mut cx.checker {
            checker.note_remote(own, rank, thread, site);
        }
    }
    match ACTIONS[op.y as usize] {
        Action::Init | Action::Inval => {
            let (_, host) = place(cx, lane, address, space)?;
            // SAFETY: `place` checked that the eight bytes are inside shared memory.
            unsafe { host.write(INVALID) };
        }
        Action::ExpectTx => transfer(cx, index, operand.into())?,
        Action::CompleteTx => {
            transfer(cx, index, -i64::from(operand))?;
            advance(cx, index);
        }
        Action::ArriveExpectTx => {
            transfer(cx, index, operand.into())?;
            arrive(cx, lane, index, 1, release != 0)?;
        }
        Action::Arrive => arrive(cx, lane, index, operand, release != 0)?,
    }
    if op.d != NO_SLOT {
        // SAFETY: `d` has 64-bit lanes.
        unsafe { *cx.slot::<u64>(op.d).add(lane) = state.into() };
    }
    Ok(())
}

fn init(
    cx: &mut Cx<'_>,
    lane: usize,
    address: u64,
    space: AddressSpace,
    count: u32,
) -> Result<(), FaultKind> {
    if !(1..=MAX_COUNT).contains(&count) {
        return Err(bad(format!(
            "an mbarrier for {count} arrivals; 1 to {MAX_COUNT} are possible"
        )));
    }
    let (at, host) = place(cx, lane, address, space)?;
    if cx.rank_and_address(at).0 != cx.rank {
        return Err(elsewhere(address));
    }
    let all = &mut cx.barriers.all;
    if cx.checks.sync
        && let Some(index) = all.iter().position(|barrier| barrier.at == at)
        // SAFETY: `place` checked that the eight bytes are inside shared memory and aligned.
        && unsafe { host.read() } == MAGIC ^ index as u64
    {
        return Err(bad(format!(
            "the mbarrier at {address:#x} is initialised a second time; `mbarrier.inval` comes first"
        )));
    }
    // One at the place of an old one goes on with its component of the clocks.
    let index = all.iter().position(|barrier| barrier.at == at).unwrap_or(all.len());
    let component = cx.order.component(index);
    let completed = all.get(index).map_or(0, |barrier| barrier.completed);
    let barrier = MbarrierState {
        at,
        count,
        pending: count,
        copies: Vec::new(),
        bytes: 0,
        phase: 0,
        completed,
        component,
        arrived: WarpClock::default(),
        done: WarpClock::default(),
        fenced: false,
        released: Default::default(),
        acquired: Default::default(),
        by: (cx.warp, cx.order.now(cx.warp)),
    };
    match all.get_mut(index) {
        Some(old) => *old = barrier,
        None => all.push(barrier),
    }
    cx.barriers.changes += 1;
    if let Some(checker) = &mut cx.checker {
        checker.initialised((cx.warp, lane), index);
    }
    // SAFETY: `place` checked that the eight bytes are inside shared memory and aligned.
    unsafe { host.write(MAGIC ^ index as u64) };
    Ok(())
}

fn arrive(
    cx: &mut Cx<'_>,
    lane: usize,
    index: usize,
    count: u32,
    release: bool,
) -> Result<(), FaultKind> {
    let warp = cx.warp;
    let barrier = &mut cx.barriers.all[index];
    // Those that copies are to make are not others' to make.
    let pending = barrier.pending - barrier.copies.len() as u32;
    let (at, phase, all) = (barrier.at, barrier.phase, barrier.count);
    if count == 0 || count > pending {
        let address = cx.rank_and_address(at).1;
        return Err(bad(format!(
            "{count} arrivals at the mbarrier at {address:#x}, whose phase {phase} lacks {pending} of {all}"
        )));
    }
    let barrier = &mut cx.barriers.all[index];
    barrier.pending -= count;
    if release {
        cx.order.release(warp, &mut barrier.arrived);
        if let Some(checker) = &mut cx.checker {
            checker.known.arrive_at(warp, 1 << lane, &mut barrier.released);
        }
    }
    advance(cx, index);
    Ok(())
}

/// `cp.async.mbarrier.arrive`: `a` slot of the address, `b` whether that has 64 bits, `c` its
/// offset, `y` number of its space; `x` is 1 if the arrival is one that the mbarrier does not
/// expect yet.
pub(crate) struct CopyArrive;

// SAFETY: touches only the slot `a`.
unsafe impl Handler for CopyArrive {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        for lane in cx.active() {
            // SAFETY: the fields describe slot `a`.
            let address = unsafe { address::address_of(cx, lane, (op.a, op.b != 0, op.c)) };
            let place = (address, SPACES[op.y as usize]);
            let group = cx.copies[cx.warp].close(lane, false);
            if let Err(kind) = arrive_after_copies(cx, lane, place, group, op.x != 0) {
                return cx.fail(lane as u32, kind);
            }
        }
        false
    }
}

/// A lane arrives at the barrier at `address` when its copies before its group `group` are
/// complete. If `expect`, the current phase expects this arrival from now on.
fn arrive_after_copies(
    cx: &mut Cx<'_>,
    lane: usize,
    (address, space): (u64, AddressSpace),
    group: u64,
    expect: bool,
) -> Result<(), FaultKind> {
    let index = find(cx, lane, address, space)?;
    let (warp, own) = (cx.warp, cx.rank);
    if cx.rank_and_address(cx.barriers.all[index].at).0 != own {
        return Err(elsewhere(address));
    }
    let barrier = &mut cx.barriers.all[index];
    barrier.pending += u32::from(expect);
    if barrier.pending > MAX_COUNT || barrier.copies.len() >= barrier.pending as usize {
        let (phase, count) = (barrier.phase, barrier.count);
        return Err(bad(format!(
            "more arrivals at the mbarrier at {address:#x} than its phase {phase} of {count} can take"
        )));
    }
    barrier.copies.push(((warp, lane), group));
    advance(cx, index);
    Ok(())
}

/// Performs the copies that barrier `index` waits for, and arrives there.
fn finish_copies(cx: &mut Cx<'_>, lane: usize, index: usize) -> Result<(), FaultKind> {
    for ((warp, of), group) in std::mem::take(&mut cx.barriers.all[index].copies) {
        copy::perform_before(cx, (warp, of), group);
        if let Some(checker) = &cx.checker {
            let agent = checker.known.agents.copies_of(warp * LANES + of);
            cx.barriers.all[index].released.clock.set(agent, group as u32);
        }
        arrive(cx, lane, index, 1, false)?;
    }
    Ok(())
}

/// Lanes learn what those knew who arrived at a barrier.
fn acquire(cx: &mut Cx<'_>, (index, lanes): (usize, u32)) {
    if let Some(checker) = &mut cx.checker
        && lanes != 0
    {
        checker.known.acquire(cx.warp, lanes, &cx.barriers.all[index].acquired);
    }
}

/// `fence.mbarrier_init` and `fence.proxy.async`: asynchronous copies may use the mbarriers that
/// these threads have initialised.
pub(crate) struct FenceInit;

// SAFETY: touches no slot.
unsafe impl Handler for FenceInit {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, _op: &Op) -> bool {
        for barrier in cx.barriers.all.iter_mut().filter(|barrier| barrier.by.0 == cx.warp) {
            barrier.fenced = true;
        }
        false
    }
}

/// What came of a wait.
pub(crate) enum Waited {
    /// The predicate is set.
    Over,
    /// No lane's phase is complete; the first lane waits for this barrier.
    Blocked(u32),
}

/// Executes `wait` for the active lanes. It is over when a lane's phase is
/// complete, or with `give_up`.
///
/// # Safety
/// `wait` was decoded for the kernel whose warp `cx` describes.
pub(crate) unsafe fn wait(
    cx: &mut Cx<'_>,
    wait: &Wait,
    give_up: bool,
) -> Result<Waited, (u32, FaultKind)> {
    if wait.ignored && cx.checks.sync {
        let reason = "nothing reads whether this wait was successful, which it need not be";
        return Err((cx.mask.trailing_zeros(), bad(reason.to_owned())));
    }
    let mut done = 0;
    let mut first = None;
    // The lanes that acquire from the same barrier.
    let mut same = (0, 0);
    for lane in cx.active() {
        // SAFETY: by contract.
        let address = unsafe { address::address_of(cx, lane, wait.address) };
        let index = find(cx, lane, address, SPACES[wait.space as usize])
            .map_err(|kind| (lane as u32, kind))?;
        if cx.rank_and_address(cx.barriers.all[index].at).0 != cx.rank {
            return Err((lane as u32, elsewhere(address)));
        }
        // SAFETY: the slot has lanes of this size.
        let complete = |cx: &Cx<'_>| unsafe {
            let phase = cx.barriers.all[index].phase;
            match wait.parity {
                true => (phase ^ *cx.slot::<u32>(wait.phase).add(lane)) & 1 != 0,
                false => u64::from(phase) != *cx.slot::<u64>(wait.phase).add(lane),
            }
        };
        if !complete(cx) && cx.barriers.all[index].lacks_only_copies() {
            finish_copies(cx, lane, index).map_err(|kind| (lane as u32, kind))?;
        }
        if complete(cx) {
            done |= 1 << lane;
            if wait.acquire {
                cx.order.acquire(cx.warp, &cx.barriers.all[index].done);
                if same.0 != index {
                    acquire(cx, same);
                    same = (index, 0);
                }
                same.1 |= 1 << lane;
            }
        } else {
            first.get_or_insert(index as u32);
        }
    }
    acquire(cx, same);
    match first {
        Some(index) if done == 0 && !give_up => Ok(Waited::Blocked(index)),
        _ => {
            // SAFETY: `dst` is a predicate.
            unsafe { cx.set_pred(wait.dst, done) };
            Ok(Waited::Over)
        }
    }
}
