//! What the checks call an access of memory.

use crate::fault::Access;

/// A kind of access. A strong one is atomic, or one that PTX calls `.volatile`, `.relaxed`,
/// `.acquire` or `.release`: two strong accesses do not race, unless they are of different blocks
/// and one of them has the scope of its block alone, or two atomics have different sizes.
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
    /// Strong ones of the block's scope.
    BlockLoad,
    BlockStore,
    BlockAtomic,
    /// A bulk copy to device memory that nobody has waited for but until it has read its source: no
    /// thread comes after it.
    PendingCopy,
    /// The same by a bulk reduction.
    PendingAtomic,
}

/// All of [`AccessKind`], in the order of the numbers that operations carry.
pub(crate) const KINDS: [AccessKind; 13] = [
    AccessKind::Load,
    AccessKind::StrongLoad,
    AccessKind::Store,
    AccessKind::StrongStore,
    AccessKind::Atomic,
    AccessKind::Copy,
    AccessKind::ReadOnly,
    AccessKind::AsyncLoad,
    AccessKind::BlockLoad,
    AccessKind::BlockStore,
    AccessKind::BlockAtomic,
    AccessKind::PendingCopy,
    AccessKind::PendingAtomic,
];

impl AccessKind {
    pub(crate) fn number(self) -> u32 {
        self as u32
    }

    pub(crate) fn strong(self) -> bool {
        let of_all = matches!(self, AccessKind::StrongLoad | AccessKind::StrongStore);
        of_all || self.access() == Access::Atomic || self.of_block()
    }

    /// Whether it is strong in its block alone.
    pub(crate) fn of_block(self) -> bool {
        matches!(self, AccessKind::BlockLoad | AccessKind::BlockStore | AccessKind::BlockAtomic)
    }

    /// Whether no thread comes after it.
    pub(crate) fn pending(self) -> bool {
        matches!(self, AccessKind::PendingCopy | AccessKind::PendingAtomic)
    }

    pub(crate) fn writes(self) -> bool {
        self.access() != Access::Load
    }

    pub(crate) fn reads(self) -> bool {
        matches!(self.access(), Access::Load | Access::Atomic)
    }

    pub(crate) fn access(self) -> Access {
        match self {
            AccessKind::Load
            | AccessKind::StrongLoad
            | AccessKind::ReadOnly
            | AccessKind::AsyncLoad
            | AccessKind::BlockLoad => Access::Load,
            AccessKind::Store | AccessKind::StrongStore | AccessKind::BlockStore => Access::Store,
            AccessKind::Atomic | AccessKind::BlockAtomic | AccessKind::PendingAtomic => {
                Access::Atomic
            }
            AccessKind::Copy | AccessKind::PendingCopy => Access::Copy,
        }
    }
}

/// What a fence, or what is ordered, does: it makes known what was read from atomic variables, or
/// has what is written to them make known what came before, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Acquire,
    Release,
    Both,
}

/// All of [`Side`], in the order of the numbers that operations carry.
pub(crate) const SIDES: [Side; 3] = [Side::Acquire, Side::Release, Side::Both];

/// An instruction that accesses memory, and which bytes of each lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
