//! Results as lines of JSON.
//!
//! A field is null if it does not apply or is not finite. Lengths are in elements, times in
//! milliseconds.

use std::time::{SystemTime, UNIX_EPOCH};

use cuda_driver::soft;
use cuda_driver::soft_cuda::Findings;
use gemm_report::row::{Errors, Ladder, Times, Worst};
use gemm_report::{Origin, Row, Status};
use host::compare::row;
use host::format::is_control_or_format;
use host::time::Samples;
use host::verify::{Bound, Check, Method};
use host::{DeviceKind, Environment, Title};
use serde::Serialize;
use serde_json::Value;

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
    line(&row(record).line())
}

/// The line of a kernel that could not run.
pub fn refusal(setting: &Setting<'_>, title: &Title, reason: &str) -> String {
    let (status, reason) = (Status::Refused, Some(reason.to_owned()));
    line(&Row { status, reason, ..subject(setting, title) }.line())
}

/// The line of a kernel that stopped with a fault.
pub fn fault(setting: &Setting<'_>, title: &Title, reason: &str, findings: &Findings) -> String {
    let (status, reason) = (Status::Fault, Some(reason.to_owned()));
    let mut row = Row { status, reason, ..subject(setting, title) };
    row.ladder.findings = Some(value(findings));
    line(&row.line())
}

/// The first line of saved results: where and how they were made.
pub fn environment(setting: &Setting<'_>) -> Result<String, Error> {
    let Environment { host_version, ptx_arch, driver_version, cuda_version } =
        Environment::of(setting.device)?;
    let info = setting.device.info();
    let arguments = std::env::args_os().skip(1);
    let environment = gemm_report::Environment {
        // Without the program's path.
        command: arguments.map(|one| one.to_string_lossy().into_owned()).collect(),
        unix_time: SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|time| time.as_secs()),
        device: Some(setting.device_name()),
        device_kind: Some(setting.device_kind().to_owned()),
        compute_capability: Some(setting.compute_capability()),
        device_memory_bytes: Some(info.total_memory),
        peak: info.peak.map(|peak| peak.to_string()),
        driver_version,
        cuda_version,
        cublas_version: setting.cublas_version.map(str::to_owned),
        host_version: Some(host_version.to_owned()),
        ptx_arch: Some(ptx_arch.to_owned()),
    };
    Ok(line(&HeadLine { environment }))
}

#[derive(Serialize)]
struct HeadLine {
    environment: gemm_report::Environment,
}

fn value(findings: &Findings) -> Value {
    serde_json::to_value(findings).expect("plain data")
}

/// The row of what was asked for, without results.
fn subject(setting: &Setting<'_>, title: &Title) -> Row {
    let config = setting.device.is_soft().then(|| soft::device().config());
    let ladder = Ladder {
        device: Some(setting.device_name()),
        gpus: setting.gpus,
        device_kind: Some(setting.device_kind().to_owned()),
        compute_capability: Some(setting.compute_capability()),
        cublas_version: setting.cublas_version.map(str::to_owned),
        checks: config.map(|config| config.checks.to_string()),
        schedule: config.map(|config| config.schedule.to_string()),
        instruction_budget: config.and_then(|config| config.instruction_budget),
        ..Ladder::default()
    };
    Row {
        origin: Origin::Ladder,
        ladder,
        ..row::row(title, &setting.gemm, setting.groups, setting.seed)
    }
}

/// The row of a result.
fn row(record: &Record<'_>) -> Row {
    let Record { setting, title, samples, sets, load, check, .. } = record;
    let Record { speedup, share_of_cublas, findings, unrounded, transport, one, .. } = record;
    let gflops = samples.gflops(setting.gemm.flops());
    let peak = setting.peak().map(|peak| peak.gflops());
    let subject = subject(setting, title);
    let ladder = Ladder {
        clock: Some(match (samples.device, setting.gpus) {
            (DeviceKind::Gpu, None) => "gpu_events".to_owned(),
            (DeviceKind::Gpu, Some(_)) => "host".to_owned(),
            (DeviceKind::Soft, _) => "cpu_simulation".to_owned(),
        }),
        time_ms: Some(times(samples)),
        transport: transport.clone(),
        one_time_ms: one.as_ref().map(times),
        peak_gflops: peak,
        percent_of_peak: percent(gflops, peak),
        speedup: speedup.map(|ratio| ratio.median),
        speedup_interval: speedup.and_then(|ratio| ratio.interval),
        share_of_cublas: share_of_cublas.map(|ratio| ratio.median),
        share_of_cublas_interval: share_of_cublas.and_then(|ratio| ratio.interval),
        percent_of_launch: load.and_then(|load| load.percent_of_launch),
        multiprocessors: load.and_then(|load| load.multiprocessors),
        tolerance: check.largest.map(|d| d.tolerance),
        rms_tolerance: check.rms_tolerance(),
        unrounded: unrounded.as_ref().map(errors),
        check: Some(checked(check)),
        findings: Some(value(findings)),
        ..subject.ladder
    };
    let Errors { max_abs_error, rms_error } = errors(check);
    let mut row = Row {
        status: record.status(),
        samples: Some(samples.ms.len()),
        launches: Some(samples.launches),
        gap_free: samples.gap_free,
        l2: setting.l2.map(|l2| l2.name().to_owned()),
        sets: Some(*sets),
        gflops,
        max_abs_error,
        rms_error,
        ladder,
        ..subject
    };
    if let Some(load) = load {
        row::load(&mut row, load);
        (row.ffma_gflops, row.copy_gbytes) = (load.ffma_gflops, load.copy_gbytes);
        (row.percent_of_ffma, row.percent_of_copy) = (load.percent_of_ffma, load.percent_of_copy);
    }
    row
}

fn times(samples: &Samples) -> Times {
    Times {
        median: samples.median(),
        interval: samples.interval(),
        mean: Some(samples.mean()),
        min: Some(samples.min()),
        max: Some(samples.max()),
        samples: samples.ms.clone(),
    }
}

fn errors(check: &Check) -> Errors {
    Errors {
        max_abs_error: check.largest.map(|largest| largest.error),
        rms_error: check.rms_error(),
    }
}

fn checked(check: &Check) -> gemm_report::row::Check {
    gemm_report::row::Check {
        method: row::method(check).to_owned(),
        group: match check.method {
            Method::Full => None,
            Method::Sampled { group } => Some(group),
        },
        bound: match check.bound {
            Bound::Probabilistic => "probabilistic".to_owned(),
            Bound::WorstCase => "worst_case".to_owned(),
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
    }
}
