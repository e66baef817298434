//! Accesses of the shared memory of other blocks of a cluster: each has to come before the other
//! block exits.

use std::collections::BTreeMap;

use super::access::AccessKind;
use crate::fault::{Access, FaultKind};

/// An access: when, by the time of its agent, where and how.
#[derive(Debug)]
struct Remote {
    time: u32,
    thread: (usize, usize),
    line: u32,
    address: u32,
    access: Access,
}

/// The last access by each agent of the shared memory of each other block, by the block's rank and
/// the agent.
#[derive(Debug, Default)]
pub(crate) struct RemoteAccesses(BTreeMap<(u32, usize), Remote>);

impl RemoteAccesses {
    /// Forgets everything, for a new cluster.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Notes that `agent` accesses shared memory of the block with rank `rank`, at `address` there,
    /// as the lane `thread` of a warp has it do at PTX line `line`.
    pub(super) fn note(
        &mut self,
        (rank, address): (u32, u32),
        (agent, time): (usize, u32),
        thread: (usize, usize),
        (line, kind): (u32, AccessKind),
    ) {
        let access = kind.access();
        self.0.insert((rank, agent), Remote { time, thread, line, address, access });
    }

    /// The accesses of a block's shared memory of which none of its threads knows: by which lane of
    /// which warp, at which line, and what is wrong.
    pub(super) fn not_before(
        &self,
        rank: u32,
        known: impl Fn(usize, u32) -> bool,
    ) -> Vec<((usize, usize), u32, FaultKind)> {
        let of_block = self.0.range((rank, 0)..(rank + 1, 0));
        let unknown = of_block.filter(|((_, agent), remote)| !known(*agent, remote.time));
        unknown
            .map(|(_, &Remote { thread, line, address, access, .. })| {
                (thread, line, FaultKind::ExitedBlock { address: address.into(), access, rank })
            })
            .collect()
    }
}
