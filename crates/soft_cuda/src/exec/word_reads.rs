//! Who read each word of device memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::access::Conflict;
use super::knowledge::Knowledge;
use super::packed::{Packed, READ_ONLY};
use crate::fault::Access;

/// The reads of words, or of whole groups, whose words as many lanes read one after another.
pub(super) struct WordReads {
    last: Box<[AtomicU64]>,
    /// The last read by other lanes than that of the last read of all.
    other: Box<[AtomicU64]>,
    last_lines: Box<[AtomicU32]>,
    other_lines: Box<[AtomicU32]>,
    /// All others that the last two do not come after, with their lines.
    more: Mutex<HashMap<usize, Vec<(Packed, u32)>>>,
    /// Whether there are any.
    has_more: AtomicBool,
    /// Whether there are any reads.
    any: AtomicBool,
}

/// A type for which all bytes may be zero.
///
/// # Safety
/// They may.
pub(super) unsafe trait Zeroable {}
// SAFETY: it has the bits of an integer.
unsafe impl Zeroable for AtomicU32 {}
// SAFETY: as above.
unsafe impl Zeroable for AtomicU64 {}

/// Zeros. Fresh pages of the host are zero already, and most are never touched.
pub(super) fn zeroed<T: Zeroable>(words: usize) -> Box<[T]> {
    // SAFETY: by the contract of the trait.
    unsafe { Box::new_zeroed_slice(words).assume_init() }
}

impl WordReads {
    pub(super) fn new(places: usize) -> WordReads {
        WordReads {
            last: zeroed(places),
            other: zeroed(places),
            last_lines: zeroed(places),
            other_lines: zeroed(places),
            more: Mutex::default(),
            has_more: AtomicBool::new(false),
            any: AtomicBool::new(false),
        }
    }

    /// Notes a read. `before` says whether a read comes before this one. One through the read-only
    /// cache is kept even so: no write may come after it.
    #[inline(always)]
    pub(super) fn note(&self, before: impl Fn(Packed) -> bool, at: usize, new: Packed, line: u32) {
        let last = Packed(self.last[at].load(Relaxed));
        if last == new {
            return;
        }
        if !self.any.load(Relaxed) {
            self.any.store(true, Relaxed);
        }
        if last.0 != 0 && !last.same_lanes(new) {
            let other = Packed(self.other[at].load(Relaxed));
            let is_covered = || other.kind() & READ_ONLY == 0 && before(other);
            if other.0 != 0 && !other.same_lanes(last) && !other.same_lanes(new) && !is_covered() {
                self.keep(at, other, self.other_lines[at].load(Relaxed));
            }
            self.other_lines[at].store(self.last_lines[at].load(Relaxed), Relaxed);
            self.other[at].store(last.0, Relaxed);
        }
        self.last_lines[at].store(line, Relaxed);
        self.last[at].store(new.0, Relaxed);
    }

    /// Keeps a third read.
    #[inline(never)]
    fn keep(&self, at: usize, read: Packed, line: u32) {
        let mut more = self.more.lock().unwrap_or_else(PoisonError::into_inner);
        let here = more.entry(at).or_default();
        match here.iter_mut().find(|(kept, _)| kept.same_lanes(read)) {
            Some(kept) => *kept = (read, line),
            None => here.push((read, line)),
        }
        self.has_more.store(true, Relaxed);
    }

    /// Checks a write by a lane against them. `of` makes the read of the word that is written of
    /// one that is noted.
    #[inline(always)]
    pub(super) fn check(
        &self,
        known: &Knowledge,
        by: (usize, usize),
        at: usize,
        of: impl Fn(Packed) -> Packed,
    ) -> Result<(), Conflict> {
        if !self.any.load(Relaxed) {
            return Ok(());
        }
        for (reads, lines) in [(&self.last, &self.last_lines), (&self.other, &self.other_lines)] {
            let old = Packed(reads[at].load(Relaxed));
            if old.0 == 0 {
                return Ok(());
            }
            check_read(known, by, of(old), || lines[at].load(Relaxed))?;
        }
        if !self.has_more.load(Relaxed) {
            return Ok(());
        }
        let more = self.more.lock().unwrap_or_else(PoisonError::into_inner);
        let here = more.get(&at).into_iter().flatten();
        here.into_iter().try_for_each(|&(old, line)| check_read(known, by, of(old), || line))
    }
}

/// Fails if a write by a lane does not come after a read of the same word.
#[inline(always)]
fn check_read(
    known: &Knowledge,
    (warp, lane): (usize, usize),
    old: Packed,
    line: impl Fn() -> u32,
) -> Result<(), Conflict> {
    let earlier = |old: Packed| old.earlier(line(), Access::Load);
    if old.kind() & READ_ONLY != 0 {
        return Err(Conflict::ReadOnlyCache(earlier(old)));
    }
    match old.each_lane().find(|old| !old.is_before(known, warp, lane)) {
        Some(old) => Err(Conflict::Race(earlier(old))),
        None => Ok(()),
    }
}
