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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::find_kernel;

    #[test]
    fn as_many_products_share_a_launch_as_it_can_count_tiles_of() {
        let kernel = find_kernel("tf32_128x128").unwrap();
        let [bm, bn] = [kernel.tile().bm as usize, kernel.tile().bn as usize];
        for [rows, cols] in [[1, 1], [3, 5], [1 << 15, 1 << 14], [1 << 15, 1 << 15], [1 << 16, 3]] {
            for batch in [0, 1, 2, 3, 100, (1 << 31) - 1] {
                let gemm = Gemm { batch, ..Gemm::new(rows * bm, cols * bn, 64) };
                let products = u64::from(products_per_launch(kernel, &gemm));
                // Of the largest panel.
                let tiles = (rows.min(1 << 15) * cols.min(1 << 15)) as u64;
                let is_counted = |products: u64| tiles * products < 1 << 31;
                let name = format!("{rows} x {cols} tiles, {batch} products: {products}");
                assert!(products == 1 || is_counted(products), "{name}");
                let is_all = products == batch.max(1) as u64;
                assert!(is_all || !is_counted(products + 1), "{name}");
            }
        }
    }
}
