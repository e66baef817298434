//! Choices among the kernels for tensor cores on f32 matrices, which no table has.

use kernels_gpu::KernelDescriptor;

use super::choice::Choice;
use crate::gemm::Gemm;

/// A split has at least this many steps along K: fewer are not worth meeting for.
const LEAST_STEPS: usize = 8;

/// Multiprocessors are full with three blocks for every four of them.
const FULL: f64 = 0.75;

/// The largest tile that fills the multiprocessors, or else the smallest, with K split among those that
/// are left. `kernels` begin with the largest.
pub(super) fn choose(
    gemm: &Gemm,
    kernels: &[&'static KernelDescriptor],
    multiprocessors: u32,
) -> Choice {
    let tiles = |kernel: &KernelDescriptor| {
        let along = |size: usize, tile: u32| size.div_ceil(tile as usize);
        let one = along(gemm.m, kernel.tile().bm).saturating_mul(along(gemm.n, kernel.tile().bn));
        one.saturating_mul(gemm.batch).max(1)
    };
    let fills =
        |kernel: &KernelDescriptor| tiles(kernel) as f64 >= FULL * f64::from(multiprocessors);
    let smallest = kernels[kernels.len() - 1];
    let descriptor = kernels.iter().copied().find(|kernel| fills(kernel)).unwrap_or(smallest);
    let steps = gemm.depth().div_ceil(descriptor.tile().bk as usize);
    let splits =
        (multiprocessors as usize / tiles(descriptor)).clamp(1, (steps / LEAST_STEPS).max(1));
    // No more than there are multiprocessors.
    Choice { descriptor, splits: splits as u32, staged: false }
}

#[cfg(test)]
mod tests {
    use kernels_gpu::{TF32, TF32X3};

    use super::*;

    #[test]
    fn large_products_have_large_tiles_and_small_ones_splits() {
        let large = choose(&Gemm::new(4096, 4096, 4096), TF32, 132);
        assert_eq!((large.descriptor.name(), large.splits), (TF32[0].name(), 1));
        let small = choose(&Gemm::new(16, 512, 4096), TF32X3, 132);
        assert_eq!(small.descriptor.name(), TF32X3[TF32X3.len() - 1].name());
        assert!(small.splits > 1 && small.splits <= 132, "{}", small.splits);
        assert_eq!(choose(&Gemm::new(0, 5, 0), TF32, 1).splits, 1);
    }
}
