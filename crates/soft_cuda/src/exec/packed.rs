//! An access of a word of device memory in 64 bits.

use super::access::{AccessKind, EarlierAccess, Site};
use super::knowledge::Knowledge;
use super::machine::LANES;
use crate::fault::Access;

/// The time from which on a block's times are taken to be the same: no race is seen among
/// accesses so late.
const LAST_TIME: u32 = (1 << 20) - 1;

/// Bits of the phases in the time of a bulk copy to shared memory.
const PHASE: u32 = 14;
const PHASES: u32 = 1 << PHASE;

/// The time of a bulk copy that is complete with phase `phase` of mbarrier `index`; 0, behind which
/// everything comes, if the two are too large.
pub(super) fn load_time(index: usize, phase: u32) -> u32 {
    match index < (LAST_TIME / PHASES) as usize && phase < PHASES {
        true => (index as u32) << PHASE | phase,
        false => 0,
    }
}

/// The number of the mbarrier in [`load_time`].
pub(super) fn mbarrier_of(time: u32) -> u32 {
    time >> PHASE
}

/// The time of an access of a kind by a warp now.
pub(super) fn time_of(known: &Knowledge, warp: usize, kind: AccessKind) -> u32 {
    if kind == AccessKind::AsyncLoad { known.load } else { known.now(warp) }
}

/// Words of a group: a warp that loads a whole one has that noted once.
pub(super) const GROUP: usize = 8;

/// An access in one word: block plus 1, thread, kind, two bits more, and time. The two are, of a
/// group, the logarithm of the words that each lane accesses; of a read of one word, the number in
/// [`TOGETHER`]; of a write of one word, [`OF_BLOCK`](Packed::OF_BLOCK) and
/// [`EIGHT_BYTES`](Packed::EIGHT_BYTES).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packed(pub(super) u64);

/// Kinds of writes, as [`Packed`] has them.
pub(super) const KINDS: [AccessKind; 4] =
    [AccessKind::Store, AccessKind::StrongStore, AccessKind::Atomic, AccessKind::Copy];
/// Kinds of reads, of which plain ones have 0: through the read-only cache, and by a bulk copy,
/// whose time is that of [`load_time`].
pub(super) const READ_ONLY: u64 = 1;
const BULK: u64 = 2;

/// Lanes from the first one on that are noted with a read of one word, of those that read it.
const TOGETHER: [usize; 4] = [1, 2, LANES / 2, LANES];

impl Packed {
    pub(super) const EACH: u32 = 20;
    const TOGETHER: u32 = 20;
    /// A strong write of the block's scope.
    pub(super) const OF_BLOCK: u64 = 1 << 20;
    /// An atomic on eight bytes.
    pub(super) const EIGHT_BYTES: u64 = 1 << 21;

    pub(super) fn new(block: u64, thread: usize, kind: u64, time: u32) -> Packed {
        let time = u64::from(time.min(LAST_TIME));
        Packed((block + 1) << 34 | (thread as u64) << 24 | kind << 22 | time)
    }

    /// A read of words.
    pub(super) fn read(block: u64, thread: usize, kind: AccessKind, time: u32) -> Packed {
        let kind = match kind {
            AccessKind::ReadOnly => READ_ONLY,
            AccessKind::AsyncLoad => BULK,
            _ => 0,
        };
        Packed::new(block, thread, kind, time)
    }

    /// A write of a word.
    pub(super) fn write(block: u64, thread: usize, site: Site, time: u32) -> Packed {
        let access = site.kind.access();
        let kind = match access {
            Access::Atomic => 2,
            Access::Copy => 3,
            Access::Store if site.kind.strong() => 1,
            _ => 0,
        };
        let time = if site.kind.pending() { LAST_TIME } else { time };
        let mut more = 0;
        if site.kind.of_block() {
            more |= Packed::OF_BLOCK;
        }
        if access == Access::Atomic && site.bytes == 8 {
            more |= Packed::EIGHT_BYTES;
        }
        Packed(Packed::new(block, thread, kind, time).0 | more)
    }

    /// Whether this write and an access of `site` of block `block` are strong with each other.
    pub(super) fn is_strong_with(self, block: u64, site: Site) -> bool {
        let (kind, access) = (KINDS[self.kind() as usize], site.kind.access());
        let of_block = self.0 & Packed::OF_BLOCK != 0 || site.kind.of_block();
        let eight = self.0 & Packed::EIGHT_BYTES != 0;
        let both_atomic = kind.access() == Access::Atomic && access == Access::Atomic;
        kind.strong()
            && site.kind.strong()
            && (!of_block || self.block() == block)
            && (!both_atomic || eight == (site.bytes == 8))
    }

    /// The plain store by the same thread at the same time.
    pub(super) fn plain(self) -> Packed {
        Packed(self.0 & !(3 << 22 | Packed::OF_BLOCK | Packed::EIGHT_BYTES))
    }

    pub(super) fn block(self) -> u64 {
        (self.0 >> 34) - 1
    }

    pub(super) fn thread(self) -> usize {
        (self.0 >> 24 & 0x3ff) as usize
    }

    pub(super) fn kind(self) -> u64 {
        self.0 >> 22 & 3
    }

    pub(super) fn time(self) -> u32 {
        self.0 as u32 & LAST_TIME
    }

    /// The read of word number `word` of a group.
    pub(super) fn in_group(self, word: u64) -> Packed {
        let each = self.0 >> Packed::EACH & 3;
        let one = Packed(self.0 & !(3 << Packed::EACH));
        one.lane(((word % GROUP as u64) >> each) as usize)
    }

    /// A read of one word by so many lanes, from this one on.
    #[inline(always)]
    pub(super) fn together(self, lanes: usize) -> Packed {
        let number = TOGETHER.iter().rposition(|&least| least <= lanes).unwrap_or(0);
        Packed(self.0 | (number as u64) << Packed::TOGETHER)
    }

    /// Those of a read of one word that are noted.
    pub(super) fn each_lane(self) -> impl Iterator<Item = Packed> {
        let lanes = TOGETHER[(self.0 >> Packed::TOGETHER & 3) as usize];
        (0..lanes).map(move |lane| self.lane(lane))
    }

    /// The same by the lane that is `lane` after it.
    #[inline(always)]
    pub(super) fn lane(self, lane: usize) -> Packed {
        Packed(self.0 + ((lane as u64) << 24))
    }

    /// Whether it is by the same lanes, of the same kind.
    #[inline(always)]
    pub(super) fn same_lanes(self, other: Packed) -> bool {
        (self.0 ^ other.0) & !u64::from(LAST_TIME) == 0
    }

    /// Whether it comes before what `lane` of `warp` does now.
    pub(super) fn is_before(self, known: &Knowledge, warp: usize, lane: usize) -> bool {
        let time = self.time();
        let (cluster, agent) = known.agent(self.block(), self.thread());
        if cluster == told_apart(known.cluster) {
            return known.knows(warp, lane, agent, time);
        }
        known.knows_foreign((warp, lane), cluster, agent, time)
    }

    /// Of a read by a bulk copy: the number of its cluster, the agent that stands for its mbarrier,
    /// and the phase.
    fn copied(self, known: &Knowledge) -> Option<(u64, usize, u32)> {
        let (time, cluster) = (self.time(), known.agent(self.block(), self.thread()).0);
        let agent = known.agents.mbarrier(mbarrier_of(time) as usize);
        (self.kind() == BULK).then_some((cluster, agent, time % PHASES))
    }

    /// As [`is_before`](Packed::is_before), for a read.
    pub(super) fn read_is_before(self, known: &Knowledge, (warp, lane): (usize, usize)) -> bool {
        match self.copied(known) {
            None => self.is_before(known, warp, lane),
            Some((cluster, agent, phase)) if cluster == told_apart(known.cluster) => {
                known.knows(warp, lane, agent, phase)
            }
            Some((cluster, agent, phase)) => {
                known.knows_foreign((warp, lane), cluster, agent, phase)
            }
        }
    }

    /// Whether a read by any lanes of a warp of this cluster comes before what all lanes of `warp`
    /// do now.
    pub(super) fn all_before(self, known: &Knowledge, warp: usize) -> bool {
        if let Some((cluster, agent, phase)) = self.copied(known) {
            return cluster == told_apart(known.cluster) && known.common(warp, agent) >= phase;
        }
        let (cluster, agent) = known.agent(self.block(), self.thread());
        cluster == told_apart(known.cluster) && known.floor(warp, agent / LANES) >= self.time()
    }

    /// Whether an access by any lanes of a warp of any cluster comes before what all lanes of
    /// `warp` do now.
    pub(super) fn warp_before(self, known: &Knowledge, warp: usize) -> bool {
        let (cluster, agent) = known.agent(self.block(), self.thread());
        let (other, time) = (agent / LANES, self.time());
        match cluster == told_apart(known.cluster) {
            true => known.floor(warp, other) >= time,
            false => known.foreign_floor(warp, cluster, other) >= time,
        }
    }

    /// What accesses by a warp at one time have in common.
    #[inline(always)]
    pub(super) fn of_warp(self) -> u64 {
        const LANE: u64 = (LANES as u64 - 1) << 24;
        self.0 & !(LANE | 3 << Packed::EACH)
    }

    pub(super) fn earlier(self, line: u32, access: Access) -> EarlierAccess {
        EarlierAccess { block: self.block(), agent: self.thread(), line, access }
    }
}

/// The number of a block as [`Packed`] has it: grids of more blocks than fit do not run to
/// their end in anyone's life.
pub(super) fn told_apart(block: u64) -> u64 {
    block.min((1 << 30) - 2)
}
