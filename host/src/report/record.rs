//! What there is to say about results: what commands hand to whatever prints or keeps it.

use cuda_driver::soft_cuda::Findings;
use host::device::Peak;
use host::time::Samples;
use host::verify::Check;
use host::{Compute, Device, Gemm, L2, Load, Title, stats};

/// What all results of one call have in common.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    pub device: &'a Device,
    pub gemm: Gemm,
    /// Of the random matrices; none if they came from files.
    pub seed: Option<u64>,
    /// The version of cuBLAS, if it takes part.
    pub cublas_version: Option<&'a str>,
    /// What the L2 cache holds when a product starts; none on the software device.
    pub l2: Option<L2>,
    /// Samples of each.
    pub samples: u32,
}

impl Setting<'_> {
    /// The peak that speeds are compared with; none on the software device, and for tensor cores, whose
    /// peak no driver says.
    pub fn peak(&self) -> Option<Peak> {
        self.device.info().peak.filter(|_| self.gemm.compute == Compute::F32)
    }

    /// For JSON.
    pub fn device_kind(&self) -> &'static str {
        if self.device.is_soft() { "soft" } else { "gpu" }
    }

    /// As in `9.0`.
    pub fn compute_capability(&self) -> String {
        let (major, minor) = self.device.info().capability;
        format!("{major}.{minor}")
    }
}

/// Everything there is to say about one result.
pub struct Record<'a> {
    pub setting: Setting<'a>,
    pub title: Title,
    pub samples: Samples,
    /// Sets of matrices that took turns.
    pub sets: usize,
    /// How busy the GPU was; none on the software device.
    pub load: Option<Load>,
    pub check: Check,
    /// Of A and B as they are, where `check` is of rounded ones.
    pub unrounded: Option<Check>,
    /// How many times as fast as the rung before: the last one that ran.
    pub speedup: Option<Ratio>,
    /// The throughput as a share of cuBLAS's, measured in turn with it.
    pub share_of_cublas: Option<Ratio>,
    /// What the checks of the software device found.
    pub findings: Findings,
}

/// One time in proportion to another: the median over pairs of samples, and its 95 % interval.
#[derive(Clone, Copy)]
pub struct Ratio {
    pub median: f64,
    pub interval: Option<(f64, f64)>,
}

impl Ratio {
    /// How many times as long one takes as the other.
    pub fn of(one: &Samples, other: &Samples) -> Option<Self> {
        let (median, interval) = stats::paired_ratio(one.ms(), other.ms())?;
        Some(Self { median, interval })
    }
}

impl Record<'_> {
    /// The verdict in a word.
    pub fn status(&self) -> &'static str {
        match (self.check.passed(), self.findings.is_empty()) {
            (true, true) => "PASS",
            (true, false) => "FINDINGS",
            (false, _) => "FAIL",
        }
    }

    /// The same with how many findings there are, for people.
    pub fn verdict(&self) -> String {
        match (self.status(), self.findings.len()) {
            (status, 0) => status.to_owned(),
            ("FINDINGS", count) => format!("FINDINGS {count}"),
            (status, count) => format!("{status}, FINDINGS {count}"),
        }
    }
}
