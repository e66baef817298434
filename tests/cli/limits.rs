//! What a machine has: threads, memory, time.

#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::{Files, TABLE, command, expect_refusal, finish};

#[test]
fn no_more_threads_than_help() {
    let cores = thread::available_parallelism().unwrap().get();
    let product = ["--device", "soft", "--kernel", "tile2d", "--size", "64"];
    let start = |threads: &str| {
        let mut command = command(&product);
        command.env("RAYON_NUM_THREADS", threads).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut child = start("3000");
    let tasks = format!("/proc/{}/task", child.id());
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        most = fs::read_dir(&tasks).map_or(0, Iterator::count).max(most);
        thread::sleep(Duration::from_micros(500));
    }
    // For the reference, and for the software device; and some that wait.
    assert!(most <= 2 * cores + 4, "{most} threads on {cores} cores");
    let ran = finish(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let says = format!("note: RAYON_NUM_THREADS is 3000, and {cores} thread(s) are started");
    assert!(ran.stderr.starts_with(&says) && ran.stderr.lines().count() == 1, "{}", ran.stderr);
    for threads in ["abc", "-1", "1.5", "99999999999999999999999"] {
        let ran = finish(start(threads).wait_with_output().unwrap());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let says = format!(
            "note: RAYON_NUM_THREADS is `{threads}`, which is no number of threads, and {cores} \
             thread(s) are started\n"
        );
        assert_eq!(ran.stderr, says);
    }
    // As many as there are, or fewer, need no words, and nor does what is not set.
    for threads in ["1", &cores.to_string(), "0", ""] {
        let ran = finish(start(threads).wait_with_output().unwrap());
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{threads}");
    }
}

/// Under any limit on its address space the program does what it should, or says what it lacks.
#[test]
fn a_limit_on_memory_is_taken_into_account() {
    let host = env!("CARGO_BIN_EXE_rungs");
    let (mut right, mut refused) = (0, 0);
    for kib in (100_000..=440_000).step_by(20_000) {
        let script = format!(
            "ulimit -v {kib}; exec '{host}' --device soft --kernel tile2d --m 2048 --n 2048 --k 8"
        );
        let mut shell = Command::new("sh");
        let ran =
            finish(shell.args(["-c", &script]).env("RAYON_NUM_THREADS", "2").output().unwrap());
        if ran.code == Some(0) {
            right += 1;
            continue;
        }
        assert_eq!(ran.code, Some(2), "{kib} KiB: {}", ran.stderr);
        // In MiB, or in bytes where these would be the same.
        let size = |before: &str| {
            let (_, rest) = ran.stderr.split_once(before)?;
            let (number, rest) = rest.split_once(' ')?;
            let unit = rest.split([' ', ';']).next()?;
            let bytes = ["bytes", "KiB", "MiB", "GiB"].iter().position(|one| *one == unit)?;
            Some(number.parse::<f64>().ok()? * 1024f64.powi(bytes as i32))
        };
        let (needed, available) = (size("this needs "), size(" and "));
        assert!(needed.zip(available).is_some_and(|(n, a)| n > a), "{kib} KiB: {}", ran.stderr);
        refused += 1;
    }
    assert!(right > 0 && refused > 0, "{right} right, {refused} refused");
}

/// No more is read than a table or a list of shapes can have: in so little memory, a file without
/// an end would be out of it.
#[test]
fn a_file_without_an_end_is_refused() {
    let files = Files::new();
    let (host, pipe) = (env!("CARGO_BIN_EXE_rungs"), files.path("pipe"));
    let sh = |script: &str| finish(Command::new("sh").args(["-c", script]).output().unwrap());
    let auto = "--device soft --kernel auto --size 8";
    let make = format!("mkfifo '{pipe}'");
    assert_eq!(sh(&make).code, Some(0));
    let endless = format!("yes 512 > '{pipe}' &");
    for (path, writer) in [("/dev/zero", ""), (&pipe, &endless)] {
        for reader in [&format!("{auto} --table")[..], "bench --shapes"] {
            let script = format!("{writer} ulimit -v 1000000; exec '{host}' {reader} '{path}'");
            let says = format!("{path}: it is longer than 16.0 MiB; ");
            expect_refusal(&sh(&script), &[&script], &[&says]);
        }
    }
    // A pipe is as good as a file, if it ends.
    let table = files.path("table.json");
    fs::write(&table, TABLE).unwrap();
    let ran = sh(&format!("cat '{table}' > '{pipe}' & exec '{host}' {auto} --table '{pipe}'"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let ran = sh(&format!("echo 8 8 > '{pipe}' & exec '{host}' bench --shapes '{pipe}'"));
    expect_refusal(&ran, &["bench"], &["pipe:1: `8 8` has 2 numbers"]);
    // What `tune --accept` could not write is not read either: nobody may ever write to this pipe.
    for (path, says) in [
        ("/dev/zero", "it is not a regular file"),
        (&pipe, "it is not a regular file"),
        (files.0.path().to_str().unwrap(), "it is a folder"),
    ] {
        let script = format!("ulimit -v 1000000; exec timeout 20 '{host}' tune --accept '{path}'");
        expect_refusal(&sh(&script), &[&script], &["cannot write", says]);
    }
    for reader in [&format!("{auto} --table")[..], "bench --shapes"] {
        let ran = sh(&format!("exec '{host}' {reader} /"));
        expect_refusal(&ran, &[reader], &["/: Is a directory"]);
    }
}

#[test]
fn what_takes_long_is_said_first() {
    // A thousand times the ladder: days, or hours.
    let product = ["--device", "soft", "--kernel", "all", "--size", "2048", "--repeat", "1000"];
    let mut child = command(&product).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let (say, said) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        // Nobody may listen any more.
        let _ = say.send(line);
    });
    let line = said.recv_timeout(Duration::from_secs(30));
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    let line = line.expect("it should be said in seconds");
    let time = line.split_once("this takes about ").map(|(_, rest)| rest.split(' '));
    let [Some(number), Some(unit)] =
        time.map_or([None; 2], |mut words| [words.next(), words.next()])
    else {
        panic!("{line}")
    };
    assert!(number.parse::<f64>().unwrap() > 1.0 && ["min", "h"].contains(&unit), "{line}");
    assert!(line.starts_with("note: ") && line.contains("an estimate"), "{line}");
}
