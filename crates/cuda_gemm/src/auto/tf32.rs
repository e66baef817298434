//! Choices among the kernels for tensor cores on f32 matrices, which no table has.

use kernels_gpu::{KernelDescriptor, tf32};

use super::choice::Choice;
use crate::gemm::Gemm;
use crate::launch::wide_rows;

/// Microseconds of a step along K on an H200, of a block alone on its multiprocessor: from squares of 2048
/// and 4096 of `runs/2026-11-22-h200-tf32`.
const STEPS: [(&KernelDescriptor, f64); 5] = [
    (&tf32::tf32_128x192::DESCRIPTOR, 0.936),
    (&tf32::tf32_128x128::DESCRIPTOR, 0.699),
    (&tf32::tf32_64x64::DESCRIPTOR, 0.359),
    (&tf32::tf32x3_128x128::DESCRIPTOR, 1.199),
    (&tf32::tf32x3_64x64::DESCRIPTOR, 0.570),
];
/// Of a block's first loads and its stores; where K is split, with the reduction, and for each split: from the
/// same run.
const BLOCK: f64 = 1.5;
const SPLIT_BLOCK: f64 = 3.0;
const SPLIT: f64 = 0.5;
/// Numbers of splits that are tried.
const SPLITS: [usize; 9] = [1, 2, 3, 4, 6, 8, 12, 16, 32];

/// The kernel and the splits that should take the least time.
pub(super) fn choose(
    gemm: &Gemm,
    kernels: &[&'static KernelDescriptor],
    multiprocessors: u32,
) -> Choice {
    let time = |kernel: &KernelDescriptor, splits: usize| {
        let along = |size: usize, tile: u32| size.div_ceil(tile as usize).max(1);
        let tile = kernel.tile();
        let tiles = along(gemm.m, tile.bm).saturating_mul(along(gemm.n, tile.bn));
        let blocks = tiles.saturating_mul(gemm.batch).saturating_mul(splits);
        let rounds = blocks.div_ceil(multiprocessors.max(1) as usize) as f64;
        let steps = along(gemm.depth(), tile.bk).div_ceil(splits) as f64;
        let known = STEPS.iter().find(|(other, _)| other.name() == kernel.name());
        // One that was not measured takes as long for an output as the others do.
        let step = known.map_or(f64::from(tile.bm * tile.bn) * 7e-5, |(_, step)| *step);
        let block = if splits > 1 { SPLIT_BLOCK + SPLIT * splits as f64 } else { BLOCK };
        rounds * (steps * step + block)
    };
    let all = kernels.iter().flat_map(|kernel| SPLITS.map(|splits| (*kernel, splits)));
    let least = all.min_by(|(one, splits), (other, other_splits)| {
        time(one, *splits).total_cmp(&time(other, *other_splits))
    });
    let (descriptor, splits) = least.unwrap_or((kernels[0], 1));
    // The kernels are slow where 128-bit accesses do not reach A and B. Transposes are copied anyway.
    let [a, b, _] = wide_rows(gemm, [0; 3]);
    let staged = !gemm.trans_a && !a || !gemm.trans_b && !b;
    Choice { descriptor, splits: splits as u32, staged }
}

#[cfg(test)]
mod tests {
    use kernels_gpu::{TF32, TF32X3};

    use super::*;

    /// Of unsplit kernels, whose times are in the run.
    #[test]
    fn the_fastest_of_the_recorded_run_is_chosen() {
        for (size, kernels, fastest) in [
            (1536, TF32, "tf32_128x192"),
            (2048, TF32, "tf32_128x128"),
            (3072, TF32, "tf32_128x192"),
            (256, TF32, "tf32_64x64"),
            (2048, TF32X3, "tf32x3_128x128"),
            (8192, TF32X3, "tf32x3_128x128"),
        ] {
            let choice = choose(&Gemm::new(size, size, size), kernels, 132);
            assert_eq!(choice.to_string(), fastest, "{size}");
        }
    }

    #[test]
    fn small_products_have_splits_and_unaligned_ones_copies() {
        let small = choose(&Gemm::new(16, 512, 4096), TF32X3, 132);
        assert!(small.splits > 1 && small.splits <= 132, "{}", small.splits);
        assert_eq!(choose(&Gemm::new(0, 5, 0), TF32, 1).splits, 1);
        assert!(choose(&Gemm::new(64, 64, 63), TF32, 132).staged);
        let transposed = Gemm::new(63, 64, 64).transposed(true, false);
        assert!(!choose(&transposed, TF32, 132).staged);
    }
}
