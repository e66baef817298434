//! The choice in f32 on the software device.

use kernels_gpu::TILES;
use kernels_gpu::abi::{KernelAbi, KernelDescriptor, Tile};

use crate::plan::Configuration;
use crate::problem::Gemm;

/// A thread's other work per step, in FMAs. Both are measured in an interpreter's time.
const OTHERS: u32 = 800;

/// The tile that makes an interpreter do the least. FMAs out of bounds cost it as much as others.
pub fn for_software(gemm: &Gemm) -> Configuration {
    let work = |descriptor: &&'static KernelDescriptor| {
        let Tile { bm, bn, bk, .. } = descriptor.tile();
        let steps = gemm.depth().max(1).div_ceil(bk as usize) as f64;
        let others = f64::from(OTHERS * descriptor.threads()) / f64::from(bm * bn);
        (covered(gemm, descriptor) * steps * (f64::from(bk) + others)) as u128
    };
    let descriptor = tiles_for_k(gemm).min_by_key(work).unwrap_or(TILES[0]);
    Configuration::new(descriptor)
}

/// Whether a tile suits a one-step K alone. Such a tile has no splits.
fn is_for_short_k(descriptor: &KernelDescriptor) -> bool {
    descriptor.abi() == KernelAbi::Batched
}

/// The tiles for a K of this length.
fn tiles_for_k(gemm: &Gemm) -> impl Iterator<Item = &'static KernelDescriptor> + use<> {
    let depth = gemm.depth();
    let gemm = *gemm;
    TILES.iter().copied().filter(move |descriptor| {
        gemm.suits(descriptor)
            && (!is_for_short_k(descriptor) || depth <= descriptor.tile().bk as usize)
    })
}

/// Elements of C that the tiles cover.
fn covered(gemm: &Gemm, descriptor: &KernelDescriptor) -> f64 {
    let size = |size: usize, tile: u32| size.next_multiple_of(tile as usize) as f64;
    size(gemm.m, descriptor.tile().bm) * size(gemm.n, descriptor.tile().bn)
}
