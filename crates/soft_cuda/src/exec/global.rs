//! Who accessed each word of device memory last, in one launch.
//!
//! Blocks run in parallel, so that the words are atomics. Two blocks that race at the very same
//! time on the host may overlook each other; one that comes later will not.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::access::{AccessKind, Conflict, Earlier, Site};
use super::knowledge::Knowledge;
use super::machine::LANES;
use crate::fault::Access;

/// The time from which on a block's times are taken to be the same: no race is seen among
/// accesses so late.
const LAST_TIME: u32 = (1 << 20) - 1;

/// The accesses of one allocation.
struct Words {
    writes: Box<[AtomicU64]>,
    write_lines: Box<[AtomicU32]>,
    reads: Box<[AtomicU64]>,
    read_lines: Box<[AtomicU32]>,
    /// The last read by another warp than that of the last read of all.
    other_reads: Box<[AtomicU64]>,
    other_lines: Box<[AtomicU32]>,
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
            read_lines: zeroed(words),
            other_reads: zeroed(words),
            other_lines: zeroed(words),
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

    fn note_read(&self, word: usize, new: Packed, line: u32) {
        let old = Packed(self.reads[word].load(Relaxed));
        if old.0 == new.0 {
            return;
        }
        if old.0 != 0 && !old.same_warp(new) {
            self.other_lines[word].store(self.read_lines[word].load(Relaxed), Relaxed);
            self.other_reads[word].store(old.0, Relaxed);
        }
        self.read_lines[word].store(line, Relaxed);
        self.reads[word].store(new.0, Relaxed);
    }

    /// Checks a write by a lane against the reads of a word.
    fn check_reads(
        &self,
        known: &Knowledge,
        (warp, lane): (usize, usize),
        word: usize,
    ) -> Result<(), Conflict> {
        let all = [(&self.reads, &self.read_lines), (&self.other_reads, &self.other_lines)];
        for (reads, lines) in all {
            let old = Packed(reads[word].load(Relaxed));
            if old.0 == 0 {
                break;
            }
            let earlier = || old.earlier(lines[word].load(Relaxed), Access::Load);
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

    /// Checks and notes an access of `site.bytes` bytes at `offset` into allocation number
    /// `index`, of `size` bytes, by lane `lane` of warp `warp`.
    #[inline(always)]
    pub(crate) fn access(
        &self,
        known: &Knowledge,
        (index, size): (usize, u64),
        (warp, lane): (usize, usize),
        site: Site,
        offset: u64,
        same: impl Fn(usize) -> bool,
    ) -> Result<(), Conflict> {
        let words = self.allocations[index]
            .get_or_init(|| Words::new(size.div_ceil(1 << self.shift) as usize));
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
                words.note_read(word, new, site.line);
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
