//! Accesses with their PTX lines, by place, in chunks that are allocated when something is noted
//! there: most of device memory is never accessed by word. Threads of the host share them behind
//! locks.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::packed::Packed;

/// Places of a chunk.
const CHUNK: usize = 1 << 10;

#[derive(Default)]
struct Entry {
    access: AtomicU64,
    line: AtomicU32,
}

/// By place: an access, as [`Packed`] has it, or 0, and its line.
pub(super) struct Entries(Box<[OnceLock<Box<[Entry]>>]>);

impl Entries {
    pub(super) fn new(places: usize) -> Entries {
        Entries((0..places.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect())
    }

    #[inline(always)]
    fn get(&self, at: usize) -> Option<&Entry> {
        self.0[at / CHUNK].get().map(|chunk| &chunk[at % CHUNK])
    }

    #[inline(always)]
    fn entry(&self, at: usize) -> &Entry {
        let new = || (0..CHUNK).map(|_| Entry::default()).collect();
        &self.0[at / CHUNK].get_or_init(new)[at % CHUNK]
    }

    #[inline(always)]
    pub(super) fn load(&self, at: usize) -> u64 {
        self.get(at).map_or(0, |entry| entry.access.load(Relaxed))
    }

    /// [`load`](Entries::load) of a noted access.
    #[inline(always)]
    pub(super) fn access(&self, at: usize) -> Option<Packed> {
        Some(Packed(self.load(at))).filter(|access| access.0 != 0)
    }

    pub(super) fn line(&self, at: usize) -> u32 {
        self.get(at).map_or(0, |entry| entry.line.load(Relaxed))
    }

    #[inline(always)]
    pub(super) fn store(&self, at: usize, access: u64, line: u32) {
        let entry = self.entry(at);
        entry.line.store(line, Relaxed);
        entry.access.store(access, Relaxed);
    }

    /// Whether nothing is noted at any of `places`, which are in one chunk.
    #[inline(always)]
    pub(super) fn none(&self, places: std::ops::Range<usize>) -> bool {
        let chunk = self.0[places.start / CHUNK].get();
        chunk.is_none_or(|chunk| {
            let entries = &chunk[places.start % CHUNK..][..places.len()];
            entries.iter().all(|entry| entry.access.load(Relaxed) == 0)
        })
    }
}
