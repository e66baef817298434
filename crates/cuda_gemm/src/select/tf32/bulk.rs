//! What the TF32 kernels take whose tiles bulk copies bring, with split-K and without: see [`kernels_gpu::families::tf32::sm_90a::split`] and
//! [`kernels_gpu::families::tf32::sm_90a::tma`].

use kernels_gpu::abi::{KernelAbi, KernelDescriptor};
use kernels_gpu::families::tf32;

use super::{Busiest, Gpu, overlapped};
use crate::problem::Gemm;

/// Microseconds of a kernel, fitted to 105 products in up to 18 splits each, of `runs/h200/tf32` and of
/// `runs/h100/tf32`: with the kernels for f32 and for matrices that lie anywhere beside these, what is chosen takes 1.02
/// times as long as the fastest (geometric mean). Fitted to what is chosen first: as microseconds they are rough.
struct Costs {
    kernel: &'static KernelDescriptor,
    /// A step along K, of a block that has its multiprocessor for itself, and of two that share one, where they can.
    step: f64,
    step_of_two: Option<f64>,
    /// What a tile takes beside its steps.
    tile: f64,
    /// To add up a part of a tile.
    part: f64,
    /// What tensor cores take for a step at least, by squares of 1024 to 8192.
    least_step: f64,
}

const COSTS: [Costs; 8] = [
    persistent(&tf32::sm_90a::tma::TILE_256X128, [0.671, 2.18, 0.66]),
    persistent(&tf32::sm_90a::tma::TILE_192X128, [0.349, 2.49, 0.54]),
    persistent(&tf32::sm_90a::tma::TILE_128X128, [0.310, 1.30, 0.4]),
    persistent(&tf32::sm_90a::tma::TILE_64X128, [0.230, 0.64, 0.2]),
    split(&tf32::sm_90a::split::TILE_128X128, [0.350, 6.84, 0.5], None, 0.430),
    split(&tf32::sm_90a::split::TILE_64X128, [0.289, 4.09, 0.25], Some(0.564), 0.294),
    split(&tf32::sm_90a::split::TILE_32X128, [0.212, 3.39, 0.125], Some(0.400), 0.156),
    split(&tf32::sm_90a::split::TILE_16X128, [0.197, 2.38, 0.0625], Some(0.352), 0.092),
];

const fn persistent(kernel: &'static KernelDescriptor, of: [f64; 3]) -> Costs {
    split(kernel, of, None, 0.0)
}

const fn split(
    kernel: &'static KernelDescriptor,
    [step, tile, least_step]: [f64; 3],
    step_of_two: Option<f64>,
    part: f64,
) -> Costs {
    Costs { kernel, step, step_of_two, tile, part, least_step }
}

/// What all kernels of a kind have in common.
struct Kind {
    /// A launch.
    launch: f64,
    /// Bytes of A, B and C in a microsecond.
    memory: f64,
    /// Where tiles and memory take as long as each other, either waits for the other at times: together they take the p-norm
    /// of the two, with this p.
    power: f64,
    /// Of a launch that copies an operand, and bytes that it copies in a microsecond.
    copy: [f64; 2],
    /// What a tile of 256 x 128 takes longer where rows of C do not begin on 32 bytes, and others in proportion. Of those that split K, fitted; of the
    /// others, what 4095 x 4097 x 4099 alone takes since they store whole lines (`runs/h100/tf32`).
    unaligned_c: f64,
}

const PERSISTENT: Kind =
    Kind { launch: 3.22, memory: 4.4e6, power: 1.79, copy: [0.91, 1.38e6], unaligned_c: 1.0 };
const SPLIT: Kind =
    Kind { launch: 0.29, memory: 3.90e6, power: 2.81, copy: [1.35, 1.34e6], unaligned_c: 2.17 };
/// To add up the parts of a tile, beside what each of them takes.
const REDUCTION: f64 = 1.44;

/// Elements of a sector of device memory, of 32 bytes, and of a tile of 256 x 128.
const SECTOR: usize = 8;
const LARGEST: f64 = 256.0 * 128.0;

/// Numbers of splits that are tried; one by those that do not split K.
const SPLITS: [usize; 18] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128];

/// The numbers of splits of K that are tried.
pub(super) fn splits(kernel: &KernelDescriptor) -> &'static [usize] {
    if kernel.abi().splits_k() { &SPLITS } else { &SPLITS[..1] }
}

fn kind(kernel: &KernelDescriptor) -> &'static Kind {
    if kernel.abi() == KernelAbi::Tf32SplitK { &SPLIT } else { &PERSISTENT }
}

/// Microseconds of a copy of an operand of so many bytes.
pub(super) fn copy(kernel: &KernelDescriptor, bytes: f64) -> f64 {
    let [launch, rate] = kind(kernel).copy;
    launch + bytes / rate
}

/// Microseconds of a product by one of them, without copies of A and B.
pub(super) fn time(gemm: &Gemm, kernel: &KernelDescriptor, splits: usize, gpu: Gpu) -> f64 {
    let known = COSTS.iter().find(|costs| costs.kernel.name() == kernel.name());
    let costs = known.expect("each has costs");
    let Costs { step, step_of_two, tile: of_tile, part, least_step, .. } = *costs;
    let Kind { launch, memory, power, unaligned_c, .. } = *kind(kernel);
    let Busiest { blocks: most, steps, splits } = Busiest::new(gemm, kernel, splits, gpu);
    let tile = kernel.tile();
    let has_sectors = gemm.ldc.is_multiple_of(SECTOR);
    let store =
        if has_sectors { 0.0 } else { unaligned_c * f64::from(tile.bm * tile.bn) / LARGEST };
    let of_tile = of_tile + store;
    let of = |count: usize, step: f64| count as f64 * (steps as f64 * step + of_tile);
    let busy = match step_of_two {
        Some(of_two) => of(most / 2, of_two) + of(most % 2, step),
        None => of(most, step),
    };
    let both = overlapped(busy, gemm.bytes() as f64 / (gpu.memory * memory), power);
    let tensor_cores = most as f64 * steps as f64 * least_step;
    let reduction = if splits > 1 { REDUCTION + part * splits as f64 } else { 0.0 };
    launch + both.max(tensor_cores) + reduction
}
