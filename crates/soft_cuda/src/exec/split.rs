//! The lanes of a warp that are at one place, and what they wait for.

use super::frames::Activation;

/// No node: the split reconverges with nobody.
pub(super) const ROOT: usize = usize::MAX;

/// Lanes that are at the same place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Split {
    pub pc: u32,
    pub mask: u32,
    pub node: usize,
    pub state: State,
    /// Where the frame of its function begins in the stack of each lane.
    pub frame: u32,
    /// Its wait for an mbarrier has been told "not yet" once.
    pub tried: bool,
}

impl Split {
    /// Lanes that can run.
    pub(super) fn new(pc: u32, mask: u32, node: usize, frame: u32) -> Split {
        Split { pc, mask, node, state: State::Ready, frame, tried: false }
    }
}

/// What a split does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    /// Waits at the barrier with this number; `pc` is the segment it ends.
    Barrier(u32),
    /// Waits for other lanes at the collective that ends segment `pc`.
    Collective,
    /// Waits for the mbarrier with this number at the wait that ends segment `pc`.
    Mbarrier(u32),
    /// As before, but nobody else can run: the wait is over without success.
    Expired,
}

impl State {
    pub(super) fn can_run(self) -> bool {
        matches!(self, State::Ready | State::Expired)
    }
}

/// A divergent branch, or a call, whose lanes will reconverge.
#[derive(Debug)]
pub(super) struct Node {
    pub reconverge: u32,
    pub parent: usize,
    /// Lanes that have not come there yet.
    pub pending: u32,
    /// Lanes that wait at `reconverge`.
    pub arrived: u32,
    /// The frame of the function that `reconverge` is in.
    pub frame: u32,
    /// If it is a call.
    pub activation: Option<Activation>,
    /// Lanes have waited there when the cluster was last looked at.
    pub long: bool,
}

impl Node {
    /// A branch of the lanes `mask`.
    pub(super) fn new(reconverge: u32, parent: usize, mask: u32, frame: u32) -> Node {
        let (pending, arrived) = (mask, 0);
        Node { reconverge, parent, pending, arrived, frame, activation: None, long: false }
    }

    /// Whether lanes of both, which are calls, return to one place with the registers as they are.
    pub(super) fn returns_like(&self, other: &Node) -> bool {
        let call = |node: &Node| node.activation.as_ref().and_then(Activation::keeps_nothing);
        call(self).is_some() && call(self) == call(other)
    }
}

/// Which of the lanes that wait to reconverge go on without the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Release {
    /// Those that a collective waits for, or else any, in inner branches first.
    Any,
    /// Those that a collective waits for.
    Wanted,
    /// Those of the branch that was first.
    First,
    /// Of these, those that have waited for long.
    Long,
}
