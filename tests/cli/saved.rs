//! `report` and `compare`: what they make of saved runs, and of what is none.

use super::*;

/// The repository's own runs.
fn recorded(name: &str) -> String {
    text(Path::new(env!("CARGO_MANIFEST_DIR")).join("../runs").join(name))
}

/// What the tests of `gemm_report` have beside them.
fn fixture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/gemm_report/tests/runs");
    text(folder.join(name))
}

fn text(path: PathBuf) -> String {
    path.display().to_string()
}

#[test]
fn a_page_and_pictures_of_a_run() {
    let folder = TempDir::new().unwrap();
    let [page, pictures] = ["report.html", "pictures"].map(|name| folder.path().join(name));
    let ladder = fixture("ladder.jsonl");
    let arguments =
        ["report", "--out", &text(page.clone()), "--svg", &text(pictures.clone()), &ladder];
    for _ in 0..2 {
        // The second time, what the first one made is replaced.
        let ran = run(&arguments);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        assert!(
            ran.stdout.contains("1 file") && ran.stdout.contains("1 picture"),
            "{}",
            ran.stdout
        );
    }
    assert!(fs::read_to_string(&page).unwrap().contains("warp_specialized"));
    let names: Vec<_> = fs::read_dir(&pictures).unwrap().collect();
    assert_eq!(names.len(), 1, "without a run of `bench` there are no roofs: {names:?}");

    // All of them, by their folder, from a folder in which there are none; over the page of before.
    let ran =
        finish(command(&["report", &recorded("")]).current_dir(folder.path()).output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let all = fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(all.contains("NVIDIA H100"));
}

#[test]
fn a_saved_result_is_shown() {
    let folder = TempDir::new().unwrap();
    let [saved, page] = ["runs.jsonl", "report.html"].map(|name| text(folder.path().join(name)));
    assert_eq!(soft(&["--kernel", "tile2d", "--size", "32", "--save", &saved]).code, Some(0));
    let ran = run(&["report", "--out", &page, &saved]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("32 x 32 x 32") && page.contains("simulation on a CPU"));
    // One sample tells nothing.
    let ran = run(&["compare", &saved, &saved]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stdout.contains("too few samples") && ran.stdout.contains("4 or more of each"));
    assert!(ran.stderr.contains("times are those of a simulation"), "{}", ran.stderr);
    assert!(ran.stdout.contains("1.000 x in the geometric mean"), "{}", ran.stdout);
}

#[test]
fn comparing_says_what_is_slower() {
    let before = fixture("short-k-before.jsonl");
    let after = recorded("h200/f32/short-k.jsonl");
    let better = run(&["compare", &before, &after, "--format", "json"]);
    let lines = json_lines(&better.stdout);
    assert_eq!(lines.len(), 41);
    let summary = &lines[40]["summary"];
    assert_relative_eq!(summary["geometric_mean"].as_f64().unwrap(), 1.796, max_relative = 1e-3);
    let slower = summary["slower"].as_u64().unwrap();
    assert_eq!(better.code, Some(i32::from(slower > 0)), "{summary}");

    let worse = run(&["compare", &after, &before]);
    assert_eq!((worse.code, worse.stderr.as_str()), (Some(1), ""));
    for says in ["SLOWER", "1846 x 573 x 13", "Mann and Whitney", "the ratio to cuBLAS"] {
        assert!(worse.stdout.contains(says), "{says}: {}", worse.stdout);
    }
    // Nothing is that much slower.
    let same = run(&["compare", &after, &before, "--threshold", "500"]);
    assert_eq!(same.code, Some(0), "{}", same.stdout);

    let h100 = recorded("h100/f32/shapes.jsonl");
    let h200 = recorded("h200/f32/shapes.jsonl");
    let other = run(&["compare", &h100, &h200]);
    assert!(other.stderr.contains("warning: not the same device: NVIDIA H100"), "{}", other.stderr);
}

#[test]
fn what_is_no_saved_run_is_refused() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, content: &str| {
        fs::write(folder.path().join(name), content).unwrap();
        text(folder.path().join(name))
    };
    let fine = file("fine.jsonl", "{\"kernel\":\"naive\",\"m\":1,\"n\":1,\"k\":1}\n");
    let page = text(folder.path().join("report.html"));
    let tune = recorded("h100/bf16/tune.jsonl");
    let missing = text(folder.path().join("missing.jsonl"));
    for (saved, says) in [
        (&missing, "cannot read"),
        (&file("empty.jsonl", ""), "holds no result: give a file that `--save` wrote"),
        (&file("text.jsonl", "no\nJSON\n"), "text.jsonl, line 1: expected"),
        (&file("array.jsonl", "{\"summary\":{}}\n[1]\n"), "array.jsonl, line 2: it is no saved"),
        (&file("cut.jsonl", "{\"kernel\":\"naive\",\"m\":1"), "line 1: the line is cut off (EOF"),
    ] {
        for arguments in [&["report", "--out", &page, saved][..], &["compare", saved, &fine]] {
            expect_refusal(&run(arguments), arguments, &[says]);
        }
        assert!(!Path::new(&page).exists());
    }
    let arguments = ["compare", fine.as_str(), tune.as_str()];
    expect_refusal(&run(&arguments), &arguments, &["holds a search of `rungs tune`, not results"]);
    let arguments = ["compare", fine.as_str(), fine.as_str()];
    expect_refusal(&run(&arguments), &arguments, &["there is nothing to compare"]);

    // A page does not replace what is none, and no picture does.
    let notes = file("notes.txt", "mine");
    let arguments = ["report", "--out", notes.as_str(), fine.as_str()];
    expect_refusal(&run(&arguments), &arguments, &["something that `report` did not write"]);
    assert_eq!(fs::read_to_string(&notes).unwrap(), "mine");

    let nowhere = command(&["report", "--out", "x.html"]).current_dir(folder.path()).output();
    let nowhere = finish(nowhere.unwrap());
    expect_refusal(&nowhere, &["report"], &["there is no folder `runs` here: name files"]);
}
