//! Samples and their statistics, and interleaved timing of single runs.

use cuda_gemm::{Device, DeviceKind, Timer};

use crate::stats;

/// Milliseconds per launch, from single runs ([`measure_interleaved`]) or
/// [batches](crate::batch::measure).
#[derive(Clone, Debug)]
pub struct Samples {
    /// The device whose clock was used; a simulated time says nothing about a GPU.
    pub device: DeviceKind,
    /// Launches per sample.
    pub launches: u32,
    /// Whether no launch of any sample can have waited for the host; `None` for single runs.
    pub gap_free: Option<bool>,
    /// Each sample, in the order taken; at least one.
    pub ms: Vec<f64>,
    /// Milliseconds of the host per enqueued launch, one value per sample; empty for single runs.
    pub enqueue_ms: Vec<f64>,
}

impl Samples {
    /// No samples yet, of this number of launches each.
    pub(crate) fn new(device: &Device, launches: u32, gap_free: Option<bool>) -> Self {
        let (ms, enqueue_ms) = (Vec::new(), Vec::new());
        Self { device: device.info().kind, launches, gap_free, ms, enqueue_ms }
    }

    /// The 95 % interval of the median ([`stats::median_interval`]).
    pub fn interval(&self) -> Option<(f64, f64)> {
        stats::median_interval(&self.ms)
    }

    /// The mean, in milliseconds.
    pub fn mean(&self) -> f64 {
        self.ms.iter().sum::<f64>() / self.ms.len() as f64
    }

    /// The median, in milliseconds; the mean of the middle two of an even number.
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

    /// GFLOP/s (10^9) at the median time, for `flops` floating-point operations.
    ///
    /// `None` without operations, or without a measurable time.
    pub fn gflops(&self, flops: f64) -> Option<f64> {
        let rate = flops / self.median() * 1e-6;
        (flops > 0.0 && rate.is_finite()).then_some(rate)
    }
}

/// Times `count` alternatives, interleaved.
///
/// `run(i)` runs the i-th, after `reset`, which is not timed.
///
/// Each alternative runs `warmup` times untimed, then `repeat` times (at least once) timed. The
/// order is first, second, third, and first again. So drifts, above all of a GPU's clocks, affect
/// all of them, and ratios are fair. The samples are in the order of the alternatives.
///
/// # Errors
///
/// The first error of `reset` or `run`, a fault of a kernel, or [`cuda_gemm::Error::Driver`].
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm, find_kernel};
/// use gemm_bench::time::measure_interleaved;
///
/// # fn main() -> Result<(), gemm_bench::Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// let gemm = Gemm::new(64, 64, 64);
/// let mut products = Vec::new();
/// for name in ["naive", "tile2d"] {
///     products.push(device.kernel(find_kernel(name)?)?.prepare(gemm)?);
/// }
/// let zeros = || DeviceMatrix::<f32>::zeros(&device, [64, 64]);
/// let (a, b, mut c) = (zeros()?, zeros()?, zeros()?);
///
/// let run = |i: usize| products[i].run(&a, &b, &mut c);
/// let samples = measure_interleaved(&device, products.len(), 1, 3, || Ok(()), run)?;
/// let [naive, tile2d] = &samples[..] else { unreachable!() };
/// println!("naive takes {:.1} times as long", naive.median() / tile2d.median());
/// println!("tile2d: {:.1} GFLOP/s", tile2d.gflops(gemm.flops()).unwrap_or_default());
/// # Ok(())
/// # }
/// ```
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
    let timer = Timer::new(device)?;
    let mut samples = vec![Samples::new(device, 1, None); count];
    for _ in 0..repeat.max(1) {
        for (i, samples) in samples.iter_mut().enumerate() {
            reset()?;
            device.synchronize()?;
            samples.ms.push(timer.milliseconds(|| run(i))?);
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(ms: &[f64]) -> Samples {
        let (ms, enqueue_ms) = (ms.to_vec(), Vec::new());
        Samples { device: DeviceKind::Gpu, launches: 1, gap_free: None, ms, enqueue_ms }
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
        assert!(samples.len() == 2 && samples.iter().all(|samples| samples.ms.len() == 3));
    }

    #[test]
    fn throughput_is_at_the_median() {
        approx::assert_relative_eq!(samples(&[1.0, 2.0, 9.0]).gflops(4e9).unwrap(), 2000.0);
        assert_eq!(samples(&[1.0]).gflops(0.0), None);
        assert_eq!(samples(&[0.0]).gflops(1.0), None);
    }
}
