//! The candidate search: for a product, what the costs say is fastest and what comes close, all
//! checked, and timed in turn.
//!
//! cuBLAS, where this machine has it, is checked on the same matrices, and not timed. Where a
//! choice is less accurate than that, the same kernel is tried with more splits, too: the
//! accumulation length is shorter then.

use cuda_gemm::auto::{Auto, Choice, Estimate, Model};
use cuda_gemm::{Error as GemmError, Gemm};

use super::context::{self, BenchmarkContext, TimedJob, check};
use super::search_result::{Run, SearchResult, is_accurate};
use crate::baseline::{Baseline, NotCompared};
use crate::buffers::{L2, RotatingBuffers};
use crate::candidate::{Loaded, Selection};
use crate::error::Error;
use crate::job::{Job, KernelOptions};
use crate::operands::Products;
use crate::shape::Shape;

/// How many are timed: fewer where each takes long. Operations, and candidates up to these.
const CANDIDATES: [(f64, usize); 4] = [(2e10, 8), (5e11, 5), (5e12, 3), (f64::INFINITY, 2)];

/// What should take so many times as long as the fastest is not worth a try for its error.
const SLOWEST: f64 = 1.5;

/// What the searches for all products share.
pub struct CandidateSearch<'a> {
    pub context: &'a BenchmarkContext,
    pub auto: &'a Auto,
    pub model: &'a Model,
    /// Where there is cuBLAS.
    pub cublas: Option<&'a Loaded>,
}

/// What is timed for a product.
struct Candidates {
    jobs: Vec<TimedJob>,
    /// What each of these is, without times yet.
    runs: Vec<Run>,
    wrong: Vec<(Choice, String)>,
}

impl CandidateSearch<'_> {
    /// Times the best choices for a product in turn; why not if there is nothing to be had.
    pub fn run(&self, shape: Shape) -> Result<Result<SearchResult, String>, Error> {
        let gemm = shape.gemm();
        let operands = match context::operands(gemm) {
            Err(error @ Error::HostMemory { .. }) => return Ok(Err(error.to_string())),
            operands => operands?,
        };
        let mut buffers = match self.context.buffers(&operands, L2::Cold) {
            Err(Error::Gemm(error @ GemmError::DeviceMemory { .. })) => {
                return Ok(Err(error.to_string()));
            }
            buffers => [buffers?],
        };
        let reference = context::reference(&operands)?;
        let (cublas_rms_error, not_compared) =
            match self.cublas_rms_error(gemm, &mut buffers[0], &reference)? {
                Ok(error) => (error, None),
                Err(reason) => (None, Some(reason)),
            };
        let Candidates { jobs, mut runs, wrong } =
            self.candidates(gemm, cublas_rms_error, &mut buffers[0], &reference)?;
        if runs.is_empty() {
            return Ok(Err("every kernel is wrong".to_owned()));
        }
        for (run, samples_ms) in runs.iter_mut().zip(self.context.time(&jobs, &mut buffers)?) {
            run.samples_ms = samples_ms;
        }
        runs.sort_by(|a, b| a.predicted_ns.total_cmp(&b.predicted_ns));
        Ok(Ok(SearchResult { shape, runs, wrong, cublas_rms_error, not_compared }))
    }

    /// cuBLAS's error, if there is cuBLAS; why not if this product is not compared.
    fn cublas_rms_error(
        &self,
        gemm: Gemm,
        buffers: &mut RotatingBuffers,
        reference: &Products<'_>,
    ) -> Result<Result<Option<f64>, NotCompared>, Error> {
        let Some(cublas) = self.cublas else { return Ok(Ok(None)) };
        let candidate = cublas.prepare(gemm, KernelOptions::default(), Selection::All)?;
        let baseline = Baseline::new(&candidate, buffers, reference)?;
        Ok(baseline.map(|baseline| baseline.check.rms_error()))
    }

    /// Checks the best choices; and where one of them is less accurate than cuBLAS, the same with
    /// more splits.
    fn candidates(
        &self,
        gemm: Gemm,
        cublas_rms_error: Option<f64>,
        buffers: &mut RotatingBuffers,
        reference: &Products<'_>,
    ) -> Result<Candidates, Error> {
        let count = CANDIDATES.iter().find(|(flops, _)| gemm.flops() <= *flops);
        let mut estimates = self.model.ranking(&gemm, count.map_or(1, |(_, count)| *count));
        let fastest = estimates.iter().map(|estimate| estimate.ns).reduce(f64::min);
        let longest_ns = fastest.map_or(0.0, |ns| SLOWEST * ns);
        let (mut jobs, mut runs, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
        let mut next = 0;
        while let Some(&Estimate { choice, ns: predicted_ns, .. }) = estimates.get(next) {
            next += 1;
            let job = Job::rung(self.auto.plan_choice(gemm, choice)?.prepare()?);
            let check = match check(&job, buffers, reference)? {
                Ok(check) => check,
                Err(reason) => {
                    wrong.push((choice, reason));
                    continue;
                }
            };
            let rms_error = check.rms_error();
            jobs.push(TimedJob { job, on: 0 });
            runs.push(Run { choice, predicted_ns, samples_ms: Vec::new(), rms_error });
            if is_accurate(rms_error, cublas_rms_error) {
                continue;
            }
            let further = with_more_splits(self.model, &gemm, choice)
                .filter(|further| further.ns <= longest_ns)
                .filter(|further| estimates.iter().all(|known| known.choice != further.choice));
            estimates.extend(further);
        }
        Ok(Candidates { jobs, runs, wrong })
    }
}

/// The same with about twice the splits; `None` where that is not possible.
fn with_more_splits(model: &Model, gemm: &Gemm, choice: Choice) -> Option<Estimate> {
    if !choice.descriptor.abi().splits_k() {
        return None;
    }
    let further = model.time(gemm, Choice { splits: 2 * choice.splits, ..choice })?;
    (further.choice.splits > choice.splits).then_some(further)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_gemm::{Device, DeviceChoice, Table};

    /// Numbers that were measured nowhere.
    const TABLE: &str = include_str!("../../../cuda_gemm/src/auto/table_for_tests.json");

    #[test]
    fn splits_double_until_every_step_is_one() {
        let Ok(table) = Table::parse(TABLE, "a test") else { panic!() };
        let model = Model::new(&table);
        let gemm = Gemm::new(64, 64, 1000);
        let mut choice = model.ranking(&gemm, 9).into_iter().map(|estimate| estimate.choice);
        let mut choice = choice.find(|choice| choice.descriptor.abi().splits_k()).unwrap();
        choice.splits = 1;
        let mut splits = vec![1];
        while let Some(further) = with_more_splits(&model, &gemm, choice) {
            choice = further.choice;
            splits.push(choice.splits);
        }
        let steps = 1000u32.div_ceil(choice.descriptor.tile().bk);
        assert_eq!((splits[1], splits.last()), (2, Some(&steps)), "{splits:?}");
    }

    #[test]
    fn shorter_sums_are_tried_where_errors_are_too_large() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let Ok(table) = Table::parse(TABLE, "a test") else { panic!() };
        let (auto, model) = (device.auto_by(&table).unwrap(), Model::new(&table));
        let context = BenchmarkContext::new(&device).unwrap();
        let search =
            CandidateSearch { context: &context, auto: &auto, model: &model, cublas: None };
        let gemm = Gemm::new(40, 50, 600);
        let operands = context::operands(gemm).unwrap();
        let reference = context::reference(&operands).unwrap();
        let mut buffers = context.buffers(&operands, L2::Warm).unwrap();
        let mut runs = |cublas_rms_error| {
            let found =
                search.candidates(gemm, cublas_rms_error, &mut buffers, &reference).unwrap();
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
            let before =
                |other: &Run| other.choice.descriptor.name() == run.choice.descriptor.name();
            assert!(more[..at].iter().any(|other| before(other) && error(run) < error(other)));
            assert!(run.predicted_ns <= SLOWEST * more[0].predicted_ns);
        }
    }

    /// A kernel of ours stands in for cuBLAS, which the software device does not run.
    #[test]
    fn the_baseline_is_checked_on_the_same_matrices_and_not_timed() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let Ok(table) = Table::parse(TABLE, "a test") else { panic!() };
        let (auto, model) = (device.auto_by(&table).unwrap(), Model::new(&table));
        let context = BenchmarkContext::new(&device).unwrap();
        let baseline = Selection::parse("tile_64x64").unwrap().load(&device, None).unwrap();
        let search = CandidateSearch {
            context: &context,
            auto: &auto,
            model: &model,
            cublas: baseline.first(),
        };
        let result = search.run(Shape::new(40, 50, 30)).unwrap().unwrap();
        assert!(result.runs.iter().all(|run| run.samples_ms.len() == 1));
        assert!(result.runs.is_sorted_by(|a, b| a.predicted_ns <= b.predicted_ns));
        let whole_sum =
            |run: &&Run| run.choice.descriptor.name() == "tile_64x64" && run.choice.splits == 1;
        let same = result.runs.iter().find(whole_sum).unwrap();
        assert!(result.cublas_rms_error.is_some_and(|error| Some(error) == same.rms_error));
    }
}
