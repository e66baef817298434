//! Times interleaved batches of launches, so that their ratios are meaningful.
//!
//! A sample is the time between two events around a *batch* of launches, divided by their number. A
//! batch lasts some milliseconds, compared with which the resolution of events is negligible.
//!
//! Before a batch, the GPU gets other work for as long as the host needs to enqueue the batch. The
//! launches then follow each other without a gap, however slow the host is. The event before the
//! batch proves it: if the event is still pending when the last launch is enqueued, no launch can
//! have waited for the host.
//!
//! Batches are interleaved: first, second, first again. So drifts, above all of a GPU's clocks,
//! affect both, and the i-th samples form a pair.

use std::time::Instant;

use cuda_gemm::{Device, Timer};

use crate::time::Samples;

/// The most launches per batch.
///
/// A GPU queues about a thousand before the host must wait, and one call of cuBLAS may be two
/// launches.
pub const MAX_LAUNCHES: u32 = 400;

/// The shortest and the longest delay before a batch, in milliseconds. If the longest is too short,
/// gaps are accepted.
const MIN_DELAY: f64 = 0.05;
const MAX_DELAY: f64 = 20.0;

/// The number and the length of samples.
///
/// ```
/// use gemm_bench::batch::{MAX_LAUNCHES, Policy};
///
/// let policy = Policy { samples: 20, sample_ms: 3.0, warmup_ms: 200.0, slowest: f64::INFINITY };
/// assert_eq!([10.0, 0.1, 0.001].map(|ms| policy.launches(ms)), [1, 30, MAX_LAUNCHES]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Samples of each candidate.
    pub samples: u32,
    /// The shortest batch, in milliseconds, as far as [`MAX_LAUNCHES`] allows.
    pub sample_ms: f64,
    /// Milliseconds of work before the first sample, all candidates together.
    pub warmup_ms: f64,
    /// A candidate keeps its first sample only, if that takes more than this many times the least
    /// first sample.
    pub slowest: f64,
}

impl Policy {
    /// Launches per batch, if one launch lasts `ms` milliseconds.
    pub fn launches(&self, ms: f64) -> u32 {
        // A time of 0 gives infinity, which the conversion saturates.
        ((self.sample_ms / ms).ceil() as u32).clamp(1, MAX_LAUNCHES)
    }
}

/// The work that [`measure`] times; its documentation has an example.
pub trait Work {
    /// The error of the work.
    type Error: From<cuda_gemm::Error>;

    /// Enqueues one launch of candidate `i`.
    ///
    /// # Errors
    ///
    /// The error of the launch.
    fn launch(&mut self, i: usize) -> Result<(), Self::Error>;

    /// Enqueues work that keeps the GPU busy for about `ms` milliseconds.
    ///
    /// # Errors
    ///
    /// The error of the launch.
    fn delay(&mut self, ms: f64) -> Result<(), Self::Error>;

    /// Called while a batch runs whose time counts.
    fn observe(&mut self);
}

/// Times interleaved batches of `count` candidates.
///
/// # Errors
///
/// The first error of `work`, a fault of a kernel, or [`cuda_gemm::Error::Driver`].
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm, Plan, find_kernel};
/// use gemm_bench::batch::{self, Policy, Work};
/// use gemm_bench::roofline::{Peaks, Speed};
/// use gemm_bench::{Error, stats};
///
/// struct Products {
///     products: Vec<Plan<'static>>,
///     matrices: [DeviceMatrix<f32>; 3],
///     peaks: Peaks,
///     speed: Speed,
/// }
///
/// impl Work for Products {
///     type Error = Error;
///
///     fn launch(&mut self, i: usize) -> Result<(), Error> {
///         let [a, b, c] = &mut self.matrices;
///         Ok(self.products[i].run(&*a, &*b, c)?)
///     }
///
///     fn delay(&mut self, ms: f64) -> Result<(), Error> {
///         self.peaks.enqueue_delay(ms, self.speed)
///     }
///
///     fn observe(&mut self) {}
/// }
///
/// # fn main() -> Result<(), Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// let mut products = Vec::new();
/// for name in ["naive", "tile2d"] {
///     products.push(device.kernel(find_kernel(name)?)?.prepare(Gemm::new(8, 8, 8))?);
/// }
/// let zeros = || DeviceMatrix::zeros(&device, [8, 8]);
/// let matrices = [zeros()?, zeros()?, zeros()?];
/// let peaks = Peaks::of(&device)?;
/// let speed = peaks.speed()?;
/// let mut work = Products { products, matrices, peaks, speed };
///
/// let policy = Policy { samples: 6, sample_ms: 1.0, warmup_ms: 2.0, slowest: f64::INFINITY };
/// for batches in batch::measure(&device, 2, policy, &mut work)? {
///     println!("{:.4} ms per launch", stats::median(&batches.ms));
///     assert_eq!(batches.ms.len(), 6);
/// }
/// # Ok(())
/// # }
/// ```
pub fn measure<W: Work>(
    device: &Device,
    count: usize,
    policy: Policy,
    work: &mut W,
) -> Result<Vec<Samples>, W::Error> {
    let mut sampler = Sampler { timer: Timer::new(device)?, counts: false, work };
    let mut candidates = vec![Batching { launches: 1, delay: Some(MIN_DELAY) }; count];

    // Warm up, and find the length of a batch. The first launches are slow, so batches only grow.
    let mut spent = 0.0;
    loop {
        let mut settled = true;
        for (i, candidate) in candidates.iter_mut().enumerate() {
            let Sample { ms, .. } = sampler.sample(i, candidate)?;
            spent += ms;
            let launches = f64::from(candidate.launches);
            let wanted = policy.launches(ms / launches);
            // A few percent are not worth a change.
            if f64::from(wanted) > 1.1 * launches {
                candidate.launches = wanted;
                settled = false;
            }
        }
        if count == 0 || settled && spent >= policy.warmup_ms {
            break;
        }
    }

    sampler.counts = true;
    let new = |candidate: &Batching| Samples::new(device, candidate.launches, Some(true));
    let mut batches: Vec<_> = candidates.iter().map(new).collect();
    let mut longest = f64::INFINITY;
    for _ in 0..policy.samples {
        for (i, (batches, candidate)) in batches.iter_mut().zip(&mut candidates).enumerate() {
            if batches.ms.first().is_some_and(|first| *first > longest) {
                continue;
            }
            let Sample { ms, enqueue_ms, gap_free } = sampler.sample(i, candidate)?;
            batches.ms.push(ms / f64::from(candidate.launches));
            batches.enqueue_ms.push(enqueue_ms / f64::from(candidate.launches));
            batches.gap_free = batches.gap_free.map(|before| before && gap_free);
        }
        let first = batches.iter().filter_map(|batches| batches.ms.first().copied());
        longest = policy.slowest * first.fold(f64::INFINITY, f64::min);
    }
    Ok(batches)
}

/// The settings of a candidate's batches.
#[derive(Clone, Copy)]
struct Batching {
    launches: u32,
    /// Milliseconds of other work before a batch; `None` if no delay was long enough.
    delay: Option<f64>,
}

struct Sampler<'a, W> {
    timer: Timer,
    /// Whether the clocks have settled, so that times count.
    counts: bool,
    work: &'a mut W,
}

struct Sample {
    /// Milliseconds of the whole batch.
    ms: f64,
    /// Milliseconds of the host to enqueue the batch.
    enqueue_ms: f64,
    gap_free: bool,
}

impl<W: Work> Sampler<'_, W> {
    /// Takes one sample.
    ///
    /// While the delay is too short for the host, it is lengthened and the sample is repeated.
    fn sample(&mut self, i: usize, candidate: &mut Batching) -> Result<Sample, W::Error> {
        loop {
            let sample = self.try_sample(i, *candidate)?;
            match candidate.delay {
                Some(delay) if !sample.gap_free => {
                    candidate.delay = longer(delay, sample.enqueue_ms);
                }
                _ => return Ok(sample),
            }
        }
    }

    /// Takes one sample.
    fn try_sample(&mut self, i: usize, candidate: Batching) -> Result<Sample, W::Error> {
        let Self { timer, counts, work } = self;
        if let Some(delay) = candidate.delay {
            work.delay(delay)?;
        }
        let enqueue = |timer: &Timer| {
            let clock = Instant::now();
            for _ in 0..candidate.launches {
                work.launch(i)?;
            }
            let enqueue_ms = clock.elapsed().as_secs_f64() * 1e3;
            Ok::<_, W::Error>((enqueue_ms, !timer.has_started()?, work))
        };
        let observe = |(_, _, work): &mut (f64, bool, &mut &mut W)| {
            if *counts {
                work.observe();
            }
        };
        let (ms, (enqueue_ms, gap_free, _)) = timer.time(enqueue, observe)?;
        Ok(Sample { ms, enqueue_ms, gap_free })
    }
}

/// The next delay, if one was too short for a host that needed `enqueue_ms`.
fn longer(delay: f64, enqueue_ms: f64) -> Option<f64> {
    (delay < MAX_DELAY).then(|| (2.0 * delay).max(1.5 * enqueue_ms).min(MAX_DELAY))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_gemm::DeviceChoice;

    const POLICY: Policy =
        Policy { samples: 3, sample_ms: 5.0, warmup_ms: 0.0, slowest: f64::INFINITY };

    #[test]
    fn a_batch_lasts_long_enough() {
        for (ms, launches) in [(10.0, 1), (5.0, 1), (4.9, 2), (0.1, 50), (0.006, MAX_LAUNCHES)] {
            assert_eq!(POLICY.launches(ms), launches, "{ms}");
        }
        assert_eq!(POLICY.launches(0.0), MAX_LAUNCHES);
        assert_eq!(POLICY.launches(f64::NAN), 1);
    }

    #[test]
    fn a_delay_grows_up_to_a_limit() {
        assert_eq!(longer(0.05, 0.01), Some(0.1));
        assert_eq!(longer(0.05, 4.0), Some(6.0));
        assert_eq!(longer(15.0, 1.0), Some(MAX_DELAY));
        assert_eq!(longer(MAX_DELAY, 1.0), None);
    }

    /// Records its calls; the first candidate sleeps.
    #[derive(Default)]
    struct Notes {
        order: Vec<usize>,
        delays: usize,
        observed: usize,
    }

    impl Work for Notes {
        type Error = cuda_gemm::Error;

        fn launch(&mut self, i: usize) -> Result<(), Self::Error> {
            self.order.push(i);
            if i == 0 {
                std::thread::sleep(std::time::Duration::from_millis(6));
            }
            Ok(())
        }

        fn delay(&mut self, _ms: f64) -> Result<(), Self::Error> {
            self.delays += 1;
            Ok(())
        }

        fn observe(&mut self) {
            self.observed += 1;
        }
    }

    #[test]
    fn batches_are_interleaved_and_gaps_are_admitted() {
        // The software device finishes at once: no delay hides the host from it.
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let mut notes = Notes::default();
        let batches = measure(&device, 2, POLICY, &mut notes).unwrap();
        let [slow, fast] = &batches[..] else { panic!("{batches:?}") };
        assert_eq!((slow.launches, slow.ms.len(), slow.gap_free), (1, 3, Some(false)));
        assert_eq!((fast.ms.len(), fast.gap_free), (3, Some(false)));
        assert!(fast.launches > 100, "{}", fast.launches);
        assert!(slow.ms.iter().all(|&ms| ms >= 6.0) && fast.ms.iter().all(|&ms| ms < 1.0));
        // Delays are given up long before the times that count.
        assert_eq!(notes.observed, 2 * 3);
        let round = [vec![0], vec![1; fast.launches as usize]].concat();
        assert!(notes.order.ends_with(&round.repeat(3)));
        assert!((2..30).contains(&notes.delays), "{}", notes.delays);
    }

    #[test]
    fn a_slow_candidate_gets_one_sample() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let policy = Policy { slowest: 3.0, ..POLICY };
        let batches = measure(&device, 2, policy, &mut Notes::default()).unwrap();
        let counts: Vec<_> = batches.iter().map(|batches| batches.ms.len()).collect();
        assert_eq!(counts, [1, 3]);
    }

    #[test]
    fn nothing_takes_no_time() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        assert!(measure(&device, 0, POLICY, &mut Notes::default()).unwrap().is_empty());
    }
}
