//! The tuner: measures a device's kernels, or single products.

use cuda_gemm::kernels::abi::KernelDescriptor;
use cuda_gemm::select::Model;
use cuda_gemm::select::table::Costs;
use cuda_gemm::{Configuration, Device, Gemm, Table};

use super::context::BenchmarkContext;
use super::search::CandidateSearch;
use super::search_result::SearchResult;
use crate::baseline::{self, NotCompared};
use crate::error::Error;
use crate::shape::Shape;
use crate::stats;

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
        /// How many times the costs were fitted to.
        samples: usize,
        /// The median factor by which predictions of these are off.
        error: f64,
        /// The table of all kernels.
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
        /// Whether the costs mislead.
        is_exception: bool,
        /// Whether the table had an exception for it before.
        was_exception: bool,
        /// The table, with the exceptions so far.
        table: &'a Table,
    },
}

/// What came of a tuning, from [`Tuner::products`].
pub struct Tuning {
    /// The table, with exceptions.
    pub table: Table,
    /// The products that were measured.
    pub results: Vec<SearchResult>,
    /// How many kernels and choices were wrong.
    pub wrong: usize,
    /// How many times as long as the fastest it takes what the costs choose, as they were measured, in the
    /// geometric mean over the products.
    pub measured_loss: f64,
    /// GFLOP/s of multiply-adds before and after, which say how clocks drift; `None` on the
    /// software device.
    pub ffma_gflops: Option<[f64; 2]>,
}

/// Measures a device's kernels, for `auto` to choose by.
///
/// [`Tuner::run`] checks every kernel, times random products, and fits the costs of a [`Table`].
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, Gemm};
/// use gemm_bench::Error;
/// use gemm_bench::tune::{Effort, Progress, Tuner};
///
/// # fn main() -> Result<(), Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// let calibration = Tuner::new(&device)?.run(Effort::Trial, |progress| {
///     if let Progress::Kernel { costs, error, .. } = progress {
///         println!("{}: within {error:.2}x", costs.kernel.name());
///     }
///     Ok::<_, Error>(())
/// })?;
/// let auto = device.auto_by(&calibration.table)?;
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

    /// Measures these products alone, each as it says. Where costs mislead about a product, the
    /// table gets an [`Exception`](cuda_gemm::select::table::Exception) for it, in place of an
    /// older one. A program that has the same products again and again may name them here once.
    ///
    /// ```
    /// use cuda_gemm::{Compute, Device, DeviceChoice, Gemm};
    /// use gemm_bench::Error;
    /// use gemm_bench::tune::{Effort, Tuner};
    ///
    /// # fn main() -> Result<(), Error> {
    /// let device = Device::open(DeviceChoice::SoftSm90)?;
    /// let tuner = Tuner::new(&device)?;
    /// // On a GPU: `Table::nearest(device.info())?`, or what `rungs tune` wrote.
    /// let table = tuner.run(Effort::Trial, |_| Ok::<_, Error>(()))?.table;
    /// let layer = Gemm::new(16, 64, 256).computed_in(Compute::Bf16);
    /// let tuning = tuner.products(&table, &[layer], |_| Ok::<_, Error>(()))?;
    /// let fastest = tuning.results[0].fastest();
    /// println!("{}: {:.0} ns", fastest.configuration, fastest.ns());
    /// let auto = device.auto_by(&tuning.table)?;
    /// assert!(auto.prepare(layer).is_ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// That of `report`; otherwise [`Error::TableOfAnother`] if the table is another device's, those of [`Gemm::validate`],
    /// [`Error::NotForTables`],
    /// [`Error::NothingMeasured`], a fault of a kernel, or [`cuda_gemm::Error::Driver`].
    pub fn products<E: From<Error>>(
        &self,
        table: &Table,
        products: &[Gemm],
        mut report: impl FnMut(Progress<'_>) -> Result<(), E>,
    ) -> Result<Tuning, E> {
        let info = self.context.device.info();
        if !table.is_of(info) {
            let (device, table) = (info.name.clone(), table.device().name.clone());
            return Err(Error::TableOfAnother { device, table }.into());
        }
        products.iter().try_for_each(check)?;
        let before = self.context.ffma_gflops()?;
        let total = products.len();
        let mut run =
            Steps { context: &self.context, wrong: 0, report: &mut report, done: 0, total };
        let (results, table) = run.search(table, products)?;
        let wrong = run.wrong;
        if results.is_empty() {
            return Err(Error::NothingMeasured { count: products.len() }.into());
        }
        let after = self.context.ffma_gflops()?;
        let losses: Vec<_> = results.iter().map(SearchResult::loss_of_chosen).collect();
        let measured_loss = stats::geometric_mean(&losses).unwrap_or(1.0);
        let ffma_gflops = before.zip(after).map(|(before, after)| [before, after]);
        Ok(Tuning { table, results, wrong, measured_loss, ffma_gflops })
    }
}

/// Whether [`Tuner::products`] takes a product.
///
/// # Errors
///
/// Those of [`Gemm::validate`], and [`Error::NotForTables`].
pub fn check(gemm: &Gemm) -> Result<(), Error> {
    gemm.validate()?;
    match Table::can_have(gemm) {
        true => Ok(()),
        false => Err(Error::NotForTables { shape: Shape::of(gemm).to_string() }),
    }
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

    /// Measures products; each table that it reports has the exceptions so far, and the last one is returned.
    fn search<E: From<Error>>(
        &mut self,
        table: &Table,
        products: &[Gemm],
    ) -> Result<(Vec<SearchResult>, Table), E>
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
        let mut table = table.clone();
        let mut results = Vec::new();
        for gemm in products {
            self.step()?;
            let shape = Shape::of(gemm);
            let result = match search.run(*gemm)? {
                Ok(result) => result,
                Err(reason) => {
                    (self.report)(Progress::NotMeasured { shape, reason: &reason })?;
                    continue;
                }
            };
            if let Some(reason) = &result.not_compared {
                (self.report)(Progress::NotCompared(reason))?;
            }
            for (configuration, reason) in &result.wrong {
                self.wrong += 1;
                let configuration = *configuration;
                (self.report)(Progress::WrongChoice { shape, configuration, reason })?;
            }
            let was_exception = auto.exception(gemm).is_some();
            let exception = result.exception();
            let is_exception = exception.is_some();
            table = table.with_product(gemm, exception).map_err(Error::from)?;
            (self.report)(Progress::Product {
                result: &result,
                is_exception,
                was_exception,
                table: &table,
            })?;
            results.push(result);
        }
        Ok((results, table))
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
        let batch = Gemm::new(1, 64, 128).transposed(false, true).stacked(8);
        let products = [batch.computed_in(Compute::Tf32), batch.computed_in(Compute::F16)];
        let more = tuner.products(&tuning.table, &products, |_| Ok::<_, Error>(())).unwrap();
        assert_eq!((more.results.len(), more.wrong), (2, 0));
        // What is known of others stays, and what is measured again is replaced.
        let exceptions = |table: &Table| -> Vec<_> {
            table.exceptions().iter().map(|one| one.to_string()).collect()
        };
        let expected = exceptions(&tuning.table);
        let of_products = more.results.iter().filter_map(|result| result.exception());
        let expected = expected.into_iter().chain(of_products.map(|one| one.to_string()));
        assert_eq!(exceptions(&more.table), expected.collect::<Vec<_>>());
        let again = tuner.products(&more.table, &products, |_| Ok::<_, Error>(())).unwrap();
        let count = again.results.iter().filter(|result| result.exception().is_some()).count();
        assert_eq!(again.table.exceptions().len(), tuning.table.exceptions().len() + count);
    }

    #[test]
    fn products_that_a_table_cannot_have_are_refused_first() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let tuner = Tuner::new(&device).unwrap();
        let products = |table: &Table, gemm: Gemm| {
            let result =
                tuner.products(table, &[gemm], |_| Err(Error::NothingMeasured { count: 9 }));
            result.err().unwrap().to_string()
        };
        let other = &Table::built_in().unwrap()[0];
        let refused = products(other, Gemm::new(8, 8, 8));
        assert!(refused.contains("measure a table of this device"), "{refused}");
        let name = device.info().name.clone();
        let own = other.with_device(Measured { name, ..other.device().clone() }).unwrap();
        let shared = products(&own, Gemm::new(8, 8, 8).batched(2, [64, 0, 65]));
        assert!(shared.contains("cannot be in a table"), "{shared}");
        let wrong = products(&own, Gemm::new(8, 8, 8).leading_dimensions(4, 8, 8));
        assert!(wrong.contains("lda"), "{wrong}");
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
