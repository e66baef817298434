//! Runs next to each other.

use std::path::Path;

use approx::assert_relative_eq;
use gemm_report::compare::{Change, Measure, Report, Verdict};
use gemm_report::{File, compare};

/// A file of this crate's `tests/runs`, or of the repository's `runs`.
fn recorded(name: &str) -> File {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = ["tests/runs", "../../runs"].map(|runs| own.join(runs).join(name));
    File::read(path.iter().find(|path| path.exists()).unwrap()).unwrap()
}

fn file(text: &str) -> File {
    File::parse(Path::new("some.jsonl"), text.as_bytes()).unwrap()
}

/// A row of `bench`, whose times and cuBLAS's differ by a little noise.
fn row(kernel: &str, ms: f64, cublas: f64) -> String {
    let samples = |ms: f64| -> Vec<f64> {
        (0..8).map(|place| ms * (1.0 + 1e-4 * f64::from(place * 5 % 8))).collect()
    };
    format!(
        "{{\"kernel\":\"{kernel}\",\"m\":64,\"n\":64,\"k\":64,\"status\":\"PASS\",\"time_median\":{ms},\
         \"samples_ms\":{:?},\"cublas_samples_ms\":{:?}}}\n",
        samples(ms),
        samples(cublas)
    )
}

fn only(report: &Report) -> &Change {
    let [change] = &report.changes[..] else { panic!("{report:?}") };
    change
}

#[test]
fn one_build_does_not_differ_from_itself() {
    let [before, after] = ["build-1.jsonl", "build-2.jsonl"].map(recorded);
    let report = compare(before, after, 0.01).unwrap();
    assert_eq!([report.changes.len(), report.count(Verdict::Unchanged)], [4, 4]);
    assert!(report.is_no_worse() && report.differences.is_empty());
    assert_relative_eq!(report.geometric_mean().unwrap(), 1.0, max_relative = 2e-3);
}

/// The notes of that run say so: 0.367 before and 1.067 now.
#[test]
fn what_became_faster_is_found() {
    let [before, after] = ["short-k-before.jsonl", "h200/f32/short-k.jsonl"].map(recorded);
    let report = compare(before, after, 0.01).unwrap();
    let change = &report.changes[0];
    assert_eq!(change.shape.to_string(), "1846 x 573 x 13");
    assert_eq!((change.measure, change.verdict), (Measure::RatioToCublas, Verdict::Faster));
    assert_relative_eq!(change.speedup.unwrap(), 1.067 / 0.367, max_relative = 0.01);
    assert!(change.p.unwrap() < 0.01 && change.speedup_low.unwrap() > 2.8);
}

/// In a ladder cuBLAS is a row of its own, which is compared by its time.
#[test]
fn ladders_are_compared_by_their_own_cublas() {
    let [before, after] = ["ladder-before.jsonl", "ladder.jsonl"].map(recorded);
    let report = compare(before, after, 0.01).unwrap();
    for change in &report.changes {
        let measure = match change.kernel.as_str() {
            "cublas" => Measure::Time,
            _ => Measure::RatioToCublas,
        };
        assert_eq!(change.measure, measure, "{}", change.kernel);
    }
    // `tma` was the name of another kernel.
    let tma = report.changes.iter().find(|change| change.kernel == "tma").unwrap();
    assert_eq!(tma.verdict, Verdict::Slower);
    assert_eq!([report.only_before, report.only_after], [0, 2]);
    // Later ones are measured in another way, and say so.
    let [before, after] = ["ladder-before.jsonl", "h200/ladder/limits-4096.jsonl"].map(recorded);
    let report = compare(before, after, 0.01).unwrap();
    let [l2] = &report.differences[..] else { panic!("{:?}", report.differences) };
    assert_eq!(
        (l2.what, l2.before.as_str(), l2.after.as_str()),
        ("L2 policy", "not recorded", "cold")
    );
    assert!(!report.is_no_worse());
}

/// Clocks that fall by a fifth are in both times.
#[test]
fn clocks_cancel_out() {
    let [before, after] = [row("auto", 1.0, 1.5), row("auto", 1.2, 1.8)];
    let report = compare(file(&before), file(&after), 0.01).unwrap();
    assert_eq!(only(&report).verdict, Verdict::Unchanged);
    assert_relative_eq!(only(&report).speedup.unwrap(), 1.0, max_relative = 2e-3);
    // Without cuBLAS in one of them there is nothing else to compare but times.
    let alone = after.replace("cublas_samples_ms", "none");
    let report = compare(file(&before), file(&alone), 0.01).unwrap();
    assert_eq!((only(&report).measure, only(&report).verdict), (Measure::Time, Verdict::Slower));
    assert_relative_eq!(only(&report).speedup.unwrap(), 1.0 / 1.2, max_relative = 2e-3);
}

/// Groups make another product, and so do other groups.
#[test]
fn groups_are_kept_apart() {
    let plain = row("auto", 1.0, 1.5);
    let with = |rows: &str| plain.replace("\"m\"", &format!("\"groups\":\"{rows}\",\"m\""));
    let both = plain.clone() + &with("60,4") + &with("32,32");
    let report = compare(file(&both), file(&(plain.clone() + &with("32,32"))), 0.01).unwrap();
    assert_eq!((report.changes.len(), report.only_before), (2, 1));
    let [one, grouped] = &report.changes[..] else { panic!() };
    assert_eq!((one.groups.as_deref(), grouped.groups.as_deref()), (None, Some("32,32")));
    assert_eq!(grouped.shape.to_string(), "64 x 64 x 64 in 2 groups");
    assert!(one.shape.is_square() && !grouped.shape.is_square());
    assert_eq!(grouped.shape.bytes() - one.shape.bytes(), 4.0 * 64.0 * 64.0);
    for (rows, says) in [("60,4", "60,4 before, 32,32 after"), ("64", "64 before, 32,32 after")] {
        let apart = compare(file(&with(rows)), file(&with("32,32")), 0.01).unwrap_err().to_string();
        assert!(apart.contains("their groups differ") && apart.contains(says), "{apart}");
    }
}

#[test]
fn a_threshold_is_for_what_is_sure_and_small() {
    let [before, after] = [row("auto", 1.0, 1.5), row("auto", 1.005, 1.5)];
    let verdict =
        |threshold| only(&compare(file(&before), file(&after), threshold).unwrap()).verdict;
    assert_eq!([verdict(0.01), verdict(0.001)], [Verdict::Unchanged, Verdict::Slower]);
}

#[test]
fn what_is_not_right_any_more_is_lost() {
    let before = row("auto", 1.0, 1.5);
    let after = "{\"kernel\":\"auto\",\"m\":64,\"n\":64,\"k\":64,\"status\":\"FAIL\",\"reason\":\"wrong\",\
                 \"time_median\":null}\n";
    let report = compare(file(&before), file(after), 0.01).unwrap();
    assert_eq!(only(&report).verdict, Verdict::Lost);
    assert_eq!(only(&report).reason.as_deref(), Some("wrong"));
    assert!(!report.is_no_worse());
    // A right result beside it has no say: neither its times nor its ratios count.
    let mixed = row("auto", 0.5, 1.5) + after;
    let report = compare(file(&before), file(&mixed), 0.01).unwrap();
    let change = only(&report);
    assert_eq!((change.verdict, change.after, change.speedup), (Verdict::Lost, None, None));
    assert_eq!((change.samples, report.geometric_mean()), ([8, 0], None));
    // A result that never was right is no change.
    assert!(compare(file(after), file(&before), 0.01).is_err());
}

/// Two calls that added to one file.
#[test]
fn results_of_several_calls_are_taken_together() {
    let before = row("auto", 1.0, 1.5) + &row("auto", 1.01, 1.5);
    let report = compare(file(&before), file(&row("auto", 1.0, 1.5)), 0.01).unwrap();
    assert_eq!(only(&report).samples, [16, 8]);
}

#[test]
fn differences_are_named() {
    let with = |device: &str, cublas: &str| {
        let environment = format!(
            "{{\"environment\":{{\"device\":\"{device}\",\"cublas_version\":\"{cublas}\"}}}}\n"
        );
        file(&(environment + &row("auto", 1.0, 1.5)))
    };
    let report = compare(with("A", "12"), with("B", "13"), 0.01).unwrap();
    let words: Vec<_> = report
        .differences
        .iter()
        .map(|one| format!("{}: {} {}", one.what, one.before, one.after))
        .collect();
    assert_eq!(words, ["device: A B", "cuBLAS: 12 13"]);
}

/// A refused row does not say what the L2 cache held: it joins the first policy, never both.
#[test]
fn results_of_other_choices_are_apart() {
    let row = row("tile_64x64", 1.0, 1.5);
    let with = |field: &str| row.replace("\"m\"", &format!("{field},\"m\""));
    for field in [
        r#""blocks_per_multiprocessor":1"#,
        r#""margins":"1,2""#,
        r#""splits":2"#,
        r#""clusters":3"#,
        r#""packed":true"#,
        r#""alpha":2.0"#,
        r#""beta":0.5"#,
        r#""epilogue":"relu""#,
        r#""compute":"tf32""#,
        r#""output":"bf16""#,
    ] {
        let both = row.clone() + &with(field);
        let report = compare(file(&both), file(&both), 0.01).unwrap();
        assert_eq!(report.changes.len(), 2, "{field}");
        assert!(compare(file(&row), file(&with(field)), 0.01).is_err(), "{field}");
    }
    let refused = with(r#""reason":"full""#).replace("PASS", "REFUSED");
    let [cold, warm] = ["cold", "warm"].map(|l2| with(&format!(r#""l2":"{l2}""#)));
    let all = refused.clone() + &cold + &warm;
    assert_eq!(compare(file(&all), file(&all), 0.01).unwrap().changes.len(), 1);
    // What was right in one of two policies and is refused now is lost, in whatever place it
    // stands.
    let [before, after] = [cold.clone() + &warm, cold + &refused];
    let report = compare(file(&before), file(&after), 0.01).unwrap();
    assert!(!report.is_no_worse(), "{report:?}");
    // Null is what a line says of what it does not know.
    assert!(compare(file(&with(r#""packed":null"#)), file(&row), 0.01).is_ok());
}

#[test]
fn what_cannot_be_compared_says_why() {
    let error = |before, after| compare(before, after, 0.01).unwrap_err().to_string();
    let says = error(file(&row("auto", 1.0, 1.5)), file(&row("naive", 1.0, 1.5)));
    assert!(says.contains("no timed kernel and shape in common"), "{says}");
    let tune = recorded("h100/bf16/tune.jsonl");
    let says = error(file(&row("auto", 1.0, 1.5)), tune);
    assert!(says.contains("tune.jsonl holds a search of `rungs tune`, not results"), "{says}");
    let cold = row("auto", 1.0, 1.5).replace("\"m\"", "\"l2\":\"cold\",\"m\"");
    let says = error(file(&cold), file(&cold.replace("cold", "warm")));
    assert!(says.contains("L2 policies differ: cold before, warm after"), "{says}");
    let row = row("auto", 1.0, 1.5);
    let half = row.replace("\"m\"", "\"compute\":\"bf16\",\"output\":\"bf16\",\"m\"");
    let says = error(file(&row), file(&half));
    assert!(says.contains("precisions differ: f32 before, bf16 with C in bf16 after"), "{says}");
    let says = error(file(&row), file(&row.replace("\"k\":64", "\"k\":65")));
    assert!(says.contains("shapes differ: 64 x 64 x 64 before, 64 x 64 x 65 after"), "{says}");
    // What differs in more than one way is not explained.
    let says = error(file(&row), file(&half.replace("auto", "naive")));
    assert!(says.ends_with("there is nothing to compare"), "{says}");
}
