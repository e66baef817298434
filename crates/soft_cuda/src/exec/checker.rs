//! The checks of a cluster's accesses, and what the instructions that order them tell.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::access::{AccessKind, Conflict, EarlierAccess, Part, Site};
use super::clock::Clock;
use super::facts::Facts;
use super::global::GlobalShadow;
use super::knowledge::Knowledge;
use super::loads::Loaded;
use super::local::LocalShadow;
use super::machine::{ClusterShape, FULL, LANES, LOCAL_BASE, SHARED_BASE, index_in};
use super::packed::load_time;
use super::prior::Prior;
use super::read_log::ReadLog;
use super::recorder::WarpFault;
use super::remote::RemoteAccesses;
use super::shadow::Shadow;
use super::writes::Writer;
use crate::checks::Checks;
use crate::fault::{self, AddressSpace, FaultKind};
use crate::memory::Snapshot;

/// What writers of one atomic variable released, by cluster.
type Released = HashMap<u64, (Clock, bool)>;

/// What all blocks of a launch share.
pub(crate) struct LaunchChecks {
    pub checks: Checks,
    pub global: GlobalShadow,
    /// The launch in front, if this one may begin before that has ended.
    pub front: Option<Arc<Prior>>,
    /// Work in other streams that this launch does not come after.
    pub beside: Vec<Arc<Prior>>,
    /// By allocation: whether these accessed it.
    pub is_beside: Vec<bool>,
    /// By address in device memory.
    released: Mutex<HashMap<u64, Arc<Released>>>,
}

impl LaunchChecks {
    pub(crate) fn new(
        checks: Checks,
        facts: &Facts,
        snapshot: &Snapshot,
        front: Option<Arc<Prior>>,
        beside: Vec<Arc<Prior>>,
    ) -> LaunchChecks {
        let global = GlobalShadow::new(snapshot.all().len(), facts.granule.global());
        let is_beside = snapshot.all().iter().map(|allocation| {
            beside.iter().any(|prior| prior.touches((allocation.base, allocation.size)))
        });
        let is_beside = is_beside.collect();
        LaunchChecks { checks, global, front, beside, is_beside, released: Mutex::default() }
    }
}

/// How many instructions are remembered with the allocation that they accessed.
pub(super) const RECENT: usize = 64;

/// The checks of one cluster.
pub(crate) struct Checker<'k> {
    pub launch: &'k LaunchChecks,
    pub known: Knowledge,
    pub facts: &'k Facts,
    /// Accesses are noted, and nothing is found: what is wrong with them is known.
    pub quiet: bool,
    pub(super) snapshot: &'k Snapshot,
    grid: [u32; 3],
    block: [u32; 3],
    pub(super) shared: Shadow,
    /// Bytes from one block's shared memory to the next one's.
    pub(super) stride: u32,
    /// Accesses of the shared memory of other blocks.
    pub remote: RemoteAccesses,
    /// What writers of atomic variables in this cluster released, by place: whether it is in shared
    /// memory, and the offset there or else the address.
    released: HashMap<(bool, u64), Clock>,
    /// By mbarrier: the thread whose copy it counted last, and who initialised it, and when.
    copied_by: Vec<usize>,
    initialised: Vec<(usize, u32)>,
    pub local: LocalShadow,
    /// By warp: the lines of what all warps of a warpgroup execute.
    pub warpgroup_lines: Vec<Vec<u32>>,
    /// Loads from device memory that are not noted otherwise, and those of them that turned out to
    /// be races, by warp.
    pub(super) loads: ReadLog,
    pub(super) late: Vec<(u32, WarpFault)>,
    /// Allocations that were accessed last, by lines of the PTX.
    pub(super) recent: [usize; RECENT],
}

impl<'k> Checker<'k> {
    pub(crate) fn new(
        launch: &'k LaunchChecks,
        facts: &'k Facts,
        snapshot: &'k Snapshot,
        (cluster, block): (ClusterShape, [u32; 3]),
        (stride, local_size): (u32, u32),
    ) -> Checker<'k> {
        let threads = block.iter().product::<u32>() as usize;
        let warps = threads.div_ceil(LANES) * cluster.blocks();
        let gaps = facts.gaps();
        Checker {
            launch,
            known: Knowledge::new(cluster, threads, facts.copies),
            facts,
            quiet: false,
            snapshot,
            grid: cluster.grid,
            block,
            shared: Shadow::new((stride, cluster.blocks()), facts.granule.shared, warps, gaps),
            stride,
            remote: RemoteAccesses::default(),
            released: HashMap::new(),
            copied_by: Vec::new(),
            initialised: Vec::new(),
            local: LocalShadow::new(warps, local_size),
            warpgroup_lines: vec![Vec::new(); warps],
            loads: ReadLog::new(warps, snapshot.all().len()),
            late: Vec::new(),
            recent: [0; RECENT],
        }
    }

    /// Forgets everything, for a new cluster.
    pub(crate) fn clear(&mut self, cluster: u64) {
        self.known.clear(cluster);
        self.remote.clear();
        self.shared.clear();
        self.released.clear();
        self.copied_by.clear();
        self.initialised.clear();
        self.local.clear();
        self.loads.clear();
        self.late.clear();
        self.warpgroup_lines.iter_mut().for_each(Vec::clear);
    }

    #[inline(always)]
    pub(super) fn checks(&self) -> Checks {
        if self.quiet { Checks::NONE } else { self.launch.checks }
    }

    /// Checks and notes weak loads from the cluster's shared memory at `offsets`.
    #[inline(always)]
    pub(crate) fn shared_loads(
        &mut self,
        (warp, mask): (usize, u32),
        (line, bytes): (u32, u32),
        offsets: &[u32; LANES],
    ) -> Result<(), (u32, FaultKind)> {
        let checks = self.checks();
        if mask == FULL
            && checks.accesses()
            && self.shared.list(&self.known, checks, warp, Loaded::one(line, bytes), offsets)
        {
            return Ok(());
        }
        self.shared_loads_one_by_one((warp, mask), (line, bytes), AccessKind::Load, offsets)
    }

    /// Notes weak loads by all lanes of a warp from the cluster's shared memory, at constant
    /// distances from `offsets`: their number among the operations of the kernel, and what they
    /// are. Returns `false`, and has noted nothing, if they have to be checked one by one.
    #[inline(always)]
    pub(crate) fn shared_loads_together(
        &mut self,
        warp: usize,
        (number, parts): (u32, impl Iterator<Item = Part>),
        offsets: &[u32; LANES],
    ) -> bool {
        let checks = self.checks();
        let loaded = Loaded::many(number, parts);
        checks.accesses() && self.shared.list(&self.known, checks, warp, loaded, offsets)
    }

    #[inline(never)]
    fn shared_loads_one_by_one(
        &mut self,
        (warp, mask): (usize, u32),
        (line, bytes): (u32, u32),
        kind: AccessKind,
        offsets: &[u32; LANES],
    ) -> Result<(), (u32, FaultKind)> {
        let site = Site { line, kind, bytes };
        let result = self.shared.load(&self.known, self.checks(), (warp, mask), site, offsets);
        result.map_err(|(lane, conflict)| {
            (lane as u32, self.shared_fault(conflict, site, offsets[lane]))
        })
    }

    /// Checks and notes accesses of shared memory at `offsets`, of any kind. `same` says whether
    /// two lanes store the same value.
    #[inline(always)]
    pub(crate) fn shared(
        &mut self,
        (warp, mask): (usize, u32),
        site: Site,
        offsets: &[u32; LANES],
        same: impl Fn(usize, usize) -> bool,
    ) -> Result<(), (u32, FaultKind)> {
        if !site.kind.writes() {
            let Site { line, kind, bytes } = site;
            return self.shared_loads_one_by_one((warp, mask), (line, bytes), kind, offsets);
        }
        let (known, checks) = (&self.known, self.checks());
        let result = self.shared.store(known, checks, (warp, mask), site, offsets, same);
        result.map_err(|(lane, conflict)| {
            (lane as u32, self.shared_fault(conflict, site, offsets[lane]))
        })
    }

    #[cold]
    pub(super) fn shared_fault(
        &self,
        mut conflict: Conflict,
        site: Site,
        offset: u32,
    ) -> FaultKind {
        if let Conflict::Race(earlier) | Conflict::ReadOnlyCache(earlier) = &mut conflict {
            let thread = self.thread_of(earlier.agent);
            (earlier.block, earlier.agent) = self.known.place_of(thread);
        }
        let offset = offset.checked_rem(self.stride).unwrap_or(offset);
        let address = u64::from(SHARED_BASE + offset);
        self.fault(conflict, site, AddressSpace::Shared, address, self.facts.name_shared(offset))
    }

    pub(super) fn fault(
        &self,
        conflict: Conflict,
        site: Site,
        space: AddressSpace,
        address: u64,
        place: String,
    ) -> FaultKind {
        let (access, bytes) = (site.kind.access(), site.bytes);
        match conflict {
            Conflict::Race(earlier) => {
                let earlier = Box::new(self.name(earlier));
                FaultKind::DataRace { space, address, place, access, earlier }
            }
            Conflict::ReadOnlyCache(earlier) => {
                let earlier = Box::new(self.name(earlier));
                FaultKind::ReadOnlyCache { address, place, access, earlier }
            }
            Conflict::Uninitialised => FaultKind::Uninitialised { space, address, bytes, place },
            Conflict::NoVariable => FaultKind::NoVariable { address, bytes, access, place },
        }
    }

    fn name(&self, earlier: EarlierAccess) -> fault::Earlier {
        let EarlierAccess { block, agent: thread, line, access } = earlier;
        fault::Earlier {
            kernel: None,
            is_beside: false,
            access,
            line,
            instruction: String::new(),
            source: None,
            block: index_in(block, self.grid),
            thread: index_in(thread as u64, self.block),
        }
    }

    /// The thread that an agent of the cluster is, or that had it copy.
    fn thread_of(&self, agent: usize) -> usize {
        let threads = self.known.agents.threads;
        match agent.checked_sub(self.known.agents.mbarrier(0)) {
            Some(number) => self.copied_by.get(number).copied().unwrap_or(0),
            None => agent % threads,
        }
    }

    /// Checks and notes an access of local memory by one lane.
    pub(crate) fn access_local(
        &mut self,
        (warp, lane): (usize, usize),
        site: Site,
        address: u64,
    ) -> Result<(), FaultKind> {
        let offset = address.wrapping_sub(LOCAL_BASE.into()) as usize;
        if !self.launch.checks.memory {
            return Ok(());
        }
        // Out of bounds is the access's own fault.
        let Some(bytes) = self.local.bytes((warp, lane), offset, site.bytes) else {
            return Ok(());
        };
        // A value with padding is copied as a whole, eight bytes at a time.
        let is_read = site.kind.reads() && !self.quiet;
        if is_read && bytes.chunks(8).any(|bytes| !bytes.contains(&true)) {
            let place = format!("byte {offset} of the thread's local memory");
            let space = AddressSpace::Local;
            return Err(self.fault(Conflict::Uninitialised, site, space, address, place));
        }
        if site.kind.writes() {
            bytes.fill(true);
        }
        Ok(())
    }

    /// A lane starts a `cp.async` of its group number `group` to shared memory.
    pub(crate) fn copy_async(
        &mut self,
        (warp, lane): (usize, usize),
        line: u32,
        (offset, bytes): (u32, u32),
        group: u64,
    ) -> Result<(), FaultKind> {
        let agent = self.known.agents.copies_of(warp * LANES + lane);
        let site = Site { line, kind: AccessKind::Copy, bytes };
        self.copy(Writer { warp, lane, agent, time: group as u32 + 1 }, site, offset)
    }

    /// A lane starts a bulk copy, or a reduction, to shared memory, which is complete with phase
    /// `phase` of mbarrier `index`. `remote` is the rank of the block it goes to, and the address
    /// there, if that is another one.
    pub(crate) fn copy_bulk(
        &mut self,
        (warp, lane): (usize, usize),
        site: Site,
        (offset, remote): (u32, Option<(u32, u32)>),
        (index, phase): (usize, u32),
    ) -> Result<(), FaultKind> {
        let agent = self.known.agents.mbarrier(index);
        self.known.load = load_time(index, phase);
        self.proxied((warp, lane), site, offset, true)?;
        if let Some(place) = remote {
            self.remote.note(place, (agent, phase), (warp, lane), (site.line, site.kind));
        }
        if self.copied_by.len() <= index {
            self.copied_by.resize(index + 1, 0);
        }
        self.begin_copies();
        self.copy(Writer { warp, lane, agent, time: phase }, site, offset)?;
        self.copied_by[index] = warp * LANES + lane;
        Ok(())
    }

    /// A warp issues copies: none of its reads is noted until the last one.
    pub(crate) fn begin_copies(&mut self) {
        self.shared.begin_copies();
    }

    fn copy(&mut self, writer: Writer, site: Site, offset: u32) -> Result<(), FaultKind> {
        let result = self.shared.copy(&self.known, self.checks(), writer, site, offset);
        result.map_err(|conflict| self.shared_fault(conflict, site, offset))
    }

    /// Mbarrier number `number` was initialised by a lane.
    pub(crate) fn initialised(&mut self, (warp, lane): (usize, usize), number: usize) {
        let by = (warp * LANES + lane, self.known.now(warp));
        match self.initialised.get_mut(number) {
            Some(old) => *old = by,
            None => self.initialised.push(by),
        }
    }

    /// The thread that initialised mbarrier `number`, if a lane does not come after that.
    pub(crate) fn not_after_init(
        &self,
        (warp, lane): (usize, usize),
        number: usize,
    ) -> Option<[u32; 3]> {
        let &(thread, time) = self.initialised.get(number)?;
        let known = self.known.knows(warp, lane, thread, time);
        let thread = || self.known.place_of(thread).1;
        (!known && self.checks().races).then(|| index_in(thread() as u64, self.block))
    }

    /// A lane accesses shared memory of the block with a rank, at an address there, where its own
    /// block has rank `own`.
    pub(crate) fn note_remote(
        &mut self,
        own: u32,
        (rank, address): (u32, u32),
        (warp, lane): (usize, usize),
        site: Site,
    ) {
        if rank != own {
            let by = (warp * LANES + lane, self.known.now(warp));
            self.remote.note((rank, address), by, (warp, lane), (site.line, site.kind));
        }
    }

    /// A lane is about to write the atomic variable at an address, of shared memory or else of
    /// device memory: what it knew at its last fence goes with that. A store, which is no `update`,
    /// ends what was released there before for the cluster; for other clusters, which run at the
    /// same time and may load it in another order than they come here, it does not.
    pub(crate) fn publish(
        &mut self,
        (warp, lane): (usize, usize),
        update: bool,
        place: (bool, u64),
    ) {
        if !update {
            self.released.remove(&place);
        }
        let (shared, address) = place;
        for fenced in self.known.released_by(warp, lane) {
            self.released.entry(place).or_default().join(&fenced.clock);
            if shared {
                continue;
            }
            let mut all = self.launch.released.lock().unwrap_or_else(PoisonError::into_inner);
            let here = Arc::make_mut(all.entry(address).or_default());
            let (clock, wide) = here.entry(self.known.cluster).or_default();
            clock.join(&fenced.clock);
            *wide |= fenced.wide;
        }
    }

    /// A lane has read the atomic variable at an address, as in [`publish`](Checker::publish).
    /// `acquires` says whether it acquires that, and if so, whether from blocks of the whole grid.
    pub(crate) fn observe(
        &mut self,
        (warp, lane): (usize, usize),
        acquires: Option<bool>,
        place: (bool, u64),
    ) {
        let (shared, address) = place;
        let found = match shared {
            true => None,
            false => {
                let all = self.launch.released.lock().unwrap_or_else(PoisonError::into_inner);
                all.get(&address).cloned()
            }
        };
        let here = self.released.get(&place);
        let observe = |known: &mut Knowledge| {
            let own = known.cluster;
            if let Some(clock) = here {
                known.observe(warp, lane, own, clock);
            }
            for (&cluster, (clock, wide)) in found.iter().flat_map(|released| released.iter()) {
                if *wide && cluster != own {
                    known.observe(warp, lane, cluster, clock);
                }
            }
        };
        match acquires {
            None => observe(&mut self.known),
            Some(wide) => self.known.acquire_observed((warp, lane), wide, observe),
        }
    }
}
