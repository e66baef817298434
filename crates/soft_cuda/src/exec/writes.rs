//! Writes to shared memory.

use std::ops::Range;

use super::access::{AccessKind, Conflict, EarlierAccess, KINDS, Site};
use super::knowledge::Knowledge;
use super::machine::{FULL, LANES, bits};
use super::reads::Reads;
use super::shadow::{Shadow, Write, check_write};
use crate::checks::Checks;
use crate::fault::Access;

/// Who accesses, and on whose account: see [`super::clock`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer {
    pub warp: usize,
    pub lane: usize,
    pub agent: usize,
    pub time: u32,
}

impl Shadow {
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
        if mask == FULL
            && site.kind == AccessKind::Store
            && self.store_rows(known, checks, warp, site, offsets)
        {
            return Ok(());
        }
        let chunks = bits(mask).fold(0, |chunks, lane| {
            chunks | self.chunks.set(self.words(offsets[lane], site.bytes))
        });
        let least = bits(mask).map(|lane| offsets[lane]).min().unwrap_or(0);
        let most = bits(mask).map(|lane| offsets[lane]).max().unwrap_or(0);
        let bytes = least.into()..u64::from(most) + u64::from(site.bytes);
        self.find_unknown(known, warp, chunks, bytes);
        for lane in bits(mask) {
            let writer = Writer { warp, lane, agent: warp * LANES + lane, time };
            let result = self.write(known, checks, writer, site, offsets[lane], &same);
            result.map_err(|conflict| (lane, conflict))?;
        }
        Ok(())
    }

    /// Checks and notes stores by all lanes of a warp to words that all lanes may write, one behind
    /// another, or in up to eight such rows, as a transposed tile is stored: lane 0 in the first
    /// one, lane 1 in the second one, and so on. Returns `false`, and has noted nothing, if it is
    /// not that simple.
    #[inline(always)]
    fn store_rows(
        &mut self,
        known: &Knowledge,
        checks: Checks,
        warp: usize,
        site: Site,
        offsets: &[u32; LANES],
    ) -> bool {
        let in_rows = |rows: usize| {
            let pairs = offsets.iter().zip(&offsets[rows..]);
            pairs.fold(0, |differ, (a, b)| differ | b.wrapping_sub(*a) ^ site.bytes) == 0
        };
        let Some(rows) = [1, 2, 4, 8].into_iter().find(|&rows| in_rows(rows)) else {
            return false;
        };
        let bytes = site.bytes * (LANES / rows) as u32;
        let starts = &offsets[..rows];
        let apart = |(i, a): (usize, &u32)| starts[i + 1..].iter().all(|b| a.abs_diff(*b) >= bytes);
        let aligned = |start: &u32| start.is_multiple_of(1 << self.shift);
        if site.bytes < 1 << self.shift
            || !starts.iter().all(aligned)
            || !starts.iter().enumerate().all(apart)
            || !starts.iter().all(|&start| {
                let words = self.words(start, bytes);
                self.may_write(known, checks, (warp, false), words)
            })
        {
            return false;
        }
        let now = self.stamp(known.now(warp));
        for (row, &start) in starts.iter().enumerate() {
            let words = self.words(start, bytes);
            self.chunks.write_all(words.clone());
            self.written[words.clone()].fill(now);
            let each = words.len() / (LANES / rows);
            for (i, writes) in self.writes[words].chunks_exact_mut(each).enumerate() {
                let agent = (warp * LANES + row + i * rows) as u16;
                writes.fill(Write { line: site.line, agent, kind: site.kind as u8 });
            }
        }
        true
    }

    /// Whether all lanes of `warp` come after all accesses of some words, which lie in variables.
    /// `false` if there are none.
    fn may_write(
        &mut self,
        known: &Knowledge,
        checks: Checks,
        (warp, is_copy): (usize, bool),
        words: Range<usize>,
    ) -> bool {
        let stored = |reads: &Reads| reads.after(self.base, words.clone());
        let common = |agent| known.common(warp, agent);
        if words.is_empty()
            || self.has_unknown_products(known, common, words.clone())
            || self.stored_reads.iter().any(stored)
            || self.copied_reads.iter().any(|(_, reads)| stored(reads))
        {
            return false;
        }
        let reach = if checks.races { self.base + known.reach(warp) } else { u32::MAX };
        // The write that the one before came after.
        let mut passed = (0, 0);
        for word in words.clone() {
            let (time, agent) = (self.written[word], self.writes[word].agent);
            if time <= self.base {
                if checks.memory && !self.gaps.is_empty() && self.in_gap(word) {
                    return false;
                }
            } else if time > reach && (time, agent) != passed {
                if known.common(warp, agent.into()) < time - self.base {
                    return false;
                }
                passed = (time, agent);
            }
        }
        if checks.races {
            let bytes = (words.start as u64) << self.shift..(words.end as u64) << self.shift;
            let chunks = self.chunks.set(words.clone());
            match is_copy {
                true => self.find_unknown_of_copy(known, warp, chunks, bytes),
                false => self.find_unknown(known, warp, chunks, bytes),
            }
            for &other in &self.unknown {
                let floor = self.base + known.floor(warp, other);
                let after = |reads: &Reads| reads.after(floor, words.clone());
                if self.reads.get(other).is_some_and(after)
                    || self.async_reads.get(other).is_some_and(after)
                {
                    return false;
                }
            }
        }
        true
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
        let words = self.words(offset, site.bytes);
        if site.kind == AccessKind::Copy
            && offset.is_multiple_of(1 << self.shift)
            && site.bytes.is_multiple_of(1 << self.shift)
            && self.may_write(known, checks, (writer.warp, true), words.clone())
        {
            let (agent, kind) = (writer.agent as u16, site.kind as u8);
            let now = self.stamp(writer.time);
            self.chunks.write_all(words.clone());
            self.written[words.clone()].fill(now);
            self.writes[words].fill(Write { line: site.line, agent, kind });
            return Ok(());
        }
        let chunks = self.chunks.set(words);
        let bytes = offset.into()..u64::from(offset) + u64::from(site.bytes);
        self.find_unknown_of_copy(known, writer.warp, chunks, bytes);
        self.write(known, checks, writer, site, offset, &|_, _| false)
    }

    /// The next copies are those of another instruction: reads may have been noted since.
    #[inline(always)]
    pub(crate) fn begin_copies(&mut self) {
        self.searched = 0;
    }

    /// [`find_unknown`](Self::find_unknown) for a copy: nothing to do where it was done for another
    /// one of the same instruction, between which no reads are noted.
    #[inline(always)]
    fn find_unknown_of_copy(
        &mut self,
        known: &Knowledge,
        warp: usize,
        chunks: u64,
        bytes: Range<u64>,
    ) {
        let before = self.searched;
        if chunks & !before != 0 {
            self.find_unknown(known, warp, chunks, bytes);
            self.searched |= if self.searched == 0 { 0 } else { before };
        }
    }

    /// Finds the warps of which `warp` does not know all reads that are noted, once those from
    /// `bytes`, which are in `chunks`, are.
    fn find_unknown(&mut self, known: &Knowledge, warp: usize, chunks: u64, bytes: Range<u64>) {
        self.unknown.clear();
        let (base, floors) = (self.base, known.floors(warp));
        self.searched = chunks;
        for (other, &floor) in floors[..self.last_read.len()].iter().enumerate() {
            let known = base + floor;
            if self.last_read[other] > known {
                if self.loads.has_near(other, chunks, known) {
                    self.searched = 0;
                    while self.loads.has(other, (chunks, &bytes), known) {
                        self.note_oldest(other);
                    }
                }
                let is_later = |reads: &Reads| reads.latest > known;
                if self.reads.get(other).is_some_and(is_later)
                    || self.async_reads.get(other).is_some_and(is_later)
                {
                    self.unknown.push(other);
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
        let words = self.words(offset, site.bytes);
        let latest = |agent| known.latest(warp, lane, agent);
        let unknown_products =
            checks.races && self.has_unknown_products(known, latest, words.clone());
        for word in words {
            let (written, old) = (self.written[word], self.writes[word]);
            if written <= self.base {
                if checks.memory {
                    if self.in_gap(word) {
                        return Err(Conflict::NoVariable);
                    }
                    if site.kind.access() == Access::Atomic {
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
                    if reads.after(floor, word..word + 1) {
                        let agent = |reader| other * LANES + reader;
                        self.check_read(known, (warp, lane), (reads, other), word, agent)?;
                    }
                    if let Some(reads) = self.async_reads.get(other)
                        && reads.after(floor, word..word + 1)
                    {
                        let agent = |reader| other * LANES + reader;
                        self.check_read(known, (warp, lane), (reads, other), word, agent)?;
                    }
                }
            }
            if unknown_products {
                self.check_products(known, (warp, lane), word)?;
            }
            if checks.races {
                self.check_copied(known, (warp, lane), word)?;
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

    /// Fails if a lane does not come after the last read of a word by lanes of warp `other`, for
    /// each of which `agent` stands.
    #[inline(never)]
    fn check_read(
        &self,
        known: &Knowledge,
        by: (usize, usize),
        (reads, other): (&Reads, usize),
        word: usize,
        agent: impl Fn(usize) -> usize,
    ) -> Result<(), Conflict> {
        match reads.unknown(known, by, (word, self.base), agent) {
            None => Ok(()),
            Some(reader) => {
                let (line, access) = (reads.lines[word], Access::Load);
                let (block, agent) = (known.cluster, other * LANES + reader);
                Err(Conflict::Race(EarlierAccess { block, agent, line, access }))
            }
        }
    }

    /// Whether products have read one of `words` after the time up to which `knows` says that an
    /// agent is known.
    #[inline(always)]
    fn has_unknown_products(
        &self,
        known: &Knowledge,
        knows: impl Fn(usize) -> u32,
        words: Range<usize>,
    ) -> bool {
        self.product_reads.iter().enumerate().any(|(reader, reads)| {
            let latest = knows(known.agents.products_of(reader));
            reads.after(self.base + latest, words.clone())
        })
    }

    /// Fails if a lane does not come after the last products that read a word.
    #[cold]
    fn check_products(
        &self,
        known: &Knowledge,
        by: (usize, usize),
        word: usize,
    ) -> Result<(), Conflict> {
        for (reader, reads) in self.product_reads.iter().enumerate() {
            self.check_read(known, by, (reads, reader), word, |_| {
                known.agents.products_of(reader)
            })?;
        }
        Ok(())
    }

    /// Fails if a lane does not come after the last bulk copies that read a word.
    #[inline(always)]
    fn check_copied(
        &self,
        known: &Knowledge,
        by: (usize, usize),
        word: usize,
    ) -> Result<(), Conflict> {
        for (reader, reads) in self.stored_reads.iter().enumerate() {
            let agent = |lane| known.agents.stores_of(reader * LANES + lane);
            self.check_read(known, by, (reads, reader), word, agent)?;
        }
        for (index, reads) in &self.copied_reads {
            let agent = known.agents.mbarrier(*index);
            if reads.unknown(known, by, (word, self.base), |_| agent).is_some() {
                let (block, line, access) = (known.cluster, reads.lines[word], Access::Load);
                return Err(Conflict::Race(EarlierAccess { block, agent, line, access }));
            }
        }
        Ok(())
    }
}
