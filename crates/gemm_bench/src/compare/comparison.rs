//! Measures kernels and cuBLAS on the same matrices in one process, in turn.

use std::sync::Arc;

use cuda_gemm::{Compute, Device, Gemm};
use gemm_verify::Bound;

use super::row::{self, Compared, without_time};
use crate::baseline::{Baseline, NotCompared};
use crate::buffers::{self, L2, RotatingBuffers, first_difference};
use crate::candidate::{Loaded, Selection};
use crate::error::{Error, require_memory};
use crate::groups::Groups;
use crate::job::{Candidate, KernelOptions};
use crate::limit::Load;
use crate::operands::{self, Operands, Products};
use crate::shape::Shape;
use crate::side_by_side::{Measured, SAMPLE_MS, SideBySide};
use crate::stats;
use crate::telemetry::Telemetry;
use gemm_report::row::Bench;
use gemm_report::{Origin, Row, Status};

/// The settings of a [`Comparison`].
#[derive(Clone, Debug)]
pub struct Options {
    /// The state of the L2 cache when a product starts.
    pub l2: L2,
    /// Samples of each kernel and of cuBLAS; six or more give an interval.
    pub samples: u32,
    /// The shortest sample, in milliseconds, as far as [`MAX_LAUNCHES`](crate::batch::MAX_LAUNCHES)
    /// allows.
    pub sample_ms: f64,
    /// The seed of the random matrices.
    pub seed: u64,
    /// Columns before A, B and C, in wider matrices whose leading dimensions have room for them.
    ///
    /// The matrices then begin this many elements after the driver's allocations. Load the kernels
    /// for [any alignment](crate::Loaded::any_alignment) in this case.
    pub left: usize,
    /// The groups of grouped products.
    pub groups: Groups,
}

impl Default for Options {
    /// A cold L2 cache, 20 samples of 3 ms, and the seed 42.
    fn default() -> Self {
        Self {
            l2: L2::Cold,
            samples: 20,
            sample_ms: SAMPLE_MS,
            seed: 42,
            left: 0,
            groups: Groups::default(),
        }
    }
}

/// A slow step: see [`Observer::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes random matrices, and copies them to the device.
    Matrices,
    /// Computes the product in f64.
    Reference,
    /// Compares a result with the f64 product.
    Check,
}

/// A peculiarity of the following rows: see [`Observer::note`].
#[derive(Clone, Debug)]
pub enum Note {
    /// Memory for too few sets of matrices, so that the L2 cache is not quite cold.
    FewSets {
        /// The product.
        shape: Shape,
        /// The number of sets.
        count: usize,
        /// The wanted number of sets.
        wanted: usize,
    },
    /// This shape is not compared.
    NotCompared(NotCompared),
}

/// Receives the progress of a [`Comparison`], and can end it with an error.
///
/// There is an example.
pub trait Observer {
    /// The error of the observer.
    type Error: From<Error>;

    /// Receives a finished row.
    ///
    /// # Errors
    ///
    /// An error that ends the comparison.
    fn row(&mut self, compared: Compared) -> Result<(), Self::Error>;

    /// Runs `work`, which is a slow step.
    fn step<T>(&mut self, _step: Step, work: impl FnOnce() -> T) -> T {
        work()
    }

    /// Runs `work`, which times a kernel and the baseline.
    ///
    /// `work` reports the samples done and the samples wanted to its argument.
    fn measure<T>(&mut self, work: impl FnOnce(&mut dyn FnMut(u32, u32)) -> T) -> T {
        work(&mut |_, _| ())
    }

    /// Receives a peculiarity.
    fn note(&mut self, _note: &Note) {}
}

/// Measures kernels side by side with the baseline on one device.
///
/// Every kernel is checked before it is timed, and run again for comparison afterwards. A wrong
/// result, or one that differs between runs, gets no time.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, Gemm};
/// use gemm_bench::compare::{Compared, Comparison, Observer, Options, Status};
/// use gemm_bench::{Error, L2, Selection};
///
/// struct Print;
///
/// impl Observer for Print {
///     type Error = Error;
///
///     fn row(&mut self, Compared { row, .. }: Compared) -> Result<(), Error> {
///         assert_eq!((row.status, row.samples_ms.len()), (Status::Pass, 6));
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
    /// Loads the kernels that measure peaks.
    ///
    /// With `telemetry`, rows have clocks, power and temperature.
    ///
    /// # Errors
    ///
    /// See [`SideBySide::new`].
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

    /// The settings.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Measures each kernel for a product, next to the baseline if there is one.
    ///
    /// `observer` receives the rows. A kernel that cannot run has a row with the reason.
    ///
    /// # Errors
    ///
    /// The observer's error, [`cuda_gemm::Error::Driver`], or a fault of a kernel, after which
    /// nothing runs.
    pub fn shape<O: Observer>(
        &mut self,
        gemm: Gemm,
        kernels: &[Loaded],
        baseline: Option<&Loaded>,
        observer: &mut O,
    ) -> Result<(), O::Error> {
        let all = Selection::All(gemm.compute);
        let groups = &self.options.groups;
        let options = || KernelOptions { groups: groups.clone(), ..KernelOptions::default() };
        let prepare = |loaded: &Loaded| loaded.prepare(gemm, options(), all);
        let candidates = kernels.iter().map(prepare).collect::<Result<Vec<_>, _>>()?;
        let baseline = baseline.map(prepare).transpose()?;
        let prepared = observer.step(Step::Matrices, || self.prepare(&gemm));
        let (operands, mut buffers, wanted) = match prepared {
            Ok(prepared) => prepared,
            Err(error) if error.is_refusal() => {
                let error = Arc::new(error);
                for candidate in &candidates {
                    let row = self.new_row(candidate, &gemm);
                    observer.row(Compared::refused(row, Arc::clone(&error)))?;
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
        let row = row::row(&candidate.title, gemm, &self.options.groups, Some(self.options.seed));
        let left = self.options.left;
        let [[_, cols], ..] = gemm.shapes();
        let right = gemm.lda.saturating_sub(cols + left);
        let margins = (left + right > 0).then(|| format!("{left},{right}"));
        Row { origin: Origin::Bench, bench: Bench { margins, ..row.bench }, ..row }
    }

    /// Makes the matrices, on the host and in device sets as memory allows; says how many sets are
    /// wanted.
    fn prepare(&self, gemm: &Gemm) -> Result<(Operands, RotatingBuffers, usize), Error> {
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
        let operands = Operands::random(gemm, seed).with_bias_of_c();
        let operands = operands.in_groups(self.options.groups.clone())?;
        let buffers = RotatingBuffers::within(device, &operands, count, left)?;
        Ok((operands, buffers, wanted))
    }

    /// Checks a kernel, times it if the result is right, and reports its row.
    fn row<O: Observer>(
        &mut self,
        mut row: Row,
        candidate: &Candidate,
        baseline: Option<&Baseline<'_>>,
        buffers: &mut RotatingBuffers,
        reference: &Products<'_>,
        observer: &mut O,
    ) -> Result<(), O::Error> {
        row.l2 = Some(self.options.l2.name().to_owned());
        row.sets = Some(buffers.len());
        let job = match &candidate.job {
            Ok(job) => job,
            Err(reason) => return observer.row(Compared::refused(row, Arc::clone(reason))),
        };
        let first = match buffers.result(job, reference.operands().c()) {
            Ok(first) => first,
            Err(error) if error.is_refusal() => {
                return observer.row(Compared::refused(row, Arc::new(error)));
            }
            Err(error) => return Err(error.into()),
        };
        let check =
            observer.step(Step::Check, || reference.check_in(job.gemm().compute, &first))?;
        let unrounded = match reference.operands().gemm().compute {
            Compute::Tf32 => observer.step(Step::Check, || reference.check_unrounded(&first))?,
            _ => check,
        };
        row::errors(&mut row, [&check, &unrounded], baseline.map(|baseline| &baseline.check));
        if let Some(reason) = check.failure() {
            return observer.row(without_time(row, Status::Fail, reason).into());
        }

        let jobs: Vec<_> = baseline.map(|baseline| baseline.job).into_iter().chain([job]).collect();
        let Measured { mut batches, rates, launch_ms } = observer.measure(|sampled| {
            let Options { samples, sample_ms, .. } = self.options;
            let telemetry = self.telemetry.as_mut();
            self.meter.measure(&jobs, buffers, (samples, sample_ms), telemetry, sampled)
        })?;
        let (own, cublas) = (batches.pop().expect("one for each job"), batches.pop());
        let state = self.telemetry.as_mut().map(Telemetry::take).unwrap_or_default();
        // Run again, after hundreds of launches interleaved with others.
        let second = buffers.result(job, reference.operands().c())?;
        if let Some((at, [one, other])) = first_difference(&first, &second) {
            let (m, n) = (at / first.cols(), at % first.cols());
            let reason = format!(
                "results differ between runs: {one:e} and {other:e} at row {m}, column {n}"
            );
            return observer.row(without_time(row, Status::Unstable, reason).into());
        }
        row.status = Status::Pass;
        row.bench.baseline = baseline.and_then(|baseline| baseline.job.chosen_by_cublas());
        let Bench { sm_mhz_min, sm_mhz_max, memory_mhz, watts, celsius, throttled, .. } = state;
        let errors = row.bench;
        row.bench =
            Bench { sm_mhz_min, sm_mhz_max, memory_mhz, watts, celsius, throttled, ..errors };
        let gemm = reference.operands().gemm();
        let is_gpu = !self.device().is_soft();
        if is_gpu {
            row.bench.enqueue_us = row::enqueue_us(&own);
            row.bench.cublas_enqueue_us = cublas.as_ref().and_then(row::enqueue_us);
        }
        let median = stats::median(&own.ms);
        row::times(&mut row, gemm, own, cublas, &rates);
        // The roofs are for f32.
        let load = (is_gpu && gemm.compute == Compute::F32).then(|| {
            let (info, l2) = (self.device().info(), self.options.l2);
            Load::new(candidate, gemm, info, median, (&rates, launch_ms), l2)
        });
        if let Some(load) = &load {
            row::load(&mut row, load);
        }
        observer.row(Compared { limit: load.and_then(|load| load.limit()), ..row.into() })
    }
}
