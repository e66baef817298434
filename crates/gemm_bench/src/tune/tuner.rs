//! The tuner: measures a device's kernels, or single products.

use cuda_gemm::kernels::abi::KernelDescriptor;
use cuda_gemm::select::Measurement;
use cuda_gemm::select::table::Timed;
use cuda_gemm::{Auto, Configuration, Device, Error as GemmError, ErrorKind, Gemm, Plan};
use gemm_verify::{Bound, Check, Method};

use super::pool::OperandPool;
use super::validated::Validated;
use crate::batch::Policy;
use crate::buffers::{RotatingBuffers, first_difference};
use crate::error::{Error, require_memory};
use crate::job::Job;
use crate::operands::{Operands, Products};
use crate::roofline::Rates;
use crate::shape::Shape;
use crate::side_by_side::SideBySide;
use crate::{stats, time};

/// How candidates are sampled: samples, their length, and warm-up.
pub const POLICY: Policy =
    Policy { samples: 7, sample_ms: 0.8, warmup_ms: 25.0, slowest: f64::INFINITY };

/// The seed of the random matrices.
const SEED: u64 = 42;

/// The most operations with a whole reference in f64. Of larger products, samples are compared.
const FULL_FLOPS: f64 = 4e9;

/// Events of a [`Tuner`], with an example there, and of [`validate`](super::validate).
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
        measured: &'a Measurement,
        /// The fastest choice.
        fastest: &'a Timed,
    },
    /// A product was [judged](super::validate).
    Judged(&'a Validated),
}

/// Measures a device's kernels, for `auto` to choose by.
///
/// [`Tuner::run`] checks every kernel, times random products, and fits the costs of a
/// [`Table`](cuda_gemm::Table).
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
    pub(super) device: Device,
    /// What times launches; none on the software device, whose times mean little.
    meter: Option<SideBySide>,
}

impl Tuner {
    /// Loads what keeps the device busy between measurements.
    ///
    /// # Errors
    ///
    /// The errors of [`SideBySide::new`](crate::SideBySide::new).
    pub fn new(device: &Device) -> Result<Self, Error> {
        let meter = (!device.is_soft()).then(|| SideBySide::new(device, 0)).transpose()?;
        Ok(Self { device: device.clone(), meter })
    }

    /// The peaks. `None` on the software device, whose rates say nothing.
    pub(super) fn rates(&self) -> Result<Option<Rates>, Error> {
        self.meter.as_ref().map(SideBySide::rates).transpose()
    }

    /// Copies matrices to the device.
    ///
    /// # Errors
    ///
    /// [`GemmError::DeviceMemory`], before anything is allocated.
    pub(super) fn buffers(&self, operands: &Operands) -> Result<RotatingBuffers, Error> {
        // Partial sums and copies need the other half.
        self.device.require_memory(operands.gemm().bytes().saturating_mul(2))?;
        RotatingBuffers::new(&self.device, operands, 1)
    }

    /// Times choices in turn, in nanoseconds. A choice that is too large for its kernel or the
    /// memory has no time.
    pub(super) fn time(
        &self,
        auto: &Auto,
        pool: &mut OperandPool,
        policy: Policy,
        choices: &[(Gemm, Configuration)],
    ) -> Result<Vec<Option<f64>>, Error> {
        let plans = choices.iter().map(|(gemm, choice)| prepared(auto, *gemm, choice));
        let plans = plans.collect::<Result<Vec<_>, _>>()?;
        let possible: Vec<_> = plans.iter().flatten().collect();
        let times = self.time_by(policy, possible.len(), |i| pool.enqueue(possible[i]))?;
        let mut times = times.iter().map(|ms| 1e6 * stats::median(ms));
        Ok(plans.iter().map(|plan| plan.as_ref().and_then(|_| times.next())).collect())
    }

    /// Times `count` candidates in turn. Returns each candidate's milliseconds, one sample per
    /// round.
    ///
    /// `launch` enqueues one launch of a candidate, by its index.
    pub(super) fn time_by(
        &self,
        policy: Policy,
        count: usize,
        launch: impl FnMut(usize) -> Result<(), Error>,
    ) -> Result<Vec<Vec<f64>>, Error> {
        let samples = match &self.meter {
            Some(meter) => meter.time(policy, count, launch, || ())?,
            None => time::measure_interleaved(&self.device, count, 0, 1, || Ok(()), launch)?,
        };
        Ok(samples.into_iter().map(|samples| samples.ms).collect())
    }
}

/// Random matrices for a product, on the host.
///
/// # Errors
///
/// [`Error::HostMemory`], before anything is allocated.
pub fn operands(gemm: Gemm) -> Result<Operands, Error> {
    // Results are compared with each other, and with samples.
    require_memory(3 * gemm.bytes(), false)?;
    Ok(Operands::random(&gemm, SEED))
}

/// The product in f64, or samples of it.
pub fn reference(operands: &Operands) -> Result<Products<'_>, Error> {
    let gemm = operands.gemm();
    let method = match gemm.flops() {
        flops if flops <= FULL_FLOPS => Method::Full,
        _ => Method::Sampled { group: gemm.n },
    };
    operands.reference_by(method, Bound::Probabilistic, SEED)
}

/// The plan of a choice; none if it is too large for its kernel or the memory.
fn prepared(
    auto: &Auto,
    gemm: Gemm,
    configuration: &Configuration,
) -> Result<Option<Plan<'static>>, Error> {
    match auto.plan_by(gemm, configuration).and_then(|plan| plan.prepare()) {
        Ok(plan) => Ok(Some(plan)),
        Err(GemmError::TooLarge { .. }) => Ok(None),
        Err(error) if error.kind() == ErrorKind::OutOfMemory => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Checks a plan's result, and that it repeats bitwise. The inner error says how it is wrong.
pub fn check(
    plan: Plan<'static>,
    buffers: &mut RotatingBuffers,
    reference: &Products<'_>,
) -> Result<Result<Check, String>, Error> {
    let (job, old) = (Job::Kernel(plan), reference.operands().c());
    let (first, second) = (buffers.result(&job, old)?, buffers.result(&job, old)?);
    if let Some((at, _)) = first_difference(&first, &second) {
        return Ok(Err(format!("results differ between runs, at element {at}")));
    }
    let check = reference.check_in(job.gemm().compute, &first)?;
    Ok(check.failure().map_or(Ok(check), Err))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::Effort;
    use cuda_gemm::{Compute, DeviceChoice, Table, find_kernel};

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
    fn some_kernels_are_measured_and_the_others_keep_their_costs() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let tuner = Tuner::new(&device).unwrap();
        let all = tuner.run(Effort::Trial, |_| Ok::<_, Error>(())).unwrap().table;
        let measured = [all.kernels()[1].kernel, find_kernel("naive").unwrap()];
        let some =
            tuner.run_kernels(Effort::Trial, &all, &measured, |_| Ok::<_, Error>(())).unwrap();
        let names = |table: &Table| -> Vec<_> {
            table.kernels().iter().map(|costs| costs.kernel.name()).collect()
        };
        let mut expected = names(&all);
        expected.push("naive");
        assert_eq!(names(&some.table), expected);
        for i in [0, 2] {
            assert_eq!(some.table.kernels()[i].aligned, all.kernels()[i].aligned);
            assert_eq!(some.fits[i].samples, 0);
        }
        assert!(some.fits[1].samples > 0 && some.fits[3].samples > 0);
        let is_measured = |sample: &crate::tune::Sample| {
            measured.iter().any(|kernel| kernel.name() == sample.configuration.kernel.name())
        };
        assert!(some.samples.iter().all(is_measured));
        assert_eq!(some.table.costs(), all.costs());
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

    #[test]
    fn an_old_c_is_read() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let operands = operands(Gemm::new(20, 30, 40).scaled(1.0, 0.5)).unwrap();
        let reference = reference(&operands).unwrap();
        let mut buffers = Tuner::new(&device).unwrap().buffers(&operands).unwrap();
        let plan = device.auto().unwrap().prepare(*operands.gemm()).unwrap();
        assert!(check(plan, &mut buffers, &reference).unwrap().is_ok());
    }

    /// Kernels for f32 do not round A and B. They are checked as products in f32.
    #[test]
    fn kernels_for_f32_may_compute_in_tf32() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let auto = device.auto().unwrap();
        let gemm = Gemm::new(1, 64, 128).transposed(false, true).stacked(8);
        let operands = operands(gemm.computed_in(Compute::Tf32)).unwrap();
        let reference = reference(&operands).unwrap();
        let mut buffers = Tuner::new(&device).unwrap().buffers(&operands).unwrap();
        for kernel in ["tile_16x16x16", "tf32_split_16x128"] {
            let configuration = Configuration::new(find_kernel(kernel).unwrap());
            let plan = auto.plan_by(*operands.gemm(), &configuration).unwrap().prepare().unwrap();
            assert!(check(plan, &mut buffers, &reference).unwrap().is_ok(), "{kernel}");
        }
    }
}
