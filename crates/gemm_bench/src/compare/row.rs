//! A row: the results of one kernel for one shape.
//!
//! Its fields are the columns of CSV and the keys of JSON.

use std::sync::Arc;

use cuda_gemm::{Compute, Element, Gemm};
use gemm_verify::{Check, Method};
use serde::Serialize;

use crate::batch::Batches;
use crate::buffers::L2;
use crate::error::Error;
use crate::job::Title;
use crate::limit::{Limit, Load};
use crate::roofline::Rates;
use crate::shape::Shape;
use crate::stats;
use crate::telemetry::Conditions;

/// The distance from 1 below which a ratio says nothing, however narrow its interval.
///
/// cuBLAS against itself has come out at 1.001 (1.001 to 1.002), since one of both is always first.
const BIAS: f64 = 0.005;

/// Whether a ratio differs from 1 significantly.
///
/// The distance must exceed the ratio's uncertainty, and 0.005, the effect of being first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// Significantly faster than cuBLAS.
    #[serde(rename = "faster")]
    Faster,
    /// Significantly slower.
    #[serde(rename = "slower")]
    Slower,
    /// Neither faster nor slower.
    #[serde(rename = "within noise")]
    WithinNoise,
}

impl Verdict {
    /// The verdict in words, as in JSON.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::WithinNoise => "within noise",
        }
    }
}

/// The outcome of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// Right, equal on every run, and timed.
    Pass,
    /// Wrong, and not timed.
    Fail,
    /// Right at first, but with other bits later.
    Unstable,
    /// Could not run.
    #[default]
    Refused,
}

/// The results of one kernel for one shape, from [`Comparison`](crate::compare::Comparison).
///
/// Times are in milliseconds per launch, rates in GFLOP/s and GB/s (10^9). Unknown values are
/// `None`: null in JSON, empty in CSV.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// The kernel's name, `auto` or `cublas`.
    pub kernel: &'static str,
    /// The place in the ladder, from 1.
    pub rung: Option<usize>,
    /// The kernel that `auto` chose.
    pub chosen: Option<&'static str>,
    /// Blocks that share each tile of C, for a kernel that can split K.
    pub splits: Option<u32>,
    /// Clusters that share the steps along K of all tiles; `None` for one cluster per tile.
    pub clusters: Option<u32>,
    /// Whether A and B are copied first, by choice.
    #[serde(rename = "packed")]
    pub staged: bool,
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Whether A is stored transposed.
    pub trans_a: bool,
    /// Whether B is stored transposed.
    pub trans_b: bool,
    /// The number of products.
    pub batch: usize,
    /// The factor of the product.
    pub alpha: f32,
    /// The factor of the old C.
    pub beta: f32,
    /// The operations on each element, as in `bias column, gelu`.
    ///
    /// If cublasLt lacks the epilogue, cuBLAS's time includes a pass over its stored result.
    pub epilogue: Option<String>,
    /// The function of cuBLAS to compare with, if the fastest of several was chosen.
    pub baseline: Option<String>,
    /// The precision, if it is not f32.
    pub compute: Option<&'static str>,
    /// The type of C, if it is not f32.
    pub output: Option<&'static str>,
    /// The outcome.
    pub status: Status,
    /// The reason, unless the row passed.
    pub reason: Option<String>,
    /// The error behind the reason; in neither JSON nor CSV.
    #[serde(skip)]
    pub error: Option<Arc<Error>>,

    /// The state of the L2 cache.
    pub l2: Option<L2>,
    /// The number of sets of matrices in rotation.
    pub sets: Option<usize>,
    /// The seed of the random matrices.
    pub seed: u64,
    /// Samples of each, kernel and cuBLAS.
    pub samples: Option<usize>,
    /// Launches per sample.
    pub launches: Option<u32>,
    /// Launches per sample of cuBLAS.
    pub cublas_launches: Option<u32>,
    /// Whether no launch can have waited for the host.
    pub gap_free: Option<bool>,

    /// The kernel's time, the median of the samples.
    pub time_median: Option<f64>,
    /// The kernel's median absolute deviation.
    pub time_deviation: Option<f64>,
    /// The kernel's shortest sample.
    pub time_min: Option<f64>,
    /// The kernel's longest sample.
    pub time_max: Option<f64>,
    /// cuBLAS's time, the median of the samples.
    pub cublas_median: Option<f64>,
    /// cuBLAS's median absolute deviation.
    pub cublas_deviation: Option<f64>,
    /// cuBLAS's shortest sample.
    pub cublas_min: Option<f64>,
    /// cuBLAS's longest sample.
    pub cublas_max: Option<f64>,

    /// Microseconds of the host per enqueued launch of the kernel, the median of the samples.
    pub enqueue_us: Option<f64>,
    /// Microseconds of the host per enqueued launch of cuBLAS, the median of the samples.
    pub cublas_enqueue_us: Option<f64>,

    /// cuBLAS's time divided by the kernel's, the median over the pairs of samples.
    pub ratio: Option<f64>,
    /// The lower end of the 95 % interval of that median.
    pub ratio_low: Option<f64>,
    /// The upper end of that interval.
    pub ratio_high: Option<f64>,
    /// The meaning of the ratio.
    pub verdict: Option<Verdict>,

    /// The kernel's throughput at the median time.
    pub gflops: Option<f64>,
    /// cuBLAS's throughput at the median time.
    pub cublas_gflops: Option<f64>,
    /// The measured rate of multiply-adds.
    pub ffma_gflops: Option<f64>,
    /// The measured rate of copies, bytes read plus bytes written.
    pub copy_gbytes: Option<f64>,
    /// The throughput as a share of the rate of multiply-adds.
    pub percent_of_ffma: Option<f64>,
    /// The bandwidth of reading A and B once and writing C once, as a share of the copy's rate.
    pub percent_of_copy: Option<f64>,
    /// The share of the multiprocessors' issue slots that instructions use.
    pub percent_of_issue: Option<f64>,
    /// The share of shared memory cycles that accesses use.
    pub percent_of_shared: Option<f64>,
    /// The share of L1 cache cycles, for a kernel without shared memory.
    pub percent_of_l1: Option<f64>,
    /// Blocks of all launches; `None` for cuBLAS.
    pub blocks: Option<u64>,
    /// The limit, in a word.
    pub limit: Option<&'static str>,
    /// The use of the limiting unit, or of the most used unit, in percent.
    pub limit_percent: Option<f64>,
    /// The limit with its details; in neither JSON nor CSV.
    #[serde(skip)]
    pub limited: Option<Limit>,

    /// The kernel's largest error against the product in f64, over the same elements as cuBLAS's.
    ///
    /// In TF32 the reference is of unrounded A and B, since cuBLAS rounds in another way.
    pub max_abs_error: Option<f64>,
    /// cuBLAS's largest error against the product in f64.
    pub cublas_max_abs_error: Option<f64>,
    /// The kernel's largest error divided by cuBLAS's; 1 if both are exact.
    pub error_ratio: Option<f64>,
    /// The kernel's root mean square error, over the same elements as cuBLAS's.
    pub rms_error: Option<f64>,
    /// cuBLAS's root mean square error.
    pub cublas_rms_error: Option<f64>,
    /// The kernel's root mean square error divided by cuBLAS's; 1 if both are exact.
    pub rms_error_ratio: Option<f64>,
    /// The largest error as a share of its tolerance, which in TF32 is that of rounded A and B.
    pub error_over_tolerance: Option<f64>,
    /// The root mean square error as a share of its tolerance.
    pub rms_error_over_tolerance: Option<f64>,
    /// cuBLAS's largest error as a share of its tolerance.
    pub cublas_error_over_tolerance: Option<f64>,
    /// `full`, or `sampled`.
    pub check: Option<&'static str>,
    /// The number of compared elements.
    pub elements: Option<u64>,

    /// The lowest clock of the multiprocessors during the measurement, in MHz.
    pub sm_mhz_min: Option<u32>,
    /// The highest clock of the multiprocessors, in MHz.
    pub sm_mhz_max: Option<u32>,
    /// The lowest clock of the memory, in MHz.
    pub memory_mhz: Option<u32>,
    /// The highest power draw, in watts.
    pub watts: Option<f64>,
    /// The highest temperature, in degrees Celsius.
    pub celsius: Option<u32>,
    /// The reasons for lower clocks, separated by semicolons.
    pub throttled: Option<String>,
}

impl Row {
    /// A row without results.
    pub fn new(title: &Title, gemm: &Gemm, seed: u64) -> Self {
        let Title { name: kernel, rung, chosen, splits, clusters, staged, .. } = *title;
        let Shape { m, n, k, trans_a, trans_b, batch } = Shape::of(gemm);
        let Gemm { alpha, beta, epilogue, compute, output, .. } = *gemm;
        let epilogue = (!epilogue.is_none()).then(|| epilogue.to_string());
        let compute = (compute != Compute::F32).then(|| compute.name());
        let output = (output != Element::F32).then(|| output.name());
        let shape = Self { m, n, k, trans_a, trans_b, batch, alpha, beta, ..Self::default() };
        let shape = Self { epilogue, compute, output, ..shape };
        Self { kernel, rung, chosen, splits, clusters, staged, seed, ..shape }
    }

    /// The shape of the product.
    pub fn shape(&self) -> Shape {
        let Self { m, n, k, trans_a, trans_b, batch, .. } = *self;
        Shape { m, n, k, trans_a, trans_b, batch }
    }

    /// Marks the row as refused, with the reason.
    #[must_use]
    pub fn refused(self, error: Arc<Error>) -> Self {
        let row = self.without_time(Status::Refused, error.to_string());
        Self { error: Some(error), ..row }
    }

    /// Sets the reason why there is no time.
    #[must_use]
    pub fn without_time(self, status: Status, reason: impl Into<String>) -> Self {
        Self { status, reason: Some(reason.into()), ..self }
    }

    /// Fills in the errors against the product in f64.
    ///
    /// The first check decides whether the result is right. The second is against unrounded A and
    /// B, and differs from the first only in TF32.
    pub fn errors(&mut self, [check, unrounded]: [&Check; 2], cublas: Option<&Check>) {
        let error = |check: &Check| check.largest.map(|largest| largest.error);
        let relative = |check: &Check| check.worst.map(|worst| worst.ratio());
        self.max_abs_error = error(unrounded);
        self.cublas_max_abs_error = cublas.and_then(error);
        self.error_ratio = error_ratio(self.max_abs_error, self.cublas_max_abs_error);
        self.rms_error = unrounded.rms_error();
        self.cublas_rms_error = cublas.and_then(Check::rms_error);
        self.rms_error_ratio = error_ratio(self.rms_error, self.cublas_rms_error);
        self.error_over_tolerance = relative(check);
        self.rms_error_over_tolerance = check
            .rms_error()
            .zip(check.rms_tolerance())
            .and_then(|(error, tolerance)| finite(error / tolerance));
        self.cublas_error_over_tolerance = cublas.and_then(relative);
        self.check = Some(match check.method {
            Method::Full => "full",
            Method::Sampled { .. } => "sampled",
        });
        self.elements = Some(check.elements);
    }

    /// Fills in the times, and values derived from them.
    pub fn times(&mut self, gemm: &Gemm, own: &Batches, cublas: Option<&Batches>, rates: &Rates) {
        let median = stats::median(&own.ms);
        self.samples = Some(own.ms.len());
        self.launches = Some(own.launches);
        self.gap_free = Some(own.gap_free && cublas.is_none_or(|cublas| cublas.gap_free));
        self.time_median = Some(median);
        self.time_deviation = Some(stats::deviation(&own.ms));
        (self.time_min, self.time_max) = range(&own.ms);
        self.gflops = finite(gemm.flops() / median * 1e-6);
        let gbytes = finite(gemm.bytes() as f64 / median * 1e-6);
        self.ffma_gflops = finite(rates.ffma);
        self.copy_gbytes = finite(rates.copy);
        self.percent_of_ffma = percent(self.gflops, self.ffma_gflops);
        self.percent_of_copy = percent(gbytes, self.copy_gbytes);

        let Some(cublas) = cublas else { return };
        let cublas_median = stats::median(&cublas.ms);
        self.cublas_launches = Some(cublas.launches);
        self.cublas_median = Some(cublas_median);
        self.cublas_deviation = Some(stats::deviation(&cublas.ms));
        (self.cublas_min, self.cublas_max) = range(&cublas.ms);
        self.cublas_gflops = finite(gemm.flops() / cublas_median * 1e-6);
        let Some((ratio, interval)) = stats::paired_ratio(&cublas.ms, &own.ms) else { return };
        self.ratio = Some(ratio);
        let Some((low, high)) = interval else { return };
        (self.ratio_low, self.ratio_high) = (Some(low), Some(high));
        self.verdict = Some(match () {
            () if low > 1.0 && ratio >= 1.0 + BIAS => Verdict::Faster,
            () if high < 1.0 && ratio <= 1.0 - BIAS => Verdict::Slower,
            () => Verdict::WithinNoise,
        });
    }

    /// Fills in the host's time per call.
    ///
    /// This excludes the software device, where the call is the product itself.
    pub fn enqueue(&mut self, own: &Batches, cublas: Option<&Batches>) {
        let median = |batches: &Batches| 1e3 * stats::median(&batches.enqueue_ms);
        self.enqueue_us = finite(median(own));
        self.cublas_enqueue_us = cublas.and_then(|cublas| finite(median(cublas)));
    }

    /// Fills in the use of the GPU's units.
    pub fn load(&mut self, load: &Load) {
        self.percent_of_issue = load.percent_of_issue;
        self.percent_of_shared = load.percent_of_shared;
        self.percent_of_l1 = load.percent_of_l1;
        self.blocks = load.blocks;
        self.limited = load.limit();
        self.limit = self.limited.map(Limit::name);
        self.limit_percent = self.limited.and_then(Limit::percent);
    }

    /// Fills in the state of the GPU during the measurement.
    pub fn conditions(&mut self, conditions: &Conditions) {
        let Conditions { sm_mhz, memory_mhz, watts, celsius, throttled, .. } = conditions;
        self.sm_mhz_min = sm_mhz.map(|range| range.0);
        self.sm_mhz_max = sm_mhz.map(|range| range.1);
        self.memory_mhz = memory_mhz.map(|range| range.0);
        self.watts = *watts;
        self.celsius = *celsius;
        self.throttled = throttled.as_ref().map(|reasons| reasons.join("; "));
    }
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
    use gemm_verify::{Bound, Deviation};

    const RATES: Rates = Rates { ffma: 60_000.0, copy: 4000.0 };

    fn batches(ms: &[f64]) -> Batches {
        let (ms, enqueue_ms) = (ms.to_vec(), vec![0.002; ms.len()]);
        Batches { launches: 7, ms, enqueue_ms, gap_free: true }
    }

    fn row(own: &[f64], cublas: &[f64]) -> Row {
        let gemm = Gemm::new(1000, 2000, 500);
        let mut row = Row::new(&Title::default(), &gemm, 42);
        row.times(&gemm, &batches(own), Some(&batches(cublas)), &RATES);
        row
    }

    #[test]
    fn ratios_are_of_pairs() {
        // Clocks that halve during the run do not change the ratios.
        let own = [1.0, 1.2, 1.4, 1.6, 1.8, 2.0];
        let row = row(&own, &own.map(|ms| 1.1 * ms));
        assert_relative_eq!(row.ratio.unwrap(), 1.1, max_relative = 1e-12);
        assert_relative_eq!(row.ratio_low.unwrap(), 1.1, max_relative = 1e-12);
        assert_eq!(row.verdict, Some(Verdict::Faster));
        assert_relative_eq!(row.time_median.unwrap(), 1.5);
        assert_relative_eq!(row.time_deviation.unwrap(), 0.3, max_relative = 1e-12);
        assert_eq!((row.time_min, row.time_max), (Some(1.0), Some(2.0)));
    }

    #[test]
    fn noise_is_named() {
        let own = [1.0; 6];
        let verdict = |cublas: [f64; 6]| row(&own, &cublas).verdict;
        assert_eq!(verdict([0.98, 0.99, 1.0, 1.01, 1.02, 1.03]), Some(Verdict::WithinNoise));
        assert_eq!(verdict([0.98, 0.99, 0.98, 0.99, 0.97, 0.999]), Some(Verdict::Slower));
        assert_eq!(verdict([1.006; 6]), Some(Verdict::Faster));
        assert_eq!(verdict([1.004; 6]), Some(Verdict::WithinNoise));
        assert_eq!(verdict([0.996; 6]), Some(Verdict::WithinNoise));
        // Too few samples for a verdict, and a time of zero.
        assert_eq!(row(&own[..5], &own[..5]).verdict, None);
        let zero = row(&[0.0; 6], &[0.0; 6]);
        assert_eq!((zero.ratio, zero.gflops, zero.percent_of_ffma), (None, None, None));
    }

    #[test]
    fn calls_cost_microseconds() {
        let mut row = row(&[1.0; 6], &[1.0; 6]);
        assert_eq!((row.enqueue_us, row.cublas_enqueue_us), (None, None));
        row.enqueue(&batches(&[1.0; 3]), None);
        assert_relative_eq!(row.enqueue_us.unwrap(), 2.0, max_relative = 1e-12);
        assert_eq!(row.cublas_enqueue_us, None);
    }

    #[test]
    fn roofs_are_the_measured_ones() {
        let row = row(&[0.1; 6], &[0.2; 6]);
        // 2e9 FLOP and 14e6 bytes in 0.1 ms.
        assert_relative_eq!(row.gflops.unwrap(), 20_000.0, max_relative = 1e-12);
        assert_relative_eq!(row.cublas_gflops.unwrap(), 10_000.0, max_relative = 1e-12);
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
            row.errors([own, own], cublas);
        };
        let mut row = row(&[1.0; 6], &[1.0; 6]);
        errors(&mut row, &check(2.2e-4), Some(&check(2e-4)));
        // Nine elements pass up to 1 + 8 / sqrt(3) times the bound.
        let luck = 1.0 + 8.0 / 3f64.sqrt();
        let over = 2.2e-4 / 3e-4 / luck;
        assert_relative_eq!(row.rms_error_over_tolerance.unwrap(), over, max_relative = 1e-12);
        assert_relative_eq!(row.error_ratio.unwrap(), 1.1, max_relative = 1e-12);
        assert_relative_eq!(row.error_over_tolerance.unwrap(), 0.22, max_relative = 1e-12);
        // One error among nine elements; both now have the same largest error.
        let cublas = Check { squared_errors: 4.0 * 9e-8, ..check(3e-4) };
        errors(&mut row, &check(3e-4), Some(&cublas));
        assert_relative_eq!(row.rms_error.unwrap(), 1e-4, max_relative = 1e-12);
        assert_relative_eq!(row.cublas_rms_error.unwrap(), 2e-4, max_relative = 1e-12);
        assert_relative_eq!(row.rms_error_ratio.unwrap(), 0.5, max_relative = 1e-12);
        assert_eq!(row.error_ratio, Some(1.0));
        errors(&mut row, &check(0.0), Some(&check(0.0)));
        assert_eq!([row.error_ratio, row.rms_error_ratio], [Some(1.0); 2], "both exact");
        row.errors([&check(1e-9), &check(1e-3)], None);
        assert_relative_eq!(row.max_abs_error.unwrap(), 1e-3);
        assert_relative_eq!(row.error_over_tolerance.unwrap(), 1e-6, max_relative = 1e-12);
        assert_eq!([row.error_ratio, row.cublas_max_abs_error], [None; 2]);
        assert_eq!([row.rms_error_ratio, row.cublas_rms_error], [None; 2]);
    }
}
