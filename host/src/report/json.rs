//! Results as lines of JSON.
//!
//! A field is null if it does not apply or is not finite. Lengths are in elements, times in
//! milliseconds.

use std::time::{SystemTime, UNIX_EPOCH};

use cuda_driver::soft;
use cuda_driver::soft_cuda::Findings;
use host::Environment;
use host::format::is_control_or_format;
use host::verify::{Bound, Method};
use host::{Clock, Compute, Element, L2, Limit, Load, Title};
use serde::Serialize;

use super::format::percent;
use super::record::{Record, Setting};
use crate::error::Error;

/// One line: an object, without what a terminal obeys.
pub fn line(value: &impl Serialize) -> String {
    // These types have string keys only, so serialisation cannot fail.
    let object = serde_json::to_string(value).expect("plain data");
    let mut line = String::with_capacity(object.len() + 1);
    for c in object.chars() {
        // Only in strings: JSON need not have escaped those from DEL on.
        if is_control_or_format(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                line += &format!("\\u{unit:04x}");
            }
        } else {
            line.push(c);
        }
    }
    line + "\n"
}

/// The line of a result.
pub fn result(record: &Record<'_>) -> String {
    line(&ResultLine::new(record))
}

/// The line of a kernel that could not run.
pub fn refusal(setting: &Setting<'_>, title: &Title, reason: &str) -> String {
    let subject = Subject::new(setting, title);
    line(&RefusalLine { subject, status: "REFUSED", reason, findings: None })
}

/// The line of a kernel that stopped with a fault.
pub fn fault(setting: &Setting<'_>, title: &Title, reason: &str, findings: &Findings) -> String {
    let subject = Subject::new(setting, title);
    line(&RefusalLine { subject, status: "FAULT", reason, findings: Some(findings) })
}

/// The first line of saved results: where and how they were made.
pub fn environment(setting: &Setting<'_>) -> Result<String, Error> {
    let Environment { host_version, ptx_arch, driver_version, cuda_version } =
        Environment::of(setting.device)?;
    let info = setting.device.info();
    let arguments = std::env::args_os().skip(1);
    let environment = EnvironmentLine {
        // Without the program's path.
        command: arguments.map(|one| one.to_string_lossy().into_owned()).collect(),
        unix_time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        device: &info.name,
        device_kind: setting.device_kind(),
        compute_capability: setting.compute_capability(),
        device_memory_bytes: info.total_memory,
        peak: info.peak.map(|peak| peak.to_string()),
        driver_version,
        cuda_version,
        cublas_version: setting.cublas_version,
        host_version,
        ptx_arch,
    };
    Ok(line(&HeadLine { environment }))
}

#[derive(Serialize)]
struct HeadLine<'a> {
    environment: EnvironmentLine<'a>,
}

#[derive(Serialize)]
struct EnvironmentLine<'a> {
    /// The arguments.
    command: Vec<String>,
    /// Seconds since 1970.
    unix_time: u64,
    device: &'a str,
    device_kind: &'static str,
    compute_capability: String,
    device_memory_bytes: u64,
    /// The f32 peak and where it comes from; null on the software device.
    peak: Option<String>,
    /// Null where the system does not tell.
    driver_version: Option<String>,
    cuda_version: Option<String>,
    /// Null if cuBLAS does not take part.
    cublas_version: Option<&'a str>,
    host_version: &'static str,
    ptx_arch: &'static str,
}

/// The subject of a line.
#[derive(Serialize)]
struct Subject<'a> {
    kernel: &'static str,
    /// The place in the ladder, from 1; null for what is not in it.
    rung: Option<usize>,
    /// The kernel that `auto` chose; null for all others.
    chosen: Option<&'static str>,
    /// Blocks that share each tile of C; null for a kernel that cannot split K.
    splits: Option<u32>,
    /// Clusters that share the steps along K of all tiles; absent for one per tile.
    #[serde(skip_serializing_if = "Option::is_none")]
    clusters: Option<u32>,
    /// Whether A and B are copied first, by choice.
    packed: bool,
    device: &'a str,
    device_kind: &'static str,
    compute_capability: String,
    m: usize,
    n: usize,
    k: usize,
    trans_a: bool,
    trans_b: bool,
    batch: usize,
    alpha: f32,
    beta: f32,
    /// What is done to each element, as in `bias column, gelu`; null if nothing is.
    epilogue: Option<String>,
    /// Null if the matrices came from files.
    seed: Option<u64>,
    /// How the product is computed, and the type of C; not there if they are f32.
    #[serde(skip_serializing_if = "Option::is_none")]
    compute: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'static str>,
    /// Null if cuBLAS does not take part.
    cublas_version: Option<&'a str>,
    /// Checks, schedule and instruction budget of the software device; null on a GPU.
    checks: Option<String>,
    schedule: Option<String>,
    instruction_budget: Option<u64>,
}

impl<'a> Subject<'a> {
    fn new(setting: &Setting<'a>, title: &Title) -> Self {
        let gemm = &setting.gemm;
        let config = setting.device.is_soft().then(|| soft::device().config());
        Self {
            kernel: title.name,
            rung: title.rung,
            chosen: title.chosen,
            splits: title.splits,
            clusters: title.clusters,
            packed: title.staged,
            device: &setting.device.info().name,
            device_kind: setting.device_kind(),
            compute_capability: setting.compute_capability(),
            m: gemm.m,
            n: gemm.n,
            k: gemm.k,
            trans_a: gemm.trans_a,
            trans_b: gemm.trans_b,
            batch: gemm.batch,
            alpha: gemm.alpha,
            beta: gemm.beta,
            epilogue: (!gemm.epilogue.is_none()).then(|| gemm.epilogue.to_string()),
            seed: setting.seed,
            compute: (gemm.compute != Compute::F32).then(|| gemm.compute.name()),
            output: (gemm.output != Element::F32).then(|| gemm.output.name()),
            cublas_version: setting.cublas_version,
            checks: config.map(|config| config.checks.to_string()),
            schedule: config.map(|config| config.schedule.to_string()),
            instruction_budget: config.and_then(|config| config.instruction_budget),
        }
    }
}

#[derive(Serialize)]
struct RefusalLine<'a> {
    #[serde(flatten)]
    subject: Subject<'a>,
    status: &'static str,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    findings: Option<&'a Findings>,
}

#[derive(Serialize)]
struct ResultLine<'a> {
    #[serde(flatten)]
    subject: Subject<'a>,
    /// How many samples were taken of the time.
    samples: usize,
    /// Launches per sample.
    launches: u32,
    /// Whether no launch can have waited for the host; null for single runs on the software device.
    gap_free: Option<bool>,
    /// What the L2 cache held when a product started; null on the software device.
    l2: Option<L2>,
    /// Sets of matrices that took turns.
    sets: usize,
    /// `gpu_events`, or `cpu_simulation` for the time the software device took, which
    /// says nothing about a GPU; `gflops` and `speedup` are from the same clock.
    clock: &'static str,
    time_ms: Times,
    /// At the median time. Null if there is nothing to compute.
    gflops: Option<f64>,
    /// Null on the software device.
    peak_gflops: Option<f64>,
    percent_of_peak: Option<f64>,
    /// How many times as fast as the rung before, the last one that ran. Null for the
    /// first, and for one that runs alone.
    speedup: Option<f64>,
    /// The 95 % interval of that median over pairs of samples; null for fewer than six.
    speedup_interval: Option<(f64, f64)>,
    /// The throughput divided by cuBLAS's. Null unless both ran.
    share_of_cublas: Option<f64>,
    share_of_cublas_interval: Option<(f64, f64)>,
    /// What limits the product, in a word; null where that is not known, as on the software device.
    limit: Option<&'static str>,
    /// How much of that is used, or of what is used most.
    limit_percent: Option<f64>,
    /// How busy the GPU was.
    #[serde(flatten)]
    load: Load,
    /// The errors that decide. In TF32 they refer to A and B rounded to nearest.
    max_abs_error: Option<f64>,
    /// The tolerance of the element with the largest error.
    tolerance: Option<f64>,
    rms_error: Option<f64>,
    /// Null for matrices from files, whose elements alone decide.
    rms_tolerance: Option<f64>,
    /// The errors against the product of A and B as they are, where that is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    unrounded: Option<Unrounded>,
    /// `PASS`, `FAIL`, or `FINDINGS` for a right result about which checks found something.
    status: &'static str,
    check: CheckLine,
    /// What the checks of the software device found.
    findings: &'a Findings,
}

#[derive(Serialize)]
struct Times {
    median: f64,
    /// The 95 % interval of the median; null for fewer than six samples.
    interval: Option<(f64, f64)>,
    mean: f64,
    min: f64,
    max: f64,
    samples: Vec<f64>,
}

#[derive(Serialize)]
struct CheckLine {
    /// `full`, or `sampled` for sampled rows and columns and Freivalds' check of all.
    method: &'static str,
    /// Elements per group of Freivalds' check.
    group: Option<usize>,
    /// `probabilistic` or `worst_case`.
    bound: &'static str,
    elements: u64,
    failures: u64,
    overflowed: u64,
    /// The element with the largest share of its tolerance.
    worst: Option<Worst>,
}

#[derive(Serialize)]
struct Unrounded {
    max_abs_error: Option<f64>,
    rms_error: Option<f64>,
}

#[derive(Serialize)]
struct Worst {
    row: usize,
    col: usize,
    error: f64,
    tolerance: f64,
    ratio: f64,
}

impl<'a> ResultLine<'a> {
    fn new(record: &'a Record<'_>) -> Self {
        let Record { setting, title, samples, sets, load, check, .. } = record;
        let Record { speedup, share_of_cublas, findings, unrounded, .. } = record;
        let limit = load.and_then(|load| load.limit());
        let gflops = samples.gflops(setting.gemm.flops());
        let peak = setting.peak().map(|peak| peak.gflops());
        Self {
            subject: Subject::new(setting, title),
            samples: samples.ms().len(),
            launches: samples.launches(),
            gap_free: samples.gap_free(),
            l2: setting.l2,
            sets: *sets,
            clock: match samples.clock() {
                Clock::GpuEvents => "gpu_events",
                Clock::CpuSimulation => "cpu_simulation",
            },
            time_ms: Times {
                median: samples.median(),
                interval: samples.interval(),
                mean: samples.mean(),
                min: samples.min(),
                max: samples.max(),
                samples: samples.ms().to_vec(),
            },
            gflops,
            peak_gflops: peak,
            percent_of_peak: percent(gflops, peak),
            speedup: speedup.map(|ratio| ratio.median),
            speedup_interval: speedup.and_then(|ratio| ratio.interval),
            share_of_cublas: share_of_cublas.map(|ratio| ratio.median),
            share_of_cublas_interval: share_of_cublas.and_then(|ratio| ratio.interval),
            limit: limit.map(Limit::name),
            limit_percent: limit.and_then(Limit::percent),
            load: load.unwrap_or_default(),
            max_abs_error: check.largest.map(|d| d.error),
            tolerance: check.largest.map(|d| d.tolerance),
            rms_error: check.rms_error(),
            rms_tolerance: check.rms_tolerance(),
            unrounded: unrounded.map(|check| Unrounded {
                max_abs_error: check.largest.map(|d| d.error),
                rms_error: check.rms_error(),
            }),
            status: record.status(),
            check: CheckLine {
                method: match check.method {
                    Method::Full => "full",
                    Method::Sampled { .. } => "sampled",
                },
                group: match check.method {
                    Method::Full => None,
                    Method::Sampled { group } => Some(group),
                },
                bound: match check.bound {
                    Bound::Probabilistic => "probabilistic",
                    Bound::WorstCase => "worst_case",
                },
                elements: check.elements,
                failures: check.failures,
                overflowed: check.overflowed,
                worst: check.worst.map(|d| Worst {
                    row: d.row,
                    col: d.col,
                    error: d.error,
                    tolerance: d.tolerance,
                    ratio: d.ratio(),
                }),
            },
            findings,
        }
    }
}
