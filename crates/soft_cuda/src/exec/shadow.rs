//! Who accessed each word of the shared memory of a cluster's blocks last.

use super::access::{AccessKind, Conflict, EarlierAccess, KINDS, Part, Site};
use super::chunks::{Chunks, State};
use super::knowledge::Knowledge;
use super::loads::{Loaded, Loads};
use super::machine::{FULL, LANES, bits};
use super::reads::Reads;
use crate::checks::Checks;
use crate::fault::Access;

/// The last write of a word, but for its time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Write {
    pub(super) line: u32,
    pub(super) agent: u16,
    pub(super) kind: u8,
}

/// Every word of the shared memory of a cluster's blocks, in the order of their ranks. The times of
/// a cluster are all larger than those of clusters before, so that nothing has to be cleared between them.
#[derive(Debug)]
pub(crate) struct Shadow {
    /// Logarithm of the bytes of a word.
    shift: u32,
    pub(super) base: u32,
    /// The largest time of this cluster so far.
    latest: u32,
    /// When each word was written last, by the agent's time and `base`.
    pub(super) written: Vec<u32>,
    pub(super) writes: Vec<Write>,
    /// By warp, without those in `loads`.
    pub(super) reads: Vec<Reads>,
    /// Those through the async proxy, by warp; empty as long as there is none.
    async_reads: Vec<Reads>,
    loads: Loads,
    chunks: Chunks,
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
            reads: (0..warps).map(|_| Reads::new(words)).collect(),
            async_reads: Vec::new(),
            loads: Loads::new(warps),
            chunks: Chunks::new(words, warps),
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
            let all = self.reads.iter_mut().chain(&mut self.async_reads);
            all.for_each(|reads| reads.times.fill(0));
            self.last_read.fill(0);
            self.latest = 0;
        }
        self.base = self.latest;
        self.loads.clear();
        self.chunks.clear();
    }

    fn stamp(&mut self, time: u32) -> u32 {
        let time = self.base + time;
        self.latest = self.latest.max(time);
        time
    }

    /// The words of `bytes` bytes at `offset`; none if they are out of bounds, which is the
    /// access's own fault.
    pub(super) fn words(&self, offset: u32, bytes: u32) -> std::ops::Range<usize> {
        let first = (offset >> self.shift) as usize;
        let end = (u64::from(offset) + u64::from(bytes)).div_ceil(1 << self.shift) as usize;
        if end <= self.writes.len() { first..end } else { 0..0 }
    }

    /// Checks and notes loads of `site.bytes` bytes at `offsets` by the lanes `mask`.
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
        let weak = !site.kind.strong();
        let base = self.base;
        // Up to this time all lanes know all writes.
        let reach = if checks.races { base + known.reach(warp) } else { u32::MAX };
        for group in Groups::of(mask, offsets) {
            let first = group.trailing_zeros() as usize;
            // Out of bounds is the access's own fault.
            let words = self.words(offsets[first], site.bytes);
            for word in words.clone() {
                let time = self.written[word];
                if time <= base {
                    if checks.memory {
                        return Err((first, Conflict::Uninitialised));
                    }
                } else if time > reach {
                    let write = self.writes[word];
                    if known.common(warp, write.agent.into()) < time - base {
                        check_write(known, base, (warp, group), site, (time, write))?;
                    }
                }
            }
            if !checks.races || !weak {
                continue;
            }
            if site.kind == AccessKind::AsyncLoad {
                // What all lanes read asynchronously is a matrix.
                let lanes = if mask == FULL { 0 } else { group };
                self.async_reads(warp).note(now, words, lanes, site.line);
            } else {
                self.reads[warp].note(now, words, group, site.line);
            }
        }
        Ok(())
    }

    fn async_reads(&mut self, warp: usize) -> &mut Reads {
        if self.async_reads.is_empty() {
            let words = self.writes.len();
            self.async_reads = self.reads.iter().map(|_| Reads::new(words)).collect();
        }
        &mut self.async_reads[warp]
    }

    /// Checks weak loads by all lanes of a warp at `offsets`, and notes them in a list. Returns `false`, and has noted nothing, if they have to be looked at one by one.
    #[inline(always)]
    pub(crate) fn list(
        &mut self,
        known: &Knowledge,
        checks: Checks,
        warp: usize,
        loaded: Loaded<impl Iterator<Item = Part>>,
        offsets: &[u32; LANES],
    ) -> bool {
        // Those lists forget what only an asynchronous access may come before.
        if checks.proxies {
            return false;
        }
        let now = self.stamp(known.now(warp));
        let Some(listed) = self.loads.listed(loaded, offsets) else {
            return false;
        };
        let end = (u64::from(listed.from) + listed.span).div_ceil(1 << self.shift);
        if end > self.writes.len() as u64 {
            return false;
        }
        let chunks = self.chunks.of((listed.from >> self.shift) as usize..end as usize);
        let base = self.base;
        let reach = if checks.races { base + known.reach(warp) } else { u32::MAX };
        let state = self.chunks.state(warp, chunks.clone(), now, |words| {
            let (mut least, mut latest) = (u32::MAX, 0);
            for &time in &self.written[words.clone()] {
                least = least.min(time);
                latest = latest.max(time);
            }
            let unknown = |word: usize| {
                let (time, agent) = (self.written[word], self.writes[word].agent);
                time > reach && known.common(warp, agent.into()) < time - base
            };
            if latest > reach && words.into_iter().any(unknown) {
                State::Unknown
            } else if least > base || !checks.memory {
                State::Whole
            } else {
                State::Partial
            }
        });
        let unwritten = |part: &Part| {
            let words = |&offset: &u32| self.words(offset + part.offset, part.bytes);
            offsets.iter().flat_map(words).any(|word| self.written[word] <= base)
        };
        if state == State::Unknown
            || state == State::Partial && self.loads.parts(&listed).iter().any(unwritten)
        {
            return false;
        }
        if checks.races {
            self.last_read[warp] = now;
            if !self.loads.has_room(warp, now) {
                self.begin_segment(known, warp, now);
            }
            self.loads.push(warp, listed, chunks);
        }
        true
    }

    /// Makes room in the list of a warp's loads: forgets those that all that is to come comes
    /// after, and notes the oldest in their words if there are still too many.
    #[inline(never)]
    fn begin_segment(&mut self, known: &Knowledge, warp: usize, now: u32) {
        while let Some(time) = self.loads.oldest(warp)
            && (0..self.reads.len()).all(|other| known.floor(other, warp) >= time - self.base)
        {
            self.loads.forget_oldest(warp);
        }
        if self.loads.is_full(warp) {
            self.note_oldest(warp);
        }
        self.loads.begin(warp, now);
    }

    /// Notes the oldest loads in a warp's list in their words.
    #[inline(never)]
    fn note_oldest(&mut self, warp: usize) {
        let (reads, shift) = (&mut self.reads[warp], self.shift);
        self.loads.take_oldest(warp, |time, line, bytes, offsets| {
            for group in Groups::of(FULL, offsets) {
                let first = (offsets[group.trailing_zeros() as usize] >> shift) as usize;
                reads.note(time, first..first + (bytes >> shift) as usize, group, line);
            }
        });
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
        let chunks = bits(mask).fold(0, |chunks, lane| {
            chunks | self.chunks.set(self.words(offsets[lane], site.bytes))
        });
        self.find_unknown(known, warp, chunks);
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
        let chunks = self.chunks.set(self.words(offset, site.bytes));
        self.find_unknown(known, writer.warp, chunks);
        self.write(known, checks, writer, site, offset, &|_, _| false)
    }

    /// Finds the warps of which `warp` does not know all reads, and notes those from `chunks`.
    fn find_unknown(&mut self, known: &Knowledge, warp: usize, chunks: u64) {
        self.unknown.clear();
        for other in 0..self.last_read.len() {
            let known = self.base + known.floor(warp, other);
            if self.last_read[other] > known {
                self.unknown.push(other);
                while self.loads.has(other, chunks, known) {
                    self.note_oldest(other);
                }
            }
        }
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
                    let floor = self.base + known.floor(warp, other);
                    let reads = &self.reads[other];
                    if reads.times[word] > floor {
                        self.check_read(known, (warp, lane), (reads, other), word)?;
                    }
                    if let Some(reads) = self.async_reads.get(other)
                        && reads.times[word] > floor
                    {
                        self.check_read(known, (warp, lane), (reads, other), word)?;
                    }
                }
            }
            // A plain store races with what an atomic behind it does not race with.
            let plain = usize::from(old.agent) == agent
                && written == now
                && !KINDS[usize::from(old.kind)].strong();
            self.chunks.write(word);
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
        by: (usize, usize),
        (reads, other): (&Reads, usize),
        word: usize,
    ) -> Result<(), Conflict> {
        match reads.unknown(known, by, (other, self.base), word) {
            None => Ok(()),
            Some(agent) => {
                let (line, access) = (reads.lines[word], Access::Load);
                Err(Conflict::Race(EarlierAccess { block: known.cluster, agent, line, access }))
            }
        }
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

/// The lanes of a mask in groups, each of which has one offset: neighbours, and the same lanes of
/// both halves of a warp, often have.
struct Groups {
    left: u32,
    /// Lanes with the offset of the one before, from lane 1 on.
    again: u32,
    halves: bool,
}

impl Groups {
    #[inline(always)]
    fn of(mask: u32, offsets: &[u32; LANES]) -> Groups {
        let (low, high) = offsets.split_at(LANES / 2);
        let mut differ = 0;
        for (a, b) in low.iter().zip(high) {
            differ |= a ^ b;
        }
        let halves = mask == FULL && differ == 0;
        let mut again = 0;
        for lane in 1..LANES {
            again |= u32::from(offsets[lane] == offsets[lane - 1]) << lane;
        }
        let left = if halves { mask >> (LANES / 2) } else { mask };
        Groups { left, again: (again & mask & mask << 1) >> 1, halves }
    }
}

impl Iterator for Groups {
    type Item = u32;

    #[inline(always)]
    fn next(&mut self) -> Option<u32> {
        if self.left == 0 {
            return None;
        }
        let first = self.left.trailing_zeros();
        let run = (self.again >> first).trailing_ones();
        let group = (((2u64 << run) - 1) << first) as u32;
        self.left &= !group;
        Some(if self.halves { group | group << (LANES / 2) } else { group })
    }
}
