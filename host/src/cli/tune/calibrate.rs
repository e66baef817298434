//! Costs corrected by the products that were measured.
//!
//! Costs come from grids that suit them: what a kernel loses in others is the same for all
//! kernels, or peculiar to it. The latter is told by how it does against the others, beside what
//! was predicted, over all products in which it took part.

use std::collections::HashMap;

use host::auto::Model;
use host::auto::table::{Costs, Table};
use host::stats;

use super::race::{Race, predicted};

/// Corrections change each other: after so many rounds hardly any more.
const ROUNDS: usize = 8;

/// A kernel that took part in fewer products is left alone.
const LEAST_RACES: usize = 3;

/// A correction beyond this is none.
const MOST: f64 = 1.5;

/// How many times as long as the fastest it takes what costs choose, in the geometric mean.
pub fn mean_loss(table: &Table, races: &[Race]) -> f64 {
    let model = Model::new(table);
    let losses: Vec<_> = races.iter().map(|race| race.loss(&model)).collect();
    stats::geometric_mean(&losses).unwrap_or(1.0)
}

/// The table with corrected costs, if they choose better.
pub fn calibrated(table: &Table, races: &[Race]) -> Option<Table> {
    let mut better = table.clone();
    for _ in 0..ROUNDS {
        let factors = factors(&Model::new(&better), races);
        for costs in &mut better.kernels {
            if let Some(factor) = factors.get(costs.kernel.name) {
                slow(costs, *factor);
            }
        }
    }
    (mean_loss(&better, races) < mean_loss(table, races)).then_some(better)
}

/// How much slower each kernel was than predicted, against the others.
fn factors(model: &Model, races: &[Race]) -> HashMap<&'static str, f64> {
    let mut ratios: HashMap<_, Vec<f64>> = HashMap::new();
    for race in races {
        let slower: Vec<_> =
            race.runs.iter().map(|run| run.ns() / predicted(model, race.shape, run)).collect();
        let Some(mean) = stats::geometric_mean(&slower).filter(|mean| mean.is_finite()) else {
            continue;
        };
        for (run, slower) in race.runs.iter().zip(slower) {
            ratios.entry(run.choice.spec.name).or_default().push(slower / mean);
        }
    }
    let enough = ratios.into_iter().filter(|(_, ratios)| ratios.len() >= LEAST_RACES);
    let mean = |ratios: Vec<f64>| stats::geometric_mean(&ratios).unwrap_or(1.0);
    enough.map(|(name, ratios)| (name, mean(ratios).clamp(1.0 / MOST, MOST))).collect()
}

fn slow(costs: &mut Costs, factor: f64) {
    for pace in costs.aligned.iter_mut().chain(&mut costs.unaligned) {
        pace.fixed_ns *= factor;
        pace.step_ns *= factor;
    }
    for ns in [&mut costs.join_ns, &mut costs.piece_ns, &mut costs.tile_ns] {
        *ns *= factor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::bench::Shape;
    use crate::cli::tune::race::Run;

    /// Numbers that were measured nowhere.
    const TABLE: &str = include_str!("../../auto/table_for_tests.json");

    /// Races in which times are what `truth` says, and predictions what `table` does.
    fn races(table: &Table, truth: &Table) -> Vec<Race> {
        let (model, truth) = (Model::new(table), Model::new(truth));
        let shape = |i: usize| Shape { m: 16 * i, n: 40 * i + 8, k: 3000 - 100 * i };
        let race = |shape: Shape| {
            let run = |estimate: host::auto::Estimate| Run {
                choice: estimate.choice,
                predicted_ns: estimate.ns,
                samples_ms: vec![1e-6 * truth.time(&shape.gemm(), estimate.choice).unwrap().ns; 7],
            };
            let runs = model.ranking(&shape.gemm(), 6).into_iter().map(run).collect();
            Race { shape, runs, wrong: Vec::new() }
        };
        (1..25).map(shape).map(race).collect()
    }

    #[test]
    fn a_kernel_that_is_slower_than_its_costs_is_found_out() {
        let Ok(table) = Table::parse(TABLE, "a test") else { panic!() };
        let mut truth = table.clone();
        slow(&mut truth.kernels[1], 1.7);
        let races = races(&table, &truth);
        let before = mean_loss(&table, &races);
        let better = calibrated(&table, &races).unwrap_or_else(|| panic!("not better"));
        let after = mean_loss(&better, &races);
        assert!(before > 1.01 && after < 1.0 + 0.1 * (before - 1.0), "{before} {after}");
        let exceptions = |table: &Table| {
            let model = Model::new(table);
            races.iter().filter(|race| race.exception(&model).is_some()).count()
        };
        assert!(exceptions(&better) < exceptions(&table));
        // What is right stays as it is.
        assert!(calibrated(&truth, &races).is_none());
    }
}
