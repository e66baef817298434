//! The result of measuring one product. The fastest of the choices as accurate as cuBLAS wins.
//!
//! The error of a sum grows with its accumulation length. It may be longer in the fastest kernel
//! than in cuBLAS. Costs know nothing of errors; records of measured products do.

use cuda_gemm::select::table::Timed;
use cuda_gemm::select::{MeasuredProduct, Prediction};
use cuda_gemm::{Configuration, Gemm};

use crate::baseline::NotCompared;
use crate::shape::Shape;
use crate::stats;

/// The highest rms error, relative to cuBLAS's.
const MAX_ERROR: f64 = 1.10;

/// The result of a product that a [`Tuner`](crate::tune::Tuner) measured.
pub struct SearchResult {
    /// The product.
    pub gemm: Gemm,
    /// The choice by costs. It is among the runs, unless it was wrong or did not fit the memory.
    pub chosen: Prediction,
    /// The runs by predicted time, at least one.
    pub runs: Vec<Run>,
    /// Configurations that were wrong, and how.
    pub wrong: Vec<(Configuration, String)>,
    /// cuBLAS's error on the same matrices, if known.
    pub cublas_rms_error: Option<f64>,
    /// Why the product is not compared with available cuBLAS.
    pub not_compared: Option<NotCompared>,
}

/// A configuration that was timed, of [`SearchResult::runs`].
pub struct Run {
    /// The kernel, and how it is launched.
    pub configuration: Configuration,
    /// The predicted time.
    pub predicted_ns: f64,
    /// Milliseconds, in turn with the other runs.
    pub samples_ms: Vec<f64>,
    /// The rms error of the compared elements, against f64.
    pub rms_error: Option<f64>,
}

/// Whether an error is about as small as cuBLAS's. Any error is, if one of them is not known.
pub fn is_accurate(own: Option<f64>, cublas: Option<f64>) -> bool {
    own.zip(cublas).is_none_or(|(own, cublas)| own <= MAX_ERROR * cublas)
}

impl Run {
    /// The median of the samples, in nanoseconds.
    pub fn ns(&self) -> f64 {
        1e6 * stats::median(&self.samples_ms)
    }
}

impl SearchResult {
    /// The fastest of those that are accurate enough.
    pub fn fastest(&self) -> &Run {
        fastest(self.runs.iter().filter(|run| self.is_eligible(run)))
    }

    /// The fastest run, if its error is too large. Also its error relative to cuBLAS's.
    pub fn left_out(&self) -> Option<(&Run, f64)> {
        let fastest = fastest(self.runs.iter());
        let left_out = !self.is_eligible(fastest);
        left_out.then_some((fastest, fastest.rms_error? / self.cublas_rms_error?))
    }

    /// Whether any choice is accurate enough.
    pub fn is_accurate(&self) -> bool {
        self.runs.iter().any(|run| is_accurate(run.rms_error, self.cublas_rms_error))
    }

    /// Whether a run's error lets it be chosen. If all errors are too large, any run may be chosen.
    fn is_eligible(&self, run: &Run) -> bool {
        is_accurate(run.rms_error, self.cublas_rms_error) || !self.is_accurate()
    }

    /// The product's shape.
    pub fn shape(&self) -> Shape {
        Shape::of(&self.gemm)
    }

    /// The run of the choice by costs, if timed.
    pub fn chosen_run(&self) -> Option<&Run> {
        self.runs.iter().find(|run| run.configuration == self.chosen.configuration)
    }

    /// The chosen run's time relative to the fastest. 1 if it was not timed.
    pub fn loss_of_chosen(&self) -> f64 {
        self.chosen_run().map_or(1.0, |own| own.ns() / fastest(self.runs.iter()).ns())
    }

    /// The record of the fastest that is accurate enough.
    pub fn record(&self) -> MeasuredProduct {
        let fastest = self.fastest();
        MeasuredProduct::new(&self.gemm, Timed::new(fastest.configuration, fastest.ns()))
    }
}

fn fastest<'r>(runs: impl Iterator<Item = &'r Run>) -> &'r Run {
    runs.min_by(|a, b| a.ns().total_cmp(&b.ns())).expect("at least one")
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_gemm::Table;
    use cuda_gemm::select::Model;

    /// Numbers that were measured nowhere.
    const TABLE: &str = include_str!("../../../cuda_gemm/src/select/table_for_tests.json");

    /// A result with these milliseconds and rms errors. The first run is the choice by costs.
    fn result(model: &Model, runs: &[(f64, f64)], cublas_rms_error: Option<f64>) -> SearchResult {
        let gemm = Gemm::new(64, 192, 3000);
        let mut ranking = model.ranking(&gemm);
        assert!(ranking.len() >= runs.len());
        ranking.truncate(runs.len());
        let chosen = ranking[0];
        let run = |(prediction, &(ms, error)): (Prediction, &(f64, f64))| Run {
            configuration: prediction.configuration,
            predicted_ns: prediction.ns,
            samples_ms: vec![ms; 7],
            rms_error: Some(error),
        };
        let runs = ranking.into_iter().zip(runs).map(run).collect();
        let wrong = Vec::new();
        SearchResult { gemm, chosen, runs, wrong, cublas_rms_error, not_compared: None }
    }

    /// Indices of the fastest accurate and the left-out run.
    fn places(result: &SearchResult) -> (usize, Option<usize>) {
        let place = |configuration| {
            result.runs.iter().position(|run| run.configuration == configuration).unwrap()
        };
        let fastest = place(result.fastest().configuration);
        assert_eq!(place(result.record().best.configuration()), fastest);
        (fastest, result.left_out().map(|(run, _)| place(run.configuration)))
    }

    #[test]
    fn what_is_less_accurate_than_cublas_is_not_chosen() {
        let Ok(table) = Table::parse(TABLE, "a test") else { panic!() };
        let model = Model::new(&table);
        let places = |runs: &[_], cublas| places(&result(&model, runs, cublas));
        // The chosen is the fastest, and not accurate: the faster of the others takes its place.
        let runs = [(1.0, 1.2e-5), (1.3, 1e-5), (1.2, 1.1e-5)];
        assert_eq!(places(&runs, Some(1e-5)), (2, Some(0)));
        // The choice is nearly as accurate as cuBLAS, or there is no cuBLAS.
        assert_eq!(places(&runs, Some(1.1e-5)), (0, None));
        assert_eq!(places(&runs, None), (0, None));
        // Another is the fastest, and not accurate: what was chosen stays.
        let runs = [(1.0, 1e-5), (0.9, 1.2e-5), (1.1, 1e-5)];
        assert_eq!(places(&runs, Some(1e-5)), (0, Some(1)));
        // The chosen is not accurate, and slower anyway.
        let runs = [(1.0, 1.2e-5), (0.9, 1e-5), (1.1, 1e-5)];
        assert_eq!(places(&runs, Some(1e-5)), (1, None));
        // None is accurate: the fastest of all.
        let runs = [(1.0, 1.2e-5), (0.9, 1.4e-5), (1.1, 1.3e-5)];
        assert_eq!(places(&runs, Some(1e-5)), (1, None));
        // cuBLAS has no error: nor may a choice.
        let runs = [(1.0, 1e-9), (1.1, 0.0)];
        assert_eq!(places(&runs, Some(0.0)), (1, Some(0)));
    }

    #[test]
    fn the_choice_is_judged_by_all_times() {
        let Ok(table) = Table::parse(TABLE, "a test") else { panic!() };
        let model = Model::new(&table);
        let result = result(&model, &[(1.0, 1e-5), (0.5, 1.2e-5), (1.1, 1e-5)], Some(1e-5));
        assert_eq!(result.loss_of_chosen(), 2.0);
        let (run, error) = result.left_out().unwrap();
        assert_eq!((run.ns(), error), (0.5e6, 1.2e-5 / 1e-5));
    }
}
