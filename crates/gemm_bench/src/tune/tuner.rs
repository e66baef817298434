//! The steps of a tuning: kernels' costs, searches, calibration.

use cuda_gemm::kernels::abi::{KernelAbi, KernelDescriptor};
use cuda_gemm::kernels::{LADDER, TILES};
use cuda_gemm::select::table::{Costs, Measured};
use cuda_gemm::{Compute, Configuration, Device, Table, find_kernel};

use super::context::BenchmarkContext;
use super::search_result::SearchResult;
use super::{calibrate, costs, shapes};
use crate::baseline::NotCompared;
use crate::error::Error;
use crate::shape::Shape;

/// Rungs of one launch per product that are worth a try beside the tiles.
const RUNGS: [&str; 2] = ["warptile", "async_copy"];

/// What a trial measures.
const TRIAL: [&str; 3] = ["async_copy", "tile_32x32", "tile_4x128"];

/// Of more blocks per multiprocessor nothing is measured.
const MAX_RESIDENT: u32 = 16;

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
        /// The kernel, and how it is launched.
        configuration: Configuration,
        /// What is wrong.
        reason: &'a str,
    },
    /// A product was measured.
    Product {
        /// What came of it.
        result: &'a SearchResult,
    },
}

/// What came of a tuning, from [`Tuner::run`].
pub struct Tuning {
    /// The table, with corrected costs if they choose better.
    pub table: Table,
    /// The products that were measured.
    pub results: Vec<SearchResult>,
    /// How many kernels and choices were wrong.
    pub wrong: usize,
    /// How many times as long as the fastest it takes what the costs choose, as they were measured, in the
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
///         println!("{}: {:.0} ns", result.shape(), result.fastest().ns());
///     }
///     Ok::<_, Error>(())
/// })?;
/// let auto = device.auto_by(&tuning.table)?;
/// println!("{}", auto.choose(&Gemm::new(512, 512, 512))?);
/// # Ok(())
/// # }
/// ```
pub struct Tuner {
    pub(super) context: BenchmarkContext,
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
        let products = shapes::products(&self.context.device, effort == Effort::Trial);
        let total = kernels.len() + products.len();
        let mut run =
            Steps { context: &self.context, wrong: 0, report: &mut report, done: 0, total };
        let table = run.costs(&kernels)?;
        let auto = self.context.device.auto_by(&table).map_err(Error::from)?.by_model_alone();
        let results = run.search(&auto, &products)?;
        let wrong = run.wrong;
        let after = self.context.ffma_gflops()?;

        // The table has no costs of others.
        let is_of_f32 = |result: &&SearchResult| result.gemm.compute == Compute::F32;
        let of_f32: Vec<_> = results.iter().filter(is_of_f32).collect();
        let measured_loss = calibrate::mean_loss(&table, &of_f32);
        let calibrated = calibrate::calibrated(&table, &of_f32)?;
        let is_better = calibrated.is_some();
        let table = calibrated.unwrap_or(table);
        let corrected_loss = is_better.then(|| calibrate::mean_loss(&table, &of_f32));
        let ffma_gflops = before.zip(after).map(|(before, after)| [before, after]);
        Ok(Tuning { table, results, wrong, measured_loss, corrected_loss, ffma_gflops })
    }
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
pub(super) struct Steps<'a, R> {
    pub(super) context: &'a BenchmarkContext,
    /// How many kernels and choices were wrong.
    pub(super) wrong: usize,
    pub(super) report: &'a mut R,
    /// Kernels and products, those that are done and all.
    pub(super) done: usize,
    pub(super) total: usize,
}

impl<R> Steps<'_, R> {
    /// Another kernel or product is begun.
    pub(super) fn step<E>(&mut self) -> Result<(), E>
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
            let costs = costs::measure(context, &loaded, resident.min(MAX_RESIDENT), launch_ns)?;
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
                Progress::Product { result, .. } => products.push(result.shape()),
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
    fn products_on_tensor_cores_are_measured_too() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let tuner = Tuner::new(&device).unwrap();
        let tuning = tuner.run(Effort::Trial, |_| Ok::<_, Error>(())).unwrap();
        assert_eq!(tuning.wrong, 0);
        for compute in [Compute::Bf16, Compute::Tf32, Compute::Tf32x3] {
            let own = tuning.results.iter().find(|result| result.gemm.compute == compute);
            let runs = &own.unwrap().runs;
            assert!(runs.len() > 1 && runs.iter().all(|run| run.samples_ms.len() == 1));
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
