//! `bench`: on a GPU, and what it refuses without.

use super::*;

#[test]
fn bench_needs_a_gpu() {
    // Hides the GPUs of a machine that has some. Simulated times are no performance.
    let files = Files::new();
    let save = files.path("rows.jsonl");
    for arguments in [
        &["bench"][..],
        &["bench", "--kernels", "all", "--sizes", "64,16x32x8", "--l2", "warm"],
        &["bench", "--kernels", "naive,cublas", "--format", "csv", "--save", &save],
    ] {
        let ran = finish(command(arguments).env("CUDA_VISIBLE_DEVICES", "").output().unwrap());
        let says = ["bench measures a GPU", "an NVIDIA GPU", "--device soft"];
        expect_refusal(&ran, arguments, &says);
    }
    assert!(files.names().is_empty(), "nothing was measured, so nothing is saved");
}

#[test]
fn bench_finds_mistakes_first() {
    let files = Files::new();
    let shapes = files.path("shapes.txt");
    fs::write(&shapes, "# M N K\n256\n16 4096\n").unwrap();
    let empty = files.path("empty.txt");
    fs::write(&empty, "# nothing\n").unwrap();
    let missing = files.path("missing.txt");
    let line = format!("{shapes}:3: `16 4096` has 2 numbers");
    for (arguments, says) in [
        (&["--shapes", &shapes][..], &[line.as_str(), "one shape per line"][..]),
        (&["--shapes", &empty], &["empty.txt: there is no shape in it"]),
        (&["--shapes", &missing], &["missing.txt"]),
        (&["--kernels", "naive,tile2"], &["the nearest are `tile2d`"]),
        (&["--save", "/"], &["it is a folder"]),
        (&["--sizes", "256,0"], &["a size is 0"]),
        (&["--sizes", "16x4096"], &["has 2 numbers"]),
        (&["--samples", "5"], &["--samples"]),
        (&["--l2", "hot"], &["there are `cold` and `warm`"]),
        (&["--format", "xml"], &["csv"]),
    ] {
        let arguments = [&["bench"], arguments].concat();
        expect_refusal(&run(&arguments), &arguments, says);
    }
}

#[test]
fn bench_on_a_gpu_compares_with_cublas() {
    if common::gpu().is_none() {
        return;
    }
    let files = Files::new();
    let save = files.path("rows.jsonl");
    let ran = run(&[
        "bench",
        "--kernels",
        "tile2d,smem_full",
        "--sizes",
        "256,100x200x2000",
        "--samples",
        "6",
        "--format",
        "json",
        "--save",
        &save,
    ]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let lines = json_lines(&ran.stdout);
    // Two kernels, two shapes, two summaries; and the environment in the file.
    assert_eq!(lines.len(), 6);
    assert_eq!(json_lines(&fs::read_to_string(&save).unwrap())[1..], lines);
    for row in lines.iter().filter(|row| row["status"] == "PASS") {
        assert_eq!((&row["l2"], &row["samples"]), (&"cold".into(), &6.into()));
        assert!(row["sets"].as_u64().unwrap() > 1);
        for share in ["percent_of_ffma", "percent_of_copy"] {
            assert!((0.0..100.0).contains(&row[share].as_f64().unwrap()), "{row}");
        }
        let [cublas, own] =
            ["cublas_samples_ms", "samples_ms"].map(|name| row[name].as_array().unwrap().clone());
        assert_eq!(own.len(), 6);
        if !cublas.is_empty() {
            let [low, ratio, high] =
                ["ratio_low", "ratio", "ratio_high"].map(|name| row[name].as_f64().unwrap());
            assert!(low <= ratio && ratio <= high, "{row}");
        }
    }
    let refused: Vec<_> = lines.iter().filter(|row| row["status"] == "REFUSED").collect();
    assert!(refused.len() == 1 && refused[0]["kernel"] == "smem_full", "{refused:?}");
}
