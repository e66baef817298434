//! The command line, from outside: exit status, stdout, stderr and files.

#[path = "cli/bench.rs"]
mod bench;
#[path = "cli/checks.rs"]
mod checks;
#[path = "cli/commands.rs"]
mod commands;
mod common;
#[path = "cli/doctor.rs"]
mod doctor;
#[path = "cli/explain.rs"]
mod explain;
#[path = "cli/files.rs"]
mod files;
#[path = "cli/groups.rs"]
mod groups;
#[path = "cli/kernels.rs"]
mod kernels;
#[path = "cli/limits.rs"]
mod limits;
#[path = "cli/measured.rs"]
mod measured;
#[path = "cli/mistakes.rs"]
mod mistakes;
#[path = "cli/outputs.rs"]
mod outputs;
#[path = "cli/refusals.rs"]
mod refusals;
#[path = "cli/run.rs"]
mod run;
#[path = "cli/saved.rs"]
mod saved;
#[path = "cli/several.rs"]
mod several;
#[path = "cli/streams.rs"]
mod streams;
#[path = "cli/tables.rs"]
mod tables;
#[path = "cli/terminal.rs"]
mod terminal;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use approx::assert_relative_eq;
use host::kernels::abi::KernelDescriptor;
use host::kernels::{LADDER, TENSOR_CORE, TILES, f32_kernels};
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
    let mut command = Command::new(env!("CARGO_BIN_EXE_rungs"));
    // No test reads or writes the user's measurements.
    command.args(arguments).env("RUNGS_CACHE", "");
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
        let copy = self.path("rungs");
        let status =
            Command::new("cp").args([env!("CARGO_BIN_EXE_rungs"), &copy]).status().unwrap();
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

/// A table whose numbers were measured nowhere.
const TABLE: &str = include_str!("../crates/cuda_gemm/src/select/table_for_tests.json");
