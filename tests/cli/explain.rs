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
    expect_refusal(&ran, &["explain", "tile3d"], &["did you mean `tile2d`?"]);
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
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
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
    assert_eq!((&second["m"], &second["exception"]), (&64.into(), &false.into()));
    // Without measurements there is nothing to compare.
    let ran = run(&["explain", "auto", "--device", "soft"]);
    assert!(ran.code == Some(0) && ran.stdout.contains("makes the software device do the least"));
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
    let mma = json(&run(&[
        "explain",
        "auto",
        "--compute",
        "f16",
        "--device",
        "soft",
        "--sizes",
        "64",
        "--format",
        "json",
    ]));
    assert!(mma["chosen"].as_str().is_some_and(|name| name.starts_with("mma")), "{mma}");
    let tf32 = ["explain", "auto", "--compute", "tf32", "--device", "soft"];
    expect_refusal(&run(&tf32), &tf32, &["compute capability 9.0", "soft-sm90"]);
    let rung = ["explain", "tile2d", "--compute", "f16"];
    expect_refusal(&run(&rung), &rung, &["each option of the product is for `explain auto`"]);
}
