//! Choices without measurements.

use std::cmp::Reverse;

use kernels_gpu::TILES;
use kernels_gpu::abi::{KernelAbi, KernelDescriptor, Tile};

use super::model::slices;
use crate::plan::{Configuration, KernelForm, is_aligned};
use crate::problem::Gemm;

/// A split has at least this many steps along K: fewer are not worth meeting for.
const LEAST_STEPS: u32 = 8;

/// Work on the edges of C that is for nothing, as a share of what the best tile does, is put
/// up with up to this.
const WASTE: f64 = 1.25;

/// What a thread does in a step beside its FMAs takes an interpreter as long as so many
/// of them.
const OTHERS: u32 = 800;

/// Multiprocessors are full with three blocks for every four of them.
const FULL: f64 = 0.75;

/// The largest tile that fills the multiprocessors, or that does so with K split, after those that
/// are for so short a K; none of those that waste work on the edges of C. `rungs` are considered
/// beside the tiles, as even larger.
pub fn for_gpu(
    gemm: &Gemm,
    multiprocessors: u32,
    rungs: &[&'static KernelDescriptor],
) -> Configuration {
    let full = FULL * f64::from(multiprocessors);
    let usable = |descriptor: &&'static KernelDescriptor| match descriptor.abi() {
        _ if !gemm.suits(descriptor) => false,
        // Tensor maps need rows that are multiples of 16 bytes apart.
        KernelAbi::TensorMap
        | KernelAbi::StreamK
        | KernelAbi::Tf32TensorMap
        | KernelAbi::Tf32SplitK => {
            (gemm.trans_a || gemm.lda.is_multiple_of(4))
                && (gemm.trans_b || gemm.ldb.is_multiple_of(4))
        }
        KernelAbi::Gemm => {
            is_aligned(descriptor, &KernelForm::new(gemm, descriptor), [0; 3], [false; 2])
        }
        _ => true,
    };
    let tiles_for_k = tiles_for_k(gemm);
    let least =
        TILES.iter().map(|descriptor| covered(gemm, descriptor)).fold(f64::INFINITY, f64::min);
    let mut descriptors: Vec<_> = (rungs.iter().copied().chain(tiles_for_k).filter(usable))
        .filter(|descriptor| covered(gemm, descriptor) <= WASTE * least)
        .collect();
    descriptors.sort_by_key(|descriptor| {
        // Those for a short K come first, and of two tiles of a size the one with more slices.
        let size = descriptor.tile().bm * descriptor.tile().bn;
        Reverse((is_for_short_k(descriptor), size, slices(descriptor)))
    });
    let tiles = |descriptor: &KernelDescriptor| {
        covered(gemm, descriptor) / f64::from(descriptor.tile().bm * descriptor.tile().bn)
    };
    let most_splits = |descriptor: &KernelDescriptor| match descriptor.abi() {
        // A block's own threads share K before blocks do.
        KernelAbi::SplitK if slices(descriptor) == 1 => 1,
        KernelAbi::SplitK => {
            (gemm.depth().div_ceil(descriptor.tile().bk as usize) as u32 / LEAST_STEPS).max(1)
        }
        _ => 1,
    };
    let fills = |descriptor: &&&'static KernelDescriptor| {
        tiles(descriptor) * f64::from(most_splits(descriptor)) >= full
    };
    let blocks = |descriptor: &&&'static KernelDescriptor| {
        (tiles(descriptor) * f64::from(most_splits(descriptor))) as u64
    };
    let descriptor = (descriptors.iter().find(fills))
        .or_else(|| descriptors.iter().max_by_key(blocks))
        .copied()
        .unwrap_or(TILES[0]);
    let wanted = (f64::from(multiprocessors) / tiles(descriptor).max(1.0)) as u32;
    let splits = wanted.clamp(1, most_splits(descriptor));
    Configuration { splits, ..Configuration::new(descriptor) }
}

/// The tile that makes an interpreter do the least: FMAs beyond the edges cost it as
/// much as others.
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

/// Tiles without splits are for a K of one step.
fn is_for_short_k(descriptor: &KernelDescriptor) -> bool {
    descriptor.abi() == KernelAbi::Batched
}

/// The tiles that are for a K as long as this.
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
