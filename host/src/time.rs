//! Timing: samples and what they say.

use std::time::Instant;

use cust::event::{Event, EventFlags};

use crate::device::{Device, DeviceKind};
use crate::error::Error;

/// What a sample measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Time on the GPU, between two CUDA events around the launches.
    GpuEvents,
    /// Time the CPU took to interpret the kernel on the software device. It says
    /// nothing about a GPU.
    CpuSimulation,
}

/// Times of repeated runs, in milliseconds.
#[derive(Clone, Debug)]
pub struct Samples {
    clock: Clock,
    /// In the order they were taken; at least one.
    ms: Vec<f64>,
}

impl Samples {
    /// What was measured.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Each sample, in the order taken, in milliseconds.
    pub fn ms(&self) -> &[f64] {
        &self.ms
    }

    /// The mean, in milliseconds.
    pub fn mean(&self) -> f64 {
        self.ms.iter().sum::<f64>() / self.ms.len() as f64
    }

    /// The median, in milliseconds; between the middle two of an even number.
    pub fn median(&self) -> f64 {
        let mut sorted = self.ms.clone();
        sorted.sort_by(f64::total_cmp);
        let half = sorted.len() / 2;
        match sorted.len() % 2 {
            0 => (sorted[half - 1] + sorted[half]) / 2.0,
            _ => sorted[half],
        }
    }

    /// The shortest sample, in milliseconds.
    pub fn min(&self) -> f64 {
        self.ms.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The longest sample, in milliseconds.
    pub fn max(&self) -> f64 {
        self.ms.iter().copied().fold(0.0, f64::max)
    }

    /// GFLOP/s at the median time; `None` if there was nothing to compute or no time
    /// could be measured.
    pub fn gflops(&self, flops: f64) -> Option<f64> {
        let rate = flops / self.median() * 1e-6;
        (flops > 0.0 && rate.is_finite()).then_some(rate)
    }
}

/// Runs `run` `warmup` times without and then `repeat` times (at least once) with a
/// clock around it, each time after `reset`, which is not timed.
///
/// # Errors
///
/// The first error of `reset` or `run`, a fault of a kernel, or [`Error::Driver`].
pub fn measure(
    device: &Device,
    warmup: u32,
    repeat: u32,
    mut reset: impl FnMut() -> Result<(), Error>,
    mut run: impl FnMut() -> Result<(), Error>,
) -> Result<Samples, Error> {
    for _ in 0..warmup {
        reset()?;
        run()?;
    }
    device.synchronize()?;
    let clock = match device.info().kind {
        DeviceKind::Gpu => Clock::GpuEvents,
        DeviceKind::Soft => Clock::CpuSimulation,
    };
    let ms = (0..repeat.max(1))
        .map(|_| {
            reset()?;
            device.synchronize()?;
            match clock {
                Clock::GpuEvents => gpu_sample(device, &mut run),
                Clock::CpuSimulation => cpu_sample(device, &mut run),
            }
        })
        .collect::<Result<_, _>>()?;
    Ok(Samples { clock, ms })
}

fn gpu_sample(device: &Device, mut run: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    device.make_current()?;
    let fail = |e| device.error("timing with CUDA events", e);
    let [start, stop] = [Event::new(EventFlags::DEFAULT), Event::new(EventFlags::DEFAULT)];
    let (start, stop) = (start.map_err(fail)?, stop.map_err(fail)?);
    start.record(device.stream()).map_err(fail)?;
    run()?;
    stop.record(device.stream()).map_err(fail)?;
    stop.synchronize().map_err(fail)?;
    Ok(f64::from(stop.elapsed_time_f32(&start).map_err(fail)?))
}

fn cpu_sample(device: &Device, mut run: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let start = Instant::now();
    run()?;
    device.synchronize()?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(ms: &[f64]) -> Samples {
        Samples { clock: Clock::GpuEvents, ms: ms.to_vec() }
    }

    #[test]
    fn statistics() {
        let odd = samples(&[3.0, 1.0, 8.0]);
        assert_eq!((odd.mean(), odd.median(), odd.min(), odd.max()), (4.0, 3.0, 1.0, 8.0));
        assert_eq!(samples(&[4.0, 1.0, 2.0, 8.0]).median(), 3.0);
    }

    #[test]
    fn throughput_is_at_the_median() {
        approx::assert_relative_eq!(samples(&[1.0, 2.0, 9.0]).gflops(4e9).unwrap(), 2000.0);
        assert_eq!(samples(&[1.0]).gflops(0.0), None);
        assert_eq!(samples(&[0.0]).gflops(1.0), None);
    }
}
