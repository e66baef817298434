//! What the checks call an access of memory.

use crate::fault::Access;

/// A kind of access. A strong one is atomic, or one that PTX calls `.volatile`, `.relaxed`,
/// `.acquire` or `.release`: two strong accesses do not race.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessKind {
    Load,
    StrongLoad,
    Store,
    StrongStore,
    Atomic,
    Copy,
    /// A load through the read-only cache, `ld.global.nc`.
    ReadOnly,
    /// By a bulk copy or `wgmma`.
    AsyncLoad,
}

/// All of [`AccessKind`], in the order of the numbers that operations carry.
pub(crate) const KINDS: [AccessKind; 8] = [
    AccessKind::Load,
    AccessKind::StrongLoad,
    AccessKind::Store,
    AccessKind::StrongStore,
    AccessKind::Atomic,
    AccessKind::Copy,
    AccessKind::ReadOnly,
    AccessKind::AsyncLoad,
];

impl AccessKind {
    pub(crate) fn number(self) -> u32 {
        self as u32
    }

    pub(crate) fn strong(self) -> bool {
        matches!(self, AccessKind::StrongLoad | AccessKind::StrongStore | AccessKind::Atomic)
    }

    pub(crate) fn writes(self) -> bool {
        matches!(
            self,
            AccessKind::Store | AccessKind::StrongStore | AccessKind::Atomic | AccessKind::Copy
        )
    }

    pub(crate) fn reads(self) -> bool {
        matches!(
            self,
            AccessKind::Load
                | AccessKind::StrongLoad
                | AccessKind::Atomic
                | AccessKind::ReadOnly
                | AccessKind::AsyncLoad
        )
    }

    pub(crate) fn access(self) -> Access {
        match self {
            AccessKind::Load
            | AccessKind::StrongLoad
            | AccessKind::ReadOnly
            | AccessKind::AsyncLoad => Access::Load,
            AccessKind::Store | AccessKind::StrongStore => Access::Store,
            AccessKind::Atomic => Access::Atomic,
            AccessKind::Copy => Access::Copy,
        }
    }
}

/// An instruction that accesses memory, and which bytes of each lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site {
    pub line: u32,
    pub kind: AccessKind,
    pub bytes: u32,
}

/// What an access must not come upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// An earlier access of these bytes that is not ordered before this one.
    Race(EarlierAccess),
    /// Bytes that nobody wrote.
    Uninitialised,
    /// Bytes that belong to no variable.
    NoVariable,
    /// A load through the read-only cache, and a store of the same bytes in the same launch.
    ReadOnlyCache(EarlierAccess),
}

/// An earlier access. Of device memory: by index of the block, and thread there. Of shared memory:
/// by number of the cluster, and agent (see [`super::clock`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EarlierAccess {
    pub block: u64,
    pub agent: usize,
    pub line: u32,
    pub access: Access,
}

/// One of the loads that an operation makes at constant distances.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    /// From the operation's offsets to those of the load.
    pub offset: u32,
    pub bytes: u32,
    pub line: u32,
}
