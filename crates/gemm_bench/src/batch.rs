//! Timing interleaved batches of launches, so that ratios mean something.
//!
//! A sample is the time between two events around a *batch* of launches, divided by their
//! number. A batch lasts some milliseconds, against which the resolution of events is
//! nothing. In front of it the GPU gets something else to do, for as long as the host needs
//! to enqueue the batch: then the launches follow each other without a gap, however slow the
//! host is. Whether that worked is known, not hoped: if the event before the batch is still
//! pending when the last launch is enqueued, no launch can have waited for the host.
//!
//! Batches are interleaved: first, second, first again. So whatever makes a GPU faster or
//! slower as time goes on, its clocks above all, does so for both, and the i-th samples form
//! a pair.

use std::time::Instant;

use cuda_gemm::Device;

use crate::timer::Timer;

/// The most launches per batch. A GPU takes about a thousand before it makes the host wait,
/// and one call of cuBLAS may be two.
pub const MAX_LAUNCHES: u32 = 400;

/// The shortest and the longest delay before a batch, in milliseconds. Where the longest is
/// too short, gaps are put up with.
const MIN_DELAY: f64 = 0.05;
const MAX_DELAY: f64 = 20.0;

/// How many samples are taken, and how long they are.
///
/// ```
/// use gemm_bench::batch::{MAX_LAUNCHES, Policy};
///
/// let policy = Policy { samples: 20, sample_ms: 3.0, warmup_ms: 200.0 };
/// assert_eq!([10.0, 0.1, 0.001].map(|ms| policy.launches(ms)), [1, 30, MAX_LAUNCHES]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Samples of each.
    pub samples: u32,
    /// Milliseconds that a batch lasts at least, unless that takes more than
    /// [`MAX_LAUNCHES`].
    pub sample_ms: f64,
    /// Milliseconds of work before the first sample, all candidates together.
    pub warmup_ms: f64,
}

impl Policy {
    /// Launches per batch, given the milliseconds that one takes.
    pub fn launches(&self, ms: f64) -> u32 {
        // A time of 0 gives infinity, which the conversion turns into the largest number.
        ((self.sample_ms / ms).ceil() as u32).clamp(1, MAX_LAUNCHES)
    }
}

/// The samples of one candidate, from [`measure`].
#[derive(Clone, Debug)]
pub struct Batches {
    /// Launches per sample.
    pub launches: u32,
    /// Milliseconds per launch, a value for each sample, in the order taken.
    pub ms: Vec<f64>,
    /// Milliseconds of the host's time to enqueue a launch, likewise.
    pub enqueue_ms: Vec<f64>,
    /// Whether no launch of any sample can have waited for the host.
    pub gap_free: bool,
}

/// What [`measure`] needs to be told how to do, with an example there.
pub trait Work {
    /// What can go wrong.
    type Error: From<cuda_gemm::Error>;

    /// Enqueues one launch of candidate `i`.
    ///
    /// # Errors
    ///
    /// What a launch gives.
    fn launch(&mut self, i: usize) -> Result<(), Self::Error>;

    /// Enqueues something that takes the GPU about `ms` milliseconds.
    ///
    /// # Errors
    ///
    /// What a launch gives.
    fn delay(&mut self, ms: f64) -> Result<(), Self::Error>;

    /// Is called while a batch runs whose time counts.
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
///     products: Vec<Plan>,
///     matrices: [DeviceMatrix; 3],
///     peaks: Peaks,
///     speed: Speed,
/// }
///
/// impl Work for Products {
///     type Error = Error;
///
///     fn launch(&mut self, i: usize) -> Result<(), Error> {
///         let [a, b, c] = &mut self.matrices;
///         Ok(self.products[i].enqueue(&*a, &*b, c)?)
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
/// let zeros = || DeviceMatrix::zeros(&device, 8, 8);
/// let matrices = [zeros()?, zeros()?, zeros()?];
/// let peaks = Peaks::of(&device)?;
/// let speed = peaks.speed()?;
/// let mut work = Products { products, matrices, peaks, speed };
///
/// let policy = Policy { samples: 6, sample_ms: 1.0, warmup_ms: 2.0 };
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
) -> Result<Vec<Batches>, W::Error> {
    let mut sampler = Sampler { timer: Timer::new(device)?, counts: false, work };
    let mut candidates = vec![Batching { launches: 1, delay: Some(MIN_DELAY) }; count];

    // Warm up, and find out how long a batch must be. The first launches are slow, so a
    // batch only ever gets longer.
    let mut spent = 0.0;
    loop {
        let mut settled = true;
        for (i, candidate) in candidates.iter_mut().enumerate() {
            let Sample { ms, .. } = sampler.sample(i, candidate)?;
            spent += ms;
            let launches = f64::from(candidate.launches);
            let wanted = policy.launches(ms / launches);
            // Not for a few percent.
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
    let mut batches: Vec<_> = candidates
        .iter()
        .map(|candidate| Batches {
            launches: candidate.launches,
            ms: Vec::new(),
            enqueue_ms: Vec::new(),
            gap_free: true,
        })
        .collect();
    for _ in 0..policy.samples {
        for (i, (batches, candidate)) in batches.iter_mut().zip(&mut candidates).enumerate() {
            let Sample { ms, enqueue_ms, gap_free } = sampler.sample(i, candidate)?;
            batches.ms.push(ms / f64::from(candidate.launches));
            batches.enqueue_ms.push(enqueue_ms / f64::from(candidate.launches));
            batches.gap_free &= gap_free;
        }
    }
    Ok(batches)
}

/// How a candidate's batches are made.
#[derive(Clone, Copy)]
struct Batching {
    launches: u32,
    /// Milliseconds of other work in front; none where no delay was long enough.
    delay: Option<f64>,
}

struct Sampler<'a, W> {
    timer: Timer,
    /// Whether the clocks have settled, so that times count.
    counts: bool,
    work: &'a mut W,
}

struct Sample {
    /// Of the whole batch.
    ms: f64,
    /// That the host took to enqueue it.
    enqueue_ms: f64,
    gap_free: bool,
}

impl<W: Work> Sampler<'_, W> {
    /// Takes one sample. As long as the host is too slow for the delay, it is made longer, and
    /// the sample is taken again.
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

/// The delay after one that was too short for a host which took `enqueue_ms`.
fn longer(delay: f64, enqueue_ms: f64) -> Option<f64> {
    (delay < MAX_DELAY).then(|| (2.0 * delay).max(1.5 * enqueue_ms).min(MAX_DELAY))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_gemm::DeviceChoice;

    const POLICY: Policy = Policy { samples: 3, sample_ms: 5.0, warmup_ms: 0.0 };

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

    /// Notes what it is asked to do; the first candidate sleeps.
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
        // The software device is always done at once: no delay hides the host from it.
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let mut notes = Notes::default();
        let batches = measure(&device, 2, POLICY, &mut notes).unwrap();
        let [slow, fast] = &batches[..] else { panic!("{batches:?}") };
        assert_eq!((slow.launches, slow.ms.len(), slow.gap_free), (1, 3, false));
        assert_eq!((fast.ms.len(), fast.gap_free), (3, false));
        assert!(fast.launches > 100, "{}", fast.launches);
        assert!(slow.ms.iter().all(|&ms| ms >= 6.0) && fast.ms.iter().all(|&ms| ms < 1.0));
        // Long before the times that count, no more delays are tried.
        assert_eq!(notes.observed, 2 * 3);
        let round = [vec![0], vec![1; fast.launches as usize]].concat();
        assert!(notes.order.ends_with(&round.repeat(3)));
        assert!((2..30).contains(&notes.delays), "{}", notes.delays);
    }

    #[test]
    fn nothing_takes_no_time() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        assert!(measure(&device, 0, POLICY, &mut Notes::default()).unwrap().is_empty());
    }
}
