//! `bench`: kernels next to cuBLAS, shape by shape.

pub mod args;
mod reporter;
mod row;
mod table;
#[cfg(test)]
mod tests;

use cuda_gemm::Error as GemmError;
use cuda_gemm::error::no_gpu;
use host::batch::{self, Batches, Policy, Work};
use host::roofline::{Peaks, Rates, Speed};
use host::telemetry::Telemetry;
use host::verify::{Bound, Method, Problem, Reference};
use host::{Device, DeviceChoice, Error, Gemm, Matrix, Table};

use args::BenchArgs;
use reporter::RowReporter;
use row::{Row, Status};

use super::baseline::{self, Baseline};
use super::buffers::{self, L2, RotatingBuffers, first_difference};
use super::candidate::{Candidate, Job, KernelArg, Loaded, Title, is_refusal};
use super::outcome::Outcome;
use super::record::Setting;
use super::shape::{self, Shape};
use super::{device, json, peaks, progress, stdio};

/// Milliseconds of work before the first sample of a row: clocks need that long to settle.
const WARMUP_MS: f64 = 200.0;
/// Milliseconds of work before peaks are measured: what came before was the host's.
const PEAK_WARMUP_MS: f64 = 50.0;
/// Squares, for a call that names no shapes.
const SQUARES: [usize; 6] = [256, 512, 1024, 2048, 4096, 8192];

/// Does what the options say.
pub fn run(args: &BenchArgs) -> Result<Outcome, Error> {
    // Mistakes are found in the order of what it costs to find them.
    let mut choices = Vec::new();
    for name in args.kernels() {
        choices.extend(KernelArg::parse(name)?.rungs());
    }
    let mut shapes = args.sizes.clone();
    if let Some(file) = &args.shapes {
        shapes.extend(shape::read(file)?);
    }
    if shapes.is_empty() {
        shapes.extend(SQUARES.map(|n| Shape { m: n, n, k: n }));
    }
    let table = args.table.as_deref().map(Table::read).transpose()?;
    let reporter = RowReporter::new(args, stdio::print)?;
    if let Err(reason) = cuda_driver::gpu_count() {
        return Err(Error::BenchNeedsGpu { reason: no_gpu(&reason) });
    }
    let device = device::open(DeviceChoice::Gpu)?;
    Bench::new(args, &device, reporter)?.run(&choices, &shapes, table.as_ref())
}

/// What all rows share.
struct Bench<'a> {
    args: &'a BenchArgs,
    device: Device,
    peaks: Peaks,
    speed: Speed,
    telemetry: Option<Telemetry>,
    reporter: RowReporter,
}

impl<'a> Bench<'a> {
    /// Loads what measures peaks, and what reads clocks, where there is that.
    fn new(args: &'a BenchArgs, device: &Device, reporter: RowReporter) -> Result<Self, Error> {
        let peaks = peaks::load(device)?;
        let speed = peaks.speed()?;
        let telemetry = Telemetry::open(device).map(Some).unwrap_or_else(|reason| {
            stdio::say(format_args!(
                "note: clocks, power and temperature are not recorded, because {reason}"
            ));
            None
        });
        Ok(Self { args, device: device.clone(), peaks, speed, telemetry, reporter })
    }

    fn run(
        &mut self,
        choices: &[KernelArg],
        shapes: &[Shape],
        table: Option<&Table>,
    ) -> Result<Outcome, Error> {
        let mut kernels = Vec::new();
        for choice in choices {
            // Refusals are rows, and the others go on.
            kernels.extend(choice.load_among(&self.device, KernelArg::All, table)?);
        }
        let cublas = baseline::load(&self.device)?;
        let version = cublas.as_ref().and_then(Loaded::cublas_version);
        let setting = Setting {
            device: &self.device,
            gemm: shapes[0].gemm(),
            seed: Some(self.args.seed),
            cublas_version: version,
        };
        self.reporter.begin(&json::environment(&setting)?, &self.head(&setting))?;
        for shape in shapes {
            if !self.reporter.is_wanted() {
                break;
            }
            self.shape(shape.gemm(), &kernels, cublas.as_ref())?;
        }
        self.reporter.end()?;
        Ok(if self.reporter.all_right() { Outcome::Right } else { Outcome::Wrong })
    }

    /// What is above the table.
    fn head(&self, setting: &Setting<'_>) -> String {
        let info = self.device.info();
        let cublas = match setting.cublas_version {
            Some(version) => format!("cuBLAS {version}, f32 arithmetic (no TF32)"),
            None => "nothing".to_owned(),
        };
        let l2 = match self.args.l2 {
            L2::Cold => "cold: launches take turns on more matrices than fit into it",
            L2::Warm => "warm: all launches take the same matrices",
        };
        format!(
            "device:  {}, compute capability {}\n\
             product: C = A B, random matrices, seed {}\n\
             against: {cublas}\n\
             L2:      {} MiB, {l2}\n\
             samples: {} of each, in turn; each is a batch of launches without gaps, {} ms or \
             longer\n\
             columns: medians; ratio is cuBLAS's time / the kernel's, over pairs; 95 % is its \
             interval; rms err is the kernel's root mean square error against f64 / \
             cuBLAS's\n",
            info.name,
            setting.compute_capability(),
            self.args.seed,
            info.l2_bytes >> 20,
            self.args.samples,
            self.args.sample_ms,
        )
    }

    /// Adds the rows of a shape.
    fn shape(
        &mut self,
        gemm: Gemm,
        kernels: &[Loaded],
        cublas: Option<&Loaded>,
    ) -> Result<(), Error> {
        let candidates: Vec<_> = kernels
            .iter()
            .map(|kernel| kernel.prepare(gemm, 1, false, KernelArg::All))
            .collect::<Result<_, _>>()?;
        let cublas =
            cublas.map(|cublas| cublas.prepare(gemm, 1, false, KernelArg::All)).transpose()?;
        let method = Method::choose(gemm.m, gemm.n, gemm.k);
        let prepared = progress::step("preparing the matrices", || self.prepare(&gemm, method));
        let (matrices, mut buffers) = match prepared {
            Ok(prepared) => prepared,
            Err(error) if is_refusal(&error) => {
                for candidate in &candidates {
                    let row = self.new_row(candidate, &gemm);
                    let row = row.without_time(Status::Refused, error.to_string());
                    self.reporter.row(row, &[], &[])?;
                }
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let [a, b] = &matrices;
        let problem = Problem { a, b, c: None, alpha: 1.0, beta: 0.0, bound: Bound::Probabilistic };
        let reference = progress::step("computing the product in f64", || {
            Reference::compute(problem, method, self.args.seed)
        })?;
        let baseline = match &cublas {
            Some(candidate) => Baseline::new(candidate, &mut buffers, &reference)?,
            None => None,
        };
        for candidate in &candidates {
            let row = self.new_row(candidate, &gemm);
            self.row(row, candidate, baseline.as_ref(), &mut buffers, &reference)?;
        }
        Ok(())
    }

    fn new_row(&self, candidate: &Candidate, gemm: &Gemm) -> Row {
        let Title { name, rung, chosen, splits, packed, .. } = candidate.title;
        Row { chosen, splits, packed, ..Row::new(name, rung, gemm, self.args.seed) }
    }

    /// Makes the matrices, on the host and on the device.
    fn prepare(
        &self,
        gemm: &Gemm,
        method: Method,
    ) -> Result<([Matrix; 2], RotatingBuffers), Error> {
        let needed = gemm.bytes();
        let available = self.device.free_memory()?;
        if needed > u128::from(available) {
            let device = self.device.info().name.clone();
            return Err(GemmError::DeviceMemory { device, needed, available }.into());
        }
        // Two results are compared with each other.
        let second = 4 * gemm.m as u128 * gemm.n as u128;
        host::require_memory(needed + second + method.bytes(gemm.m, gemm.n, gemm.k), false)?;

        // It fits 64 bits, as the free memory does.
        let bytes = needed as u64;
        let wanted = buffers::count(self.args.l2, bytes, self.device.info().l2_bytes);
        // Something is left to cuBLAS and the driver.
        let possible = ((available - available / 8) / bytes).max(1);
        let count = wanted.min(usize::try_from(possible).unwrap_or(usize::MAX));
        if count < wanted {
            stdio::say(format_args!(
                "warning: {}x{}x{}: memory for {count} of {wanted} sets of matrices, so the L2 \
                 cache is not quite cold; --l2 warm takes one",
                gemm.m, gemm.n, gemm.k
            ));
        }
        let a = Matrix::random(gemm.m, gemm.k, self.args.seed, 1);
        let b = Matrix::random(gemm.k, gemm.n, self.args.seed, 2);
        let buffers = RotatingBuffers::new(&self.device, gemm, [&a, &b], count)?;
        Ok(([a, b], buffers))
    }

    /// Checks a kernel, times it if it is right, and adds its row.
    fn row(
        &mut self,
        mut row: Row,
        candidate: &Candidate,
        baseline: Option<&Baseline<'_>>,
        buffers: &mut RotatingBuffers,
        reference: &Reference<'_>,
    ) -> Result<(), Error> {
        row.l2 = Some(self.args.l2);
        row.sets = Some(buffers.len());
        let job = match &candidate.job {
            Ok(job) => job,
            Err(reason) => {
                let row = row.without_time(Status::Refused, reason);
                return self.reporter.row(row, &[], &[]);
            }
        };
        let first = match buffers.result(job) {
            Ok(first) => first,
            Err(error) if is_refusal(&error) => {
                let row = row.without_time(Status::Refused, error.to_string());
                return self.reporter.row(row, &[], &[]);
            }
            Err(error) => return Err(error),
        };
        let check = progress::step("checking", || reference.check(&first))?;
        row.errors(&check, baseline.map(|baseline| &baseline.check));
        if !check.passed() {
            let reason = match check.worst {
                Some(worst) => format!(
                    "{} or more wrong; at row {}, column {} the error is {:.3e}",
                    check.failures, worst.row, worst.col, worst.error
                ),
                None => format!("{} or more wrong", check.failures),
            };
            return self.reporter.row(row.without_time(Status::Fail, reason), &[], &[]);
        }

        let (own, cublas, rates) =
            progress::step("measuring", || self.measure(job, baseline, buffers))?;
        let conditions = self.telemetry.as_mut().map(Telemetry::take).unwrap_or_default();
        // After hundreds of launches between others.
        let second = buffers.result(job)?;
        if let Some((at, [one, other])) = first_difference(&first, &second) {
            let (m, n) = (at / first.cols(), at % first.cols());
            let reason = format!(
                "results differ between runs: {one:e} and {other:e} at row {m}, column {n}"
            );
            return self.reporter.row(row.without_time(Status::Unstable, reason), &[], &[]);
        }
        row.status = Status::Pass;
        row.times(&own, cublas.as_ref(), &rates);
        row.conditions(&conditions);
        self.reporter.row(row, &own.ms, cublas.as_ref().map_or(&[], |cublas| &cublas.ms))
    }

    /// Times a kernel, and cuBLAS if there is one, and the peaks before and after.
    fn measure(
        &mut self,
        job: &Job,
        baseline: Option<&Baseline<'_>>,
        buffers: &mut RotatingBuffers,
    ) -> Result<(Batches, Option<Batches>, Rates), Error> {
        let policy = Policy {
            samples: self.args.samples,
            sample_ms: f64::from(self.args.sample_ms),
            warmup_ms: WARMUP_MS,
        };
        let jobs: Vec<_> = baseline.map(|baseline| baseline.job).into_iter().chain([job]).collect();
        self.peaks.enqueue_delay(PEAK_WARMUP_MS, self.speed)?;
        let before = self.peaks.measure(self.speed)?;
        let Self { device, peaks, speed, telemetry, .. } = self;
        let mut side_by_side = SideBySide {
            jobs: &jobs,
            buffers,
            peaks,
            speed: *speed,
            telemetry: telemetry.as_mut(),
        };
        let mut batches = batch::measure(device, jobs.len(), policy, &mut side_by_side)?;
        let after = self.peaks.measure(self.speed)?;
        let own = batches.pop().expect("one for each job");
        Ok((own, batches.pop(), before.mean(&after)))
    }
}

/// Kernels that are timed in turn.
struct SideBySide<'a, 'e> {
    jobs: &'a [&'e Job],
    buffers: &'a mut RotatingBuffers,
    peaks: &'a Peaks,
    speed: Speed,
    telemetry: Option<&'a mut Telemetry>,
}

impl Work for SideBySide<'_, '_> {
    type Error = Error;

    fn launch(&mut self, i: usize) -> Result<(), Error> {
        self.buffers.enqueue(self.jobs[i])
    }

    fn delay(&mut self, ms: f64) -> Result<(), Error> {
        Ok(self.peaks.enqueue_delay(ms, self.speed)?)
    }

    fn observe(&mut self) {
        if let Some(telemetry) = &mut self.telemetry {
            telemetry.observe();
        }
    }
}
