//! Choices among the kernels for tensor cores on f32 matrices, of which tables have no costs.

mod align1;
mod bulk;

use kernels_gpu::TF32;
use kernels_gpu::abi::{KernelDescriptor, Reads, Target};
use kernels_gpu::families::tf32;

use super::prediction::Prediction;
use crate::device::DeviceInfo;
use crate::plan::{Configuration, KernelForm, copy_ld, has_hopper, wide_rows};
use crate::problem::{Compute, Gemm};

/// What times depend on beside a product.
#[derive(Clone, Copy)]
pub(super) struct Gpu {
    pub(super) target: Target,
    pub(super) multiprocessors: u32,
    /// The rate at which device memory is copied, over that of the H200 that costs are of.
    pub(super) memory: f64,
}

/// That rate of the H200, in GB/s.
pub(super) const H200_COPY_GBYTES: f64 = 4040.0;

/// What choices are based on.
pub(super) const fn basis(target: Target) -> &'static str {
    match target {
        Target::Sm90a => {
            "the least time by the costs of blocks and steps along K on an H200 and an H100"
        }
        Target::Sm80 => {
            "not measured: the least time by the cycles of a step along K on an A100, worked out from the rates of \
             its units"
        }
    }
}

/// Whose kernels are chosen on a device: those by `wgmma` where it has what they need.
pub(super) fn target(info: &DeviceInfo) -> Target {
    if has_hopper(info) { Target::Sm90a } else { Target::Sm80 }
}

/// Microseconds of a step along K, and of all the rest of each block, of kernels whose tiles threads bring.
///
/// Those by `wgmma` on an H200, from `runs/h200/tf32`: squares of 256 to 4096, and for `tf32x3` those of
/// 2048 and 4096.
///
/// Those by `mma.sync` were not measured. A step takes an A100 at 1.41 GHz 512, 192, 3072 and 768 cycles: as many as
/// its tensor cores do for 512 multiply-adds each; but the smaller tile of `tf32` as its fragments and copies do in
/// shared memory, at 128 bytes a cycle, which are as many as rounding takes. They are never compared with the others.
const COSTS: [(&KernelDescriptor, f64, f64); 7] = [
    (&tf32::sm_90a::wgmma::tf32_64x64::DESCRIPTOR, 0.341, 2.6),
    (&tf32::sm_90a::wgmma::tf32x3_128x128::DESCRIPTOR, 1.199, BLOCK),
    (&tf32::sm_90a::wgmma::tf32x3_64x64::DESCRIPTOR, 0.570, BLOCK),
    (&tf32::mma::tf32_mma_128x128::DESCRIPTOR, 0.363, BLOCK),
    (&tf32::mma::tf32_mma_64x64::DESCRIPTOR, 0.136, BLOCK),
    (&tf32::mma::tf32x3_mma_128x128::DESCRIPTOR, 2.179, BLOCK),
    (&tf32::mma::tf32x3_mma_64x64::DESCRIPTOR, 0.545, BLOCK),
];
const BLOCK: f64 = 1.5;
/// Where K is split, with the reduction, and for each split: from the latter run.
const SPLIT_BLOCK: f64 = 5.0;
const SPLIT: f64 = 0.5;
/// Numbers of splits that are tried.
const SPLITS: [usize; 9] = [1, 2, 3, 4, 6, 8, 12, 16, 32];
/// Of a launch that copies operands, and bytes that it copies in a microsecond.
const COPY: [f64; 2] = [4.0, 1.5e6];
/// Bytes of A, B and C in a microsecond, on an H200.
const MEMORY: f64 = 3.7e6;
/// Elements of 16 bytes.
const QUAD: usize = 4;
/// Elements by which copies of A and B may be larger than these in any case: 16 MiB.
const MAX_PADDING: u128 = 1 << 22;

/// The kernels for a target that compute a product, with each number of splits, and their times.
pub(super) fn times(gemm: &Gemm, gpu: Gpu) -> impl Iterator<Item = Prediction> {
    let kernels = TF32.iter().copied().filter(move |kernel| {
        let is_right = gemm.compute.is_of(kernel) && gemm.suits(kernel);
        // The others can do without copies.
        let pads_too_much = has_maps(kernel) && pads_too_much(gemm, kernel);
        // None that has its tiles brought by threads was ever the fastest in TF32 on Hopper.
        let is_slow = gpu.target == Target::Sm90a
            && gemm.compute == Compute::Tf32
            && !(has_maps(kernel) || align1::has(kernel));
        let is_slow = is_slow && !gemm.pointers;
        is_right && kernel.target() == gpu.target && !pads_too_much && !is_slow
    });
    kernels.flat_map(move |kernel| {
        let is_fitted = has_maps(kernel) || align1::has(kernel);
        let splits = if is_fitted { bulk::splits(kernel) } else { &SPLITS };
        let staged = is_staged(gemm, kernel);
        splits.iter().map(move |splits| {
            let ns = 1e3 * time(gemm, kernel, *splits, gpu);
            let plain = Configuration::new(kernel);
            let configuration = Configuration { splits: *splits as u32, staged, ..plain };
            Prediction { configuration, ns, memory_bound: None }
        })
    })
}

/// What should take the least time for a product in TF32 or tf32x3.
pub(super) fn choose(gemm: &Gemm, gpu: Gpu) -> Prediction {
    let least = times(gemm, gpu).min_by(|one, other| one.ns.total_cmp(&other.ns));
    least.expect("some kernel computes every product")
}

/// Whether A and B are copied first. Without copies kernels are slow where 128-bit accesses do not reach A and B.
/// Transposes are copied anyway, and bulk copies need them.
fn is_staged(gemm: &Gemm, kernel: &KernelDescriptor) -> bool {
    let [a, b, _] = wide_rows(gemm, [0; 3]);
    let is_wanted = !gemm.trans_a && !a || !gemm.trans_b && !b;
    is_wanted && !has_maps(kernel) && !align1::has(kernel) && !pads_too_much(gemm, kernel)
}

/// Whether copies of A and B, whose rows begin on 16 bytes, would be larger than these by much, and by more than a
/// sixteenth of all matrices: those of long columns, of which each element would be a row.
fn pads_too_much(gemm: &Gemm, kernel: &KernelDescriptor) -> bool {
    let form = KernelForm::new(gemm, kernel);
    let is_row = form.are_columns(kernel);
    let Gemm { m, n, k, lda, ldb, batch, .. } = form.gemm;
    let is_reached = [lda, ldb].map(|ld| has_maps(kernel) && ld.is_multiple_of(QUAD));
    let [mut elements, mut padding] = [m as u128 * n as u128 * batch as u128, 0];
    let ([lie_a, lie_b, _], reads) = (form.gemm.shapes(), form.reads(kernel));
    // Copies of what lies as a transpose that the kernel does not read are of the other shape.
    let shapes = [(lie_a, [m, k]), (lie_b, [k, n])].into_iter().zip(reads);
    let shapes =
        shapes.map(|((lie, other), reads)| if reads == Reads::Copied { other } else { lie });
    for (i, [rows, cols]) in shapes.enumerate() {
        let rows = rows as u128 * batch as u128;
        elements += rows * cols as u128;
        if !is_row[i] && !is_reached[i] {
            padding += rows * u128::from(copy_ld(cols as u64, 4) - cols as u64);
        }
    }
    padding > MAX_PADDING.max(elements / 16)
}

/// Whether bulk copies bring A and B, so that rows that do not begin on 16 bytes are copied first, without a word.
fn has_maps(kernel: &KernelDescriptor) -> bool {
    kernel.abi().has_tensor_maps()
}

/// Microseconds of a product.
fn time(gemm: &Gemm, kernel: &KernelDescriptor, splits: usize, gpu: Gpu) -> f64 {
    if has_maps(kernel) {
        return bulk::time(gemm, kernel, splits, gpu) + copies(gemm, kernel);
    }
    if align1::has(kernel) {
        return align1::time(gemm, kernel, splits, gpu);
    }
    let along = |size: usize, tile: u32| size.div_ceil(tile as usize).max(1);
    let (tile, gemm) = (kernel.tile(), &KernelForm::new(gemm, kernel).gemm);
    let tiles = along(gemm.m, tile.bm).saturating_mul(along(gemm.n, tile.bn));
    let blocks = tiles.saturating_mul(gemm.batch).saturating_mul(splits);
    let rounds = blocks.div_ceil(gpu.multiprocessors.max(1) as usize) as f64;
    let steps = along(gemm.depth(), tile.bk).div_ceil(splits) as f64;
    let known = COSTS.iter().find(|(other, ..)| other.name() == kernel.name());
    // One that was not measured takes as long for an output as the others do.
    let other = (f64::from(tile.bm * tile.bn) * 7e-5, BLOCK);
    let (step, rest) = known.map_or(other, |(_, step, rest)| (*step, *rest));
    let rest = if splits > 1 { SPLIT_BLOCK + SPLIT * splits as f64 } else { rest };
    let memory = if kernel.target() == Target::Sm90a {
        gemm.bytes() as f64 / (gpu.memory * MEMORY)
    } else {
        0.0
    };
    (rounds * steps * step).max(memory) + rounds * rest + copies(gemm, kernel)
}

/// What the multiprocessor has that has most of a product.
struct Busiest {
    blocks: usize,
    /// Along K, of each block.
    steps: usize,
    /// Blocks that share a tile: fewer than asked for where K has fewer steps.
    splits: usize,
}

impl Busiest {
    fn new(gemm: &Gemm, kernel: &KernelDescriptor, splits: usize, gpu: Gpu) -> Self {
        let (tile, gemm) = (kernel.tile(), KernelForm::new(gemm, kernel).gemm);
        let along = |size: usize, tile: u32| size.div_ceil(tile as usize).max(1);
        let tiles = along(gemm.m, tile.bm).saturating_mul(along(gemm.n, tile.bn));
        let all_steps = along(gemm.depth(), tile.bk);
        let steps = all_steps.div_ceil(splits);
        let splits = all_steps.div_ceil(steps);
        let blocks = tiles.saturating_mul(gemm.batch).saturating_mul(splits);
        Self { blocks: blocks.div_ceil(gpu.multiprocessors.max(1) as usize), steps, splits }
    }
}

/// What multiprocessors and memory take together: the p-norm of the two, which is more than the longer one where they are alike, since
/// either waits for the other at times.
fn overlapped(busy: f64, memory: f64, power: f64) -> f64 {
    (busy.powf(power) + memory.powf(power)).powf(1.0 / power)
}

/// Those of copies of A and B, where a kernel needs them.
fn copies(gemm: &Gemm, kernel: &KernelDescriptor) -> f64 {
    let form = KernelForm::new(gemm, kernel);
    let (gemm, reads) = (&form.gemm, form.reads(kernel));
    let [m, n, k] = [gemm.m, gemm.n, gemm.depth()].map(|size| size as f64);
    let wide = wide_rows(gemm, [0; 3]);
    let is_copied = |i: usize| match reads[i] {
        Reads::Copied => true,
        Reads::Aligned if has_maps(kernel) => ![gemm.lda, gemm.ldb][i].is_multiple_of(QUAD),
        Reads::Aligned => !wide[i],
        Reads::Anywhere | Reads::Unaligned => false,
    };
    let operands = [(m * k, gemm.stride_a), (k * n, gemm.stride_b)].into_iter().enumerate();
    let times = operands.filter(|(i, _)| is_copied(*i)).map(|(_, (elements, stride))| {
        let products = if stride == 0 { 1 } else { gemm.batch };
        let bytes = 4.0 * elements * products as f64;
        match has_maps(kernel) {
            true => bulk::copy(kernel, bytes),
            false => COPY[0] + bytes / COPY[1],
        }
    });
    times.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Gpu = Gpu { target: Target::Sm90a, multiprocessors: 132, memory: 1.0 };

    fn chosen(gemm: Gemm, compute: Compute) -> Configuration {
        choose(&gemm.computed_in(compute), H200).configuration
    }

    /// Their times are in the runs.
    #[test]
    fn the_fastest_of_the_recorded_runs_is_chosen() {
        for (size, compute, fastest) in [
            (256, Compute::Tf32, "tf32_split_16x128"),
            (512, Compute::Tf32, "tf32_split_16x128"),
            (768, Compute::Tf32, "tf32_64x128"),
            (1024, Compute::Tf32, "tf32_64x128"),
            (1536, Compute::Tf32, "tf32_192x128"),
            (2048, Compute::Tf32, "tf32_256x128"),
            (3072, Compute::Tf32, "tf32_192x128"),
            (4096, Compute::Tf32, "tf32_256x128"),
            (8192, Compute::Tf32, "tf32_256x128"),
            (16384, Compute::Tf32, "tf32_256x128"),
            (2048, Compute::Tf32x3, "tf32x3_128x128"),
            (8192, Compute::Tf32x3, "tf32x3_128x128"),
        ] {
            let choice = chosen(Gemm::new(size, size, size), compute);
            assert_eq!(choice.to_string(), fastest, "{size}");
        }
    }

    /// With few rows or columns, as they were measured.
    #[test]
    fn few_rows_are_split() {
        for ([m, n, k], trans_b, fastest) in [
            ([16, 6144, 4096], false, "tf32_split_16x128 in 5 splits"),
            ([16, 28672, 4096], true, "tf32_split_16x128"),
            ([48, 8192, 8192], false, "tf32_split_64x128 in 2 splits"),
            ([96, 8192, 28672], false, "tf32_split_128x128 in 2 splits"),
            ([4096, 8, 4096], false, "tf32_split_16x128 in 4 splits"),
        ] {
            let choice = chosen(Gemm::new(m, n, k).transposed(false, trans_b), Compute::Tf32);
            assert_eq!(choice.to_string(), fastest, "{m} x {n} x {k}");
        }
    }

    #[test]
    fn small_products_have_splits_and_unaligned_ones_copies() {
        let small = chosen(Gemm::new(16, 512, 4096), Compute::Tf32x3);
        assert!(small.splits > 1 && small.splits <= 132, "{}", small.splits);
        assert_eq!(chosen(Gemm::new(0, 5, 0), Compute::Tf32).splits, 1);
        assert!(chosen(Gemm::new(64, 64, 63), Compute::Tf32x3).staged);
        let transposed = Gemm::new(63, 64, 64).transposed(true, false);
        assert!(!chosen(transposed, Compute::Tf32x3).staged);
        // By bulk copies, which need no word of it.
        let large = chosen(Gemm::new(4095, 4097, 4099), Compute::Tf32);
        assert_eq!(large.to_string(), "tf32_256x128");
    }

    #[test]
    fn long_columns_are_not_padded() {
        let max = i32::MAX as usize;
        // By threads that load single elements.
        let staged = |gemm| chosen(gemm, Compute::Tf32x3).staged;
        assert!(!staged(Gemm::new(1, 1, max)));
        assert!(staged(Gemm::new(1, 1, 1 << 20)));
        assert!(staged(Gemm::new(64, 1, max)), "a small part of A");
        let column = Gemm::new(max, 1, 1).computed_in(Compute::Tf32);
        let choice = chosen(column, Compute::Tf32);
        assert!(!choice.staged && copies(&column, choice.kernel) == 0.0, "{choice}");
        // Bulk copies reach a column as a row.
        let tma = &tf32::sm_90a::tma::TILE_64X128;
        assert!(!pads_too_much(&Gemm::new(1, 1, max), tma));
        assert!(pads_too_much(&Gemm::new(max, 1, 1), tma));
        assert_eq!(copies(&Gemm::new(64, 1, 64), tma), 0.0);
        assert!(copies(&Gemm::new(64, 1, 64).leading_dimensions(64, 3, 1), tma) > 0.0);
    }

    /// Products that share B are one of more rows.
    #[test]
    fn batches_that_are_one_product_are_chosen_for_as_that() {
        let (rows, batch, n, k) = (16, 32, 2048, 64);
        let one = Gemm::new(rows * batch, n, k);
        let shared = Gemm::new(rows, n, k).batched(batch, [rows * k, 0, rows * n]);
        for compute in [Compute::Tf32, Compute::Tf32x3] {
            assert_eq!(chosen(shared, compute), chosen(one, compute));
        }
    }

    /// Where device memory is slower, fewer rows have memory as their limit.
    #[test]
    fn memory_is_that_of_the_device() {
        let gemm = Gemm::new(16, 28672, 4096).computed_in(Compute::Tf32);
        let ns = |memory| choose(&gemm, Gpu { memory, ..H200 }).ns;
        assert!(ns(0.5) > 1.5 * ns(1.0));
    }

    #[test]
    fn batches_of_pointers_have_kernels() {
        let gemm = Gemm::new(4096, 4096, 4096).batched_pointers(2);
        assert_eq!(chosen(gemm, Compute::Tf32).kernel.name(), "tf32_64x64");
    }

    /// On an A100.
    #[test]
    fn other_gpus_have_kernels_by_mma() {
        for (compute, [small, large]) in [
            (Compute::Tf32, ["tf32_mma_64x64", "tf32_mma_128x128"]),
            (Compute::Tf32x3, ["tf32x3_mma_64x64", "tf32x3_mma_128x128"]),
        ] {
            let a100 = Gpu { target: Target::Sm80, multiprocessors: 108, memory: 0.4 };
            // As many large tiles as multiprocessors.
            let whole = Gemm::new(12 * 128, 9 * 128, 4096);
            let chosen = |gemm: Gemm| choose(&gemm.computed_in(compute), a100).configuration;
            assert_eq!(chosen(Gemm::new(256, 256, 64)).kernel.name(), small);
            assert_eq!(chosen(whole).kernel.name(), large);
            let pointers = whole.batched_pointers(2);
            assert_eq!(chosen(pointers).kernel.name(), large);
            assert!(chosen(Gemm::new(16, 512, 4096)).splits > 1);
            assert!(chosen(Gemm::new(64, 64, 63)).staged);
        }
    }
}
