//! What each thread of a cluster knows of what the others did: the happens-before order. Most
//! clusters are one block.
//!
//! The lanes of a warp have one time, which advances whenever one of them releases what it did.
//! What all lanes of a warp know is kept once; what a lane knows beyond that, apart.

use std::cell::Cell;
use std::sync::Arc;

use super::access::Side;
use super::agents::Agents;
use super::clock::Clock;
use super::machine::{BARRIERS, ClusterShape, LANES, bits};

/// A fence that a thread executed: what it knew then.
#[derive(Debug, Clone)]
pub(crate) struct Fenced {
    pub clock: Arc<Clock>,
    /// Whether it counts for other blocks.
    pub wide: bool,
}

/// What all lanes of a warp know. Warps that have passed a barrier share it.
#[derive(Debug, Clone, Default)]
struct Common {
    clock: Clock,
    /// By warp: what is known of all of its lanes at least.
    floors: Vec<u32>,
    /// The least of `floors`, or 0 where copies have times of their own.
    reach: u32,
    /// Tells it apart from all others; 0 if it is empty.
    number: u64,
}

/// What all who arrived at an mbarrier knew.
#[derive(Debug, Default)]
pub(crate) struct Released {
    pub clock: Clock,
    /// The [`Common`] that it took over last.
    of: u64,
}

/// What the lanes of one warp know.
#[derive(Debug, Default)]
struct WarpKnowledge {
    /// Lanes that the warp was started with.
    lanes: u32,
    /// Agents of the cluster that are threads.
    threads: usize,
    now: u32,
    /// How often it has waited for products, and 1.
    products: u32,
    /// How many bulk copies to device memory it has executed.
    stores: u32,
    common: Arc<Common>,
    extra: [Option<Box<Clock>>; LANES],
    /// Lanes that have `extra`.
    beyond: u32,
    fences: [Option<Fenced>; LANES],
    /// What a write to an atomic variable releases that is about to come, and nothing behind it.
    releases: [Option<Fenced>; LANES],
    /// What lanes have read from atomic variables, which a fence makes known.
    pending: [Option<Box<Clock>>; LANES],
    /// The last of each lane's own groups of copies that it has waited for.
    waited: [u32; LANES],
}

/// What each thread of a cluster knows.
#[derive(Debug)]
pub(crate) struct Knowledge {
    warps: Vec<WarpKnowledge>,
    /// What threads that passed `bar.arrive` knew, by the block's rank and the barrier.
    arrivals: Vec<Clock>,
    shape: ClusterShape,
    /// Threads of a block, and its warps.
    block_threads: usize,
    block_warps: usize,
    /// The number of the cluster, and the indices of its blocks.
    pub cluster: u64,
    blocks: Vec<u64>,
    pub agents: Agents,
    /// The [time](super::packed::load_time) of the bulk copy to shared memory that is checked.
    pub load: u32,
    /// Whether any thread of the cluster has executed a fence.
    fenced: bool,
    /// Whether there are asynchronous copies to shared memory.
    copies: bool,
    /// How many [`Common`] there have been.
    commons: Cell<u64>,
}

impl Knowledge {
    /// For blocks of so many threads.
    pub(crate) fn new(shape: ClusterShape, block_threads: usize, copies: bool) -> Knowledge {
        let (blocks, block_warps) = (shape.blocks(), block_threads.div_ceil(LANES));
        let warps = block_warps * blocks;
        Knowledge {
            copies,
            warps: (0..warps).map(|_| WarpKnowledge::default()).collect(),
            arrivals: vec![Clock::default(); BARRIERS as usize * blocks],
            shape,
            block_threads,
            block_warps,
            cluster: 0,
            blocks: vec![0; blocks],
            agents: Agents { threads: warps * LANES },
            load: 0,
            fenced: false,
            commons: Cell::new(0),
        }
    }

    /// Forgets everything, for a new cluster.
    pub(crate) fn clear(&mut self, cluster: u64) {
        self.cluster = cluster;
        for (rank, block) in self.blocks.iter_mut().enumerate() {
            *block = self.shape.block(cluster, rank);
        }
        self.fenced = false;
        self.arrivals.fill(Clock::default());
        // Where there is one block, its last warp may have fewer lanes.
        let threads = if self.blocks.len() == 1 { self.block_threads } else { self.agents.threads };
        let common = Arc::new(self.common_of(threads, Clock::default()));
        for (w, warp) in self.warps.iter_mut().enumerate() {
            let lanes = (self.block_threads - w % self.block_warps * LANES).min(LANES);
            warp.lanes = u32::MAX >> (LANES - lanes);
            warp.threads = threads;
            warp.now = 1;
            warp.products = 1;
            warp.stores = 0;
            warp.common = common.clone();
            warp.extra = Default::default();
            warp.beyond = 0;
            warp.fences = Default::default();
            warp.releases = Default::default();
            warp.pending = Default::default();
            warp.waited = [0; LANES];
        }
    }

    /// The index of the block of a warp, and the warp's first thread there.
    #[inline(always)]
    pub(crate) fn place(&self, warp: usize) -> (u64, usize) {
        match warp.checked_sub(self.block_warps) {
            None => (self.blocks[0], warp * LANES),
            Some(_) => (self.blocks[warp / self.block_warps], warp % self.block_warps * LANES),
        }
    }

    /// The index of the block of an agent that is a thread, and the thread there.
    pub(crate) fn place_of(&self, agent: usize) -> (u64, usize) {
        let (block, first) = self.place(agent / LANES);
        (block, first + agent % LANES)
    }

    /// The number of the cluster of a block, and the agent that stands for a thread there.
    pub(crate) fn agent(&self, block: u64, thread: usize) -> (u64, usize) {
        if self.blocks.len() == 1 {
            return (block, thread);
        }
        let (cluster, rank) = self.shape.of_block(block);
        (cluster, rank * self.block_warps * LANES + thread)
    }

    /// A warp executes a bulk copy to device memory.
    pub(crate) fn begin_store(&mut self, warp: usize) {
        self.warps[warp].stores += 1;
    }

    /// The number of that, from 1.
    pub(crate) fn stores_now(&self, warp: usize) -> u32 {
        self.warps[warp].stores
    }

    /// `lane` has waited until its bulk copies to device memory up to `number` have read what they
    /// copy.
    pub(crate) fn wait_stores(&mut self, warp: usize, lane: usize, number: u32) {
        let mut clock = Clock::default();
        clock.set(self.agents.stores_of(warp * LANES + lane), number);
        self.acquire(warp, 1 << lane, &clock);
    }

    /// The time of the [products](Agents::products_of) of a warp.
    pub(crate) fn products_now(&self, warp: usize) -> u32 {
        self.warps[warp].products
    }

    /// The products are complete that the warps of a warpgroup have waited for. All of them know,
    /// and know nothing else of each other.
    pub(crate) fn complete_products(&mut self, warps: &[usize]) {
        let mut clock = Clock::default();
        for &warp in warps {
            clock.set(self.agents.products_of(warp), self.products_now(warp));
            self.warps[warp].products += 1;
        }
        for &warp in warps {
            self.acquire(warp, self.warps[warp].lanes, &clock);
        }
    }

    #[inline(always)]
    pub(crate) fn now(&self, warp: usize) -> u32 {
        self.warps[warp].now
    }

    /// What all lanes of `warp` know of `agent`.
    #[inline(always)]
    pub(crate) fn common(&self, warp: usize, agent: usize) -> u32 {
        self.warps[warp].common.clock.at(agent)
    }

    /// What `lane` of `warp` knows of `agent`, which is neither itself nor its copies.
    #[inline(always)]
    pub(crate) fn latest(&self, warp: usize, lane: usize, agent: usize) -> u32 {
        let extra = self.warps[warp].extra[lane].as_ref().map_or(0, |extra| extra.at(agent));
        self.common(warp, agent).max(extra)
    }

    /// Up to which time all lanes of `warp` know everything that was done by then, whoever did it.
    #[inline(always)]
    pub(crate) fn reach(&self, warp: usize) -> u32 {
        self.warps[warp].common.reach
    }

    /// What all lanes of `warp` know of all lanes of `other`, at least.
    #[inline(always)]
    pub(crate) fn floor(&self, warp: usize, other: usize) -> u32 {
        self.floors(warp)[other]
    }

    /// [`floor`](Knowledge::floor) of each warp.
    #[inline(always)]
    pub(crate) fn floors(&self, warp: usize) -> &[u32] {
        &self.warps[warp].common.floors
    }

    /// As [`floor`](Knowledge::floor), for a warp of another cluster.
    pub(crate) fn foreign_floor(&self, warp: usize, cluster: u64, other: usize) -> u32 {
        self.warps[warp].common.clock.foreign_least(cluster, other * LANES..(other + 1) * LANES)
    }

    /// Whether `lane` of `warp` comes after `time` in the life of `agent`.
    pub(crate) fn knows(&self, warp: usize, lane: usize, agent: usize, time: u32) -> bool {
        let mine = &self.warps[warp];
        let thread = warp * LANES + lane;
        agent == thread
            || mine.common.clock.at(agent) >= time
            || mine.extra[lane].as_ref().is_some_and(|extra| extra.at(agent) >= time)
            || agent == self.agents.copies_of(thread) && mine.waited[lane] >= time
    }

    /// As [`knows`](Knowledge::knows), for an agent of another cluster.
    pub(crate) fn knows_foreign(
        &self,
        (warp, lane): (usize, usize),
        cluster: u64,
        agent: usize,
        time: u32,
    ) -> bool {
        let mine = &self.warps[warp];
        mine.common.clock.foreign_at(cluster, agent) >= time
            || mine.extra[lane].as_ref().is_some_and(|e| e.foreign_at(cluster, agent) >= time)
    }

    /// Whether an asynchronous access of a block's shared memory by `lane` of `warp` sees what
    /// `agent` did until `time`.
    pub(crate) fn sees(
        &self,
        (warp, lane): (usize, usize),
        block: usize,
        agent: usize,
        time: u32,
    ) -> bool {
        let mine = &self.warps[warp];
        let extra = mine.extra[lane].as_ref();
        mine.common.clock.proxied_at(block, agent) >= time
            || extra.is_some_and(|extra| extra.proxied_at(block, agent) >= time)
    }

    /// `lanes` of `warp` execute a `fence.proxy.async` of the shared memory of all blocks, or of
    /// their own alone.
    pub(crate) fn fence_proxy(&mut self, warp: usize, lanes: u32, own: bool) {
        let mut clock = Clock::default();
        self.release(warp, lanes, &mut clock);
        let block = warp / self.block_warps;
        let blocks = if own { block..block + 1 } else { 0..self.shape.blocks() };
        self.acquire(warp, lanes, &clock.to_proxied(blocks));
    }

    /// What all lanes of a warp know that know `clock`, in a block of `threads` threads.
    fn common_of(&self, threads: usize, clock: Clock) -> Common {
        let floor = |warp: usize| clock.least(warp * LANES..((warp + 1) * LANES).min(threads));
        let floors: Vec<u32> = (0..self.warps.len()).map(floor).collect();
        let reach = if self.copies { 0 } else { floors.iter().min().copied().unwrap_or(0) };
        self.commons.set(self.commons.get() + 1);
        Common { clock, floors, reach, number: self.commons.get() }
    }

    /// Adds what `lanes` of `warp` know to `into`; does not advance their time. `has` is the number
    /// of a [`Common`] that it has already.
    fn give(&self, warp: usize, lanes: u32, into: &mut Clock, has: u64) {
        let mine = &self.warps[warp];
        if mine.common.number != has {
            into.join(&mine.common.clock);
        }
        for lane in bits(lanes & mine.beyond) {
            if let Some(extra) = &mine.extra[lane] {
                into.join(extra);
            }
        }
        for lane in bits(lanes) {
            let thread = warp * LANES + lane;
            into.set(thread, mine.now);
            if mine.waited[lane] != 0 {
                into.set(self.agents.copies_of(thread), mine.waited[lane]);
            }
        }
    }

    /// Adds what `lanes` of `warp` know to `into`, for others to [`acquire`](Knowledge::acquire).
    pub(crate) fn release(&mut self, warp: usize, lanes: u32, into: &mut Clock) {
        self.give(warp, lanes, into, 0);
        self.warps[warp].now += 1;
    }

    /// As [`release`](Knowledge::release), to those who wait for an mbarrier.
    pub(crate) fn arrive_at(&mut self, warp: usize, lanes: u32, into: &mut Released) {
        self.give(warp, lanes, &mut into.clock, into.of);
        into.of = self.warps[warp].common.number;
        self.warps[warp].now += 1;
    }

    pub(crate) fn acquire(&mut self, warp: usize, lanes: u32, from: &Clock) {
        let mine = &mut self.warps[warp];
        if lanes == mine.lanes {
            let mut common = std::mem::take(&mut mine.common);
            let threads = mine.threads;
            let mut clock = match Arc::get_mut(&mut common) {
                Some(common) => std::mem::take(&mut common.clock),
                None => common.clock.clone(),
            };
            clock.join(from);
            let common = Arc::new(self.common_of(threads, clock));
            self.warps[warp].common = common;
            return;
        }
        for lane in bits(lanes) {
            mine.extra[lane].get_or_insert_default().join(from);
        }
        mine.beyond |= lanes;
    }

    /// `lanes` of `warp` know just what `all` says, which has what they knew before.
    fn set(&mut self, warp: usize, lanes: u32, whole: bool, all: &Arc<Common>) {
        let mine = &mut self.warps[warp];
        if !whole && lanes != mine.lanes {
            return self.acquire(warp, lanes, &all.clock);
        }
        for lane in bits(mine.beyond) {
            mine.extra[lane] = None;
        }
        mine.beyond = 0;
        mine.common = all.clone();
    }

    /// `lanes` of `warp` pass a `bar.warp.sync` together.
    pub(crate) fn sync_warp(&mut self, warp: usize, lanes: u32) {
        let mut all = Clock::default();
        self.release(warp, lanes, &mut all);
        let all = Arc::new(self.common_of(self.warps[warp].threads, all));
        self.set(warp, lanes, false, &all);
        self.share_fences(&[(warp, lanes, false)]);
    }

    /// Fences are cumulative: what a thread wrote before its own comes before what another one
    /// writes after a barrier that both passed.
    fn share_fences(&mut self, here: &[(usize, u32, bool)]) {
        if !self.fenced {
            return;
        }
        let lanes = || here.iter().flat_map(|&(w, lanes, _)| bits(lanes).map(move |l| (w, l)));
        let mut all: Option<Fenced> = None;
        for fenced in lanes().filter_map(|(warp, lane)| self.fenced(warp, lane)) {
            match &mut all {
                Some(all) => {
                    Arc::make_mut(&mut all.clock).join(&fenced.clock);
                    all.wide &= fenced.wide;
                }
                None => all = Some(fenced.clone()),
            }
        }
        if let Some(all) = all {
            for (warp, lane) in lanes() {
                self.warps[warp].fences[lane] = Some(all.clone());
            }
        }
    }

    /// Lanes of warps leave barrier `id` of the block with a rank together. `whole` says of each
    /// whether they are all that have not exited, and `all` whether nobody else in the block is
    /// left.
    pub(crate) fn sync(
        &mut self,
        here: &[(usize, u32, bool)],
        (rank, id): (usize, u32),
        all: bool,
    ) {
        let mut clock = std::mem::take(&mut self.arrivals[rank * BARRIERS as usize + id as usize]);
        if all {
            // What threads did that have exited comes before the barrier as well.
            let warps = rank * self.block_warps..(rank + 1) * self.block_warps;
            for warp in warps.clone() {
                let has = if warp == warps.start { 0 } else { self.warps[warp - 1].common.number };
                self.give(warp, self.warps[warp].lanes, &mut clock, has);
            }
            self.warps[warps].iter_mut().for_each(|warp| warp.now += 1);
        } else {
            for &(warp, lanes, _) in here {
                self.release(warp, lanes, &mut clock);
            }
        }
        let threads = self.warps.first().map_or(0, |warp| warp.threads);
        let clock = Arc::new(self.common_of(threads, clock));
        for &(warp, lanes, whole) in here {
            self.set(warp, lanes, whole, &clock);
        }
        self.share_fences(here);
    }

    /// `lanes` of `warp` pass `bar.arrive` of barrier `id`.
    pub(crate) fn arrive(&mut self, warp: usize, lanes: u32, id: u32) {
        let at = warp / self.block_warps * BARRIERS as usize + id as usize;
        let mut clock = std::mem::take(&mut self.arrivals[at]);
        self.release(warp, lanes, &mut clock);
        self.arrivals[at] = clock;
    }

    /// `lane` has waited for its own copies up to group `group`.
    pub(crate) fn wait_copies(&mut self, warp: usize, lane: usize, group: u32) {
        let waited = &mut self.warps[warp].waited[lane];
        *waited = (*waited).max(group);
    }

    /// `lanes` of `warp` have waited until the launch in front has ended.
    pub(crate) fn wait_prior(&mut self, warp: usize, lanes: u32) {
        let mut clock = Clock::default();
        clock.set(self.agents.prior(), 1);
        self.acquire(warp, lanes, &clock);
    }

    /// `lanes` of `warp` execute a fence, or release something, to blocks of the whole grid if
    /// `wide`.
    pub(crate) fn fence(&mut self, warp: usize, lanes: u32, wide: bool, side: Side) {
        self.fenced |= side == Side::Both;
        for lane in bits(lanes) {
            if side == Side::Both {
                self.acquire_pending(warp, lane, wide);
            }
            let mut clock = Clock::default();
            self.give(warp, 1 << lane, &mut clock, 0);
            let fenced = Some(Fenced { clock: Arc::new(clock), wide });
            match side {
                Side::Both => self.warps[warp].fences[lane] = fenced,
                _ => self.warps[warp].releases[lane] = fenced,
            }
        }
        self.warps[warp].now += 1;
    }

    /// `observe` says what a lane reads that acquires it, from blocks of the whole grid if `wide`.
    pub(crate) fn acquire_observed(
        &mut self,
        (warp, lane): (usize, usize),
        wide: bool,
        observe: impl FnOnce(&mut Knowledge),
    ) {
        // What it has read before, it does not acquire by that.
        let before = self.warps[warp].pending[lane].take();
        observe(self);
        self.acquire_pending(warp, lane, wide);
        if let Some(before) = before {
            self.warps[warp].pending[lane].get_or_insert_default().join(&before);
        }
    }

    /// What a lane has read from atomic variables is known to it, of blocks of the whole grid if
    /// `wide`.
    fn acquire_pending(&mut self, warp: usize, lane: usize, wide: bool) {
        let pending = &mut self.warps[warp].pending[lane];
        let read = match wide {
            true => pending.take().map(|read| *read),
            false => pending.as_ref().map(|read| read.of_cluster()),
        };
        if let Some(read) = read {
            self.acquire(warp, 1 << lane, &read);
        }
    }

    /// The last fence of a lane.
    fn fenced(&self, warp: usize, lane: usize) -> Option<&Fenced> {
        self.warps[warp].fences[lane].as_ref()
    }

    /// What a write to an atomic variable by a lane releases.
    pub(crate) fn released_by(
        &mut self,
        warp: usize,
        lane: usize,
    ) -> impl Iterator<Item = Fenced> + use<> {
        let once = self.warps[warp].releases[lane].take();
        self.fenced(warp, lane).cloned().into_iter().chain(once)
    }

    /// What a lane has read from an atomic variable: a fence will make it known. `cluster` is
    /// that of whoever wrote it.
    pub(crate) fn observe(&mut self, warp: usize, lane: usize, cluster: u64, clock: &Clock) {
        let here = self.cluster;
        let pending = self.warps[warp].pending[lane].get_or_insert_default();
        match cluster == here {
            true => pending.join(clock),
            false => pending.join_from(cluster, clock),
        }
    }
}
