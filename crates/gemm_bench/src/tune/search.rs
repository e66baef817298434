//! The candidate search: checks and times the best predictions.
//!
//! If this machine has cuBLAS, it is checked on the same matrices, and not timed. In f32, a kernel
//! that is less accurate than cuBLAS is also tried with more splits. They shorten its
//! accumulations.

use cuda_gemm::select::{Model, Prediction};
use cuda_gemm::{Auto, Compute, Configuration, Error as GemmError, Gemm, PlanBuilder};

use super::context::{self, BenchmarkContext, POLICY, check};
use super::search_result::{Run, SearchResult, is_accurate};
use crate::baseline::{Baseline, NotCompared};
use crate::buffers::RotatingBuffers;
use crate::candidate::{Loaded, Selection};
use crate::error::Error;
use crate::job::{Job, KernelOptions};
use crate::operands::Products;

/// How many candidates are timed, by a product's operations. Long products get fewer.
const CANDIDATES: [(f64, usize); 4] = [(2e10, 24), (5e11, 16), (5e12, 6), (f64::INFINITY, 3)];

/// The slowest further candidate, relative to the fastest. A slower one is not worth a try for its
/// error.
const SLOWEST: f64 = 1.5;

/// A search, with the means that all products share.
pub struct CandidateSearch<'a> {
    pub context: &'a BenchmarkContext,
    pub auto: &'a Auto,
    /// cuBLAS, if this machine has it.
    pub cublas: Option<&'a Loaded>,
}

/// A choice that is wrong, and how.
pub type Wrong = (Configuration, String);

/// The choices to time, all of them right.
#[derive(Default)]
pub struct Candidates {
    jobs: Vec<Job>,
    /// The jobs' runs, without times yet.
    runs: Vec<Run>,
    wrong: Vec<Wrong>,
}

impl Candidates {
    /// Prepares a choice, and checks its result. Returns its run, unless it is wrong or does not
    /// fit the memory.
    pub fn add(
        &mut self,
        plan: Result<PlanBuilder, GemmError>,
        &Prediction { configuration, ns: predicted_ns, .. }: &Prediction,
        buffers: &mut RotatingBuffers,
        reference: &Products<'_>,
    ) -> Result<Option<&Run>, Error> {
        let job = match plan?.prepare() {
            Ok(plan) => Job::Kernel(plan),
            // Copies of A and B for all candidates may not fit, or a large C has too many tiles.
            Err(GemmError::DeviceMemory { .. } | GemmError::TooLarge { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let check = match check(&job, buffers, reference)? {
            Ok(check) => check,
            Err(reason) => {
                self.wrong.push((configuration, reason));
                return Ok(None);
            }
        };
        let rms_error = check.rms_error();
        self.jobs.push(job);
        self.runs.push(Run { configuration, predicted_ns, samples_ms: Vec::new(), rms_error });
        Ok(self.runs.last())
    }
}

impl CandidateSearch<'_> {
    /// Times the best choices for a product in turn. The inner error says why there is nothing to
    /// time.
    pub fn run(&self, gemm: Gemm) -> Result<Result<SearchResult, String>, Error> {
        let count = CANDIDATES.iter().find(|(flops, _)| gemm.flops() <= *flops);
        let (_, count) = count.expect("the last has no limit");
        let predictions = self.auto.candidates(&gemm, *count);
        let Some(&chosen) = predictions.first() else {
            return Ok(Err("nothing is predicted for it on this device".to_owned()));
        };
        let (operands, mut buffers) = match self.context.matrices(gemm)? {
            Ok(matrices) => matrices,
            Err(reason) => return Ok(Err(reason)),
        };
        let reference = context::reference(&operands)?;
        let (cublas_rms_error, not_compared) =
            match self.cublas_rms_error(gemm, &mut buffers, &reference)? {
                Ok(error) => (error, None),
                Err(reason) => (None, Some(reason)),
            };
        let found =
            self.candidates(gemm, predictions, cublas_rms_error, &mut buffers, &reference)?;
        let Candidates { jobs, mut runs, wrong } = found;
        if runs.is_empty() {
            let how = match wrong.first() {
                Some((configuration, reason)) => format!("{configuration}: {reason}"),
                None => "or does not fit the memory".to_owned(),
            };
            return Ok(Err(format!("every kernel is wrong, {how}")));
        }
        let times = self.context.time_by(POLICY, jobs.len(), |i| buffers.enqueue(&jobs[i]))?;
        runs.iter_mut().zip(times).for_each(|(run, times)| run.samples_ms = times);
        runs.sort_by(|a, b| a.predicted_ns.total_cmp(&b.predicted_ns));
        Ok(Ok(SearchResult { gemm, chosen, runs, wrong, cublas_rms_error, not_compared }))
    }

    /// cuBLAS's rms error, if there is cuBLAS. The inner error says why this product is not
    /// compared. In TF32 and 16 bits rounding decides, not the order of sums: any kernel that is
    /// right is accurate.
    fn cublas_rms_error(
        &self,
        gemm: Gemm,
        buffers: &mut RotatingBuffers,
        reference: &Products<'_>,
    ) -> Result<Result<Option<f64>, NotCompared>, Error> {
        let is_of_f32 = matches!(gemm.compute, Compute::F32 | Compute::Tf32x3);
        let Some(cublas) = self.cublas.filter(|_| is_of_f32) else { return Ok(Ok(None)) };
        let candidate =
            cublas.prepare(gemm, KernelOptions::default(), Selection::All(gemm.compute))?;
        let baseline = Baseline::new(&candidate, buffers, reference)?;
        Ok(baseline.map(|baseline| baseline.check.rms_error()))
    }

    /// Checks the best choices. In f32, a choice that is less accurate than cuBLAS is also tried
    /// with more splits.
    fn candidates(
        &self,
        gemm: Gemm,
        mut predictions: Vec<Prediction>,
        cublas_rms_error: Option<f64>,
        buffers: &mut RotatingBuffers,
        reference: &Products<'_>,
    ) -> Result<Candidates, Error> {
        let fastest = predictions.iter().map(|prediction| prediction.ns).reduce(f64::min);
        let longest_ns = fastest.map_or(0.0, |ns| SLOWEST * ns);
        let mut found = Candidates::default();
        let mut next = 0;
        while let Some(prediction) = predictions.get(next) {
            next += 1;
            let configuration = prediction.configuration;
            let plan = self.auto.plan_by(gemm, &configuration);
            let Some(run) = found.add(plan, prediction, buffers, reference)? else { continue };
            let rms_error = run.rms_error;
            if gemm.compute != Compute::F32 || is_accurate(rms_error, cublas_rms_error) {
                continue;
            }
            let further = with_more_splits(self.auto.model(), &gemm, configuration);
            let further = further.filter(|further| further.ns <= longest_ns).filter(|further| {
                predictions.iter().all(|known| known.configuration != further.configuration)
            });
            predictions.extend(further);
        }
        Ok(found)
    }
}

/// The configuration with about twice the splits. `None` if the kernel does not split K, or if K
/// has too few steps.
fn with_more_splits(
    model: &Model,
    gemm: &Gemm,
    configuration: Configuration,
) -> Option<Prediction> {
    let Configuration { kernel, splits, .. } = configuration;
    if !kernel.abi().splits_k() {
        return None;
    }
    let steps = gemm.k.div_ceil(kernel.tile().bk as usize).max(1);
    // Splits have equally many steps, the last one perhaps fewer.
    let more = steps.div_ceil(steps.div_ceil(2 * splits as usize)) as u32;
    let further = Configuration { splits: more, ..configuration };
    if more > splits { model.time(gemm, &further) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::L2;
    use cuda_gemm::{Device, DeviceChoice, Table};

    /// Numbers that were measured nowhere.
    const TABLE: &str = include_str!("../../../cuda_gemm/src/select/table_for_tests.json");

    #[test]
    fn splits_double_until_every_step_is_one() {
        let Ok(table) = Table::parse(TABLE, "a test") else { panic!() };
        let model = Model::new(&table);
        let gemm = Gemm::new(64, 64, 1000);
        let ranking = model.ranking(&gemm);
        let mut ways = ranking.into_iter().map(|prediction| prediction.configuration);
        let mut way = ways.find(|way| way.kernel.abi().splits_k()).unwrap();
        way.splits = 1;
        let mut splits = vec![1];
        while let Some(further) = with_more_splits(&model, &gemm, way) {
            way = further.configuration;
            splits.push(way.splits);
        }
        let steps = 1000u32.div_ceil(way.kernel.tile().bk);
        assert_eq!((splits[1], splits.last()), (2, Some(&steps)), "{splits:?}");
    }

    #[test]
    fn shorter_sums_are_tried_where_errors_are_too_large() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let Ok(table) = Table::parse(TABLE, "a test") else { panic!() };
        let auto = device.auto_by(&table).unwrap();
        let context = BenchmarkContext::new(&device).unwrap();
        let search = CandidateSearch { context: &context, auto: &auto, cublas: None };
        let gemm = Gemm::new(40, 50, 600);
        let operands = context::operands(gemm).unwrap();
        let reference = context::reference(&operands).unwrap();
        let mut buffers = context.buffers(&operands, L2::Warm).unwrap();
        let mut runs = |cublas_rms_error| {
            let best = auto.candidates(&gemm, 8);
            let found = search.candidates(gemm, best, cublas_rms_error, &mut buffers, &reference);
            let found = found.unwrap();
            assert!(found.wrong.is_empty() && found.jobs.len() == found.runs.len());
            found.runs
        };
        let alone = runs(None);
        let error = |run: &Run| run.rms_error.unwrap();
        let largest = alone.iter().map(error).fold(0.0, f64::max);
        assert_eq!(runs(Some(largest)).len(), alone.len());
        let more = runs(Some(0.0));
        assert!(more.len() > alone.len());
        for (at, run) in more.iter().enumerate().skip(alone.len()) {
            let name = |run: &Run| run.configuration.kernel.name();
            let before = |other: &Run| name(other) == name(run);
            assert!(more[..at].iter().any(|other| before(other) && error(run) < error(other)));
            assert!(run.predicted_ns <= SLOWEST * more[0].predicted_ns);
        }
    }

    /// One of our kernels stands in for cuBLAS. The software device cannot run cuBLAS.
    #[test]
    fn the_baseline_is_checked_on_the_same_matrices_and_not_timed() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let Ok(table) = Table::parse(TABLE, "a test") else { panic!() };
        let auto = device.auto_by(&table).unwrap();
        let context = BenchmarkContext::new(&device).unwrap();
        let baseline = Selection::parse("tile_64x64").unwrap().load(&device, None).unwrap();
        let search = CandidateSearch { context: &context, auto: &auto, cublas: baseline.first() };
        let result = search.run(Gemm::new(40, 50, 30)).unwrap().unwrap();
        assert!(result.runs.iter().all(|run| run.samples_ms.len() == 1));
        assert!(result.runs.is_sorted_by(|a, b| a.predicted_ns <= b.predicted_ns));
        let whole_sum = |run: &&Run| {
            let Configuration { kernel, splits, .. } = run.configuration;
            kernel.name() == "tile_64x64" && splits == 1
        };
        let same = result.runs.iter().find(whole_sum).unwrap();
        assert!(result.cublas_rms_error.is_some_and(|error| Some(error) == same.rms_error));
    }
}
