//! Who accessed each word of the shared memory of a cluster's blocks last.

use super::access::{AccessKind, Conflict, EarlierAccess, KINDS, Site};
use super::knowledge::Knowledge;
use super::machine::{LANES, bits};
use crate::checks::Checks;
use crate::fault::Access;

/// The last write of a word, but for its time.
#[derive(Debug, Clone, Copy, Default)]
struct Write {
    line: u32,
    agent: u16,
    kind: u8,
}

/// The last read of each word by the lanes of one warp.
#[derive(Debug)]
struct Reads {
    times: Vec<u32>,
    lanes: Vec<u32>,
    /// PTX lines, and in the highest bit whether they read asynchronously.
    lines: Vec<u32>,
}

/// See [`Reads::lines`].
const ASYNC: u32 = 1 << 31;

/// Every word of the shared memory of a cluster's blocks, in the order of their ranks. The times of
/// a cluster are all larger than those of clusters before, so that nothing has to be cleared between them.
#[derive(Debug)]
pub(crate) struct Shadow {
    /// Logarithm of the bytes of a word.
    shift: u32,
    base: u32,
    /// The largest time of this cluster so far.
    latest: u32,
    /// When each word was written last, by the agent's time and `base`.
    written: Vec<u32>,
    writes: Vec<Write>,
    /// By warp.
    reads: Vec<Reads>,
    /// By warp: the time of its last read.
    last_read: Vec<u32>,
    /// Bytes between variables of a block: from, to.
    gaps: Vec<(u32, u32)>,
    /// Bytes from one block's shared memory to the next one's.
    stride: u32,
    /// The warps of which the one that stores does not know all reads.
    unknown: Vec<usize>,
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
    /// For so many blocks, whose shared memory is `stride` bytes apart.
    pub(crate) fn new(
        (stride, blocks): (u32, usize),
        shift: u32,
        warps: usize,
        gaps: Vec<(u32, u32)>,
    ) -> Shadow {
        let words = (stride as usize * blocks).div_ceil(1 << shift);
        Shadow {
            shift,
            base: 0,
            latest: 0,
            written: vec![0; words],
            writes: vec![Write::default(); words],
            reads: (0..warps)
                .map(|_| Reads {
                    times: vec![0; words],
                    lanes: vec![0; words],
                    lines: vec![0; words],
                })
                .collect(),
            last_read: vec![0; warps],
            gaps,
            stride,
            unknown: Vec::new(),
        }
    }

    /// Forgets everything, for a new cluster.
    pub(crate) fn clear(&mut self) {
        if self.latest > u32::MAX / 2 {
            self.written.fill(0);
            self.reads.iter_mut().for_each(|reads| reads.times.fill(0));
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
        let (base, shift) = (self.base, self.shift);
        let noted = site.line | if site.kind == AccessKind::AsyncLoad { ASYNC } else { 0 };
        let note = checks.races && !site.kind.strong();
        // Up to this time all lanes know all writes.
        let reach = if checks.races { base + known.reach(warp) } else { u32::MAX };
        let Reads { times, lanes, lines } = &mut self.reads[warp];
        let words = (site.bytes >> shift) as usize;
        if words == 1 && mask == u32::MAX && consecutive(offsets, 1 << shift) {
            let word = (offsets[0] >> shift) as usize;
            let of = word..word + LANES;
            if let (Some(written), Some(times), Some(lanes), Some(lines)) = (
                self.written.get(of.clone()),
                times.get_mut(of.clone()),
                lanes.get_mut(of.clone()),
                lines.get_mut(of),
            ) && !written.iter().fold(false, |bad, &time| bad | (time <= base) | (time > reach))
            {
                if note {
                    for lane in 0..LANES {
                        let before = if times[lane] == now { lanes[lane] } else { 0 };
                        lanes[lane] = before | 1 << lane;
                        times[lane] = now;
                        lines[lane] = noted;
                    }
                }
                return Ok(());
            }
        }
        // Both halves of a warp, and neighbouring lanes, often read the same words.
        let halves = mask == u32::MAX
            && (0..LANES / 2)
                .fold(true, |same, lane| same & (offsets[lane] == offsets[lane + LANES / 2]));
        // Lanes that read the same word as the one before them.
        let mut again = 0;
        for lane in 1..LANES {
            again |= u32::from(offsets[lane] == offsets[lane - 1]) << lane;
        }
        let again = u64::from(again & mask & mask << 1);
        let mut left = if halves { mask >> (LANES / 2) } else { mask };
        while left != 0 {
            let first = left.trailing_zeros();
            let run = (again >> (first + 1)).trailing_ones();
            let mut group = (((2u64 << run) - 1) << first) as u32;
            left &= !group;
            if halves {
                group |= group << (LANES / 2);
            }
            let word = (offsets[first as usize] >> shift) as usize;
            let of = word..word + words;
            // Out of bounds is the access's own fault.
            let (Some(written), Some(times), Some(lanes), Some(lines)) = (
                self.written.get(of.clone()),
                times.get_mut(of.clone()),
                lanes.get_mut(of.clone()),
                lines.get_mut(of),
            ) else {
                continue;
            };
            for (i, &time) in written.iter().enumerate() {
                if time <= base {
                    if checks.memory {
                        return Err((first as usize, Conflict::Uninitialised));
                    }
                } else if time > reach {
                    let write = self.writes[word + i];
                    if known.common(warp, write.agent.into()) < time - base {
                        check_write(known, base, (warp, group), site, (time, write))?;
                    }
                }
            }
            if note {
                for ((time, lanes), line) in times.iter_mut().zip(lanes).zip(lines) {
                    *lanes = group | if *time == now { *lanes } else { 0 };
                    *time = now;
                    *line = noted;
                }
            }
        }
        Ok(())
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
        self.find_unknown(known, warp);
        for lane in bits(mask) {
            let writer = Writer { warp, lane, agent: warp * LANES + lane, time };
            let result = self.write(known, checks, writer, site, offsets[lane], &same);
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
        self.find_unknown(known, writer.warp);
        self.write(known, checks, writer, site, offset, &|_, _| false)
    }

    /// Finds the warps of which `warp` does not know all reads.
    fn find_unknown(&mut self, known: &Knowledge, warp: usize) {
        let Shadow { base, last_read, unknown, .. } = self;
        unknown.clear();
        let latest = last_read.iter().enumerate();
        let latest = latest.filter(|&(other, &time)| time > *base + known.floor(warp, other));
        unknown.extend(latest.map(|(other, _)| other));
    }

    /// Checks and notes a write, for whose warp `unknown` is found.
    #[inline(always)]
    fn write(
        &mut self,
        known: &Knowledge,
        checks: Checks,
        writer: Writer,
        site: Site,
        offset: u32,
        same: &impl Fn(usize, usize) -> bool,
    ) -> Result<(), Conflict> {
        let Writer { warp, lane, agent, time } = writer;
        let now = self.stamp(time);
        let thread = warp * LANES + lane;
        let new = Write { line: site.line, agent: agent as u16, kind: site.kind as u8 };
        for word in self.words(offset, site.bytes) {
            let (written, old) = (self.written[word], self.writes[word]);
            if written <= self.base {
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
                && known.common(warp, old.agent.into()) < written - self.base
            {
                // The lanes of one instruction that store to one place: one of them comes last.
                let together = written == now
                    && old.line == site.line
                    && usize::from(old.agent) / LANES == warp
                    && agent == thread
                    && same(lane, usize::from(old.agent) % LANES);
                if !together {
                    let checked =
                        check_write(known, self.base, (warp, 1 << lane), site, (written, old));
                    checked.map_err(|(_, conflict)| conflict)?;
                }
            }
            if checks.races {
                for &other in &self.unknown {
                    if self.reads[other].times[word] > self.base + known.floor(warp, other) {
                        self.check_read(known, (warp, lane), other, word)?;
                    }
                }
            }
            // A plain store races with what an atomic behind it does not race with.
            let plain = usize::from(old.agent) == agent
                && written == now
                && !KINDS[usize::from(old.kind)].strong();
            self.written[word] = now;
            self.writes[word] = if plain { Write { kind: old.kind, ..new } } else { new };
        }
        Ok(())
    }

    /// Fails if a lane does not come after the last read of a word by lanes of warp `other`.
    #[inline(never)]
    fn check_read(
        &self,
        known: &Knowledge,
        (warp, lane): (usize, usize),
        other: usize,
        word: usize,
    ) -> Result<(), Conflict> {
        let reads = &self.reads[other];
        let time = reads.times[word] - self.base;
        let mut agents = bits(reads.lanes[word]).map(|reader| other * LANES + reader);
        match agents.find(|&agent| !known.knows(warp, lane, agent, time)) {
            None => Ok(()),
            Some(agent) => {
                let access = Access::Load;
                let earlier = EarlierAccess {
                    block: known.cluster,
                    agent,
                    line: reads.lines[word] & !ASYNC,
                    access,
                };
                Err(Conflict::Race(earlier))
            }
        }
    }

    /// A write, or, if `reads`, a read of a word of `site.bytes` bytes at `offset` by a thread or
    /// its `cp.async` that an asynchronous access by a lane does not see, or may come before.
    pub(super) fn proxied(
        &self,
        known: &Knowledge,
        (warp, lane): (usize, usize),
        site: Site,
        offset: u32,
        reads: bool,
    ) -> Option<EarlierAccess> {
        let threads = known.mbarrier(0);
        self.words(offset, site.bytes).find_map(|word| {
            let (time, write) = (self.written[word], self.writes[word]);
            let agent = usize::from(write.agent);
            if time > self.base
                && agent < threads
                && !known.sees(warp, lane, agent, time - self.base)
            {
                return Some(self.earlier(known, word));
            }
            self.reads.iter().enumerate().filter(|_| reads).find_map(|(other, reads)| {
                let (time, line) = (reads.times[word], reads.lines[word]);
                let mut agents = bits(reads.lanes[word]).map(|reader| other * LANES + reader);
                let unseen = (time > self.base && line & ASYNC == 0)
                    .then(|| agents.find(|&a| !known.sees(warp, lane, a, time - self.base)));
                let (agent, access) = (unseen.flatten()?, Access::Load);
                Some(EarlierAccess { block: known.cluster, agent, line, access })
            })
        })
    }

    /// The last write of a word.
    fn earlier(&self, known: &Knowledge, word: usize) -> EarlierAccess {
        let write = self.writes[word];
        let access = KINDS[usize::from(write.kind)].access();
        EarlierAccess { block: known.cluster, agent: write.agent.into(), line: write.line, access }
    }

    /// What stands for the last writes of some bytes: it changes when they are written again.
    pub(super) fn writes_of(&self, offset: u32, bytes: u32) -> u64 {
        let words = self.words(offset, bytes);
        words.fold(0, |sum: u64, word| {
            let write = u64::from(self.written[word]) << 32 | u64::from(self.writes[word].line);
            sum.wrapping_mul(31).wrapping_add(write)
        })
    }

    /// The last write of some bytes.
    pub(super) fn last_write(
        &self,
        known: &Knowledge,
        offset: u32,
        bytes: u32,
    ) -> Option<EarlierAccess> {
        let last = self.words(offset, bytes).max_by_key(|&word| self.written[word])?;
        Some(self.earlier(known, last))
    }

    fn in_gap(&self, word: usize) -> bool {
        let at = ((word as u32) << self.shift) % self.stride;
        let after = self.gaps.partition_point(|&(from, _)| from <= at);
        after != 0 && at < self.gaps[after - 1].1
    }
}

/// Fails if one of `lanes` does not come after `write`.
#[inline(never)]
fn check_write(
    known: &Knowledge,
    base: u32,
    (warp, lanes): (usize, u32),
    site: Site,
    (time, write): (u32, Write),
) -> Result<(), (usize, Conflict)> {
    let (agent, kind) = (usize::from(write.agent), KINDS[usize::from(write.kind)]);
    if kind.strong() && site.kind.strong() {
        return Ok(());
    }
    match bits(lanes).find(|&lane| !known.knows(warp, lane, agent, time - base)) {
        None => Ok(()),
        Some(lane) => {
            let access = kind.access();
            let earlier = EarlierAccess { block: known.cluster, agent, line: write.line, access };
            Err((lane, Conflict::Race(earlier)))
        }
    }
}

/// Whether each offset is the one before plus `step`.
#[inline(always)]
fn consecutive(offsets: &[u32; LANES], step: u32) -> bool {
    let mut differences = 0;
    for (lane, &offset) in offsets.iter().enumerate() {
        differences |= offset.wrapping_sub(offsets[0]) ^ (lane as u32 * step);
    }
    differences == 0
}
