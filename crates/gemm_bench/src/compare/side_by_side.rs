//! Times products in turn, between two measurements of the peaks.
//!
//! Batches of launches are interleaved and without gaps, on matrices in rotation. All timings use
//! this module.

use cuda_gemm::Device;

use crate::batch::{self, Policy};
use crate::buffers::RotatingBuffers;
use crate::error::Error;
use crate::job::Job;
use crate::roofline::{Peaks, Rates, Speed};
use crate::telemetry::Telemetry;
use crate::time::Samples;

/// The default of a sample's least duration, in milliseconds.
pub const SAMPLE_MS: f64 = 3.0;
/// Milliseconds of work before the first sample, in which clocks settle.
const WARMUP_MS: f64 = 200.0;
/// Milliseconds of work before peaks are measured, since the GPU was idle before.
const PEAK_WARMUP_MS: f64 = 50.0;

/// A device with its peak measurement; [`Workload`](crate::workload::Workload) has an example.
pub struct SideBySide {
    device: Device,
    peaks: Peaks,
    speed: Speed,
}

/// The results of [`SideBySide::measure`].
pub struct Measured {
    /// The samples of each job, in the order of the jobs.
    pub batches: Vec<Samples>,
    /// The peaks, as the mean of before and after.
    pub rates: Rates,
    /// The milliseconds of an empty launch.
    pub launch_ms: f64,
}

impl SideBySide {
    /// Loads the kernels that measure peaks, and leaves `bytes` of the free memory.
    ///
    /// # Errors
    ///
    /// The errors of [`Peaks::beside`] and [`Peaks::speed`].
    pub fn new(device: &Device, bytes: u64) -> Result<Self, Error> {
        let peaks = Peaks::beside(device, bytes)?;
        let speed = peaks.speed()?;
        Ok(Self { device: device.clone(), peaks, speed })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Measures the peaks.
    ///
    /// # Errors
    ///
    /// The errors of [`Peaks::measure`].
    pub fn rates(&self) -> Result<Rates, Error> {
        self.peaks.measure(self.speed)
    }

    /// Takes samples of `count` alternatives in turn; see [`batch::measure`].
    pub(crate) fn time(
        &self,
        policy: Policy,
        count: usize,
        launch: impl FnMut(usize) -> Result<(), Error>,
        observe: impl FnMut(),
    ) -> Result<Vec<Samples>, Error> {
        let Self { device, peaks, speed } = self;
        let delay = |ms| peaks.enqueue_delay(ms, *speed);
        batch::measure(device, count, policy, launch, delay, observe)
    }

    /// Takes samples of each job, in turn.
    ///
    /// A sample lasts at least `sample_ms` milliseconds, and `telemetry` reads the GPU's state
    /// meanwhile. After each sample, `sampled` receives the samples done and the samples wanted.
    ///
    /// # Errors
    ///
    /// A fault of a kernel, or [`cuda_gemm::Error::Driver`].
    pub fn measure(
        &self,
        jobs: &[&Job],
        buffers: &mut RotatingBuffers,
        (samples, sample_ms): (u32, f64),
        mut telemetry: Option<&mut Telemetry>,
        sampled: &mut dyn FnMut(u32, u32),
    ) -> Result<Measured, Error> {
        let policy = Policy { samples, sample_ms, warmup_ms: WARMUP_MS, slowest: f64::INFINITY };
        let Self { peaks, speed, .. } = self;
        peaks.enqueue_delay(PEAK_WARMUP_MS, *speed)?;
        let before = self.rates()?;
        let (mut done, total) = (0, samples.saturating_mul(jobs.len() as u32));
        let observe = || {
            if let Some(telemetry) = &mut telemetry {
                telemetry.observe();
            }
            done += 1;
            sampled(done, total);
        };
        let launch = |i: usize| buffers.enqueue(jobs[i]);
        let batches = self.time(policy, jobs.len(), launch, observe)?;
        let rates = before.mean(&self.rates()?);
        Ok(Measured { batches, rates, launch_ms: speed.launch_ms() })
    }
}
