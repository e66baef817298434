//! One result of `rungs bench` or `rungs run`: the record that commands write, save and read.
//!
//! Only the kernel and the shape must be in a line. Fields that an older file lacks are `None`.
//! Times are in milliseconds per launch, rates in GFLOP/s and GB/s (10^9). What is not known, or
//! not finite, is null in JSON and empty in CSV.

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// What can have been measured, in any unit.
const SENSIBLE: RangeInclusive<f64> = 1e-30..=1e30;

/// The shape of a product: C is M x N, K the inner dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Shape {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Whether A lies transposed.
    pub trans_a: bool,
    /// Whether B lies transposed.
    pub trans_b: bool,
    /// How many products there are.
    pub batch: usize,
    /// Groups of the rows of A and C, each with a B of its own; 0 if the rows are not grouped.
    #[serde(skip)]
    pub groups: usize,
}

impl Shape {
    /// Floating-point operations: two for each FMA.
    pub fn flops(self) -> f64 {
        2.0 * self.batch as f64 * self.m as f64 * self.n as f64 * self.k as f64
    }

    /// Bytes of A, B and C, each counted once.
    pub fn bytes(self) -> f64 {
        let [m, n, k] = [self.m, self.n, self.k].map(|size| size as f64);
        let count_b = self.groups.max(1) as f64;
        4.0 * self.batch as f64 * (m * k + count_b * k * n + m * n)
    }

    /// Whether it is one product with the same M, N and K, of matrices that are not transposed.
    pub fn is_square(self) -> bool {
        let is_one = self.ops().is_none() && self.batch == 1 && self.groups == 0;
        self.m == self.n && self.n == self.k && is_one
    }

    /// How A and B lie, unless neither is transposed.
    fn ops(self) -> Option<&'static str> {
        match (self.trans_a, self.trans_b) {
            (false, false) => None,
            (false, true) => Some("NT"),
            (true, false) => Some("TN"),
            (true, true) => Some("TT"),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.batch != 1 {
            write!(f, "{} of ", self.batch)?;
        }
        write!(f, "{} x {} x {}", self.m, self.n, self.k)?;
        self.ops().map_or(Ok(()), |ops| write!(f, " {ops}"))?;
        if self.groups > 0 {
            write!(f, " in {} groups", self.groups)?;
        }
        Ok(())
    }
}

/// The outcome of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// Right.
    #[default]
    Pass,
    /// Right, and the checks of the software device found something.
    Findings,
    /// Wrong.
    Fail,
    /// Right at first, and with other bits later.
    Unstable,
    /// Could not run.
    Refused,
    /// Stopped by the device.
    Fault,
}

impl Status {
    /// The outcome in a word, as in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Findings => "FINDINGS",
            Self::Fail => "FAIL",
            Self::Unstable => "UNSTABLE",
            Self::Refused => "REFUSED",
            Self::Fault => "FAULT",
        }
    }
}

/// Whether a ratio to cuBLAS differs from 1 significantly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Significantly faster than cuBLAS.
    #[serde(rename = "faster")]
    Faster,
    /// Neither faster nor slower.
    #[serde(rename = "within noise")]
    WithinNoise,
    /// Significantly slower.
    #[serde(rename = "slower")]
    Slower,
}

impl Verdict {
    /// The verdict in words, as in JSON.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::WithinNoise => "within noise",
            Self::Slower => "slower",
        }
    }
}

/// Which command made a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// `rungs --kernel`: one shape, one kernel or the whole ladder.
    #[default]
    Ladder,
    /// `rungs bench`: each result next to cuBLAS.
    Bench,
}

/// A result: what both commands write, and what each of them adds.
///
/// Serialised, it has what both write: [`Row::line`] is the whole line.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// The kernel's name, `auto` or `cublas`.
    pub kernel: String,
    /// The place in the ladder, from 1.
    pub rung: Option<usize>,
    /// The kernel that `auto` chose.
    pub chosen: Option<String>,
    /// Blocks that share each tile of C, for a kernel that can split K.
    pub splits: Option<u32>,
    /// Clusters that share the steps along K of all tiles, if they do.
    pub clusters: Option<u32>,
    /// Columns of a tile, if fewer than the kernel's.
    pub columns: Option<u32>,
    /// Whether C was stored as the transpose of the result, if that is not the way with fewer tiles.
    pub transposes_c: Option<bool>,
    /// Resident blocks per multiprocessor, if they were limited.
    pub blocks_per_multiprocessor: Option<u32>,
    /// Whether A and B were copied first, by choice.
    #[serde(default, deserialize_with = "null_is_default")]
    pub packed: bool,
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Whether A is stored transposed.
    #[serde(default, deserialize_with = "null_is_default")]
    pub trans_a: bool,
    /// Whether B is stored transposed.
    #[serde(default, deserialize_with = "null_is_default")]
    pub trans_b: bool,
    /// The number of products.
    #[serde(default = "one")]
    pub batch: usize,
    /// The rows of each group of a grouped product, as in `128,0,37`.
    pub groups: Option<String>,
    /// The factor of the product.
    pub alpha: Option<f32>,
    /// The factor of the old C.
    pub beta: Option<f32>,
    /// The operations on each element, as in `bias column, gelu`.
    ///
    /// If cublasLt lacks the epilogue, cuBLAS's time includes a pass over its stored result.
    pub epilogue: Option<String>,
    /// The precision, if it is not f32; in older files the type of A and B.
    #[serde(alias = "input")]
    pub compute: Option<String>,
    /// The type of C, if it is not f32.
    pub output: Option<String>,
    /// The outcome.
    #[serde(default)]
    pub status: Status,
    /// The reason, unless the row passed.
    pub reason: Option<String>,

    /// What the L2 cache held when a product started.
    pub l2: Option<String>,
    /// The number of sets of matrices in rotation.
    pub sets: Option<usize>,
    /// The seed of the random matrices; none for matrices from files.
    pub seed: Option<u64>,
    /// Samples of each.
    pub samples: Option<usize>,
    /// Launches per sample.
    pub launches: Option<u32>,
    /// Whether no launch can have waited for the host; none for single runs.
    pub gap_free: Option<bool>,

    /// The throughput at the median time.
    pub gflops: Option<f64>,
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
    /// Blocks of all launches; none for cuBLAS.
    pub blocks: Option<u64>,
    /// What limits the product, in a word.
    pub limit: Option<String>,
    /// The use of the limiting unit, or of the most used unit, in percent.
    pub limit_percent: Option<f64>,

    /// The largest error against the product in f64.
    ///
    /// `bench` compares with cuBLAS over the same elements: in TF32 its reference is of unrounded A
    /// and B, since cuBLAS rounds in another way.
    pub max_abs_error: Option<f64>,
    /// The root mean square error.
    pub rms_error: Option<f64>,

    /// The times, in the order taken.
    #[serde(default, skip_serializing, deserialize_with = "null_is_default")]
    pub samples_ms: Vec<f64>,
    /// cuBLAS's times, in turn with these, in results of `rungs bench`.
    #[serde(default, skip_serializing, deserialize_with = "null_is_default")]
    pub cublas_samples_ms: Vec<f64>,

    /// The command that made it.
    #[serde(skip)]
    pub origin: Origin,
    /// What only `rungs bench` writes.
    #[serde(skip)]
    pub bench: Bench,
    /// What only `rungs --kernel` writes.
    #[serde(skip)]
    pub ladder: Ladder,
    /// Everything that the line says, if it was read.
    #[serde(skip)]
    pub raw: Map<String, Value>,
}

/// The fields of `rungs bench` alone: a kernel next to cuBLAS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bench {
    /// The function of cuBLAS to compare with, if the fastest of several was chosen.
    pub baseline: Option<String>,
    /// Columns before and behind A, B and C in wider matrices, as in `1,2`; `None` for dense ones.
    pub margins: Option<String>,
    /// Launches per sample of cuBLAS.
    pub cublas_launches: Option<u32>,

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
    /// cuBLAS's throughput at the median time.
    pub cublas_gflops: Option<f64>,

    /// cuBLAS's largest error against the product in f64.
    pub cublas_max_abs_error: Option<f64>,
    /// The kernel's largest error divided by cuBLAS's; 1 if both are exact.
    pub error_ratio: Option<f64>,
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
    pub check: Option<String>,
    /// The number of compared elements.
    pub elements: Option<u64>,

    /// The lowest clock of the multiprocessors during the measurement, in MHz.
    #[serde(default, deserialize_with = "whole")]
    pub sm_mhz_min: Option<u32>,
    /// The highest clock of the multiprocessors, in MHz.
    #[serde(default, deserialize_with = "whole")]
    pub sm_mhz_max: Option<u32>,
    /// The lowest clock of the memory, in MHz.
    #[serde(default, deserialize_with = "whole")]
    pub memory_mhz: Option<u32>,
    /// The highest power draw, in watts.
    pub watts: Option<f64>,
    /// The highest temperature, in degrees Celsius.
    #[serde(default, deserialize_with = "whole")]
    pub celsius: Option<u32>,
    /// The reasons for lower clocks, separated by semicolons.
    pub throttled: Option<String>,
}

/// The fields of `rungs --kernel` alone: one product, and how it was checked.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ladder {
    /// The device, or several as in `2 x NVIDIA H200`.
    pub device: Option<String>,
    /// Devices that share the product, with `--gpus`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<usize>,
    /// How matrices travelled between these devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// `gpu` or `soft`.
    pub device_kind: Option<String>,
    /// As in `9.0`.
    pub compute_capability: Option<String>,
    /// The version of cuBLAS; none if cuBLAS does not take part.
    pub cublas_version: Option<String>,
    /// The checks of the software device; none on a GPU.
    pub checks: Option<String>,
    /// The schedule of the software device.
    pub schedule: Option<String>,
    /// The instruction budget of the software device.
    pub instruction_budget: Option<u64>,

    /// `gpu_events`, `host` for several GPUs, or `cpu_simulation` for the time the software device
    /// took, which says nothing about a GPU; `gflops` and `speedup` are from the same clock.
    pub clock: Option<String>,
    /// The times.
    pub time_ms: Option<Times>,
    /// The times on the first of several devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_time_ms: Option<Times>,
    /// The f32 peak of the device; none on the software device.
    pub peak_gflops: Option<f64>,
    /// The throughput as a share of that.
    pub percent_of_peak: Option<f64>,
    /// How many times as fast as the rung before, the last one that ran, or as one of several
    /// devices.
    pub speedup: Option<f64>,
    /// The 95 % interval of that median over pairs of samples; none for fewer than six.
    pub speedup_interval: Option<(f64, f64)>,
    /// The throughput divided by cuBLAS's; none unless both ran.
    pub share_of_cublas: Option<f64>,
    /// The 95 % interval of that.
    pub share_of_cublas_interval: Option<(f64, f64)>,
    /// The share of the time that an empty launch would take.
    pub percent_of_launch: Option<f64>,
    /// The device's multiprocessors, if it has blocks to fill them.
    pub multiprocessors: Option<u32>,

    /// The tolerance of the element with the largest error.
    pub tolerance: Option<f64>,
    /// The tolerance of the rms error; none for matrices from files, whose elements alone decide.
    pub rms_tolerance: Option<f64>,
    /// The errors against the product of A and B as they are, if it is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unrounded: Option<Errors>,
    /// How it was checked.
    pub check: Option<Check>,
    /// What the checks of the software device found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub findings: Option<Value>,
}

/// The times of a result of `rungs --kernel`, in milliseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Times {
    /// The median.
    pub median: f64,
    /// The 95 % interval of the median; none for fewer than six samples.
    pub interval: Option<(f64, f64)>,
    /// The mean.
    pub mean: Option<f64>,
    /// The shortest.
    pub min: Option<f64>,
    /// The longest.
    pub max: Option<f64>,
    /// All, in the order taken.
    #[serde(default)]
    pub samples: Vec<f64>,
}

/// Two errors of a result.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Errors {
    /// The largest.
    pub max_abs_error: Option<f64>,
    /// The root mean square error.
    pub rms_error: Option<f64>,
}

/// How a result of `rungs --kernel` was checked.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Check {
    /// `full`, or `sampled` for sampled rows and columns and Freivalds' check of all.
    pub method: String,
    /// Elements per group of Freivalds' check.
    pub group: Option<usize>,
    /// `probabilistic` or `worst_case`.
    pub bound: String,
    /// Compared elements.
    pub elements: u64,
    /// Elements beyond their tolerance.
    pub failures: u64,
    /// Elements that are not finite, because C's type is too narrow.
    #[serde(default)]
    pub overflowed: u64,
    /// The element with the largest share of its tolerance.
    pub worst: Option<Worst>,
}

/// The element with the largest share of its tolerance.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Worst {
    pub row: usize,
    pub col: usize,
    pub error: f64,
    pub tolerance: f64,
    pub ratio: f64,
}

/// All fields of a line.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    row: &'a Row,
    #[serde(flatten)]
    bench: Option<&'a Bench>,
    #[serde(flatten)]
    ladder: Option<&'a Ladder>,
    #[serde(skip_serializing_if = "Option::is_none")]
    samples_ms: Option<&'a [f64]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cublas_samples_ms: Option<&'a [f64]>,
}

fn one() -> usize {
    1
}

/// Null is as good as nothing.
fn null_is_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// A count. A file may hold any number in its place.
fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let number = Option::<f64>::deserialize(from)?;
    Ok(number.filter(|number| SENSIBLE.contains(number)).map(|number| number as u32))
}

impl Row {
    /// Reads a line, which is an object.
    pub(crate) fn read(raw: &Map<String, Value>) -> Result<Self, serde_json::Error> {
        let mut row = Self::deserialize(raw)?;
        // Null or not, each command always writes the keys of its own.
        if raw.contains_key("time_median") {
            (row.origin, row.bench) = (Origin::Bench, Bench::deserialize(raw)?);
        } else {
            row.ladder = Ladder::deserialize(raw)?;
        }
        row.forget_nonsense();
        row.raw = raw.clone();
        Ok(row)
    }

    /// The line in JSON: what both commands write, and what this one adds.
    pub fn line(&self) -> impl Serialize {
        let is_bench = self.origin == Origin::Bench;
        Line {
            row: self,
            bench: is_bench.then_some(&self.bench),
            ladder: (!is_bench).then_some(&self.ladder),
            samples_ms: is_bench.then_some(&self.samples_ms),
            cublas_samples_ms: is_bench.then_some(&self.cublas_samples_ms),
        }
    }

    /// The shape of the product.
    pub fn shape(&self) -> Shape {
        let Self { m, n, k, trans_a, trans_b, batch, .. } = *self;
        let groups = self.groups.as_ref().map_or(0, |rows| rows.split(',').count());
        Shape { m, n, k, trans_a, trans_b, batch, groups }
    }

    /// Treats impossible numbers as unknown, because they have no place on an axis.
    ///
    /// An example is the zero of an empty product or an exact result. [`Row::raw`] keeps them.
    fn forget_nonsense(&mut self) {
        let Self { bench, ladder, .. } = self;
        let numbers = [
            &mut bench.time_median,
            &mut bench.cublas_median,
            &mut bench.ratio,
            &mut bench.ratio_low,
            &mut bench.ratio_high,
            &mut bench.cublas_gflops,
            &mut bench.cublas_rms_error,
            &mut ladder.share_of_cublas,
            &mut self.gflops,
            &mut self.ffma_gflops,
            &mut self.copy_gbytes,
            &mut self.rms_error,
        ];
        for number in numbers {
            *number = number.filter(|number| SENSIBLE.contains(number));
        }
    }

    /// The median time in milliseconds.
    pub fn median_ms(&self) -> Option<f64> {
        self.bench.time_median.or(self.ladder.time_ms.as_ref().map(|times| times.median))
    }

    /// The times that were measured, in the order taken.
    pub fn samples_ms(&self) -> &[f64] {
        self.ladder.time_ms.as_ref().map_or(&self.samples_ms, |times| &times.samples)
    }

    /// The precision of the product: that of A and B, and of C where it may differ.
    pub fn precision(&self) -> String {
        let compute = self.compute.as_deref().unwrap_or("f32");
        match compute {
            "bf16" | "f16" => {
                format!("{compute}, C in {}", self.output.as_deref().unwrap_or("f32"))
            }
            _ => compute.to_owned(),
        }
    }

    /// Whether it is from the software device, whose times say nothing about a GPU.
    pub fn is_simulated(&self) -> bool {
        self.ladder.device_kind.as_deref() == Some("soft")
    }
}
