//! Who accessed each word of device memory last, in one launch.
//!
//! Blocks run in parallel, so that the words are atomics. Two blocks that race at the very same
//! time on the host may overlook each other; one that comes later will not.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::access::{AccessKind, Conflict, Earlier, Site};
use super::knowledge::Knowledge;
use super::machine::{LANES, bits};
use crate::fault::Access;

/// The time from which on a block's times are taken to be the same: no race is seen among
/// accesses so late.
const LAST_TIME: u32 = (1 << 20) - 1;

/// The reads of a word: the last one, and the last one before it by another warp.
struct Reads {
    last: AtomicU64,
    other: AtomicU64,
    last_line: AtomicU32,
    other_line: AtomicU32,
}

/// The accesses of one allocation.
struct Words {
    writes: Box<[AtomicU64]>,
    write_lines: Box<[AtomicU32]>,
    reads: Box<[Reads]>,
    /// Whether there is any write.
    written: AtomicBool,
}

/// The accesses of all allocations in one launch, in the order of its snapshot.
pub(crate) struct GlobalShadow {
    /// Logarithm of the bytes of a word.
    shift: u32,
    allocations: Vec<OnceLock<Words>>,
}

/// An access in one word: block plus 1, thread, kind, and time.
#[derive(Clone, Copy)]
struct Packed(u64);

/// Kinds, as [`Packed`] has them.
const KINDS: [AccessKind; 4] =
    [AccessKind::Store, AccessKind::StrongStore, AccessKind::Atomic, AccessKind::Copy];
const READ_ONLY: u64 = 1;

impl Packed {
    const KIND: u64 = 3 << 20;

    fn new(block: u64, thread: usize, kind: u64, time: u32) -> Packed {
        let time = u64::from(time.min(LAST_TIME));
        Packed((block + 1) << 32 | (thread as u64) << 22 | kind << 20 | time)
    }

    fn block(self) -> u64 {
        (self.0 >> 32) - 1
    }

    fn thread(self) -> usize {
        (self.0 >> 22 & 0x3ff) as usize
    }

    fn kind(self) -> u64 {
        self.0 >> 20 & 3
    }

    fn time(self) -> u32 {
        self.0 as u32 & LAST_TIME
    }

    fn same_block(self, other: Packed) -> bool {
        (self.0 ^ other.0) >> 32 == 0
    }

    /// Whether the threads are lanes of one warp.
    fn same_warp(self, other: Packed) -> bool {
        const LANE: u64 = (LANES as u64 - 1) << 22;
        const WHO: u64 = !0 << 22;
        (self.0 ^ other.0) & WHO & !LANE == 0
    }

    /// Whether it comes before what `lane` of `warp` does now.
    fn is_before(self, known: &Knowledge, warp: usize, lane: usize) -> bool {
        let (thread, time) = (self.thread(), self.time());
        if self.block() == told_apart(known.block) {
            return known.knows(warp, lane, thread, time);
        }
        known.knows_foreign((warp, lane), self.block(), thread, time)
    }

    fn earlier(self, line: u32, access: Access) -> Earlier {
        Earlier { block: self.block(), agent: self.thread(), line, access }
    }
}

/// The number of a block as [`Packed`] has it: grids of more blocks than fit do not run to
/// their end in anyone's life.
fn told_apart(block: u64) -> u64 {
    block.min(u64::from(u32::MAX - 1))
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
// SAFETY: it consists of such.
unsafe impl Zeroable for Reads {}

/// Zeros. Fresh pages of the host are zero already, and most are never touched.
fn zeroed<T: Zeroable>(words: usize) -> Box<[T]> {
    // SAFETY: by the contract of the trait.
    unsafe { Box::new_zeroed_slice(words).assume_init() }
}

impl Words {
    fn new(words: usize) -> Words {
        Words {
            writes: zeroed(words),
            write_lines: zeroed(words),
            reads: zeroed(words),
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

    #[inline(always)]
    fn note_read(&self, known: &Knowledge, warp: usize, word: usize, new: Packed, line: u32) {
        let reads = &self.reads[word];
        let last = Packed(reads.last.load(Relaxed));
        if last.0 == new.0 {
            return;
        }
        if last.0 != 0 && !last.same_warp(new) {
            let other = Packed(reads.other.load(Relaxed));
            // Two reads by other warps that nothing orders before this one: who writes later
            // and does not come after this one, does not come after one of those either.
            let beside = |read: Packed| {
                read.same_block(new) && known.common(warp, read.thread()) < read.time()
            };
            if beside(last) && beside(other) && !other.same_warp(new) {
                return;
            }
            reads.other_line.store(reads.last_line.load(Relaxed), Relaxed);
            reads.other.store(last.0, Relaxed);
        }
        reads.last_line.store(line, Relaxed);
        reads.last.store(new.0, Relaxed);
    }

    /// Checks a write by a lane against the reads of a word.
    fn check_reads(
        &self,
        known: &Knowledge,
        (warp, lane): (usize, usize),
        word: usize,
    ) -> Result<(), Conflict> {
        let Reads { last, other, last_line, other_line } = &self.reads[word];
        for (read, line) in [(last, last_line), (other, other_line)] {
            let old = Packed(read.load(Relaxed));
            if old.0 == 0 {
                break;
            }
            let earlier = || old.earlier(line.load(Relaxed), Access::Load);
            if old.kind() == READ_ONLY {
                return Err(Conflict::ReadOnlyCache(earlier()));
            }
            if !old.is_before(known, warp, lane) {
                return Err(Conflict::Race(earlier()));
            }
        }
        Ok(())
    }
}

impl GlobalShadow {
    /// For `allocations` allocations, none of which has been accessed.
    pub(crate) fn new(allocations: usize, shift: u32) -> GlobalShadow {
        GlobalShadow { shift, allocations: (0..allocations).map(|_| OnceLock::new()).collect() }
    }

    fn words(&self, (index, size): (usize, u64)) -> &Words {
        let words = || Words::new(size.div_ceil(1 << self.shift) as usize);
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
        let new = Packed::new(told_apart(known.block), warp * LANES, kind, known.now(warp)).0;
        let mut done = u64::MAX;
        for lane in bits(mask) {
            // Neighbouring lanes often read the same word.
            let offset = offsets[lane];
            if offset == done {
                continue;
            }
            done = offset;
            let new = Packed(new + ((lane as u64) << 22));
            let end = (offset + u64::from(site.bytes)).div_ceil(1 << self.shift);
            for word in offset >> self.shift..end {
                words.note_read(known, warp, word as usize, new, site.line);
            }
        }
        true
    }

    /// Checks and notes an access of `site.bytes` bytes at `offset` into allocation number
    /// `index`, of `size` bytes, by lane `lane` of warp `warp`.
    #[inline(always)]
    pub(crate) fn access(
        &self,
        known: &Knowledge,
        allocation: (usize, u64),
        (warp, lane): (usize, usize),
        site: Site,
        offset: u64,
        same: impl Fn(usize) -> bool,
    ) -> Result<(), Conflict> {
        let words = self.words(allocation);
        let first = (offset >> self.shift) as usize;
        let end = (offset + u64::from(site.bytes)).div_ceil(1 << self.shift) as usize;
        let block = told_apart(known.block);
        let (thread, time) = (warp * LANES + lane, known.now(warp));
        let kind = match site.kind {
            AccessKind::ReadOnly => READ_ONLY,
            AccessKind::StrongStore => 1,
            AccessKind::Atomic => 2,
            AccessKind::Copy => 3,
            _ => 0,
        };
        let new = Packed::new(block, thread, kind, time);
        let written = words.written.load(Relaxed);
        for word in first..end {
            if written {
                let old = words.writes[word].load(Relaxed);
                if old != 0 && old != new.0 {
                    let line = || words.write_lines[word].load(Relaxed);
                    self.after_write(known, (warp, lane), site, Packed(old), line, &same)?;
                }
            }
            if site.kind.writes() {
                words.check_reads(known, (warp, lane), word)?;
                words.note_write(word, new, site.line);
            } else if !site.kind.strong() {
                words.note_read(known, warp, word, new, site.line);
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
        let together = old.block() == told_apart(known.block)
            && old.thread() / LANES == warp
            && old.time() == known.now(warp)
            && line() == site.line
            && same(old.thread() % LANES);
        match together {
            true => Ok(()),
            false => Err(Conflict::Race(old.earlier(line(), kind.access()))),
        }
    }
}
