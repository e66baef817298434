//! Samples: the times of random products. Costs are fitted to them.
//!
//! There are two kinds. A kernel's samples spread over numbers of tiles, lengths of K, edges, entry
//! points and layouts. A product's samples show all kernels that may be its choice. Neither is a
//! list that somebody chose.

use cuda_gemm::kernels::abi::{Arithmetic, KernelDescriptor};
use cuda_gemm::select::Model;
use cuda_gemm::select::table::Costs;
use cuda_gemm::{Activation, Auto, Axis, Compute, Configuration, Element, Epilogue, Gemm};

use super::class::Class;
use super::pool::OperandPool;
use super::tuner::Tuner;
use crate::batch::Policy;
use crate::error::Error;
use crate::shape::{Draw, Shape};

/// The longest sample at a high rate, in microseconds.
const LONGEST_US: f64 = 1000.0;

/// The most tiles of a sample, per multiprocessor.
const TILES: usize = 10;

/// The most steps along K of a kernel's samples.
const STEPS: usize = 512;

/// The most products of a batch.
const BATCH: usize = 64;

/// The most that tiles may cover, relative to C.
const WASTE: f64 = 64.0;

/// Timed configurations of each kernel for a product.
const PER_KERNEL: usize = 9;

/// The weights of samples. `OWN` is for a kernel's samples. A product's samples have a weight up to
/// a multiple of the fastest time.
const OWN: f64 = 0.6;
const NEAR: (f64, f64) = (1.6, 1.0);
const FAR: (f64, f64) = (3.0, 0.3);

/// The policies for a kernel's and a product's samples.
const OF_KERNEL: Policy =
    Policy { samples: 5, sample_ms: 0.4, warmup_ms: 20.0, slowest: f64::INFINITY };
const OF_PRODUCT: Policy = Policy { samples: 4, sample_ms: 0.3, warmup_ms: 10.0, slowest: 2.5 };

/// A product that was timed with a kernel.
pub struct Sample {
    /// The product.
    pub gemm: Gemm,
    /// The kernel, and how it was launched.
    pub configuration: Configuration,
    /// The median of the times, in nanoseconds.
    pub ns: f64,
    /// How much it counts when costs are fitted.
    pub weight: f64,
}

/// The sizes of samples.
#[derive(Clone, Copy)]
pub struct Limits {
    pub multiprocessors: u32,
    /// The most operations.
    pub flops: f64,
    /// The most bytes of the operands.
    pub bytes: u128,
}

impl Limits {
    /// Whether a kernel's sample keeps to these limits.
    fn suits(&self, gemm: &Gemm, kernel: &KernelDescriptor) -> bool {
        let us = gemm.flops() / flop_per_us(kernel);
        us <= LONGEST_US
            && gemm.flops() <= self.flops
            && gemm.bytes() <= self.bytes
            && gemm.validate().is_ok()
            && gemm.suits(kernel)
    }
}

/// About the most operations per microsecond of a GPU. They limit how long samples take.
fn flop_per_us(kernel: &KernelDescriptor) -> f64 {
    match kernel.arithmetic() {
        Arithmetic::Fma => 4e7,
        Arithmetic::Tf32x3 => 8e7,
        Arithmetic::Tf32 => 2.5e8,
        Arithmetic::Bits16 => 5e8,
    }
}

/// Draws a product for a kernel. Rows begin anywhere for every other `index`, or for every fourth
/// if the kernel has no entry point for misaligned matrices.
fn product(kernel: &KernelDescriptor, limits: Limits, draw: &mut Draw, index: usize) -> Gemm {
    let tile = kernel.tile();
    let is_misaligned = match kernel.unaligned() {
        Some(_) => index % 2 == 1,
        None => index % 4 == 3,
    };
    loop {
        // Half of them have tiles for all multiprocessors.
        let all = limits.multiprocessors as usize;
        let fewest = if draw.coin() { all } else { 1 };
        let tiles = draw.log_uniform([fewest, TILES * all]);
        let rows = draw.log_uniform([1, tiles]);
        let mut size = |count: usize, tile: u32| {
            let tile = tile as usize;
            let outside = if draw.coin() { draw.below(tile) } else { 0 };
            let size = count * tile - outside;
            if is_misaligned || tile < 8 { size } else { size.next_multiple_of(8) }
        };
        let (mut m, mut n) = (size(rows, tile.bm), size((tiles / rows).max(1), tile.bn));
        let mut k = draw.log_uniform([1, STEPS]) * tile.bk as usize;
        if is_misaligned {
            k = k.saturating_sub(1 + draw.below(3)).max(1);
            n = (n - 1 + n % 2).max(1);
        } else {
            k = k.next_multiple_of(8);
        }
        let batch = match kernel.abi().has_batches() && draw.below(5) == 0 {
            true => draw.log_uniform([2, BATCH]),
            false => 1,
        };
        m = (m / batch).max(1);
        if kernel.transposes_c() && draw.coin() {
            (m, n) = (n, m);
        }
        let compute = Compute::of_kernel(kernel);
        let (trans_a, trans_b) = (draw.below(4) == 0, draw.coin());
        let mut gemm = Gemm::new(m, n, k).transposed(trans_a, trans_b).computed_in(compute);
        if compute.is_16_bits() && draw.coin() {
            gemm = gemm.stored_as(compute.element());
        }
        if index % 8 == 4 && kernel.abi().has_epilogue() {
            let bias = Epilogue::new().bias(Axis::Column);
            gemm = match draw.below(4) {
                0 => gemm.scaled(1.0, 1.0),
                1 => gemm.then(bias),
                2 => gemm.then(bias.activation(Activation::GeluTanh)),
                _ => gemm.then(Epilogue::new().residual()),
            };
        }
        if batch > 1 {
            gemm = gemm.stacked(batch);
        }
        if limits.suits(&gemm, kernel) {
            return gemm;
        }
    }
}

/// Draws products and times them.
pub struct Sampler<'a> {
    pub tuner: &'a Tuner,
    pub auto: &'a Auto,
    pub pool: &'a mut OperandPool,
    pub limits: Limits,
    pub draw: Draw,
}

impl Sampler<'_> {
    /// Times `count` products that are drawn for a kernel.
    pub fn of_kernel(&mut self, costs: &Costs, count: usize) -> Result<Vec<Sample>, Error> {
        let mut drawn = Vec::new();
        for index in 0..count {
            let gemm = product(costs.kernel, self.limits, &mut self.draw, index);
            let mut all = configurations(self.auto.model(), &gemm, costs);
            if all.is_empty() || !self.pool.has_room(&gemm) {
                continue;
            }
            // Whole tiles in every third sample: they are what most products have.
            let fewest = (0..all.len()).min_by_key(|at| (all[*at].splits, all[*at].staged));
            let at = match self.draw.below(3) == 0 {
                true => fewest.unwrap_or(0),
                false => self.draw.below(all.len()),
            };
            drawn.push((gemm, all.swap_remove(at)));
        }
        self.time(drawn, OF_KERNEL)
    }

    /// Times some configurations of all kernels for a product.
    pub fn of_product(&mut self, gemm: &Gemm) -> Result<Vec<Sample>, Error> {
        if !self.pool.has_room(gemm) {
            return Ok(Vec::new());
        }
        let model = self.auto.model();
        let mut drawn = Vec::new();
        for costs in model.kernels() {
            let kernel = costs.kernel;
            let is_wasted = covered(gemm, kernel) > WASTE;
            if !gemm.compute.is_of(kernel) || !gemm.suits(kernel) || is_wasted {
                continue;
            }
            let mut all = configurations(model, gemm, costs);
            while all.len() > PER_KERNEL {
                let at = self.draw.below(all.len());
                all.swap_remove(at);
            }
            drawn.extend(all.into_iter().map(|configuration| (*gemm, configuration)));
        }
        let mut samples = self.time(drawn, OF_PRODUCT)?;
        let fastest = samples.iter().map(|sample| sample.ns).fold(f64::INFINITY, f64::min);
        for sample in &mut samples {
            let ratio = sample.ns / fastest;
            let weight = [NEAR, FAR].into_iter().find(|(limit, _)| ratio < *limit);
            sample.weight = weight.map_or(0.0, |(_, weight)| weight);
        }
        samples.retain(|sample| sample.weight > 0.0);
        Ok(samples)
    }

    /// Times all in turn. The samples have the weight of a kernel's own.
    fn time(
        &mut self,
        drawn: Vec<(Gemm, Configuration)>,
        policy: Policy,
    ) -> Result<Vec<Sample>, Error> {
        let times = self.tuner.time(self.auto, self.pool, policy, &drawn)?;
        let sample = |((gemm, configuration), ns): (_, Option<f64>)| {
            Some(Sample { gemm, configuration, ns: ns?, weight: OWN })
        };
        Ok(drawn.into_iter().zip(times).filter_map(sample).collect())
    }
}

/// All configurations of a kernel for a product.
fn configurations(model: &Model, gemm: &Gemm, costs: &Costs) -> Vec<Configuration> {
    let all = model.of_kernel(gemm, costs).into_iter();
    all.map(|prediction| prediction.configuration).collect()
}

/// Elements that tiles cover, relative to C.
fn covered(gemm: &Gemm, kernel: &KernelDescriptor) -> f64 {
    let tile = kernel.tile();
    let along =
        |size: usize, tile: u32| size.next_multiple_of(tile as usize) as f64 / size.max(1) as f64;
    let covered = |rows, cols| along(rows, tile.bm) * along(cols, tile.bn);
    let direct = covered(gemm.m, gemm.n);
    if kernel.transposes_c() { direct.min(covered(gemm.n, gemm.m)) } else { direct }
}

/// Random products of all classes, in the kernels' precisions.
pub fn products(count: usize, seed: u64, limits: Limits) -> Vec<Gemm> {
    let computes = [Compute::F32, Compute::Tf32, Compute::Tf32x3, Compute::Bf16];
    let drawn = super::class::draw(count, seed).into_iter();
    let fits = |(_, shape): &(Class, Shape)| {
        let gemm = shape.gemm();
        gemm.flops() <= limits.flops && gemm.bytes() <= limits.bytes
    };
    let in_all = |(_, shape): (Class, Shape)| {
        computes.map(|compute| {
            let gemm = shape.gemm().computed_in(compute);
            if compute.element() == Element::F32 { gemm } else { gemm.stored_as(compute.element()) }
        })
    };
    drawn.filter(fits).flat_map(in_all).collect()
}
