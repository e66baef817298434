//! Products that are measured themselves: what the costs say is fastest, against what comes
//! close.

use host::auto::table::{Exception, Timed};
use host::auto::{Auto, Choice, Estimate, Model};
use host::{Error, stats};

use super::bed::{Bed, Matrices, Runner, check};
use crate::cli::bench::{L2, Shape};
use crate::cli::contender::Job;

/// How many take part: fewer where each takes long. Operations, and contenders up to these.
const CONTENDERS: [(f64, usize); 4] = [(2e10, 8), (5e11, 5), (5e12, 3), (f64::INFINITY, 2)];

/// An exception is worth at least this much.
const GAIN: f64 = 1.01;

/// What came of a product.
pub struct Race {
    pub shape: Shape,
    /// In the order of what they should have taken; at least one.
    pub runs: Vec<Run>,
    /// Choices that were wrong, and how.
    pub wrong: Vec<(Choice, String)>,
}

/// A choice that was timed.
pub struct Run {
    pub choice: Choice,
    /// What the costs say.
    pub predicted_ns: f64,
    /// Milliseconds, in turn with the other runs.
    pub samples_ms: Vec<f64>,
}

impl Run {
    pub fn ns(&self) -> f64 {
        1e6 * stats::median(&self.samples_ms)
    }

    fn timed(&self) -> Timed {
        let Choice { spec, splits, packed } = self.choice;
        Timed { kernel: spec, splits, packed, ns: self.ns() }
    }
}

impl Race {
    pub fn fastest(&self) -> &Run {
        let fastest = self.runs.iter().min_by(|a, b| a.ns().total_cmp(&b.ns()));
        fastest.expect("at least one")
    }

    /// What these costs choose among the runs.
    pub fn chosen(&self, model: &Model) -> &Run {
        let time = |run: &Run| predicted(model, self.shape, run);
        let chosen = self.runs.iter().min_by(|a, b| time(a).total_cmp(&time(b)));
        chosen.expect("at least one")
    }

    /// How many times as long as the fastest it takes what these costs choose.
    pub fn loss(&self, model: &Model) -> f64 {
        self.chosen(model).ns() / self.fastest().ns()
    }

    /// The fastest, if these costs choose something that is slower by more than noise, or that
    /// was not timed.
    pub fn exception(&self, model: &Model) -> Option<Exception> {
        let Shape { m, n, k } = self.shape;
        let estimate = model.fastest(&self.shape.gemm())?;
        let fastest = self.fastest();
        let instead_of = match self.runs.iter().find(|run| run.choice == estimate.choice) {
            Some(run) if is_faster(&run.samples_ms, &fastest.samples_ms) => run.timed(),
            Some(_) => return None,
            None => {
                let Choice { spec, splits, packed } = estimate.choice;
                Timed { kernel: spec, splits, packed, ns: estimate.ns }
            }
        };
        Some(Exception { m, n, k, best: fastest.timed(), instead_of })
    }
}

/// What these costs say that a run takes.
pub fn predicted(model: &Model, shape: Shape, run: &Run) -> f64 {
    model.time(&shape.gemm(), run.choice).map_or(f64::INFINITY, |estimate| estimate.ns)
}

/// Times the best choices for a product in turn; why not if there is nothing to be had.
pub fn race<'d>(
    bed: &Bed<'d>,
    auto: &Auto<'d>,
    shape: Shape,
) -> Result<Result<Race, String>, Error> {
    let gemm = shape.gemm();
    let count = CONTENDERS.iter().find(|(flops, _)| gemm.flops() <= *flops);
    let ranking = auto.ranking(&gemm, count.map_or(1, |(_, count)| *count));
    let matrices = match Matrices::new(gemm) {
        Err(error @ Error::HostMemory { .. }) => return Ok(Err(error.to_string())),
        matrices => matrices?,
    };
    let mut sets = match bed.sets(&matrices, L2::Cold) {
        Err(error @ Error::DeviceMemory { .. }) => return Ok(Err(error.to_string())),
        sets => [sets?],
    };
    let reference = matrices.reference()?;
    let (mut runners, mut running, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
    for estimate in ranking {
        let job = Job::Rung(auto.prepare_choice(gemm, estimate.choice)?);
        match check(&job, &mut sets[0], &reference)? {
            Ok(()) => {
                runners.push(Runner { job, on: 0 });
                running.push(estimate);
            }
            Err(reason) => wrong.push((estimate.choice, reason)),
        }
    }
    if running.is_empty() {
        return Ok(Err("every kernel is wrong".to_owned()));
    }
    let samples = bed.time(&runners, &mut sets)?;
    let run = |(estimate, samples_ms): (Estimate, Vec<f64>)| Run {
        choice: estimate.choice,
        predicted_ns: estimate.ns,
        samples_ms,
    };
    Ok(Ok(Race { shape, runs: running.into_iter().zip(samples).map(run).collect(), wrong }))
}

/// Whether the second takes less time than the first, in pairs of samples, by more than noise.
fn is_faster(first: &[f64], second: &[f64]) -> bool {
    let ratios: Vec<_> = first.iter().zip(second).map(|(first, second)| first / second).collect();
    let surely = stats::median_interval(&ratios).is_some_and(|(low, _)| low > 1.0);
    surely && stats::median(&ratios) >= GAIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_no_exception() {
        let first = [1.0, 1.01, 1.0, 1.02, 1.0, 1.01, 1.0];
        assert!(!is_faster(&first, &first));
        assert!(is_faster(&first, &first.map(|ms| 0.97 * ms)));
        // Always faster, but by next to nothing; often faster, and sometimes not.
        assert!(!is_faster(&first, &first.map(|ms| 0.995 * ms)));
        assert!(!is_faster(&first, &[0.9, 1.05, 0.9, 1.05, 0.9, 1.05, 0.9]));
        // Too few to say.
        assert!(!is_faster(&[2.0], &[1.0]));
    }
}
