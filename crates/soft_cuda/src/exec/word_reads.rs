//! Who read each word of device memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::access::Conflict;
use super::entries::Entries;
use super::knowledge::Knowledge;
use super::packed::{GROUP, Packed, READ_ONLY};
use crate::fault::Access;

/// The reads of words, or of whole groups, whose words as many lanes read one after another.
pub(super) struct WordReads {
    last: Entries,
    /// The last read by other lanes than that of the last read of all.
    other: Entries,
    /// Others that the last two do not come after, at most [`KEPT`] of each place, with their
    /// lines.
    more: Mutex<HashMap<usize, Vec<(Packed, u32)>>>,
    /// Whether there are any.
    has_more: AtomicBool,
    /// Whether there are any reads.
    any: AtomicBool,
}

/// Memory is bounded so. Who comes after this many reads by others mostly comes after all.
const KEPT: usize = 30;

impl WordReads {
    pub(super) fn new(places: usize) -> WordReads {
        WordReads {
            last: Entries::new(places),
            other: Entries::new(places),
            more: Mutex::default(),
            has_more: AtomicBool::new(false),
            any: AtomicBool::new(false),
        }
    }

    /// Notes a read. `before` says whether a read comes before this one. One through the read-only
    /// cache is kept even so: no write may come after it.
    #[inline(always)]
    pub(super) fn note(&self, before: impl Fn(Packed) -> bool, at: usize, new: Packed, line: u32) {
        let last = Packed(self.last.load(at));
        if last == new {
            return;
        }
        if !self.any.load(Relaxed) {
            self.any.store(true, Relaxed);
        }
        if last.0 != 0 && !last.same_lanes(new) {
            let other = Packed(self.other.load(at));
            let is_covered = || other.kind() & READ_ONLY == 0 && before(other);
            if other.0 != 0 && !other.same_lanes(last) && !other.same_lanes(new) && !is_covered() {
                self.keep(at, other, self.other.line(at));
            }
            self.other.store(at, last.0, self.last.line(at));
        }
        self.last.store(at, new.0, line);
    }

    /// The last read at a place, and its PTX line.
    pub(super) fn last(&self, at: usize) -> Option<(Packed, u32)> {
        self.last.access(at).map(|read| (read, self.last.line(at)))
    }

    /// Whether there are no reads of the words of a group.
    #[inline(always)]
    pub(super) fn none_in_group(&self, group: usize) -> bool {
        !self.any.load(Relaxed) || self.last.none(group * GROUP..(group + 1) * GROUP)
    }

    /// Whether `passes` is true of all reads at a place, none of which is through the read-only
    /// cache.
    #[inline(always)]
    pub(super) fn all(&self, at: usize, mut passes: impl FnMut(Packed) -> bool) -> bool {
        let mut passes = |reads: &Entries| {
            let read = reads.access(at);
            read.is_none_or(|read| read.kind() & READ_ONLY == 0 && passes(read))
        };
        !self.any.load(Relaxed)
            || !self.has_more.load(Relaxed) && passes(&self.last) && passes(&self.other)
    }

    /// Keeps a third read.
    #[inline(never)]
    fn keep(&self, at: usize, read: Packed, line: u32) {
        let mut more = self.more.lock().unwrap_or_else(PoisonError::into_inner);
        let here = more.entry(at).or_default();
        let is_full = here.len() == KEPT;
        match here.iter_mut().find(|(kept, _)| kept.same_lanes(read)) {
            Some(kept) => *kept = (read, line),
            None if is_full => return,
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
        for reads in [&self.last, &self.other] {
            let Some(old) = reads.access(at) else { return Ok(()) };
            check_read(known, by, of(old), || reads.line(at))?;
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
    by: (usize, usize),
    old: Packed,
    line: impl Fn() -> u32,
) -> Result<(), Conflict> {
    let earlier = |old: Packed| old.earlier(line(), Access::Load);
    if old.kind() & READ_ONLY != 0 {
        return Err(Conflict::ReadOnlyCache(earlier(old)));
    }
    match old.each_lane().find(|old| !old.read_is_before(known, by)) {
        Some(old) => Err(Conflict::Race(earlier(old))),
        None => Ok(()),
    }
}
