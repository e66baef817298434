//! `explain`: kernels, and what `auto` chooses.

use super::*;

#[test]
fn explain_says_what_the_header_says_and_computes() {
    for descriptor in LADDER {
        let ran = run(&["explain", descriptor.name()]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", descriptor.name());
        let title = descriptor.header().next().unwrap();
        for text in [title, "The idea", "Geometry", "Arithmetic", "Peak of the GPU"] {
            assert!(ran.stdout.contains(text), "{text}: {}", ran.stdout);
        }
        assert!(ran.stdout.contains(&format!("BM = {}", descriptor.tile().bm)), "{}", ran.stdout);
    }
    // The documents' own numbers.
    for (name, says) in [
        ("naive", &["256 to global memory"][..]),
        ("vec4", &["88 to global memory", "naive: 84.4 % fewer", "5 K/16 instructions"]),
        ("tile2d", &["K/64 values", "K/4 values"]),
        ("smem2d", &["regtile: 97.5 % fewer", "smem2d_unaligned"]),
        (
            "persistent",
            &["persistent blocks", "stream-K", "3 K/16 values", "naive: 524288 times fewer"],
        ),
        ("tma", &["x walks the columns of C", "3 K/16 values", "16 bytes"]),
    ] {
        let ran = run(&["explain", name]);
        for text in says {
            assert!(ran.stdout.contains(text), "{text}: {}", ran.stdout);
        }
    }
    let explained = json(&run(&["explain", "tile2d", "--format", "json"]));
    assert_eq!((&explained["kernel"], &explained["rung"]), (&"tile2d".into(), &7.into()));
    assert_eq!(explained["global_values"], 1.0 / 64.0);
    assert_eq!(explained["shared_values"], 0.25);

    let all = run(&["explain"]);
    assert_eq!(all.code, Some(0));
    assert!(
        LADDER.iter().all(|descriptor| all.stdout.contains(descriptor.summary())),
        "{}",
        all.stdout
    );
    let ran = run(&["explain", "tile3d"]);
    expect_refusal(&ran, &["explain", "tile3d"], &["the nearest are `tile1d`, `tile2d`"]);
}

#[test]
fn auto_says_what_it_chose() {
    let size = ["--kernel", "auto", "--m", "16", "--n", "300", "--k", "4000"];
    let ran = soft(&size);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert!(ran.stdout.contains("chosen:  tile_16x128\n"), "{}", ran.stdout);
    let files = Files::new();
    let table = files.path("table.json");
    fs::write(&table, TABLE).unwrap();
    let by_table = [&size[..], &["--table", &table]].concat();
    let result = json(&soft(&[&by_table[..], &["--format", "json"]].concat()));
    assert_eq!((&result["kernel"], &result["status"]), (&"auto".into(), &"PASS".into()));
    let (chosen, splits) = (result["chosen"].as_str().unwrap(), result["splits"].as_u64().unwrap());
    assert!(splits > 1, "{result}");
    let text = format!("chosen:  {chosen} in {splits} splits\n");
    assert!(soft(&by_table).stdout.contains(&text));

    // The same from `explain`, with what else was thought of.
    let explain = ["explain", "auto", "--device", "soft", "--table", &table, "--sizes"];
    let explain = [&explain[..], &["16x300x4000,64"]].concat();
    let ran = run(&explain);
    let note = "note: the table is of Test GPU: what was measured there of 1 product(s) does not hold here\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), note));
    for text in [
        &format!("16x300x4000: {chosen} in {splits} splits\n"),
        "scaled from what was measured on Test GPU",
        "predicted",
    ] {
        assert!(ran.stdout.contains(text), "{text}: {}", ran.stdout);
    }
    let lines = json_lines(&run(&[&explain[..], &["--format", "json"]].concat()).stdout);
    let [first, second] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&first["chosen"], &first["splits"]), (&result["chosen"], &result["splits"]));
    let candidates = first["candidates"].as_array().unwrap();
    let times: Vec<_> = candidates.iter().map(|c| c["predicted_ms"].as_f64().unwrap()).collect();
    assert!(times.len() > 2 && times.is_sorted(), "{first}");
    assert_eq!(candidates[0]["kernel"], first["chosen"]);
    assert!(second["m"] == 64 && second["measured"].is_null(), "{second}");
    // Without measurements there is nothing to compare.
    let ran = run(&["explain", "auto", "--device", "soft"]);
    assert!(ran.code == Some(0) && ran.stdout.contains("makes the software device do the least"));
}

/// Whatever `list` names, by its file's header and its geometry.
#[test]
fn every_kernel_is_explained() {
    for line in json_lines(&run(&["list", "--format", "json"]).stdout) {
        let name = line["kernel"].as_str().unwrap();
        if name == "auto" {
            continue;
        }
        let ran = run(&["explain", name]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{name}");
        let is_rung = ran.stdout.contains("The idea") && ran.stdout.contains("Geometry");
        assert!(is_rung && ran.stdout.contains(name), "{name}: {}", ran.stdout);
        assert!(!ran.stdout.contains("```") && !ran.stdout.contains("]("), "{}", ran.stdout);
        let explained = json(&run(&["explain", name, "--format", "json"]));
        assert_eq!(explained["kernel"], name);
        for key in ["summary", "block_tile", "threads", "shared_bytes"] {
            assert_eq!(explained[key], line[key], "{name} {key}");
        }
        assert!(explained["text"].as_str().is_some_and(|text| text.contains("The idea")), "{name}");
    }
    for (name, says) in [
        ("tile_32x32", "`--kernel tile_32x32` runs it"),
        ("wgmma_split_64x16", "`--kernel wgmma_split_64x16 --compute bf16` runs it"),
        ("tf32x3_64x64", "`--kernel tf32x3_64x64 --compute tf32x3` runs it"),
    ] {
        let text = run(&["explain", name]).stdout;
        assert!(text.contains(says) && text.contains("No rung of the ladder"), "{text}");
    }
}

/// Splits, copies and what else was thought of, in each precision, of transposes and batches.
#[test]
fn the_choice_has_its_reasons() {
    let device = ["explain", "auto", "--device", "soft-sm90"];
    let sizes = ["--sizes", "16x256x4096,3*1023x1025x1027:TN", "--format", "json"];
    for compute in ["tf32x3", "tf32", "bf16", "f16"] {
        let asked = [&device[..], &sizes, &["--compute", compute]].concat();
        let lines = json_lines(&run(&asked).stdout);
        let [few_tiles, batch] = &lines[..] else { panic!("{lines:?}") };
        for line in &lines {
            let candidates = line["candidates"].as_array().unwrap();
            let first = &candidates[0];
            assert_eq!((&first["kernel"], &first["splits"]), (&line["chosen"], &line["splits"]));
            // In TF32, FMAs come first if they take up to 2 % longer.
            let times = candidates.iter().map(|one| {
                let is_fma =
                    compute == "tf32" && !one["kernel"].as_str().unwrap().starts_with("tf32");
                one["predicted_ms"].as_f64().unwrap() / if is_fma { 1.02 } else { 1.0 }
            });
            assert!(candidates.len() > 1 && times.is_sorted(), "{line}");
        }
        assert!(few_tiles["copies"].as_array().unwrap().is_empty(), "{few_tiles}");
        let product = (&batch["trans_a"], &batch["trans_b"], &batch["batch"]);
        assert_eq!(product, (&true.into(), &false.into(), &3.into()));
        let copied: Vec<_> =
            batch["copies"].as_array().unwrap().iter().map(|copy| &copy["operand"]).collect();
        // Matrices in 16 bits lie in rows of 16 bytes.
        let both: &[&str] = if compute.starts_with("tf32") { &["A", "B"] } else { &[] };
        assert_eq!(copied, both, "{batch}");
    }
    let text = run(&[&device[..], &["--compute", "f16", "--sizes", "8x8x15"]].concat());
    assert!(text.stdout.contains("misaligned rows of A or B are copied first"), "{}", text.stdout);
    let text =
        run(&[&device[..], &["--compute", "tf32", "--sizes", "3*1023x1025x1027:TN"]].concat());
    for says in [
        "3*1023x1025x1027:TN: tf32_",
        "copies A first: it lies as its transpose",
        "predicted, limited by ",
    ] {
        assert!(text.stdout.contains(says), "{says}: {}", text.stdout);
    }
}

/// A GPU's choices, from its table, on a machine without it.
#[test]
fn a_gpu_need_not_be_there_to_be_explained() {
    for compute in ["f32", "tf32", "bf16"] {
        let sizes = ["--sizes", "4096,16x4096x4096", "--format", "json", "--compute", compute];
        for (gpu, name) in [("h200", "NVIDIA H200"), ("H100", "NVIDIA H100 80GB HBM3")] {
            let arguments = [&["explain", "auto", "--gpu", gpu], &sizes[..]].concat();
            let mut command = command(&arguments);
            let ran = finish(command.env("CUDA_VISIBLE_DEVICES", "").output().unwrap());
            assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{arguments:?}");
            let lines = json_lines(&ran.stdout);
            assert_eq!(lines.len(), 2);
            for line in lines {
                assert_eq!(line["device"], name);
                assert!(!line["candidates"].as_array().unwrap().is_empty(), "{line}");
            }
        }
    }
    let text = run(&["explain", "auto", "--gpu", "h200", "--sizes", "4096"]).stdout;
    assert!(text.contains("measured on NVIDIA H200") && text.contains("persistent"), "{text}");
    let other = ["explain", "auto", "--gpu", "b200"];
    expect_refusal(&run(&other), &other, &["--gpu cannot be `b200`", "`h100` and `h200`"]);
}

/// What `explain auto` says is what runs.
#[test]
fn the_choice_is_explained_in_each_precision() {
    let product = ["--trans-b", "--bias", "column", "--epilogue", "relu", "--format", "json"];
    for compute in ["f32", "tf32x3", "tf32", "bf16", "f16"] {
        let with = |before: &[&str], size: &str| {
            let device = ["--device", "soft-sm90", "--compute", compute, size, "70"];
            json(&run(&[before, &device, &product].concat()))
        };
        let explained = with(&["explain", "auto"], "--sizes");
        let ran = with(&["--kernel", "auto"], "--size");
        assert_eq!(explained["compute"], compute);
        assert!(explained["basis"].as_str().is_some_and(|basis| !basis.is_empty()));
        assert_eq!((&explained["chosen"], &ran["status"]), (&ran["chosen"], &"PASS".into()));
        // One for a kernel that cannot split K, of which a run says null.
        assert_eq!(explained["splits"].as_u64(), ran["splits"].as_u64().or(Some(1)));
    }
    let few_tiles = ["explain", "auto", "--compute", "bf16", "--device", "soft-sm90", "--sizes"];
    let few_tiles = [&few_tiles[..], &["16x256x4096", "--format", "json"]].concat();
    let few_tiles = json(&run(&few_tiles));
    assert!(few_tiles["splits"].as_u64() > Some(1), "{few_tiles}");
    for (compute, kernel) in [("f16", "mma"), ("tf32", "tf32_mma_")] {
        let product = ["--compute", compute, "--sizes", "1024", "--format", "json"];
        let on_soft = ["explain", "auto", "--device", "soft"];
        let mma = json(&run(&[&on_soft[..], &product].concat()));
        assert!(mma["chosen"].as_str().is_some_and(|chosen| chosen.starts_with(kernel)), "{mma}");
    }
    let rung = ["explain", "tile2d", "--compute", "f16"];
    expect_refusal(&run(&rung), &rung, &["each option of the product is for `explain auto`"]);
}
