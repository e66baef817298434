//! The full tuning: fits all kernels' costs to samples.

use cuda_gemm::kernels::abi::{KernelAbi, KernelDescriptor, Reads, Tile};
use cuda_gemm::kernels::{self, LADDER};
use cuda_gemm::select::Model;
use cuda_gemm::select::model::Features;
use cuda_gemm::select::table::{Costs, DeviceCosts, EntryCosts, Measured};
use cuda_gemm::{Compute, Configuration, Device, Gemm, Kernel, Table, find_kernel};

use super::fit::fit;
use super::pool::OperandPool;
use super::samples::{Limits, Sample, Sampler, products};
use super::tuner::{POLICY, Progress, Tuner, check, operands, reference};
use crate::error::Error;
use crate::job::Job;
use crate::roofline;
use crate::shape::Draw;

/// Rungs that may beat the tiles of the families. They have one launch per product.
const RUNGS: [&str; 2] = ["warptile", "async_copy"];

/// The kernels of a trial.
const TRIAL: [&str; 3] = ["async_copy", "tile_32x32", "tile_4x128"];

/// More blocks per multiprocessor are not told apart.
const MAX_RESIDENT: u32 = 16;

/// Configurations that are checked before a kernel is timed. They are splits, and whether A and B
/// are copied first.
const CHECKED: [(u32, bool); 3] = [(1, false), (3, false), (1, true)];

/// The seed of the samples.
const SEED: u64 = 1;

/// The fit's initial values for an unknown kernel.
const INITIAL: EntryCosts = EntryCosts {
    resident: 1,
    step_ns: 300.0,
    shared_step_ns: 150.0,
    block_ns: 1000.0,
    store_ns: 500.0,
    next_tile: 0.6,
    reduction_ns: 1000.0,
    partial_ns: 100.0,
    out_of_bounds: 0.3,
    misaligned_c: 0.3,
    transposed_c: 0.3,
    misaligned_operand: 0.2,
    narrow_step: 0.1,
    uneven_step: 0.1,
};

/// The initial growth by an epilogue, before the fit.
const EPILOGUE: f64 = 0.5;

/// The initial rate of the L2 cache, in copies.
const L2_COPIES: f64 = 2.5;

/// The initial cost of staging, in launches.
const STAGING_LAUNCHES: f64 = 1.6;

/// How much [`Tuner::run`] measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// All kernels, with samples that take some minutes.
    Full,
    /// A few kernels and tiny samples, as a test.
    Trial,
}

/// The sizes of a tuning.
struct Size {
    /// Samples of each kernel.
    of_kernel: usize,
    /// Products whose kernels are all timed, in each precision.
    products: usize,
    limits: Limits,
}

impl Size {
    fn new(effort: Effort, multiprocessors: u32) -> Self {
        match effort {
            Effort::Full => Self {
                of_kernel: 72,
                products: 100,
                limits: Limits { multiprocessors, flops: 1e12, bytes: 512 << 20 },
            },
            Effort::Trial => Self {
                of_kernel: 4,
                products: 4,
                limits: Limits { multiprocessors: 1, flops: 1e6, bytes: 1 << 20 },
            },
        }
    }

    /// Products may be larger than a kernel's own samples.
    fn of_products(&self) -> Limits {
        let Limits { flops, bytes, .. } = self.limits;
        Limits { flops: 10.0 * flops, bytes: 6 * bytes, ..self.limits }
    }
}

/// The fit of a kernel's costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The number of samples.
    pub samples: usize,
    /// The median factor between predictions and samples.
    pub error: f64,
}

/// The result of a full tuning, from [`Tuner::run`].
pub struct Calibration {
    /// The table, without products that were measured themselves.
    pub table: Table,
    /// The times that the costs were fitted to.
    pub samples: Vec<Sample>,
    /// The fits of the table's kernels.
    pub fits: Vec<Fit>,
    /// The median factor between all predictions and samples.
    pub error: f64,
    /// How many kernels were wrong.
    pub wrong: usize,
    /// GFLOP/s of FMAs, before and after. They show how clocks drift. `None` on the software
    /// device.
    pub ffma_gflops: Option<[f64; 2]>,
}

impl Tuner {
    /// Measures the costs of all kernels for a table. An error of `report` ends it.
    ///
    /// Each kernel is checked first. Its costs follow from [samples](Calibration::samples) by least
    /// squares.
    ///
    /// # Errors
    ///
    /// - the error of `report`
    /// - [`Error::NothingMeasured`] if no kernel runs and is right
    /// - a fault of a kernel, or [`cuda_gemm::Error::Driver`]
    pub fn run<E: From<Error>>(
        &self,
        effort: Effort,
        report: impl FnMut(Progress<'_>) -> Result<(), E>,
    ) -> Result<Calibration, E> {
        self.calibrate(effort, &kernels(effort, &self.device)?, None, report)
    }

    /// Measures the costs of some kernels anew. The others' are those of `table`, which is of this
    /// device, and so are the costs of launches, copies and epilogues.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    pub fn run_kernels<E: From<Error>>(
        &self,
        effort: Effort,
        table: &Table,
        kernels: &[&'static KernelDescriptor],
        report: impl FnMut(Progress<'_>) -> Result<(), E>,
    ) -> Result<Calibration, E> {
        self.calibrate(effort, kernels, Some(table), report)
    }

    fn calibrate<E: From<Error>>(
        &self,
        effort: Effort,
        all: &[&'static KernelDescriptor],
        known: Option<&Table>,
        mut report: impl FnMut(Progress<'_>) -> Result<(), E>,
    ) -> Result<Calibration, E> {
        let before = self.rates()?;
        let size = Size::new(effort, roofline::multiprocessors(&self.device));
        let (mut measured, device) = match known {
            Some(table) => (table.device().clone(), *table.costs()),
            None => (Measured::now(&self.device).map_err(Error::from)?, device_costs(self)?),
        };
        let is_measured = |name: &str| all.iter().any(|kernel| kernel.name() == name);
        let same = |one: &Costs, other: &Costs| one.kernel.name() == other.kernel.name();
        let is_drawn = |gemm: &Gemm| all.iter().any(|kernel| gemm.compute.is_of(kernel));
        let mut drawn = products(size.products, SEED, size.of_products());
        drawn.retain(is_drawn);
        let total = 2 * all.len() + drawn.len();
        let (mut done, mut wrong) = (0, 0);
        let mut initial = Vec::new();
        for kernel in all {
            report(Progress::Step { done, total })?;
            done += 1;
            let Some(costs) = initial_costs(&self.device, kernel)? else {
                report(Progress::DoesNotRun(kernel))?;
                continue;
            };
            let loaded = self.device.kernel(kernel).map_err(Error::from)?;
            if let Some(mistake) = mistake(self, &loaded)? {
                wrong += 1;
                report(Progress::WrongKernel { kernel, mistake: &mistake })?;
                continue;
            }
            measured.add(kernel);
            initial.push(costs);
        }
        if initial.is_empty() {
            return Err(Error::NothingMeasured { count: all.len() }.into());
        }
        // A known kernel keeps its place.
        let mut costs = known.map_or(Vec::new(), |table| table.kernels().to_vec());
        costs.retain(|one| {
            !is_measured(one.kernel.name()) || initial.iter().any(|new| same(new, one))
        });
        for new in initial {
            match costs.iter_mut().find(|one| same(&new, one)) {
                Some(one) => *one = new,
                None => costs.push(new),
            }
        }
        let products = known.map_or(Vec::new(), |table| table.products().to_vec());
        let first = Table::new(measured, device, costs, products).map_err(Error::from)?;
        let auto = self.device.auto_by(&first).map_err(Error::from)?;
        let mut sampler = Sampler {
            tuner: self,
            auto: &auto,
            pool: &mut OperandPool::for_products(&self.device, size.of_products().bytes)?,
            limits: size.limits,
            draw: Draw::new(SEED),
        };
        let mut samples = Vec::new();
        for costs in first.kernels().iter().filter(|costs| is_measured(costs.kernel.name())) {
            report(Progress::Step { done, total })?;
            done += 1;
            samples.extend(sampler.of_kernel(costs, size.of_kernel)?);
        }
        sampler.limits = size.of_products();
        for gemm in &drawn {
            report(Progress::Step { done, total })?;
            done += 1;
            samples.extend(sampler.of_product(gemm)?);
        }

        samples.retain(|sample| is_measured(sample.configuration.kernel.name()));
        let table = match known {
            None => refit(&first, &samples)?,
            Some(_) => {
                let kernels = fitted(&first, first.kernels(), &samples);
                let (device, products) = (first.device().clone(), first.products().to_vec());
                Table::new(device, *first.costs(), kernels, products).map_err(Error::from)?
            }
        };
        let errors = errors(&table, &samples);
        let of_kernel = |costs: &Costs| {
            let own = errors.iter().filter(|(name, _)| *name == costs.kernel.name());
            let own: Vec<f64> = own.map(|(_, error)| *error).collect();
            Fit { samples: own.len(), error: median(own) }
        };
        let fits = table.kernels().iter().map(of_kernel).collect();
        let error = median(errors.iter().map(|(_, error)| *error).collect());
        let rates = before.zip(self.rates()?);
        let ffma_gflops = rates.map(|(before, after)| [before.ffma, after.ffma]);
        Ok(Calibration { table, samples, fits, error, wrong, ffma_gflops })
    }
}

/// Fits a table's costs to samples: those of kernels, of memory, of staging and of epilogues.
///
/// The costs of launches and the rate of copies stay, and those of entry points without samples. So
/// a model can be changed, and its costs fitted anew, on a machine without a GPU.
///
/// # Errors
///
/// The errors of [`Table::new`].
pub fn refit(table: &Table, samples: &[Sample]) -> Result<Table, Error> {
    let unknown = |costs: &Costs| {
        let entry = |entry: EntryCosts| {
            without_unused(costs.kernel, EntryCosts { resident: entry.resident, ..INITIAL })
        };
        let (aligned, unaligned) = (entry(costs.aligned), costs.unaligned.map(entry));
        Costs { kernel: costs.kernel, aligned, unaligned }
    };
    let initial: Vec<_> = table.kernels().iter().map(unknown).collect();
    let with = |costs: DeviceCosts, kernels: Vec<Costs>| {
        Table::new(table.device().clone(), costs, kernels, table.products().to_vec())
    };
    let has_times = |costs: &Costs| {
        samples.iter().any(|sample| sample.configuration.kernel.name() == costs.kernel.name())
    };
    if !table.kernels().iter().all(has_times) {
        // The others were fitted with these costs of the device.
        let kernels = fitted(&with(*table.costs(), initial)?, table.kernels(), samples);
        return Ok(with(*table.costs(), kernels)?);
    }
    // Kernels are fitted with the costs of the device, and the other way round.
    let mut costs = DeviceCosts {
        l2_gbytes: L2_COPIES * table.costs().copy_gbytes,
        staging_ns: STAGING_LAUNCHES * table.costs().launch_ns,
        vector: EPILOGUE,
        activation: EPILOGUE,
        matrix: EPILOGUE,
        ..*table.costs()
    };
    let mut kernels = initial.clone();
    for _ in 0..2 {
        kernels = fitted(&with(costs, initial.clone())?, table.kernels(), samples);
        costs = fitted_device(&with(costs, kernels.clone())?, samples);
    }
    Ok(with(costs, kernels)?)
}

/// The kernels to measure: all that `auto` may choose.
fn kernels(effort: Effort, device: &Device) -> Result<Vec<&'static KernelDescriptor>, Error> {
    let named = |names: &[&str]| -> Result<Vec<_>, Error> {
        names.iter().map(|name| Ok(find_kernel(name)?)).collect()
    };
    if effort == Effort::Trial {
        let mut trial = named(&TRIAL)?;
        if device.info().capability == (9, 0) {
            trial.extend(named(&["tf32_split_16x128", "tf32x3_64x64", "wgmma_split_64x16"])?);
        }
        return Ok(trial);
    }
    let streaming = LADDER.iter().filter(|descriptor| descriptor.abi() == KernelAbi::StreamK);
    let mut all: Vec<_> = streaming.copied().collect();
    all.extend(named(&RUNGS)?);
    let families = kernels::kernels().filter(|kernel| {
        let is_rung = LADDER.iter().any(|rung| rung.name() == kernel.name());
        !is_rung && kernel.abi() != KernelAbi::Wgmma
    });
    all.extend(families);
    Ok(all)
}

/// Measures the costs of launches and memory.
fn device_costs(tuner: &Tuner) -> Result<DeviceCosts, Error> {
    let device = &tuner.device;
    let naive = device.kernel(find_kernel("naive")?)?;
    let gemm = Gemm::new(1, 1, 0);
    let job = Job::Kernel(naive.prepare(gemm)?);
    let mut buffers = tuner.buffers(&operands(gemm)?)?;
    let times = tuner.time_by(POLICY, 1, |_| buffers.enqueue(&job))?;
    let launch_ns = (1e6 * crate::stats::median(&times[0])).max(1.0);
    let copy_gbytes = tuner.rates()?.map_or(1.0, |rates| rates.copy);
    Ok(DeviceCosts {
        launch_ns,
        copy_gbytes,
        l2_gbytes: L2_COPIES * copy_gbytes,
        multiprocessor_gbytes: multiprocessor_gbytes(tuner)?,
        staging_ns: STAGING_LAUNCHES * launch_ns,
        clusters: clusters(device)?,
        vector: EPILOGUE,
        activation: EPILOGUE,
        matrix: EPILOGUE,
    })
}

/// Measures the rate at which one block, of one tile, reads from device memory, in GB/s (10^9).
fn multiprocessor_gbytes(tuner: &Tuner) -> Result<f64, Error> {
    let device = &tuner.device;
    let name = if device.info().capability == (9, 0) { "wgmma_64x128" } else { "mma_64x64" };
    let kernel = device.kernel(find_kernel(name)?)?;
    let Tile { bm, bn, .. } = kernel.descriptor().tile();
    let depth = if device.is_soft() { 64 } else { 1 << 15 };
    let gemm = Gemm::new(bm as usize, bn as usize, depth).computed_in(Compute::Bf16);
    let job = Job::Kernel(kernel.prepare(gemm)?);
    let mut buffers = tuner.buffers(&operands(gemm)?)?;
    let times = tuner.time_by(POLICY, 1, |_| buffers.enqueue(&job))?;
    let bytes = 2.0 * f64::from(bm + bn) * depth as f64;
    Ok(bytes / (1e6 * crate::stats::median(&times[0])).max(1.0))
}

/// Resident clusters of 1 to 8 blocks. A multiprocessor holds one of their blocks.
fn clusters(device: &Device) -> Result<[u32; 8], Error> {
    let multiprocessors = roofline::multiprocessors(device);
    let even = [1, 2, 3, 4, 5, 6, 7, 8].map(|size| (multiprocessors / size).max(1));
    let is_for = |kernel: &&KernelDescriptor| {
        kernel.abi() == KernelAbi::WgmmaClusters && kernel.blocks_per_multiprocessor() == 1
    };
    let Some(kernel) = kernels::kernels().find(is_for) else { return Ok(even) };
    if device.is_soft() || device.info().capability != (9, 0) {
        return Ok(even);
    }
    let mut clusters = even;
    for (count, size) in clusters.iter_mut().zip(1..) {
        *count = device.active_clusters(kernel, size)?.max(1);
    }
    Ok(clusters)
}

/// A kernel's costs before they are fitted. `None` if it cannot run.
fn initial_costs(
    device: &Device,
    kernel: &'static KernelDescriptor,
) -> Result<Option<Costs>, Error> {
    let resident = device.resident_blocks(kernel, false)?;
    if resident == 0 {
        return Ok(None);
    }
    let entry = |resident: u32| EntryCosts { resident: resident.clamp(1, MAX_RESIDENT), ..INITIAL };
    let unaligned = kernel.unaligned().map(|_| device.resident_blocks(kernel, true)).transpose()?;
    let aligned = without_unused(kernel, entry(resident));
    let unaligned = unaligned.map(|resident| without_unused(kernel, entry(resident)));
    Ok(Some(Costs { kernel, aligned, unaligned }))
}

/// Resets the costs that the kernel never has.
fn without_unused(kernel: &KernelDescriptor, costs: EntryCosts) -> EntryCosts {
    let is_persistent = kernel.is_persistent();
    let has_clusters = kernel.abi() == KernelAbi::WgmmaClusters;
    let reduces = kernel.abi().splits_k() || kernel.abi() == KernelAbi::StreamK;
    let reads_anywhere = [false, true]
        .into_iter()
        .any(|is_b| kernel.unaligned().is_none() && kernel.reads(is_b, false) == Reads::Anywhere);
    let only = |is_used: bool, value: f64| if is_used { value } else { 0.0 };
    EntryCosts {
        shared_step_ns: only(costs.resident > 1, costs.shared_step_ns),
        next_tile: if is_persistent || has_clusters { costs.next_tile } else { 1.0 },
        transposed_c: only(has_clusters, costs.transposed_c),
        reduction_ns: only(reduces, costs.reduction_ns),
        partial_ns: only(reduces, costs.partial_ns),
        misaligned_operand: only(reads_anywhere, costs.misaligned_operand),
        narrow_step: only(kernel.narrows() && kernel.tile().bn > 16, costs.narrow_step),
        uneven_step: only(has_clusters, costs.uneven_step),
        ..costs
    }
}

/// Checks a kernel, and says how it is wrong. It computes whole tiles and edges, with both entry
/// points and with splits.
fn mistake(tuner: &Tuner, kernel: &Kernel) -> Result<Option<String>, Error> {
    let descriptor = kernel.descriptor();
    let tile = descriptor.tile();
    let [bm, bn, bk] = [tile.bm, tile.bn, tile.bk].map(|size| size as usize);
    let compute = Compute::of_kernel(descriptor);
    for beyond in [4, 5] {
        let gemm = Gemm::new(bm + 3, 2 * bn + beyond, 3 * bk + beyond).computed_in(compute);
        let operands = operands(gemm)?;
        let reference = reference(&operands)?;
        let mut buffers = tuner.buffers(&operands)?;
        for (splits, staged) in CHECKED {
            let is_possible = (splits == 1 || descriptor.abi().splits_k())
                && (!staged || descriptor.abi() == KernelAbi::SplitK);
            if !is_possible {
                continue;
            }
            let way = Configuration { splits, staged, ..Configuration::new(descriptor) };
            let plan = kernel.plan(gemm).divided(&way).prepare()?;
            if let Err(reason) = check(plan, &mut buffers, &reference)? {
                let Gemm { m, n, k, .. } = gemm;
                return Ok(Some(format!("{m}x{n}x{k}, {way}: {reason}")));
            }
        }
    }
    Ok(None)
}

/// A sample, with its features.
struct Fitted<'s> {
    sample: &'s Sample,
    features: Features,
}

impl<'s> Fitted<'s> {
    /// The samples of a kernel.
    fn of_kernel(model: &Model, costs: &Costs, samples: &'s [Sample]) -> Vec<Self> {
        let own = samples
            .iter()
            .filter(|sample| sample.configuration.kernel.name() == costs.kernel.name());
        let fitted = |sample: &'s Sample| {
            let features = Features::new(model, costs, &sample.gemm, &sample.configuration);
            Self { sample, features }
        };
        own.map(fitted).collect()
    }

    /// The logarithm of predicted over measured time.
    fn error(&self, entry: &EntryCosts) -> f64 {
        (self.features.predict(entry).ns / self.sample.ns).ln()
    }
}

/// The kernels' costs, fitted to samples from those of `table`; an entry point without samples
/// keeps its `known` costs.
fn fitted(table: &Table, known: &[Costs], samples: &[Sample]) -> Vec<Costs> {
    let model = Model::new(table);
    let kernels = table.kernels().iter().zip(known).map(|(costs, known)| {
        let own = Fitted::of_kernel(&model, costs, samples);
        let entry = |is_aligned: Option<bool>, initial: EntryCosts, known: EntryCosts| {
            let is_of = |one: &&Fitted<'_>| {
                is_aligned.is_none_or(|is_aligned| one.features.is_aligned() == is_aligned)
            };
            let own: Vec<_> = own.iter().filter(is_of).collect();
            if own.is_empty() { known } else { fitted_entry(initial, &own) }
        };
        let aligned = |is_aligned| entry(is_aligned, costs.aligned, known.aligned);
        let (aligned, unaligned) = match costs.unaligned.zip(known.unaligned) {
            Some((initial, known)) => {
                (aligned(Some(true)), Some(entry(Some(false), initial, known)))
            }
            None => (aligned(None), None),
        };
        Costs { kernel: costs.kernel, aligned, unaligned }
    });
    kernels.collect()
}

/// The costs that predict these samples best.
fn fitted_entry(mut initial: EntryCosts, samples: &[&Fitted<'_>]) -> EntryCosts {
    let is_free = |value: f64| value > 0.0 && value != 1.0;
    let start: Vec<f64> = initial.fields().map(|(_, value)| *value).into();
    let free: Vec<usize> = (0..start.len()).filter(|i| is_free(start[*i])).collect();
    let with = |values: &[f64]| {
        let mut costs = initial;
        let mut fields = costs.fields();
        free.iter().zip(values).for_each(|(i, value)| *fields[*i].1 = *value);
        costs
    };
    let start: Vec<f64> = free.iter().map(|i| start[*i]).collect();
    let values = fit(&start, |values| {
        let costs = with(values);
        samples.iter().map(|one| one.sample.weight * one.error(&costs)).collect()
    });
    with(&values.into_iter().map(rounded).collect::<Vec<_>>())
}

/// Fits the costs of memory, of staging and of epilogues.
fn fitted_device(table: &Table, samples: &[Sample]) -> DeviceCosts {
    let model = Model::new(table);
    let costs = *table.costs();
    let with = |values: &[f64]| DeviceCosts {
        staging_ns: values[0],
        vector: values[1],
        activation: values[2],
        matrix: values[3],
        l2_gbytes: values[4],
        ..costs
    };
    let of_kernel = |kernel| (kernel, Fitted::of_kernel(&model, kernel, samples));
    let of_kernels: Vec<(&Costs, _)> = table.kernels().iter().map(of_kernel).collect();
    let DeviceCosts { staging_ns, vector, activation, matrix, l2_gbytes, .. } = costs;
    let start = [staging_ns, vector, activation, matrix, l2_gbytes];
    let values = fit(&start, |values| {
        let device = with(values);
        let error = |kernel: &Costs, one: &Fitted<'_>| {
            let features = one.features.clone().with_device(device);
            let entry = kernel.unaligned.as_ref().filter(|_| !features.is_aligned());
            let ns = features.predict(entry.unwrap_or(&kernel.aligned)).ns;
            one.sample.weight * (ns / one.sample.ns).ln()
        };
        of_kernels
            .iter()
            .flat_map(|(kernel, own)| own.iter().map(|one| error(kernel, one)))
            .collect()
    });
    with(&values.into_iter().map(rounded).collect::<Vec<_>>())
}

/// Rounds to three significant digits. Times are no more exact.
fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

/// The factors by which predictions are off. They are at least 1, and have the kernels' names.
fn errors(table: &Table, samples: &[Sample]) -> Vec<(&'static str, f64)> {
    let model = Model::new(table);
    let error = |sample: &Sample| {
        let ns = model.time(&sample.gemm, &sample.configuration)?.ns;
        Some((sample.configuration.kernel.name(), (ns / sample.ns).max(sample.ns / ns)))
    };
    samples.iter().filter_map(error).collect()
}

/// The median, or 1 of none.
fn median(values: Vec<f64>) -> f64 {
    if values.is_empty() { 1.0 } else { crate::stats::median(&values) }
}
