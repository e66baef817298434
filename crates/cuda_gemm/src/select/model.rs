//! The cost model: predicts times from a [`Table`].
//!
//! One model serves all kernels and precisions. A reader can check a prediction by hand:
//!
//! ```text
//! step(q)  = overlap(step_ns * latency_share, q * shared_step_ns) * narrow
//!            * (1 + out_of_bounds * edges) [* (1 + uneven_step)] [* (1 + misaligned_operand)]
//! block(q) = block_ns
//!            + q * store_ns [* (1 + misaligned_c)] [* (1 + transposed_c)] * (1 + epilogue)
//! chain    = steps * (full_waves * step(r) + step(q))
//! ends     = full_waves * block(r) + block(q) * (1 + next_tile * (tiles_per_block - 1))
//! memory   = inputs / reading + outputs / copy_gbytes
//! reading  = 1 / hypot(1 / copy_gbytes, 1 / (busy * multiprocessor_gbytes))
//! l2       = asked / l2_gbytes
//! time     = launch_ns + ends + overlap(chain, memory, l2) + reduction + staging
//! ```
//!
//! - **Waves.** A multiprocessor holds `r` resident blocks, and `q` blocks of the last wave. Waves
//!   are whole: one block too many costs another wave.
//! - **Steps.** A block that is alone waits for the latency of its loads, `step_ns`. More memory
//!   has more stages, which hide more of it. So `latency_share` is 1, or else the memory of a block
//!   that shares a multiprocessor over that of a block that has it alone. Several blocks share the
//!   multiprocessor's throughput, `shared_step_ns` each.
//! - **Narrow tiles.** A step's time follows what shared memory moves and the tensor cores multiply,
//!   except for a part of it, `narrow_step`.
//! - **Tiles.** A persistent block computes one tile after the other, and stores while it loads.
//! - **Edges.** Loads of a tile that lies partly out of bounds are slower, as far as edge tiles
//!   occupy the multiprocessors.
//! - **Memory.** Few `busy` multiprocessors read more slowly. A and B are read once if the L2 cache
//!   holds them. Otherwise, tiles that run at the same time share what they read; clusters of
//!   stream-K that begin within tiles share half.
//! - **L2.** All that the blocks ask for, `asked`, comes from L2.
//! - **Reduction.** Blocks that share a tile meet, and one of them adds the partial sums:
//!   `reduction_ns + parts * partial_ns`. Split-K pays this in each wave. In stream-K each part
//!   also comes from L2 to one multiprocessor.
//! - **Staging.** Copies of A and B cost `staging_ns`, and read and write their bytes.
//! - **Batches.** A kernel without batches is launched for each product. `time` without staging
//!   counts once per launch.
//!
//! `overlap` is the 4-norm: a little more than the longest time, since each waits for the others at
//! times.
//!
//! `rungs tune` measures all of these numbers, and `rungs tune --validate` judges the choices.

use kernels_gpu::abi::{Shared, Tile};

use super::configurations::Candidates;
use super::grid::{Alignment, Bytes, Edges, Grid, Slots};
use super::prediction::Prediction;
use super::table::{Costs, DeviceCosts, EntryCosts, Table};
use crate::plan::{Configuration, KernelForm, is_fma_for_tf32, multiplied_columns};
use crate::problem::{Compute, Epilogue, Gemm};

/// Limits of compensated sums: elements of C, and K. A C of up to `FEW` elements gets them from a K
/// of `LONG_ENOUGH` on.
///
/// Without compensation, the error of such a product is a matter of luck.
const FEW: usize = 128;
const LONG_ENOUGH: usize = 3;

/// The highest cost of compensated sums. It is relative to the fastest choice.
const COMPENSATION: f64 = 1.35;

/// The highest time of FMAs, relative to TF32. They are more accurate.
const FMA_FOR_TF32: f64 = 1.02;

/// Predicts times from a device's table.
///
/// ```
/// use cuda_gemm::{Gemm, Table, select::Model};
///
/// let model = Model::new(&Table::built_in()?[0]);
/// let gemm = Gemm::new(4096, 4096, 4096);
/// let fastest = model.fastest(&gemm).expect("C has elements");
/// println!("{} takes {:.0} us", fastest.configuration, fastest.ns * 1e-3);
/// assert_eq!(model.time(&gemm, &fastest.configuration), Some(fastest));
/// assert_eq!(model.ranking(&gemm)[0], fastest);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone)]
pub struct Model {
    multiprocessors: u32,
    l2_bytes: f64,
    costs: DeviceCosts,
    kernels: Vec<Costs>,
}

impl Model {
    /// Makes the model of a table's own device.
    pub fn new(table: &Table) -> Self {
        Self {
            multiprocessors: table.device().multiprocessors,
            l2_bytes: table.device().l2_bytes as f64,
            costs: *table.costs(),
            kernels: table.kernels().to_vec(),
        }
    }

    /// The kernels that are chosen from; at least one.
    pub fn kernels(&self) -> &[Costs] {
        &self.kernels
    }

    pub(super) fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    /// The choice for a product: see [`Model::ranking`].
    pub fn fastest(&self, gemm: &Gemm) -> Option<Prediction> {
        self.ranking(gemm).into_iter().next()
    }

    /// All choices for a product, the best first. There are none if C has no elements, or if
    /// [`Gemm::validate`] refuses the product.
    ///
    /// The best is the fastest, with two exceptions:
    ///
    /// - Compensated sums come first for a C of few elements, if they cost at most 35 % more.
    /// - FMAs come before TF32 if they cost at most 2 % more.
    pub fn ranking(&self, gemm: &Gemm) -> Vec<Prediction> {
        let elements = gemm.m.saturating_mul(gemm.n).saturating_mul(gemm.batch);
        if gemm.validate().is_err() || elements == 0 {
            return Vec::new();
        }
        let kernels = self.kernels.iter().filter(|costs| {
            let is_for = gemm.compute.is_of(costs.kernel) || is_fma_for_tf32(gemm, costs.kernel);
            is_for && gemm.suits(costs.kernel)
        });
        let mut all: Vec<_> = kernels.flat_map(|costs| self.of_kernel(gemm, costs)).collect();
        let rank = |one: &Prediction| match Compute::F32.is_of(one.configuration.kernel) {
            true if gemm.compute == Compute::Tf32 => one.ns / FMA_FOR_TF32,
            _ => one.ns,
        };
        all.sort_by(|one, other| rank(one).total_cmp(&rank(other)));
        if elements <= FEW && gemm.depth() >= LONG_ENOUGH {
            let limit = COMPENSATION * all.first().map_or(0.0, |one| one.ns);
            let compensated = all.iter().position(|one| one.configuration.kernel.compensates());
            if let Some(at) = compensated.filter(|at| all[*at].ns <= limit) {
                all[..=at].rotate_right(1);
            }
        }
        all
    }

    /// All choices with one kernel, in no order. The kernel must suit the product.
    ///
    /// ```
    /// use cuda_gemm::{Compute, Gemm, Table, select::Model};
    ///
    /// let model = Model::new(&Table::built_in()?[0]);
    /// let costs = &model.kernels()[0];
    /// let gemm = Gemm::new(4096, 4096, 4096).computed_in(Compute::of_kernel(costs.kernel));
    /// assert!(!model.of_kernel(&gemm, costs).is_empty());
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    pub fn of_kernel(&self, gemm: &Gemm, costs: &Costs) -> Vec<Prediction> {
        let candidates = Candidates {
            gemm,
            kernel: costs.kernel,
            resident: costs.aligned.resident,
            multiprocessors: self.multiprocessors,
        };
        let time = |form: &KernelForm, configuration: &Configuration| {
            self.estimate(costs, gemm, form, configuration)
        };
        let forms = KernelForm::both(&gemm.ungrouped(), costs.kernel);
        forms.iter().flat_map(|form| candidates.all(form, |one| time(form, one))).collect()
    }

    /// The predicted time of a configuration. `None` if the table lacks its kernel, if C has no
    /// elements, or if [`Gemm::validate`] refuses the product.
    pub fn time(&self, gemm: &Gemm, configuration: &Configuration) -> Option<Prediction> {
        gemm.validate().ok()?;
        let name = configuration.kernel.name();
        let costs = self.kernels.iter().find(|costs| costs.kernel.name() == name)?;
        let has_elements = gemm.m > 0 && gemm.n > 0 && gemm.batch > 0;
        let form = KernelForm::of(&gemm.ungrouped(), configuration);
        has_elements.then(|| self.estimate(costs, gemm, &form, configuration))
    }

    fn estimate(
        &self,
        costs: &Costs,
        gemm: &Gemm,
        form: &KernelForm,
        configuration: &Configuration,
    ) -> Prediction {
        let features = Features::in_form(self, costs, gemm, form, configuration);
        let entry = costs.unaligned.as_ref().filter(|_| !features.is_aligned());
        features.predict(entry.unwrap_or(&costs.aligned))
    }
}

/// A prediction's inputs, except the entry point's costs.
///
/// They do not change while costs are fitted.
///
/// ```
/// use cuda_gemm::select::{Model, model::Features};
/// use cuda_gemm::{Gemm, Table};
///
/// let model = Model::new(&Table::built_in()?[0]);
/// let gemm = Gemm::new(4096, 4096, 4096);
/// let fastest = model.fastest(&gemm).expect("C has elements");
/// let name = fastest.configuration.kernel.name();
/// let costs = model.kernels().iter().find(|costs| costs.kernel.name() == name).unwrap();
/// let features = Features::new(&model, costs, &gemm, &fastest.configuration);
/// assert_eq!(features.predict(&costs.aligned), fastest);
/// assert!(features.predict(&costs.aligned.times(2.0)).ns > fastest.ns);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone)]
pub struct Features {
    configuration: Configuration,
    costs: DeviceCosts,
    grid: Grid,
    bytes: Bytes,
    resident: f64,
    /// The memory of a block that shares a multiprocessor, relative to this one's.
    latency_share: f64,
    /// The out-of-bounds part of tiles, weighted by busy multiprocessors.
    edges: f64,
    /// Bytes of a part of a tile that a block reads from L2, times the multiprocessors: one of them
    /// has its share of the rate.
    part_bytes: f64,
    /// A step's time and a tile's size, relative to those of the kernel's widest tile.
    narrow_step: f64,
    narrow: f64,
    alignment: Alignment,
    transposes_c: bool,
    /// Multiprocessors that have a block.
    busy: f64,
    epilogue: Epilogue,
    reads_c: bool,
}

impl Features {
    /// Computes the features of a product and its configuration. `costs` are the costs of the
    /// configuration's kernel.
    pub fn new(model: &Model, costs: &Costs, gemm: &Gemm, configuration: &Configuration) -> Self {
        Self::in_form(model, costs, gemm, &KernelForm::of(gemm, configuration), configuration)
    }

    fn in_form(
        model: &Model,
        costs: &Costs,
        gemm: &Gemm,
        form: &KernelForm,
        configuration: &Configuration,
    ) -> Self {
        let alignment = Alignment::new(form, configuration);
        let entry = costs.unaligned.as_ref().filter(|_| !alignment.is_aligned);
        let most = entry.unwrap_or(&costs.aligned).resident.max(1);
        let resident = configuration.blocks_per_multiprocessor.unwrap_or(most).clamp(1, most);
        let multiprocessors = u64::from(model.multiprocessors.max(1));
        let slots =
            Slots { multiprocessors, resident: resident.into(), clusters: &model.costs.clusters };
        let grid = Grid::new(form, configuration, slots);
        let at_once = (multiprocessors * u64::from(resident)) as f64 / grid.splits;
        let bytes = Bytes::new(form, configuration, &grid, at_once, model.l2_bytes);
        let Edges { outside, share } = Edges::new(form, configuration);
        // Edge tiles fill the last round, and have their share of the others.
        let rounds = grid.rounds();
        let Tile { bm, bn: most_cols, .. } = configuration.kernel.tile();
        let bn = multiplied_columns(form, configuration);
        let at_edges = (grid.tiles * share * grid.splits / multiprocessors as f64).min(1.0);
        let busy = grid.blocks.min(multiprocessors as f64);
        let edges = outside * at_edges * (1.0 + (rounds - 1.0) * share) / rounds;
        let part_bytes = multiprocessors as f64 * f64::from(4 * bm * bn) / grid.splits;
        Self {
            configuration: *configuration,
            costs: model.costs,
            grid,
            bytes,
            resident: resident.into(),
            latency_share: match configuration.kernel.shared() {
                Shared::Stages { bytes: [several, one], .. } if resident < most => {
                    f64::from(several) / f64::from(one)
                }
                _ => 1.0,
            },
            edges,
            part_bytes,
            narrow_step: step_cycles(bm, bn) / step_cycles(bm, most_cols),
            narrow: f64::from(bn) / f64::from(most_cols),
            alignment,
            transposes_c: form.transposes_c,
            busy,
            epilogue: gemm.epilogue,
            reads_c: gemm.beta != 0.0 || gemm.factors_on_device,
        }
    }

    /// Whether the kernel's first entry point serves.
    pub fn is_aligned(&self) -> bool {
        self.alignment.is_aligned
    }

    /// The features with other costs of the device.
    #[must_use]
    pub fn with_device(self, costs: DeviceCosts) -> Self {
        Self { costs, ..self }
    }

    /// The time with an entry point of these costs.
    pub fn predict(&self, entry: &EntryCosts) -> Prediction {
        let Self { costs: device, grid, bytes, resident, latency_share, alignment, .. } = self;
        let growth = |is_there: bool, growth: f64| if is_there { 1.0 + growth } else { 1.0 };
        let slower = (1.0 + entry.out_of_bounds * self.edges)
            * growth(grid.is_uneven, entry.uneven_step)
            * growth(alignment.is_operand_misaligned, entry.misaligned_operand);
        let step = |blocks: f64| {
            let step_ns = overlap(entry.step_ns * latency_share, blocks * entry.shared_step_ns);
            let narrow = entry.narrow_step + (1.0 - entry.narrow_step) * self.narrow_step;
            step_ns * narrow * slower
        };
        let store_ns = entry.store_ns
            * self.narrow
            * growth(alignment.is_c_misaligned, entry.misaligned_c)
            * growth(self.transposes_c, entry.transposed_c)
            * (1.0 + self.epilogue_growth(device));
        let block = |blocks: f64| entry.block_ns + blocks * store_ns;
        let chain = grid.steps * (grid.full_waves * step(*resident) + step(grid.last_wave));
        let further = entry.next_tile * (grid.tiles_per_block - 1.0);
        let ends = grid.full_waves * block(*resident) + block(grid.last_wave) * (1.0 + further);
        // A few multiprocessors do not read at the full rate.
        let read_gbytes = self.busy * device.multiprocessor_gbytes;
        let inputs_ns = bytes.inputs * device.copy_gbytes.recip().hypot(read_gbytes.recip());
        let memory_ns = inputs_ns + bytes.outputs / device.copy_gbytes;
        let l2_ns = bytes.asked / device.l2_gbytes;
        let blocks_ns = ends + overlap(overlap(chain, memory_ns), l2_ns);
        // A block keeps its place while it waits for others and adds partial sums.
        let waves = (grid.full_waves + grid.last_wave / resident).max(1.0);
        let split_k = match grid.splits > 1.0 {
            true => waves * (entry.reduction_ns + grid.splits * entry.partial_ns),
            false => 0.0,
        };
        let part_ns = entry.partial_ns + self.part_bytes / device.l2_gbytes;
        let stream_k = match grid.stream_k_parts {
            0.0 => 0.0,
            parts => entry.reduction_ns + parts * part_ns,
        };
        let staging = match bytes.staged {
            0.0 => 0.0,
            bytes => device.staging_ns + 2.0 * bytes / device.copy_gbytes,
        };
        let launch = device.launch_ns + blocks_ns + split_k + stream_k;
        Prediction {
            configuration: self.configuration,
            ns: grid.launches * launch + staging,
            memory_bound: memory_ns.max(l2_ns) > chain,
        }
    }

    /// How epilogue and old C lengthen a tile's store.
    fn epilogue_growth(&self, device: &DeviceCosts) -> f64 {
        let Epilogue { scale, bias, activation, residual } = self.epilogue;
        [
            (scale.is_some(), device.vector),
            (bias.is_some(), device.vector),
            (activation.is_some(), device.activation),
            (residual, device.matrix),
            (self.reads_c, device.matrix),
        ]
        .iter()
        .map(|(is_there, growth)| if *is_there { *growth } else { 0.0 })
        .sum()
    }
}

/// The cycles of a step along K of a tile of 16-bit operands.
///
/// Shared memory moves 128 bytes in each: what is copied, 64 rows of A for each warpgroup, and all
/// of B for each. The tensor cores add 32 times 64 x 16 x 16 products in 64.
fn step_cycles(rows: u32, cols: u32) -> f64 {
    let [rows, cols] = [rows, cols].map(f64::from);
    (2.0 * rows + (rows / 64.0 + 1.0) * cols).max(rows * cols / 32.0)
}

/// Two times that overlap: their 4-norm.
fn overlap(one: f64, other: f64) -> f64 {
    let longer = one.max(other);
    if longer > 0.0 {
        longer * (1.0 + (one.min(other) / longer).powi(4)).sqrt().sqrt()
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests;
