//! The matrices on the device, and what runs on them.

use std::cell::RefCell;

use host::time::{self, Samples};
use host::{Device, DeviceMatrix, Error, Gemm, Matrix};

use super::candidate::{Candidate, Job};
use super::input::Matrices;
use super::progress::{self, Simulation};

/// Timed runs on a GPU, and untimed ones before them, while clocks rise.
const GPU_REPEAT: u32 = 10;
const GPU_WARMUP: u32 = 2;

/// A quiet NaN that no product makes: C holds it before each run if beta is 0, so that
/// a kernel that reads C, or leaves out an element, is found out.
pub const POISON: u32 = 0x7fc0_dead;

/// What was measured, or why it cannot run.
pub type Timed<'e> = Result<(&'e Job, Samples), &'e str>;

/// One set of matrices for all that run.
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
    /// Timed runs of each.
    pub fn repeat(&self) -> u32 {
        self.repeat
    }

    /// Copies the matrices to the device.
    pub fn new(
        device: &Device,
        gemm: &Gemm,
        matrices: &'a Matrices,
        repeat: Option<u32>,
    ) -> Result<Self, Error> {
        let (warmup, usual) = if device.is_soft() { (0, 1) } else { (GPU_WARMUP, GPU_REPEAT) };
        Ok(Self {
            device: device.clone(),
            warmup,
            repeat: repeat.unwrap_or(usual),
            a: DeviceMatrix::from_host(device, &matrices.a)?,
            b: DeviceMatrix::from_host(device, &matrices.b)?,
            target: RefCell::new(DeviceMatrix::zeros(device, gemm.m, gemm.n)?),
            old: matrices.c.as_ref(),
        })
    }

    /// Times everything that can run, in turn, in the order of `candidates`; why not for what
    /// cannot. `simulation` is what they are called while one waits for the software device.
    pub fn measure<'e>(
        &self,
        candidates: &'e [Candidate],
        simulation: &Simulation,
    ) -> Result<Vec<Timed<'e>>, Error> {
        let jobs: Vec<_> =
            candidates.iter().filter_map(|candidate| candidate.job.as_ref().ok()).collect();
        let reset = || self.reset();
        let samples = if self.device.is_soft() {
            let run = |i: usize| {
                simulation.run(|| {
                    self.run(jobs[i])?;
                    Ok(self.device.synchronize()?)
                })
            };
            time::measure_interleaved(
                &self.device,
                jobs.len(),
                self.warmup,
                self.repeat,
                reset,
                run,
            )
        } else {
            progress::step("running on the GPU", || {
                let run = |i: usize| self.run(jobs[i]);
                time::measure_interleaved(
                    &self.device,
                    jobs.len(),
                    self.warmup,
                    self.repeat,
                    reset,
                    run,
                )
            })
        }?;
        let mut samples = samples.into_iter();
        let timed = candidates.iter().map(|candidate| match &candidate.job {
            Ok(job) => Ok((job, samples.next().expect("one for each job"))),
            Err(reason) => Err(reason.as_str()),
        });
        Ok(timed.collect())
    }

    /// What a job computes. `again` says whether others have run since.
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
