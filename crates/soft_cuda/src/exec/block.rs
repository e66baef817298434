//! One block: its warps take turns until all have exited.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use super::checker::{Checker, LaunchChecks};
use super::code::Code;
use super::groups::Groups;
use super::lines::Lines;
use super::machine::{BARRIERS, FULL, LANES, Shape};
use super::op::{CACHE, CacheEntry, Cx};
use super::order::Order;
use super::phases::Barriers;
use super::printed::Printed;
use super::recorder::{Recorder, WarpFault};
use super::schedule::{self, Random};
use super::split::{Split, State};
use super::warp::{Executed, Stop, Warp};
use super::wgmma::InFlight;
use crate::checks::{Checks, Schedule};
use crate::fault::{FaultKind, Waiting};
use crate::heap::Heap;
use crate::memory::{Memory, Snapshot};

/// How often in a row a block that cannot go on ends its waits for mbarriers
/// without success before it counts as stuck.
const MAX_EXPIRIES: u32 = 64;

/// Warp instructions after which a worker looks at what the launch has come to, where
/// a warp's turn ends or is interrupted.
const LOOK: u64 = 1 << 14;
/// Warp instructions after which a turn is interrupted, at the next backward branch or where
/// its split stops: a turn has no bound of its own, since loops are as long as they like.
const SLICE: u64 = 1 << 14;
/// The same where schedules are random: the most, and at any branch.
const MAX_RANDOM_SLICE: u64 = 1 << 8;
/// Warp instructions that a block may execute in all where a later block has faulted.
const GRACE: u64 = 1 << 23;

/// What all blocks of a launch share.
pub(crate) struct Launch<'k> {
    pub code: &'k Code,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Bytes of shared memory per block, static and dynamic.
    pub shared_bytes: u32,
    pub dynamic_shared: u32,
    /// Parameter bytes, padded.
    pub params: &'k [u64],
    pub params_size: u32,
    pub snapshot: &'k Snapshot,
    pub memory: &'k Memory,
    pub heap: &'k Heap,
    pub sm_count: u32,
    pub budget: Option<u64>,
    /// Warp instructions of all workers so far.
    pub executed: AtomicU64,
    /// The lowest block that faulted; later ones need not run.
    pub last: AtomicU64,
    pub started: Instant,
    /// The checks that cost time, if there are any.
    pub checks: Option<LaunchChecks>,
    pub schedule: Schedule,
    pub recorder: &'k Recorder,
}

impl Launch<'_> {
    pub(crate) fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    pub(crate) fn warps(&self) -> usize {
        (self.threads() as usize).div_ceil(LANES)
    }

    /// The block that is number `place` to start. Blocks that may wait for each other start in
    /// the order of their indices, as those do on a GPU that do not fit there all at once.
    pub(crate) fn block_at(&self, place: u64, blocks: u64) -> u64 {
        let schedule = if self.code.communicates { Schedule::InOrder } else { self.schedule };
        schedule::block_at(schedule, place, blocks)
    }

    /// Bytes of local memory of a block.
    fn local_bytes(&self) -> usize {
        self.code.local_bytes as usize * LANES * self.warps()
    }

    /// Bytes of host memory that one block's threads need.
    pub(crate) fn state_bytes(&self) -> u64 {
        (self.code.register_bytes * self.warps() + self.local_bytes()) as u64
    }
}

/// Runs blocks of one launch, one at a time, on one host thread.
pub(crate) struct Worker<'k> {
    pub(super) launch: &'k Launch<'k>,
    pub(super) cx: Cx<'k>,
    pub(super) warps: Vec<Warp>,
    pub(super) registers: Lines,
    /// Bytes from one warp's register file to the next.
    pub(super) stride: usize,
    predicates: Vec<u32>,
    shared: Lines,
    local: Lines,
    /// Threads that have arrived at each barrier without waiting.
    pub(super) arrivals: [u32; BARRIERS as usize],
    /// Completed phases of mbarriers when waits for them were last tried again.
    completions: u64,
    /// Changes of mbarriers when the block last could not go on, and how often
    /// in a row that has been.
    changes: u64,
    pub(super) expiries: u32,
    executed: Executed,
    /// How much of `executed` has been added to the launch's total.
    flushed: u64,
    /// Warp instructions executed when the block began.
    begun: u64,
    /// The order in which warps take turns.
    turns: Vec<usize>,
    random: Random,
}

/// Why a block did not finish.
pub(crate) enum BlockError {
    Fault {
        warp: u32,
        fault: WarpFault,
    },
    /// Another block faulted.
    Abandoned,
}

impl<'k> Worker<'k> {
    /// A worker for `launch`; `None` if the host has no memory for the state
    /// of a block's threads.
    pub(crate) fn new(launch: &'k Launch<'k>) -> Option<Worker<'k>> {
        let code = launch.code;
        let warps = launch.warps();
        // An odd number of lines, so that warps do not share cache sets.
        let stride = (code.register_bytes.div_ceil(128) | 1) * 128;
        let cx = Cx {
            regs: std::ptr::null_mut(),
            preds: std::ptr::null_mut(),
            mask: FULL,
            shared: std::ptr::null_mut(),
            shared_size: launch.shared_bytes,
            local: std::ptr::null_mut(),
            local_size: code.local_bytes,
            frame: 0,
            params: launch.params,
            params_size: launch.params_size,
            extra: &code.extra,
            guarded: &code.guarded,
            snapshot: launch.snapshot,
            memory: launch.memory,
            heap: launch.heap,
            cache: [CacheEntry::EMPTY; CACHE],
            fault: None,
            warp: 0,
            lanes: FULL,
            copies: (0..warps).map(|_| Groups::new()).collect(),
            stores: (0..warps).map(|_| Groups::new()).collect(),
            products: (0..warps).map(|_| InFlight::default()).collect(),
            barriers: Barriers::default(),
            order: Order::new(code.bulk, warps, launch.shared_bytes),
            checker: launch.checks.as_ref().map(|checks| {
                let (shape, bytes) = ((launch.grid, launch.block), launch.shared_bytes);
                Box::new(Checker::new(checks, &code.facts, launch.snapshot, shape, bytes))
            }),
            checks: launch.checks.as_ref().map_or(Checks::NONE, |checks| checks.checks),
            recorder: launch.recorder,
            place: 0,
            bulk_bytes: 0,
            printed: Printed::default(),
            started: launch.started,
            shape: Shape {
                grid: launch.grid,
                block: launch.block,
                warps: warps as u32,
                shared_bytes: launch.shared_bytes,
                dynamic_shared: launch.dynamic_shared,
                sm_count: launch.sm_count,
                index: 0,
            },
        };
        let mut worker = Worker {
            launch,
            cx,
            warps: (0..warps).map(|_| Warp::default()).collect(),
            registers: Lines::new(stride * warps)?,
            stride,
            predicates: vec![0; code.predicates * warps],
            shared: Lines::new(launch.shared_bytes as usize)?,
            local: Lines::new(launch.local_bytes())?,
            arrivals: [0; BARRIERS as usize],
            completions: 0,
            changes: 0,
            expiries: 0,
            executed: Executed::default(),
            flushed: 0,
            begun: 0,
            turns: (0..warps).collect(),
            random: Random::new(0, 0),
        };
        if launch.schedule == Schedule::Adversarial {
            worker.turns.reverse();
        }
        for warp in 0..warps {
            worker.enter(warp);
            worker.cx.fill_initial(&code.functions[0].initial);
        }
        Some(worker)
    }

    /// Instructions executed by this worker.
    pub(crate) fn executed(&self) -> Executed {
        self.executed
    }

    /// Bytes that bulk copies of this worker's blocks have moved.
    pub(crate) fn bulk_bytes(&self) -> u64 {
        self.cx.bulk_bytes
    }

    /// Points the context at a warp.
    pub(super) fn enter(&mut self, warp: usize) {
        let cx = &mut self.cx;
        cx.warp = warp;
        cx.lanes = FULL >> (LANES - (self.launch.threads() as usize - warp * LANES).min(LANES));
        // SAFETY: each offset is inside its buffer, which has room for all warps.
        unsafe {
            cx.regs = self.registers.start().add(warp * self.stride);
            cx.preds = self.predicates.as_mut_ptr().add(warp * self.launch.code.predicates);
            let local = warp * LANES * cx.local_size as usize;
            cx.local = self.local.start().add(local);
        }
        cx.shared = self.shared.start();
    }

    /// Runs the block with the linear index `block`, which is number `place` to start.
    pub(crate) fn run(&mut self, block: u64, place: u64) -> Result<(), BlockError> {
        self.start(block);
        self.cx.place = place;
        loop {
            let mut progress = false;
            self.shuffle();
            for turn in 0..self.warps.len() {
                let warp = self.turns[turn];
                if self.warps[warp].live == 0 || !self.warps[warp].ready() {
                    continue;
                }
                progress = true;
                self.enter(warp);
                let (code, cx, count) = (self.launch.code, &mut self.cx, &mut self.executed);
                let stop = match self.launch.schedule {
                    Schedule::Random(_) => {
                        let slice = 1 + self.random.below(MAX_RANDOM_SLICE);
                        self.warps[warp].run::<true>(code, cx, count, slice)
                    }
                    _ => self.warps[warp].run::<false>(code, cx, count, SLICE),
                };
                if let Stop::Fault(fault) = stop {
                    return Err(BlockError::Fault { warp: warp as u32, fault });
                }
                // Not only where a turn is over: whoever stops at a barrier in every
                // iteration of a loop never comes to the end of one.
                if self.executed.warp - self.flushed >= LOOK {
                    self.look(place, warp)?;
                }
                self.retry_waits();
            }
            if self.warps.iter().all(|warp| warp.live == 0) {
                self.flush();
                self.check_end()?;
                return self.check_budget(0);
            }
            if !progress
                && !self.complete_barriers()?
                && !self.break_convergence()
                && !self.expire_waits()
            {
                return Err(self.stuck());
            }
        }
    }

    /// Puts the warps into another order, if the schedule is random.
    fn shuffle(&mut self) {
        if let Schedule::Random(_) = self.launch.schedule {
            for end in (2..=self.turns.len()).rev() {
                self.turns.swap(end - 1, self.random.below(end as u64) as usize);
            }
        }
    }

    /// All threads have exited: checks what can only be seen then.
    fn check_end(&self) -> Result<(), BlockError> {
        let checker = self.cx.checker.as_ref().filter(|_| self.cx.checks.sync);
        match checker.and_then(|checker| checker.warpgroup_divergence()) {
            None => Ok(()),
            Some((warp, line)) => {
                let kind = FaultKind::WarpgroupDivergence { warp: warp as u32 };
                let (warp, fault) = (warp as u32, WarpFault { lane: 0, line, kind });
                let taken = self.cx.recorder.take(self.cx.place, warp, fault);
                taken.map_err(|fault| BlockError::Fault { warp, fault })
            }
        }
    }

    /// Lets splits that wait for an mbarrier look again if one has completed a
    /// phase.
    fn retry_waits(&mut self) {
        if self.completions != self.cx.barriers.completions {
            self.completions = self.cx.barriers.completions;
            for warp in &mut self.warps {
                warp.end_waits(State::Ready);
            }
        }
    }

    /// Nobody can run: ends waits for mbarriers without success, as a GPU does
    /// after some time, in case their threads have something else to do.
    /// Returns whether that is worth trying.
    fn expire_waits(&mut self) -> bool {
        if self.changes != self.cx.barriers.changes {
            self.changes = self.cx.barriers.changes;
            self.expiries = 0;
        }
        self.expiries += 1;
        let mut any = false;
        if self.expiries <= MAX_EXPIRIES {
            for warp in &mut self.warps {
                any |= warp.end_waits(State::Expired);
            }
        }
        any
    }

    fn start(&mut self, block: u64) {
        let launch = self.launch;
        self.cx.shape.index = block;
        // What a block before has left is not for this one to see: shared and
        // local memory start as NaN.
        self.shared.fill(0xff);
        self.fill_local();
        self.arrivals = [0; BARRIERS as usize];
        self.cx.barriers.clear();
        self.cx.order.clear();
        self.cx.printed.clear();
        self.expiries = 0;
        self.begun = self.executed.warp;
        if let Schedule::Random(seed) = launch.schedule {
            self.random = Random::new(seed, block);
            self.turns.sort_unstable();
        }
        if let Some(checker) = &mut self.cx.checker {
            checker.clear(block);
        }
        for warp in 0..self.warps.len() {
            self.enter(warp);
            self.warps[warp].start(self.cx.lanes, launch.code);
            self.cx.copies[warp].clear();
            self.cx.stores[warp].clear();
            self.cx.products[warp].clear();
            self.cx.fill_of_block(&launch.code.functions[0].initial);
        }
    }

    /// Sets the kernel's own variables in local memory to NaN. The frame of a function that it
    /// calls is set where the call is.
    fn fill_local(&mut self) {
        let (size, own) = (self.cx.local_size as usize, self.launch.code.own_local_bytes as usize);
        let base = self.local.start();
        for lane in 0..LANES * self.warps.len() {
            // SAFETY: every lane has `size` bytes, one after the other, and `own <= size`.
            unsafe { base.add(lane * size).write_bytes(0xff, own) };
        }
    }

    /// Takes out what the block has printed.
    pub(crate) fn take_printed(&mut self) -> Vec<u8> {
        self.cx.printed.take()
    }

    fn flush(&mut self) {
        let new = self.executed.warp - self.flushed;
        self.flushed = self.executed.warp;
        self.launch.executed.fetch_add(new, Relaxed);
    }

    /// The block has run for a while: checks whether it should go on.
    fn look(&mut self, place: u64, warp: usize) -> Result<(), BlockError> {
        self.flush();
        let last = self.launch.last.load(Relaxed);
        // A block before the one that faulted may find a fault of its own, which would be
        // reported instead, but not for ever.
        if last < place || last != u64::MAX && self.executed.warp - self.begun > GRACE {
            return Err(BlockError::Abandoned);
        }
        self.check_budget(warp)
    }

    fn check_budget(&self, warp: usize) -> Result<(), BlockError> {
        match self.launch.budget {
            Some(budget) if self.launch.executed.load(Relaxed) > budget => {
                let code = self.launch.code;
                let split = self.warps[warp].splits.first();
                let pc = split.map_or(0, |split| split.pc as usize);
                let segment = &code.segments[pc];
                let line = match segment.first < segment.last {
                    true => code.lines[segment.first as usize],
                    false => segment.line,
                };
                let lane = split.map_or(0, |split| split.mask.trailing_zeros());
                let kind = FaultKind::BudgetExceeded { budget };
                Err(BlockError::Fault { warp: warp as u32, fault: WarpFault { lane, line, kind } })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn fault(&self, warp: usize, split: Split, kind: FaultKind) -> BlockError {
        let line = self.launch.code.segments[split.pc as usize].line;
        let lane = split.mask.trailing_zeros();
        BlockError::Fault { warp: warp as u32, fault: WarpFault { lane, line, kind } }
    }

    /// Everybody waits, but some lanes only to reconverge with lanes that
    /// wait at a barrier that a part of a warp may pass: lets those run.
    fn break_convergence(&mut self) -> bool {
        let code = self.launch.code;
        let mut any = false;
        for warp in &mut self.warps {
            let aligned = warp.splits.iter().any(|split| match split.state {
                State::Barrier(index) => code.barriers[index as usize].aligned,
                _ => false,
            });
            if !aligned && !warp.splits.is_empty() {
                any |= warp.break_convergence();
            }
        }
        any
    }

    /// Where the lanes of a warp stand, for messages.
    pub(super) fn waiting(&self, warp: usize) -> Vec<Waiting> {
        self.warps[warp].waiting(self.launch.code, &self.cx.barriers, warp as u32)
    }

    /// Nobody can go on: says why.
    fn stuck(&self) -> BlockError {
        let code = self.launch.code;
        let waiting = |w: usize| self.waiting(w);
        // Whoever waits for an mbarrier is not waited for by its warp's other lanes.
        let at_mbarrier = self.warps.iter().enumerate().find_map(|(w, warp)| {
            let split = warp.splits.iter().find(|s| matches!(s.state, State::Mbarrier(_)))?;
            Some((w, *split))
        });
        if let Some((warp, split)) = at_mbarrier {
            let all = (0..self.warps.len()).flat_map(waiting).collect();
            return self.fault(warp, split, FaultKind::Deadlock { waiting: all });
        }
        // A warp that waits at several places explains the others.
        let diverged = (0..self.warps.len()).find(|&w| waiting(w).len() > 1);
        let warp = diverged.or_else(|| (0..self.warps.len()).find(|&w| self.warps[w].live != 0));
        let warp = warp.unwrap_or(0);
        let aligned = self.warps[warp].splits.iter().find(|split| match split.state {
            State::Barrier(index) => code.barriers[index as usize].aligned,
            _ => split.state == State::Collective,
        });
        let kind = match (diverged, aligned) {
            (Some(_), Some(_)) => FaultKind::BarrierDivergence { waiting: waiting(warp) },
            _ => {
                let all: Vec<Waiting> = (0..self.warps.len()).flat_map(waiting).collect();
                FaultKind::Deadlock { waiting: all }
            }
        };
        let split = aligned.or(self.warps[warp].splits.first());
        match split {
            Some(&split) => self.fault(warp, split, kind),
            None => {
                BlockError::Fault { warp: warp as u32, fault: WarpFault { lane: 0, line: 0, kind } }
            }
        }
    }
}
