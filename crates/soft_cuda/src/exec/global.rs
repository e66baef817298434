//! Who accessed each word of device memory last, in one launch.
//!
//! Blocks run in parallel, so that the words are atomics. Two blocks that race at the very same
//! time on the host may overlook each other; one that comes later will not.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::access::{AccessKind, Conflict, EarlierAccess, Site};
use super::knowledge::Knowledge;
use super::machine::{FULL, LANES, bits};
use crate::fault::Access;

/// The time from which on a block's times are taken to be the same: no race is seen among
/// accesses so late.
const LAST_TIME: u32 = (1 << 20) - 1;

/// Words of a group: a warp that loads a whole one has that noted once.
const GROUP: usize = 8;

/// The reads of words, or of whole groups, whose words as many lanes read one after another.
struct Reads {
    last: Box<[AtomicU64]>,
    /// The last read by another warp than that of the last read of all.
    other: Box<[AtomicU64]>,
    last_lines: Box<[AtomicU32]>,
    other_lines: Box<[AtomicU32]>,
}

/// The accesses of one allocation.
struct WordShadow {
    writes: Box<[AtomicU64]>,
    write_lines: Box<[AtomicU32]>,
    reads: Reads,
    group_reads: Reads,
    /// Whether there is any write.
    written: AtomicBool,
}

/// The accesses of all allocations in one launch, in the order of its snapshot.
pub(crate) struct GlobalShadow {
    /// Logarithm of the bytes of a word.
    shift: u32,
    allocations: Vec<OnceLock<WordShadow>>,
}

/// An access in one word: block plus 1, thread, kind, of a group the logarithm of the words that
/// each lane reads, of a read of one word the number in [`TOGETHER`], and time.
#[derive(Clone, Copy)]
struct Packed(u64);

/// Kinds, as [`Packed`] has them.
const KINDS: [AccessKind; 4] =
    [AccessKind::Store, AccessKind::StrongStore, AccessKind::Atomic, AccessKind::Copy];
const READ_ONLY: u64 = 1;

/// Lanes from the first one on that are noted with a read of one word, of those that read it.
const TOGETHER: [usize; 4] = [1, 2, LANES / 2, LANES];

impl Packed {
    const KIND: u64 = 3 << 22;
    const EACH: u32 = 20;
    const TOGETHER: u32 = 20;
    /// Of a read: so is the other one that is kept, at the same time and by another warp.
    const PAIR: u64 = 2 << 22;

    fn new(block: u64, thread: usize, kind: u64, time: u32) -> Packed {
        let time = u64::from(time.min(LAST_TIME));
        Packed((block + 1) << 34 | (thread as u64) << 24 | kind << 22 | time)
    }

    fn block(self) -> u64 {
        (self.0 >> 34) - 1
    }

    fn thread(self) -> usize {
        (self.0 >> 24 & 0x3ff) as usize
    }

    fn kind(self) -> u64 {
        self.0 >> 22 & 3
    }

    fn time(self) -> u32 {
        self.0 as u32 & LAST_TIME
    }

    /// The read of word number `word` of a group.
    fn in_group(self, word: u64) -> Packed {
        let each = self.0 >> Packed::EACH & 3;
        let one = Packed(self.0 & !(3 << Packed::EACH));
        one.lane(((word % GROUP as u64) >> each) as usize)
    }

    /// A read of one word by so many lanes, from this one on.
    #[inline(always)]
    fn together(self, lanes: usize) -> Packed {
        let number = TOGETHER.iter().rposition(|&least| least <= lanes).unwrap_or(0);
        Packed(self.0 | (number as u64) << Packed::TOGETHER)
    }

    /// Those of a read of one word that are noted.
    fn each_lane(self) -> impl Iterator<Item = Packed> {
        let lanes = TOGETHER[(self.0 >> Packed::TOGETHER & 3) as usize];
        (0..lanes).map(move |lane| self.lane(lane))
    }

    /// The same by the lane that is `lane` after it.
    #[inline(always)]
    fn lane(self, lane: usize) -> Packed {
        Packed(self.0 + ((lane as u64) << 24))
    }

    /// Whether the threads are lanes of one warp.
    #[inline(always)]
    fn same_warp(self, other: Packed) -> bool {
        const LANE: u64 = (LANES as u64 - 1) << 24;
        const WHO: u64 = !0 << 24;
        (self.0 ^ other.0) & WHO & !LANE == 0
    }

    /// Whether it is a read of the same kind, in the same block and at the same time as `new`,
    /// whose warp knows nothing after `ceiling`.
    #[inline(always)]
    fn beside(self, new: Packed, ceiling: u32) -> bool {
        const WHEN: u64 = !0 << 34 | READ_ONLY << 22 | LAST_TIME as u64;
        (self.0 ^ new.0) & WHEN == 0 && new.time() > ceiling
    }

    /// Whether it is the second of two such reads by different warps. Where threads meet at barriers
    /// of the whole block alone, one of those does not come before any later write that `new` does
    /// not come before. Where some of the warps meet, those may be the two, and a race with `new` is
    /// missed, as it may be with any third read.
    #[inline(always)]
    fn is_pair_beside(self, new: Packed, ceiling: u32) -> bool {
        self.0 & Packed::PAIR != 0 && self.beside(new, ceiling)
    }

    /// Whether it comes before what `lane` of `warp` does now.
    fn is_before(self, known: &Knowledge, warp: usize, lane: usize) -> bool {
        let time = self.time();
        let (cluster, agent) = known.agent(self.block(), self.thread());
        if cluster == told_apart(known.cluster) {
            return known.knows(warp, lane, agent, time);
        }
        known.knows_foreign((warp, lane), cluster, agent, time)
    }

    fn earlier(self, line: u32, access: Access) -> EarlierAccess {
        EarlierAccess { block: self.block(), agent: self.thread(), line, access }
    }
}

/// The number of a block as [`Packed`] has it: grids of more blocks than fit do not run to
/// their end in anyone's life.
fn told_apart(block: u64) -> u64 {
    block.min((1 << 30) - 2)
}

/// A type for which all bytes may be zero.
///
/// # Safety
/// They may.
unsafe trait Zeroable {}
// SAFETY: it has the bits of an integer.
unsafe impl Zeroable for AtomicU32 {}
// SAFETY: as above.
unsafe impl Zeroable for AtomicU64 {}

/// Zeros. Fresh pages of the host are zero already, and most are never touched.
fn zeroed<T: Zeroable>(words: usize) -> Box<[T]> {
    // SAFETY: by the contract of the trait.
    unsafe { Box::new_zeroed_slice(words).assume_init() }
}

/// Where the accesses of word number `word` are: not in order, since kernels access matrices
/// along columns, whose strides are powers of two, and a word here has more bytes than there.
#[inline(always)]
fn place(word: u64) -> usize {
    (word ^ (word >> 6 & (SPREAD - 8))) as usize
}

/// Words among which [`place`] changes the order.
const SPREAD: u64 = 512;

impl Reads {
    fn new(places: usize) -> Reads {
        Reads {
            last: zeroed(places),
            other: zeroed(places),
            last_lines: zeroed(places),
            other_lines: zeroed(places),
        }
    }

    /// Notes a read. `ceiling` is a time after which the warp knows nothing.
    #[inline(always)]
    fn note(&self, ceiling: u32, at: usize, mut new: Packed, line: u32) {
        let last = Packed(self.last[at].load(Relaxed));
        if last.0 & !Packed::PAIR == new.0 || last.is_pair_beside(new, ceiling) {
            return;
        }
        if last.0 != 0 && !last.same_warp(new) {
            if last.beside(new, ceiling) {
                new.0 |= Packed::PAIR;
            }
            self.other_lines[at].store(self.last_lines[at].load(Relaxed), Relaxed);
            self.other[at].store(last.0, Relaxed);
        }
        self.last_lines[at].store(line, Relaxed);
        self.last[at].store(new.0, Relaxed);
    }

    /// Checks a write by a lane against them. `of` makes the read of the word that is written of
    /// one that is noted.
    #[inline(always)]
    fn check(
        &self,
        known: &Knowledge,
        (warp, lane): (usize, usize),
        at: usize,
        of: impl Fn(Packed) -> Packed,
    ) -> Result<(), Conflict> {
        for (reads, lines) in [(&self.last, &self.last_lines), (&self.other, &self.other_lines)] {
            let old = Packed(reads[at].load(Relaxed));
            if old.0 == 0 {
                break;
            }
            let old = of(old);
            let earlier = |old: Packed| old.earlier(lines[at].load(Relaxed), Access::Load);
            if old.kind() & READ_ONLY != 0 {
                return Err(Conflict::ReadOnlyCache(earlier(old)));
            }
            if let Some(old) = old.each_lane().find(|old| !old.is_before(known, warp, lane)) {
                return Err(Conflict::Race(earlier(old)));
            }
        }
        Ok(())
    }
}

impl WordShadow {
    /// For `words` words.
    fn new(words: u64) -> WordShadow {
        let words = words.next_multiple_of(SPREAD) as usize;
        WordShadow {
            writes: zeroed(words),
            write_lines: zeroed(words),
            reads: Reads::new(words),
            group_reads: Reads::new(words / GROUP),
            written: AtomicBool::new(false),
        }
    }

    fn note_write(&self, word: usize, new: Packed, line: u32) {
        let old = Packed(self.writes[word].load(Relaxed));
        // A plain store races with what an atomic behind it does not race with.
        if old.0 == new.0 & !Packed::KIND {
            return;
        }
        self.write_lines[word].store(line, Relaxed);
        self.writes[word].store(new.0, Relaxed);
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
        GlobalShadow { shift, allocations: (0..allocations).map(|_| OnceLock::new()).collect() }
    }

    fn words(&self, (index, size): (usize, u64)) -> &WordShadow {
        let words = || WordShadow::new(size.div_ceil(1 << self.shift));
        self.allocations[index].get_or_init(words)
    }

    /// Notes loads of `site.bytes` bytes at `offsets` into allocation number `index`, of `size`
    /// bytes, by the lanes `mask` of a warp. Returns `false`, and may have noted nothing, if they
    /// have to be checked one by one.
    #[inline(always)]
    pub(crate) fn note_loads(
        &self,
        known: &Knowledge,
        allocation: (usize, u64),
        (warp, mask): (usize, u32),
        site: Site,
        offsets: &[u64; LANES],
    ) -> bool {
        let words = self.words(allocation);
        if words.written.load(Relaxed) {
            return false;
        }
        let kind = if site.kind == AccessKind::ReadOnly { READ_ONLY } else { 0 };
        let (block, first) = known.place(warp);
        let new = Packed::new(told_apart(block), first, kind, known.now(warp));
        let ceiling = known.ceiling(warp);
        if mask != FULL {
            for lane in bits(mask) {
                self.note_load(words, (ceiling, new.lane(lane)), site, offsets[lane]);
            }
            return true;
        }
        // Both halves of a warp often read the same words.
        let (low, high) = offsets.split_at(LANES / 2);
        let mut differ = 0;
        for (a, b) in low.iter().zip(high) {
            differ |= a ^ b;
        }
        let lanes = if differ == 0 { LANES } else { LANES / 2 };
        self.note_half(words, (ceiling, new), site, (low, lanes));
        if differ != 0 {
            self.note_half(words, (ceiling, new.lane(LANES / 2)), site, (high, lanes));
        }
        true
    }

    /// Notes loads by half a warp, of which `new` is the first lane; `lanes` are those that do the
    /// same from there on.
    #[inline(always)]
    fn note_half(
        &self,
        words: &WordShadow,
        (ceiling, new): (u32, Packed),
        site: Site,
        (offsets, lanes): (&[u64], usize),
    ) {
        let mut differ = 0;
        for offset in offsets {
            differ |= offset ^ offsets[0];
        }
        if differ == 0 {
            return self.note_load(words, (ceiling, new.together(lanes)), site, offsets[0]);
        }
        let together = match (self.shift, site.bytes) {
            (2, 4) => read_groups::<8>(offsets),
            (2, 8) => read_groups::<4>(offsets),
            (2, 16) => read_groups::<2>(offsets),
            _ => false,
        };
        if together {
            let each = (site.bytes >> self.shift).trailing_zeros();
            for lane in (0..offsets.len()).step_by(GROUP >> each) {
                let at = place(offsets[lane] >> self.shift) / GROUP;
                let new = Packed(new.lane(lane).0 | u64::from(each) << Packed::EACH);
                words.group_reads.note(ceiling, at, new, site.line);
            }
            return;
        }
        let mut lane = 0;
        for run in offsets.chunk_by(|a, b| a == b) {
            let new = new.lane(lane).together(run.len());
            self.note_load(words, (ceiling, new), site, run[0]);
            lane += run.len();
        }
    }

    /// Notes a load by one lane.
    #[inline(always)]
    fn note_load(
        &self,
        words: &WordShadow,
        (ceiling, new): (u32, Packed),
        site: Site,
        offset: u64,
    ) {
        let end = (offset + u64::from(site.bytes)).div_ceil(1 << self.shift);
        for word in offset >> self.shift..end {
            words.reads.note(ceiling, place(word), new, site.line);
        }
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
        let words = self.words(allocation);
        let end = (offset + u64::from(site.bytes)).div_ceil(1 << self.shift);
        let (block, first) = known.place(warp);
        let (block, thread, time) = (told_apart(block), first + lane, known.now(warp));
        let kind = match site.kind {
            AccessKind::ReadOnly => READ_ONLY,
            AccessKind::StrongStore => 1,
            AccessKind::Atomic => 2,
            AccessKind::Copy => 3,
            _ => 0,
        };
        let new = Packed::new(block, thread, kind, time);
        let written = words.written.load(Relaxed);
        for number in offset >> self.shift..end {
            let word = place(number);
            if written && !quiet {
                let old = words.writes[word].load(Relaxed);
                if old != 0 && old != new.0 {
                    let line = || words.write_lines[word].load(Relaxed);
                    self.after_write(known, (warp, lane), site, Packed(old), line, &same)?;
                }
            }
            if site.kind.writes() {
                if !quiet {
                    words.check_reads(known, (warp, lane), number)?;
                }
                words.note_write(word, new, site.line);
            } else if !site.kind.strong() {
                words.reads.note(known.ceiling(warp), word, new, site.line);
            }
        }
        if site.kind.writes() && !written {
            words.written.store(true, Relaxed);
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
        if kind.strong() && site.kind.strong() || old.is_before(known, warp, lane) {
            return Ok(());
        }
        // The lanes of one instruction that store to one place: one of them comes last.
        let (block, first) = known.place(warp);
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

/// Whether every `LANES_EACH` lanes read one group of words of 4 bytes, one after another.
#[inline(always)]
fn read_groups<const LANES_EACH: usize>(offsets: &[u64]) -> bool {
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
