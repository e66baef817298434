//! What happens before what in a cluster, as far as bulk copies need it.
//!
//! A bulk copy writes shared memory at some time between its start and the end
//! of the phase of the mbarrier it reports to. So an access of the same bytes
//! must come after a wait for that phase, and a copy must come after all
//! accesses of what was there before. Both are checked with vector clocks: one
//! component per warp, which advances whenever the warp releases something,
//! and one per mbarrier, which counts its phases. Barriers, mbarriers and
//! fences pass the clocks on.
//!
//! The lanes of a warp are taken to be ordered. So are fences, in the order in
//! which they run here. Neither makes a kernel that is right look wrong.
//! Races between accesses of threads are not looked for.

use super::machine::{BARRIERS, FULL, LANES, SHARED_BASE};
use crate::fault::{Access, FaultKind};

/// Bytes that are checked together. Bulk copies write whole granules, and no
/// access by a thread is larger or crosses from one to the next.
const GRANULE: u32 = 16;

/// How much of what each warp did, and of each mbarrier's phases, is known: a component for each
/// warp of the cluster, and then for each mbarrier.
#[derive(Debug, Clone, Default)]
pub(crate) struct WarpClock(Vec<u32>);

impl WarpClock {
    fn at(&self, component: usize) -> u32 {
        self.0.get(component).copied().unwrap_or(0)
    }

    pub(crate) fn set(&mut self, component: usize, value: u32) {
        if self.0.len() <= component {
            self.0.resize(component + 1, 0);
        }
        self.0[component] = value;
    }

    fn join(&mut self, other: &WarpClock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, &theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(theirs);
        }
    }
}

/// The bulk copy that wrote a granule last, or nothing.
#[derive(Debug, Clone, Copy, Default)]
struct Copied {
    /// Its mbarrier's component, and what that must have reached.
    component: u32,
    phase: u32,
    warp: u32,
    line: u32,
    reduces: bool,
}

/// A warp's last access of a granule.
#[derive(Debug, Clone, Copy, Default)]
struct AccessOrder {
    /// The warp's own component then; 0 if there was none.
    clock: u32,
    /// PTX line, and in the highest bit whether it was a store.
    line: u32,
}

const STORE: u32 = 1 << 31;

/// A bulk copy, as the checks see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Issued {
    pub warp: usize,
    pub line: u32,
    /// Of its mbarrier.
    pub component: usize,
    /// What the component reaches when the copy is complete.
    pub phase: u32,
    /// Whether it is a reduction: those of one place need no order.
    pub reduces: bool,
}

/// The order of a cluster's accesses of the shared memory of its blocks.
#[derive(Debug)]
pub(crate) struct Order {
    /// Whether anything is tracked: only in kernels with bulk copies.
    pub on: bool,
    /// By warp. All have a component for every mbarrier.
    clocks: Vec<WarpClock>,
    fences: WarpClock,
    /// What threads that passed `bar.arrive` knew, by the block's rank and the barrier.
    arrivals: Vec<WarpClock>,
    /// Warps of the cluster, and of a block.
    warps: usize,
    block_warps: usize,
    /// Bytes from one block's shared memory to the next one's.
    stride: u32,
    /// By granule.
    copied: Vec<Copied>,
    /// By warp and granule.
    accessed: Vec<AccessOrder>,
}

impl Order {
    /// For the warps of a cluster and of one of its blocks, and the bytes of shared memory of both.
    pub(crate) fn new(
        on: bool,
        (warps, block_warps): (usize, usize),
        (shared_bytes, stride): (u32, u32),
    ) -> Order {
        let blocks = warps / block_warps;
        let (warps, granules) = match on {
            true => (warps, shared_bytes.div_ceil(GRANULE) as usize),
            false => (0, 0),
        };
        Order {
            on,
            clocks: vec![WarpClock::default(); warps],
            fences: WarpClock::default(),
            arrivals: vec![WarpClock::default(); BARRIERS as usize * blocks],
            warps,
            block_warps,
            stride,
            copied: vec![Copied::default(); granules],
            accessed: vec![AccessOrder::default(); granules * warps],
        }
    }

    /// Forgets everything, for a new cluster.
    pub(crate) fn clear(&mut self) {
        for (warp, clock) in self.clocks.iter_mut().enumerate() {
            clock.0.clear();
            clock.0.resize(self.warps, 0);
            clock.0[warp] = 1;
        }
        self.fences = WarpClock::default();
        self.arrivals.fill(WarpClock::default());
        self.copied.fill(Copied::default());
        self.accessed.fill(AccessOrder::default());
    }

    /// The component of the mbarrier number `index`.
    pub(crate) fn component(&mut self, index: usize) -> usize {
        for clock in &mut self.clocks {
            clock.0.resize(clock.0.len().max(self.warps + index + 1), 0);
        }
        self.warps + index
    }

    /// Adds what `warp` knows to `into`, for others to [`acquire`](Order::acquire).
    pub(crate) fn release(&mut self, warp: usize, into: &mut WarpClock) {
        if let Some(clock) = self.clocks.get_mut(warp) {
            into.join(clock);
            clock.0[warp] += 1;
        }
    }

    pub(crate) fn acquire(&mut self, warp: usize, from: &WarpClock) {
        if let Some(clock) = self.clocks.get_mut(warp) {
            clock.join(from);
        }
    }

    pub(crate) fn fence(&mut self, warp: usize) {
        let mut fences = std::mem::take(&mut self.fences);
        self.release(warp, &mut fences);
        self.acquire(warp, &fences);
        self.fences = fences;
    }

    /// `warp` passes `bar.arrive` of barrier `id`.
    pub(crate) fn arrive(&mut self, warp: usize, id: u32) {
        if !self.on {
            return;
        }
        let at = warp / self.block_warps * BARRIERS as usize + id as usize;
        let mut clock = std::mem::take(&mut self.arrivals[at]);
        self.release(warp, &mut clock);
        self.arrivals[at] = clock;
    }

    /// `warps` leave barrier `id` of the block with a rank together.
    pub(crate) fn sync(
        &mut self,
        warps: impl Iterator<Item = usize> + Clone,
        (rank, id): (usize, u32),
    ) {
        if !self.on {
            return;
        }
        let mut all = std::mem::take(&mut self.arrivals[rank * BARRIERS as usize + id as usize]);
        warps.clone().for_each(|warp| self.release(warp, &mut all));
        warps.for_each(|warp| self.acquire(warp, &all));
    }

    /// `warps` of a warpgroup have waited for their products together. What else they read is not
    /// told apart from that.
    pub(crate) fn complete_products(&mut self, warps: &[usize]) {
        let mut all = WarpClock::default();
        warps.iter().for_each(|&warp| self.release(warp, &mut all));
        warps.iter().for_each(|&warp| self.acquire(warp, &all));
    }

    /// What stands for this moment in the life of `warp`; see [`knows`](Order::knows).
    pub(crate) fn now(&self, warp: usize) -> u32 {
        self.clocks.get(warp).map_or(0, |clock| clock.at(warp))
    }

    /// Whether `warp` comes after the moment `clock` in the life of `other`.
    pub(crate) fn knows(&self, warp: usize, other: usize, clock: u32) -> bool {
        self.clocks.get(warp).is_none_or(|known| known.at(other) >= clock)
    }

    /// Notes accesses of `warp` at `offsets` into shared memory, one per lane of
    /// `mask`. Fails at one that is not ordered after the bulk copy that wrote
    /// there, and says which it is.
    #[inline(always)]
    pub(crate) fn access(
        &mut self,
        (warp, line, access): (usize, u32, Access),
        mask: u32,
        offsets: &[u32; LANES],
    ) -> Result<(), (usize, FaultKind)> {
        let granules = self.copied.len();
        let known = &self.clocks[warp].0[..];
        let store = if access == Access::Load { 0 } else { STORE };
        let entry = AccessOrder { clock: known[warp], line: line | store };
        let copied = &self.copied[..granules];
        let mine = &mut self.accessed[warp * granules..][..granules];
        // Lanes often share a granule. Those that were checked, by their low bits.
        let mut checked = [u32::MAX; LANES];
        for (lane, &offset) in offsets.iter().enumerate() {
            let granule = offset / GRANULE;
            let slot = &mut checked[granule as usize % LANES];
            // Out of bounds is the access's own fault.
            if *slot == granule || mask >> lane & 1 == 0 || granule as usize >= granules {
                continue;
            }
            *slot = granule;
            let other = copied[granule as usize];
            if other.phase > known[other.component as usize] {
                let other = (Access::Copy, other.warp, other.line);
                let place = (self.stride, self.block_warps);
                return Err((lane, race(place, offset, access, other)));
            }
            mine[granule as usize] = entry;
        }
        Ok(())
    }

    /// Notes a read of `bytes` bytes from offset `at` as [`access`](Order::access) does.
    pub(crate) fn read(
        &mut self,
        warp: usize,
        line: u32,
        at: u32,
        bytes: u32,
    ) -> Result<(), FaultKind> {
        if !self.on {
            return Ok(());
        }
        let last = at + bytes.saturating_sub(GRANULE);
        for first in (at..at + bytes).step_by(LANES * GRANULE as usize) {
            let offsets = std::array::from_fn(|i| (first + i as u32 * GRANULE).min(last));
            self.access((warp, line, Access::Load), FULL, &offsets).map_err(|(_, kind)| kind)?;
        }
        Ok(())
    }

    /// Notes a bulk copy to `bytes` bytes of shared memory from offset `at`.
    /// Fails if an access or a copy of what is there is not ordered before it.
    pub(crate) fn copy(&mut self, copy: Issued, at: u32, bytes: u32) -> Result<(), FaultKind> {
        let granules = self.copied.len();
        let Some(known) = self.clocks.get(copy.warp) else { return Ok(()) };
        let range = (at / GRANULE) as usize..(at + bytes).div_ceil(GRANULE) as usize;
        let offset = |granule: usize| granule as u32 * GRANULE;
        let place = (self.stride, self.block_warps);
        for granule in range.clone() {
            let other = self.copied[granule];
            if other.phase > known.at(other.component as usize) && !(copy.reduces && other.reduces)
            {
                let other = (Access::Copy, other.warp, other.line);
                return Err(race(place, offset(granule), Access::Copy, other));
            }
        }
        for warp in (0..self.clocks.len()).filter(|&warp| warp != copy.warp) {
            let seen = known.at(warp);
            let theirs = &self.accessed[warp * granules..][range.clone()];
            if let Some(i) = theirs.iter().position(|other| other.clock > seen) {
                let line = theirs[i].line;
                let access = if line & STORE != 0 { Access::Store } else { Access::Load };
                let other = (access, warp as u32, line & !STORE);
                return Err(race(place, offset(range.start + i), Access::Copy, other));
            }
        }
        self.copied[range].fill(Copied {
            component: copy.component as u32,
            phase: copy.phase,
            warp: copy.warp as u32,
            line: copy.line,
            reduces: copy.reduces,
        });
        Ok(())
    }
}

/// A race at `offset` into the cluster's shared memory, of which each block has `stride` bytes.
#[cold]
fn race(
    (stride, block_warps): (u32, usize),
    offset: u32,
    access: Access,
    (other, other_warp, other_line): (Access, u32, u32),
) -> FaultKind {
    let address = u64::from(SHARED_BASE + offset % stride);
    let other_warp = other_warp % block_warps as u32;
    FaultKind::Race { address, access, other, other_warp, other_line }
}
