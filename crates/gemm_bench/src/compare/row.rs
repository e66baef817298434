//! Fills in a row: the result of one kernel for one shape, next to cuBLAS.

use std::sync::Arc;

use cuda_gemm::{Compute, Element, Gemm};
use gemm_report::{Row, Status, Verdict};
use gemm_verify::{Check, Method};

use crate::error::Error;
use crate::groups::Groups;
use crate::job::Title;
use crate::limit::{Limit, Load};
use crate::roofline::Rates;
use crate::stats;
use crate::time::Samples;

/// The distance from 1 below which a ratio says nothing, however narrow its interval.
///
/// cuBLAS against itself has come out at 1.001 (1.001 to 1.002), since one of both is always first.
const BIAS: f64 = 0.005;

/// A row from [`Comparison`](crate::compare::Comparison), with what its line does not say.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The row.
    pub row: Row,
    /// The error behind the reason of a refusal.
    pub refusal: Option<Arc<Error>>,
    /// The limit with its details.
    pub limit: Option<Limit>,
}

impl From<Row> for Compared {
    fn from(row: Row) -> Self {
        Self { row, refusal: None, limit: None }
    }
}

impl Compared {
    /// A row that is refused for a reason.
    pub(super) fn refused(row: Row, error: Arc<Error>) -> Self {
        let row = without_time(row, Status::Refused, error.to_string());
        Self { refusal: Some(error), ..row.into() }
    }
}

/// A row without results: what was asked for.
pub fn row(title: &Title, gemm: &Gemm, groups: &Groups, seed: Option<u64>) -> Row {
    let Title { name, rung, chosen, splits, clusters, staged, .. } = *title;
    let Gemm { m, n, k, trans_a, trans_b, alpha, beta, .. } = *gemm;
    Row {
        kernel: name.to_owned(),
        rung,
        chosen: chosen.map(str::to_owned),
        splits,
        clusters,
        columns: title.columns,
        transposes_c: title.transposes_c,
        blocks_per_multiprocessor: title.blocks_per_multiprocessor,
        packed: staged,
        m,
        n,
        k,
        trans_a,
        trans_b,
        batch: gemm.matrices()[2],
        groups: groups.record(),
        alpha: Some(alpha),
        beta: Some(beta),
        epilogue: (!gemm.epilogue.is_none()).then(|| gemm.epilogue.to_string()),
        compute: (gemm.compute != Compute::F32).then(|| gemm.compute.to_string()),
        output: (gemm.output != Element::F32).then(|| gemm.output.to_string()),
        seed,
        ..Row::default()
    }
}

/// Sets the reason why there is no time.
pub(super) fn without_time(row: Row, status: Status, reason: impl Into<String>) -> Row {
    Row { status, reason: Some(reason.into()), ..row }
}

/// Fills in the errors against the product in f64.
///
/// The first check decides whether the result is right. The second is against unrounded A and
/// B, and differs from the first only in TF32.
pub(super) fn errors(row: &mut Row, [check, unrounded]: [&Check; 2], cublas: Option<&Check>) {
    let error = |check: &Check| check.largest.map(|largest| largest.error);
    let relative = |check: &Check| check.worst.map(|worst| worst.ratio());
    row.max_abs_error = error(unrounded);
    row.rms_error = unrounded.rms_error();
    let bench = &mut row.bench;
    bench.cublas_max_abs_error = cublas.and_then(error);
    bench.error_ratio = error_ratio(row.max_abs_error, bench.cublas_max_abs_error);
    bench.cublas_rms_error = cublas.and_then(Check::rms_error);
    bench.rms_error_ratio = error_ratio(row.rms_error, bench.cublas_rms_error);
    bench.error_over_tolerance = relative(check);
    bench.rms_error_over_tolerance = check
        .rms_error()
        .zip(check.rms_tolerance())
        .and_then(|(error, tolerance)| finite(error / tolerance));
    bench.cublas_error_over_tolerance = cublas.and_then(relative);
    bench.check = Some(method(check).to_owned());
    bench.elements = Some(check.elements);
}

/// The method of a check, in a word.
pub fn method(check: &Check) -> &'static str {
    match check.method {
        Method::Full => "full",
        Method::Sampled { .. } => "sampled",
    }
}

/// Fills in the times, and values derived from them.
pub(super) fn times(
    row: &mut Row,
    gemm: &Gemm,
    own: Samples,
    cublas: Option<Samples>,
    rates: &Rates,
) {
    let median = stats::median(&own.ms);
    row.samples = Some(own.ms.len());
    row.launches = Some(own.launches);
    let gaps = cublas.as_ref().and_then(|cublas| cublas.gap_free) == Some(false);
    row.gap_free = own.gap_free.map(|own| own && !gaps);
    row.gflops = finite(gemm.flops() / median * 1e-6);
    let gbytes = finite(gemm.bytes() as f64 / median * 1e-6);
    row.ffma_gflops = finite(rates.ffma);
    row.copy_gbytes = finite(rates.copy);
    row.percent_of_ffma = percent(row.gflops, row.ffma_gflops);
    row.percent_of_copy = percent(gbytes, row.copy_gbytes);
    row.samples_ms = own.ms;
    let (bench, own) = (&mut row.bench, &row.samples_ms);
    bench.time_median = Some(median);
    bench.time_deviation = Some(stats::deviation(own));
    (bench.time_min, bench.time_max) = range(own);

    let Some(Samples { launches, ms, .. }) = cublas else { return };
    row.cublas_samples_ms = ms;
    let cublas = &row.cublas_samples_ms;
    let cublas_median = stats::median(cublas);
    bench.cublas_launches = Some(launches);
    bench.cublas_median = Some(cublas_median);
    bench.cublas_deviation = Some(stats::deviation(cublas));
    (bench.cublas_min, bench.cublas_max) = range(cublas);
    bench.cublas_gflops = finite(gemm.flops() / cublas_median * 1e-6);
    let Some((ratio, interval)) = stats::paired_ratio(cublas, own) else { return };
    bench.ratio = Some(ratio);
    let Some((low, high)) = interval else { return };
    (bench.ratio_low, bench.ratio_high) = (Some(low), Some(high));
    bench.verdict = Some(match () {
        () if low > 1.0 && ratio >= 1.0 + BIAS => Verdict::Faster,
        () if high < 1.0 && ratio <= 1.0 - BIAS => Verdict::Slower,
        () => Verdict::WithinNoise,
    });
}

/// The host's time per call, in microseconds.
///
/// Not for the software device, where the call is the product itself.
pub(super) fn enqueue_us(samples: &Samples) -> Option<f64> {
    finite(1e3 * stats::median(&samples.enqueue_ms))
}

/// Fills in the use of the GPU's units.
pub fn load(row: &mut Row, load: &Load) {
    row.percent_of_issue = load.percent_of_issue;
    row.percent_of_shared = load.percent_of_shared;
    row.percent_of_l1 = load.percent_of_l1;
    row.blocks = load.blocks;
    let limit = load.limit();
    row.limit = limit.map(|limit| limit.name().to_owned());
    row.limit_percent = limit.and_then(Limit::percent);
}

/// An error relative to cuBLAS's; 1 if both are exact.
fn error_ratio(own: Option<f64>, cublas: Option<f64>) -> Option<f64> {
    match (own?, cublas?) {
        (own, cublas) if own == cublas => Some(1.0),
        (own, cublas) => finite(own / cublas),
    }
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn percent(value: Option<f64>, of: Option<f64>) -> Option<f64> {
    finite(100.0 * value? / of?)
}

fn range(values: &[f64]) -> (Option<f64>, Option<f64>) {
    let values = || values.iter().copied();
    (values().reduce(f64::min), values().reduce(f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_relative_eq;
    use cuda_gemm::DeviceKind;
    use gemm_verify::{Bound, Deviation};

    const RATES: Rates = Rates { ffma: 60_000.0, copy: 4000.0 };

    fn batches(ms: &[f64]) -> Samples {
        let (ms, enqueue_ms) = (ms.to_vec(), vec![0.002; ms.len()]);
        Samples { device: DeviceKind::Gpu, launches: 7, ms, enqueue_ms, gap_free: Some(true) }
    }

    fn row(own: &[f64], cublas: &[f64]) -> Row {
        let gemm = Gemm::new(1000, 2000, 500);
        let mut row = super::row(&Title::default(), &gemm, &Groups::default(), Some(42));
        times(&mut row, &gemm, batches(own), Some(batches(cublas)), &RATES);
        row
    }

    #[test]
    fn ratios_are_of_pairs() {
        // Clocks that halve during the run do not change the ratios.
        let own = [1.0, 1.2, 1.4, 1.6, 1.8, 2.0];
        let row = row(&own, &own.map(|ms| 1.1 * ms));
        assert_relative_eq!(row.bench.ratio.unwrap(), 1.1, max_relative = 1e-12);
        assert_relative_eq!(row.bench.ratio_low.unwrap(), 1.1, max_relative = 1e-12);
        assert_eq!(row.bench.verdict, Some(Verdict::Faster));
        assert_relative_eq!(row.bench.time_median.unwrap(), 1.5);
        assert_relative_eq!(row.bench.time_deviation.unwrap(), 0.3, max_relative = 1e-12);
        assert_eq!((row.bench.time_min, row.bench.time_max), (Some(1.0), Some(2.0)));
    }

    #[test]
    fn noise_is_named() {
        let own = [1.0; 6];
        let verdict = |cublas: [f64; 6]| row(&own, &cublas).bench.verdict;
        assert_eq!(verdict([0.98, 0.99, 1.0, 1.01, 1.02, 1.03]), Some(Verdict::WithinNoise));
        assert_eq!(verdict([0.98, 0.99, 0.98, 0.99, 0.97, 0.999]), Some(Verdict::Slower));
        assert_eq!(verdict([1.006; 6]), Some(Verdict::Faster));
        assert_eq!(verdict([1.004; 6]), Some(Verdict::WithinNoise));
        assert_eq!(verdict([0.996; 6]), Some(Verdict::WithinNoise));
        // Too few samples for a verdict, and a time of zero.
        assert_eq!(row(&own[..5], &own[..5]).bench.verdict, None);
        let zero = row(&[0.0; 6], &[0.0; 6]);
        assert_eq!((zero.bench.ratio, zero.gflops, zero.percent_of_ffma), (None, None, None));
    }

    #[test]
    fn calls_cost_microseconds() {
        let bench = row(&[1.0; 6], &[1.0; 6]).bench;
        assert_eq!((bench.enqueue_us, bench.cublas_enqueue_us), (None, None));
        assert_relative_eq!(enqueue_us(&batches(&[1.0; 3])).unwrap(), 2.0, max_relative = 1e-12);
    }

    #[test]
    fn roofs_are_the_measured_ones() {
        let row = row(&[0.1; 6], &[0.2; 6]);
        // 2e9 FLOP and 14e6 bytes in 0.1 ms.
        assert_relative_eq!(row.gflops.unwrap(), 20_000.0, max_relative = 1e-12);
        assert_relative_eq!(row.bench.cublas_gflops.unwrap(), 10_000.0, max_relative = 1e-12);
        assert_relative_eq!(row.percent_of_ffma.unwrap(), 100.0 / 3.0, max_relative = 1e-12);
        assert_relative_eq!(row.percent_of_copy.unwrap(), 3.5, max_relative = 1e-12);
    }

    #[test]
    fn errors_are_compared() {
        let check = |error: f64| {
            let deviation = Deviation { row: 0, col: 0, error, tolerance: 1e-3 };
            Check {
                method: Method::Full,
                bound: Bound::Probabilistic,
                elements: 9,
                failures: 0,
                overflowed: 0,
                largest: Some(deviation),
                worst: Some(deviation),
                numbers: 9,
                squared_errors: error.powi(2),
                squared_bounds: 9e-8,
            }
        };
        let errors = |row: &mut Row, own: &Check, cublas: Option<&Check>| {
            errors(row, [own, own], cublas);
        };
        let mut row = row(&[1.0; 6], &[1.0; 6]);
        errors(&mut row, &check(2.2e-4), Some(&check(2e-4)));
        // Nine elements pass up to 1 + 8 / sqrt(3) times the bound.
        let luck = 1.0 + 8.0 / 3f64.sqrt();
        let over = 2.2e-4 / 3e-4 / luck;
        assert_relative_eq!(
            row.bench.rms_error_over_tolerance.unwrap(),
            over,
            max_relative = 1e-12
        );
        assert_relative_eq!(row.bench.error_ratio.unwrap(), 1.1, max_relative = 1e-12);
        assert_relative_eq!(row.bench.error_over_tolerance.unwrap(), 0.22, max_relative = 1e-12);
        // One error among nine elements; both now have the same largest error.
        let cublas = Check { squared_errors: 4.0 * 9e-8, ..check(3e-4) };
        errors(&mut row, &check(3e-4), Some(&cublas));
        assert_relative_eq!(row.rms_error.unwrap(), 1e-4, max_relative = 1e-12);
        assert_relative_eq!(row.bench.cublas_rms_error.unwrap(), 2e-4, max_relative = 1e-12);
        assert_relative_eq!(row.bench.rms_error_ratio.unwrap(), 0.5, max_relative = 1e-12);
        assert_eq!(row.bench.error_ratio, Some(1.0));
        errors(&mut row, &check(0.0), Some(&check(0.0)));
        assert_eq!(
            [row.bench.error_ratio, row.bench.rms_error_ratio],
            [Some(1.0); 2],
            "both exact"
        );
        super::errors(&mut row, [&check(1e-9), &check(1e-3)], None);
        assert_relative_eq!(row.max_abs_error.unwrap(), 1e-3);
        assert_relative_eq!(row.bench.error_over_tolerance.unwrap(), 1e-6, max_relative = 1e-12);
        assert_eq!([row.bench.error_ratio, row.bench.cublas_max_abs_error], [None; 2]);
        assert_eq!([row.bench.rms_error_ratio, row.bench.cublas_rms_error], [None; 2]);
    }
}
