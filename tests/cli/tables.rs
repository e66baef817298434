//! Tables of `tune`.

use super::*;

#[test]
fn tables_that_cannot_be_used() {
    let files = Files::new();
    let table = files.path("table.json");
    fs::write(&table, TABLE.replacen("tile_64x64", "tile_64x46", 1)).unwrap();
    let line = TABLE.lines().position(|line| line.contains("tile_64x64")).unwrap() + 1;
    let place = format!("table.json:{line}: ");
    let says = [&place[..], "no kernel `tile_64x46`", "the nearest are `tile_64x64`", "rungs tune"];
    refused(&["--kernel", "auto", "--size", "8", "--table", &table], &says);
    for arguments in [
        &["explain", "auto", "--device", "soft", "--table", &table][..],
        &["bench", "--sizes", "8", "--table", &table],
    ] {
        expect_refusal(&run(arguments), arguments, &says);
    }
    let missing = files.path("missing.json");
    refused(&["--kernel", "auto", "--size", "8", "--table", &missing], &["missing.json"]);
    let other = ["--kernel", "naive", "--size", "8", "--table", &table];
    expect_refusal(&soft(&other), &other, &["--table is for --kernel auto"]);
}

/// In TF32 `auto` compares kernels for f32, whose costs are in the table, with those for tensor
/// cores.
#[test]
fn a_table_is_for_auto_in_any_precision() {
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/cuda_gemm/tuned/nvidia_h200.json");
    let chosen = |compute: &str, m: &str| {
        let product =
            ["--device", "soft-sm90", "--kernel", "auto", "--m", m, "--n", "256", "--k", "512"];
        let by = ["--compute", compute, "--table", table, "--format", "json"];
        let ran = run(&[&product[..], &by].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        json(&ran)["chosen"].as_str().unwrap().to_owned()
    };
    let (few, many) = (chosen("tf32", "1"), chosen("tf32", "256"));
    assert!(!few.starts_with("tf32_") && many.starts_with("tf32_"), "{few}, {many}");
    assert!(chosen("bf16", "1").starts_with("wgmma_"));
}

/// Simulated times are no table for a GPU, unless somebody asks for them.
#[test]
fn tune_without_a_gpu_writes_nothing() {
    let files = Files::new();
    let out = files.path("table.json");
    // Hides the GPUs of a machine that has some.
    let arguments = ["tune", "--quick", "--out", &out];
    let ran = finish(command(&arguments).env("CUDA_VISIBLE_DEVICES", "").output().unwrap());
    assert_eq!(ran.code, Some(2), "{}", ran.stdout);
    assert!(ran.stderr.contains("add --device soft"), "{}", ran.stderr);
    assert!(!Path::new(&out).exists());
}

/// The whole of `tune`, with little to measure.
#[test]
fn tune_makes_a_table_that_auto_takes() {
    for device in ["soft", "soft-sm90"] {
        let files = Files::new();
        let folder = files.0.path().to_str().unwrap();
        let times = Files::new();
        let save = times.path("times.jsonl");
        let ran = run(&["tune", "--quick", "--device", device, "--out", folder, "--save", &save]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stderr.contains("simulated times say nothing"), "{}", ran.stderr);
        for text in ["tile_32x32", "a step", "half within", "model:", "time:", "table:"] {
            assert!(ran.stdout.contains(text), "{text}: {}", ran.stdout);
        }
        for line in fs::read_to_string(&save).unwrap().lines() {
            let sample: Value = serde_json::from_str(line).unwrap();
            assert!(sample["ns"].as_f64().unwrap() > 0.0, "{line}");
            assert!(sample["kernel"].is_string() && sample["m"].is_u64(), "{line}");
        }
        let [table] = &files.names()[..] else { panic!("{:?}", files.names()) };
        let text: Value = serde_json::from_str(&fs::read_to_string(table).unwrap()).unwrap();
        for name in ["tile_32x32", "tile_32x32_unaligned", "naive", "stage_operands", "peak_copy"] {
            assert_eq!(text["device"]["ptx_sha256"][name].as_str().unwrap().len(), 64, "{name}");
        }
        let table = table.to_str().unwrap();
        // The times make the same table without the device.
        let again = times.path("again.json");
        let refit = ["tune", "--refit", &save, "--table", table, "--out", &again];
        let ran = run(&refit);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
        assert_eq!(fs::read_to_string(&again).unwrap(), fs::read_to_string(table).unwrap());
        let one = times.path("one.json");
        let named = ["tune", "--quick", "--device", device, "--kernels", "naive", "--out", &one];
        expect_refusal(&run(&named), &named, &["the table is of NVIDIA", "--table"]);
        let ran = run(&[&named[..], &["--table", table]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(
            ran.stdout.contains("\nnaive ") && !ran.stdout.contains("tile_32x32"),
            "{}",
            ran.stdout
        );
        let renewed: Value = serde_json::from_str(&fs::read_to_string(&one).unwrap()).unwrap();
        let kernels = |table: &Value| table["kernels"].as_array().unwrap().clone();
        for (before, after) in kernels(&text).iter().zip(&kernels(&renewed)) {
            assert!(before == after || after["kernel"] == "naive", "{before}, {after}");
        }
        let auto = ["--device", device, "--kernel", "auto", "--size", "40", "--table", table];
        let ran = run(&auto);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stdout.contains("PASS") && ran.stdout.contains("chosen:"), "{}", ran.stdout);
        let explain = ["explain", "auto", "--device", device, "--table", table];
        let basis = run(&explain).stdout;
        assert!(basis.contains("basis:   measured on Software CUDA device"), "{basis}");
        assert!(!basis.contains("changed since"), "{basis}");
    }
}

#[test]
fn refit_takes_times_and_a_table() {
    let files = Files::new();
    let (times, table) = (files.path("times.jsonl"), files.path("table.json"));
    fs::write(&table, TABLE).unwrap();
    let refit = ["tune", "--refit", &times, "--table", &table];
    expect_refusal(&run(&refit[..3]), &refit[..3], &["--table <FILE>"]);
    expect_refusal(&run(&refit), &refit, &["times.jsonl"]);
    for (line, says) in [
        ("", "there is no time in it"),
        ("{", "times.jsonl:1: it is no time of `tune --save`"),
        ("{\"compute\":\"f33\"}", "times.jsonl:1: "),
    ] {
        fs::write(&times, line).unwrap();
        expect_refusal(&run(&refit), &refit, &[says]);
    }
    assert_eq!(fs::read_to_string(&table).unwrap(), TABLE);
    // What has no time stays, and so does the table that was there.
    let sample = r#"{"compute":"f32","batch":1,"m":64,"n":64,"k":640,"trans_a":false,"trans_b":false,
        "output":"f32","beta":0.0,"bias":false,"activation":false,"residual":false,
        "kernel":"tile_64x64","splits":1,"clusters":null,"blocks_per_multiprocessor":null,
        "packed":false,"ns":9000.0,"weight":1.0}"#;
    fs::write(&times, sample.replace('\n', "")).unwrap();
    // The samples are no table to be replaced.
    let onto_times = [&refit[..], &["--out", &times]].concat();
    expect_refusal(&run(&onto_times), &onto_times, &["holds something other than a table"]);
    assert_eq!(run(&refit).code, Some(0));
    let kernels = |text: &str| -> Vec<Value> {
        let table: Value = serde_json::from_str(text).unwrap();
        table["kernels"].as_array().unwrap().clone()
    };
    let (was, is) = (kernels(TABLE), kernels(&fs::read_to_string(&table).unwrap()));
    assert_ne!(was[0]["aligned"], is[0]["aligned"]);
    assert_eq!((&was[0]["unaligned"], &was[1..]), (&is[0]["unaligned"], &is[1..]));
    assert_eq!(fs::read_to_string(format!("{table}.before")).unwrap(), TABLE);
}

/// A table's measured products come before its costs.
#[test]
fn a_table_may_have_measured_products() {
    let files = Files::new();
    let table = files.path("table.json");
    let made = run(&["tune", "--quick", "--device", "soft-sm90", "--out", &table]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let text = fs::read_to_string(&table).unwrap();
    let mut parsed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(parsed["products"], serde_json::json!([]));
    parsed["device"]["ptx_sha256"]["wgmma_128x192"] = "0".repeat(64).into();
    parsed["products"] = serde_json::json!([{
        "compute": "bf16", "m": 16, "n": 64, "k": 128,
        "best": { "kernel": "wgmma_128x192", "splits": 1, "ns": 9000.0 },
    }]);
    fs::write(&table, parsed.to_string()).unwrap();
    let explain = ["explain", "auto", "--compute", "bf16", "--device", "soft-sm90"];
    let sizes = ["--sizes", "16x64x128,16x64x136", "--table", &table];
    let ran = run(&[&explain[..], &sizes].concat());
    let says = "16x64x128: wgmma_128x192, as measured for this product in the table; by the costs:";
    assert!(ran.stdout.contains(says), "{} {}", ran.stdout, ran.stderr);
    assert_eq!(ran.stdout.matches("as measured for").count(), 1, "{}", ran.stdout);
}

/// For a device that cannot be measured now.
#[test]
fn tune_has_a_table_say_what_has_changed() {
    let files = Files::new();
    let table = files.path("table.json");
    // As if all had been measured with PTX that nobody knows any more.
    fs::write(&table, TABLE).unwrap();
    let explain = ["explain", "auto", "--device", "soft", "--table", &table];
    // Its second entry point goes without saying.
    let changed = "PTX that has changed since: tile_64x64, ";
    let ran = run(&explain);
    assert!(ran.stdout.contains(changed) && !ran.stdout.contains("_unaligned"), "{}", ran.stdout);
    let ran = run(&["tune", "--accept", &table]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let entry_points = "changed: tile_64x64, tile_64x64_unaligned, ";
    assert!(ran.stdout.starts_with(entry_points), "{}", ran.stdout);
    let text: Value = serde_json::from_str(&fs::read_to_string(&table).unwrap()).unwrap();
    assert_eq!(text["device"]["changed_since"]["tile_64x64"].as_str().unwrap().len(), 64);
    assert_eq!(text["costs"]["launch_ns"], 2000.0);
    // It is still said.
    assert!(run(&explain).stdout.contains(changed));

    let missing = files.path("missing.json");
    let arguments = ["tune", "--accept", &missing];
    expect_refusal(&run(&arguments), &arguments, &["missing.json"]);
    let arguments = ["tune", "--accept", &table, "--out", &table];
    assert_eq!(run(&arguments).code, Some(2));
}

/// What `tune --validate` draws stands for itself.
#[test]
fn validate_takes_no_other_products() {
    let files = Files::new();
    let shapes = files.path("shapes.txt");
    fs::write(&shapes, "8\n").unwrap();
    for with in [
        &["--shapes", &shapes][..],
        &["--sizes", "8"],
        &["--out", "t.json"],
        &["--quick"],
        &["--accept", "t.json"],
        &["--trans-b"],
        &["--batch", "2"],
    ] {
        let arguments = [&["tune", "--device", "soft", "--validate", "3"], with].concat();
        expect_refusal(&run(&arguments), &arguments, &["cannot be used with"]);
    }
    for alone in [["--seed", "3"], ["--format", "json"]] {
        let arguments = [&["tune", "--device", "soft"][..], &alone].concat();
        expect_refusal(&run(&arguments), &arguments, &["--validate <COUNT>"]);
    }
    let arguments = ["tune", "--validate", "3"];
    let ran = finish(command(&arguments).env("CUDA_VISIBLE_DEVICES", "").output().unwrap());
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.contains("add --device soft"), "{}", ran.stderr);
    // Without costs there is nothing to compare a choice in f32 with.
    let arguments = [&arguments[..], &["--device", "soft"]].concat();
    let ran = run(&arguments);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("is not judged: nothing is predicted"), "{}", ran.stderr);
    assert!(ran.stderr.contains("none of the 3 product(s)"), "{}", ran.stderr);
}
