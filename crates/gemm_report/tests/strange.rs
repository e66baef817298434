//! Impossible results: any file gives a page, and every place in a picture is a number.

use std::path::Path;

use gemm_report::compare::Verdict;
use gemm_report::{File, compare, page, svg_files};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const NUMBERS: [&str; 32] = [
    "gflops",
    "cublas_gflops",
    "peak_gflops",
    "ffma_gflops",
    "copy_gbytes",
    "ratio",
    "ratio_low",
    "ratio_high",
    "share_of_cublas",
    "time_median",
    "cublas_median",
    "rms_error",
    "cublas_rms_error",
    "sm_mhz_min",
    "sm_mhz_max",
    "watts",
    "celsius",
    "limit_percent",
    "alpha",
    "beta",
    "max_abs_error",
    "percent_of_ffma",
    "percent_of_copy",
    "speedup",
    "tolerance",
    "time_min",
    "time_max",
    "error_ratio",
    "rms_error_ratio",
    "memory_mhz",
    "time_deviation",
    "cublas_deviation",
];

fn number() -> impl Strategy<Value = Value> {
    let values = [0.0, -1.0, 5e-324, 1e-300, 0.5, 1.0, 1.0000001, 3.0, 7e4, 1e300, 1.7e308];
    prop_oneof![
        Just(Value::Null),
        proptest::sample::select(values.to_vec()).prop_map(|it| json!(it))
    ]
}

fn row() -> impl Strategy<Value = String> {
    let sizes = [0u64, 1, 64, 4096, u64::MAX];
    let size = || proptest::sample::select(sizes.to_vec());
    let kernels = ["naive", "tile2d", "persistent", "auto", "cublas", "gone", "<&\"'\u{1b}\u{e9}"];
    (
        proptest::sample::select(kernels.to_vec()),
        (size(), size(), size(), any::<bool>()),
        proptest::collection::vec(number(), NUMBERS.len()),
        proptest::collection::vec(number(), 0..8),
        any::<bool>(),
    )
        .prop_map(|(kernel, (m, n, k, is_square), values, samples, is_bench)| {
            let mut row: Map<String, Value> =
                NUMBERS.iter().map(|name| (*name).to_owned()).zip(values).collect();
            let samples: Vec<Value> = samples.into_iter().filter(|one| !one.is_null()).collect();
            let median = row["time_min"].as_f64().unwrap_or(1.0);
            if is_bench {
                row.insert("samples_ms".into(), json!(samples));
                row.insert("cublas_samples_ms".into(), json!(samples));
            } else {
                row.remove("time_median");
                row.insert("time_ms".into(), json!({ "median": median, "samples": samples }));
                row.insert("rung".into(), json!(1));
            }
            row.insert("kernel".into(), json!(kernel));
            let [n, k] = if is_square { [m, m] } else { [n, k] };
            row.extend(
                [("m", m), ("n", n), ("k", k)].map(|(name, it)| (name.to_owned(), json!(it))),
            );
            Value::Object(row).to_string()
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn strange_results_are_drawn(rows in proptest::collection::vec(row(), 1..12), time in any::<u64>()) {
        let environment = json!({ "environment": { "device": "GPU", "unix_time": time } });
        let text = format!("{environment}\n{}\n", rows.join("\n"));
        let file = File::parse(Path::new("x.jsonl"), text.as_bytes()).unwrap();
        prop_assert!(page(std::slice::from_ref(&file)).ends_with("</html>\n"));
        let other = File::parse(Path::new("x.jsonl"), text.as_bytes()).unwrap();
        if let Ok(report) = compare(file.clone(), other, 0.01) {
            prop_assert_eq!(report.count(Verdict::Slower) + report.count(Verdict::Lost), 0);
        }
        for (name, svg) in svg_files(&file.into_runs().unwrap()) {
            prop_assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{name}: {svg}");
            prop_assert!(!svg.contains("=\"inf") && !svg.contains("=\"-inf") && !svg.contains(" inf"));
        }
    }
}
