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

/// Times interleaved batches of `count` candidates.
///
/// - `launch` enqueues one launch of a candidate, by its index.
/// - `delay` enqueues work that keeps the GPU busy for about this many milliseconds.
/// - `observe` is called while a batch runs whose time counts.
///
/// # Errors
///
/// The first error of `launch` or `delay`, a fault of a kernel, or [`cuda_gemm::Error::Driver`].
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm, find_kernel};
/// use gemm_bench::batch::{self, Policy};
/// use gemm_bench::roofline::Peaks;
/// use gemm_bench::{Error, stats};
///
/// # fn main() -> Result<(), Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// let mut products = Vec::new();
/// for name in ["naive", "tile2d"] {
///     products.push(device.kernel(find_kernel(name)?)?.prepare(Gemm::new(8, 8, 8))?);
/// }
/// let zeros = || DeviceMatrix::<f32>::zeros(&device, [8, 8]);
/// let (a, b, mut c) = (zeros()?, zeros()?, zeros()?);
/// let peaks = Peaks::of(&device)?;
/// let speed = peaks.speed()?;
///
/// let policy = Policy { samples: 6, sample_ms: 1.0, warmup_ms: 2.0, slowest: f64::INFINITY };
/// let launch = |i: usize| Ok::<_, Error>(products[i].run(&a, &b, &mut c)?);
/// let delay = |ms| peaks.enqueue_delay(ms, speed);
/// for batches in batch::measure(&device, 2, policy, launch, delay, || ())? {
///     println!("{:.4} ms per launch", stats::median(&batches.ms));
///     assert_eq!(batches.ms.len(), 6);
/// }
/// # Ok(())
/// # }
/// ```
pub fn measure<E: From<cuda_gemm::Error>>(
    device: &Device,
    count: usize,
    policy: Policy,
    launch: impl FnMut(usize) -> Result<(), E>,
    delay: impl FnMut(f64) -> Result<(), E>,
    observe: impl FnMut(),
) -> Result<Vec<Samples>, E> {
    let mut sampler = Sampler { timer: Timer::new(device)?, counts: false, launch, delay, observe };
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

struct Sampler<L, D, O> {
    timer: Timer,
    /// Whether the clocks have settled, so that times count.
    counts: bool,
    launch: L,
    delay: D,
    observe: O,
}

struct Sample {
    /// Milliseconds of the whole batch.
    ms: f64,
    /// Milliseconds of the host to enqueue the batch.
    enqueue_ms: f64,
    gap_free: bool,
}

impl<E: From<cuda_gemm::Error>, L, D, O> Sampler<L, D, O>
where
    L: FnMut(usize) -> Result<(), E>,
    D: FnMut(f64) -> Result<(), E>,
    O: FnMut(),
{
    /// Takes one sample.
    ///
    /// While the delay is too short for the host, it is lengthened and the sample is repeated.
    fn sample(&mut self, i: usize, candidate: &mut Batching) -> Result<Sample, E> {
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
    fn try_sample(&mut self, i: usize, candidate: Batching) -> Result<Sample, E> {
        let Self { timer, counts, launch, delay, observe } = self;
        if let Some(ms) = candidate.delay {
            delay(ms)?;
        }
        let enqueue = |timer: &Timer| {
            let clock = Instant::now();
            for _ in 0..candidate.launches {
                launch(i)?;
            }
            let enqueue_ms = clock.elapsed().as_secs_f64() * 1e3;
            Ok::<_, E>((enqueue_ms, !timer.has_started()?))
        };
        let observe = |_: &mut (f64, bool)| {
            if *counts {
                observe();
            }
        };
        let (ms, (enqueue_ms, gap_free)) = timer.time(enqueue, observe)?;
        Ok(Sample { ms, enqueue_ms, gap_free })
    }
}

/// The next delay, if one was too short for a host that needed `enqueue_ms`.
fn longer(delay: f64, enqueue_ms: f64) -> Option<f64> {
    (delay < MAX_DELAY).then(|| (2.0 * delay).max(1.5 * enqueue_ms).min(MAX_DELAY))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

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

    /// The calls that were made.
    #[derive(Default)]
    struct Notes {
        order: Vec<usize>,
        delays: usize,
        observed: usize,
    }

    /// Measures two candidates. The first one sleeps.
    fn noted(device: &Device, policy: Policy) -> (Vec<Samples>, Notes) {
        let notes = RefCell::new(Notes::default());
        let launch = |i| {
            notes.borrow_mut().order.push(i);
            if i == 0 {
                std::thread::sleep(std::time::Duration::from_millis(6));
            }
            Ok::<_, cuda_gemm::Error>(())
        };
        let delay = |_| {
            notes.borrow_mut().delays += 1;
            Ok(())
        };
        let observe = || notes.borrow_mut().observed += 1;
        let batches = measure(device, 2, policy, launch, delay, observe).unwrap();
        (batches, notes.into_inner())
    }

    #[test]
    fn batches_are_interleaved_and_gaps_are_admitted() {
        // The software device finishes at once: no delay hides the host from it.
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let (batches, notes) = noted(&device, POLICY);
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
        let (batches, _) = noted(&device, policy);
        let counts: Vec<_> = batches.iter().map(|batches| batches.ms.len()).collect();
        assert_eq!(counts, [1, 3]);
    }

    #[test]
    fn nothing_takes_no_time() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let nothing = |_| Ok::<_, cuda_gemm::Error>(());
        assert!(measure(&device, 0, POLICY, nothing, |_| Ok(()), || ()).unwrap().is_empty());
    }
}
