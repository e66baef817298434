//! Times products in turn, between two measurements of the peaks.
//!
//! Batches of launches are interleaved and without gaps, on matrices in rotation. All timings use
//! this module.

use cuda_gemm::Device;

use crate::batch::{self, Policy, Work};
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
        telemetry: Option<&mut Telemetry>,
        sampled: &mut dyn FnMut(u32, u32),
    ) -> Result<Measured, Error> {
        let policy = Policy { samples, sample_ms, warmup_ms: WARMUP_MS, slowest: f64::INFINITY };
        let Self { device, peaks, speed } = self;
        peaks.enqueue_delay(PEAK_WARMUP_MS, *speed)?;
        let before = peaks.measure(*speed)?;
        let total = samples.saturating_mul(jobs.len() as u32);
        let mut work =
            InTurn { jobs, buffers, peaks, speed: *speed, telemetry, sampled, done: 0, total };
        let batches = batch::measure(device, jobs.len(), policy, &mut work)?;
        let rates = before.mean(&peaks.measure(*speed)?);
        Ok(Measured { batches, rates, launch_ms: speed.launch_ms() })
    }
}

/// Jobs that are timed in turn.
struct InTurn<'a, 'e> {
    jobs: &'a [&'e Job],
    buffers: &'a mut RotatingBuffers,
    peaks: &'a Peaks,
    speed: Speed,
    telemetry: Option<&'a mut Telemetry>,
    sampled: &'a mut dyn FnMut(u32, u32),
    done: u32,
    total: u32,
}

impl Work for InTurn<'_, '_> {
    type Error = Error;

    fn launch(&mut self, i: usize) -> Result<(), Error> {
        self.buffers.enqueue(self.jobs[i])
    }

    fn delay(&mut self, ms: f64) -> Result<(), Error> {
        self.peaks.enqueue_delay(ms, self.speed)
    }

    fn observe(&mut self) {
        if let Some(telemetry) = &mut self.telemetry {
            telemetry.observe();
        }
        self.done += 1;
        (self.sampled)(self.done, self.total);
    }
}
