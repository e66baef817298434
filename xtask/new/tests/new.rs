//! `cargo xtask new`, as a new user would type it.
//!
//! With `NEW_PROJECT=as_made` nothing is changed to save time.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn xtask(path: &Path) -> Output {
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask-new"));
    xtask.arg("new").arg(path).output().unwrap()
}

/// Whether a project is tested as it is made, in a target folder of its own.
fn as_made() -> bool {
    std::env::var_os("NEW_PROJECT").is_some_and(|value| value == "as_made")
}

/// A cargo that knows nothing of the one that runs this test.
fn cargo(folder: &Path, arguments: &[&str]) -> Output {
    let mut cargo = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO") && name != "CARGO_HOME" || name.starts_with("RUST") {
            cargo.env_remove(&*name);
        }
    }
    if !as_made() {
        // What is compiled there is not compiled again.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        cargo.env("CARGO_TARGET_DIR", target);
    }
    cargo.env("CUDA_VISIBLE_DEVICES", "").args(arguments).current_dir(folder).output().unwrap()
}

fn text(output: &Output) -> String {
    let [stdout, stderr] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{stdout}{stderr}")
}

#[test]
fn a_new_project_passes_its_tests_and_sees_what_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path().join("my-adder");
    let made = xtask(&project);
    assert!(made.status.success(), "{made:?}");
    if !as_made() {
        // To optimise the software device would take a minute.
        let manifest = project.join("Cargo.toml");
        let text = fs::read_to_string(&manifest).unwrap();
        let unoptimised = text.replace("opt-level = 3", "opt-level = 0");
        assert_ne!(unoptimised, text);
        fs::write(manifest, unoptimised).unwrap();
    }
    let tested = cargo(&project, &["test"]);
    assert!(tested.status.success(), "{}", text(&tested));
    assert!(text(&tested).contains("panicked at kernels/src/lib.rs:12:"), "{}", text(&tested));

    let kernels = project.join("kernels/src/lib.rs");
    let source = fs::read_to_string(&kernels).unwrap();
    fs::write(&kernels, source.replace("a[i] + b[i]", "a[i] - b[i]")).unwrap();
    let tested = cargo(&project, &["test", "--test", "add"]);
    assert!(!tested.status.success(), "{}", text(&tested));
    assert!(text(&tested).contains("vectors_are_added ... FAILED"), "{}", text(&tested));

    let again = xtask(&project);
    assert!(!again.status.success());
    assert!(text(&again).contains("exists and is not empty"), "{again:?}");
}

#[test]
fn a_project_lies_outside_of_this_workspace_and_has_a_name_of_its_own() {
    let inside = xtask(&Path::new(env!("CARGO_MANIFEST_DIR")).join("inside"));
    assert!(!inside.status.success());
    assert!(text(&inside).contains("lies in this workspace"), "{inside:?}");
    for name in ["kernels", "std", "cuda-std", "match"] {
        let taken = xtask(&std::env::temp_dir().join("nowhere").join(name));
        assert!(!taken.status.success());
        assert!(text(&taken).contains("choose another one"), "{taken:?}");
    }
    let unnamed = xtask(Path::new("/nowhere/4 projects"));
    assert!(text(&unnamed).contains("begins with a letter"), "{unnamed:?}");
}
