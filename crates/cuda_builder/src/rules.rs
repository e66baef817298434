//! What kernels may do.

/// Whether kernels may panic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Panic {
    /// They may: a panic prints where and why, and ends the launch with an error.
    #[default]
    Print,
    /// A kernel that can panic is refused, for kernels whose every instruction counts. So is one
    /// marked `#[kernel(no_panic)]`, whatever is said here.
    Refuse,
}

/// Whether kernels may keep variables in local memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalMemory {
    /// They may: arrays that are indexed by what only the run knows, and what a recursive function
    /// or a formatted message needs. It is device memory, behind the caches.
    #[default]
    Allow,
    /// A kernel that does is refused, for kernels that should keep all in registers. So is one
    /// marked `#[kernel(no_local_memory)]`, whatever is said here.
    Refuse,
}

/// What all kernels of a crate must not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Panics.
    pub panic: Panic,
    /// Local memory.
    pub local_memory: LocalMemory,
}
