//! The matrices of one product on the device, and the candidates that are timed with them.

use std::cell::RefCell;
use std::sync::Arc;

use cuda_gemm::{Device, DeviceMatrix, Gemm, Matrix};

use crate::buffers::POISON;
use crate::candidate::{Candidate, Job};
use crate::error::Error;
use crate::time::{self, Samples};

/// Timed runs on a GPU, and untimed ones before them, while clocks rise.
const GPU_REPEAT: u32 = 10;
const GPU_WARMUP: u32 = 2;

/// What [`Workload::measure`] measured, or why it cannot run.
pub type Timed<'e> = Result<(&'e Job, Samples), &'e Arc<Error>>;

/// One set of matrices for all that run.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, Gemm, Matrix};
/// use gemm_bench::{Selection, workload::Workload};
///
/// # fn main() -> Result<(), gemm_bench::Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// let gemm = Gemm::new(20, 30, 10);
/// let (a, b) = (Matrix::random(20, 10, 1, 1), Matrix::random(10, 30, 1, 2));
/// let workload = Workload::new(&device, &gemm, [&a, &b], None, Some(3))?;
///
/// let loaded = Selection::parse("tile2d")?.load(&device, None)?;
/// let candidates = [loaded[0].prepare(gemm, 1, false, Selection::All)?];
/// for timed in workload.measure(&candidates, |run| run())? {
///     let (job, samples) = timed.expect("it runs");
///     println!("{:.3} ms", samples.median());
///     let c = workload.result(job, false)?;
///     assert_eq!((c.rows(), c.cols()), (20, 30));
/// }
/// # Ok(())
/// # }
/// ```
pub struct Workload<'a> {
    device: Device,
    warmup: u32,
    repeat: u32,
    a: DeviceMatrix,
    b: DeviceMatrix,
    target: RefCell<DeviceMatrix>,
    /// What C holds before each run; none if it is not read.
    old: Option<&'a Matrix>,
}

impl<'a> Workload<'a> {
    /// Copies the matrices to the device: A, B, and the old C if it is read. Each candidate runs
    /// `repeat` times: ten on a GPU and once on the software device unless that is given.
    ///
    /// # Errors
    ///
    /// [`cuda_gemm::Error::Driver`] if the memory is not to be had.
    pub fn new(
        device: &Device,
        gemm: &Gemm,
        [a, b]: [&Matrix; 2],
        old: Option<&'a Matrix>,
        repeat: Option<u32>,
    ) -> Result<Self, Error> {
        let (warmup, usual) = if device.is_soft() { (0, 1) } else { (GPU_WARMUP, GPU_REPEAT) };
        Ok(Self {
            device: device.clone(),
            warmup,
            repeat: repeat.unwrap_or(usual),
            a: DeviceMatrix::from_host(device, a)?,
            b: DeviceMatrix::from_host(device, b)?,
            target: RefCell::new(DeviceMatrix::zeros(device, gemm.m, gemm.n)?),
            old,
        })
    }

    /// Timed runs of each.
    pub fn repeat(&self) -> u32 {
        self.repeat
    }

    /// Times everything that can run, in turn, in the order of `candidates`; why not for what
    /// cannot. `around` makes each run on the software device, which takes as long as the call: to
    /// show how far it is.
    ///
    /// # Errors
    ///
    /// A fault of a kernel, or [`cuda_gemm::Error::Driver`].
    pub fn measure<'e>(
        &self,
        candidates: &'e [Candidate],
        mut around: impl FnMut(&mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error>,
    ) -> Result<Vec<Timed<'e>>, Error> {
        let jobs: Vec<_> =
            candidates.iter().filter_map(|candidate| candidate.job.as_ref().ok()).collect();
        let run = |i: usize| match self.device.is_soft() {
            true => around(&mut || self.run(jobs[i])),
            false => self.run(jobs[i]),
        };
        let reset = || self.reset();
        let (count, warmup, repeat) = (jobs.len(), self.warmup, self.repeat);
        let samples = time::measure_interleaved(&self.device, count, warmup, repeat, reset, run)?;
        let mut samples = samples.into_iter();
        let timed = candidates.iter().map(|candidate| match &candidate.job {
            Ok(job) => Ok((job, samples.next().expect("one for each job"))),
            Err(reason) => Err(reason),
        });
        Ok(timed.collect())
    }

    /// What a job computes. `again` says whether others have run since.
    ///
    /// # Errors
    ///
    /// As for [`Workload::measure`].
    pub fn result(&self, job: &Job, again: bool) -> Result<Matrix, Error> {
        if again {
            self.reset()?;
            self.run(job)?;
        }
        Ok(self.target.borrow().download()?)
    }

    fn reset(&self) -> Result<(), Error> {
        let mut target = self.target.borrow_mut();
        match self.old {
            Some(old) => Ok(target.upload(old)?),
            None => Ok(target.fill_buffer(POISON)?),
        }
    }

    fn run(&self, job: &Job) -> Result<(), Error> {
        job.enqueue(&self.a, &self.b, &mut self.target.borrow_mut())
    }
}
