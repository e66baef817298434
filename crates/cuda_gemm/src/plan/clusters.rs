//! Clusters of blocks that share tiles, each block with a part of K.

use kernels_gpu::abi::tensor_core::MAX_CLUSTER_SIZE;
use kernels_gpu::abi::{KernelAbi, KernelDescriptor};

use super::panel::Workspace;
use crate::problem::Gemm;

/// Exclusive limit of all tiles' steps along K: the kernel counts them in 31 bits.
const MAX_UNITS: u64 = 1 << 31;

/// The steps along K of a kernel.
pub(crate) fn steps(gemm: &Gemm, kernel: &KernelDescriptor) -> u64 {
    gemm.depth().div_ceil(kernel.tile().bk as usize) as u64
}

/// The most blocks in a cluster: each has at least one step along K.
pub(crate) fn most_splits(gemm: &Gemm, kernel: &KernelDescriptor) -> u32 {
    match kernel.abi() {
        KernelAbi::WgmmaClusters => {
            steps(gemm, kernel).clamp(1, u64::from(MAX_CLUSTER_SIZE)) as u32
        }
        _ => 1,
    }
}

/// The number of clusters of `splits` blocks that share the steps of all tiles (stream-K).
///
/// The number is the requested one, or the most possible. `None` means that each tile has a
/// cluster.
pub(crate) fn stream_k(
    gemm: &Gemm,
    kernel: &KernelDescriptor,
    tiles: u64,
    splits: u32,
    asked: u32,
) -> Option<u32> {
    let units = units(gemm, kernel, tiles, splits);
    let most = u32::try_from(units).unwrap_or(u32::MAX).max(1);
    let clusters = asked.clamp(1, most);
    let can_be = u64::from(clusters) <= units && units < MAX_UNITS;
    (can_be && u64::from(clusters) != all_tiles(gemm, tiles)).then_some(clusters)
}

/// The tiles of all products.
fn all_tiles(gemm: &Gemm, tiles: u64) -> u64 {
    tiles.saturating_mul(gemm.batch as u64)
}

/// The steps along K of one block of a cluster, over all tiles.
fn units(gemm: &Gemm, kernel: &KernelDescriptor, tiles: u64, splits: u32) -> u64 {
    all_tiles(gemm, tiles).saturating_mul(steps(gemm, kernel) / u64::from(splits))
}

/// The workspace of a launch whose clusters share tiles.
pub(super) fn workspace(kernel: &KernelDescriptor, splits: u32, clusters: u32) -> Workspace {
    let (tile, clusters) = (kernel.tile(), u128::from(clusters));
    let warps = splits * kernel.warps_with_sums();
    Workspace {
        partials: clusters * 2 * u128::from(tile.bm) * u128::from(tile.bn),
        counters: clusters * u128::from(warps),
    }
}
