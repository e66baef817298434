//! Vector clocks: how much of what each agent did is known.
//!
//! The agents of a cluster, which mostly is one block, are its threads, the `cp.async` copies of
//! each thread, what `wgmma` reads for each warp, what bulk copies to device memory read for each
//! thread, the launch in front, and its mbarriers, on whose account bulk copies write. Times count
//! from 1 in every cluster.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::Arc;

/// What is known of the agents of other clusters, by cluster.
type Foreign = HashMap<u64, Arc<[u32]>, BuildHasherDefault<ClusterHasher>>;

/// Hashes the number of a cluster, which nobody chooses to collide.
#[derive(Default)]
struct ClusterHasher(u64);

impl Hasher for ClusterHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(self.0 << 8 | u64::from(byte)));
    }

    #[inline(always)]
    fn write_u64(&mut self, cluster: u64) {
        // By the golden ratio.
        self.0 = cluster.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline(always)]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// A vector clock.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock {
    /// By agent of this cluster.
    times: Vec<u32>,
    /// The same of what asynchronous accesses of each block's shared memory see: what came before a
    /// `fence.proxy.async` of that.
    proxied: Vec<Vec<u32>>,
    foreign: Option<Arc<Foreign>>,
}

fn join_times(into: &mut Vec<u32>, other: &[u32]) {
    if into.len() < other.len() {
        into.resize(other.len(), 0);
    }
    for (mine, &theirs) in into.iter_mut().zip(other) {
        *mine = (*mine).max(theirs);
    }
}

impl Clock {
    #[inline(always)]
    pub(crate) fn at(&self, agent: usize) -> u32 {
        self.times.get(agent).copied().unwrap_or(0)
    }

    /// What asynchronous accesses of a block's shared memory see of what `agent` did.
    pub(crate) fn proxied_at(&self, block: usize, agent: usize) -> u32 {
        self.proxied.get(block).and_then(|times| times.get(agent)).copied().unwrap_or(0)
    }

    /// A clock that says of asynchronous accesses of these blocks' shared memory alone that they
    /// see what this one knows.
    pub(crate) fn to_proxied(&self, blocks: Range<usize>) -> Clock {
        let of = |block| if blocks.contains(&block) { self.times.clone() } else { Vec::new() };
        Clock { times: Vec::new(), proxied: (0..blocks.end).map(of).collect(), foreign: None }
    }

    pub(crate) fn set(&mut self, agent: usize, time: u32) {
        if self.times.len() <= agent {
            self.times.resize(agent + 1, 0);
        }
        self.times[agent] = time;
    }

    /// The least time of some agents.
    pub(crate) fn least(&self, agents: Range<usize>) -> u32 {
        let times = self.times.get(agents);
        times.and_then(|times| times.iter().min()).copied().unwrap_or(0)
    }

    /// What it says of this cluster alone.
    pub(crate) fn of_cluster(&self) -> Clock {
        Clock { times: self.times.clone(), proxied: self.proxied.clone(), foreign: None }
    }

    /// What is known of `agent` of another cluster.
    pub(crate) fn foreign_at(&self, cluster: u64, agent: usize) -> u32 {
        let times = self.foreign.as_ref().and_then(|foreign| foreign.get(&cluster));
        times.and_then(|times| times.get(agent)).copied().unwrap_or(0)
    }

    /// The least that is known of some agents of another cluster.
    pub(crate) fn foreign_least(&self, cluster: u64, agents: Range<usize>) -> u32 {
        let times = self.foreign.as_ref().and_then(|foreign| foreign.get(&cluster));
        let times = times.and_then(|times| times.get(agents));
        times.and_then(|times| times.iter().min()).copied().unwrap_or(0)
    }

    /// Adds what `other`, a clock of the same cluster, knows.
    pub(crate) fn join(&mut self, other: &Clock) {
        join_times(&mut self.times, &other.times);
        if self.proxied.len() < other.proxied.len() {
            self.proxied.resize_with(other.proxied.len(), Vec::new);
        }
        for (mine, theirs) in self.proxied.iter_mut().zip(&other.proxied) {
            join_times(mine, theirs);
        }
        if let Some(foreign) = &other.foreign {
            self.join_foreign(foreign);
        }
    }

    /// Adds what `other`, a clock of `cluster`, which is another one, knows.
    pub(crate) fn join_from(&mut self, cluster: u64, other: &Clock) {
        if let Some(foreign) = &other.foreign {
            self.join_foreign(foreign);
        }
        let mut times = self.foreign.as_ref().map_or(Vec::new(), |foreign| {
            foreign.get(&cluster).map_or(Vec::new(), |times| times.to_vec())
        });
        join_times(&mut times, &other.times);
        Arc::make_mut(self.foreign.get_or_insert_default()).insert(cluster, times.into());
    }

    fn join_foreign(&mut self, other: &Arc<Foreign>) {
        let Some(mine) = &mut self.foreign else {
            self.foreign = Some(other.clone());
            return;
        };
        if Arc::ptr_eq(mine, other) {
            return;
        }
        let mine = Arc::make_mut(mine);
        for (&cluster, theirs) in other.iter() {
            match mine.get_mut(&cluster) {
                Some(times) if Arc::ptr_eq(times, theirs) => {}
                Some(times) => {
                    let mut all = times.to_vec();
                    join_times(&mut all, theirs);
                    *times = all.into();
                }
                None => {
                    mine.insert(cluster, theirs.clone());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_of_other_clusters_stay_apart() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        a.set(3, 7);
        b.join_from(1, &a);
        assert_eq!((b.at(3), b.foreign_at(1, 3), b.foreign_at(0, 3)), (0, 7, 0));
        // Through a third cluster.
        let mut c = Clock::default();
        c.join_from(2, &b);
        assert_eq!(c.foreign_at(1, 3), 7);
        a.set(3, 9);
        c.join_from(1, &a);
        c.join(&b.clone());
        assert_eq!(c.foreign_at(1, 3), 9);
    }
}
