//! What the TF32 kernels take that read matrices as they lie: see [`kernels_gpu::families::tf32::sm_90a::align1`].

use kernels_gpu::abi::{KernelDescriptor, Reads};

use super::{Busiest, Gpu, overlapped};
use crate::problem::Gemm;

/// Blocks that share a multiprocessor.
const RESIDENT: usize = 2;

/// Microseconds of a launch on an H100, as all of these, fitted to 46 products in up to 18 splits each of
/// `runs/h100/tf32`: of their choices the mean takes 1.002 times as long as the fastest.
const LAUNCH: f64 = 2.2;
/// A step along K of a block that has its multiprocessor for itself, and of each of those that share one.
const STEP: [f64; 2] = [0.956, 0.727];
/// What a tile takes beside its steps.
const TILE: f64 = 1.18;
/// To add up the parts of a tile, and beside that each part.
const REDUCTION: [f64; 2] = [1.88, 0.212];
/// Bytes of A, B and C in a microsecond, where device memory is as fast as that of an H200.
const MEMORY: f64 = 3.63e6;
/// Where blocks and memory take as long as each other, together they take the p-norm of the two, with this p.
const POWER: f64 = 2.54;

/// Whether a kernel is one of these.
pub(super) fn has(kernel: &KernelDescriptor) -> bool {
    let lie = [(false, false), (false, true), (true, false), (true, true)];
    lie.into_iter().all(|(is_b, transposed)| kernel.reads(is_b, transposed) == Reads::Anywhere)
}

/// Microseconds of a product by one of them.
pub(super) fn time(gemm: &Gemm, kernel: &KernelDescriptor, splits: usize, gpu: Gpu) -> f64 {
    let Busiest { blocks: most, steps, splits } = Busiest::new(gemm, kernel, splits, gpu);
    let [alone, shared] = STEP;
    let at_once = |count: usize| steps as f64 * alone.max(count as f64 * shared);
    let rest = if most.is_multiple_of(RESIDENT) { 0.0 } else { at_once(most % RESIDENT) };
    let steps = (most / RESIDENT) as f64 * at_once(RESIDENT) + rest;
    let busy = steps + most as f64 * TILE;
    let both = overlapped(busy, gemm.bytes() as f64 / (gpu.memory * MEMORY), POWER);
    let [reduction, part] = REDUCTION;
    LAUNCH + both + if splits > 1 { reduction + part * splits as f64 } else { 0.0 }
}
