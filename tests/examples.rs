//! The programs in `examples/`: each runs, and prints what it should.

#![allow(missing_docs, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use host::Matrix;
use host::npy::{NpyFile, write_matrix};

/// Where cargo puts examples: beside the folder of the tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is missing; `cargo build --examples` makes it", path.display());
    path
}

fn run(name: &str, args: &[&Path]) -> Output {
    Command::new(example(name)).args(args).output().unwrap()
}

/// What an example prints, which succeeds.
fn stdout(name: &str, args: &[&Path]) -> String {
    let output = run(name, args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn npy() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, c] = ["a.npy", "b.npy", "c.npy"].map(|name| folder.path().join(name));
    let numbers = Matrix::from_fn(3, 2, |row, col| (row + 3 * col) as f32);
    let exchange = Matrix::from_fn(2, 2, |row, col| if row == col { 0.0 } else { 1.0 });
    for (path, matrix) in [(&a, &numbers), (&b, &exchange)] {
        write_matrix(matrix, &mut std::fs::File::create(path).unwrap()).unwrap();
    }
    assert!(stdout("npy", &[&a, &b, &c]).starts_with("3 x 2 by "));
    let product = NpyFile::open(&c).unwrap().read().unwrap();
    assert_eq!(product, Matrix::from_fn(3, 2, |row, col| (row + 3 * (1 - col)) as f32));
    // Of shapes that do not fit, and without files.
    for args in [&[&*b, &*a, &*c] as &[_], &[]] {
        let output = run("npy", args);
        assert!(!output.status.success() && output.stdout.is_empty());
    }
}

/// The probability to be back is 400! / (200! 2^200)^2.
#[test]
fn reuse_plan() {
    let printed = stdout("reuse_plan", &[]);
    assert_eq!(printed, "after 200 steps: 0.0399 where it started, 1.000 in all\n");
}

#[test]
fn experts() {
    assert_eq!(stdout("experts", &[]), "every token has its expert's outputs: true\n");
}

#[test]
fn linear_layer() {
    let printed = stdout("linear_layer", &[]);
    assert_eq!(printed, "relu(sgemm + bias) is the layer's output: true\n");
}

/// Sums of small integers; bf16 holds the layer's and the scores' results exactly.
#[test]
fn five_tasks() {
    let expected = "product: 258\nlayer: 648\nscores: 81.5\npart: 28\n\
                    power: [1.0, 2.0], one step before [2.0, 1.0]\n";
    assert_eq!(stdout("five_tasks", &[]), expected);
}

#[test]
fn compare_rungs() {
    let printed = stdout("compare_rungs", &["naive", "tile2d"].map(Path::new));
    let lines: Vec<_> = printed.lines().collect();
    assert!(lines[0].starts_with("naive: PASS") && lines[1].starts_with("tile2d: PASS"));
    assert!(lines[2].starts_with("naive takes ") && lines.len() == 3, "{printed}");
    assert!(!run("compare_rungs", &["naive", "nonesuch"].map(Path::new)).status.success());
}
