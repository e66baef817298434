//! What every part of the executor knows of the machine: lanes, barriers, and where the state
//! spaces lie.

use crate::fault::AddressSpace;
use crate::memory::{GLOBAL_BASE, GLOBAL_END};

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;
/// The mask of a warp with all lanes active.
pub(crate) const FULL: u32 = u32::MAX;
/// Stands for "no predicate" where an operation may have one.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// Barriers of a block.
pub(crate) const BARRIERS: u32 = 16;
/// Address of the first byte of shared memory in its own space. As on recent
/// GPUs it is not 0, so that a null pointer is caught.
pub(crate) const SHARED_BASE: u32 = 1024;
/// Address of the first byte of local memory in its own space.
pub(crate) const LOCAL_BASE: u32 = 1024;
/// What is added to a shared address to make it generic.
pub(crate) const SHARED_WINDOW: u64 = 0x0051_0000_0000_0000;
/// What is added to a local address to make it generic.
pub(crate) const LOCAL_WINDOW: u64 = 0x0052_0000_0000_0000;
/// What is added to a parameter address to make it generic.
pub(crate) const PARAM_WINDOW: u64 = 0x0053_0000_0000_0000;

/// Spaces, in the order of the numbers that operations carry.
pub(crate) const SPACES: [AddressSpace; 6] = [
    AddressSpace::Global,
    AddressSpace::Shared,
    AddressSpace::Local,
    AddressSpace::Param,
    AddressSpace::Const,
    AddressSpace::Generic,
];

/// The state space that a generic address lies in.
pub(crate) fn space_of(address: u64) -> Option<AddressSpace> {
    match address {
        GLOBAL_BASE..GLOBAL_END => Some(AddressSpace::Global),
        _ => match address >> 48 << 48 {
            SHARED_WINDOW => Some(AddressSpace::Shared),
            LOCAL_WINDOW => Some(AddressSpace::Local),
            PARAM_WINDOW => Some(AddressSpace::Param),
            _ => None,
        },
    }
}

/// The indices of the set bits of `mask`, in increasing order.
#[inline]
pub(crate) fn bits(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let bit = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            bit
        })
    })
}

/// A launch and the block that runs, as special registers show them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Warps of a block.
    pub warps: u32,
    /// Bytes of shared memory per block, all of it, and the dynamic part.
    pub shared_bytes: u32,
    pub dynamic_shared: u32,
    pub sm_count: u32,
    /// The linear index of the block.
    pub index: u64,
}

/// The three-dimensional index of `linear` in `extents`.
pub(crate) fn index_in(linear: u64, extents: [u32; 3]) -> [u32; 3] {
    let [x, y, _] = extents.map(u64::from);
    [(linear % x) as u32, (linear / x % y) as u32, (linear / (x * y)) as u32]
}
