//! Timing: samples and what they say.

use std::time::Instant;

use crate::events::Events;
use crate::stats;
use cuda_gemm::{Device, DeviceKind};

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
        stats::median(&self.ms)
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

/// Times `count` ways to do something: `run(i)` is the i-th, and runs after `reset`, which
/// is not timed.
///
/// Each runs `warmup` times without a clock, then `repeat` times (at least once) with it,
/// interleaved: first, second, third, and first again. So whatever makes a GPU faster or
/// slower as time goes on, its clocks above all, does so for all of them, and ratios are
/// fair. The samples come back in the order of the ways.
///
/// # Errors
///
/// The first error of `reset` or `run`, a fault of a kernel, or [`cuda_gemm::Error::Driver`].
pub fn measure_interleaved<E: From<cuda_gemm::Error>>(
    device: &Device,
    count: usize,
    warmup: u32,
    repeat: u32,
    mut reset: impl FnMut() -> Result<(), E>,
    mut run: impl FnMut(usize) -> Result<(), E>,
) -> Result<Vec<Samples>, E> {
    for _ in 0..warmup {
        for i in 0..count {
            reset()?;
            run(i)?;
        }
    }
    device.synchronize()?;
    let clock = match device.info().kind {
        DeviceKind::Gpu => Clock::GpuEvents,
        DeviceKind::Soft => Clock::CpuSimulation,
    };
    let mut samples = vec![Samples { clock, ms: Vec::new() }; count];
    for _ in 0..repeat.max(1) {
        for (i, samples) in samples.iter_mut().enumerate() {
            reset()?;
            device.synchronize()?;
            samples.ms.push(match clock {
                Clock::GpuEvents => gpu_sample(device, || run(i)),
                Clock::CpuSimulation => cpu_sample(device, || run(i)),
            }?);
        }
    }
    Ok(samples)
}

/// Milliseconds between two events around what `run` enqueues on a GPU.
pub(crate) fn gpu_sample<E: From<cuda_gemm::Error>>(
    device: &Device,
    run: impl FnOnce() -> Result<(), E>,
) -> Result<f64, E> {
    device.make_current()?;
    let events = Events::new(device)?;
    events.start()?;
    run()?;
    events.stop()?;
    device.synchronize()?;
    Ok(events.elapsed_ms()?)
}

fn cpu_sample<E: From<cuda_gemm::Error>>(
    device: &Device,
    run: impl FnOnce() -> Result<(), E>,
) -> Result<f64, E> {
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
    fn samples_are_interleaved() {
        let device = Device::open(cuda_gemm::DeviceChoice::Soft).unwrap();
        let order = std::cell::RefCell::new(String::new());
        let reset = || {
            order.borrow_mut().push('r');
            Ok::<_, cuda_gemm::Error>(())
        };
        let run = |i: usize| {
            order.borrow_mut().push(['a', 'b'][i]);
            Ok(())
        };
        let samples = measure_interleaved(&device, 2, 1, 3, reset, run).unwrap();
        assert_eq!(order.into_inner(), "rarb".repeat(4));
        assert!(samples.len() == 2 && samples.iter().all(|samples| samples.ms().len() == 3));
    }

    #[test]
    fn throughput_is_at_the_median() {
        approx::assert_relative_eq!(samples(&[1.0, 2.0, 9.0]).gflops(4e9).unwrap(), 2000.0);
        assert_eq!(samples(&[1.0]).gflops(0.0), None);
        assert_eq!(samples(&[0.0]).gflops(1.0), None);
    }
}
