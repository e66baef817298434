//! `--gpus`: several devices.

use super::*;

#[test]
fn several_software_devices_compute_what_one_does() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("c.npy");
    let options = ["--gpus", "3", "--sizes", "50", "--format", "json", "--out"];
    let ran = soft(&[&options[..], &[out.to_str().unwrap()]].concat());
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{}", ran.stderr);
    let result = json(&ran);
    assert_eq!([&result["gpus"], &result["status"]], [&Value::from(3), &Value::from("PASS")]);
    assert_eq!(result["clock"], "cpu_simulation", "a simulated time says nothing");
    assert!(out.exists());

    for (device, options) in [
        ("soft", &["--compute", "tf32x3", "--trans-a", "--beta", "0.5"][..]),
        ("soft-sm90", &["--compute", "bf16", "--output", "bf16", "--trans-b", "--residual"]),
        ("soft-sm90", &["--compute", "f16", "--bias", "row", "--epilogue", "gelu"]),
        // FMAs compute these small products.
        ("soft", &["--compute", "tf32", "--beta", "1", "--samples", "2"]),
    ] {
        let common = ["--device", device, "--gpus", "2", "--sizes", "40,17x33x9"];
        let ran = run(&[&common[..], options].concat());
        assert_eq!(ran.code, Some(0), "{options:?}: {}", ran.stderr);
        let lines: Vec<_> = ran.stdout.lines().collect();
        assert_eq!(lines.len(), 2, "{}", ran.stdout);
        assert!(lines.iter().all(|line| line.starts_with("PASS")), "{}", ran.stdout);
    }
}

#[test]
fn saved_results_say_how_many_devices_there_were() {
    let folder = TempDir::new().unwrap();
    let [one, two, page] = ["one.jsonl", "two.jsonl", "report.html"]
        .map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    assert_eq!(soft(&["--size", "40", "--save", &one]).code, Some(0));
    let options = ["--gpus", "2", "--sizes", "40,17x33x9", "--beta", "0.5", "--save", &two];
    assert_eq!(soft(&options).code, Some(0));
    let saved = json_lines(&fs::read_to_string(&two).unwrap());
    let [head, square, other] = &saved[..] else { panic!("{saved:?}") };
    let device = head["environment"]["device"].as_str().unwrap();
    assert!(device.starts_with("2 x "), "{device}");
    for (row, k) in [(square, 40), (other, 9)] {
        assert_eq!((row["gpus"].as_u64(), row["k"].as_u64()), (Some(2), Some(k)), "{row}");
        assert_eq!(row["device"], device);
        assert!(row["transport"].is_string() && row["time_ms"]["samples"][0].is_number(), "{row}");
    }

    let ran = run(&["report", "--out", &page, &one, &two]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(fs::read_to_string(page).unwrap().contains(&format!("<h2>{device}</h2>")));
    // Times of one and of two devices are no times before and after a change.
    let options = ["--gpus", "2", "--size", "40", "--save", &two];
    assert_eq!(soft(&options).code, Some(0));
    let ran = run(&["compare", &one, &two]);
    expect_refusal(&ran, &[], &["numbers of devices differ: 1 before, 2 after"]);
}

#[test]
fn what_is_for_one_device_is_refused() {
    for options in [
        &["--kernel", "naive"][..],
        &["--kernel", "all"],
        &["--batch", "2"],
        &["--l2", "warm"],
        &["--measure", "3"],
        &["--table", "t.json"],
    ] {
        let all = [&["--gpus", "2", "--size", "8"], options].concat();
        expect_refusal(&soft(&all), &all, &["is for one device", "--gpus"]);
    }
    for (option, value) in [("--l2", "cold"), ("--sample-ms", "3")] {
        let all = ["bench", "--gpus", "2", "--sizes", "8", option, value];
        expect_refusal(&run(&all), &all, &[option, "is for one device"]);
    }
    let batch = ["--gpus", "2", "--sizes", "2*8"];
    expect_refusal(&soft(&batch), &batch, &["leave out --batch"]);
}
