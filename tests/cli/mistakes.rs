//! What is mistyped.

use host::format::is_control_or_format;

use super::{Files, expect_refusal, run, soft};

#[test]
fn nothing_asked_for_is_answered_with_the_help() {
    let ran = run(&[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.lines().count() <= 25, "{}", ran.stderr);
    let first = "Try first: cargo run -p host -- --kernel tile2d --size 512";
    assert_eq!(ran.stderr.lines().last(), Some(first));
    let (_, arguments) = first.split_once(" -- ").unwrap();
    let arguments: Vec<_> = arguments.split(' ').collect();
    assert_eq!(soft(&arguments).code, Some(0));
}

#[test]
fn a_size_is_a_whole_number() {
    let says = "a size is a whole number of 0 or more, at most 2147483647";
    for size in
        ["-1", "-1.5", "4k", "1e3", "2147483648", "18446744073709551615", "99999999999999999999"]
    {
        let square = ["--kernel", "naive", "--size", size];
        expect_refusal(&soft(&square), &square, &["--size", size, says]);
        for (m, n, k) in [(size, "8", "8"), ("8", size, "8"), ("8", "8", size)] {
            let product = ["--kernel", "naive", "--m", m, "--n", n, "--k", k];
            expect_refusal(&soft(&product), &product, &[size, says]);
        }
    }
    let says = "is not a size, which is a whole number of 1 or more, at most 2147483647";
    let files = Files::new();
    let shapes = files.path("shapes.txt");
    for size in ["-1", "8x-1x8", "-1x8x8", "8,-1", "1.5"] {
        std::fs::write(&shapes, size.replace(',', "\n") + "\n").unwrap();
        for arguments in [
            &["bench", "--sizes", size][..],
            &["explain", "auto", "--sizes", size],
            &["bench", "--shapes", &shapes],
        ] {
            expect_refusal(&run(arguments), arguments, &[says]);
        }
    }
    for (arguments, says) in [
        (&["--kernel", "naive", "--size", "8", "--repeat", "-1"][..], "-1 is not in 1.."),
        (&["--kernel", "naive", "--size", "8", "--splits", "-1"], "-1 is not in 1.."),
        (
            &["--kernel", "naive", "--size", "8", "--seed", "-1"],
            "a seed is a whole number of 0 or more",
        ),
        (&["--kernel", "naive", "--size", "8", "--alpha", "x"], "a factor is a number"),
        (&["bench", "--seed", "x"], "a seed is a whole number of 0 or more"),
        (&["bench", "--samples", "-1"], "-1 is not in 6..=1000"),
        (&["bench", "--random", "0"], "0 is not in 1..=100000"),
        (&["bench", "--random-layers", "0"], "0 is not in 1..=100000"),
        (&["tune", "--validate", "0"], "0 is not in 1..=100000"),
        (&["tune", "--validate", "3", "--seed", "-1"], "a seed is a whole number of 0 or more"),
        (&["bench", "--margins", "1"], "two numbers of columns, LEFT,RIGHT"),
        (&["bench", "--margins", "1,-2"], "each from 0 to 1024"),
    ] {
        expect_refusal(&run(arguments), arguments, &[says]);
    }
}

#[test]
fn explain_says_what_is_no_kernel_and_which_options_are_for_auto() {
    for (name, says) in [
        (
            "cublas",
            "NVIDIA's library, the baseline: `--kernel cublas` runs it, and `bench` compares",
        ),
        ("all", "`list` shows the kernels"),
    ] {
        let arguments = ["explain", name];
        let no_kernel = format!("`{name}` is no kernel");
        expect_refusal(&run(&arguments), &arguments, &[&no_kernel, says]);
    }
    for option in [["--device", "soft"], ["--sizes", "4"], ["--table", "t.json"]] {
        for name in [&["tile2d"][..], &[]] {
            let arguments = [&["explain"], name, &option].concat();
            let says = format!("{} is for `explain auto`", option[0]);
            expect_refusal(&run(&arguments), &arguments, &[&says, "Usage: rungs explain"]);
        }
    }
}

#[test]
fn what_is_quoted_is_short_and_printable() {
    let long = "x".repeat(10_000);
    let colours = "\x1b[31mred\nand two lines";
    let files = Files::new();
    let (shapes, table) = (files.path("shapes.txt"), files.path("table.json"));
    let escaped = r"\u{1b}[31mred\nand two lines".to_owned();
    for (text, quoted) in [(long.as_str(), "x".repeat(60) + "…"), (colours, escaped)] {
        std::fs::write(&shapes, text.replace('\n', "\t")).unwrap();
        let name = serde_json::to_string(text).unwrap();
        std::fs::write(&table, super::TABLE.replace("\"tile_64x64\"", &name)).unwrap();
        let option = format!("--{text}");
        let product = ["--kernel", "naive", "--size", "8"];
        for arguments in [
            &["--kernel", text, "--size", "8"][..],
            &["explain", text],
            &["bench", "--kernels", text],
            &["bench", "--sizes", text],
            &["bench", "--l2", text],
            &["bench", "--shapes", &shapes],
            &["bench", "--table", &table],
            &["--kernel", "naive", "--size", text],
            &[&product[..], &["--device", text]].concat(),
            &[&product[..], &[&option]].concat(),
            &[&product[..], &[text]].concat(),
        ] {
            let ran = run(arguments);
            expect_refusal(&ran, &arguments[..1], &[]);
            assert!(ran.stderr.len() < 1500, "{:?}: {} bytes", arguments[0], ran.stderr.len());
            assert!(!ran.stderr.contains('\x1b'), "{}", ran.stderr);
        }
        let ran = soft(&["--kernel", text, "--size", "8"]);
        assert!(ran.stderr.contains(&format!("`{quoted}`")), "{}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1);
    }
}

#[test]
fn names_of_files_do_not_reach_the_terminal_as_they_are() {
    let files = Files::new();
    let missing = files.path("\x1b[31m\u{202e}no\u{200b}/such.npy");
    let product = ["--kernel", "auto", "--size", "8"];
    for arguments in [
        &["--kernel", "naive", "--a", &missing, "--b", &missing][..],
        &[&product[..], &["--out", &missing]].concat(),
        &[&product[..], &["--save", &missing]].concat(),
        &[&product[..], &["--table", &missing]].concat(),
        &["bench", "--shapes", &missing],
        &["tune", "--quick", "--device", "soft", "--out", &missing],
    ] {
        let ran = run(arguments);
        expect_refusal(&ran, &arguments[..1], &[r"\u{1b}[31m\u{202e}no\u{200b}/such.npy"]);
        assert!(!ran.stderr.contains(['\x1b', '\u{202e}', '\u{200b}']), "{}", ran.stderr);
    }
}

#[test]
fn what_stdout_quotes_is_printable_and_json_stays_json() {
    let files = Files::new();
    let table = files.path("\x1b[31mtable.json");
    let shown = r"\u{1b}[31mtable.json";
    let printable = |arguments: &[&str]| {
        let ran = run(arguments);
        assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.stderr);
        let is_plain = |c: char| c == '\n' || !is_control_or_format(c);
        assert!(ran.stdout.chars().all(is_plain), "{arguments:?}: {:?}", ran.stdout);
        ran.stdout
    };
    let quick = ["tune", "--quick", "--device", "soft", "--out", &table];
    assert!(printable(&quick).contains(shown));
    assert!(printable(&["tune", "--accept", &table]).contains(shown));

    // The name of a device, as a table has it.
    let name = "\x1b[31mred\u{9b}31m\u{7f}\u{202e}\u{e0041}";
    let text = std::fs::read_to_string(&table).unwrap();
    let mut text: serde_json::Value = serde_json::from_str(&text).unwrap();
    text["device"]["name"] = name.into();
    std::fs::write(&table, text.to_string()).unwrap();
    let explain = ["explain", "auto", "--device", "soft", "--sizes", "8", "--table", &table];
    assert!(printable(&explain).contains(r"\u{1b}[31mred\u{9b}31m\u{7f}\u{202e}\u{e0041}"));
    let line = printable(&[&explain[..], &["--format", "json"]].concat());
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert!(line["basis"].as_str().unwrap().contains(name), "{line}");
}

/// Where there is no driver: elsewhere the GPUs are hidden, and the words are others.
#[test]
fn nobody_is_told_to_do_what_is_done() {
    for (arguments, code, says) in [
        (&["--kernel", "naive", "--size", "8"][..], 0, "note: running on the software device"),
        (&["bench"], 2, "--device soft`"),
        (&["explain", "tile2d"], 0, "no GPU here: "),
        (
            &["--kernel", "naive", "--size", "8", "--device", "gpu"],
            2,
            "`--device soft` needs no GPU",
        ),
    ] {
        let mut command = super::command(arguments);
        let ran = super::finish(command.env("CUDA_VISIBLE_DEVICES", "").output().unwrap());
        let words = ran.stdout + &ran.stderr;
        assert_eq!(ran.code, Some(code), "{arguments:?}: {words}");
        assert!(words.contains(says), "{arguments:?}: {words}");
        assert!(!words.contains("use the software device"), "{arguments:?}: {words}");
    }
}
