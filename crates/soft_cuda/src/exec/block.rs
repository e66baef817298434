//! One cluster, which mostly is one block: its warps take turns until all have exited.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use super::check_register::warpgroup_divergence;
use super::checker::{Checker, LaunchChecks};
use super::cluster::ClusterBarrier;
use super::code::Code;
use super::groups::Groups;
use super::in_flight::InFlight;
use super::lines::Lines;
use super::machine::{ALL_BARRIERS, ClusterShape, FRAME_ALIGN, FULL, LANES, MAX_LOCAL, Shape};
use super::op::{CACHE, CacheEntry, Cx};
use super::order::Order;
use super::phases::Barriers;
use super::printed::Printed;
use super::prior::{Prior, PriorLaunch};
use super::recorder::{Recorder, WarpFault};
use super::schedule::{self, Random};
use super::split::Split;
use super::unwaited;
use super::warp::{Executed, Stop, Warp};
use crate::checks::{Checks, Schedule};
use crate::fault::FaultKind;
use crate::heap::Heap;
use crate::memory::{Memory, Snapshot};

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

/// Alignment of each block's shared memory, where a cluster has several: that of what swizzles
/// repeat after.
const SHARED_ALIGN: u32 = 1024;

/// What all blocks of a launch share.
pub(crate) struct Launch<'k> {
    pub code: &'k Code,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: ClusterShape,
    /// Bytes of shared memory per block, and those among them that the launch did not ask for.
    pub shared_bytes: u32,
    pub padding: u32,
    pub dynamic_shared: u32,
    /// Parameter bytes, padded.
    pub params: &'k [u64],
    pub params_size: u32,
    pub snapshot: &'k Snapshot,
    pub memory: &'k Memory,
    pub heap: &'k Heap,
    /// Bytes of local memory of a thread, at least, where nobody knows how deep calls are.
    pub stack_bytes: u32,
    pub sm_count: u32,
    pub budget: Option<u64>,
    /// Warp instructions of all workers so far.
    pub executed: AtomicU64,
    /// The lowest cluster that faulted; later ones need not run.
    pub last: AtomicU64,
    pub started: Instant,
    /// The checks that cost time, if there are any.
    pub checks: Option<LaunchChecks>,
    pub schedule: Schedule,
    pub recorder: &'k Recorder,
}

impl Launch<'_> {
    /// What one that has ended has accessed, if races are looked for.
    pub(crate) fn into_prior(self, kernel: &str) -> Option<Prior> {
        let checks = self.checks.filter(|checks| checks.checks.races)?;
        let all = self.snapshot.all().iter().enumerate();
        let accessed = all.filter(|(index, _)| checks.global.is_accessed(*index));
        let accessed = accessed.map(|(index, of)| (of.base, of.size, index)).collect();
        Some(Prior::Launch(Box::new(PriorLaunch {
            kernel: kernel.to_owned(),
            text: self.code.text.clone(),
            grid: self.grid,
            block: self.block,
            allocations: accessed,
            global: checks.global,
        })))
    }

    pub(crate) fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    /// Warps of a block.
    pub(crate) fn warps(&self) -> usize {
        (self.threads() as usize).div_ceil(LANES)
    }

    /// Warps of a cluster.
    fn cluster_warps(&self) -> usize {
        self.warps() * self.cluster.blocks()
    }

    /// The cluster that is number `place` to start. Blocks that may wait for each other start in
    /// the order of their indices, as those do on a GPU that do not fit there all at once.
    pub(crate) fn cluster_at(&self, place: u64, clusters: u64) -> u64 {
        let schedule = if self.code.communicates { Schedule::InOrder } else { self.schedule };
        schedule::block_at(schedule, place, clusters)
    }

    /// Bytes from one block's shared memory to the next one's.
    fn shared_stride(&self) -> u32 {
        match self.cluster.blocks() {
            1 => self.shared_bytes,
            _ => self.shared_bytes.next_multiple_of(SHARED_ALIGN),
        }
    }

    /// Bytes of local memory of a thread. What recursion, or calls through pointers, take is in
    /// addition to what the calls take whose depth is known.
    fn local_size(&self) -> u32 {
        let known = self.code.local_bytes;
        match self.code.calls_deeper {
            true => self.stack_bytes.min(MAX_LOCAL - known).next_multiple_of(FRAME_ALIGN) + known,
            false => known,
        }
    }

    /// Bytes of local memory of a cluster.
    fn local_bytes(&self) -> usize {
        self.local_size() as usize * LANES * self.cluster_warps()
    }

    /// Bytes of host memory that one cluster's threads need.
    pub(crate) fn state_bytes(&self) -> u64 {
        (self.code.register_bytes * self.cluster_warps() + self.local_bytes()) as u64
    }
}

/// Runs clusters of one launch, one at a time, on one host thread. The warps of a cluster are
/// numbered through, block by block in the order of their ranks.
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
    /// Threads that have arrived at each barrier of each block without waiting.
    pub(super) arrivals: Vec<u32>,
    /// The barrier of the cluster.
    pub(super) cluster: ClusterBarrier,
    /// The number of the cluster.
    number: u64,
    /// Completed phases of mbarriers when waits for them were last tried again.
    pub(super) completions: u64,
    /// Changes of mbarriers when the block last could not go on, and how often
    /// in a row that has been.
    pub(super) changes: u64,
    pub(super) expiries: u32,
    pub(super) executed: Executed,
    /// `executed`, and changes of mbarriers, when waits last ended or were looked at.
    pub(super) rested: (u64, u64),
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
        let (warps, blocks) = (launch.cluster_warps(), launch.cluster.blocks());
        let shared_bytes = launch.shared_stride() * blocks as u32;
        // An odd number of lines, so that warps do not share cache sets.
        let stride = (code.register_bytes.div_ceil(128) | 1) * 128;
        let cx = Cx {
            regs: std::ptr::null_mut(),
            preds: std::ptr::null_mut(),
            mask: FULL,
            party: FULL,
            shared: std::ptr::null_mut(),
            shared_size: launch.shared_bytes,
            cluster_shared: std::ptr::null_mut(),
            shared_stride: launch.shared_stride(),
            rank: 0,
            blocks: blocks as u32,
            exited: 0,
            local: std::ptr::null_mut(),
            local_size: launch.local_size(),
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
            barriers: Barriers { stride: launch.shared_stride(), ..Barriers::default() },
            order: Order::new(
                code.bulk,
                (warps, launch.warps()),
                (shared_bytes, launch.shared_stride()),
            ),
            checker: launch.checks.as_ref().map(|checks| {
                let shape = (launch.cluster, launch.block);
                let sizes = (launch.shared_stride(), launch.local_size());
                Box::new(Checker::new(checks, &code.facts, launch.snapshot, shape, sizes))
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
                cluster: launch.cluster,
                warps: launch.warps() as u32,
                shared_bytes: launch.shared_bytes - launch.padding,
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
            shared: Lines::new(shared_bytes as usize)?,
            local: Lines::new(launch.local_bytes())?,
            arrivals: vec![0; ALL_BARRIERS as usize * blocks],
            cluster: ClusterBarrier::new(warps),
            number: 0,
            completions: 0,
            changes: 0,
            expiries: 0,
            executed: Executed::default(),
            rested: (0, 0),
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
        let own = self.launch.warps();
        let (rank, inner) = (warp / own, warp % own);
        let cx = &mut self.cx;
        cx.warp = warp;
        cx.lanes = FULL >> (LANES - (self.launch.threads() as usize - inner * LANES).min(LANES));
        cx.rank = rank as u32;
        cx.shape.index = self.launch.cluster.block(self.number, rank);
        cx.cluster_shared = self.shared.start();
        // SAFETY: each offset is inside its buffer, which has room for all warps.
        unsafe {
            cx.regs = self.registers.start().add(warp * self.stride);
            cx.preds = self.predicates.as_mut_ptr().add(warp * self.launch.code.predicates);
            let local = warp * LANES * cx.local_size as usize;
            cx.local = self.local.start().add(local);
            cx.shared = cx.cluster_shared.add(rank * cx.shared_stride as usize);
        }
    }

    /// The warps of the block with a rank.
    pub(super) fn warps_of(&self, rank: usize) -> std::ops::Range<usize> {
        let warps = self.launch.warps();
        rank * warps..(rank + 1) * warps
    }

    /// Blocks of the cluster.
    pub(super) fn blocks(&self) -> usize {
        self.launch.cluster.blocks()
    }

    /// Runs cluster number `cluster`, which is number `place` to start.
    pub(crate) fn run(&mut self, cluster: u64, place: u64) -> Result<(), BlockError> {
        self.start(cluster);
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
                if self.warps[warp].live == 0 && self.blocks() > 1 {
                    self.note_exit(warp)?;
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
                self.end()?;
                return self.check_budget(0);
            }
            if self.stands_still(progress)
                && !self.complete_barriers()?
                && !self.complete_cluster_barrier()?
                && !self.give_way(progress)?
                && !progress
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

    /// All threads have exited: completes what is in flight, and checks what can only be seen then.
    fn end(&mut self) -> Result<(), BlockError> {
        for warp in 0..self.warps.len() {
            if !self.cx.stores[warp].is_empty() {
                let completed = unwaited::complete(&mut self.cx, warp);
                completed.map_err(|fault| BlockError::Fault { warp: warp as u32, fault })?;
            }
        }
        let late = self.cx.checker.as_mut().map(|checker| checker.finish()).unwrap_or_default();
        for (warp, fault) in late {
            let taken = self.cx.recorder.take(self.cx.place, warp, fault);
            taken.map_err(|fault| BlockError::Fault { warp, fault })?;
        }
        let checker = self.cx.checker.as_ref().filter(|_| self.cx.checks.sync);
        match checker
            .and_then(|checker| warpgroup_divergence(&checker.warpgroup_lines, self.launch.warps()))
        {
            None => Ok(()),
            Some((warp, line)) => {
                let kind =
                    FaultKind::WarpgroupDivergence { warp: (warp % self.launch.warps()) as u32 };
                let (warp, fault) = (warp as u32, WarpFault { lane: 0, line, kind });
                let taken = self.cx.recorder.take(self.cx.place, warp, fault);
                taken.map_err(|fault| BlockError::Fault { warp, fault })
            }
        }
    }

    fn start(&mut self, cluster: u64) {
        let launch = self.launch;
        self.number = cluster;
        // What a block before has left is not for this one to see: shared and
        // local memory start as NaN.
        self.shared.fill(0xff);
        self.fill_local();
        self.arrivals.fill(0);
        self.cluster.clear();
        self.cx.exited = 0;
        self.cx.barriers.clear();
        self.cx.order.clear();
        self.cx.printed.clear();
        self.expiries = 0;
        self.begun = self.executed.warp;
        self.rested = (self.executed.warp, self.cx.barriers.changes);
        if let Schedule::Random(seed) = launch.schedule {
            self.random = Random::new(seed, cluster);
            self.turns.sort_unstable();
        }
        if let Some(checker) = &mut self.cx.checker {
            checker.clear(cluster);
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
}
