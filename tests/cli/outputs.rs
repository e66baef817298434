//! What is written: files that cannot be, links, signals, and what must not be overwritten.

use std::fs;
use std::path::Path;

use super::{Files, read_npy, refused, run, soft};

/// So large that computing first would be noticed.
const LARGE: [&str; 5] = ["--kernel", "naive", "--size", "4096", "--out"];

#[test]
fn names_that_no_file_can_have_are_refused_first() {
    let files = Files::new();
    let name = "x".repeat(300);
    for (out, says) in [
        ("new/", "it names a folder, which does not exist"),
        ("new//", "it names a folder, which does not exist"),
        ("new/.", "it names a folder, which does not exist"),
        (name.as_str(), "File name too long"),
    ] {
        let out = files.path(out);
        refused(&[&LARGE[..], &[&out]].concat(), &["cannot write", says]);
        refused(&["--kernel", "all", "--size", "4096", "--save", &out], &["cannot write", says]);
        let ran = run(&["tune", "--quick", "--device", "soft", "--out", &out]);
        assert!(ran.code == Some(2) && ran.stderr.contains(says), "{}", ran.stderr);
        assert_eq!(ran.stdout, "", "nothing was measured");
    }
    assert!(files.names().is_empty());
}

#[cfg(unix)]
#[test]
fn a_link_to_nothing_is_kept_and_its_target_created() {
    use std::os::unix::fs::symlink;

    let files = Files::new();
    fs::create_dir(files.path("folder")).unwrap();
    let link = files.path("link.npy");
    // Relative to where the link is, through another one.
    symlink("folder/second.npy", &link).unwrap();
    symlink("../target.npy", files.path("folder/second.npy")).unwrap();
    assert_eq!(soft(&["--kernel", "naive", "--size", "2", "--out", &link]).code, Some(0));
    for link in [&link, &files.path("folder/second.npy")] {
        assert!(fs::symlink_metadata(link).unwrap().is_symlink());
    }
    assert_eq!(read_npy(&files.path("target.npy")).1.len(), 4);
    assert!(!fs::symlink_metadata(files.path("target.npy")).unwrap().is_symlink());

    let (circle, nowhere) = (files.path("circle.npy"), files.path("nowhere.npy"));
    symlink(&circle, &circle).unwrap();
    symlink("no/such/folder/out.npy", &nowhere).unwrap();
    refused(&[&LARGE[..], &[&circle]].concat(), &["cannot write", "symbolic links"]);
    refused(&[&LARGE[..], &[&nowhere]].concat(), &["its folder does not exist"]);
}

/// The size of the temporary file that is being written, if there is one.
#[cfg(unix)]
fn unfinished(folder: &Path) -> Option<u64> {
    let mut files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let file = files.find(|file| file.file_name().to_string_lossy().starts_with(".unfinished-"));
    file.and_then(|file| file.metadata().ok()).map(|metadata| metadata.len())
}

#[cfg(unix)]
#[test]
fn a_signal_leaves_no_temporary_file() {
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1), ("QUIT", 3), ("XCPU", 24)] {
        let caught = (0..5).any(|_| is_caught(name, number));
        assert!(caught, "no {name} came while the file was written");
    }
}

/// Sends a signal while a file is written, and makes sure that nothing is left of it. Whether the
/// signal came in time.
#[cfg(unix)]
fn is_caught(name: &str, number: i32) -> bool {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Command, Stdio};
    use std::thread;
    use std::time::Duration;

    // 64 MiB, with next to no computing.
    let product = ["--device", "soft", "--kernel", "tile2d", "--m", "4096", "--n", "4096"];
    let (files, cores) = (Files::new(), Files::new());
    let out = files.path("out.npy");
    let mut command = super::command(&[&product[..], &["--k", "1", "--out", &out]].concat());
    // A shell has what it starts in the background ignore some signals, and so the tests.
    let not_ignored = move || {
        // SAFETY: nothing else in the child cares for the signal yet.
        unsafe { libc::signal(number, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: between fork and exec there is this one call, which may be made there.
    unsafe { command.pre_exec(not_ignored) };
    let mut child = command
        .current_dir(cores.0.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while unfinished(files.0.path()).is_none_or(|length| length == 0)
        && child.try_wait().unwrap().is_none()
    {
        thread::sleep(Duration::from_micros(200));
    }
    let mut kill = Command::new("kill");
    kill.args([&format!("-{name}"), &child.id().to_string()]).stderr(Stdio::null());
    kill.status().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(unfinished(files.0.path()), None, "{name}: {status}");
    // It may have come too late: then the result is there, and whole.
    if Path::new(&out).exists() {
        assert_eq!(read_npy(&out).1.len(), 4096 * 4096);
        return false;
    }
    assert_eq!(status.signal(), Some(number), "as a shell wants to know");
    true
}

/// Runs under a limit on the size of files, in the units of the shell: 512 bytes, or 1024.
#[cfg(unix)]
fn limited(blocks: u32, arguments: &[&str]) -> super::Ran {
    let mut shell = std::process::Command::new("sh");
    let script = format!("ulimit -f {blocks}; exec \"$0\" \"$@\"");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_rungs")]).args(arguments);
    super::finish(shell.output().unwrap())
}

#[cfg(unix)]
const TOO_LARGE: [&str; 3] = ["cannot write", "File too large", "ulimit -f"];

#[cfg(unix)]
#[test]
fn a_limit_on_the_size_of_files_leaves_no_temporary_file() {
    let files = Files::new();
    let (out, table) = (files.path("out.npy"), files.path("table.json"));
    let arguments = ["--device", "soft", "--kernel", "naive", "--size", "512", "--out", &out];
    super::expect_refusal(&limited(64, &arguments), &arguments, &TOO_LARGE);
    let ran = limited(1, &["tune", "--quick", "--device", "soft", "--out", &table]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(TOO_LARGE.iter().all(|text| ran.stderr.contains(text)), "{}", ran.stderr);
    assert!(files.names().is_empty(), "{:?}", files.names());
}

#[cfg(unix)]
#[test]
fn a_limit_on_the_size_of_stdout_is_said() {
    let files = Files::new();
    let script = "ulimit -f 0; exec \"$0\" \"$1\" > \"$2\"";
    for argument in ["--list", "--help"] {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", script, env!("CARGO_BIN_EXE_rungs"), argument, &files.path("stdout")]);
        let ran = super::finish(shell.output().unwrap());
        super::expect_refusal(&ran, &[argument], &["cannot write stdout: File too large"]);
    }
}

/// Whatever the limit cuts off, whole lines remain, to which a later call adds.
#[cfg(unix)]
#[test]
fn a_line_that_cannot_be_saved_whole_is_taken_back() {
    let mut cut = 0;
    for blocks in 1..=6 {
        let files = Files::new();
        let saved = files.path("saved.jsonl");
        let arguments = ["--device", "soft", "--kernel", "naive", "--size", "8", "--save", &saved];
        let lines = || super::json_lines(&fs::read_to_string(&saved).unwrap()).len();
        let mut before = 0;
        while before < 40 {
            let ran = limited(blocks, &arguments);
            if ran.code != Some(0) {
                super::expect_refusal(&ran, &arguments, &TOO_LARGE);
                cut += 1;
                break;
            }
            before += 2;
            assert_eq!(lines(), before);
        }
        let whole = lines();
        assert!(whole == before || whole == before + 1, "{before}, then {whole}");
        assert_eq!(run(&arguments).code, Some(0));
        assert_eq!(lines(), whole + 2);
    }
    assert_eq!(cut, 6, "each limit is reached");
}

/// As nohup does, or a shell without job control for what runs in the background.
#[cfg(unix)]
#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    // It waits for a pipe that nobody writes, until the one signal that cannot be ignored.
    let files = Files::new();
    let (host, pipe) = (env!("CARGO_BIN_EXE_rungs"), files.path("a.npy"));
    let script = format!(
        "mkfifo '{pipe}'; trap '' INT HUP\n\
         '{host}' --device soft --kernel naive --a '{pipe}' --b '{pipe}' &\n\
         sleep 0.3; kill -INT $!; kill -HUP $!; sleep 0.1; kill -KILL $!; wait $!"
    );
    let shell = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(shell.status.code(), Some(128 + 9));
}

/// Runs what must be refused, and makes sure that the files are as they were.
fn refused_without_a_trace(files: &Files, arguments: &[&str], says: &[&str]) {
    let contents = || {
        let read = |path: std::path::PathBuf| (fs::read(&path).unwrap(), path);
        files.names().into_iter().map(read).collect::<Vec<_>>()
    };
    let before = contents();
    let ran = run(arguments);
    super::expect_refusal(&ran, arguments, says);
    assert!(contents() == before, "{arguments:?}");
}

#[test]
fn results_are_added_to_saved_results_only() {
    let files = Files::new();
    let matrix = files.matrix("a.npy", 4, 4, |_, _| 1.0);
    let (table, text) = (files.path("table.json"), files.path("notes.txt"));
    fs::write(&table, super::TABLE).unwrap();
    fs::write(&text, "256\n512\n").unwrap();
    let other = ["cannot write", "it holds something other than saved results"];
    let soft = ["--device", "soft"];
    let input = ["--kernel", "naive", "--a", &matrix, "--b", &matrix, "--save", &matrix];
    refused_without_a_trace(&files, &[&soft[..], &input].concat(), &other);
    let by = ["--kernel", "auto", "--size", "8", "--table", &table, "--save", &table];
    refused_without_a_trace(&files, &[&soft[..], &by].concat(), &other);
    refused_without_a_trace(&files, &["bench", "--shapes", &text, "--save", &text], &other);
    let tuned = files.path("tuned.json");
    let tune = ["tune", "--quick", "--device", "soft", "--out", &tuned];
    for save in [&text, &table] {
        refused_without_a_trace(&files, &[&tune[..], &["--save", save]].concat(), &other);
    }

    let saved = files.path("saved.jsonl");
    let save = ["--kernel", "naive", "--size", "8", "--save", &saved];
    assert_eq!(super::soft(&save).code, Some(0));
    fs::OpenOptions::new().append(true).open(&saved).unwrap().set_len(500).unwrap();
    let cut = ["its last line is cut off"];
    refused_without_a_trace(&files, &[&soft[..], &save].concat(), &cut);
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_is_added_to_in_a_folder_where_none_can_be_created() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    let allow =
        |path: &str, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let files = Files::new();
    let (saved, new) = (files.path("saved.jsonl"), files.path("new.jsonl"));
    let (host, folder) = (files.program(), files.0.path().to_str().unwrap());
    let product = ["--device", "soft", "--kernel", "naive", "--size", "8", "--save"];
    assert_eq!(run(&[&product[..], &[&saved]].concat()).code, Some(0));
    allow(&saved, 0o666);
    allow(folder, 0o555);
    // Root creates files anywhere.
    let is_root = fs::write(&new, "").and_then(|()| fs::remove_file(&new)).is_ok();
    let save = |path: &str| {
        let mut command = std::process::Command::new(&host);
        if is_root {
            command.uid(super::OTHER_USER).gid(super::OTHER_USER);
        }
        super::finish(command.args(product).arg(path).output().unwrap())
    };
    let (added, created) = (save(&saved), save(&new));
    allow(&saved, 0o644);
    let not_mine = is_root.then(|| save(&saved));
    allow(folder, 0o755);
    assert_eq!((added.code, added.stderr.as_str()), (Some(0), ""));
    assert_eq!(super::json_lines(&fs::read_to_string(&saved).unwrap()).len(), 4);
    for refused in not_mine.into_iter().chain([created]) {
        super::expect_refusal(&refused, &product, &["cannot write", "permission denied"]);
    }
}

#[test]
fn one_file_is_not_written_twice() {
    let files = Files::new();
    let same = ["cannot write", "--out writes the same file"];
    let product = ["--device", "soft", "--kernel", "naive", "--size", "8"];
    let (out, dotted) = (files.path("one"), files.path("./one"));
    refused_without_a_trace(
        &files,
        &[&product[..], &["--out", &out, "--save", &dotted]].concat(),
        &same,
    );
    let tune = ["tune", "--quick", "--device", "soft", "--out", &out, "--save", &dotted];
    refused_without_a_trace(&files, &tune, &same);
    // The same for one that exists, by a link.
    let stored = files.path("stored.npy");
    assert_eq!(run(&[&product[..], &["--out", &stored]].concat()).code, Some(0));
    #[cfg(unix)]
    {
        let link = files.path("link");
        std::os::unix::fs::symlink(&stored, &link).unwrap();
        let both = ["--out", &link, "--save", &stored];
        refused_without_a_trace(&files, &[&product[..], &both].concat(), &same);
    }
}

#[test]
fn a_result_replaces_the_old_c_but_neither_a_nor_b() {
    let files = Files::new();
    let one = |i: usize, j: usize| f32::from(i == j);
    let (a, b) = (files.matrix("a.npy", 2, 2, one), files.matrix("b.npy", 2, 2, one));
    let c = files.matrix("c.npy", 2, 2, |_, _| 1.0);
    let product = ["--device", "soft", "--kernel", "naive", "--a", &a, "--b", &b, "--c", &c];
    let product = [&product[..], &["--beta", "1"]].concat();
    let mut cases = vec![("--a", files.path("a.npy")), ("--b", files.path("./b.npy"))];
    #[cfg(unix)]
    {
        let link = files.path("link.npy");
        std::os::unix::fs::symlink(&a, &link).unwrap();
        cases.push(("--a", link));
    }
    for (option, out) in &cases {
        let reason = format!("{option} reads the same file, which would be lost");
        let says = ["cannot write", &reason, "choose another output file"];
        refused_without_a_trace(&files, &[&product[..], &["--out", out]].concat(), &says);
    }
    let ran = run(&[&product[..], &["--out", &c]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(read_npy(&c).1, [2.0, 1.0, 1.0, 2.0]);

    // A second hard link keeps what the first one had.
    let hard = files.path("hard.npy");
    fs::hard_link(&a, &hard).unwrap();
    let before = fs::read(&a).unwrap();
    let ran = run(&[&product[..], &["--out", &hard]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(read_npy(&hard).1, [3.0, 1.0, 1.0, 3.0]);
    assert_eq!(fs::read(&a).unwrap(), before);
}

#[test]
fn a_matrix_replaces_nothing_but_a_matrix() {
    let files = Files::new();
    let (saved, table) = (files.path("saved.jsonl"), files.path("table.json"));
    let (text, short) = (files.path("notes.txt"), files.path("short"));
    let product = ["--device", "soft", "--kernel", "auto", "--size", "8"];
    assert_eq!(run(&[&product[..], &["--save", &saved]].concat()).code, Some(0));
    fs::write(&table, super::TABLE).unwrap();
    fs::write(&text, "256\n512\n").unwrap();
    fs::write(&short, b"\x93NUM").unwrap();
    let other = ["cannot write", "it holds something other than a .npy file"];
    for out in [&saved, &table, &text, &short] {
        let arguments = [&product[..], &["--table", &table, "--out", out]].concat();
        refused_without_a_trace(&files, &arguments, &other);
    }
    // What is empty has nothing to lose, and a file of another shape is one.
    let out = files.path("out.npy");
    fs::write(&out, "").unwrap();
    for size in ["4", "8"] {
        let arguments = ["--kernel", "naive", "--size", size, "--out", &out];
        assert_eq!(soft(&arguments).code, Some(0));
    }
    assert_eq!(read_npy(&out).1.len(), 64);
}

#[test]
fn a_table_replaces_nothing_but_a_table() {
    let files = Files::new();
    let matrix = files.matrix("a.npy", 4, 4, |_, _| 1.0);
    let (saved, table) = (files.path("saved.jsonl"), files.path("table.json"));
    assert_eq!(soft(&["--kernel", "naive", "--size", "8", "--save", &saved]).code, Some(0));
    for other in [&matrix, &saved] {
        let tune = ["tune", "--quick", "--device", "soft", "--out", other];
        refused_without_a_trace(&files, &tune, &["it holds something other than a table"]);
    }
    // One of another version, with kernels that are no more.
    fs::write(&table, super::TABLE.replace("tile_", "old_")).unwrap();
    let tune = ["tune", "--quick", "--device", "soft", "--out", &table];
    assert_eq!(run(&tune).code, Some(0));
    // What is replaced stays beside it, and what is not complete replaces nothing.
    let before = fs::read_to_string(files.path("table.json.before")).unwrap();
    assert!(before.contains("old_"));
    let complete = fs::read_to_string(&table).unwrap();
    #[cfg(unix)]
    assert_eq!(limited(1, &tune).code, Some(2));
    assert_eq!(fs::read_to_string(&table).unwrap(), complete);
    // Nor does that of another device.
    let of_gpu = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/cuda_gemm/tuned/nvidia_h200.json");
    fs::copy(of_gpu, &table).unwrap();
    super::expect_refusal(&run(&tune), &tune, &["is the table of NVIDIA H200", "--out"]);
}
