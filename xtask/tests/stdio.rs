//! The chores, with streams that cannot be written.

#![cfg(target_os = "linux")]

use std::fs::{File, OpenOptions};
use std::process::{Command, Stdio};

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

fn xtask(arguments: &[&str]) -> Command {
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    xtask.args(arguments);
    xtask
}

#[test]
fn a_full_stdout_is_an_error_and_a_full_stderr_is_not() {
    for arguments in [&["diff", "naive", "tile2d"][..], &["--help"], &["diff", "--help"]] {
        let ran = xtask(arguments).stdout(full()).output().unwrap();
        let stderr = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("error: cannot write stdout: No space left"), "{stderr}");
    }
    for (arguments, code) in
        [(&["diff", "naive", "tile2d"][..], 0), (&["diff", "naive", "nonsense"], 2), (&["no"], 2)]
    {
        let status = xtask(arguments).stdout(Stdio::null()).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}
