//! The steps of a tuning: kernels' costs, searches, calibration, exceptions.

use std::collections::BTreeMap;

use cuda_gemm::auto::table::{Costs, Measured};
use cuda_gemm::auto::{Choice, Model, Table};
use cuda_gemm::kernels::{KernelAbi, KernelDescriptor, LADDER, TILES};
use cuda_gemm::{Compute, Device, find_kernel};

use super::context::BenchmarkContext;
use super::search::CandidateSearch;
use super::search_result::SearchResult;
use super::{calibrate, costs, shapes, tensor_cores};
use crate::baseline::{self, NotCompared};
use crate::error::Error;
use crate::shape::Shape;

/// Rungs of one launch per product that are worth a try beside the tiles.
const RUNGS: [&str; 2] = ["warptile", "async_copy"];

/// What a trial measures.
const TRIAL: [&str; 3] = ["async_copy", "tile_32x32", "tile_4x128"];

/// Of more blocks per multiprocessor nothing is measured.
const MOST_RESIDENT: u32 = 16;

/// How much [`Tuner::run`] measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// All kernels, and more than a hundred shapes.
    Full,
    /// A few kernels and tiny shapes, to see that it works.
    Trial,
}

/// What happens while a [`Tuner`] measures, with an example there.
pub enum Progress<'a> {
    /// So many of all kernels and products are done.
    Step {
        /// How many.
        done: usize,
        /// Of how many.
        total: usize,
    },
    /// A kernel does not run on this device.
    DoesNotRun(&'static KernelDescriptor),
    /// A kernel is wrong, and not measured.
    WrongKernel {
        /// The kernel.
        kernel: &'static KernelDescriptor,
        /// What is wrong.
        mistake: &'a str,
    },
    /// A kernel was measured.
    Kernel {
        /// What it costs.
        costs: &'a Costs,
        /// The table of all kernels so far.
        table: &'a Table,
    },
    /// A kernel for tensor cores is wrong for a product, and not measured there.
    WrongTensorCore {
        /// The kernel.
        kernel: &'static str,
        /// M, N and K.
        product: [usize; 3],
        /// What is wrong.
        mistake: &'a str,
    },
    /// A kernel for tensor cores was measured.
    TensorCore {
        /// The kernel.
        kernel: &'static str,
        /// For so many products.
        products: usize,
        /// How many times as long it takes as what was measured on an H200 says, next to the one where that is least.
        factor: f64,
    },
    /// Nothing is compared with cuBLAS: why not.
    NoBaseline(&'a Error),
    /// This product is not compared with cuBLAS: why not.
    NotCompared(&'a NotCompared),
    /// A product is not measured.
    NotMeasured {
        /// The product.
        shape: Shape,
        /// Why not.
        reason: &'a str,
    },
    /// A choice is wrong.
    WrongChoice {
        /// The product.
        shape: Shape,
        /// The choice.
        choice: Choice,
        /// What is wrong.
        reason: &'a str,
    },
    /// A product was measured.
    Product {
        /// What came of it.
        result: &'a SearchResult,
        /// What the costs say.
        model: &'a Model,
        /// Whether the costs mislead.
        is_exception: bool,
        /// The table, with the exceptions so far.
        table: &'a Table,
    },
}

/// What came of a tuning, from [`Tuner::run`].
pub struct Tuning {
    /// The table, with corrected costs if they choose better, and with exceptions.
    pub table: Table,
    /// The products that were measured.
    pub results: Vec<SearchResult>,
    /// How many kernels and choices were wrong.
    pub wrong: usize,
    /// How many times as long as the fastest it takes what the measured costs choose, in the
    /// geometric mean over the products.
    pub measured_loss: f64,
    /// The same of corrected costs, if they choose better.
    pub corrected_loss: Option<f64>,
    /// GFLOP/s of multiply-adds before and after, which say how clocks drift; `None` on the
    /// software device.
    pub ffma_gflops: Option<[f64; 2]>,
}

/// Measures a device's kernels, for `auto` to choose by.
///
/// Every kernel is checked, and timed with a few grids; then, for a list of shapes, what these
/// times say is fastest is timed in turn with what comes close. Where there is cuBLAS, what has an
/// rms error of more than 1.10 times cuBLAS's is passed over.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, Gemm};
/// use gemm_bench::Error;
/// use gemm_bench::tune::{Effort, Progress, Tuner};
///
/// # fn main() -> Result<(), Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// let tuning = Tuner::new(&device)?.run(Effort::Trial, |progress| {
///     if let Progress::Product { result, .. } = progress {
///         println!("{}: {:.0} ns", result.shape, result.fastest().ns());
///     }
///     Ok::<_, Error>(())
/// })?;
/// let auto = device.auto_by(&tuning.table)?;
/// println!("{}", auto.choose(&Gemm::new(512, 512, 512))?);
/// # Ok(())
/// # }
/// ```
pub struct Tuner {
    context: BenchmarkContext,
}

impl Tuner {
    /// Loads what keeps the device busy between measurements.
    ///
    /// # Errors
    ///
    /// Those of [`Peaks::of`](crate::roofline::Peaks::of).
    pub fn new(device: &Device) -> Result<Self, Error> {
        Ok(Self { context: BenchmarkContext::new(device)? })
    }

    /// Measures. What `report` refuses ends it.
    ///
    /// # Errors
    ///
    /// That of `report`; otherwise [`Error::NothingMeasured`] if no kernel runs and is right, a
    /// fault of a kernel, or [`cuda_gemm::Error::Driver`].
    pub fn run<E: From<Error>>(
        &self,
        effort: Effort,
        mut report: impl FnMut(Progress<'_>) -> Result<(), E>,
    ) -> Result<Tuning, E> {
        let before = self.context.ffma_gflops()?;
        let kernels = kernels(effort)?;
        let tensor_cores = tensor_cores::products(&self.context.device, effort == Effort::Trial);
        let of_tensor_cores: usize = tensor_cores.iter().map(|(_, products)| products.len()).sum();
        let total = kernels.len() + of_tensor_cores + shapes::shapes(effort == Effort::Trial).len();
        let mut run =
            Steps { context: &self.context, wrong: 0, report: &mut report, done: 0, total };
        let table = run.costs(&kernels)?;
        let table = run.tensor_cores(table, &tensor_cores)?;
        let results = run.search(&table, effort)?;
        let wrong = run.wrong;
        let after = self.context.ffma_gflops()?;

        let measured_loss = calibrate::mean_loss(&table, &results);
        let calibrated = calibrate::calibrated(&table, &results)?;
        let is_better = calibrated.is_some();
        let table = with_exceptions(calibrated.unwrap_or(table), &results)?;
        let corrected_loss = is_better.then(|| calibrate::mean_loss(&table, &results));
        let ffma_gflops = before.zip(after).map(|(before, after)| [before, after]);
        Ok(Tuning { table, results, wrong, measured_loss, corrected_loss, ffma_gflops })
    }
}

/// The table, with exceptions for products that its costs mislead about.
fn with_exceptions(table: Table, results: &[SearchResult]) -> Result<Table, Error> {
    let model = Model::new(&table);
    let exceptions = results.iter().filter_map(|result| result.exception(&model)).collect();
    Ok(table.with_exceptions(exceptions)?)
}

/// What is measured: the tiles, and rungs that may be faster where they fit.
fn kernels(effort: Effort) -> Result<Vec<&'static KernelDescriptor>, Error> {
    let streaming = LADDER.iter().filter(|descriptor| descriptor.abi() == KernelAbi::StreamK);
    let mut kernels: Vec<_> = streaming.copied().collect();
    let (named, tiles) = match effort {
        Effort::Full => (&RUNGS[..], TILES),
        Effort::Trial => (&TRIAL[..], &[][..]),
    };
    for name in named {
        kernels.push(find_kernel(name)?);
    }
    kernels.extend(tiles);
    Ok(kernels)
}

/// What the steps of a tuning share.
struct Steps<'a, R> {
    context: &'a BenchmarkContext,
    /// How many kernels and choices were wrong.
    wrong: usize,
    report: &'a mut R,
    /// Kernels and products, those that are done and all.
    done: usize,
    total: usize,
}

impl<R> Steps<'_, R> {
    /// Another kernel or product is begun.
    fn step<E>(&mut self) -> Result<(), E>
    where
        R: FnMut(Progress<'_>) -> Result<(), E>,
    {
        (self.report)(Progress::Step { done: self.done, total: self.total })?;
        self.done += 1;
        Ok(())
    }

    /// Measures what kernels cost, one after the other.
    fn costs<E: From<Error>>(&mut self, kernels: &[&'static KernelDescriptor]) -> Result<Table, E>
    where
        R: FnMut(Progress<'_>) -> Result<(), E>,
    {
        let Self { context, .. } = *self;
        let device = &context.device;
        let empty = find_kernel("naive").and_then(|naive| device.kernel(naive));
        let empty = empty.map_err(Error::from)?;
        let mut measured = Measured::now(device).map_err(Error::from)?;
        let launch_ns = costs::launch_ns(context, &empty)?.max(1.0);
        let copy_gbytes = context.copy_gbytes()?;
        let mut table: Option<Table> = None;
        for kernel in kernels {
            self.step()?;
            let resident = device.resident_blocks(kernel).map_err(Error::from)?;
            if resident == 0 {
                (self.report)(Progress::DoesNotRun(kernel))?;
                continue;
            }
            let loaded = device.kernel(kernel).map_err(Error::from)?;
            if let Some(mistake) = costs::mistake(context, &loaded)? {
                self.wrong += 1;
                (self.report)(Progress::WrongKernel { kernel, mistake: &mistake })?;
                continue;
            }
            let costs = costs::measure(context, &loaded, resident.min(MOST_RESIDENT), launch_ns)?;
            measured.add(kernel);
            let mut all = table.map_or_else(Vec::new, |table| table.kernels().to_vec());
            all.push(costs.clone());
            let so_far = Table::new(measured.clone(), launch_ns, copy_gbytes, all, Vec::new())
                .map_err(Error::from)?;
            (self.report)(Progress::Kernel { costs: &costs, table: &so_far })?;
            table = Some(so_far);
        }
        Ok(table.ok_or(Error::NothingMeasured { count: kernels.len() })?)
    }

    /// Measures kernels for tensor cores.
    fn tensor_cores<E: From<Error>>(
        &mut self,
        table: Table,
        products: &[(Compute, &[[usize; 3]])],
    ) -> Result<Table, E>
    where
        R: FnMut(Progress<'_>) -> Result<(), E>,
    {
        let Self { context, .. } = *self;
        let auto = context.device.auto_by(&table).map_err(Error::from)?;
        let mut all = Vec::new();
        let wrong_before = self.wrong;
        for (compute, products) in products {
            let mut of_compute = tensor_cores::Factors::new(*compute);
            for product in *products {
                self.step()?;
                let wrong = match of_compute.measure(context, &auto, *product) {
                    Ok(wrong) => wrong,
                    // There is too little memory.
                    Err(
                        Error::HostMemory { .. }
                        | Error::Gemm(cuda_gemm::Error::DeviceMemory { .. }),
                    ) => continue,
                    Err(error) => return Err(error.into()),
                };
                for (kernel, mistake) in wrong {
                    self.wrong += 1;
                    let (product, mistake) = (*product, &mistake[..]);
                    (self.report)(Progress::WrongTensorCore { kernel, product, mistake })?;
                }
            }
            all.extend(of_compute.of_kernels());
        }
        if self.wrong > wrong_before {
            // A kernel without a factor would be preferred.
            return Ok(table);
        }
        let (mut device, mut factors) = (table.device().clone(), BTreeMap::new());
        for (kernel, products, factor) in all {
            let name = kernel.name();
            (self.report)(Progress::TensorCore { kernel: name, products, factor })?;
            match kernel {
                tensor_cores::Kernel::Half(kernel, _) => device.add_tensor_core(kernel),
                tensor_cores::Kernel::F32(kernel) => device.add(kernel),
            }
            factors.insert(name.to_owned(), factor);
        }
        let table =
            table.with_device(device).and_then(|table| table.with_tensor_core_factors(factors));
        Ok(table.map_err(Error::from)?)
    }

    /// Measures products; each table that it reports has the exceptions so far.
    fn search<E: From<Error>>(
        &mut self,
        table: &Table,
        effort: Effort,
    ) -> Result<Vec<SearchResult>, E>
    where
        R: FnMut(Progress<'_>) -> Result<(), E>,
    {
        let device = &self.context.device;
        // The software device has none.
        let cublas = if device.is_soft() { None } else { Some(baseline::load(device)?) };
        let cublas = match cublas {
            Some(Ok(cublas)) => Some(cublas),
            Some(Err(missing)) => {
                (self.report)(Progress::NoBaseline(&missing))?;
                None
            }
            None => None,
        };
        let auto = device.auto_by(table).map_err(Error::from)?;
        let model = Model::new(table);
        let search = CandidateSearch {
            context: self.context,
            auto: &auto,
            model: &model,
            cublas: cublas.as_ref(),
        };
        let mut exceptions = Vec::new();
        let mut results = Vec::new();
        for shape in shapes::shapes(effort == Effort::Trial) {
            self.step()?;
            let result = match search.run(shape)? {
                Ok(result) => result,
                Err(reason) => {
                    (self.report)(Progress::NotMeasured { shape, reason: &reason })?;
                    continue;
                }
            };
            if let Some(reason) = &result.not_compared {
                (self.report)(Progress::NotCompared(reason))?;
            }
            for (choice, reason) in &result.wrong {
                self.wrong += 1;
                (self.report)(Progress::WrongChoice { shape, choice: *choice, reason })?;
            }
            let exception = result.exception(&model);
            let is_exception = exception.is_some();
            exceptions.extend(exception);
            let table = table.with_exceptions(exceptions.clone()).map_err(Error::from)?;
            let product =
                Progress::Product { result: &result, model: &model, is_exception, table: &table };
            (self.report)(product)?;
            results.push(result);
        }
        Ok(results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_gemm::DeviceChoice;

    #[test]
    fn a_trial_reports_every_kernel_and_product() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let (mut kernels, mut products, mut steps) = (Vec::new(), Vec::new(), 0);
        let tuning = Tuner::new(&device).unwrap().run(Effort::Trial, |progress| {
            match progress {
                Progress::Kernel { costs, table } => {
                    kernels.push(costs.kernel.name());
                    assert_eq!(table.kernels().len(), kernels.len());
                }
                Progress::Product { result, .. } => products.push(result.shape),
                Progress::Step { done, total } => {
                    assert_eq!(done, steps);
                    steps += 1;
                    assert!(done < total);
                }
                Progress::DoesNotRun(kernel) => assert!(kernel.abi().has_tensor_maps()),
                _ => panic!("all is right"),
            }
            Ok::<_, Error>(())
        });
        let tuning = tuning.unwrap();
        assert_eq!(kernels, TRIAL);
        assert_eq!(products, shapes::shapes(true));
        assert_eq!((tuning.results.len(), tuning.wrong), (products.len(), 0));
        assert!(tuning.measured_loss >= 1.0 && tuning.ffma_gflops.is_none());
    }

    #[test]
    fn kernels_for_tensor_cores_have_factors() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let mut measured = Vec::new();
        let tuning = Tuner::new(&device).unwrap().run(Effort::Trial, |progress| {
            if let Progress::TensorCore { kernel, products, factor } = progress {
                measured.push(kernel.to_owned());
                assert!(products == 1 && factor > 0.0);
            }
            assert!(!matches!(progress, Progress::WrongTensorCore { .. }));
            Ok::<_, Error>(())
        });
        let table = tuning.unwrap().table;
        measured.sort_unstable();
        assert!(measured.len() > 2 && table.tensor_core_factors().keys().eq(&measured));
        assert!(table.changes().is_empty());
        let auto = device.auto_by(&table).unwrap();
        for (compute, prefix) in
            [(Compute::Bf16, "wgmma"), (Compute::Tf32, "tf32_"), (Compute::Tf32x3, "tf32x3_")]
        {
            let own =
                table.tensor_core_factors().iter().filter(|(name, _)| name.starts_with(prefix));
            let least = own.map(|(_, factor)| *factor).fold(f64::INFINITY, f64::min);
            assert!((least - 1.0).abs() < 1e-6, "{compute}: they are next to the least");
            let basis = auto.basis_for(compute);
            assert!(basis.contains("with factors that were measured on this device"), "{basis}");
        }
    }

    #[test]
    fn what_is_reported_can_end_it() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let mut count = 0;
        let stopped = Tuner::new(&device).unwrap().run(Effort::Trial, |_| {
            count += 1;
            Err(Error::NothingMeasured { count: 7 })
        });
        assert!(matches!(stopped, Err(Error::NothingMeasured { count: 7 })) && count == 1);
    }
}
