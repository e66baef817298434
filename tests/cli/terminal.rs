//! What is shown on a terminal.

#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;

use super::{Files, OTHER_USER};

/// Both ends of a terminal: what the program writes to the second is read from the first.
fn terminal() -> (File, OwnedFd) {
    let (mut reader, mut writer) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: both ends are written to variables of this function; the null pointers ask for no
    // name, and for the default settings and size.
    let failed = unsafe { libc::openpty(&mut reader, &mut writer, none, none.cast(), none.cast()) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the call succeeded, so both are open, and nothing else owns them.
    let (reader, writer) = unsafe { (File::from_raw_fd(reader), OwnedFd::from_raw_fd(writer)) };
    // A clone is not inherited by what other tests start, which would keep the terminal open.
    (reader, writer.try_clone().unwrap())
}

/// What the program shows on a terminal, which stdout and stderr are.
fn shown(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let (mut reader, writer) = terminal();
    let mut command = super::command(arguments);
    for variable in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
        command.env_remove(variable);
    }
    command
        .env("TERM", "xterm")
        .envs(variables.iter().copied())
        .stderr(writer.try_clone().unwrap());
    let mut child = command.stdout(writer).spawn().unwrap();
    // It keeps the other end, which would never end.
    drop(command);
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = reader.read(&mut piece) {
        bytes.extend(&piece[..count]);
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let arguments = ["--device", "soft", "--kernel", "naive", "--size", "8"];
    let green = "\u{1b}[32mPASS";
    assert!(shown(&arguments, &[]).contains(green));
    for unwanted in [("NO_COLOR", "1"), ("TERM", "dumb"), ("CLICOLOR", "0")] {
        assert!(!shown(&arguments, &[unwanted]).contains(green), "{unwanted:?}");
    }
    let piped = |variable: &str| {
        let mut command = super::command(&arguments);
        super::finish(command.env_remove("CI").env(variable, "1").output().unwrap()).stdout
    };
    assert!(!piped("CLICOLOR").contains('\u{1b}') && piped("CLICOLOR_FORCE").contains(green));
    let doctor = shown(&["doctor"], &[]);
    assert!(doctor.contains("\u{1b}[32m\u{2714}"), "{doctor}");
}

#[test]
fn what_takes_long_shows_how_long_it_will() {
    // Bars are drawn after a hundred milliseconds: this takes several times as long.
    let naive = ["--device", "soft", "--kernel", "naive", "--size", "1024"];
    let bars = shown(&naive, &[]);
    assert!(bars.contains("simulating naive") && bars.contains("left"), "{bars}");
    let files = Files::new();
    let out = files.path("table.json");
    let bars = shown(&["tune", "--device", "soft", "--quick", "--out", &out], &[]);
    assert!(bars.contains("measuring") && bars.contains("left"), "{bars}");
    let quiet = shown(&[&["--quiet"], &naive[..]].concat(), &[]);
    assert!(!quiet.contains("simulating") && quiet.contains("PASS"), "{quiet}");
}

/// With any number of threads the program does what it should, or says that it has too few.
#[test]
fn a_limit_on_threads_does_without_a_bar() {
    let files = Files::new();
    let host = files.program();
    fs::set_permissions(files.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let cores = thread::available_parallelism().unwrap().get();
    let (mut right, mut refused) = (0, 0);
    for threads in 1..=2 * cores + 4 {
        let (mut reader, writer) = terminal();
        // Some shells call it -p, which is something else in others.
        let script = "(ulimit -p $0) 2>&- && ulimit -p $0 || ulimit -u $0; exec \"$@\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", script, &threads.to_string(), &host]);
        shell.args(["--device", "soft", "--kernel", "tile2d", "--size", "64"]);
        shell.current_dir("/").uid(OTHER_USER).gid(OTHER_USER).stdout(Stdio::null()).stderr(writer);
        let spawned = shell.spawn();
        // It keeps the other end, which would never end.
        drop(shell);
        let Ok(mut child) = spawned else {
            // Past the harness, which swallows what a test prints if it passes.
            let why = b"skipped: a_limit_on_threads_does_without_a_bar: only root may run it\n";
            let _ = std::io::stderr().write_all(why);
            return;
        };
        let (mut shown, mut bytes) = (Vec::new(), [0; 4096]);
        // A terminal that was closed is an error.
        while let Ok(count @ 1..) = reader.read(&mut bytes) {
            shown.extend(&bytes[..count]);
        }
        let shown = String::from_utf8_lossy(&shown);
        match child.wait().unwrap().code() {
            Some(0) => right += 1,
            Some(2) if shown.contains("ulimit -u") => refused += 1,
            code => panic!("{threads} threads: {code:?}, {shown}"),
        }
    }
    assert!(right > 0 && refused > 0, "{right} right, {refused} refused");
}
