//! The tuner: measures a device's kernels, or single products.

use cuda_gemm::kernels::abi::KernelDescriptor;
use cuda_gemm::{Configuration, Device};

use super::context::BenchmarkContext;
use super::search_result::SearchResult;
use crate::baseline::NotCompared;
use crate::error::Error;
use crate::shape::Shape;

/// Events of a measuring [`Tuner`], with an example there.
pub enum Progress<'a> {
    /// The next kernel or product begins.
    Step {
        /// How many are done.
        done: usize,
        /// How many there are.
        total: usize,
    },
    /// A kernel does not run on this device.
    DoesNotRun(&'static KernelDescriptor),
    /// A kernel is wrong, and not measured.
    WrongKernel {
        /// The kernel.
        kernel: &'static KernelDescriptor,
        /// The mistake.
        mistake: &'a str,
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
        /// The mistake.
        reason: &'a str,
    },
    /// A product was measured.
    Product {
        /// Its result.
        result: &'a SearchResult,
    },
}

/// Measures a device's kernels, for `auto` to choose by.
///
/// [`Tuner::run`] checks every kernel, times random products, and fits the costs of a [`Table`](cuda_gemm::Table).
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, Gemm};
/// use gemm_bench::Error;
/// use gemm_bench::tune::{Effort, Progress, Tuner};
///
/// # fn main() -> Result<(), Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// let calibration = Tuner::new(&device)?.run(Effort::Trial, |progress| {
///     if let Progress::Step { done, total } = progress {
///         println!("{done} of {total}");
///     }
///     Ok::<_, Error>(())
/// })?;
/// for (costs, fit) in calibration.table.kernels().iter().zip(&calibration.fits) {
///     println!("{}: half of the times are within {:.2}x", costs.kernel.name(), fit.error);
/// }
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
    /// The errors of [`SideBySide::new`](crate::SideBySide::new).
    pub fn new(device: &Device) -> Result<Self, Error> {
        Ok(Self { context: BenchmarkContext::new(device)? })
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::Effort;
    use cuda_gemm::{DeviceChoice, Table};

    #[test]
    fn a_trial_measures_kernels_of_all_precisions() {
        for (choice, kernels) in [(DeviceChoice::Soft, 3), (DeviceChoice::SoftSm90, 6)] {
            let device = Device::open(choice).unwrap();
            let mut steps = 0;
            let calibration = Tuner::new(&device).unwrap().run(Effort::Trial, |progress| {
                match progress {
                    Progress::Step { done, total } => {
                        assert_eq!(done, steps);
                        steps += 1;
                        assert!(done < total);
                    }
                    _ => panic!("all is right"),
                }
                Ok::<_, Error>(())
            });
            let calibration = calibration.unwrap();
            let table = &calibration.table;
            assert_eq!((table.kernels().len(), calibration.wrong), (kernels, 0));
            assert_eq!(calibration.fits.len(), kernels);
            assert!(calibration.fits.iter().all(|fit| fit.samples > 0 && fit.error >= 1.0));
            assert!(calibration.ffma_gflops.is_none() && table.changes().is_empty());
            assert_eq!(
                Table::parse(&table.to_json(), "a copy").unwrap().to_json(),
                table.to_json()
            );
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
