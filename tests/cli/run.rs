//! What `run` computes, checks and says.

use super::*;

#[test]
fn every_kernel_passes() {
    for descriptor in LADDER {
        let device = if needs_hopper(descriptor) { "soft-sm90" } else { "soft" };
        let ran = run(&["--device", device, "--kernel", descriptor.name(), "--size", "100"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert_eq!(ran.stderr, "", "a chosen device and a good result need no words");
        for absent in ["average", "median", " to ", "simulated"] {
            assert!(!ran.stdout.contains(absent), "one sample is one number: {}", ran.stdout);
        }
        for text in [
            descriptor.name(),
            "PASS",
            "M 100 N 100 K 100",
            "seed 42",
            "CPU time",
            "says nothing about a GPU",
        ] {
            assert!(ran.stdout.contains(text), "{text}: {}", ran.stdout);
        }
    }
}

#[test]
fn the_software_device_comes_in_two_models() {
    for (device, capability) in [("soft", "8.0"), ("soft-sm90", "9.0")] {
        let ran =
            run(&["--device", device, "--kernel", "naive", "--size", "20", "--format", "json"]);
        let result = json(&ran);
        assert_eq!(result["compute_capability"], capability, "{device}");
        assert_eq!(result["status"], "PASS", "{device}");
    }
}

#[test]
fn json_has_every_field() {
    let ran = soft(&[
        "--kernel", "tile2d", "--m", "65", "--n", "130", "--k", "70", "--alpha", "-1.5", "--beta",
        "0.5", "--seed", "7", "--repeat", "3", "--format", "json",
    ]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let result = json(&ran);
    assert_eq!(result["kernel"], "tile2d");
    assert_eq!(result["device_kind"], "soft");
    assert!(result["device"].as_str().is_some_and(|name| !name.is_empty()));
    assert_eq!([&result["m"], &result["n"], &result["k"]], [65, 130, 70]);
    assert_eq!([&result["alpha"], &result["beta"]], [-1.5, 0.5]);
    assert_eq!(result["seed"], 7);
    assert_eq!(result["samples"], 3);
    assert_eq!(result["clock"], "cpu_simulation");
    let time = &result["time_ms"];
    let [min, median, mean, max] =
        ["min", "median", "mean", "max"].map(|name| time[name].as_f64().unwrap());
    assert!(0.0 < min && min <= median && median <= max && min <= mean && mean <= max);
    assert_eq!(time["samples"].as_array().unwrap().len(), 3);
    let flops = 2.0 * 65.0 * 130.0 * 70.0;
    assert_relative_eq!(
        result["gflops"].as_f64().unwrap(),
        flops / median * 1e-6,
        max_relative = 1e-9
    );
    // A simulated time has no share of a GPU's peak.
    assert!(result["peak_gflops"].is_null() && result["percent_of_peak"].is_null());
    let error = result["max_abs_error"].as_f64().unwrap();
    assert!(error > 0.0 && error <= result["tolerance"].as_f64().unwrap());
    assert_eq!(result["status"], "PASS");
    assert_eq!(result["check"]["method"], "full");
    assert_eq!(result["check"]["bound"], "probabilistic");
    assert_eq!(result["check"]["elements"], 65 * 130);
    assert_eq!(result["check"]["failures"], 0);
    assert!(result["check"]["worst"]["ratio"].as_f64().unwrap() <= 1.0);
}

#[test]
fn the_same_seed_gives_the_same_error() {
    let error = |seed: &str| {
        json(&soft(&["--kernel", "naive", "--size", "60", "--seed", seed, "--format", "json"]))
            ["max_abs_error"]
            .clone()
    };
    assert_eq!(error("1"), error("1"));
    assert_ne!(error("1"), error("2"));
}

#[test]
fn empty_products_pass() {
    for sizes in [["0", "5", "5"], ["5", "0", "5"], ["5", "5", "0"], ["0", "0", "0"]] {
        let [m, n, k] = sizes;
        let arguments =
            ["--kernel", "tile2d", "--m", m, "--n", n, "--k", k, "--beta", "2", "--format", "json"];
        let ran = soft(&arguments);
        assert_eq!(ran.code, Some(0), "{sizes:?}: {}", ran.stderr);
        let result = json(&ran);
        assert_eq!(result["status"], "PASS");
        assert!(result["gflops"].is_null());
    }
}

#[test]
fn all_is_the_ladder_in_order_and_auto() {
    let ran = run(&["--device", "soft-sm90", "--kernel", "all", "--size", "70"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let names: Vec<_> = ran
        .stdout
        .lines()
        .filter(|line| line.contains("  PASS"))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(
        names,
        LADDER.iter().map(|descriptor| descriptor.name()).chain(["auto"]).collect::<Vec<_>>()
    );
    for text in [
        "says nothing about a GPU",
        "  PASS, by tile_",
        &format!("{} right, 0 wrong, 0 refused", LADDER.len() + 1),
    ] {
        assert!(ran.stdout.contains(text), "{text}: {}", ran.stdout);
    }
    // Only GPUs have cuBLAS.
    for absent in ["cublas", "cuBLAS", "REFUSED"] {
        assert!(!ran.stdout.contains(absent), "{absent}: {}", ran.stdout);
    }
}

/// Without a GPU, kernels of Hopper have the software device that runs them.
#[test]
fn all_runs_every_rung_without_a_gpu() {
    for (kernel, size, right) in [("all", "40", LADDER.len() + 1), ("tma", "20", 1)] {
        let mut command = command(&["run", kernel, size, "-q"]);
        let ran = finish(command.env("CUDA_VISIBLE_DEVICES", "").output().unwrap());
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        assert_eq!(ran.stdout.matches(" PASS").count(), right, "{}", ran.stdout);
        for absent in ["simulated", "speed-up", "GFLOP/s"] {
            assert!(!ran.stdout.contains(absent), "{absent}: {}", ran.stdout);
        }
    }
}

#[test]
fn all_says_what_it_cannot_run_and_goes_on() {
    let k = ["--kernel", "all", "--m", "40", "--n", "50", "--k", "1000", "--beta", "0.5"];
    let ran = soft(&[&k[..], &["--format", "json"]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let lines = json_lines(&ran.stdout);
    assert_eq!(lines.len(), LADDER.len() + 1);
    for (i, (descriptor, line)) in LADDER.iter().zip(&lines).enumerate() {
        assert_eq!((&line["kernel"], &line["rung"]), (&descriptor.name().into(), &(i + 1).into()));
        assert_eq!([&line["m"], &line["n"], &line["k"]], [40, 50, 1000]);
        let why = match descriptor.name() {
            "smem_full" => Some(["256000 bytes", "232448"]),
            _ if needs_hopper(descriptor) => {
                Some(["needs compute capability 9.0 (sm_90a)", "has 8.0"])
            }
            _ => None,
        };
        if let Some(why) = why {
            assert_eq!(line["status"], "REFUSED");
            let reason = line["reason"].as_str().unwrap();
            assert!(why.iter().all(|why| reason.contains(why)), "{reason}");
            assert!(line["time_ms"].is_null());
            continue;
        }
        assert_eq!(line["status"], "PASS", "{line}");
        assert!(line["share_of_cublas"].is_null() && line["cublas_version"].is_null());
        // Simulated times are not compared.
        assert!(line["speedup"].is_null() && line["time_ms"]["median"].is_f64());
    }
    let [.., auto] = &lines[..] else { panic!() };
    assert_eq!((&auto["kernel"], &auto["status"]), (&"auto".into(), &"PASS".into()));
    assert!(auto["rung"].is_null() && auto["speedup"].is_null());
    assert!(auto["chosen"].as_str().is_some_and(|name| name.starts_with("tile_")), "{auto}");
    assert_eq!(auto["splits"], 1);
    assert!(soft(&k).stdout.contains("needs 256000 bytes"));
}

#[test]
fn all_on_a_gpu_is_compared_with_cublas() {
    let Some(gpu) = common::gpu() else { return };
    let is_hopper = gpu.info().capability == (9, 0);
    let files = Files::new();
    let save = files.path("runs.jsonl");
    let ran = run(&[
        "--device", "gpu", "--kernel", "all", "--size", "256", "--repeat", "3", "--format", "json",
        "--save", &save,
    ]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let lines = json_lines(&ran.stdout);
    let (cublas, kernels) = lines.split_last().unwrap();
    assert_eq!(kernels.len(), LADDER.len() + 1);
    let kept = json_lines(&fs::read_to_string(&save).unwrap());
    assert_eq!(kept[1..], lines);
    let environment = &kept[0]["environment"];
    assert!(environment["cuda_version"].as_str().is_some_and(|version| version.contains('.')));
    assert_eq!(environment["cublas_version"], cublas["cublas_version"]);
    let (rungs, refused): (Vec<_>, Vec<_>) = LADDER
        .iter()
        .zip(kernels)
        .partition(|(descriptor, _)| is_hopper || !needs_hopper(descriptor));
    assert!(refused.iter().all(|(_, line)| line["status"] == "REFUSED"));
    let right: Vec<_> = rungs.into_iter().map(|(_, line)| line).chain(kernels.last()).collect();
    for line in &right {
        assert_eq!((&line["status"], &line["clock"]), (&"PASS".into(), &"gpu_events".into()));
        assert_eq!(line["share_of_cublas"].is_null(), cublas["status"] == "REFUSED");
    }
    if cublas["status"] == "REFUSED" {
        assert!(cublas["reason"].as_str().unwrap().contains("cuBLAS"));
        return;
    }
    assert_eq!(cublas["status"], "PASS");
    assert_eq!(cublas["share_of_cublas"], 1.0);
    let samples = |line: &Value| -> Vec<f64> {
        let samples = line["time_ms"]["samples"].as_array().unwrap();
        samples.iter().map(|ms| ms.as_f64().unwrap()).collect()
    };
    for line in right {
        // Measured as `bench` measures.
        assert_eq!((&line["l2"], &line["samples"]), (&"cold".into(), &3.into()));
        assert!(line["sets"].as_u64().unwrap() > 1 && line["launches"].as_u64().unwrap() >= 1);
        for share in ["percent_of_ffma", "percent_of_copy", "limit_percent"] {
            let share = &line[share];
            assert!(share.is_null() || (0.0..101.0).contains(&share.as_f64().unwrap()), "{line}");
        }
        let share = line["share_of_cublas"].as_f64().unwrap();
        let pairs: Vec<_> =
            samples(cublas).iter().zip(samples(line)).map(|(c, own)| c / own).collect();
        assert_relative_eq!(share, host::stats::median(&pairs), max_relative = 1e-9);
    }
    // Beside other tests on the same GPU its limit is any.
    assert!(lines[0]["limit"].is_string(), "{}", lines[0]);

    // cuBLAS in another precision is no peer.
    let alone = ["--device", "gpu", "--kernel", "cublas", "--size", "64"];
    assert_eq!(run(&alone).code, Some(0));
    let ran = finish(command(&alone).env("NVIDIA_TF32_OVERRIDE", "1").output().unwrap());
    expect_refusal(&ran, &alone, &["NVIDIA_TF32_OVERRIDE=1", "unset"]);
}

/// This very program, run again without a GPU.
#[test]
fn what_is_skipped_is_said_and_can_be_made_to_fail() {
    let this = std::env::current_exe().unwrap();
    for test in
        ["run::all_on_a_gpu_is_compared_with_cublas", "bench::bench_on_a_gpu_compares_with_cublas"]
    {
        let mut again = Command::new(&this);
        again
            .args([test, "--exact", "--test-threads=2"])
            .env("CUDA_VISIBLE_DEVICES", "")
            .env_remove("REQUIRE_GPU");
        let skipped = finish(again.output().unwrap());
        assert_eq!(skipped.code, Some(0), "{}", skipped.stdout);
        let says = format!("skipped: {test}: ");
        assert!(skipped.stderr.contains(&says), "{}", skipped.stderr);
        assert!(skipped.stderr.contains("REQUIRE_GPU=1 makes this a failure"));
        let failed = finish(again.env("REQUIRE_GPU", "1").output().unwrap());
        assert_eq!(failed.code, Some(101), "{}", failed.stdout);
        assert!(failed.stdout.contains("REQUIRE_GPU is set"), "{}", failed.stdout);
    }
}

#[test]
fn results_are_kept_with_their_environment() {
    let files = Files::new();
    let save = files.path("runs.jsonl");
    let arguments = ["--kernel", "tile2d", "--size", "33", "--format", "json", "--save", &save];
    let first = soft(&arguments);
    let second = soft(&["--kernel", "all", "--size", "20", "--save", &save]);
    assert_eq!((first.code, second.code), (Some(0), Some(0)));
    let lines = json_lines(&fs::read_to_string(&save).unwrap());
    // Two environments, one result, and the ladder with auto.
    assert_eq!(lines.len(), 2 + 1 + LADDER.len() + 1);
    let environment = &lines[0]["environment"];
    let command: Vec<_> = ["--device", "soft"].iter().chain(&arguments).copied().collect();
    assert_eq!(environment["command"], Value::from(command));
    assert_eq!(environment["device_kind"], "soft");
    assert_eq!(environment["ptx_arch"], "sm_80");
    assert_eq!(environment["host_version"], env!("CARGO_PKG_VERSION"));
    assert!(environment["unix_time"].as_u64().unwrap() > 1_700_000_000);
    assert!(environment["driver_version"].is_null() && environment["cublas_version"].is_null());
    assert_eq!(lines[1], json(&first));
    assert!(!lines[2]["environment"].is_null());
    for (descriptor, line) in LADDER.iter().zip(&lines[3..]) {
        let status = if needs_hopper(descriptor) { "REFUSED" } else { "PASS" };
        assert_eq!((&line["kernel"], &line["status"]), (&descriptor.name().into(), &status.into()));
    }

    // A call that is refused leaves nothing.
    let none = files.path("none.jsonl");
    refused(&["--kernel", "cublas", "--size", "8", "--save", &none], &["cuBLAS"]);
    assert_eq!(files.names(), [Path::new(&save)]);
}

/// A reason that several have is said once.
#[test]
fn refusals_are_not_repeated() {
    let ran = soft(&["--kernel", "all", "--compute", "bf16", "--size", "8"]).stdout;
    assert_eq!(ran.matches("needs compute capability 9.0").count(), 1, "{ran}");
    assert!(ran.contains("REFUSED, as wgmma\n"), "{ran}");
}

#[test]
fn a_closed_pipe_is_no_drama() {
    let mut child = command(&["--device", "soft", "--kernel", "naive", "--size", "32"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ran = finish(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
}

#[test]
fn help_tells_the_exit_status() {
    let ran = run(&["run", "--help"]);
    assert_eq!(ran.code, Some(0));
    // However it is wrapped.
    let words: Vec<_> = ran.stdout.split_whitespace().collect();
    let words = words.join(" ");
    assert!(words.contains("The exit status is 0 if every result is right, 1 if one is wrong"));
    for text in
        ["rungs list", "tune", "cublas", "all compares the ladder", "--save", "auto", "status is 1"]
    {
        assert!(words.contains(text), "{text}");
    }
}
