//! The measurements: kernels and cuBLAS on the same matrices in one process, in turn.

use std::sync::Arc;

use cuda_gemm::{Compute, Device, Gemm};
use gemm_verify::Bound;

use super::row::{Row, Status};
use crate::baseline::{Baseline, NotCompared};
use crate::buffers::{self, L2, RotatingBuffers, first_difference};
use crate::candidate::{Loaded, Selection};
use crate::error::{Error, require_memory};
use crate::job::{Candidate, Job, KernelOptions};
use crate::limit::Load;
use crate::operands::{self, Operands, Products};
use crate::shape::Shape;
use crate::side_by_side::{Measured, SAMPLE_MS, SideBySide};
use crate::telemetry::Telemetry;

/// How a [`Comparison`] measures kernels.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What the L2 cache holds when a product starts.
    pub l2: L2,
    /// Samples of each, kernel and cuBLAS; from six on there is an interval.
    pub samples: u32,
    /// Milliseconds that a sample lasts at least, unless that takes more than
    /// [`MAX_LAUNCHES`](crate::batch::MAX_LAUNCHES).
    pub sample_ms: f64,
    /// Of the random matrices.
    pub seed: u64,
    /// Columns left of A, B and C in the wider matrices that they are parts of, where leading
    /// dimensions have room for them: they begin so many elements from what the driver allocates.
    /// Kernels are to be loaded for [any alignment](crate::Loaded::any_alignment) then.
    pub left: usize,
}

impl Default for Options {
    /// A cold L2 cache, 20 samples of 3 ms, and 42.
    fn default() -> Self {
        Self { l2: L2::Cold, samples: 20, sample_ms: SAMPLE_MS, seed: 42, left: 0 }
    }
}

/// What takes a while: see [`Observer::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Random matrices are made, and copied to the device.
    Matrices,
    /// The product is computed in f64.
    Reference,
    /// A result is compared with it.
    Check,
}

/// What is odd about the rows that follow: see [`Observer::note`].
#[derive(Clone, Debug)]
pub enum Note {
    /// There is memory for so few sets of matrices that the L2 cache is not quite cold.
    FewSets {
        /// The product.
        shape: Shape,
        /// How many sets there are.
        count: usize,
        /// How many there should be.
        wanted: usize,
    },
    /// This shape is not compared.
    NotCompared(NotCompared),
}

/// Is told what a [`Comparison`] does. What it refuses ends the comparison;
/// there is an example.
pub trait Observer {
    /// What can go wrong.
    type Error: From<Error>;

    /// A row as soon as it is there, with its samples and cuBLAS's: milliseconds per launch, in the
    /// order taken; none where there is no time.
    ///
    /// # Errors
    ///
    /// What ends the comparison.
    fn row(&mut self, row: Row, ms: &[f64], cublas_ms: &[f64]) -> Result<(), Self::Error>;

    /// Something that takes a while, which it makes happen.
    fn step<T>(&mut self, _step: Step, work: impl FnOnce() -> T) -> T {
        work()
    }

    /// A kernel and the baseline are timed: `work` does it, and tells what it is given how many
    /// samples there are of how many.
    fn measure<T>(&mut self, work: impl FnOnce(&mut dyn FnMut(u32, u32)) -> T) -> T {
        work(&mut |_, _| ())
    }

    /// Something odd.
    fn note(&mut self, _note: &Note) {}
}

/// A device, what measures its peaks, and what reads its clocks: measures kernels side by side with
/// the baseline.
///
/// Every kernel is checked before it is timed, and compared with itself after: what is wrong, or
/// differs between runs, gets no time.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, Gemm};
/// use gemm_bench::compare::{Comparison, Observer, Options, Row, Status};
/// use gemm_bench::{Error, L2, Selection};
///
/// struct Print;
///
/// impl Observer for Print {
///     type Error = Error;
///
///     fn row(&mut self, row: Row, ms: &[f64], cublas_ms: &[f64]) -> Result<(), Error> {
///         assert_eq!((row.status, ms.len(), cublas_ms.len()), (Status::Pass, 6, 0));
///         println!("{}: {:.0} GFLOP/s", row.kernel, row.gflops.unwrap_or_default());
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// let options = Options { l2: L2::Warm, samples: 6, sample_ms: 1.0, ..Options::default() };
/// let mut comparison = Comparison::new(&device, options, None)?;
/// let kernels = Selection::parse("tile2d")?.load(&device, None)?;
/// comparison.shape(Gemm::new(8, 8, 8), &kernels, None, &mut Print)?;
/// # Ok(())
/// # }
/// ```
pub struct Comparison {
    meter: SideBySide,
    options: Options,
    telemetry: Option<Telemetry>,
}

impl Comparison {
    /// Loads what measures peaks. Rows have clocks, power and temperature if `telemetry` reads
    /// them.
    ///
    /// # Errors
    ///
    /// Those of [`SideBySide::new`].
    pub fn new(
        device: &Device,
        options: Options,
        telemetry: Option<Telemetry>,
    ) -> Result<Self, Error> {
        Ok(Self { meter: SideBySide::new(device, 0)?, options, telemetry })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        self.meter.device()
    }

    /// How kernels are measured.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Measures each kernel for a product, next to the baseline if there is one, and hands the rows
    /// to `observer`. What cannot run is a row that says why.
    ///
    /// # Errors
    ///
    /// That of the observer; otherwise a fault of a kernel, after which nothing runs, or
    /// [`cuda_gemm::Error::Driver`].
    pub fn shape<O: Observer>(
        &mut self,
        gemm: Gemm,
        kernels: &[Loaded],
        baseline: Option<&Loaded>,
        observer: &mut O,
    ) -> Result<(), O::Error> {
        let candidates: Vec<_> = kernels
            .iter()
            .map(|kernel| kernel.prepare(gemm, KernelOptions::default(), Selection::All))
            .collect::<Result<_, _>>()?;
        let baseline = baseline
            .map(|baseline| baseline.prepare(gemm, KernelOptions::default(), Selection::All))
            .transpose()?;
        let prepared = observer.step(Step::Matrices, || self.prepare(&gemm));
        let Plan { operands, mut buffers, wanted } = match prepared {
            Ok(prepared) => prepared,
            Err(error) if error.is_refusal() => {
                let error = Arc::new(error);
                for candidate in &candidates {
                    let row = self.new_row(candidate, &gemm);
                    observer.row(row.refused(Arc::clone(&error)), &[], &[])?;
                }
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        if buffers.len() < wanted {
            let shape = Shape::of(&gemm);
            observer.note(&Note::FewSets { shape, count: buffers.len(), wanted });
        }
        let bound = Bound::Probabilistic;
        let reference =
            observer.step(Step::Reference, || operands.reference(bound, self.options.seed))?;
        let baseline = baseline.as_ref();
        let baseline = baseline.map(|one| Baseline::new(one, &mut buffers, &reference));
        let baseline = match baseline.transpose()? {
            Some(Ok(baseline)) => Some(baseline),
            Some(Err(reason)) => {
                observer.note(&Note::NotCompared(reason));
                None
            }
            None => None,
        };
        for candidate in &candidates {
            let row = self.new_row(candidate, &gemm);
            self.row(row, candidate, baseline.as_ref(), &mut buffers, &reference, observer)?;
        }
        Ok(())
    }

    fn new_row(&self, candidate: &Candidate, gemm: &Gemm) -> Row {
        Row::new(&candidate.title, gemm, self.options.seed)
    }

    /// Makes the matrices, on the host and on the device.
    fn prepare(&self, gemm: &Gemm) -> Result<Plan, Error> {
        let Options { l2, seed, left, .. } = self.options;
        let device = self.device();
        let stored = operands::stored_bytes(gemm);
        let available = device.require_memory(stored)?;
        let needed = operands::host_bytes(gemm);
        // Two results are compared with each other.
        let second = operands::result_bytes(gemm);
        let reference = operands::reference_bytes(gemm);
        require_memory(needed.saturating_add(second).saturating_add(reference), false)?;

        // Both fit 64 bits, as the free memory does.
        let wanted = buffers::count(l2, gemm.bytes() as u64, device.info().l2_bytes);
        let count = buffers::possible(wanted, stored as u64, available);
        let operands = Operands::random(gemm, seed);
        let buffers = RotatingBuffers::within(device, &operands, count, left)?;
        Ok(Plan { operands, buffers, wanted })
    }

    /// Checks a kernel, times it if it is right, and hands on its row.
    fn row<O: Observer>(
        &mut self,
        mut row: Row,
        candidate: &Candidate,
        baseline: Option<&Baseline<'_>>,
        buffers: &mut RotatingBuffers,
        reference: &Products<'_>,
        observer: &mut O,
    ) -> Result<(), O::Error> {
        row.l2 = Some(self.options.l2);
        row.sets = Some(buffers.len());
        let job = match &candidate.job {
            Ok(job) => job,
            Err(reason) => return observer.row(row.refused(Arc::clone(reason)), &[], &[]),
        };
        let first = match buffers.result(job, reference.operands().c()) {
            Ok(first) => first,
            Err(error) if error.is_refusal() => {
                return observer.row(row.refused(Arc::new(error)), &[], &[]);
            }
            Err(error) => return Err(error.into()),
        };
        let check =
            observer.step(Step::Check, || reference.check_in(job.gemm().compute, &first))?;
        let unrounded = match reference.operands().gemm().compute {
            Compute::Tf32 => observer.step(Step::Check, || reference.check_unrounded(&first))?,
            _ => check,
        };
        row.errors([&check, &unrounded], baseline.map(|baseline| &baseline.check));
        if let Some(reason) = check.failure() {
            return observer.row(row.without_time(Status::Fail, reason), &[], &[]);
        }

        let jobs: Vec<_> = baseline.map(|baseline| baseline.job).into_iter().chain([job]).collect();
        let Measured { mut batches, rates, launch_ms } =
            observer.measure(|sampled| self.measure(&jobs, buffers, sampled))?;
        let (own, cublas) = (batches.pop().expect("one for each job"), batches.pop());
        let conditions = self.telemetry.as_mut().map(Telemetry::take).unwrap_or_default();
        // After hundreds of launches between others.
        let second = buffers.result(job, reference.operands().c())?;
        if let Some((at, [one, other])) = first_difference(&first, &second) {
            let (m, n) = (at / first.cols(), at % first.cols());
            let reason = format!(
                "results differ between runs: {one:e} and {other:e} at row {m}, column {n}"
            );
            return observer.row(row.without_time(Status::Unstable, reason), &[], &[]);
        }
        row.status = Status::Pass;
        row.baseline = baseline.and_then(|baseline| baseline.job.chosen_by_cublas());
        let gemm = reference.operands().gemm();
        row.times(gemm, &own, cublas.as_ref(), &rates);
        if let Some(median) = row.time_median.filter(|_| !self.device().is_soft()) {
            row.enqueue(&own, cublas.as_ref());
            // The roofs are those of f32.
            if gemm.compute == Compute::F32 {
                let info = self.device().info();
                let l2 = self.options.l2;
                row.load(&Load::new(candidate, gemm, info, median, (&rates, launch_ms), l2));
            }
        }
        row.conditions(&conditions);
        observer.row(row, &own.ms, cublas.as_ref().map_or(&[], |cublas| &cublas.ms))
    }

    /// Times jobs in turn, as the options say.
    fn measure(
        &mut self,
        jobs: &[&Job],
        buffers: &mut RotatingBuffers,
        sampled: &mut dyn FnMut(u32, u32),
    ) -> Result<Measured, Error> {
        let Options { samples, sample_ms, .. } = self.options;
        let telemetry = self.telemetry.as_mut();
        self.meter.measure(jobs, buffers, (samples, sample_ms), telemetry, sampled)
    }
}

/// The matrices of a product, on the host and in as many sets as there is memory for.
struct Plan {
    operands: Operands,
    buffers: RotatingBuffers,
    /// How many sets there should be.
    wanted: usize,
}
