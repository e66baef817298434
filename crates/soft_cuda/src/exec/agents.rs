//! The numbers of a cluster's agents, see [`super::clock`]: its threads come first.

use super::machine::LANES;

/// The agents of a cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agents {
    /// Threads of all warps, lanes that no thread has included.
    pub threads: usize,
}

impl Agents {
    /// The agent that stands for the `cp.async` copies of thread `thread`.
    pub(crate) fn copies_of(self, thread: usize) -> usize {
        self.threads + thread
    }

    /// The agent that stands for what `wgmma` reads for a warp.
    pub(crate) fn products_of(self, warp: usize) -> usize {
        2 * self.threads + warp
    }

    /// The agent that stands for what bulk copies to device memory read for thread `thread`. Its
    /// times are the numbers of the instructions among those of its warp.
    pub(crate) fn stores_of(self, thread: usize) -> usize {
        2 * self.threads + self.threads / LANES + thread
    }

    /// The agent that stands for the launch in front, which ends at time 1.
    pub(crate) fn prior(self) -> usize {
        self.stores_of(self.threads)
    }

    /// The agent that stands for mbarrier number `index`.
    pub(crate) fn mbarrier(self, index: usize) -> usize {
        self.prior() + 1 + index
    }
}
