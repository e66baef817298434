//! Who accessed each word of a block's shared memory last.

use super::access::{AccessKind, Conflict, Earlier, KINDS, Site};
use super::knowledge::Knowledge;
use super::machine::{LANES, bits};
use crate::checks::Checks;
use crate::fault::Access;

/// The last write of a word.
#[derive(Debug, Clone, Copy, Default)]
struct Write {
    /// When, by the agent's time and [`Shadow::base`].
    time: u32,
    line: u32,
    agent: u16,
    kind: u8,
}

/// The last read of a word by the lanes of one warp.
#[derive(Debug, Clone, Copy, Default)]
struct Read {
    time: u32,
    lanes: u32,
    line: u32,
}

/// Every word of a block's shared memory. The times of a block are all larger than those of
/// blocks before, so that nothing has to be cleared between them.
#[derive(Debug)]
pub(crate) struct Shadow {
    /// Logarithm of the bytes of a word.
    shift: u32,
    base: u32,
    /// The largest time of this block so far.
    latest: u32,
    writes: Vec<Write>,
    /// By warp and word.
    reads: Vec<Read>,
    /// By warp: the time of its last read.
    last_read: Vec<u32>,
    /// Bytes between variables: from, to.
    gaps: Vec<(u32, u32)>,
}

/// Who accesses, and on whose account: see [`super::clock`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer {
    pub warp: usize,
    pub lane: usize,
    pub agent: usize,
    pub time: u32,
}

impl Shadow {
    pub(crate) fn new(bytes: u32, shift: u32, warps: usize, gaps: Vec<(u32, u32)>) -> Shadow {
        let words = (bytes as usize).div_ceil(1 << shift);
        Shadow {
            shift,
            base: 0,
            latest: 0,
            writes: vec![Write::default(); words],
            reads: vec![Read::default(); words * warps],
            last_read: vec![0; warps],
            gaps,
        }
    }

    /// Forgets everything, for a new block.
    pub(crate) fn clear(&mut self) {
        if self.latest > u32::MAX / 2 {
            self.writes.fill(Write::default());
            self.reads.fill(Read::default());
            self.last_read.fill(0);
            self.latest = 0;
        }
        self.base = self.latest;
    }

    fn stamp(&mut self, time: u32) -> u32 {
        let time = self.base + time;
        self.latest = self.latest.max(time);
        time
    }

    /// The words of `bytes` bytes at `offset`; none if they are out of bounds, which is the
    /// access's own fault.
    fn words(&self, offset: u32, bytes: u32) -> std::ops::Range<usize> {
        let first = (offset >> self.shift) as usize;
        let end = (u64::from(offset) + u64::from(bytes)).div_ceil(1 << self.shift) as usize;
        if end <= self.writes.len() { first..end } else { 0..0 }
    }

    /// Checks and notes loads of `site.bytes` bytes at `offsets` by the lanes `mask`.
    #[inline(always)]
    pub(crate) fn load(
        &mut self,
        known: &Knowledge,
        checks: Checks,
        (warp, mask): (usize, u32),
        site: Site,
        offsets: &[u32; LANES],
    ) -> Result<(), (usize, Conflict)> {
        let now = self.stamp(known.now(warp));
        if checks.races {
            self.last_read[warp] = now;
        }
        let mut left = mask;
        while left != 0 {
            // Neighbouring lanes often read the same word.
            let first = left.trailing_zeros() as usize;
            let offset = offsets[first];
            let mut group = 0;
            while left != 0 {
                let lane = left.trailing_zeros() as usize;
                if offsets[lane] != offset {
                    break;
                }
                group |= 1 << lane;
                left &= left - 1;
            }
            let words = self.words(offset, site.bytes);
            let row = warp * self.writes.len();
            for word in words {
                let write = self.writes[word];
                if write.time <= self.base {
                    if checks.memory {
                        return Err((first, Conflict::Uninitialised));
                    }
                } else if checks.races
                    && known.common(warp, write.agent.into()) < write.time - self.base
                {
                    self.check_write(known, (warp, group), site, write)?;
                }
                if checks.races && !site.kind.strong() {
                    let read = &mut self.reads[row + word];
                    let lanes = if read.time == now { read.lanes | group } else { group };
                    *read = Read { time: now, lanes, line: site.line };
                }
            }
        }
        Ok(())
    }

    /// Fails if one of `lanes` does not come after `write`.
    #[inline(never)]
    fn check_write(
        &self,
        known: &Knowledge,
        (warp, lanes): (usize, u32),
        site: Site,
        write: Write,
    ) -> Result<(), (usize, Conflict)> {
        let (agent, kind) = (usize::from(write.agent), KINDS[usize::from(write.kind)]);
        if kind.strong() && site.kind.strong() {
            return Ok(());
        }
        match bits(lanes).find(|&lane| !known.knows(warp, lane, agent, write.time - self.base)) {
            None => Ok(()),
            Some(lane) => {
                let access = kind.access();
                let earlier = Earlier { block: known.block, agent, line: write.line, access };
                Err((lane, Conflict::Race(earlier)))
            }
        }
    }

    /// Checks and notes stores of `site.bytes` bytes at `offsets` by the lanes `mask`. `same`
    /// says whether two lanes store the same value: then it does not matter which comes last.
    #[inline(always)]
    pub(crate) fn store(
        &mut self,
        known: &Knowledge,
        checks: Checks,
        (warp, mask): (usize, u32),
        site: Site,
        offsets: &[u32; LANES],
        same: impl Fn(usize, usize) -> bool,
    ) -> Result<(), (usize, Conflict)> {
        let time = known.now(warp);
        let rows = self.rows(known, warp);
        for lane in bits(mask) {
            let writer = Writer { warp, lane, agent: warp * LANES + lane, time };
            let result = self.write(known, checks, writer, site, offsets[lane], rows, &same);
            result.map_err(|conflict| (lane, conflict))?;
        }
        Ok(())
    }

    /// Checks and notes a copy to `site.bytes` bytes at `offset`, on the account of an agent of
    /// its own.
    pub(crate) fn copy(
        &mut self,
        known: &Knowledge,
        checks: Checks,
        writer: Writer,
        site: Site,
        offset: u32,
    ) -> Result<(), Conflict> {
        let rows = self.rows(known, writer.warp);
        self.write(known, checks, writer, site, offset, rows, &|_, _| false)
    }

    /// The warps of which `warp` does not know all reads.
    fn rows(&self, known: &Knowledge, warp: usize) -> u32 {
        let unknown = |&other: &usize| self.last_read[other] > self.base + known.floor(warp, other);
        (0..self.last_read.len()).filter(unknown).fold(0, |rows, other| rows | 1 << other)
    }

    #[expect(clippy::too_many_arguments, reason = "the state of one loop")]
    #[inline(always)]
    fn write(
        &mut self,
        known: &Knowledge,
        checks: Checks,
        writer: Writer,
        site: Site,
        offset: u32,
        rows: u32,
        same: &impl Fn(usize, usize) -> bool,
    ) -> Result<(), Conflict> {
        let Writer { warp, lane, agent, time } = writer;
        let now = self.stamp(time);
        let thread = warp * LANES + lane;
        let new = Write { time: now, line: site.line, agent: agent as u16, kind: site.kind as u8 };
        let total = self.writes.len();
        for word in self.words(offset, site.bytes) {
            let old = self.writes[word];
            if old.time <= self.base {
                if checks.memory {
                    if self.in_gap(word) {
                        return Err(Conflict::NoVariable);
                    }
                    if site.kind == AccessKind::Atomic {
                        return Err(Conflict::Uninitialised);
                    }
                }
            } else if checks.races
                && usize::from(old.agent) != thread
                && known.common(warp, old.agent.into()) < old.time - self.base
            {
                // The lanes of one instruction that store to one place: one of them comes last.
                let together = old.time == now
                    && old.line == site.line
                    && usize::from(old.agent) / LANES == warp
                    && agent == thread
                    && same(lane, usize::from(old.agent) % LANES);
                if !together {
                    let checked = self.check_write(known, (warp, 1 << lane), site, old);
                    checked.map_err(|(_, conflict)| conflict)?;
                }
            }
            if checks.races {
                for other in bits(rows) {
                    let read = self.reads[other * total + word];
                    if read.time > self.base + known.floor(warp, other) {
                        self.check_read(known, (warp, lane), other, read)?;
                    }
                }
            }
            // A plain store races with what an atomic behind it does not race with.
            let plain = usize::from(old.agent) == agent
                && old.time == now
                && !KINDS[usize::from(old.kind)].strong();
            self.writes[word] = if plain { Write { kind: old.kind, ..new } } else { new };
        }
        Ok(())
    }

    /// Fails if a lane does not come after `read`, by lanes of warp `other`.
    #[inline(never)]
    fn check_read(
        &self,
        known: &Knowledge,
        (warp, lane): (usize, usize),
        other: usize,
        read: Read,
    ) -> Result<(), Conflict> {
        let time = read.time - self.base;
        let mut agents = bits(read.lanes).map(|reader| other * LANES + reader);
        match agents.find(|&agent| !known.knows(warp, lane, agent, time)) {
            None => Ok(()),
            Some(agent) => {
                let access = Access::Load;
                let earlier = Earlier { block: known.block, agent, line: read.line, access };
                Err(Conflict::Race(earlier))
            }
        }
    }

    fn in_gap(&self, word: usize) -> bool {
        let at = (word as u32) << self.shift;
        let after = self.gaps.partition_point(|&(from, _)| from <= at);
        after != 0 && at < self.gaps[after - 1].1
    }
}
