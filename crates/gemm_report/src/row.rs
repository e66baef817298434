//! One result of `rungs bench` or `rungs run`, under one set of names.
//!
//! Only the kernel and the shape must be there. Fields that an older file lacks are `None`.

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What can have been measured, in any unit.
const SENSIBLE: RangeInclusive<f64> = 1e-30..=1e30;

/// The shape of a product: C is M x N, K the inner dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shape {
    /// Rows of A and C.
    pub m: u64,
    /// Columns of B and C.
    pub n: u64,
    /// Columns of A, rows of B.
    pub k: u64,
    /// Whether A lies transposed.
    #[serde(default)]
    pub trans_a: bool,
    /// Whether B lies transposed.
    #[serde(default)]
    pub trans_b: bool,
    /// How many products there are.
    #[serde(default = "one")]
    pub batch: u64,
}

fn one() -> u64 {
    1
}

impl Shape {
    /// Floating-point operations: two for each FMA.
    pub fn flops(self) -> f64 {
        2.0 * self.batch as f64 * self.m as f64 * self.n as f64 * self.k as f64
    }

    /// Bytes of A, B and C, each counted once.
    pub fn bytes(self) -> f64 {
        let [m, n, k] = [self.m, self.n, self.k].map(|size| size as f64);
        4.0 * self.batch as f64 * (m * k + k * n + m * n)
    }

    /// Whether it is one product with the same M, N and K, of matrices that are not transposed.
    pub fn is_square(self) -> bool {
        self.m == self.n && self.n == self.k && self.ops().is_none() && self.batch == 1
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
        self.ops().map_or(Ok(()), |ops| write!(f, " {ops}"))
    }
}

/// What came of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
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

/// Whether a ratio to cuBLAS differs from 1 by more than its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Verdict {
    /// Surely faster than cuBLAS.
    #[serde(rename = "faster")]
    Faster,
    /// Neither.
    #[serde(rename = "within noise")]
    WithinNoise,
    /// Surely slower.
    #[serde(rename = "slower")]
    Slower,
}

/// Which command made a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `rungs --kernel`: one shape, one kernel or the whole ladder.
    Ladder,
    /// `rungs bench`: each result next to cuBLAS.
    Bench,
}

/// A result.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    /// The kernel's name, `auto` or `cublas`.
    pub kernel: String,
    /// The shape of the product.
    #[serde(flatten)]
    pub shape: Shape,
    /// The place in the ladder, from 1.
    pub rung: Option<usize>,
    /// The kernel that `auto` chose.
    pub chosen: Option<String>,
    /// Blocks that share each tile of C, for a kernel that can split K.
    pub splits: Option<u64>,
    /// Clusters that share the steps along K of all tiles, if there is not one for each tile.
    pub clusters: Option<u64>,
    /// Whether A and B were copied first, by choice.
    pub packed: Option<bool>,
    /// What came of it.
    #[serde(default)]
    pub status: Status,
    /// Why it could not run, or has no time.
    pub reason: Option<String>,
    /// The device, in results of `rungs --kernel`.
    pub device: Option<String>,
    /// `gpu` or `soft`, likewise.
    pub device_kind: Option<String>,
    /// The version of cuBLAS, likewise.
    pub cublas_version: Option<String>,
    /// The factor of the product, likewise.
    pub alpha: Option<f64>,
    /// The factor of the old C, likewise.
    pub beta: Option<f64>,
    /// What is done to each element, as in `bias column, gelu`.
    pub epilogue: Option<String>,
    /// How the product is computed, if not in f32; in older files the type of A and B.
    #[serde(alias = "input")]
    pub compute: Option<String>,
    /// The type of C, if it is not f32.
    pub output: Option<String>,
    /// What the L2 cache held.
    pub l2: Option<String>,

    time_ms: Option<Times>,
    time_median: Option<f64>,
    samples_ms: Option<Vec<f64>>,
    /// cuBLAS's time, in turn with these, in results of `rungs bench`.
    pub cublas_median: Option<f64>,
    /// Its samples.
    #[serde(default, deserialize_with = "none_is_empty")]
    pub cublas_samples_ms: Vec<f64>,

    /// cuBLAS's time divided by the kernel's.
    pub ratio: Option<f64>,
    /// The lower end of its 95 % interval.
    pub ratio_low: Option<f64>,
    /// The upper end.
    pub ratio_high: Option<f64>,
    /// What the ratio says.
    pub verdict: Option<Verdict>,
    /// The throughput divided by cuBLAS's, in results of `rungs --kernel`.
    pub share_of_cublas: Option<f64>,
    /// What limits the product, in a word, in results of `rungs --kernel`.
    pub limit: Option<String>,
    /// How much of that is used.
    pub limit_percent: Option<f64>,
    /// The throughput at the median time.
    pub gflops: Option<f64>,
    /// cuBLAS's.
    pub cublas_gflops: Option<f64>,
    /// The measured rate of multiply-adds.
    pub ffma_gflops: Option<f64>,
    /// The measured rate of copies.
    pub copy_gbytes: Option<f64>,

    /// The rms error.
    pub rms_error: Option<f64>,
    /// The rms error of cuBLAS.
    pub cublas_rms_error: Option<f64>,

    /// The lowest clock of the multiprocessors, in MHz.
    pub sm_mhz_min: Option<f64>,
    /// The highest.
    pub sm_mhz_max: Option<f64>,
    /// The highest power draw.
    pub watts: Option<f64>,
    /// The highest temperature.
    pub celsius: Option<f64>,
    /// What held the clocks down.
    pub throttled: Option<String>,

    /// Everything that the line says.
    #[serde(skip)]
    pub raw: Map<String, Value>,
}

#[derive(Clone, Debug, Deserialize)]
struct Times {
    median: f64,
    #[serde(default)]
    samples: Vec<f64>,
}

/// Null is as good as nothing.
fn none_is_empty<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl Row {
    /// From a line, which is an object.
    pub(crate) fn new(raw: &Map<String, Value>) -> Result<Self, serde_json::Error> {
        let mut row = Self::deserialize(raw)?;
        row.forget_nonsense();
        Ok(Self { raw: raw.clone(), ..row })
    }

    /// Treats impossible numbers as unknown, because they have no place on an axis.
    ///
    /// An example is the zero of an empty product or an exact result. [`Row::raw`] keeps them.
    fn forget_nonsense(&mut self) {
        let numbers = [
            &mut self.time_median,
            &mut self.cublas_median,
            &mut self.ratio,
            &mut self.ratio_low,
            &mut self.ratio_high,
            &mut self.share_of_cublas,
            &mut self.gflops,
            &mut self.cublas_gflops,
            &mut self.ffma_gflops,
            &mut self.copy_gbytes,
            &mut self.rms_error,
            &mut self.cublas_rms_error,
            &mut self.sm_mhz_min,
            &mut self.sm_mhz_max,
            &mut self.watts,
            &mut self.celsius,
        ];
        for number in numbers {
            *number = number.filter(|number| SENSIBLE.contains(number));
        }
    }

    /// Which command made it.
    pub fn origin(&self) -> Origin {
        // Null or not, each command always writes the keys of its own.
        match self.raw.contains_key("time_median") {
            true => Origin::Bench,
            false => Origin::Ladder,
        }
    }

    /// The median time in milliseconds.
    pub fn median_ms(&self) -> Option<f64> {
        self.time_median.or(self.time_ms.as_ref().map(|times| times.median))
    }

    /// The times that were measured, in the order taken.
    pub fn samples_ms(&self) -> &[f64] {
        match (&self.samples_ms, &self.time_ms) {
            (Some(samples), _) => samples,
            (None, Some(times)) => &times.samples,
            (None, None) => &[],
        }
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
        self.device_kind.as_deref() == Some("soft")
    }
}
