//! Asynchronous copies in flight, in commit groups.
//!
//! A copy is checked when it is issued but performed only when its thread
//! waits for its group: a kernel that forgets to wait reads old data here, every time. Bulk copies
//! that nobody waits for are performed at the end, see [`super::unwaited`].

use super::machine::LANES;
use crate::tensor::TensorMap;

/// The copies of one warp that nobody has waited for.
#[derive(Debug)]
pub(crate) struct Groups<T> {
    pending: Vec<Pending<T>>,
    /// Groups committed so far, by lane.
    committed: [u64; LANES],
}

#[derive(Debug)]
struct Pending<T> {
    lane: u8,
    /// Number of the lane's commit group it belongs to, modulo 2^32.
    group: u32,
    copy: T,
}

/// A `cp.async` of one lane.
#[derive(Debug)]
pub(crate) struct CopyToShared {
    pub dst: *mut u8,
    pub src: *const u8,
    /// Bytes written, 16 at most; those after `from_src` are zeros.
    pub bytes: u8,
    pub from_src: u8,
}

/// A bulk copy of one lane from shared to global memory.
#[derive(Debug)]
pub(crate) struct Store {
    /// Offset into shared memory.
    pub from: u32,
    pub to: CopyTarget,
    /// PTX line.
    pub line: u32,
    /// Number of its instruction among those of its warp.
    pub number: u32,
    /// Whether it has been performed: nobody may look yet.
    pub performed: bool,
}

/// Where a [`Store`] goes.
#[derive(Debug)]
pub(crate) enum CopyTarget {
    Bytes { address: u64, bytes: u32 },
    Tensor { map: TensorMap, start: [i32; 5] },
}

impl<T> Pending<T> {
    /// Whether it is a copy of `lanes` in another than the latest `keep` groups.
    fn is_due(&self, lanes: u32, keep: u64, committed: &[u64; LANES]) -> bool {
        let since = (committed[usize::from(self.lane)] as u32).wrapping_sub(self.group);
        lanes >> self.lane & 1 != 0 && u64::from(since) > keep
    }
}

impl<T> Groups<T> {
    pub(crate) fn new() -> Groups<T> {
        Groups { pending: Vec::new(), committed: [0; LANES] }
    }

    /// Forgets everything, for a new block.
    pub(crate) fn clear(&mut self) {
        self.pending.clear();
        self.committed = [0; LANES];
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Adds a copy to the lane's open group.
    pub(crate) fn push(&mut self, lane: usize, copy: T) {
        let group = self.committed[lane] as u32;
        self.pending.push(Pending { lane: lane as u8, group, copy });
    }

    /// The number of the lane's open group, from 0.
    pub(crate) fn group(&self, lane: usize) -> u64 {
        self.committed[lane]
    }

    /// How many of the lane's groups, the open one included if `keep` is `None`, are complete
    /// after a wait that leaves the latest `keep`.
    pub(crate) fn waited(&self, lane: usize, keep: Option<u64>) -> u64 {
        let committed = self.committed[lane];
        keep.map_or(committed + 1, |keep| committed.saturating_sub(keep))
    }

    /// Closes the open group of each of `lanes`.
    pub(crate) fn commit(&mut self, lanes: impl Iterator<Item = usize>) {
        lanes.for_each(|lane| self.committed[lane] += 1);
    }

    /// All of them.
    pub(crate) fn all(self) -> impl Iterator<Item = (usize, T)> {
        self.pending.into_iter().map(|pending| (pending.lane.into(), pending.copy))
    }

    /// Those that [`due`](Groups::due) would take out.
    pub(crate) fn due_mut(
        &mut self,
        lanes: u32,
        keep: u64,
    ) -> impl Iterator<Item = (usize, &mut T)> {
        let Groups { pending, committed } = self;
        let due = pending.iter_mut().filter(move |copy| copy.is_due(lanes, keep, committed));
        due.map(|pending| (pending.lane.into(), &mut pending.copy))
    }

    /// Takes out the copies of `lanes` in all but the latest `keep` groups;
    /// `None` also takes those that were not committed.
    pub(crate) fn due(
        &mut self,
        lanes: u32,
        keep: Option<u64>,
    ) -> impl Iterator<Item = (usize, T)> {
        let committed = self.committed;
        let due = self.pending.extract_if(.., move |copy| match keep {
            Some(keep) => copy.is_due(lanes, keep, &committed),
            None => lanes >> copy.lane & 1 != 0,
        });
        due.map(|pending| (pending.lane.into(), pending.copy))
    }
}
