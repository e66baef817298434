//! Why a launch did not complete, said in one sentence each.

use crate::fault::Fault;

/// Why a launch did not complete.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The launch configuration does not fit the kernel or the device. Nothing ran.
    #[error("kernel `{kernel}` cannot be launched: {reason}")]
    Invalid {
        /// The kernel.
        kernel: String,
        /// What does not fit.
        reason: InvalidLaunch,
    },
    /// The kernel ran and broke a rule. Memory holds what was written until then.
    #[error(transparent)]
    Fault(Box<Fault>),
}

/// What is wrong with a launch configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLaunch {
    /// A grid dimension is zero or above the device's limit.
    #[error("the grid is {grid:?}, but each dimension must lie between 1 and {limit:?}")]
    Grid {
        /// The grid asked for.
        grid: [u32; 3],
        /// The largest grid.
        limit: [u32; 3],
    },
    /// A block dimension is zero or above the device's limit.
    #[error(
        "the block is {block:?}, but each dimension must lie between 1 and {limit:?} and their product must not exceed {threads}"
    )]
    Block {
        /// The block asked for.
        block: [u32; 3],
        /// The largest extent of each dimension.
        limit: [u32; 3],
        /// The most threads in a block.
        threads: u32,
    },
    /// The grid is not whole clusters of the shape that the kernel was compiled for
    /// (`.reqnctapercluster`), or those are too large.
    #[error(
        "the grid is {grid:?}, but the kernel's clusters are {cluster:?} blocks: make each dimension a multiple of that; a cluster has 1 to {limit} blocks"
    )]
    Cluster {
        /// The grid asked for.
        grid: [u32; 3],
        /// Blocks of a cluster.
        cluster: [u32; 3],
        /// The most blocks of a cluster.
        limit: u32,
    },
    /// The kernel is launched in clusters alone (`.explicitcluster`).
    #[error(
        "this kernel needs an explicit cluster size: set the launch attribute CLUSTER_DIMENSION"
    )]
    ClusterMissing,
    /// The kernel was compiled for exactly one block shape (`.reqntid`).
    #[error("the block is {block:?}, but the kernel requires {required:?}")]
    RequiredBlock {
        /// The block asked for.
        block: [u32; 3],
        /// The block the kernel requires.
        required: [u32; 3],
    },
    /// The kernel was compiled for fewer threads (`.maxntid`).
    #[error("the block is {block:?}, {threads} threads, but the kernel allows at most {limit}")]
    TooManyThreads {
        /// The block asked for.
        block: [u32; 3],
        /// Its threads.
        threads: u32,
        /// The kernel's limit.
        limit: u32,
    },
    /// Static and dynamic shared memory together exceed the device's limit.
    #[error(
        "it needs {bytes} bytes of shared memory per block ({fixed} static and {dynamic} dynamic), but the device has {limit}"
    )]
    SharedMemory {
        /// Bytes needed in all.
        bytes: u64,
        /// Bytes of static shared memory.
        fixed: u32,
        /// Bytes of dynamic shared memory.
        dynamic: u32,
        /// The most a block can have.
        limit: u32,
    },
    /// The parameter bytes do not match the kernel's signature.
    #[error("it takes {expected} bytes of parameters but got {got}")]
    Parameters {
        /// Bytes the kernel takes.
        expected: usize,
        /// Bytes passed.
        got: usize,
    },
    /// The host has no memory left for the threads' local memory and registers.
    #[error("the host has no memory left for its {bytes} bytes of thread state per block")]
    ThreadState {
        /// Bytes needed for one block.
        bytes: u64,
    },
}
