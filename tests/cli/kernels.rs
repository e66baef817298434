//! Which kernels there are, and what is for which of them.

use super::*;

#[test]
fn list_shows_all_kernels() {
    let table = run(&["--list"]);
    assert_eq!((table.code, table.stderr.as_str()), (Some(0), ""));
    let lines = run(&["--list", "--format", "json"]);
    assert_eq!(lines.stdout.lines().count(), f32_kernels().count() + TENSOR_CORE.len() + 1);
    let last: Value = serde_json::from_str(lines.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["kernel"], "auto");
    assert!(table.stdout.lines().last().unwrap().starts_with("auto: "), "{}", table.stdout);
    for (descriptor, line) in LADDER.iter().chain(TILES).zip(lines.stdout.lines()) {
        assert!(
            table.stdout.contains(descriptor.name()) && table.stdout.contains(descriptor.summary())
        );
        let rung: Value = serde_json::from_str(line).unwrap();
        assert_eq!(rung["kernel"], descriptor.name());
        assert_eq!(rung["threads"], descriptor.threads());
        assert_eq!(rung["splits"], descriptor.abi().splits_k());
    }
    let listed = json_lines(&lines.stdout);
    for descriptor in TENSOR_CORE {
        let kernel = listed.iter().find(|kernel| kernel["kernel"] == descriptor.name()).unwrap();
        assert_eq!(kernel["splits"], descriptor.abi().splits_k());
    }
}

/// Every kernel has a line where kernels are written about.
#[test]
fn the_documents_name_all_kernels() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for document in ["docs/kernels.md", "kernels-gpu/NOTES.md"] {
        let text = fs::read_to_string(root.join(document)).unwrap();
        for line in json_lines(&run(&["list", "--format", "json"]).stdout) {
            let name = line["kernel"].as_str().unwrap();
            assert!(name == "auto" || text.contains(&format!("`{name}`")), "{document}: {name}");
        }
    }
}

/// Nobody gets bf16 who has not asked for it, and whoever has is told.
#[test]
fn tensor_cores_are_asked_for() {
    let size = ["--m", "70", "--n", "90", "--k", "100"];
    let with = |device, kernel, more: &[&str]| {
        run(&[&["--device", device, "--kernel", kernel][..], &size, more].concat())
    };
    for (kernel, compute) in [("wgmma_persistent", "bf16"), ("auto", "f16")] {
        let more = ["--compute", compute, "--trans-b", "--batch", "2", "--epilogue", "gelu"];
        for output in ["f32", compute] {
            let more = [&more[..], &["--bias", "column", "--output", output]].concat();
            let ran = with("soft-sm90", kernel, &more);
            assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
            let says = format!("rounded to {compute}, ");
            assert!(ran.stdout.contains(&says) && ran.stdout.contains("PASS"), "{}", ran.stdout);
            let line =
                json(&with("soft-sm90", kernel, &[&more[..], &["--format", "json"]].concat()));
            assert_eq!((&line["compute"], &line["status"]), (&compute.into(), &"PASS".into()));
            assert_eq!(line["output"].is_null(), output == "f32");
            assert!(line["percent_of_peak"].is_null());
        }
    }
    for compute in ["tf32", "tf32x3"] {
        for device in ["soft", "soft-sm90"] {
            let ran = with(device, "all", &["--compute", compute]);
            assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
            let is_right = ran.stdout.contains(" 0 wrong") && ran.stdout.contains("PASS, by ");
            assert!(is_right && ran.stdout.contains("TF32"), "{}", ran.stdout);
        }
    }
    // What is printed is what decides: the bound of products of rounded numbers, not that of
    // rounding them.
    let tf32 = ["--compute", "tf32", "--format", "json"];
    let line = json(&with("soft-sm90", "tf32_split_16x128", &tf32));
    let of = |place: &Value, name: &str| place[name].as_f64().unwrap();
    assert!(of(&line, "tolerance") < 1e-3 && of(&line, "max_abs_error") < 1e-4, "{line}");
    assert!(of(&line, "rms_error") < of(&line, "rms_tolerance"), "{line}");
    let unrounded = &line["unrounded"];
    assert!(of(unrounded, "max_abs_error") > of(&line, "tolerance"), "{line}");
    assert!(of(unrounded, "rms_error") > of(&line, "rms_tolerance"), "{line}");
    let text = with("soft-sm90", "tf32_split_16x128", &tf32[..2]).stdout;
    for says in ["\nrms:     ", ", tolerance ", "\nerrors:  rms ", "before they were rounded"] {
        assert!(text.contains(says), "{says}: {text}");
    }
    let all = with("soft-sm90", "all", &["--compute", "bf16", "--format", "json"]);
    assert_eq!(all.code, Some(0), "{}", all.stderr);
    let of = |line: &str, field| serde_json::from_str::<Value>(line).unwrap()[field].clone();
    let statuses: Vec<_> = all.stdout.lines().map(|line| of(line, "status")).collect();
    let rungs = all.stdout.lines().filter(|line| !of(line, "rung").is_null());
    let rungs: Vec<_> = rungs.map(|line| of(line, "kernel")).collect();
    assert_eq!(rungs, ["mma", "wgmma", "wgmma_pipelined", "wgmma_persistent", "wgmma_pingpong"]);
    assert_eq!(statuses.iter().filter(|status| **status == "PASS").count(), TENSOR_CORE.len() + 1);
    assert!(!all.stdout.contains("\"cublas\""), "{}", all.stdout);

    let old = with("soft", "wgmma_persistent", &["--compute", "bf16"]);
    assert!(old.code == Some(2) && old.stderr.contains("9.0 (sm_90a)"), "{}", old.stderr);
    let transposed = with("soft-sm90", "wgmma", &["--compute", "f16", "--trans-a"]);
    assert!(transposed.stderr.contains("takes no transposes"), "{}", transposed.stderr);
    for (kernel, more, says) in [
        ("wgmma", &[][..], "it is for bf16 and f16"),
        ("tile2d", &["--compute", "bf16"][..], "it is for f32"),
        ("tf32_64x64", &["--compute", "tf32x3"][..], "it is for tf32"),
        ("auto", &["--compute", "f64"][..], "; there are `f32`, "),
        ("auto", &["--output", "bf16"][..], "C cannot be stored as bf16"),
        ("bf16", &[][..], "there is no kernel `bf16`"),
    ] {
        let refused = with("soft-sm90", kernel, more);
        let is_right = refused.code == Some(2) && refused.stderr.contains(says);
        assert!(is_right, "{kernel} {more:?}: {}", refused.stderr);
    }
    let explained = run(&["explain", "wgmma"]);
    assert!(explained.code == Some(0) && explained.stdout.contains("warpgroup"));
    // What a rung does not have is a reason, and the others run.
    let epilogue = soft(&["--kernel", "all", "--size", "20", "--epilogue", "relu"]);
    assert_eq!(epilogue.code, Some(0), "{}", epilogue.stderr);
    assert!(epilogue.stdout.contains("takes no epilogue") && epilogue.stdout.contains("PASS"));
}

#[test]
fn splits_are_for_kernels_that_split_k() {
    let size = ["--m", "20", "--n", "30", "--k", "400", "--splits", "3"];
    let with = |kernel| soft(&[&["--kernel", kernel][..], &size].concat());
    let ran = with("tile_32x32");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
    let lines = soft(&[&["--kernel", "tile_32x32", "--format", "json"][..], &size].concat());
    assert_eq!(json(&lines)["splits"], 3);
    assert!(ran.stdout.contains("\nsplits:  3\n"), "{}", ran.stdout);
    // Each has at least one step along K, and there are fewer where there are fewer steps.
    let tile = TILES.iter().find(|descriptor| descriptor.name() == "tile_32x32").unwrap().tile();
    for (k, splits) in [(tile.bk + 1, 2), (tile.bk, 1)] {
        let k = k.to_string();
        let size = ["--kernel", "tile_32x32", "--m", "20", "--n", "30", "--k", &k];
        let asked = soft(&[&size[..], &["--splits", "1000"]].concat());
        let says = format!("\nsplits:  {splits} (1000 were asked for)\n");
        assert!(asked.stdout.contains(&says), "{}", asked.stdout);
        assert!(!soft(&size).stdout.contains("splits"));
    }
    assert!(json(&lines)["chosen"].is_null());
    for (kernel, says) in [
        ("naive", "naive does not split K"),
        ("all", "--splits is for one"),
        ("auto", "--splits is for one"),
    ] {
        let ran = with(kernel);
        assert_eq!(ran.code, Some(2));
        assert!(ran.stderr.contains(says), "{}", ran.stderr);
    }
    let half = |kernel, more: &[&str]| {
        let product = ["--compute", "bf16", "--m", "20", "--n", "30"];
        let device = ["--device", "soft-sm90", "--format", "json", "--kernel", kernel];
        let k = if more.contains(&"--k") { &[][..] } else { &["--k", "400"] };
        run(&[&device[..], &product, k, more].concat())
    };
    for asked in [1, 3] {
        let ran = json(&half("wgmma_split_64x16", &["--splits", &asked.to_string()]));
        assert_eq!((&ran["splits"], &ran["status"]), (&asked.into(), &"PASS".into()));
    }
    // As many as seem best, if it is not said.
    assert!(json(&half("wgmma_split_64x16", &["--k", "8000"]))["splits"].as_u64() > Some(1));
    let ran = half("wgmma_persistent", &["--splits", "3"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("wgmma_persistent does not split K"), "{}", ran.stderr);
    // Two tiles, whose seven steps along K each are shared.
    let shared = json(&half("wgmma_split_64x16", &["--splits", "1", "--clusters", "5"]));
    assert_eq!((&shared["clusters"], &shared["status"]), (&5.into(), &"PASS".into()));
    let most = json(&half("wgmma_split_64x16", &["--splits", "1", "--clusters", "1000"]));
    assert_eq!((&most["clusters"], &most["status"]), (&14.into(), &"PASS".into()));
    for (asked, says) in [
        ("5", "\nclusters: 5\n"),
        ("1000", "\nclusters: 14 (1000 were asked for)\n"),
        ("2", "\nclusters: none share tiles (2 were asked for)\n"),
    ] {
        let kernel =
            ["--device", "soft-sm90", "--kernel", "wgmma_split_64x16", "--compute", "bf16"];
        let size = ["--m", "20", "--n", "30", "--k", "400", "--splits", "1", "--clusters", asked];
        let asked = run(&[&kernel[..], &size].concat());
        assert!(asked.stdout.contains(says), "{}", asked.stdout);
    }
    for blocks in ["1", "3", "100"] {
        let ran = half("wgmma_split_64x16", &["--blocks-per-multiprocessor", blocks]);
        assert_eq!(json(&ran)["status"], "PASS");
    }
    // Of 30 columns, in panels or rounded up to 32.
    let narrow = json(&half("wgmma_split_128x256", &["--trans-b", "--columns", "30"]));
    assert_eq!((&narrow["status"], &narrow["columns"]), (&"PASS".into(), &32.into()), "{narrow}");
    for kernel in ["wgmma_persistent", "wgmma_split_64x64_align1", "auto"] {
        let ran = half(kernel, &["--columns", "32"]);
        assert_eq!(ran.code, Some(2));
        assert!(ran.stderr.contains("such as wgmma_split_128x256"), "{}", ran.stderr);
    }
    for kernel in ["wgmma_persistent", "auto", "all"] {
        for [option, value] in
            [["--clusters", "3"], ["--blocks-per-multiprocessor", "3"], ["--transposes-c", "true"]]
        {
            let ran = half(kernel, &[option, value]);
            assert_eq!(ran.code, Some(2));
            assert!(ran.stderr.contains("name one of wgmma_split"), "{}", ran.stderr);
        }
    }
}

#[test]
fn copies_are_for_the_tiles() {
    let size = ["--m", "20", "--n", "31", "--k", "40", "--staged"];
    let with = |kernel| soft(&[&["--kernel", kernel, "--format", "json"][..], &size].concat());
    let ran = with("tile_32x32");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
    assert_eq!(json(&ran)["packed"], true);
    for kernel in ["naive", "auto", "all"] {
        let ran = with(kernel);
        assert_eq!(ran.code, Some(2));
        assert!(ran.stderr.contains("--staged is for"), "{}", ran.stderr);
    }
}
