//! The benchmark context, for all measurements of a tuning.

use cuda_gemm::{Auto, Configuration, Device, Error as GemmError, ErrorKind, Gemm, Plan};
use gemm_verify::{Bound, Check, Method};

use crate::batch::Policy;
use crate::buffers::{self, L2, RotatingBuffers, first_difference};
use crate::error::{Error, require_memory};
use crate::job::Job;
use crate::operands::{Operands, Products};
use crate::roofline;
use crate::side_by_side::SideBySide;
use crate::time;

/// How candidates are sampled: samples, their length, and warm-up.
pub const POLICY: Policy =
    Policy { samples: 7, sample_ms: 0.8, warmup_ms: 25.0, slowest: f64::INFINITY };

/// The seed of the random matrices.
const SEED: u64 = 42;

/// The most operations with a whole reference in f64. Of larger products, samples are compared.
const FULL_FLOPS: f64 = 4e9;

/// A device, and what keeps it busy between measurements.
pub struct BenchmarkContext {
    pub device: Device,
    /// What times launches; none on the software device, whose times mean little.
    meter: Option<SideBySide>,
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
pub fn prepared(
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

impl BenchmarkContext {
    pub fn new(device: &Device) -> Result<Self, Error> {
        let meter = (!device.is_soft()).then(|| SideBySide::new(device, 0)).transpose()?;
        Ok(Self { device: device.clone(), meter })
    }

    pub fn multiprocessors(&self) -> u32 {
        roofline::multiprocessors(&self.device)
    }

    /// GB/s of a copy.
    pub fn copy_gbytes(&self) -> Result<f64, Error> {
        // The software device's rate says nothing.
        self.meter.as_ref().map_or(Ok(1.0), |meter| Ok(meter.rates()?.copy))
    }

    /// GFLOP/s of multiply-adds, to see how clocks drift.
    pub fn ffma_gflops(&self) -> Result<Option<f64>, Error> {
        self.meter.as_ref().map(|meter| Ok(meter.rates()?.ffma)).transpose()
    }

    /// Random matrices, on the host and the device. The L2 cache is cold. The inner error says why
    /// they do not fit the memory.
    pub fn matrices(
        &self,
        gemm: Gemm,
    ) -> Result<Result<(Operands, RotatingBuffers), String>, Error> {
        let is_full = |error: &Error| {
            let is_of_device = matches!(error, Error::Gemm(GemmError::DeviceMemory { .. }));
            is_of_device || matches!(error, Error::HostMemory { .. })
        };
        let made = operands(gemm).and_then(|operands| {
            let buffers = self.buffers(&operands, L2::Cold)?;
            Ok((operands, buffers))
        });
        match made {
            Err(error) if is_full(&error) => Ok(Err(error.to_string())),
            made => made.map(Ok),
        }
    }

    /// Copies matrices to the device. There are enough sets for a cold L2 cache, if it should be
    /// cold.
    ///
    /// # Errors
    ///
    /// [`GemmError::DeviceMemory`], before anything is allocated.
    pub fn buffers(&self, operands: &Operands, l2: L2) -> Result<RotatingBuffers, Error> {
        let info = self.device.info();
        let (needed, available) = (operands.gemm().bytes(), self.device.free_memory()?);
        // Partial sums and copies also need memory.
        if needed > u128::from(available / 2) {
            return Err(
                GemmError::DeviceMemory { device: info.name.clone(), needed, available }.into()
            );
        }
        let bytes = needed as u64;
        // The software device has no L2 cache.
        let l2 = if self.device.is_soft() { L2::Warm } else { l2 };
        let count = buffers::count(l2, bytes, info.l2_bytes);
        let count = count.min((available / 2 / bytes.max(1)).max(1) as usize);
        RotatingBuffers::new(&self.device, operands, count)
    }

    /// Times `count` candidates in turn. Returns each candidate's milliseconds, one sample per
    /// round.
    ///
    /// `launch` enqueues one launch of a candidate, by its index.
    pub fn time_by(
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

/// Checks a job's result, and that it repeats bitwise. The inner error says how it is wrong.
pub fn check(
    job: &Job,
    buffers: &mut RotatingBuffers,
    reference: &Products<'_>,
) -> Result<Result<Check, String>, Error> {
    let old = reference.operands().c();
    let (first, second) = (buffers.result(job, old)?, buffers.result(job, old)?);
    if let Some((at, _)) = first_difference(&first, &second) {
        return Ok(Err(format!("results differ between runs, at element {at}")));
    }
    let check = reference.check_in(job.gemm().compute, &first)?;
    Ok(check.failure().map_or(Ok(check), Err))
}

#[cfg(test)]
mod tests {
    use cuda_gemm::{Compute, Configuration, DeviceChoice, find_kernel};

    use super::*;

    #[test]
    fn an_old_c_is_read() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let operands = operands(Gemm::new(20, 30, 40).scaled(1.0, 0.5)).unwrap();
        let reference = reference(&operands).unwrap();
        let mut buffers =
            BenchmarkContext::new(&device).unwrap().buffers(&operands, L2::Warm).unwrap();
        let job = Job::Kernel(device.auto().unwrap().prepare(*operands.gemm()).unwrap());
        assert!(check(&job, &mut buffers, &reference).unwrap().is_ok());
    }

    /// Kernels for f32 do not round A and B. They are checked as products in f32.
    #[test]
    fn kernels_for_f32_may_compute_in_tf32() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let auto = device.auto().unwrap();
        let gemm = Gemm::new(1, 64, 128).transposed(false, true).stacked(8);
        let operands = operands(gemm.computed_in(Compute::Tf32)).unwrap();
        let reference = reference(&operands).unwrap();
        let mut buffers =
            BenchmarkContext::new(&device).unwrap().buffers(&operands, L2::Warm).unwrap();
        for kernel in ["tile_16x16x16", "tf32_split_16x128"] {
            let configuration = Configuration::new(find_kernel(kernel).unwrap());
            let plan = auto.plan_by(*operands.gemm(), &configuration).unwrap();
            let job = Job::Kernel(plan.prepare().unwrap());
            assert!(check(&job, &mut buffers, &reference).unwrap().is_ok(), "{kernel}");
        }
    }
}
