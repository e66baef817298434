//! State spaces, and ways to access them.

use std::fmt;

/// How memory was accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Load,
    /// A store.
    Store,
    /// A read-modify-write.
    Atomic,
    /// An asynchronous copy.
    Copy,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Load => "load",
            Access::Store => "store",
            Access::Atomic => "atomic",
            Access::Copy => "asynchronous copy",
        })
    }
}

/// A PTX state space, as an instruction names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressSpace {
    /// Device memory.
    Global,
    /// The block's shared memory.
    Shared,
    /// The thread's own memory.
    Local,
    /// The kernel's parameters.
    Param,
    /// Constant memory.
    Const,
    /// No space named: any of them.
    Generic,
    /// The shared memory of all blocks of the cluster.
    SharedCluster,
}

impl fmt::Display for AddressSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddressSpace::Global => "global",
            AddressSpace::Shared => "shared",
            AddressSpace::Local => "local",
            AddressSpace::Param => "parameter",
            AddressSpace::Const => "constant",
            AddressSpace::Generic => "generic",
            AddressSpace::SharedCluster => "shared::cluster",
        })
    }
}
