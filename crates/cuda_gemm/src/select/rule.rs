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
        !is_for_short_k || depth <= kernel.tile().bk as usize
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Batching, Epilogue};
    use gemm_matrix::Axis;

    #[test]
    fn tiles_without_splits_are_for_one_step() {
        let small = Gemm::new(32, 32, 16);
        assert_eq!(for_software(&small).kernel.abi(), KernelAbi::Batched);
        for m in [1, 32, 33, 500] {
            for k in [17, 64, 1000] {
                let kernel = for_software(&Gemm::new(m, 32, k)).kernel;
                assert_eq!(kernel.abi(), KernelAbi::SplitK, "{m} x 32 x {k}: {}", kernel.name());
            }
        }
    }

    /// The choice is launched as it is.
    #[test]
    fn every_tile_suits_every_product() {
        let features = Epilogue::new().scale(Axis::Row).bias(Axis::Column).residual();
        let batching = Batching::Pointers;
        let gemm = Gemm { batching, epilogue: features, ..Gemm::new(5, 6, 7).stacked(3) };
        assert!(TILES.iter().all(|kernel| gemm.suits(kernel)));
    }
}
