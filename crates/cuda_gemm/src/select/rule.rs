//! The choice in f32 on the software device.

use kernels_gpu::TILES;
use kernels_gpu::abi::{KernelAbi, KernelDescriptor, Tile};

use crate::plan::Configuration;
use crate::problem::Gemm;

/// A thread's other work per step, in FMAs. Both are measured in an interpreter's time.
const OTHERS: u32 = 800;

/// The tile that makes an interpreter do the least. FMAs out of bounds cost it as much as others.
pub fn for_software(gemm: &Gemm) -> Configuration {
    let depth = gemm.depth();
    let suits = |kernel: &&KernelDescriptor| {
        // Such a tile has no splits, and suits a one-step K alone.
        let is_for_short_k = kernel.abi() == KernelAbi::Batched;
        gemm.suits(kernel) && (!is_for_short_k || depth <= kernel.tile().bk as usize)
    };
    let work = |kernel: &&KernelDescriptor| {
        let Tile { bm, bn, bk, .. } = kernel.tile();
        let covered = |size: usize, tile: u32| size.next_multiple_of(tile as usize) as f64;
        let steps = depth.max(1).div_ceil(bk as usize) as f64;
        let others = f64::from(OTHERS * kernel.threads()) / f64::from(bm * bn);
        let step = f64::from(bk) + others;
        (covered(gemm.m, bm) * covered(gemm.n, bn) * steps * step) as u128
    };
    let kernel = TILES.iter().copied().filter(suits).min_by_key(work);
    Configuration::new(kernel.unwrap_or(TILES[0]))
}
