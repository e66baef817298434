//! Results, as commands pass them to the modules that print or save them.

use cuda_driver::soft_cuda::Findings;
use gemm_report::Status;
use host::Peak;
use host::time::Samples;
use host::verify::Check;
use host::{Compute, Device, Gemm, Groups, L2, Load, Title, stats};

/// The settings that all results of one call share.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// The device, or the first of several.
    pub device: &'a Device,
    /// Devices that share the product, with `--gpus`.
    pub gpus: Option<usize>,
    pub gemm: Gemm,
    /// The groups of a grouped product.
    pub groups: &'a Groups,
    /// The seed of random matrices; none for files.
    pub seed: Option<u64>,
    /// The version of cuBLAS, if it takes part.
    pub cublas_version: Option<&'a str>,
    /// What the L2 cache holds when a product starts; none on the software device.
    pub l2: Option<L2>,
    /// Samples of each.
    pub samples: u32,
}

impl Setting<'_> {
    /// The f32 peak; none on the software device and for tensor cores, whose peak no driver tells.
    pub fn peak(&self) -> Option<Peak> {
        self.device.info().peak.filter(|_| self.gemm.compute == Compute::F32)
    }

    /// The device's name, with the number of devices if several share the product.
    pub fn device_name(&self) -> String {
        let name = &self.device.info().name;
        self.gpus.map_or(name.clone(), |gpus| format!("{gpus} x {name}"))
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

/// One result.
pub struct Record<'a> {
    pub setting: Setting<'a>,
    pub title: Title,
    pub samples: Samples,
    /// Sets of matrices that took turns.
    pub sets: usize,
    /// How busy the GPU was; none on the software device.
    pub load: Option<Load>,
    pub check: Check,
    /// The check against unrounded A and B, if `check` rounds them.
    pub unrounded: Option<Check>,
    /// The speed-up over the last rung that ran, or of several devices over one; none on the
    /// software device.
    pub speedup: Option<Ratio>,
    /// The throughput as a share of cuBLAS's, measured in turn with it.
    pub share_of_cublas: Option<Ratio>,
    /// How matrices travelled between several devices.
    pub transport: Option<String>,
    /// The times on the first of several devices, if `bench` compares.
    pub one: Option<Samples>,
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
        let (median, interval) = stats::paired_ratio(&one.ms, &other.ms)?;
        Some(Self { median, interval })
    }
}

impl Record<'_> {
    /// What came of it.
    pub fn status(&self) -> Status {
        match (self.check.passed(), self.findings.is_empty()) {
            (true, true) => Status::Pass,
            (true, false) => Status::Findings,
            (false, _) => Status::Fail,
        }
    }

    /// The verdict with the number of findings.
    pub fn verdict(&self) -> String {
        match (self.status(), self.findings.len()) {
            (status, 0) => status.word().to_owned(),
            (Status::Findings, count) => format!("FINDINGS {count}"),
            (status, count) => format!("{}, FINDINGS {count}", status.word()),
        }
    }
}
