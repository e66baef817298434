//! Clusters of blocks that share tiles, each block with a part of K.

use kernels_gpu::abi::groups::{GroupTile, most_tiles};
use kernels_gpu::abi::tensor_core::{MAX_CLUSTER_SIZE, PANEL, even_part, stages};
use kernels_gpu::abi::{KernelAbi, KernelDescriptor, Shared};

use super::configuration::Configuration;
use super::form::KernelForm;
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

/// The columns of a tile nearest to those asked for; `None` for the kernel's own.
///
/// Panels of an operand that does not lie along K are copied whole.
pub(crate) fn possible_columns(
    form: &KernelForm,
    kernel: &KernelDescriptor,
    asked: Option<u32>,
) -> Option<u32> {
    let most = kernel.tile().bn;
    let unit = if form.gemm.trans_b { 16 } else { PANEL };
    let columns = asked?.clamp(1, most).next_multiple_of(unit);
    (kernel.narrows() && columns < most).then_some(columns)
}

/// The columns that a tile multiplies, in parts of 16 if it narrows.
///
/// Tiles have equal parts of an operand that lies along K.
pub(crate) fn multiplied_columns(form: &KernelForm, configuration: &Configuration) -> u32 {
    let (bn, kernel) = (configuration.tile().bn, configuration.kernel);
    match form.gemm.trans_b && kernel.narrows() {
        // `Gemm::validate` accepted it.
        true => even_part(form.gemm.n as u32, bn).next_multiple_of(16).clamp(16, kernel.tile().bn),
        false => bn,
    }
}

/// The stages of a tile of this number of columns in `bytes` of shared memory. 0 if the kernel
/// counts them itself.
pub(super) fn stages_in(kernel: &KernelDescriptor, columns: u32, bytes: u32) -> u32 {
    match kernel.shared() {
        Shared::Stages { front: Some(front), .. } => {
            stages([kernel.tile().bm, columns], bytes.saturating_sub(front))
        }
        _ => 0,
    }
}

/// The number of clusters of `splits` blocks that share the steps of all tiles (stream-K).
///
/// The number is the requested one, or the most possible. `None` means that no tile is shared.
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

/// The workspace of a grouped product: the table of its tiles.
pub(super) fn group_workspace(gemm: &Gemm, kernel: &KernelDescriptor) -> Workspace {
    let tiles = most_tiles(gemm.m as u64, gemm.batch as u64, kernel.tile().bm.into());
    let elements = (1 + u128::from(tiles)) * (size_of::<GroupTile>() / 4) as u128;
    Workspace { partials: elements, counters: 0 }
}

/// The workspace of a launch whose clusters share tiles.
pub(super) fn workspace(configuration: &Configuration, clusters: u32) -> Workspace {
    let Configuration { kernel, splits, .. } = *configuration;
    let (tile, clusters) = (configuration.tile(), u128::from(clusters));
    Workspace {
        partials: clusters * 2 * u128::from(tile.bm) * u128::from(tile.bn),
        counters: clusters * u128::from(splits * kernel.warps_with_sums()),
    }
}
