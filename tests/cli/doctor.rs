//! `doctor`, on machines that have nothing, or what does not work.

use super::*;

/// `doctor` where there is nothing but what `folders` have: programs and libraries.
fn doctor(folder: Option<&Path>, arguments: &[&str]) -> Ran {
    let mut command = command(&["doctor"]);
    command.args(arguments);
    for variable in ["CUDA_PATH", "CUDA_HOME", "CUDA_ROOT", "CONDA_PREFIX", "PTXAS"] {
        command.env_remove(variable);
    }
    let folder = folder.map_or("/nowhere".into(), Path::to_path_buf);
    command.env("PATH", &folder).env("LD_LIBRARY_PATH", &folder);
    finish(command.output().unwrap())
}

/// State and value of a finding, in JSON.
fn finding(ran: &Ran, name: &str) -> (String, String) {
    let examination = json(ran);
    let all = ["machine", "abilities"].map(|part| examination[part].as_array().unwrap().clone());
    let found = all.concat().into_iter().find(|finding| finding["name"] == name);
    let found = found.unwrap_or_else(|| panic!("{name}: {}", ran.stdout));
    let text = |key: &str| found[key].as_str().unwrap().to_owned();
    (text("state"), text("value"))
}

#[test]
fn a_machine_with_nothing_runs_the_software_device() {
    let ran = doctor(None, &["--format", "json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert_eq!(finding(&ran, "soft").0, "ok");
    for name in ["rustc", "rust-src"] {
        assert_eq!(finding(&ran, name).0, "missing", "{name}");
    }
    assert_eq!(finding(&ran, "build-ptx"), ("missing".into(), "needs rustc, rust-src".into()));
    let names = host::doctor::NAMES.map(|name| finding(&ran, name).0);
    assert_eq!(names.len(), 22);

    let page = doctor(None, &[]).stdout;
    assert!(page.contains("\u{2714} soft") && page.contains("- rustc"), "{page}");
    assert!(page.contains("rustc: install Rust from https://rustup.rs"), "{page}");
    assert!(page.lines().all(|line| line.chars().count() <= 120), "{page}");
}

#[test]
fn what_is_required_and_missing_is_the_exit_status() {
    let ran = doctor(None, &["--require", "rust-src,soft,memory"]);
    assert_eq!(ran.code, Some(1));
    assert_eq!(ran.stderr, "missing: rust-src\n");
    assert_eq!(doctor(None, &["--require", "soft"]).code, Some(0));
    expect_refusal(&doctor(None, &["--require", "gpus"]), &[], &["`gpus`; the nearest are `gpu`"]);
}

#[cfg(unix)]
#[test]
fn programs_that_crash_or_hang_are_findings() {
    use std::os::unix::fs::PermissionsExt;

    let files = Files::new();
    for (name, script) in [
        ("ptxas", "echo 'Cuda compilation tools, release 13.0, V13.0.88'"),
        ("cuobjdump", "kill -SEGV $$"),
        ("compute-sanitizer", "exec /bin/sleep 60"),
        ("rustc", "echo rustc 1.2.3"),
    ] {
        let path = files.path(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(files.path("ncu"), "not a program").unwrap();
    let ran = doctor(Some(files.0.path()), &["--format", "json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert_eq!(finding(&ran, "ptxas"), ("ok".into(), "13.0".into()));
    assert_eq!(finding(&ran, "spills").0, "ok");
    let (state, value) = finding(&ran, "cuobjdump");
    assert!(state == "broken" && value.contains("signal"), "{value}");
    let (state, value) = finding(&ran, "compute-sanitizer");
    assert!(state == "broken" && value.contains("no answer in 5 s"), "{value}");
    let (state, value) = finding(&ran, "rustc");
    assert!(state == "broken" && value.contains("1.2.3"), "{value}");
}

/// A driver that is built here, as another crate's tests do.
#[cfg(target_os = "linux")]
#[test]
fn a_driver_that_fails_or_crashes_is_a_finding() {
    let build = |name: &str, source: &str| {
        // One of this process, since several may run at once.
        let own = format!("{name}-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(own);
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("driver.rs");
        fs::write(&file, source).unwrap();
        let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
        let mut compiler = Command::new(rustc);
        compiler.args(["--edition=2024", "--crate-type=cdylib", "--crate-name=driver", "-o"]);
        let status = compiler.arg(folder.join("libcuda.so.1")).arg(&file).status().unwrap();
        assert!(status.success());
        folder
    };
    let init = |body: &str| {
        format!(
            "#[unsafe(no_mangle)] extern \"C\" fn cuInit(_: u32) -> u32 {{ {body} }}
             #[unsafe(no_mangle)] unsafe extern \"C\" fn cuDriverGetVersion(v: *mut i32) -> u32
             {{ unsafe {{ *v = 13000 }}; 0 }}
             #[unsafe(no_mangle)] unsafe extern \"C\" fn cuDeviceGetCount(n: *mut i32) -> u32
             {{ unsafe {{ *n = 1 }}; 0 }}"
        )
    };
    for (name, source, says, code) in [
        // Whoever loads it ends, and the software device does not work either.
        ("doctor_crash", init("std::process::abort()"), "signal", 1),
        ("doctor_fail", init("803"), "803", 0),
        ("doctor_empty", String::new(), "is no NVIDIA driver", 0),
    ] {
        let folder = build(name, &source);
        let ran = doctor(Some(&folder), &["--format", "json"]);
        assert_eq!(ran.code, Some(code), "{name}: {}", ran.stderr);
        let (state, value) = finding(&ran, "driver");
        assert!(state == "broken" && value.contains(says), "{name}: {value}");
        assert_ne!(finding(&ran, "gpu").0, "ok");
        assert_eq!(finding(&ran, "soft").0 == "ok", code == 0);
        assert_eq!(doctor(Some(&folder), &["--require", "driver"]).code, Some(1));
    }
}
