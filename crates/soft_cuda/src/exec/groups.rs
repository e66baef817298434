//! Asynchronous copies in flight, in commit groups.
//!
//! A copy is checked when it is issued but performed only when its thread
//! waits for its group: a kernel that forgets to wait reads old data here, every time. Bulk copies
//! that nobody waits for are performed at the end, see [`super::unwaited`].

use super::machine::LANES;
use super::rmw::Reduction;
use crate::tensor::TensorMap;

/// The copies of one warp that nobody has waited for.
#[derive(Debug)]
pub(crate) struct Groups<T> {
    pending: Vec<Pending<T>>,
    /// Groups closed so far, by lane.
    closed: [u64; LANES],
    /// Which of the latest closed groups a commit has closed, from the lowest bit on, by lane. The
    /// others are closed by arrivals at an mbarrier, and belong to the next commit.
    commits: [u64; LANES],
}

#[derive(Debug)]
struct Pending<T> {
    lane: u8,
    /// Number of the lane's group it belongs to, modulo 2^32.
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
    /// What it does with what is there, if it does not overwrite that.
    pub reduction: Option<Reduction>,
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
    /// Whether it is a copy of one of `lanes`, before the group that `ends` has for that lane.
    fn is_due(&self, lanes: u32, ends: &[u64; LANES]) -> bool {
        let before = (ends[usize::from(self.lane)] as u32).wrapping_sub(self.group);
        lanes >> self.lane & 1 != 0 && before as i32 > 0
    }
}

impl<T> Groups<T> {
    pub(crate) fn new() -> Groups<T> {
        Groups { pending: Vec::new(), closed: [0; LANES], commits: [u64::MAX; LANES] }
    }

    /// Forgets everything, for a new block.
    pub(crate) fn clear(&mut self) {
        self.pending.clear();
        self.closed = [0; LANES];
        self.commits = [u64::MAX; LANES];
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Adds a copy to the lane's open group.
    pub(crate) fn push(&mut self, lane: usize, copy: T) {
        let group = self.closed[lane] as u32;
        self.pending.push(Pending { lane: lane as u8, group, copy });
    }

    /// The number of the lane's open group, from 0.
    pub(crate) fn group(&self, lane: usize) -> u64 {
        self.closed[lane]
    }

    /// How many of the lane's groups, the open one included if `keep` is `None`, are complete
    /// after a wait that leaves the groups of the latest `keep` commits.
    pub(crate) fn waited(&self, lane: usize, keep: Option<u64>) -> u64 {
        let Some(keep) = keep else { return self.closed[lane] + 1 };
        let mut commits = self.commits[lane];
        let known = keep.min(commits.count_ones().into());
        for _ in 0..known {
            commits &= commits - 1;
        }
        // What is too long ago to be known was committed.
        let kept = u64::from(commits.trailing_zeros()) + (keep - known);
        self.closed[lane].saturating_sub(kept)
    }

    /// Closes the open group of each of `lanes` by a commit.
    pub(crate) fn commit(&mut self, lanes: impl Iterator<Item = usize>) {
        lanes.for_each(|lane| _ = self.close(lane, true));
    }

    /// Closes the lane's open group, and returns how many are closed.
    pub(crate) fn close(&mut self, lane: usize, commit: bool) -> u64 {
        self.commits[lane] = self.commits[lane] << 1 | u64::from(commit);
        self.closed[lane] += 1;
        self.closed[lane]
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
        let ends = std::array::from_fn(|lane| self.waited(lane, Some(keep)));
        let due = self.pending.iter_mut().filter(move |copy| copy.is_due(lanes, &ends));
        due.map(|pending| (pending.lane.into(), &mut pending.copy))
    }

    /// Takes out the copies of `lanes` in all but the groups of the latest `keep` commits;
    /// `None` also takes those that were not committed.
    pub(crate) fn due(
        &mut self,
        lanes: u32,
        keep: Option<u64>,
    ) -> impl Iterator<Item = (usize, T)> {
        self.due_before(lanes, std::array::from_fn(|lane| self.waited(lane, keep)))
    }

    /// Takes out the copies of `lanes` before the group that `ends` has for each.
    pub(crate) fn due_before(
        &mut self,
        lanes: u32,
        ends: [u64; LANES],
    ) -> impl Iterator<Item = (usize, T)> {
        let due = self.pending.extract_if(.., move |copy| copy.is_due(lanes, &ends));
        due.map(|pending| (pending.lane.into(), pending.copy))
    }
}
