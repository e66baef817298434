//! The commands: each with its help, whose examples work.

use super::*;

/// All of them.
const COMMANDS: [&str; 10] = [
    "run",
    "list",
    "explain",
    "bench",
    "tune",
    "report",
    "compare",
    "doctor",
    "completions",
    "man",
];

/// The words of each example in a help, without what a shell does with it.
fn examples(help: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = help.lines().filter_map(|line| line.strip_prefix("  rungs "));
    lines.map(|line| {
        let words = line.split("  ").next().unwrap_or_default().split(' ');
        words.take_while(|word| !matches!(*word, ">" | "|")).collect()
    })
}

/// Those that need a GPU or files, or take long, are only parsed, by a test of the program's own.
#[test]
fn examples_work() {
    let mut ran = 0;
    for command in std::iter::once(None).chain(COMMANDS.map(Some)) {
        let asked: Vec<_> = command.into_iter().chain(["--help"]).collect();
        let help = run(&asked);
        assert_eq!(help.code, Some(0), "{asked:?}: {}", help.stderr);
        for words in examples(&help.stdout) {
            let elsewhere = ["gpu", "A.npy", "bench", "tune", "report", "compare"];
            if words.iter().any(|word| elsewhere.contains(word)) && words[0] != "man" {
                continue;
            }
            let mut arguments = words.clone();
            if command.is_none_or(|command| command == "run") {
                // So that every machine does the same.
                arguments.extend(["--device", "soft"]);
            }
            let done = run(&arguments);
            // What the first two commands of the README do without.
            if arguments.contains(&"--require") && done.stderr == "missing: rust-src\n" {
                assert_eq!(done.code, Some(1));
                continue;
            }
            assert_eq!(done.code, Some(0), "{arguments:?}: {}", done.stderr);
            assert!(!done.stdout.is_empty(), "{arguments:?}");
            ran += 1;
        }
    }
    assert!(ran >= 12, "{ran}");
}

#[test]
fn every_command_is_in_the_help() {
    let help = run(&["--help"]).stdout;
    for command in COMMANDS {
        assert!(help.lines().any(|line| line.trim_start().starts_with(command)), "{command}");
    }
}

#[test]
fn run_and_list_are_the_plain_flags() {
    for flags in [&["--list"][..], &["--list", "--format", "json"]] {
        let listed = run(flags);
        assert_eq!(run(&[&["list"], &flags[1..]].concat()).stdout, listed.stdout);
        assert_eq!(run(&[&["run"], flags].concat()).stdout, listed.stdout);
    }
    let flags = ["--kernel", "tile2d", "--size", "33", "--device", "soft", "--format", "json"];
    let [plain, command] = [run(&flags), run(&[&["run"], &flags[..]].concat())];
    let [plain, command] = [&plain, &command].map(json);
    assert_eq!(plain["max_abs_error"], command["max_abs_error"]);
    let keys = |line: &Value| line.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&plain), keys(&command));
}

#[test]
fn shells_and_man_know_the_options() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ran = run(&["completions", shell]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{shell}");
        for word in ["rungs", "bench", "kernel", "compute"] {
            assert!(ran.stdout.contains(word), "{shell}: {word}");
        }
    }
    let page = run(&["man"]).stdout;
    assert!(page.contains(".TH rungs 1") && page.contains("tile2d"), "{page}");
    let page = run(&["man", "bench"]).stdout;
    assert!(page.contains(".TH rungs-bench 1") && page.contains("sample\\-ms"), "{page}");
    expect_refusal(
        &run(&["man", "bensh"]),
        &["man"],
        &["no command `bensh`; the nearest are `bench`,"],
    );
}

#[test]
fn what_is_before_a_command_is_for_all_of_them() {
    let listed = run(&["list"]).stdout;
    for arguments in [&["-q", "list"][..], &["--quiet", "list"], &["list", "-q"]] {
        assert_eq!(run(arguments).stdout, listed, "{arguments:?}");
    }
    for (arguments, says) in [
        (&["--size", "8", "bench"][..], "the subcommand 'bench' cannot be used with '--sizes'"),
        (&["--list", "list"], "the subcommand 'list' cannot be used with '--list'"),
        (&["--m", "8", "doctor"], "'--m'"),
    ] {
        expect_refusal(&run(arguments), arguments, &[says]);
    }
}

#[test]
fn what_no_command_can_do_is_said() {
    for (arguments, says) in [
        (&["bench", "--sizes", "0"][..], "a size is 0, and must be at least 1"),
        (&["bench", "--sizes", "2147483648"], "the largest possible is 2147483647"),
        (&["bench", "--shapes", "/nowhere"], "/nowhere"),
        (&["run", "--kernel", "naive", "--size", "-1"], "a whole number of 0 or more"),
        (&["run", "naive", "8", "--l2", "hot"], "there are `cold` and `warm`"),
        (&["run", "--kernel", "naive", "--size", "8", "--out", "/nowhere/c.npy"], "does not exist"),
        (&["tune", "--device", "soft", "--out", "/nowhere/t.json"], "its folder does not exist"),
        (&["explain", "auto", "--table", "/nowhere"], "/nowhere"),
        (&["list", "naive"], "unexpected argument 'naive'"),
        (&["completions", "tcsh"], "cannot be `tcsh`; there are `bash`"),
    ] {
        expect_refusal(&run(arguments), arguments, &[says]);
    }
    if cfg!(target_os = "linux") {
        for command in [&["doctor"][..], &["list"], &["man"], &["completions", "bash"]] {
            let full = fs::File::options().write(true).open("/dev/full").unwrap();
            let ran = finish(super::command(command).stdout(full).output().unwrap());
            assert_eq!(ran.code, Some(2), "{command:?}");
            assert!(ran.stderr.contains("cannot write stdout"), "{command:?}: {}", ran.stderr);
        }
    }
}

#[test]
fn a_misspelt_name_is_one_line_with_the_nearest_three() {
    let run_it = ["run", "naive", "8"];
    for (arguments, says) in [
        (&["bensh"][..], "no command `bensh`; the nearest are `bench`, "),
        (&["run", "tile2", "8"], "no kernel `tile2`; the nearest are `tile2d`, "),
        (&["explain", "persistant"], "the nearest are `persistent`, "),
        (&["bench", "--kernels", "wraptile"], "the nearest are `warptile`, "),
        (&[&run_it[..], &["--device", "sotf"]].concat(), "--device cannot be `sotf`; there are"),
        (&[&run_it[..], &["--epilogue", "glu"]].concat(), "; there are `relu`, `gelu`, "),
        (&[&run_it[..], &["--compute", "bf61"]].concat(), "; there are `f32`, "),
        (&["run", "--kernl", "naive"], "no option `--kernl`; the nearest are `--kernel"),
        (&["man", "bensh"], "no command `bensh`; the nearest are `bench`, "),
        // A name where a command should be.
        (&["tile2d"], "`rungs run tile2d` runs it, and `rungs explain tile2d` explains it"),
        (&["wgmma_split_64x16"], "`rungs run wgmma_split_64x16 --compute bf16` runs it"),
    ] {
        let ran = run(arguments);
        expect_refusal(&ran, arguments, &[says]);
        let lines = ran.stderr.lines().filter(|line| !line.is_empty() && !line.contains("--help"));
        let lines = lines.filter(|line| !line.starts_with("Usage: "));
        assert_eq!(lines.count(), 1, "{arguments:?}: {}", ran.stderr);
    }
    for (arguments, says) in [
        (&["run", "wgmma", "8"][..], "it is for bf16 and f16; `--compute` says"),
        (&["report", "/nowhere"], "name files that `--save` wrote"),
    ] {
        expect_refusal(&run(arguments), arguments, &[says]);
    }
}

#[test]
fn a_kernel_and_a_size_need_no_flags() {
    let name = |line: &Value| {
        let text = |key: &str| line[key].to_string();
        format!("{} {}x{}x{}", text("kernel"), text("m"), text("n"), text("k"))
    };
    let names = |arguments: &[&str]| -> Vec<String> {
        let ran = run(&[&["run", "--device", "soft", "--format", "json"], arguments].concat());
        assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.stderr);
        json_lines(&ran.stdout).iter().map(name).collect()
    };
    let both = ["\"naive\" 8x8x8", "\"naive\" 3x4x5", "\"tile2d\" 8x8x8", "\"tile2d\" 3x4x5"];
    for arguments in [
        &["naive,tile2d", "8,3x4x5"][..],
        &["--kernels", "naive,tile2d", "--sizes", "8,3x4x5"],
        &["--kernel", "naive", "--kernel", "tile2d", "--size", "8", "--size", "3x4x5"],
    ] {
        assert_eq!(names(arguments), both);
    }
    assert_eq!(names(&["64"]), ["\"auto\" 64x64x64"]);
    assert_eq!(names(&[]), ["\"auto\" 512x512x512"]);
    assert_eq!(names(&["naive", "2*8x9x10:TN", "--samples", "2"]), ["\"naive\" 8x9x10"]);
    for (arguments, says) in [
        (&["run", "naive", "8", "9"][..], "'9'"),
        (&["run", "naive", "8", "--m", "8", "--n", "8", "--k", "8"], "cannot be used with"),
        (&["run", "8", "--a", "a.npy", "--b", "b.npy"], "the sizes come from the files"),
        (&["run", "naive", "8,9", "--out", "c.npy"], "--out stores one result"),
    ] {
        expect_refusal(&run(arguments), arguments, &[says]);
    }
}
