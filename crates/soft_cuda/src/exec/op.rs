//! What an operation is, and what it sees.

use super::checker::Checker;
use super::groups::{CopyToShared, Groups, Store};
use super::in_flight::InFlight;
use super::machine::{Shape, bits};
use super::order::Order;
use super::phases::Barriers;
use super::printed::Printed;
use super::recorder::{Recorder, WarpFault};
use crate::checks::Checks;
use crate::fault::FaultKind;
use crate::heap::Heap;
use crate::memory::{Memory, Snapshot};

/// The instruction set that operations are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// Executes one operation for the active lanes. Returns whether it failed;
/// the reason is then in [`Cx::fault`].
pub(crate) type OpFn = for<'a, 'b, 'c> unsafe fn(&'a mut Cx<'b>, &'c Op) -> bool;

/// One decoded operation. What the fields mean is up to the function; they are
/// byte offsets of register slots unless it says otherwise.
#[derive(Clone, Copy)]
pub(crate) struct Op {
    pub run: OpFn,
    pub d: u32,
    pub a: u32,
    pub b: u32,
    pub c: u32,
    pub x: u32,
    pub y: u32,
}

/// What an operation computes.
///
/// # Safety
/// `run` may only be called with an operation that was decoded for the kernel
/// whose warp `cx` describes: its slots lie inside the register file, and the
/// slots of wide (8-byte) registers are 8 bytes per lane. `run` must be
/// `inline(always)` to be compiled for the path that calls it.
pub(crate) unsafe trait Handler {
    /// See [`Handler`].
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool;

    /// What `run` does, in little code that is compiled once for all paths.
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn compact(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: the caller keeps the contract.
        unsafe { Self::run(cx, op) }
    }

    /// `run`, compiled for [`Path::Avx2`].
    ///
    /// # Safety
    /// As for the trait, and the host has these features.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
    unsafe fn avx2(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: the caller keeps the contract.
        unsafe { Self::run(cx, op) }
    }

    /// `run`, compiled for [`Path::Avx512`].
    ///
    /// # Safety
    /// As for the trait, and the host has these features.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
    unsafe fn avx512(cx: &mut Cx<'_>, op: &Op) -> bool {
        // SAFETY: the caller keeps the contract.
        unsafe { Self::run(cx, op) }
    }
}

/// The function that runs `H` on `path`.
pub(crate) fn pick<H: Handler>(path: Path) -> OpFn {
    match path {
        // An x86 without AVX2 has no FMA instruction either, so that most of a kernel's time
        // goes to computing that: it does not pay to compile everything for it once more.
        #[cfg(target_arch = "x86_64")]
        Path::Portable => H::compact,
        #[cfg(not(target_arch = "x86_64"))]
        Path::Portable => H::run,
        #[cfg(target_arch = "x86_64")]
        Path::Avx2 => H::avx2,
        #[cfg(target_arch = "x86_64")]
        Path::Avx512 => H::avx512,
    }
}

/// The function that runs `H` on all paths, where speed does not matter.
pub(crate) fn pick_compact<H: Handler>() -> OpFn {
    H::compact
}

/// The last allocation an operation accessed.
#[derive(Clone, Copy)]
pub(crate) struct CacheEntry {
    /// First address.
    pub base: u64,
    /// Bytes; 0 when the entry is empty.
    pub size: u64,
    /// Host address of the first byte.
    pub host: *mut u8,
}

impl CacheEntry {
    pub(crate) const EMPTY: CacheEntry =
        CacheEntry { base: 0, size: 0, host: std::ptr::null_mut() };
}

/// Entries of the cache of allocations; a power of two.
pub(crate) const CACHE: usize = 64;

/// What a failing operation reports: the lane and the reason.
#[derive(Debug)]
pub(crate) struct LaneFault {
    pub lane: u32,
    /// The PTX line, if the operation stands for several.
    pub line: Option<u32>,
    pub kind: FaultKind,
}

/// What an operation sees: the warp that runs and the memory around it.
pub(crate) struct Cx<'k> {
    /// Register file of the warp.
    pub regs: *mut u8,
    /// Predicate registers of the warp, one mask each.
    pub preds: *mut u32,
    /// Active lanes; never 0.
    pub mask: u32,
    /// The lanes that execute a collective together: the active ones, and those that execute
    /// another instruction.
    pub party: u32,
    /// The block's shared memory, and its bytes.
    pub shared: *mut u8,
    pub shared_size: u32,
    /// That of all blocks of the cluster, in the order of their ranks, and the bytes from one to
    /// the next.
    pub cluster_shared: *mut u8,
    pub shared_stride: u32,
    /// The block's rank in the cluster, and the cluster's blocks.
    pub rank: u32,
    pub blocks: u32,
    /// The ranks of blocks that have exited, where there are several.
    pub exited: u32,
    /// Local memory of the warp's lane 0; each lane has `local_size` bytes.
    pub local: *mut u8,
    pub local_size: u32,
    /// Where the frame of the function that runs begins in it.
    pub frame: u32,
    /// Parameter bytes of the launch, and the padding up to a multiple of 8.
    pub params: &'k [u64],
    pub params_size: u32,
    /// Further operands of operations that have many.
    pub extra: &'k [u32],
    /// Operations behind a guard.
    pub guarded: &'k [Op],
    pub snapshot: &'k Snapshot,
    /// For messages only: `snapshot` decides what is accessible.
    pub memory: &'k Memory,
    /// What `malloc` allocates from.
    pub heap: &'k Heap,
    pub cache: [CacheEntry; CACHE],
    pub fault: Option<Box<LaneFault>>,
    /// Index of the warp in its cluster.
    pub warp: usize,
    /// Lanes that the warp was started with.
    pub lanes: u32,
    /// Asynchronous copies in flight, by warp.
    pub copies: Vec<Groups<CopyToShared>>,
    /// Bulk copies to global memory in flight, by warp.
    pub stores: Vec<Groups<Store>>,
    /// Products of `wgmma` in flight, by warp.
    pub products: Vec<InFlight>,
    /// The mbarriers of the cluster's blocks.
    pub barriers: Barriers,
    /// What happens before what in the cluster.
    pub order: Order,
    /// The checks that cost time, if there are any.
    pub checker: Option<Box<Checker<'k>>>,
    pub checks: Checks,
    /// Where what is found goes that the launch goes on after, and the place of the cluster in the
    /// order of the launch.
    pub recorder: &'k Recorder,
    pub place: u64,
    /// Bytes that bulk copies have moved.
    pub bulk_bytes: u64,
    /// What the cluster has printed.
    pub printed: Printed,
    /// The launch, and the block that runs.
    pub shape: Shape,
    /// Time the launch began, for `%clock` and friends.
    pub started: std::time::Instant,
}

impl Cx<'_> {
    /// Records why an operation failed, and returns `true` to pass on.
    #[cold]
    pub(crate) fn fail(&mut self, lane: u32, kind: FaultKind) -> bool {
        self.fault = Some(Box::new(LaneFault { lane, line: None, kind }));
        true
    }

    /// A check found something wrong with what `lane` does at PTX line `line`. Returns whether
    /// that ends the launch, as [`fail`](Cx::fail).
    #[cold]
    pub(crate) fn found(&mut self, lane: u32, line: u32, kind: FaultKind) -> bool {
        match self.recorder.take(self.place, self.warp as u32, WarpFault { lane, line, kind }) {
            Ok(()) => false,
            Err(fault) => self.fail(lane, fault.kind),
        }
    }

    /// Has the checker look at an access of `lane` at PTX line `line`. If it finds something that
    /// the launch goes on after, the access is noted.
    pub(crate) fn check(
        &mut self,
        lane: usize,
        line: u32,
        mut look: impl FnMut(&mut Checker<'_>) -> Result<(), FaultKind>,
    ) -> Result<(), FaultKind> {
        let Some(checker) = &mut self.checker else { return Ok(()) };
        let Err(kind) = look(checker) else { return Ok(()) };
        checker.quiet = true;
        let noted = look(checker);
        checker.quiet = false;
        let fault = WarpFault { lane: lane as u32, line, kind };
        let taken = self.recorder.take(self.place, self.warp as u32, fault);
        taken.map_err(|fault| fault.kind).and(noted)
    }

    /// As [`found`](Cx::found), by the operation `op`, which only checks. If the launch goes on,
    /// the access is noted, and the other lanes are checked.
    ///
    /// # Safety
    /// `op` is of the kernel that runs.
    #[cold]
    pub(crate) unsafe fn found_by(
        &mut self,
        op: &Op,
        lane: u32,
        line: u32,
        kind: FaultKind,
    ) -> bool {
        if self.found(lane, line, kind) {
            return true;
        }
        let all = self.mask;
        self.mask = 1 << lane;
        self.be_quiet(true);
        // SAFETY: by contract.
        let mut failed = unsafe { (op.run)(self, op) };
        self.be_quiet(false);
        self.mask = all & !(1 << lane);
        if !failed && self.mask != 0 {
            // SAFETY: by contract.
            failed = unsafe { (op.run)(self, op) };
        }
        self.mask = all;
        failed
    }

    /// Whether accesses are noted without being checked.
    pub(super) fn be_quiet(&mut self, quiet: bool) {
        if let Some(checker) = &mut self.checker {
            checker.quiet = quiet;
        }
    }

    /// The lanes of the register slot at byte offset `slot`.
    ///
    /// # Safety
    /// `slot` is a slot of the kernel that runs, of lanes the size of `S`.
    #[inline(always)]
    pub(crate) unsafe fn slot<S>(&self, slot: u32) -> *mut S {
        // SAFETY: the slot is inside the register file.
        unsafe { self.regs.add(slot as usize).cast() }
    }

    /// The predicate `index` as a mask.
    ///
    /// # Safety
    /// `index` is a predicate of the kernel that runs.
    #[inline(always)]
    pub(crate) unsafe fn pred(&self, index: u32) -> u32 {
        // SAFETY: the index is inside the predicate file.
        unsafe { *self.preds.add(index as usize) }
    }

    /// Sets the predicate `index` in the active lanes.
    ///
    /// # Safety
    /// `index` is a predicate of the kernel that runs.
    #[inline(always)]
    pub(crate) unsafe fn set_pred(&mut self, index: u32, value: u32) {
        // SAFETY: the index is inside the predicate file.
        let slot = unsafe { &mut *self.preds.add(index as usize) };
        *slot = (*slot & !self.mask) | (value & self.mask);
    }

    /// The active lanes, in increasing order.
    #[inline]
    pub(crate) fn active(&self) -> impl Iterator<Item = usize> + use<> {
        bits(self.mask)
    }
}

/// An operation that runs only in the lanes of its guard. Fields: `a` guard
/// predicate, `b` 1 when it is negated, `x` index into [`Cx::guarded`].
pub(crate) struct Guarded;

// SAFETY: runs the inner operation under a smaller mask, with slots of the
// same kernel.
unsafe impl Handler for Guarded {
    #[inline(always)]
    unsafe fn run(cx: &mut Cx<'_>, op: &Op) -> bool {
        let all = cx.mask;
        // SAFETY: `a` is a predicate.
        let guard = unsafe { cx.pred(op.a) };
        let mask = all & if op.b != 0 { !guard } else { guard };
        if mask == 0 {
            return false;
        }
        cx.mask = mask;
        let inner = &cx.guarded[op.x as usize];
        // SAFETY: the inner operation belongs to the same kernel.
        let failed = unsafe { (inner.run)(cx, inner) };
        cx.mask = all;
        failed
    }
}
