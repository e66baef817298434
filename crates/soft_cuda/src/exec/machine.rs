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
/// Those, and one for each warpgroup, whose warps wait for their products together.
pub(crate) const ALL_BARRIERS: u32 = BARRIERS + 8;
/// Address of the first byte of shared memory in its own space. As on recent
/// GPUs it is not 0, so that a null pointer is caught.
pub(crate) const SHARED_BASE: u32 = 1024;
/// Bytes of shared memory per block that are reserved for the system.
pub(crate) const RESERVED_BYTES: u32 = 1024;
/// In addresses of `.shared::cluster`: where the rank of the block begins, plus 1. Those of the
/// block itself have 0 there, so that its `.shared::cta` lies inside of `.shared::cluster`.
pub(crate) const RANK_SHIFT: u32 = 24;
/// Address of the first byte of local memory in its own space.
pub(crate) const LOCAL_BASE: u32 = 1024;
/// Bytes of local memory per thread, the limit of every GPU.
pub(crate) const MAX_LOCAL: u32 = 512 << 10;
/// What frames of functions, and with them a thread's local memory, are aligned to at least.
pub(crate) const FRAME_ALIGN: u32 = 16;
/// What is added to a shared address to make it generic.
pub(crate) const SHARED_WINDOW: u64 = 0x0051_0000_0000_0000;
/// What is added to a local address to make it generic.
pub(crate) const LOCAL_WINDOW: u64 = 0x0052_0000_0000_0000;
/// What is added to a parameter address to make it generic.
pub(crate) const PARAM_WINDOW: u64 = 0x0053_0000_0000_0000;

/// Spaces, in the order of the numbers that operations carry.
pub(crate) const SPACES: [AddressSpace; 7] = [
    AddressSpace::Global,
    AddressSpace::Shared,
    AddressSpace::Local,
    AddressSpace::Param,
    AddressSpace::Const,
    AddressSpace::Generic,
    AddressSpace::SharedCluster,
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
    /// Blocks of a cluster, and clusters of the grid.
    pub cluster: ClusterShape,
    /// Warps of a block.
    pub warps: u32,
    /// Bytes of shared memory per block that the launch asks for, and the dynamic part.
    pub shared_bytes: u32,
    pub dynamic_shared: u32,
    pub sm_count: u32,
    /// The linear index of the block.
    pub index: u64,
}

/// How a grid is divided into clusters. Without clusters, each block is one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClusterShape {
    pub grid: [u32; 3],
    /// Blocks of a cluster, in each dimension; divides the grid.
    pub dims: [u32; 3],
}

impl ClusterShape {
    /// Blocks of a cluster.
    pub(crate) fn blocks(self) -> usize {
        self.dims.iter().product::<u32>() as usize
    }

    /// Clusters of the grid, in each dimension.
    pub(crate) fn clusters(self) -> [u32; 3] {
        std::array::from_fn(|axis| self.grid[axis] / self.dims[axis])
    }

    /// The linear index of the block with rank `rank` in cluster number `cluster`.
    pub(crate) fn block(self, cluster: u64, rank: usize) -> u64 {
        let (at, inner) = (index_in(cluster, self.clusters()), index_in(rank as u64, self.dims));
        linear_in(std::array::from_fn(|axis| at[axis] * self.dims[axis] + inner[axis]), self.grid)
    }

    /// The number of the cluster of a block, and the block's rank in it.
    pub(crate) fn of_block(self, block: u64) -> (u64, usize) {
        let at = index_in(block, self.grid);
        let cluster = std::array::from_fn(|axis| at[axis] / self.dims[axis]);
        let inner = std::array::from_fn(|axis| at[axis] % self.dims[axis]);
        (linear_in(cluster, self.clusters()), linear_in(inner, self.dims) as usize)
    }
}

/// The linear index of `index` in `extents`.
fn linear_in(index: [u32; 3], extents: [u32; 3]) -> u64 {
    let ([x, y, z], [width, height, _]) = (index.map(u64::from), extents.map(u64::from));
    (z * height + y) * width + x
}

/// The three-dimensional index of `linear` in `extents`.
pub(crate) fn index_in(linear: u64, extents: [u32; 3]) -> [u32; 3] {
    let [x, y, _] = extents.map(u64::from);
    [(linear % x) as u32, (linear / x % y) as u32, (linear / (x * y)) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_has_one_place_in_a_cluster() {
        let shape = ClusterShape { grid: [4, 6, 2], dims: [2, 3, 1] };
        assert_eq!((shape.blocks(), shape.clusters()), (6, [2, 2, 2]));
        let mut blocks: Vec<u64> = (0..8)
            .flat_map(|cluster| (0..6).map(move |rank| (cluster, rank)))
            .map(|(cluster, rank)| {
                let block = shape.block(cluster, rank);
                assert_eq!(shape.of_block(block), (cluster, rank));
                block
            })
            .collect();
        // The second cluster in x, rank 3: (2, 0, 0) and (1, 1, 0).
        assert_eq!(blocks[6 + 3], 4 + 3);
        blocks.sort_unstable();
        assert!(blocks.into_iter().eq(0..48));
    }
}
