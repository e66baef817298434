//! One product's matrices on the device, and the timing of candidates on them.

pub mod candidate;
pub mod groups;
pub mod job;
pub mod operands;
pub mod shape;

use std::cell::RefCell;
use std::sync::Arc;

use cuda_gemm::{Compute, Device, Gemm, Matrix};

use crate::buffers::{self, L2, RotatingBuffers};
use crate::error::Error;
use crate::job::{Candidate, Job};
use crate::limit::Load;
use crate::operands::Operands;
use crate::side_by_side::{Measured, SAMPLE_MS, SideBySide};
use crate::time::{self, Samples};

/// The default number of samples of each candidate on a GPU.
const GPU_REPEAT: u32 = 10;

/// The number of samples per candidate: `wanted`, or the default.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice};
/// use gemm_bench::workload::samples;
///
/// # fn main() -> Result<(), cuda_gemm::Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// assert_eq!((samples(&device, None), samples(&device, Some(3))), (1, 3));
/// # Ok(())
/// # }
/// ```
pub fn samples(device: &Device, wanted: Option<u32>) -> u32 {
    wanted.unwrap_or(if device.is_soft() { 1 } else { GPU_REPEAT })
}

/// The results of [`Workload::measure`] for one candidate.
pub struct Timed<'e> {
    /// The job that ran.
    pub job: &'e Job,
    /// The times.
    pub samples: Samples,
    /// The use of the GPU's units; `None` on the software device, and for tensor cores.
    pub load: Option<Load>,
}

/// Sets of matrices that all candidates share.
///
/// On a GPU, [`SideBySide`] times everything, as in [`compare`](crate::compare). On the software
/// device, whose times say nothing about a GPU, a sample is one run on one set.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, Gemm};
/// use gemm_bench::{KernelOptions, L2, Operands, Selection, workload::Workload};
///
/// # fn main() -> Result<(), gemm_bench::Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// let gemm = Gemm::new(20, 30, 10);
/// let operands = Operands::random(&gemm, 42);
/// let mut workload = Workload::new(&device, &operands, Some(3), L2::Cold)?;
///
/// let loaded = Selection::parse("tile2d")?.load(&device, None)?;
/// let all = Selection::All(gemm.compute);
/// let candidates = [loaded[0].prepare(gemm, KernelOptions::default(), all)?];
/// for timed in workload.measure(&candidates, |run| run(), |_, _| ())? {
///     let timed = timed.expect("it runs");
///     println!("{:.3} ms", timed.samples.median());
///     let c = workload.result(timed.job, false)?;
///     assert_eq!((c.rows(), c.cols()), (20, 30));
/// }
/// # Ok(())
/// # }
/// ```
pub struct Workload<'a> {
    device: Device,
    gemm: Gemm,
    repeat: u32,
    buffers: RotatingBuffers,
    /// The wanted number of sets.
    wanted: usize,
    /// The contents of C before a run; `None` if C is not read.
    old: Option<&'a Matrix>,
    /// The timing on a GPU.
    meter: Option<SideBySide>,
    l2: L2,
}

impl<'a> Workload<'a> {
    /// Copies A, B, and the old C if it is read, to the device.
    ///
    /// `repeat` is the number of samples of each candidate, by default ten on a GPU and one on the
    /// software device.
    ///
    /// `l2` is the state of a GPU's L2 cache when a product starts. The software device has none.
    ///
    /// # Errors
    ///
    /// [`cuda_gemm::Error::DeviceMemory`] or [`cuda_gemm::Error::Driver`] if memory is short.
    pub fn new(
        device: &Device,
        operands: &'a Operands,
        repeat: Option<u32>,
        l2: L2,
    ) -> Result<Self, Error> {
        let gemm = operands.gemm();
        let needed = gemm.bytes();
        device.require_memory(needed)?;
        // Fits 64 bits, as the free memory does.
        let bytes = needed as u64;
        let is_soft = device.is_soft();
        let meter = (!is_soft).then(|| SideBySide::new(device, bytes)).transpose()?;
        let wanted = if is_soft { 1 } else { buffers::count(l2, bytes, device.info().l2_bytes) };
        let count = buffers::possible(wanted, bytes, device.free_memory()?);
        let mut buffers = RotatingBuffers::new(device, operands, count)?;
        let old = operands.c();
        buffers.reset(old)?;
        let repeat = samples(device, repeat);
        Ok(Self { device: device.clone(), gemm: *gemm, repeat, buffers, wanted, old, meter, l2 })
    }

    /// Samples of each candidate.
    pub fn repeat(&self) -> u32 {
        self.repeat
    }

    /// The sets of matrices in rotation, and the number for a cold L2 cache.
    pub fn sets(&self) -> (usize, usize) {
        (self.buffers.len(), self.wanted)
    }

    /// Times all candidates that can run, in turn; others return their reasons.
    ///
    /// The results are in the order of `candidates`. On the software device, `around` wraps each
    /// run, which lasts as long as the call, to show progress. On a GPU, `sampled` receives the
    /// samples done and the samples wanted.
    ///
    /// If the old C is read, a timed launch reads the result of the launch before it on the same
    /// matrices.
    ///
    /// # Errors
    ///
    /// A fault of a kernel, or [`cuda_gemm::Error::Driver`].
    pub fn measure<'e>(
        &mut self,
        candidates: &'e [Candidate],
        mut around: impl FnMut(&mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error>,
        mut sampled: impl FnMut(u32, u32),
    ) -> Result<Vec<Result<Timed<'e>, &'e Arc<Error>>>, Error> {
        let jobs: Vec<_> =
            candidates.iter().filter_map(|candidate| candidate.job.as_ref().ok()).collect();
        let Self { device, buffers, repeat, old, gemm, l2, .. } = self;
        let mut measured = match &self.meter {
            Some(meter) => {
                let policy = (*repeat, SAMPLE_MS);
                let Measured { batches, rates, launch_ms } =
                    meter.measure(&jobs, buffers, policy, None, &mut sampled)?;
                let roofs = Some((rates, launch_ms));
                batches.into_iter().map(|samples| (samples, roofs)).collect::<Vec<_>>()
            }
            None => {
                let buffers = RefCell::new(buffers);
                let reset = || buffers.borrow_mut().reset(*old);
                let run = |i: usize| around(&mut || buffers.borrow_mut().enqueue(jobs[i]));
                let samples =
                    time::measure_interleaved(device, jobs.len(), 0, *repeat, reset, run)?;
                samples.into_iter().map(|samples| (samples, None)).collect()
            }
        }
        .into_iter();
        let timed = candidates.iter().map(|candidate| {
            let job = candidate.job.as_ref()?;
            let (samples, roofs) = measured.next().expect("one for each job");
            // The roofs are for f32.
            let roofs = roofs.filter(|_| job.gemm().compute == Compute::F32);
            let load = roofs.map(|(rates, launch_ms)| {
                let ms = samples.median();
                Load::new(candidate, gemm, device.info(), ms, (&rates, launch_ms), *l2)
            });
            Ok(Timed { job, samples, load })
        });
        Ok(timed.collect())
    }

    /// The result of a job. `again` says whether others have run since.
    ///
    /// # Errors
    ///
    /// See [`Workload::measure`].
    pub fn result(&mut self, job: &Job, again: bool) -> Result<Matrix, Error> {
        // A batch's launches leave in C no result of a single product.
        match again || self.meter.is_some() {
            true => self.buffers.result(job, self.old),
            false => self.buffers.first(),
        }
    }
}
