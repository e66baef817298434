//! The command line, from outside: exit status, stdout, stderr and files.

#[path = "cli/checks.rs"]
mod checks;
#[path = "cli/commands.rs"]
mod commands;
mod common;
#[path = "cli/doctor.rs"]
mod doctor;
#[path = "cli/limits.rs"]
mod limits;
#[path = "cli/mistakes.rs"]
mod mistakes;
#[path = "cli/outputs.rs"]
mod outputs;
#[path = "cli/saved.rs"]
mod saved;
#[path = "cli/streams.rs"]
mod streams;
#[path = "cli/terminal.rs"]
mod terminal;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use approx::assert_relative_eq;
use host::kernels::{KernelAbi, KernelDescriptor, LADDER, TENSOR_CORE, TILES, f32_kernels};
use serde_json::Value;
use tempfile::TempDir;

/// Who has no processes, and owns nothing.
#[cfg(target_os = "linux")]
const OTHER_USER: u32 = 54_321;

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
    command.args(arguments);
    command
}

fn finish(output: Output) -> Ran {
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn run(arguments: &[&str]) -> Ran {
    finish(command(arguments).output().unwrap())
}

/// Runs on the software device, so that every machine does the same.
fn soft(arguments: &[&str]) -> Ran {
    run(&[&["--device", "soft"], arguments].concat())
}

/// Runs something that must fail, in a folder that must stay as it is; checks for exit
/// status 2, one sentence on stderr and nothing on stdout.
fn refused(arguments: &[&str], says: &[&str]) {
    let ran = soft(arguments);
    expect_refusal(&ran, arguments, says);
    assert_eq!(ran.stderr.trim_end().lines().count(), 1, "one sentence: {}", ran.stderr);
}

fn expect_refusal(ran: &Ran, arguments: &[&str], says: &[&str]) {
    assert_eq!(ran.code, Some(2), "{arguments:?}: {}", ran.stderr);
    assert_eq!(ran.stdout, "", "{arguments:?}");
    assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
    for text in says {
        assert!(ran.stderr.contains(text), "{arguments:?} should say {text:?}: {}", ran.stderr);
    }
}

/// Every line as an object.
fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn json(ran: &Ran) -> Value {
    assert_eq!(ran.stdout.lines().count(), 1, "one object per line: {}", ran.stdout);
    serde_json::from_str(&ran.stdout).unwrap()
}

/// A folder for `.npy` files.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file with this dictionary and these bytes of elements.
    fn raw(&self, name: &str, dictionary: &str, elements: &[u8]) -> String {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((dictionary.len() as u16).to_le_bytes());
        bytes.extend(dictionary.as_bytes());
        bytes.extend(elements);
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn matrix(
        &self,
        name: &str,
        rows: usize,
        cols: usize,
        f: impl Fn(usize, usize) -> f32,
    ) -> String {
        let dictionary =
            format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {cols}), }}");
        let elements: Vec<u8> =
            (0..rows * cols).flat_map(|i| f(i / cols, i % cols).to_le_bytes()).collect();
        self.raw(name, &dictionary, &elements)
    }

    fn fortran(
        &self,
        name: &str,
        rows: usize,
        cols: usize,
        f: impl Fn(usize, usize) -> f32,
    ) -> String {
        let dictionary =
            format!("{{'descr': '<f4', 'fortran_order': True, 'shape': ({rows}, {cols}), }}");
        let elements: Vec<u8> =
            (0..rows * cols).flat_map(|i| f(i % rows, i / rows).to_le_bytes()).collect();
        self.raw(name, &dictionary, &elements)
    }

    /// A copy of the program, for another user, who may not reach where it was built.
    ///
    /// By another process: what this one has open to write, the programs that other tests start
    /// have too, for a moment, and then nobody can run it.
    #[cfg(target_os = "linux")]
    fn program(&self) -> String {
        let copy = self.path("host");
        let status = Command::new("cp").args([env!("CARGO_BIN_EXE_host"), &copy]).status().unwrap();
        assert!(status.success());
        copy
    }

    fn names(&self) -> Vec<PathBuf> {
        let mut names: Vec<_> =
            fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        names
    }
}

/// The shape and the elements of a file this program wrote.
fn read_npy(path: &str) -> (String, Vec<f32>) {
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes[..8], *b"\x93NUMPY\x01\x00");
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert_eq!((10 + length) % 64, 0, "NumPy aligns the elements");
    let header = String::from_utf8(bytes[10..10 + length].to_vec()).unwrap();
    let elements = bytes[10 + length..].as_chunks().0.iter().map(|x| f32::from_le_bytes(*x));
    (header, elements.collect())
}

/// Whether only the software device of compute capability 9.0 runs this.
fn needs_hopper(descriptor: &KernelDescriptor) -> bool {
    descriptor.abi().has_tensor_maps()
}

#[test]
fn every_kernel_passes() {
    for descriptor in LADDER {
        let device = if needs_hopper(descriptor) { "soft-sm90" } else { "soft" };
        let ran = run(&["--device", device, "--kernel", descriptor.name(), "--size", "100"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert_eq!(ran.stderr, "", "a chosen device and a good result need no words");
        for text in [
            descriptor.name(),
            "PASS",
            "M 100 N 100 K 100",
            "seed 42",
            "average CPU time",
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
fn all_is_the_ladder_in_order_and_cublas() {
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
        "cublas ",
        "REFUSED",
        "cuBLAS runs on a GPU",
        "simulated speed-up",
        "says nothing about a GPU",
        "  PASS, by tile_",
        &format!("{} right, 0 wrong, 1 refused", LADDER.len() + 1),
    ] {
        assert!(ran.stdout.contains(text), "{text}: {}", ran.stdout);
    }
}

#[test]
fn all_says_what_it_cannot_run_and_goes_on() {
    let k = ["--kernel", "all", "--m", "40", "--n", "50", "--k", "1000", "--beta", "0.5"];
    let ran = soft(&[&k[..], &["--format", "json"]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let lines = json_lines(&ran.stdout);
    assert_eq!(lines.len(), LADDER.len() + 2);
    let mut before: Option<f64> = None;
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
        let median = line["time_ms"]["median"].as_f64().unwrap();
        // Over the last one that ran, not the one that was refused.
        match before {
            None => assert!(line["speedup"].is_null()),
            Some(before) => assert_relative_eq!(
                line["speedup"].as_f64().unwrap(),
                before / median,
                max_relative = 1e-9
            ),
        }
        before = Some(median);
    }
    let [.., auto, cublas] = &lines[..] else { panic!() };
    assert_eq!((&auto["kernel"], &auto["status"]), (&"auto".into(), &"PASS".into()));
    assert!(auto["rung"].is_null() && auto["speedup"].is_null());
    assert!(auto["chosen"].as_str().is_some_and(|name| name.starts_with("tile_")), "{auto}");
    assert_eq!(auto["splits"], 1);
    assert_eq!((&cublas["kernel"], &cublas["status"]), (&"cublas".into(), &"REFUSED".into()));
    assert!(cublas["rung"].is_null());
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
    for test in ["all_on_a_gpu_is_compared_with_cublas", "bench_on_a_gpu_compares_with_cublas"] {
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
    // Two environments, one result, and the ladder with auto and cuBLAS.
    assert_eq!(lines.len(), 2 + 1 + LADDER.len() + 2);
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

#[test]
fn explain_says_what_the_header_says_and_computes() {
    for descriptor in LADDER {
        let ran = run(&["explain", descriptor.name()]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", descriptor.name());
        let title = descriptor.header().next().unwrap();
        for text in [title, "The idea", "Geometry", "Arithmetic", "Peak of the GPU"] {
            assert!(ran.stdout.contains(text), "{text}: {}", ran.stdout);
        }
        assert!(ran.stdout.contains(&format!("BM = {}", descriptor.tile().bm)), "{}", ran.stdout);
    }
    // The documents' own numbers.
    for (name, says) in [
        ("naive", &["256 to global memory"][..]),
        ("vec4", &["88 to global memory", "naive: 84.4 % fewer", "5 K/16 instructions"]),
        ("tile2d", &["K/64 values", "K/4 values"]),
        ("smem2d", &["regtile: 97.5 % fewer", "smem2d_unaligned"]),
        (
            "persistent",
            &["persistent blocks", "stream-K", "3 K/16 values", "naive: 524288 times fewer"],
        ),
        ("tma", &["x walks the columns of C", "3 K/16 values", "16 bytes"]),
    ] {
        let ran = run(&["explain", name]);
        for text in says {
            assert!(ran.stdout.contains(text), "{text}: {}", ran.stdout);
        }
    }
    let explained = json(&run(&["explain", "tile2d", "--format", "json"]));
    assert_eq!((&explained["kernel"], &explained["rung"]), (&"tile2d".into(), &7.into()));
    assert_eq!(explained["global_values"], 1.0 / 64.0);
    assert_eq!(explained["shared_values"], 0.25);

    let all = run(&["explain"]);
    assert_eq!(all.code, Some(0));
    assert!(
        LADDER.iter().all(|descriptor| all.stdout.contains(descriptor.summary())),
        "{}",
        all.stdout
    );
    let ran = run(&["explain", "tile3d"]);
    expect_refusal(&ran, &["explain", "tile3d"], &["did you mean `tile2d`?"]);
}

#[test]
fn bench_needs_a_gpu() {
    // Hides the GPUs of a machine that has some. Simulated times are no performance.
    let files = Files::new();
    let save = files.path("rows.jsonl");
    for arguments in [
        &["bench"][..],
        &["bench", "--kernels", "all", "--sizes", "64,16x32x8", "--l2", "warm"],
        &["bench", "--kernels", "naive,cublas", "--format", "csv", "--save", &save],
    ] {
        let ran = finish(command(arguments).env("CUDA_VISIBLE_DEVICES", "").output().unwrap());
        let says = ["bench measures a GPU", "an NVIDIA GPU", "--device soft"];
        expect_refusal(&ran, arguments, &says);
    }
    assert!(files.names().is_empty(), "nothing was measured, so nothing is saved");
}

#[test]
fn bench_finds_mistakes_first() {
    let files = Files::new();
    let shapes = files.path("shapes.txt");
    fs::write(&shapes, "# M N K\n256\n16 4096\n").unwrap();
    let empty = files.path("empty.txt");
    fs::write(&empty, "# nothing\n").unwrap();
    let missing = files.path("missing.txt");
    let line = format!("{shapes}:3: `16 4096` has 2 numbers");
    for (arguments, says) in [
        (&["--shapes", &shapes][..], &[line.as_str(), "one shape per line"][..]),
        (&["--shapes", &empty], &["empty.txt: there is no shape in it"]),
        (&["--shapes", &missing], &["missing.txt"]),
        (&["--kernels", "naive,tile2"], &["did you mean `tile2d`?"]),
        (&["--save", "/"], &["it is a folder"]),
        (&["--sizes", "256,0"], &["a size is 0"]),
        (&["--sizes", "16x4096"], &["has 2 numbers"]),
        (&["--samples", "5"], &["--samples"]),
        (&["--l2", "hot"], &["cold", "warm"]),
        (&["--format", "xml"], &["csv"]),
    ] {
        let arguments = [&["bench"], arguments].concat();
        expect_refusal(&run(&arguments), &arguments, says);
    }
}

#[test]
fn bench_on_a_gpu_compares_with_cublas() {
    if common::gpu().is_none() {
        return;
    }
    let files = Files::new();
    let save = files.path("rows.jsonl");
    let ran = run(&[
        "bench",
        "--kernels",
        "tile2d,smem_full",
        "--sizes",
        "256,100x200x2000",
        "--samples",
        "6",
        "--format",
        "json",
        "--save",
        &save,
    ]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let lines = json_lines(&ran.stdout);
    // Two kernels, two shapes, two summaries; and the environment in the file.
    assert_eq!(lines.len(), 6);
    assert_eq!(json_lines(&fs::read_to_string(&save).unwrap())[1..], lines);
    for row in lines.iter().filter(|row| row["status"] == "PASS") {
        assert_eq!((&row["l2"], &row["samples"]), (&"cold".into(), &6.into()));
        assert!(row["sets"].as_u64().unwrap() > 1);
        for share in ["percent_of_ffma", "percent_of_copy"] {
            assert!((0.0..100.0).contains(&row[share].as_f64().unwrap()), "{row}");
        }
        let [cublas, own] =
            ["cublas_samples_ms", "samples_ms"].map(|name| row[name].as_array().unwrap().clone());
        assert_eq!(own.len(), 6);
        if !cublas.is_empty() {
            let [low, ratio, high] =
                ["ratio_low", "ratio", "ratio_high"].map(|name| row[name].as_f64().unwrap());
            assert!(low <= ratio && ratio <= high, "{row}");
        }
    }
    let refused: Vec<_> = lines.iter().filter(|row| row["status"] == "REFUSED").collect();
    assert!(refused.len() == 1 && refused[0]["kernel"] == "smem_full", "{refused:?}");
}

#[test]
fn list_shows_all_kernels() {
    let table = run(&["--list"]);
    assert_eq!((table.code, table.stderr.as_str()), (Some(0), ""));
    let lines = run(&["--list", "--format", "json"]);
    assert_eq!(lines.stdout.lines().count(), f32_kernels().count() + TENSOR_CORE.len() + 1);
    let last: Value = serde_json::from_str(lines.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["kernel"], "auto");
    assert!(table.stdout.lines().last().unwrap().starts_with("auto: "), "{}", table.stdout);
    for (descriptor, line) in LADDER.iter().chain(TILES).zip(lines.stdout.lines()) {
        assert!(
            table.stdout.contains(descriptor.name()) && table.stdout.contains(descriptor.summary())
        );
        let rung: Value = serde_json::from_str(line).unwrap();
        assert_eq!(rung["kernel"], descriptor.name());
        assert_eq!(rung["threads"], descriptor.threads());
        assert_eq!(rung["splits"], descriptor.abi() == KernelAbi::SplitK);
    }
    let listed = json_lines(&lines.stdout);
    for descriptor in TENSOR_CORE {
        let kernel = listed.iter().find(|kernel| kernel["kernel"] == descriptor.name()).unwrap();
        assert_eq!(kernel["splits"], descriptor.splits());
    }
}

/// Nobody gets bf16 who has not asked for it, and whoever has is told.
#[test]
fn tensor_cores_are_asked_for() {
    let size = ["--m", "70", "--n", "90", "--k", "100"];
    let with = |device, kernel, more: &[&str]| {
        run(&[&["--device", device, "--kernel", kernel][..], &size, more].concat())
    };
    for (kernel, compute) in [("wgmma_persistent", "bf16"), ("auto", "f16")] {
        let more = ["--compute", compute, "--trans-b", "--batch", "2", "--epilogue", "gelu"];
        for output in ["f32", compute] {
            let more = [&more[..], &["--bias", "column", "--output", output]].concat();
            let ran = with("soft-sm90", kernel, &more);
            assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
            let says = format!("rounded to {compute}, ");
            assert!(ran.stdout.contains(&says) && ran.stdout.contains("PASS"), "{}", ran.stdout);
            let line =
                json(&with("soft-sm90", kernel, &[&more[..], &["--format", "json"]].concat()));
            assert_eq!((&line["compute"], &line["status"]), (&compute.into(), &"PASS".into()));
            assert_eq!(line["output"].is_null(), output == "f32");
            assert!(line["percent_of_peak"].is_null());
        }
    }
    for compute in ["tf32", "tf32x3"] {
        for device in ["soft", "soft-sm90"] {
            let ran = with(device, "all", &["--compute", compute]);
            assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
            let is_right = ran.stdout.contains(" 0 wrong") && ran.stdout.contains("PASS, by tf32");
            assert!(is_right && ran.stdout.contains("TF32"), "{}", ran.stdout);
        }
    }
    let all = with("soft-sm90", "all", &["--compute", "bf16", "--format", "json"]);
    assert_eq!(all.code, Some(0), "{}", all.stderr);
    let of = |line: &str, field| serde_json::from_str::<Value>(line).unwrap()[field].clone();
    let statuses: Vec<_> = all.stdout.lines().map(|line| of(line, "status")).collect();
    let rungs = all.stdout.lines().filter(|line| !of(line, "rung").is_null());
    let rungs: Vec<_> = rungs.map(|line| of(line, "kernel")).collect();
    assert_eq!(rungs, ["mma", "wgmma", "wgmma_pipelined", "wgmma_persistent"]);
    assert_eq!(statuses.iter().filter(|status| **status == "PASS").count(), TENSOR_CORE.len() + 1);
    assert_eq!(statuses.last().unwrap(), "REFUSED", "cuBLAS, without a GPU");

    let old = with("soft", "wgmma_persistent", &["--compute", "bf16"]);
    assert!(old.code == Some(2) && old.stderr.contains("9.0 (sm_90a)"), "{}", old.stderr);
    let transposed = with("soft-sm90", "wgmma", &["--compute", "f16", "--trans-a"]);
    assert!(transposed.stderr.contains("takes no transposes"), "{}", transposed.stderr);
    for (kernel, more, says) in [
        ("wgmma", &[][..], "it is for bf16 and f16"),
        ("tile2d", &["--compute", "bf16"][..], "it is for f32"),
        ("tf32_64x64", &["--compute", "tf32x3"][..], "it is for tf32"),
        ("auto", &["--compute", "f64"][..], "[possible values: f32, tf32x3, tf32, bf16, f16]"),
        ("auto", &["--output", "bf16"][..], "C cannot be stored as bf16"),
        ("bf16", &[][..], "there is no kernel `bf16`"),
    ] {
        let refused = with("soft-sm90", kernel, more);
        let is_right = refused.code == Some(2) && refused.stderr.contains(says);
        assert!(is_right, "{kernel} {more:?}: {}", refused.stderr);
    }
    let explained = run(&["explain", "wgmma"]);
    assert!(explained.code == Some(0) && explained.stdout.contains("warpgroup"));
    // What a rung does not have is a reason, and the others run.
    let epilogue = soft(&["--kernel", "all", "--size", "20", "--epilogue", "relu"]);
    assert_eq!(epilogue.code, Some(0), "{}", epilogue.stderr);
    assert!(epilogue.stdout.contains("has no epilogue") && epilogue.stdout.contains("PASS"));
}

#[test]
fn splits_are_for_kernels_that_split_k() {
    let size = ["--m", "20", "--n", "30", "--k", "400", "--splits", "3"];
    let with = |kernel| soft(&[&["--kernel", kernel][..], &size].concat());
    let ran = with("tile_32x32");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
    let lines = soft(&[&["--kernel", "tile_32x32", "--format", "json"][..], &size].concat());
    assert_eq!(json(&lines)["splits"], 3);
    assert!(ran.stdout.contains("\nsplits:  3\n"), "{}", ran.stdout);
    // Each has at least one step along K, and there are fewer where there are fewer steps.
    let tile = TILES.iter().find(|descriptor| descriptor.name() == "tile_32x32").unwrap().tile();
    for (k, splits) in [(tile.bk + 1, 2), (tile.bk, 1)] {
        let k = k.to_string();
        let size = ["--kernel", "tile_32x32", "--m", "20", "--n", "30", "--k", &k];
        let asked = soft(&[&size[..], &["--splits", "1000"]].concat());
        let says = format!("\nsplits:  {splits} (1000 were asked for)\n");
        assert!(asked.stdout.contains(&says), "{}", asked.stdout);
        assert!(!soft(&size).stdout.contains("splits"));
    }
    assert!(json(&lines)["chosen"].is_null());
    for (kernel, says) in [
        ("naive", "naive does not split K"),
        ("all", "--splits is for one"),
        ("auto", "--splits is for one"),
    ] {
        let ran = with(kernel);
        assert_eq!(ran.code, Some(2));
        assert!(ran.stderr.contains(says), "{}", ran.stderr);
    }
    let half = |kernel, more: &[&str]| {
        let product = ["--compute", "bf16", "--m", "20", "--n", "30", "--k", "400"];
        let device = ["--device", "soft-sm90", "--format", "json", "--kernel", kernel];
        run(&[&device[..], &product, more].concat())
    };
    for asked in [1, 3] {
        let ran = json(&half("wgmma_split_64x16", &["--splits", &asked.to_string()]));
        assert_eq!((&ran["splits"], &ran["status"]), (&asked.into(), &"PASS".into()));
    }
    // As many as seem best, if it is not said.
    assert!(json(&half("wgmma_split_64x16", &[]))["splits"].as_u64() > Some(1));
    let ran = half("wgmma_persistent", &["--splits", "3"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("wgmma_persistent does not split K"), "{}", ran.stderr);
}

#[test]
fn copies_are_for_the_tiles() {
    let size = ["--m", "20", "--n", "31", "--k", "40", "--staged"];
    let with = |kernel| soft(&[&["--kernel", kernel, "--format", "json"][..], &size].concat());
    let ran = with("tile_32x32");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
    assert_eq!(json(&ran)["packed"], true);
    for kernel in ["naive", "auto", "all"] {
        let ran = with(kernel);
        assert_eq!(ran.code, Some(2));
        assert!(ran.stderr.contains("--staged is for"), "{}", ran.stderr);
    }
}

/// A table whose numbers were measured nowhere.
const TABLE: &str = include_str!("../crates/cuda_gemm/src/auto/table_for_tests.json");

#[test]
fn auto_says_what_it_chose() {
    let size = ["--kernel", "auto", "--m", "16", "--n", "300", "--k", "4000"];
    let ran = soft(&size);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert!(ran.stdout.contains("chosen:  tile_16x128\n"), "{}", ran.stdout);
    let files = Files::new();
    let table = files.path("table.json");
    fs::write(&table, TABLE).unwrap();
    let by_table = [&size[..], &["--table", &table]].concat();
    let result = json(&soft(&[&by_table[..], &["--format", "json"]].concat()));
    assert_eq!((&result["kernel"], &result["status"]), (&"auto".into(), &"PASS".into()));
    let (chosen, splits) = (result["chosen"].as_str().unwrap(), result["splits"].as_u64().unwrap());
    assert!(splits > 1, "{result}");
    let text = format!("chosen:  {chosen} in {splits} splits\n");
    assert!(soft(&by_table).stdout.contains(&text));

    // The same from `explain`, with what else was thought of.
    let explain = ["explain", "auto", "--device", "soft", "--table", &table, "--sizes"];
    let explain = [&explain[..], &["16x300x4000,64"]].concat();
    let ran = run(&explain);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    for text in [
        &format!("16x300x4000: {chosen} in {splits} splits\n"),
        "scaled from what was measured on Test GPU",
        "predicted",
    ] {
        assert!(ran.stdout.contains(text), "{text}: {}", ran.stdout);
    }
    let lines = json_lines(&run(&[&explain[..], &["--format", "json"]].concat()).stdout);
    let [first, second] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&first["chosen"], &first["splits"]), (&result["chosen"], &result["splits"]));
    let candidates = first["candidates"].as_array().unwrap();
    let times: Vec<_> = candidates.iter().map(|c| c["predicted_ms"].as_f64().unwrap()).collect();
    assert!(times.len() > 2 && times.is_sorted(), "{first}");
    assert_eq!(candidates[0]["kernel"], first["chosen"]);
    assert_eq!((&second["m"], &second["exception"]), (&64.into(), &false.into()));
    // Without measurements there is nothing to compare.
    let ran = run(&["explain", "auto", "--device", "soft"]);
    assert!(ran.code == Some(0) && ran.stdout.contains("makes the software device do the least"));
}

/// What `explain auto` says is what runs.
#[test]
fn the_choice_is_explained_in_each_precision() {
    let product = ["--trans-b", "--bias", "column", "--epilogue", "relu", "--format", "json"];
    for compute in ["f32", "tf32x3", "tf32", "bf16", "f16"] {
        let with = |before: &[&str], size: &str| {
            let device = ["--device", "soft-sm90", "--compute", compute, size, "70"];
            json(&run(&[before, &device, &product].concat()))
        };
        let explained = with(&["explain", "auto"], "--sizes");
        let ran = with(&["--kernel", "auto"], "--size");
        assert_eq!(explained["compute"], compute);
        assert!(explained["basis"].as_str().is_some_and(|basis| !basis.is_empty()));
        assert_eq!((&explained["chosen"], &ran["status"]), (&ran["chosen"], &"PASS".into()));
        // One for a kernel that cannot split K, of which a run says null.
        assert_eq!(explained["splits"].as_u64(), ran["splits"].as_u64().or(Some(1)));
    }
    let few_tiles = ["explain", "auto", "--compute", "bf16", "--device", "soft-sm90", "--sizes"];
    let few_tiles = [&few_tiles[..], &["16x256x4096", "--format", "json"]].concat();
    let few_tiles = json(&run(&few_tiles));
    assert!(few_tiles["splits"].as_u64() > Some(1), "{few_tiles}");
    for (compute, kernel) in
        [("f16", "mma_64x64"), ("tf32", "tf32_mma_64x64"), ("tf32x3", "tf32x3_mma_64x64")]
    {
        let product = ["--compute", compute, "--sizes", "64", "--format", "json"];
        let mma = json(&soft(&[&["explain", "auto"][..], &product].concat()));
        assert_eq!(mma["chosen"], kernel, "{mma}");
    }
    let rung = ["explain", "tile2d", "--compute", "f16"];
    expect_refusal(&run(&rung), &rung, &["each option of the product is for `explain auto`"]);
}

/// A reason that several have is said once.
#[test]
fn refusals_are_not_repeated() {
    let ran = soft(&["--kernel", "all", "--compute", "bf16", "--size", "8"]).stdout;
    assert_eq!(ran.matches("needs compute capability 9.0").count(), 1, "{ran}");
    assert!(ran.contains("REFUSED, as wgmma\n"), "{ran}");
}

#[test]
fn tables_that_cannot_be_used() {
    let files = Files::new();
    let table = files.path("table.json");
    fs::write(&table, TABLE.replacen("tile_64x64", "tile_64x46", 1)).unwrap();
    let line = TABLE.lines().position(|line| line.contains("tile_64x64")).unwrap() + 1;
    let place = format!("table.json:{line}: ");
    let says = [&place[..], "no kernel `tile_64x46`", "did you mean `tile_64x64`?", "host tune"];
    refused(&["--kernel", "auto", "--size", "8", "--table", &table], &says);
    for arguments in [
        &["explain", "auto", "--device", "soft", "--table", &table][..],
        &["bench", "--sizes", "8", "--table", &table],
    ] {
        expect_refusal(&run(arguments), arguments, &says);
    }
    let missing = files.path("missing.json");
    refused(&["--kernel", "auto", "--size", "8", "--table", &missing], &["missing.json"]);
    let other = ["--kernel", "naive", "--size", "8", "--table", &table];
    expect_refusal(&soft(&other), &other, &["--table is for --kernel auto"]);
}

/// Simulated times are no table for a GPU, unless somebody asks for them.
#[test]
fn tune_without_a_gpu_writes_nothing() {
    let files = Files::new();
    let out = files.path("table.json");
    // Hides the GPUs of a machine that has some.
    let arguments = ["tune", "--quick", "--out", &out];
    let ran = finish(command(&arguments).env("CUDA_VISIBLE_DEVICES", "").output().unwrap());
    assert_eq!(ran.code, Some(2), "{}", ran.stdout);
    assert!(ran.stderr.contains("add --device soft"), "{}", ran.stderr);
    assert!(!Path::new(&out).exists());
}

/// The whole of `tune`, with little to measure.
#[test]
fn tune_makes_a_table_that_auto_takes() {
    for device in ["soft", "soft-sm90"] {
        let files = Files::new();
        let folder = files.0.path().to_str().unwrap();
        let times = Files::new();
        let save = times.path("times.jsonl");
        let ran = run(&["tune", "--quick", "--device", device, "--out", folder, "--save", &save]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stderr.contains("simulated times say nothing"), "{}", ran.stderr);
        for text in ["tile_32x32", "33x20x70", "predicted", "model:", "errors:  not", "table:"] {
            assert!(ran.stdout.contains(text), "{text}: {}", ran.stdout);
        }
        for line in fs::read_to_string(&save).unwrap().lines() {
            let race: Value = serde_json::from_str(line).unwrap();
            assert!(race["cublas_rms_error"].is_null(), "{line}");
            assert!(race["runs"][0]["rms_error"].as_f64().unwrap() > 0.0, "{line}");
        }
        let [table] = &files.names()[..] else { panic!("{:?}", files.names()) };
        let text: Value = serde_json::from_str(&fs::read_to_string(table).unwrap()).unwrap();
        for name in ["tile_32x32", "tile_32x32_unaligned", "naive", "stage_operands", "peak_copy"] {
            assert_eq!(text["device"]["ptx_sha256"][name].as_str().unwrap().len(), 64, "{name}");
        }
        let table = table.to_str().unwrap();
        let auto = ["--device", device, "--kernel", "auto", "--size", "40", "--table", table];
        let ran = run(&auto);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stdout.contains("PASS") && ran.stdout.contains("chosen:"), "{}", ran.stdout);
        let explain = ["explain", "auto", "--device", device, "--table", table];
        let basis = run(&explain).stdout;
        assert!(basis.contains("basis:   measured on Software CUDA device"), "{basis}");
        assert!(!basis.contains("changed since"), "{basis}");
    }
}

/// For a device that cannot be measured now.
#[test]
fn tune_has_a_table_say_what_has_changed() {
    let files = Files::new();
    let table = files.path("table.json");
    // As if all had been measured with PTX that nobody knows any more.
    fs::write(&table, TABLE).unwrap();
    let explain = ["explain", "auto", "--device", "soft", "--table", &table];
    let changed = "tile_64x64, tile_64x64_unaligned, ";
    let ran = run(&explain);
    assert!(
        ran.stdout.contains(&format!("PTX that has changed since: {changed}")),
        "{}",
        ran.stdout
    );
    let ran = run(&["tune", "--accept", &table]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert!(ran.stdout.starts_with(&format!("changed: {changed}")), "{}", ran.stdout);
    let text: Value = serde_json::from_str(&fs::read_to_string(&table).unwrap()).unwrap();
    assert_eq!(text["device"]["changed_since"]["tile_64x64"].as_str().unwrap().len(), 64);
    assert_eq!(text["launch_ns"], 2000.0);
    // It is still said.
    assert!(run(&explain).stdout.contains(changed));

    let missing = files.path("missing.json");
    let arguments = ["tune", "--accept", &missing];
    expect_refusal(&run(&arguments), &arguments, &["missing.json"]);
    let arguments = ["tune", "--accept", &table, "--out", &table];
    assert_eq!(run(&arguments).code, Some(2));
}

#[test]
fn files_in_and_out() {
    let files = Files::new();
    let f = |i: usize, j: usize| ((i * 7 + j * 3) % 11) as f32 - 5.0;
    let g = |i: usize, j: usize| ((i * 5 + j * 2) % 13) as f32 - 6.0;
    let h = |i: usize, j: usize| (i + 10 * j) as f32;
    let (m, n, k) = (9, 12, 20);
    let expected: Vec<f32> = (0..m * n)
        .map(|at| {
            let (i, j) = (at / n, at % n);
            2.0 * (0..k).map(|l| f(i, l) * g(l, j)).sum::<f32>() - h(i, j)
        })
        .collect();
    let c = files.matrix("c.npy", m, n, h);
    let rows = (files.matrix("a.npy", m, k, f), files.matrix("b.npy", k, n, g));
    let columns = (files.fortran("af.npy", m, k, f), files.fortran("bf.npy", k, n, g));
    for (name, a, b) in
        [("1", &rows.0, &rows.1), ("2", &columns.0, &rows.1), ("3", &columns.0, &columns.1)]
    {
        let out = files.path(name);
        let ran = soft(&[
            "--kernel", "tile2d", "--a", a, "--b", b, "--c", &c, "--alpha", "2", "--beta", "-1",
            "--out", &out, "--format", "json",
        ]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let result = json(&ran);
        assert!(result["seed"].is_null());
        assert_eq!([&result["m"], &result["n"], &result["k"]], [m, n, k]);
        assert_eq!(result["check"]["bound"], "worst_case");
        let (header, elements) = read_npy(&out);
        assert!(header.contains("'shape': (9, 12)") && header.contains("'fortran_order': False"));
        assert_eq!(elements, expected);
    }
    // What was written can be read again, and replaced.
    let out = files.path("1");
    let ran = soft(&["--kernel", "naive", "--a", &out, "--b", &out, "--out", &out]);
    expect_refusal(&ran, &["shape"], &["B is 9 x 12", "needs 12 x 12"]);
    let square = files.matrix("s.npy", 9, 9, |i, j| f32::from(i == j));
    let ran = soft(&["--kernel", "naive", "--a", &square, "--b", &out, "--out", &out]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(read_npy(&out).1, expected);
    assert_eq!(files.names().len(), 9, "no temporary file is left");
}

#[test]
fn random_products_can_be_stored_too() {
    let files = Files::new();
    let out = files.path("c.npy");
    assert_eq!(
        soft(&["--kernel", "naive", "--m", "3", "--n", "4", "--k", "5", "--out", &out]).code,
        Some(0)
    );
    let (header, elements) = read_npy(&out);
    assert!(header.contains("(3, 4)") && elements.len() == 12);
}

#[test]
fn unused_c_is_said() {
    let files = Files::new();
    let square = files.matrix("s.npy", 2, 2, |i, j| f32::from(i == j));
    let ran = soft(&["--kernel", "naive", "--a", &square, "--b", &square, "--c", &square]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.stderr.contains("warning: --c is not read"), "{}", ran.stderr);
}

#[test]
fn overflow_is_said_and_nan_is_stored() {
    let files = Files::new();
    let huge = files.matrix("h.npy", 2, 2, |_, _| 3e38);
    let ran = soft(&["--kernel", "naive", "--a", &huge, "--b", &huge]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("warning: naive: 4 element(s) overflow f32"), "{}", ran.stderr);

    let nan = files.matrix("n.npy", 2, 2, |i, _| if i == 0 { f32::NAN } else { 1.0 });
    let out = files.path("out.npy");
    let ran =
        soft(&["--kernel", "naive", "--a", &nan, "--b", &nan, "--out", &out, "--format", "json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(json(&ran)["max_abs_error"].is_null(), "no element has a finite reference");
    assert!(read_npy(&out).1.iter().all(|x| x.is_nan()));
}

#[test]
fn unknown_kernels() {
    refused(
        &["--kernel", "tile2", "--size", "8"],
        &["no kernel `tile2`", "did you mean `tile2d`?", "naive"],
    );
    refused(
        &["--kernel", "xyzzy", "--size", "8"],
        &["no kernel `xyzzy`; the kernels are naive", "auto, cublas, all"],
    );
    refused(&["--kernel", "cubals", "--size", "8"], &["did you mean `cublas`?"]);
    refused(&["--kernel", "cublas", "--size", "8"], &["cuBLAS runs on a GPU"]);
}

#[test]
fn a_gpu_that_is_not_there() {
    // Hides the GPUs of a machine that has some.
    let arguments = ["--kernel", "naive", "--size", "8", "--device", "gpu"];
    let ran = finish(command(&arguments).env("CUDA_VISIBLE_DEVICES", "").output().unwrap());
    expect_refusal(&ran, &arguments, &["`--device soft`"]);

    // The automatic choice goes on without, and says so.
    let arguments = ["--kernel", "naive", "--size", "8"];
    let ran = finish(command(&arguments).env("CUDA_VISIBLE_DEVICES", "").output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.starts_with("note: running on the software device"), "{}", ran.stderr);
    assert!(ran.stdout.contains("PASS"));
}

#[test]
fn memory_that_is_not_there() {
    let says = ["this needs 10.9 TiB of", "memory", "available"];
    refused(&["--kernel", "naive", "--size", "1000000"], &says);
    // More bytes than 64 bits can count.
    refused(&["--kernel", "naive", "--size", "2147483647"], &["this needs 48.0 EiB"]);
}

#[test]
fn numbers_that_overflow() {
    // What is mistyped is refused as such; a file without elements may have any shape.
    let files = Files::new();
    let dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (2147483648, 0), }";
    let (tall, empty) =
        (files.raw("tall.npy", dictionary, &[]), files.matrix("empty.npy", 0, 1, |_, _| 0.0));
    let says = ["m is 2147483648", "2147483647"];
    refused(&["--kernel", "naive", "--a", &tall, "--b", &empty], &says);
    refused(&["--kernel", "naive", "--size", "8", "--alpha", "nan"], &["alpha is NaN"]);
    refused(&["--kernel", "naive", "--size", "8", "--beta", "1e39"], &["beta is inf"]);
}

#[test]
fn options_that_do_not_go_together() {
    for (arguments, says) in [
        (&["--size", "8"][..], "--kernel"),
        (&["--kernel", "naive"], "--size"),
        (&["--kernel", "naive", "--m", "8"], "--n"),
        (
            &["--kernel", "naive", "--size", "8", "--m", "8", "--n", "8", "--k", "8"],
            "cannot be used with",
        ),
        (&["--kernel", "naive", "--a", "a.npy"], "--b"),
        (
            &["--kernel", "naive", "--a", "a.npy", "--b", "b.npy", "--size", "8"],
            "cannot be used with",
        ),
        (
            &["--kernel", "naive", "--a", "a.npy", "--b", "b.npy", "--seed", "8"],
            "cannot be used with",
        ),
        (&["--kernel", "naive", "--a", "a.npy", "--b", "b.npy", "--beta", "1"], "--c C.npy"),
        (&["--kernel", "naive", "--size", "8", "--repeat", "0"], "--repeat"),
        (&["--kernel", "naive", "--size", "8", "--format", "xml"], "json"),
        (&["--kernel", "naive", "--size", "8", "--nonsense"], "--nonsense"),
        (&["--kernel", "all", "--size", "8", "--out", "c.npy"], "one kernel"),
    ] {
        expect_refusal(&soft(arguments), arguments, &[says]);
    }
}

#[test]
fn bad_files() {
    let files = Files::new();
    let good = files.matrix("good.npy", 4, 4, |i, j| (i + j) as f32);
    let out = files.path("out.npy");
    let header = |descr: &str, shape: &str| {
        format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}")
    };
    let double = files.raw("f8.npy", &header("'<f8'", "(4, 4)"), &[0; 128]);
    let vector = files.raw("vector.npy", &header("'<f4'", "(16,)"), &[0; 64]);
    let cube = files.raw("cube.npy", &header("'<f4'", "(4, 2, 2)"), &[0; 64]);
    let short = files.raw("short.npy", &header("'<f4'", "(4, 4)"), &[0; 63]);
    let promise = files.raw("promise.npy", &header("'<f4'", "(1000000, 1000000)"), &[0; 64]);
    let endless = files.raw("endless.npy", &header("'<f4'", "(4294967296, 4294967296)"), &[0; 64]);
    let garbage = files.path("garbage.npy");
    fs::write(&garbage, "1,2\n3,4\n").unwrap();
    let cut = files.path("cut.npy");
    fs::write(&cut, &fs::read(&good).unwrap()[..30]).unwrap();
    let wide = files.matrix("wide.npy", 3, 5, |_, _| 0.0);
    let missing = files.path("missing.npy");
    let before = files.names();
    for (path, says) in [
        (&double, &["f8.npy", "float64 ('<f8')", "float32 ('<f4')"][..]),
        (&vector, &["vector.npy", "1 dimension(s)", "must have 2"]),
        (&cube, &["3 dimension(s)"]),
        (&short, &["truncated", "64 bytes", "63 follow"]),
        (&promise, &["truncated"]),
        (&endless, &["too large"]),
        (&garbage, &["not a .npy file"]),
        (&cut, &["header is damaged (it ends early)"]),
        (&missing, &["missing.npy"]),
        (&wide, &["3 x 5"]),
    ] {
        refused(
            &["--kernel", "naive", "--a", path, "--b", &good, "--out", &out],
            says_of(path, &wide, says),
        );
        refused(&["--kernel", "naive", "--a", &good, "--b", path, "--out", &out], says);
        let with_c = [
            "--kernel", "naive", "--a", &good, "--b", &good, "--c", path, "--beta", "1", "--out",
            &out,
        ];
        refused(&with_c, says);
    }
    assert_eq!(files.names(), before, "no output, whole or partial");
}

/// A 3 x 5 matrix is a fine A: then it is B that does not fit.
fn says_of<'a>(path: &str, wide: &str, says: &'a [&'a str]) -> &'a [&'a str] {
    if path == wide { &["B is 4 x 4", "needs 5 x 4"] } else { says }
}

#[test]
fn outputs_that_cannot_be_written() {
    let files = Files::new();
    let inside = files.path("no/such/folder/out.npy");
    // So large that computing first would be noticed.
    let size = ["--kernel", "naive", "--size", "4096", "--out"];
    refused(
        &[&size[..], &[&inside]].concat(),
        &["cannot write", "no/such/folder/out.npy", "its folder does not exist"],
    );
    refused(&[&size[..], &[files.0.path().to_str().unwrap()]].concat(), &["it is a folder"]);
    refused(&[&size[..], &["/"]].concat(), &["it is a folder"]);
    let save = ["--kernel", "all", "--size", "4096", "--save"];
    refused(&[&save[..], &[&inside]].concat(), &["cannot write", "its folder does not exist"]);
    refused(&[&save[..], &[files.0.path().to_str().unwrap()]].concat(), &["it is a folder"]);
    expect_refusal(&soft(&[&size[..], &[""]].concat()), &[], &["--out"]);
    if cfg!(unix) {
        refused(&[&size[..], &["/dev/null"]].concat(), &["not a regular file"]);
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
    let protected = files.matrix("protected.npy", 1, 1, |_, _| 1.0);
    let mut permissions = fs::metadata(&protected).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&protected, permissions).unwrap();
    refused(&[&size[..], &[&protected]].concat(), &["write-protected"]);
    assert_eq!(files.names(), [Path::new(&protected)]);
}

#[cfg(unix)]
#[test]
fn an_output_through_a_link_replaces_the_target() {
    let files = Files::new();
    let target = files.matrix("target.npy", 1, 1, |_, _| 1.0);
    let link = files.path("link.npy");
    std::os::unix::fs::symlink(&target, &link).unwrap();
    assert_eq!(soft(&["--kernel", "naive", "--size", "2", "--out", &link]).code, Some(0));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(read_npy(&target).1.len(), 4);
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
    let ran = run(&["--help"]);
    assert_eq!(ran.code, Some(0));
    // However it is wrapped.
    let words: Vec<_> = ran.stdout.split_whitespace().collect();
    let words = words.join(" ");
    assert!(words.contains("Exit status: 0 if the result is right, 1 if it is wrong, 2"));
    for text in
        ["explain", "bench", "tune", "cublas", "all runs the ladder", "--save", "auto", "status 1"]
    {
        assert!(words.contains(text), "{text}");
    }
}
