//! Measured products, and the file that keeps them.

use super::*;

/// With a cache folder.
fn cached(folder: &str, arguments: &[&str]) -> Ran {
    finish(command(arguments).env("RUNGS_CACHE", folder).output().unwrap())
}

/// The JSON files in a folder.
fn json_files(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().unwrap() == "json").collect()
}

/// The products of the only JSON file in a folder.
fn products(folder: &Path) -> Vec<Value> {
    let files = json_files(folder);
    let [file] = &files[..] else { panic!("{files:?}") };
    let parsed: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    parsed["products"].as_array().unwrap().clone()
}

#[test]
fn tune_keeps_products_for_auto() {
    let files = Files::new();
    let [cache, save, shapes] = ["cache", "times.jsonl", "shapes.txt"].map(|at| files.path(at));
    let tune = ["tune", "--device", "soft-sm90"];
    fs::write(&shapes, "2*40x50x60:NT # two\n").unwrap();
    let sizes = ["--compute", "bf16", "--sizes", "16x64x128", "--shapes", &shapes];
    let ran = cached(&cache, &[&tune[..], &sizes, &["--save", &save]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for text in ["16x64x128 ", "2*40x50x60:NT ", "fastest", "over 2 shape(s)", "file:    "] {
        assert!(ran.stdout.contains(text), "{text}: {}", ran.stdout);
    }
    let lines = json_lines(&fs::read_to_string(&save).unwrap());
    let [_, second] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&second["compute"], &second["batch"]), (&"bf16".into(), &2.into()));
    assert_eq!((&second["trans_a"], &second["trans_b"]), (&false.into(), &true.into()));
    assert!(second["runs"].as_array().unwrap().len() > 3, "{second}");

    let kept = products(Path::new(&cache));
    let [first, _] = &kept[..] else { panic!("{kept:?}") };
    let best = first["product"]["best"]["kernel"].as_str().unwrap().to_owned();
    assert_eq!(first["ptx_sha256"][&best].as_str().unwrap().len(), 64);
    // Other commands take it, and say where it is from.
    let explain = ["explain", "auto", "--compute", "bf16", "--device", "soft-sm90", "--sizes"];
    let explain = [&explain[..], &["16x64x128,16x64x136"]].concat();
    let ran = cached(&cache, &explain);
    let says = format!("as measured for this product in {cache}");
    assert!(ran.stdout.contains(&says), "{} {}", ran.stdout, ran.stderr);
    assert_eq!(ran.stdout.matches("as measured for").count(), 1, "{}", ran.stdout);
    let json = json_lines(&cached(&cache, &[&explain[..], &["--format", "json"]].concat()).stdout);
    assert_eq!(json[0]["chosen"], *best);
    assert!(json[0]["measured"].as_str().unwrap().starts_with(&format!("in {cache}")));
    assert!(json[1]["measured"].is_null());
    // Without the folder there is none.
    assert!(!run(&explain).stdout.contains("as measured for"));
    // A table predicts the choices, and stays as it is.
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/cuda_gemm/tuned/nvidia_h200.json");
    let by_table = ["--sizes", "33x20x70", "--beta", "0.5", "--table", table];
    let ran = cached(&cache, &[&tune[..], &by_table].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(products(Path::new(&cache)).len(), 3);

    // What was kept is no table, and says so.
    let [file] = &json_files(Path::new(&cache))[..] else { panic!("one file") };
    let by_products = ["run", "auto", "8", "--device", "soft", "--table", file.to_str().unwrap()];
    let says = ["is no table: it has products of Software", "RUNGS_CACHE"];
    expect_refusal(&run(&by_products), &by_products, &says);

    // The same in a file of the caller's choice, to which products are added.
    let out = files.path("out.json");
    for (epilogue, count) in [("relu", 1), ("relu", 1), ("none", 2)] {
        let sizes = ["--compute", "bf16", "--sizes", "8x12x16", "--epilogue", epilogue];
        let sizes = if epilogue == "none" { &sizes[..4] } else { &sizes };
        let ran = run(&[&tune[..], sizes, &["--out", &out]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stdout.contains(&format!("file:    {out}\n")), "{}", ran.stdout);
        let text: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
        assert_eq!(text["products"].as_array().unwrap().len(), count, "{text}");
    }
}

/// Nothing is lost, and nothing written, by what is refused.
#[test]
fn tune_refuses_what_it_cannot_keep() {
    let files = Files::new();
    let [out, table] = ["out.json", "table.json"].map(|at| files.path(at));
    fs::write(&table, TABLE).unwrap();
    let tune = ["tune", "--device", "soft-sm90"];
    for (arguments, says) in [
        (&["--compute", "tf32"][..], "name products with --sizes or --shapes"),
        (&["--table", &table], "name products with --sizes or --shapes"),
        (&["--sizes", "8", "--quick"], "cannot be used with"),
        (&["--sizes", "8", "--alpha", "0"], "cannot have a record"),
        (&["--sizes", "8", "--shapes", &table], "table.json:1"),
        (&["--sizes", "8", "--output", "bf16"], "C cannot be stored as bf16"),
    ] {
        let arguments = [&tune[..], arguments, &["--out", &out]].concat();
        expect_refusal(&run(&arguments), &arguments, &[says]);
        assert!(!Path::new(&out).exists());
    }
    let bf16 = [&tune[..], &["--compute", "bf16", "--sizes", "8"]].concat();
    let arguments = [&bf16[..], &["--out", &table]].concat();
    expect_refusal(&run(&arguments), &arguments, &["table.json", "it stays as it is"]);
    assert_eq!(fs::read_to_string(&table).unwrap(), TABLE);
    // Simulated times have no place of their own. All that is missing is said at once.
    let place = ["--out FILE", "RUNGS_CACHE"];
    let one_choice = ["--table FILE or another --compute"];
    for (arguments, says, says_not) in [
        (&bf16[..], [&place[..], &[]].concat(), &["--device", "--table"][..]),
        (
            &["tune", "--sizes", "8"],
            [&["no GPU to measure", "--device soft-sm90"], &place[..], &one_choice].concat(),
            &[],
        ),
        (&["tune", "--sizes", "8", "--device", "soft", "--out", &out], one_choice.to_vec(), &place),
    ] {
        let mut command = command(arguments);
        command.env("CUDA_VISIBLE_DEVICES", "").env_remove("RUNGS_CACHE");
        let ran = finish(command.output().unwrap());
        expect_refusal(&ran, arguments, &says);
        for absent in says_not {
            assert!(!ran.stderr.contains(absent), "{absent}: {}", ran.stderr);
        }
        assert!(!Path::new(&out).exists());
    }
}

#[test]
fn run_measures_if_it_is_told_to() {
    let files = Files::new();
    let cache = files.path("cache");
    let folder = Path::new(&cache);
    let product = ["run", "auto", "16x24x64:NT", "--compute", "bf16", "--device", "soft-sm90"];
    let ran = cached(&cache, &product);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(!folder.exists());
    let measure = [&product[..], &["--measure", "2"]].concat();
    let ran = cached(&cache, &measure);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("PASS"), "{}", ran.stdout);
    let [kept] = &products(folder)[..] else { panic!("one product") };

    // Another process takes what is kept, and measures nothing.
    let file = json_files(folder).remove(0);
    let text = fs::read_to_string(&file).unwrap();
    let faster = text.replace(&kept["product"]["best"]["ns"].to_string(), "1.5");
    assert_ne!(faster, text);
    fs::write(&file, &faster).unwrap();
    assert_eq!(cached(&cache, &measure).code, Some(0));
    assert_eq!(fs::read_to_string(&file).unwrap(), faster);

    // In f32 it has nothing to choose from there, and says so.
    let alone = ["run", "auto", "16", "--device", "soft", "--measure", "2"];
    let ran = cached(&cache, &alone);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let says = "warning: --measure measures nothing: there are fewer than two choices";
    assert!(ran.stderr.contains(says), "{}", ran.stderr);
    assert!(!cached(&cache, &measure).stderr.contains("measures nothing"));

    // A broken file stays.
    fs::write(&file, "{").unwrap();
    let ran = cached(&cache, &product);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("warning: nothing is taken from"), "{}", ran.stderr);
    let ran = cached(&cache, &measure);
    assert_eq!(ran.code, Some(2), "{}", ran.stdout);
    assert!(ran.stderr.contains("name another file"), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(&file).unwrap(), "{");

    for (arguments, says) in [
        (&["--measure", "1"][..], "2..=100"),
        (&["--measure", "3", "--kernel", "tile2d"], "--measure is for --kernel auto"),
    ] {
        expect_refusal(&soft(arguments), arguments, &[says]);
    }
}
