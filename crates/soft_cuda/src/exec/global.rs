//! Who accessed each word of device memory last, in one launch.
//!
//! Blocks run in parallel. What is noted of a page is checked and noted under its lock, so that of
//! two accesses that race one finds the other, whenever they happen on the host.
//!
//! As long as nobody writes to an allocation, its loads are on logs: see [`super::read_log`].

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::access::{AccessKind, Conflict, Site};
use super::knowledge::Knowledge;
use super::machine::{FULL, LANES, bits};
use super::packed::{GROUP, KINDS, Packed, time_of, told_apart};
use super::read_log::Record;
use super::stripes::{Held, Stripes};
use super::word_reads::WordReads;
use super::word_writes::WordWrites;
use crate::fault::Access;

/// The most records of one allocation, which take about 100 MB.
const RECORDS: usize = 1 << 20;

/// The accesses of one allocation.
#[derive(Default)]
struct Accesses {
    /// Whether they are noted in `words`; before that, in `log`.
    by_word: AtomicBool,
    /// Whether there is any write.
    written: AtomicBool,
    log: Mutex<Vec<Record>>,
    words: OnceLock<WordShadow>,
}

/// Those of each word.
struct WordShadow {
    writes: WordWrites,
    reads: WordReads,
    group_reads: WordReads,
}

/// The accesses of all allocations in one launch, in the order of its snapshot.
pub(crate) struct GlobalShadow {
    /// Logarithm of the bytes of a word.
    shift: u32,
    allocations: Vec<Accesses>,
    stripes: Stripes,
}

/// Where the accesses of word number `word` are: not in order, since kernels access matrices
/// along columns, whose strides are powers of two, and a word here has more bytes than there.
#[inline(always)]
fn place(word: u64) -> usize {
    (word ^ (word >> 6 & (SPREAD - 8))) as usize
}

/// Words among which [`place`] changes the order.
const SPREAD: u64 = 512;

impl WordShadow {
    /// For `words` words.
    fn new(words: u64) -> WordShadow {
        let words = words.next_multiple_of(SPREAD) as usize;
        WordShadow {
            writes: WordWrites::new(words),
            reads: WordReads::new(words),
            group_reads: WordReads::new(words / GROUP),
        }
    }

    /// Checks a write by a lane against the reads of a word.
    fn check_reads(
        &self,
        known: &Knowledge,
        (warp, lane): (usize, usize),
        number: u64,
    ) -> Result<(), Conflict> {
        let word = place(number);
        self.reads.check(known, (warp, lane), word, |read| read)?;
        let group = |read: Packed| read.in_group(number);
        self.group_reads.check(known, (warp, lane), word / GROUP, group)
    }
}

impl GlobalShadow {
    /// For `allocations` allocations, none of which has been accessed.
    pub(crate) fn new(allocations: usize, shift: u32) -> GlobalShadow {
        let allocations = (0..allocations).map(|_| Accesses::default()).collect();
        GlobalShadow { shift, allocations, stripes: Stripes::new() }
    }

    fn words(&self, (index, size): (usize, u64)) -> &WordShadow {
        let words = || WordShadow::new(size.div_ceil(1 << self.shift));
        self.allocations[index].words.get_or_init(words)
    }

    /// Whether accesses of allocation number `index` are noted word by word.
    #[inline(always)]
    pub(crate) fn by_word(&self, index: usize) -> bool {
        self.allocations[index].by_word.load(Relaxed)
    }

    /// From now on the accesses of allocation number `index`, of `size` bytes, are noted word by
    /// word: so are those on its log.
    #[inline(never)]
    pub(crate) fn use_words(&self, (index, size): (usize, u64)) {
        let accesses = &self.allocations[index];
        let mut log = accesses.log.lock().unwrap_or_else(PoisonError::into_inner);
        for record in std::mem::take(&mut *log) {
            self.note_record((index, size), &record, |_, _| {});
        }
        accesses.by_word.store(true, Relaxed);
    }

    /// Puts what the cluster of `known` has loaded on the log of an allocation. If its accesses are
    /// noted word by word, so is this; then fails if another cluster wrote what was loaded: nothing
    /// orders the two, since whoever releases what it did has put its loads on the log before.
    /// Returns the lane and the offset, too.
    pub(super) fn put(
        &self,
        known: &Knowledge,
        (index, size): (usize, u64),
        record: Record,
    ) -> Result<(), (usize, u64, Conflict)> {
        let accesses = &self.allocations[index];
        {
            let mut log = accesses.log.lock().unwrap_or_else(PoisonError::into_inner);
            if !accesses.by_word.load(Relaxed) {
                log.push(record);
                if log.len() < RECORDS {
                    return Ok(());
                }
                drop(log);
                self.use_words((index, size));
                return Ok(());
            }
        }
        let (accesses, words) = (&self.allocations[index], self.words((index, size)));
        let own = told_apart(known.cluster);
        let mut found = Ok(());
        self.note_record((index, size), &record, |mask, offsets| {
            if !accesses.written.load(Relaxed) {
                return;
            }
            for lane in bits(mask) {
                let (from, bytes) = (offsets[lane], u64::from(record.site.bytes));
                let end = (from + bytes).div_ceil(1 << self.shift);
                for word in (from >> self.shift..end).map(place) {
                    let Some(old) = words.writes.last(word) else { continue };
                    if known.agent(old.block(), old.thread()).0 != own && found.is_ok() {
                        let kind = KINDS[old.kind() as usize].access();
                        let earlier = old.earlier(words.writes.line(word), kind);
                        let conflict = match record.site.kind {
                            AccessKind::ReadOnly => Conflict::ReadOnlyCache(earlier),
                            _ => Conflict::Race(earlier),
                        };
                        found = Err((lane, from, conflict));
                    }
                }
            }
        });
        found
    }

    /// What was accessed of the bytes at `offset` into an allocation, by another launch, that
    /// conflicts with an access of `site`: a write, or a read of what that writes. Returns the PTX
    /// line and the access, too.
    pub(super) fn conflict(
        &self,
        (index, size): (usize, u64),
        offset: u64,
        site: Site,
    ) -> Option<(Packed, u32, Access)> {
        if site.kind.writes() && !self.by_word(index) {
            self.use_words((index, size));
        }
        let words = self.allocations[index].words.get()?;
        let end = (offset + u64::from(site.bytes)).min(size).div_ceil(1 << self.shift);
        (offset >> self.shift..end).find_map(|number| {
            let at = place(number);
            // No block of another launch is of the same one's scope.
            let old = words.writes.last(at).filter(|old| !old.is_strong_with(u64::MAX, site));
            if let Some(old) = old {
                return Some((old, words.writes.line(at), KINDS[old.kind() as usize].access()));
            }
            let in_group = |(read, line): (Packed, u32)| (read.in_group(number), line);
            let read = || words.reads.last(at).or(words.group_reads.last(at / GROUP).map(in_group));
            let (read, line) = site.kind.writes().then(read)??;
            Some((read, line, Access::Load))
        })
    }

    /// Whether anything accessed an allocation.
    pub(crate) fn is_accessed(&self, index: usize) -> bool {
        let Accesses { words, log, .. } = &self.allocations[index];
        let has_log = || !log.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        words.get().is_some() || has_log()
    }

    /// About a sixth of the memory for these allocations, which are given with their numbers, and for
    /// the rest.
    pub(crate) fn bytes(&self, accessed: &[(u64, u64, usize)]) -> u64 {
        let bytes = accessed.iter().map(|(_, size, index)| {
            let Accesses { words, log, .. } = &self.allocations[*index];
            let log = log.lock().unwrap_or_else(PoisonError::into_inner);
            words.get().map_or(16 * log.len() as u64, |_| *size + (SPREAD << self.shift))
        });
        let rest = self.allocations.len() * size_of::<Accesses>() / 6;
        bytes.sum::<u64>() + rest as u64 + (1 << 10)
    }

    /// Notes the loads of a record in their words, and calls `then` with the lanes and offsets of
    /// each, as long as nobody else accesses them.
    fn note_record(
        &self,
        allocation: (usize, u64),
        record: &Record,
        mut then: impl FnMut(u32, &[u64; LANES]),
    ) {
        let words = self.words(allocation);
        let (block, kind) = (told_apart(record.block), record.site.kind);
        record.each(|time, mask, offsets| {
            let new = Packed::read(block, record.thread, kind, time);
            let _held = self.lock(allocation.0, mask, record.site, offsets);
            // What the warp knew then is not known any more.
            self.note_all(words, |_| false, (new, mask), record.site, offsets);
            then(mask, offsets);
        });
    }

    /// Locks what the lanes `mask` access.
    #[inline(always)]
    fn lock(&self, index: usize, mask: u32, site: Site, offsets: &[u64; LANES]) -> Held<'_> {
        self.stripes.lock(index, bits(mask).map(|lane| offsets[lane]), site.bytes)
    }

    /// Notes loads of `site.bytes` bytes at `offsets` into allocation number `index`, of `size`
    /// bytes, by the lanes `mask` of a warp. Returns `false`, and has noted nothing, if they
    /// have to be checked one by one.
    #[inline(never)]
    pub(crate) fn note_loads(
        &self,
        known: &Knowledge,
        allocation: (usize, u64),
        (warp, mask): (usize, u32),
        site: Site,
        offsets: &[u64; LANES],
    ) -> bool {
        let _held = self.lock(allocation.0, mask, site, offsets);
        if self.allocations[allocation.0].written.load(Relaxed) {
            return false;
        }
        let ((block, first), time) = (known.place(warp), time_of(known, warp, site.kind));
        let new = Packed::read(told_apart(block), first, site.kind, time);
        let before = |old: Packed| old.all_before(known, warp);
        self.note_all(self.words(allocation), before, (new, mask), site, offsets);
        true
    }

    /// Notes loads by the lanes `mask` of a warp, of which `new` is the first. `before` is as for
    /// [`WordReads::note`].
    #[inline(always)]
    fn note_all(
        &self,
        words: &WordShadow,
        before: impl Fn(Packed) -> bool + Copy,
        (new, mask): (Packed, u32),
        site: Site,
        offsets: &[u64; LANES],
    ) {
        if mask != FULL {
            for lane in bits(mask) {
                self.note_load(words, before, new.lane(lane), site, offsets[lane]);
            }
            return;
        }
        // Both halves of a warp often read the same words.
        let (low, high) = offsets.split_at(LANES / 2);
        let mut differ = 0;
        for (a, b) in low.iter().zip(high) {
            differ |= a ^ b;
        }
        let lanes = if differ == 0 { LANES } else { LANES / 2 };
        self.note_half(words, before, new, site, (low, lanes));
        if differ != 0 {
            self.note_half(words, before, new.lane(LANES / 2), site, (high, lanes));
        }
    }

    /// Notes loads by half a warp, of which `new` is the first lane; `lanes` are those that do the
    /// same from there on.
    #[inline(always)]
    fn note_half(
        &self,
        words: &WordShadow,
        before: impl Fn(Packed) -> bool + Copy,
        new: Packed,
        site: Site,
        (offsets, lanes): (&[u64], usize),
    ) {
        let mut differ = 0;
        for offset in offsets {
            differ |= offset ^ offsets[0];
        }
        if differ == 0 {
            return self.note_load(words, before, new.together(lanes), site, offsets[0]);
        }
        if let Some(each) = self.in_groups(site.bytes, offsets) {
            for lane in (0..offsets.len()).step_by(GROUP >> each) {
                let at = place(offsets[lane] >> self.shift) / GROUP;
                let new = Packed(new.lane(lane).0 | u64::from(each) << Packed::EACH);
                words.group_reads.note(before, at, new, site.line);
            }
            return;
        }
        let mut lane = 0;
        for run in offsets.chunk_by(|a, b| a == b) {
            let new = new.lane(lane).together(run.len());
            self.note_load(words, before, new, site, run[0]);
            lane += run.len();
        }
    }

    /// Notes a load by one lane.
    #[inline(always)]
    fn note_load(
        &self,
        words: &WordShadow,
        before: impl Fn(Packed) -> bool + Copy,
        new: Packed,
        site: Site,
        offset: u64,
    ) {
        let end = (offset + u64::from(site.bytes)).div_ceil(1 << self.shift);
        for word in offset >> self.shift..end {
            words.reads.note(before, place(word), new, site.line);
        }
    }

    /// Checks and notes plain loads or stores by all lanes of a warp at `offsets` into allocation
    /// number `index`, of `size` bytes, whose accesses are noted word by word, if the lanes access
    /// whole groups one after another and come after all that was done there. Returns `false`, and
    /// has noted nothing, if they have to be checked one by one.
    #[inline(never)]
    pub(crate) fn access_groups(
        &self,
        known: &Knowledge,
        (index, size): (usize, u64),
        warp: usize,
        site: Site,
        offsets: &[u64; LANES],
    ) -> bool {
        let Some(each) = self.in_groups(site.bytes, offsets) else { return false };
        let (accesses, words) = (&self.allocations[index], self.words((index, size)));
        let (block, first) = known.place(warp);
        let new = Packed::new(told_apart(block), first, 0, known.now(warp));
        let lanes = GROUP >> each;
        let group = |lane: usize| place(offsets[lane] >> self.shift) / GROUP;
        let by = |lane: usize| Packed(new.lane(lane).0 | u64::from(each) << Packed::EACH);
        let store = site.kind.writes();
        let _held = self.lock(index, FULL, site, offsets);
        // What the one before came after, and so does this.
        let mut passed = None;
        let mut is_before = |old: Packed, lane: usize| {
            old.same_lanes(by(lane)) || passed == Some(old.of_warp()) || {
                let before = old.warp_before(known, warp);
                passed = before.then_some(old.of_warp()).or(passed);
                before
            }
        };
        for lane in (0..LANES).step_by(lanes) {
            let at = group(lane);
            let after_writes = words.writes.of_group(at, |old| is_before(old, lane));
            if !after_writes
                || store && !words.reads.none_in_group(at)
                || store && !words.group_reads.all(at, |old| is_before(old, lane))
            {
                return false;
            }
        }
        for lane in (0..LANES).step_by(lanes) {
            let at = group(lane);
            match store {
                true => words.writes.note_group(at, by(lane), site.line),
                false => {
                    let before = |old: Packed| old.all_before(known, warp);
                    words.group_reads.note(before, at, by(lane), site.line);
                }
            }
        }
        if store && !accesses.written.load(Relaxed) {
            accesses.written.store(true, Relaxed);
        }
        true
    }

    /// The logarithm of the words that each lane accesses of a group, if the lanes at `offsets`
    /// access whole groups one after another.
    #[inline(always)]
    fn in_groups(&self, bytes: u32, offsets: &[u64]) -> Option<u32> {
        let together = match (self.shift, bytes) {
            (2, 4) => whole_groups::<8>(offsets),
            (2, 8) => whole_groups::<4>(offsets),
            (2, 16) => whole_groups::<2>(offsets),
            _ => false,
        };
        together.then(|| (bytes >> self.shift).trailing_zeros())
    }

    /// Checks and notes an access of `site.bytes` bytes at `offset` into allocation number
    /// `index`, of `size` bytes, by lane `lane` of warp `warp`; if `quiet`, only notes it.
    #[inline(always)]
    pub(crate) fn access(
        &self,
        known: &Knowledge,
        allocation: (usize, u64),
        (warp, lane): (usize, usize),
        (site, quiet): (Site, bool),
        offset: u64,
        same: impl Fn(usize) -> bool,
    ) -> Result<(), Conflict> {
        let accesses = &self.allocations[allocation.0];
        let words = self.words(allocation);
        let end = (offset + u64::from(site.bytes)).div_ceil(1 << self.shift);
        let (block, first) = known.place(warp);
        let (block, thread, time) =
            (told_apart(block), first + lane, time_of(known, warp, site.kind));
        let new = match site.kind.writes() {
            true => Packed::write(block, thread, site, time),
            false => Packed::read(block, thread, site.kind, time),
        };
        let _held = self.stripes.lock(allocation.0, [offset], site.bytes);
        let written = accesses.written.load(Relaxed);
        // The write that the one before came after, and so does this.
        let mut passed = None;
        for number in offset >> self.shift..end {
            let word = place(number);
            if written
                && !quiet
                && let Some(old) = words.writes.last(word)
                && old != new
                && Some(old) != passed
            {
                let line = || words.writes.line(word);
                self.after_write(known, (warp, lane), site, old, line, &same)?;
                passed = Some(old);
            }
            if site.kind.writes() {
                if !quiet {
                    words.check_reads(known, (warp, lane), number)?;
                }
                words.writes.note(word, new, site.line);
            } else if !site.kind.strong() {
                let before = |old: Packed| old.all_before(known, warp);
                words.reads.note(before, word, new, site.line);
            }
        }
        if site.kind.writes() && !written {
            accesses.written.store(true, Relaxed);
        }
        Ok(())
    }

    /// Checks an access that comes after the write `old`.
    #[inline(never)]
    fn after_write(
        &self,
        known: &Knowledge,
        (warp, lane): (usize, usize),
        site: Site,
        old: Packed,
        line: impl Fn() -> u32,
        same: &impl Fn(usize) -> bool,
    ) -> Result<(), Conflict> {
        let kind = KINDS[old.kind() as usize];
        if site.kind == AccessKind::ReadOnly {
            return Err(Conflict::ReadOnlyCache(old.earlier(line(), kind.access())));
        }
        let (block, first) = known.place(warp);
        if old.is_strong_with(told_apart(block), site) || old.is_before(known, warp, lane) {
            return Ok(());
        }
        // The lanes of one instruction that store to one place: one of them comes last.
        let together = old.block() == told_apart(block)
            && old.thread() / LANES == first / LANES
            && old.time() == known.now(warp)
            && line() == site.line
            && same(old.thread() % LANES);
        match together {
            true => Ok(()),
            false => Err(Conflict::Race(old.earlier(line(), kind.access()))),
        }
    }
}

/// Whether every `LANES_EACH` lanes access one group of words of 4 bytes, one after another.
#[inline(always)]
fn whole_groups<const LANES_EACH: usize>(offsets: &[u64]) -> bool {
    const BYTES: usize = GROUP * 4;
    let mut differ = 0;
    for lanes in offsets.chunks_exact(LANES_EACH) {
        differ |= lanes[0] % BYTES as u64;
        for (i, lane) in lanes.iter().enumerate() {
            differ |= lane.wrapping_sub(lanes[0]) ^ (i * (BYTES / LANES_EACH)) as u64;
        }
    }
    differ == 0
}
