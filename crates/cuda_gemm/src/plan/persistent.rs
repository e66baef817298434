//! Launches of persistent blocks that compute whole tiles of all products of a batch.

use kernels_gpu::abi::KernelDescriptor;

use super::panel::{Launch, MAX_PANEL, panels};
use crate::device::Limits;
use crate::problem::Gemm;

/// Exclusive limit of a launch's tiles: their numbers, plus one more round of blocks, fit 32 bits.
const MAX_TILES: u64 = 1 << 31;

/// The tiles of the largest panel.
fn most_tiles(descriptor: &KernelDescriptor, gemm: &Gemm) -> u64 {
    let along =
        |size: usize, tile: u32, most: u32| (size.div_ceil(tile as usize) as u64).min(most.into());
    let tile = descriptor.tile();
    along(gemm.m, tile.bm, MAX_PANEL[1]) * along(gemm.n, tile.bn, MAX_PANEL[0])
}

/// The products of a batch that share launches.
pub(super) fn products_per_launch(descriptor: &KernelDescriptor, gemm: &Gemm) -> u32 {
    let most = (MAX_TILES - 1) / most_tiles(descriptor, gemm).max(1);
    // `Gemm::validate` accepted the batch.
    most.clamp(1, gemm.batch.max(1) as u64) as u32
}

/// The launches, with a block per multiprocessor, or per tile if there are fewer tiles.
pub(super) fn launches(descriptor: &KernelDescriptor, gemm: &Gemm, limits: &Limits) -> Vec<Launch> {
    let products = u64::from(products_per_launch(descriptor, gemm));
    let most_blocks = limits.multiprocessors.min(limits.grid[0]).max(1);
    let mut launches = panels(descriptor, gemm, MAX_PANEL);
    for launch in &mut launches {
        let [width, height] = launch.grid.map(u64::from);
        // At most the multiprocessors.
        launch.grid = [(width * height * products).min(most_blocks.into()) as u32, 1];
    }
    launches
}
