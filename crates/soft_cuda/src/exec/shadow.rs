//! Who accessed each word of the shared memory of a cluster's blocks last.

use std::ops::Range;

use super::access::{AccessKind, Conflict, EarlierAccess, KINDS, Part, Site};
use super::chunks::{Chunks, State};
use super::knowledge::Knowledge;
use super::loads::{Loaded, Loads};
use super::machine::{FULL, LANES, bits};
use super::reads::Reads;
use crate::checks::Checks;

/// The last write of a word, but for its time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Write {
    pub(super) line: u32,
    pub(super) agent: u16,
    pub(super) kind: u8,
}

/// Every word of the shared memory of a cluster's blocks, in the order of their ranks. The times of
/// a cluster are all larger than those of clusters before, so that nothing has to be cleared
/// between them.
#[derive(Debug)]
pub(crate) struct Shadow {
    /// Logarithm of the bytes of a word.
    pub(super) shift: u32,
    pub(super) base: u32,
    /// The largest time of this cluster so far.
    latest: u32,
    /// When each word was written last, by the agent's time and `base`.
    pub(super) written: Vec<u32>,
    pub(super) writes: Vec<Write>,
    /// By warp, without those in `loads`.
    pub(super) reads: Vec<Reads>,
    /// Those by bulk copies, and those by `wgmma`, at times of their own, by warp; empty as long as
    /// there is none.
    pub(super) async_reads: Vec<Reads>,
    pub(super) product_reads: Vec<Reads>,
    /// Those by bulk copies to device memory, as long as nobody has waited for them, likewise.
    pub(super) stored_reads: Vec<Reads>,
    /// Those by bulk copies to shared memory, by number of the mbarrier, which is given.
    pub(super) copied_reads: Vec<(usize, Reads)>,
    pub(super) loads: Loads,
    pub(super) chunks: Chunks,
    /// By warp: the time of its last read.
    pub(super) last_read: Vec<u32>,
    /// Bytes between variables of a block: from, to.
    pub(super) gaps: Vec<(u32, u32)>,
    /// Bytes from one block's shared memory to the next one's.
    stride: u32,
    /// The warps of which the one that stores does not know all reads.
    pub(super) unknown: Vec<usize>,
    /// Chunks for which `unknown` holds, whatever of them one copy of an instruction writes.
    pub(super) searched: u64,
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
            product_reads: Vec::new(),
            stored_reads: Vec::new(),
            copied_reads: Vec::new(),
            loads: Loads::new(warps),
            chunks: Chunks::new(words, warps),
            last_read: vec![0; warps],
            gaps,
            stride,
            unknown: Vec::new(),
            searched: 0,
        }
    }

    /// Forgets everything, for a new cluster.
    pub(crate) fn clear(&mut self) {
        if self.latest > u32::MAX / 2 {
            self.written.fill(0);
            let others = self.async_reads.iter_mut().chain(&mut self.product_reads);
            let copied = self.copied_reads.iter_mut().map(|(_, reads)| reads);
            let others = others.chain(&mut self.stored_reads).chain(copied);
            let all = self.reads.iter_mut().chain(others);
            all.for_each(Reads::clear);
            self.last_read.fill(0);
            self.latest = 0;
        }
        self.base = self.latest;
        self.loads.clear();
        self.chunks.clear();
    }

    pub(super) fn stamp(&mut self, time: u32) -> u32 {
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
                match mask {
                    FULL => self.product_reads(known, warp, words, site.line),
                    _ => self.async_reads(warp).note(now, words, group, site.line),
                }
            } else {
                self.reads[warp].note(now, words, group, site.line);
            }
        }
        Ok(())
    }

    /// Notes that `wgmma` reads words for a warp.
    fn product_reads(&mut self, known: &Knowledge, warp: usize, words: Range<usize>, line: u32) {
        if self.product_reads.is_empty() {
            let all = self.writes.len();
            self.product_reads = self.reads.iter().map(|_| Reads::new(all)).collect();
        }
        let now = self.stamp(known.products_now(warp));
        self.product_reads[warp].note(now, words, 1, line);
    }

    /// Notes that a lane's bulk copy to device memory reads bytes, by instruction number `number`
    /// of these in its warp.
    pub(super) fn note_stored(
        &mut self,
        (warp, lane): (usize, usize),
        (offset, bytes): (u32, u32),
        number: u32,
        line: u32,
    ) {
        let all = self.writes.len();
        if self.stored_reads.is_empty() {
            self.stored_reads = self.reads.iter().map(|_| Reads::new(all)).collect();
        }
        let (now, words) = (self.stamp(number), self.words(offset, bytes));
        self.stored_reads[warp].note(now, words, 1 << lane, line);
    }

    /// Notes that a bulk copy to shared memory reads bytes until phase `phase` of mbarrier `index`.
    pub(super) fn note_copied(
        &mut self,
        index: usize,
        (offset, bytes): (u32, u32),
        phase: u32,
        line: u32,
    ) {
        let (now, words) = (self.stamp(phase), self.words(offset, bytes));
        let found = self.copied_reads.iter().position(|&(number, _)| number == index);
        let at = found.unwrap_or_else(|| {
            self.copied_reads.push((index, Reads::new(self.writes.len())));
            self.copied_reads.len() - 1
        });
        self.copied_reads[at].1.note(now, words, 1, line);
    }

    fn async_reads(&mut self, warp: usize) -> &mut Reads {
        if self.async_reads.is_empty() {
            let words = self.writes.len();
            self.async_reads = self.reads.iter().map(|_| Reads::new(words)).collect();
        }
        &mut self.async_reads[warp]
    }

    /// Checks weak loads by all lanes of a warp at `offsets`, and notes them in a list. Returns
    /// `false`, and has noted nothing, if they have to be looked at one by one.
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
        let (written, shift) = (&self.written, self.shift);
        let are_written = |part: &Part| {
            offsets.iter().all(|offset| {
                let (first, bytes) = (offset + part.offset, part.bytes);
                let end = (first + bytes).div_ceil(1 << shift);
                (first >> shift..end).all(|word| written[word as usize] > base)
            })
        };
        if state == State::Unknown
            || state == State::Partial && !self.loads.are_written(&listed, are_written)
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
    pub(super) fn note_oldest(&mut self, warp: usize) {
        let (reads, shift) = (&mut self.reads[warp], self.shift);
        self.loads.take_oldest(warp, |time, line, bytes, offsets| {
            for group in Groups::of(FULL, offsets) {
                let first = (offsets[group.trailing_zeros() as usize] >> shift) as usize;
                reads.note(time, first..first + (bytes >> shift) as usize, group, line);
            }
        });
    }

    pub(super) fn in_gap(&self, word: usize) -> bool {
        let at = ((word as u32) << self.shift) % self.stride;
        let after = self.gaps.partition_point(|&(from, _)| from <= at);
        after != 0 && at < self.gaps[after - 1].1
    }
}

/// Fails if one of `lanes` does not come after `write`.
#[inline(never)]
pub(super) fn check_write(
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
