//! stdout and stderr that cannot be written.

#![cfg(target_os = "linux")]

use std::fs::{File, OpenOptions};
use std::io;
use std::process::{ExitStatus, Stdio};

use super::{Files, TABLE, command, finish, json_lines};

/// What a stream is connected to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stream {
    Null,
    /// A pipe that nobody reads.
    Closed,
    /// A device that is always full.
    Full,
}

impl Stream {
    fn stdio(self) -> Stdio {
        match self {
            Self::Null => Stdio::null(),
            Self::Closed => io::pipe().unwrap().1.into(),
            Self::Full => full().into(),
        }
    }
}

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

fn status(arguments: &[&str], stdout: Stream, stderr: Stream) -> ExitStatus {
    let mut command = command(arguments);
    // Without a GPU, on every machine.
    command.env("CUDA_VISIBLE_DEVICES", "");
    command.stdout(stdout.stdio()).stderr(stderr.stdio()).status().unwrap()
}

/// With the exit status that each has if all can be written. Nothing else is printed on stdout.
const CALLS: [(&[&str], i32); 6] = [
    // A note on stderr, and a result.
    (&["--kernel", "naive", "--size", "8"], 0),
    (&["--kernel", "nonsense", "--size", "8"], 2),
    (&["--kernel", "naive", "--size", "8", "--nonsense"], 2),
    (&["--kernel", "all", "--size", "8", "--splits", "2"], 2),
    (&["bench"], 2),
    (&["explain", "nonsense"], 2),
];

#[test]
fn a_stderr_that_cannot_be_written_changes_nothing() {
    for (arguments, code) in CALLS {
        for stderr in [Stream::Closed, Stream::Full] {
            for stdout in [Stream::Null, Stream::Closed] {
                let status = status(arguments, stdout, stderr);
                assert_eq!(status.code(), Some(code), "{arguments:?} {stdout:?} {stderr:?}");
            }
        }
    }
}

#[test]
fn a_stdout_that_cannot_be_written_is_an_error() {
    let files = Files::new();
    let (table, folder) = (files.path("table.json"), files.path("tuned.json"));
    std::fs::write(&table, TABLE).unwrap();
    for arguments in [
        &["--kernel", "naive", "--size", "8", "--device", "soft"][..],
        &["--kernel", "naive", "--size", "8", "--device", "soft", "--format", "json"],
        &["--kernel", "all", "--size", "8", "--device", "soft"],
        &["--kernel", "all", "--size", "8", "--device", "soft", "--format", "json"],
        &["--list"],
        &["--list", "--format", "json"],
        &["explain"],
        &["explain", "tile2d"],
        &["explain", "tile2d", "--format", "json"],
        &["explain", "auto", "--device", "soft", "--table", &table],
        &["explain", "auto", "--device", "soft", "--format", "json"],
        &["tune", "--quick", "--device", "soft", "--out", &folder],
        &["tune", "--accept", &table],
        &["--help"],
        &["bench", "--help"],
        &["--version"],
    ] {
        let ran = finish(command(arguments).stdout(full()).output().unwrap());
        assert_eq!(ran.code, Some(2), "{arguments:?}: {}", ran.stderr);
        let says = "error: cannot write stdout: No space left on device";
        assert!(ran.stderr.contains(says), "{arguments:?}: {}", ran.stderr);
        // And nobody can be told.
        assert_eq!(status(arguments, Stream::Full, Stream::Full).code(), Some(2), "{arguments:?}");
        // A pager that was left early is no failure.
        assert_eq!(status(arguments, Stream::Closed, Stream::Null).code(), Some(0));
    }
}

#[test]
fn what_cannot_be_printed_is_saved() {
    let files = Files::new();
    for (name, stdout, code) in [("full", Stream::Full, 2), ("closed", Stream::Closed, 0)] {
        let (save, out) = (files.path(name), files.path(&format!("{name}.npy")));
        let arguments = ["--kernel", "naive", "--size", "8", "--save", &save, "--out", &out];
        assert_eq!(status(&arguments, stdout, Stream::Null).code(), Some(code));
        let lines = json_lines(&std::fs::read_to_string(&save).unwrap());
        assert_eq!((lines.len(), &lines[1]["status"]), (2, &"PASS".into()));
        assert!(std::path::Path::new(&out).exists());
    }
}
