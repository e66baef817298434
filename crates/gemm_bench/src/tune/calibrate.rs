//! Costs corrected by the products that were measured.
//!
//! Costs come from a few grids, at the clocks of their minute. Each kernel's are scaled by what it
//! took in the products in which it took part, over what was predicted: the median, so that a few
//! odd shapes do not spoil the others. Products whose C has fewer columns than a tile have a factor of
//! their own, as have those whose B is read as its transpose.

use std::collections::HashMap;

use cuda_gemm::select::table::{Costs, Table};
use cuda_gemm::select::{Conditions, Model};

use super::search_result::{SearchResult, predicted};
use crate::error::Error;
use crate::stats;

/// A kernel that took part in fewer products is left alone.
const LEAST_PRODUCTS: usize = 3;

/// Products that take fewer times what a launch does have no part in what blocks take under some conditions.
const LAUNCHES: f64 = 4.0;

/// A correction beyond this is none.
const MOST: f64 = 2.0;

/// How many times as long as the fastest it takes what costs choose, in the geometric mean.
pub fn mean_loss(table: &Table, results: &[&SearchResult]) -> f64 {
    let model = Model::new(table);
    let losses: Vec<_> = results.iter().map(|result| result.loss(&model)).collect();
    stats::geometric_mean(&losses).unwrap_or(1.0)
}

/// The table with corrected costs, if they choose better.
///
/// # Errors
///
/// [`cuda_gemm::Error::Table`] if they make none.
pub fn calibrated(table: &Table, results: &[&SearchResult]) -> Result<Option<Table>, Error> {
    let mut kernels = table.kernels().to_vec();
    let factors = factors(table, results);
    for costs in &mut kernels {
        if let Some(factor) = factors.get(costs.kernel.name()) {
            slow(costs, factor.everywhere);
            costs.narrow *= factor.narrow;
            costs.transposed_b *= factor.transposed_b;
        }
    }
    let better = table.with_kernels(kernels)?;
    Ok((mean_loss(&better, results) < mean_loss(table, results)).then_some(better))
}

/// How much slower a kernel was than predicted.
struct Slower {
    everywhere: f64,
    /// Beside that, where C has fewer columns than a tile.
    narrow: f64,
    /// Likewise, where B is read as its transpose.
    transposed_b: f64,
}

/// What a kernel took over what was predicted.
#[derive(Default)]
struct Ratios {
    plain: Vec<f64>,
    narrow: Vec<f64>,
    transposed_b: Vec<f64>,
}

fn factors(table: &Table, results: &[&SearchResult]) -> HashMap<&'static str, Slower> {
    let model = Model::new(table);
    let mut all: HashMap<_, Ratios> = HashMap::new();
    for result in results {
        for run in &result.runs {
            let slower = run.ns() / predicted(&model, &result.gemm, run);
            let ratios = all.entry(run.configuration.kernel.name()).or_default();
            match model.conditions(&result.gemm, &run.configuration) {
                Conditions { narrow: false, transposed_b: false } => ratios.plain.push(slower),
                // What is mostly launch says nothing about blocks.
                _ if run.ns() < LAUNCHES * table.launch_ns() => {}
                Conditions { narrow: true, transposed_b: false } => ratios.narrow.push(slower),
                Conditions { narrow: false, transposed_b: true } => {
                    ratios.transposed_b.push(slower);
                }
                Conditions { narrow: true, transposed_b: true } => {}
            }
        }
    }
    let known = all.into_iter().filter_map(|(name, Ratios { plain, narrow, transposed_b })| {
        // A kernel for a C of few columns has no others.
        let Some(everywhere) = median(&plain) else {
            let everywhere = median(&[plain, narrow].concat())?;
            return Some((name, Slower { everywhere, narrow: 1.0, transposed_b: 1.0 }));
        };
        let beside = |ratios: &[f64], least: f64| {
            median(ratios).map_or(1.0, |slower| (slower / everywhere).clamp(least, MOST))
        };
        // Fewer columns never make a block faster; another way to read B may.
        let (narrow, transposed_b) = (beside(&narrow, 1.0), beside(&transposed_b, 1.0 / MOST));
        Some((name, Slower { everywhere, narrow, transposed_b }))
    });
    known.collect()
}

/// The median of ratios, if there are enough of them.
fn median(ratios: &[f64]) -> Option<f64> {
    let usable = ratios.len() >= LEAST_PRODUCTS && ratios.iter().all(|ratio| ratio.is_finite());
    usable.then(|| stats::median(ratios).clamp(1.0 / MOST, MOST))
}

fn slow(costs: &mut Costs, factor: f64) {
    let paces = costs.aligned.iter_mut().chain(&mut costs.unaligned);
    for pace in paces.chain(&mut costs.aligned_wave).chain(&mut costs.unaligned_wave) {
        *pace = pace.times(factor);
    }
    for ns in [&mut costs.reduction_ns, &mut costs.partial_ns, &mut costs.tile_ns] {
        *ns *= factor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;
    use crate::tune::search_result::Run;
    use cuda_gemm::select::Prediction;

    /// Numbers that were measured nowhere.
    const TABLE: &str = include_str!("../../../cuda_gemm/src/select/table_for_tests.json");

    /// Results in which times are what `truth` says, and predictions what `table` does.
    fn results(table: &Table, truth: &Table, shape: impl Fn(usize) -> Shape) -> Vec<SearchResult> {
        let (model, truth) = (Model::new(table), Model::new(truth));
        let result = |shape: Shape| {
            let run = |Prediction { configuration, ns, .. }| Run {
                configuration,
                predicted_ns: ns,
                samples_ms: vec![1e-6 * truth.time(&shape.gemm(), &configuration).unwrap().ns; 7],
                rms_error: None,
            };
            let ranking = model.ranking(&shape.gemm(), 6);
            SearchResult {
                gemm: shape.gemm(),
                chosen: ranking[0],
                runs: ranking.into_iter().map(run).collect(),
                wrong: Vec::new(),
                cublas_rms_error: None,
                not_compared: None,
            }
        };
        (1..25).map(shape).map(result).collect()
    }

    fn tall_and_wide(i: usize) -> Shape {
        Shape::new(16 * i, 40 * i + 8, 3000 - 100 * i)
    }

    #[test]
    fn a_kernel_that_is_slower_than_its_costs_is_found_out() {
        let Ok(table) = Table::parse(TABLE, "a test") else { panic!() };
        let mut kernels = table.kernels().to_vec();
        slow(&mut kernels[1], 1.7);
        let truth = table.with_kernels(kernels).unwrap();
        let all = results(&table, &truth, tall_and_wide);
        let results: Vec<_> = all.iter().collect();
        let before = mean_loss(&table, &results);
        let better = calibrated(&table, &results).unwrap();
        let better = better.unwrap_or_else(|| panic!("not better"));
        let after = mean_loss(&better, &results);
        assert!(before > 1.01 && after < 1.0 + 0.1 * (before - 1.0), "{before} {after}");
        let misled = |table: &Table| {
            let model = Model::new(table);
            results.iter().filter(|result| result.loss(&model) >= 1.01).count()
        };
        assert!(misled(&better) < misled(&table));
        // What is right stays as it is.
        assert!(calibrated(&truth, &results).unwrap().is_none());
    }

    #[test]
    fn a_kernel_that_is_slow_where_c_is_narrow_is_found_out() {
        let Ok(table) = Table::parse(TABLE, "a test") else { panic!() };
        let mut kernels = table.kernels().to_vec();
        let tile_32x32 = kernels.iter().position(|costs| costs.kernel.name() == "tile_32x32");
        kernels[tile_32x32.unwrap()].narrow = 1.6;
        let truth = table.with_kernels(kernels).unwrap();
        // Every other C has 8 to 20 columns.
        let narrow = |i: usize| match i % 2 {
            0 => tall_and_wide(i),
            _ => Shape::new(400 * i, 8 + i / 2, 3000 - 100 * i),
        };
        let all = results(&table, &truth, narrow);
        let results: Vec<_> = all.iter().collect();
        let better = calibrated(&table, &results).unwrap();
        let better = better.unwrap_or_else(|| panic!("not better"));
        for costs in better.kernels() {
            let expected = if costs.kernel.name() == "tile_32x32" { 1.6 } else { 1.0 };
            assert!(
                (costs.narrow - expected).abs() < 0.1,
                "{}: {}",
                costs.kernel.name(),
                costs.narrow
            );
        }
        assert!(mean_loss(&better, &results) < 1.001);
    }
}
