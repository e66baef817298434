//! The mbarriers of a block: arrivals, bytes and phases.

use super::clock::Clock;
use super::knowledge::Released;
use super::machine::SHARED_BASE;
use super::order::WarpClock;

/// One barrier.
#[derive(Debug)]
pub(super) struct MbarrierState {
    /// Offset into the shared memory of the cluster's blocks.
    pub at: u32,
    /// Arrivals that complete a phase.
    pub count: u32,
    /// Arrivals that the current phase lacks.
    pub pending: u32,
    /// Arrivals of the current phase that come when copies are complete: warp and lane, and the
    /// first group of copies that need not be.
    pub copies: Vec<((usize, usize), u64)>,
    /// Bytes expected in the current phase, less those that have come.
    pub bytes: i64,
    /// Phases completed since it was initialised.
    pub phase: u32,
    /// Phases completed since the block began: its component of the clocks.
    pub completed: u32,
    pub component: usize,
    /// What those who arrived knew, and what of it a wait passes on.
    pub arrived: WarpClock,
    pub done: WarpClock,
    /// Whether a fence has made its initialisation known to asynchronous copies.
    pub fenced: bool,
    /// The same, for checks of all accesses.
    pub released: Released,
    pub acquired: Clock,
    /// Who initialised it, and when.
    pub by: (usize, u32),
}

impl MbarrierState {
    /// Whether the current phase is complete as soon as copies are that have been issued.
    pub(super) fn lacks_only_copies(&self) -> bool {
        self.pending as usize == self.copies.len() && self.bytes == 0
    }
}

/// The barriers of a cluster's blocks.
#[derive(Debug, Default)]
pub(crate) struct Barriers {
    /// Bytes from one block's shared memory to the next one's.
    pub stride: u32,
    pub(super) all: Vec<MbarrierState>,
    /// Phases completed, or that lack only copies, of all barriers: when it changes, waits may end.
    pub completions: u64,
    /// Changes of any kind, of all barriers.
    pub changes: u64,
}

impl Barriers {
    /// Forgets everything, for a new block.
    pub(crate) fn clear(&mut self) {
        self.all.clear();
    }

    /// What a thread that waits for barrier `index` waits for, in words.
    pub(crate) fn describe(&self, index: u32) -> String {
        let Some(barrier) = self.all.get(index as usize) else {
            return "wait for an mbarrier".to_owned();
        };
        let MbarrierState { at, count, pending, bytes, phase, .. } = barrier;
        let bytes = match *bytes {
            0 => String::new(),
            more @ 1.. => format!(" and {more} bytes of bulk copies"),
            less => format!(", which got {} bytes too many,", -less),
        };
        let address = SHARED_BASE + at.checked_rem(self.stride).unwrap_or(*at);
        format!(
            "wait for {pending} of {count} arrivals{bytes} in phase {phase} of the mbarrier at {address:#x}"
        )
    }
}
