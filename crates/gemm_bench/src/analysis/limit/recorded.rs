//! Compares the counts, shares and limits with the run that they are from.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use cuda_gemm::find_kernel;
use serde_json::Value;

use super::*;

fn recorded(name: &str) -> String {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runs/h200/ladder");
    fs::read_to_string(runs.join(name)).unwrap()
}

/// Nsight Compute's values for each kernel, by metric.
fn counted(name: &str) -> HashMap<String, HashMap<String, f64>> {
    let text = recorded(name);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let mut kernels: HashMap<String, HashMap<String, f64>> = HashMap::new();
    for row in reader.deserialize::<HashMap<String, String>>() {
        let row = row.unwrap();
        // Some rows describe only the launch.
        let Ok(value) = row["Metric Value"].replace(',', "").parse() else { continue };
        let metrics = kernels.entry(row["Kernel Name"].clone()).or_default();
        metrics.insert(row["Metric Name"].clone(), value);
    }
    kernels
}

#[test]
fn counts_are_those_of_the_run() {
    let mut compared = 0;
    for size in [4096u64, 2048, 512] {
        let fmas = size.pow(3) as f64 / 32.0;
        for (name, metrics) in counted(&format!("ncu-{size}.csv")) {
            let Some(profile) = find_kernel(&name).ok().and_then(Profile::of) else { continue };
            for (count, metric) in [
                (profile.instructions, "smsp__inst_executed.sum"),
                (profile.l1_cycles, "l1tex__data_pipe_lsu_wavefronts.sum"),
            ] {
                let error = (count - metrics[metric] / fmas).abs();
                assert!(error < 6e-4, "{name}: {metric}: {count}");
            }
            compared += 1;
        }
    }
    assert_eq!(compared, 32);
}

/// Compares shares that follow from a time with the hardware's counts in another run.
#[test]
fn shares_are_what_the_profiler_sees() {
    let profiled = counted("ncu-4096.csv");
    let mut compared = 0;
    for line in recorded("limits-4096.jsonl").lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let Some(ffma) = line["percent_of_ffma"].as_f64() else { continue };
        let name = line["kernel"].as_str().unwrap();
        let Some(profile) = find_kernel(name).ok().and_then(Profile::of) else { continue };
        assert!(ffma < profile.bound(128) * 1.03, "{name}: {ffma}");
        let metrics = &profiled[name];
        for (share, metric) in [
            (profile.percent_of_issue(ffma, 128), "smsp__issue_active"),
            (profile.percent_of_l1(ffma, 128), "l1tex__data_pipe_lsu_wavefronts"),
        ] {
            let seen = metrics[&format!("{metric}.avg.pct_of_peak_sustained_elapsed")];
            // The FMA peak is measured, and 2 % below that of the clock.
            assert!((share / seen - 1.0).abs() < 0.06, "{name}: {share} {seen}");
        }
        compared += 1;
    }
    assert_eq!(compared, 17);
}

/// Checks the limit of each recorded product: a busy unit, or latency if there is none.
#[test]
fn limits_follow_from_recorded_shares() {
    let mut seen = HashMap::new();
    for line in [recorded("limits-4096.jsonl"), recorded("limits-512.jsonl")].concat().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if !line["samples"].is_u64() {
            continue;
        }
        let share = |key: &str| line[key].as_f64();
        let load = Load {
            percent_of_ffma: share("percent_of_ffma"),
            percent_of_copy: share("percent_of_copy"),
            percent_of_issue: share("percent_of_issue"),
            percent_of_shared: share("percent_of_shared"),
            percent_of_l1: share("percent_of_l1"),
            percent_of_launch: share("percent_of_launch"),
            blocks: line["blocks"].as_u64(),
            multiprocessors: line["multiprocessors"].as_u64().map(|count| count as u32),
            ..Load::default()
        };
        let limit = load.limit();
        let shares = ["ffma", "copy", "issue", "shared", "l1"];
        let busiest = shares
            .into_iter()
            .filter_map(|unit| share(&format!("percent_of_{unit}")))
            .fold(0.0, f64::max);
        match limit {
            Some(Limit::Unit { percent, .. }) => assert!(percent >= BUSY, "{line}"),
            Some(Limit::Launch { .. }) => {}
            _ => assert!(busiest < BUSY, "{line}"),
        }
        let words = limit.map(|limit| limit.to_string()).unwrap_or_default();
        seen.insert((line["kernel"].as_str().unwrap().to_owned(), line["m"].as_u64()), words);
    }
    for (kernel, size, says) in [
        ("naive", 4096, "L1 bandwidth: 100 % of its peak"),
        ("smem_tile", 4096, "shared-memory bandwidth: 84 % of its peak"),
        ("tile2d", 4096, "latency: no unit is above 60 % of its peak (instruction issue)"),
        ("transposed", 4096, "instruction issue: 62 % of its peak"),
        ("persistent", 4096, "FMA throughput: 88 % of its peak"),
        ("cublas", 4096, "FMA throughput: 78 % of its peak"),
        ("tile2d", 512, "too few blocks: 16 for 132 multiprocessors"),
        // For cuBLAS only the rates are known, and neither is high here.
        ("cublas", 512, ""),
    ] {
        assert_eq!(seen[&(kernel.to_owned(), Some(size))], says, "{kernel} at {size}");
    }
}
