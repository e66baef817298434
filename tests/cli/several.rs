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
    assert_eq!(result["gpus"], 3);
    assert_eq!(result["passed"], true);
    assert_eq!(result["time_ms"], Value::Null, "a simulated time says nothing");
    assert!(out.exists());

    for (device, options) in [
        ("soft", &["--compute", "tf32x3", "--trans-a", "--beta", "0.5"][..]),
        ("soft-sm90", &["--compute", "bf16", "--output", "bf16", "--trans-b", "--residual"]),
        ("soft-sm90", &["--compute", "f16", "--bias", "row", "--epilogue", "gelu"]),
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
fn what_is_for_one_device_is_refused() {
    for options in [
        &["--kernel", "naive"][..],
        &["--kernel", "all"],
        &["--batch", "2"],
        &["--l2", "warm"],
        &["--measure", "3"],
        &["--table", "t.json"],
        &["--save", "s.jsonl"],
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
