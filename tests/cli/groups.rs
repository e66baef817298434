//! `--groups`: rows of A and C that have a B for each group.

use super::*;

fn grouped(device: &str, more: &[&str]) -> Ran {
    let product = ["run", "auto", "165x40x24", "--device", device, "--format", "json"];
    let compute = if more.contains(&"--compute") { &[][..] } else { &["--compute", "bf16"] };
    run(&[&product, compute, more].concat())
}

#[test]
fn groups_are_computed_checked_and_recorded() {
    for device in ["soft", "soft-sm90"] {
        for more in [
            &[][..],
            &["--trans-b", "--output", "bf16", "--epilogue", "relu"],
            &["--beta", "-0.5", "--scale", "row", "--bias", "column", "--residual"],
            &["--bias", "row", "--compute", "f16"],
        ] {
            let ran = grouped(device, &[&["--groups", "2*64,0,37"], more].concat());
            assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{more:?}: {}", ran.stdout);
            let line = json(&ran);
            assert_eq!((&line["groups"], &line["status"]), (&"64,64,0,37".into(), &"PASS".into()));
            assert_eq!((line["m"].as_u64(), line["batch"].as_u64()), (Some(165), Some(1)));
            assert_eq!(line["check"]["elements"], 165 * 40);
        }
        assert!(json(&grouped(device, &[]))["groups"].is_null());
    }
    let one = json(&grouped("soft", &["--groups", "165"]));
    assert_eq!((&one["groups"], &one["status"]), (&"165".into(), &"PASS".into()));
    let text = soft(&["--sizes", "165x8x8", "--compute", "f16", "--groups", "160,5"]);
    assert!(text.stdout.contains("K 8, 2 group(s) of 5 to 160 rows, random"), "{}", text.stdout);

    let words = ["run", "all", "70x16x16", "--groups", "30,40", "--compute", "bf16"];
    let all = run(&[&words[..], &["--device", "soft-sm90"]].concat());
    assert_eq!(all.code, Some(0), "{}", all.stderr);
    for says in ["wgmma takes no groups", "wgmma_persistent ", " 0 wrong", "PASS, by "] {
        assert!(all.stdout.contains(says), "{says}: {}", all.stdout);
    }
    let explained = ["explain", "auto", "--device", "soft-sm90", "--compute", "bf16"];
    let of = ["--sizes", "70x16x16", "--groups", "30,40", "--format", "json"];
    let line = json(&run(&[&explained[..], &of].concat()));
    assert_eq!((&line["group_count"], &line["batch"]), (&2.into(), &1.into()));
}

/// Whole numbers, and the expected ones worked out here.
#[test]
fn every_group_has_its_own_b() {
    let files = Files::new();
    let a = |row: usize, col: usize| ((row + 2 * col) % 3) as f32;
    let b = |row: usize, col: usize| ((5 * row + col) % 4) as f32;
    let (a_npy, b_npy) = (files.matrix("a.npy", 7, 3, a), files.matrix("b.npy", 9, 2, b));
    let transposed = files.matrix("t.npy", 6, 3, |row, col| b(row / 2 * 3 + col, row % 2));
    let c_npy = files.path("c.npy");
    let group_of = |row: usize| if row < 4 { 0 } else { 2 };
    let expected: Vec<f32> = (0..14)
        .map(|at| (at / 2, at % 2))
        .map(|(row, col)| (0..3).map(|k| a(row, k) * b(3 * group_of(row) + k, col)).sum())
        .collect();
    let files = |b: &str, more: &[&str]| {
        let of = ["--a", &a_npy, "--b", b, "--out", &c_npy, "--compute", "bf16"];
        soft(&[&of[..], more].concat())
    };
    for (b, more) in [(&b_npy, &[][..]), (&transposed, &["--trans-b"])] {
        let ran = files(b, &[&["--groups", "4,0,3"], more].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        assert_eq!(read_npy(&c_npy).1, expected);
    }
    for (groups, says) in [
        ("4,3", "B has 9 rows, which are no 2 matrices of the same size"),
        ("4,1,3", "have 8 rows in all, and M of 7x2x3 is 7"),
    ] {
        expect_refusal(&files(&b_npy, &["--groups", groups]), &[groups], &[says]);
    }
}

#[test]
fn what_has_no_groups_is_refused() {
    let product = ["--sizes", "7x8x8", "--groups", "3,4"];
    let in_bf16 = [&product[..], &["--compute", "bf16"]].concat();
    for (common, more, says) in [
        (&product[..], &[][..], "groups are for products in 16 bits; compute in bf16 or f16"),
        (&product, &["--kernel", "tile2d"], "groups are for products in 16 bits"),
        (&in_bf16, &["--batch", "2"], "a batch has no groups; leave out one of both"),
        (&in_bf16, &["--trans-a"], "A of a grouped product is not transposed"),
        (&in_bf16, &["--kernel", "mma", "--sizes", "9"], "M of 9x9x9 is 9; name products with"),
        (&in_bf16, &["--kernel", "cublas"], "cuBLAS runs on a GPU"),
    ] {
        refused(&[common, more].concat(), &[says]);
    }
    let plain = [&in_bf16[..], &["--kernel", "wgmma", "--device", "soft-sm90"]].concat();
    expect_refusal(&run(&plain), &plain, &["wgmma takes no groups; use `auto`"]);
    for (command, says) in
        [(&[][..], "--groups is for one device"), (&["bench"], "--groups is for one device")]
    {
        let words = [command, &in_bf16, &["--gpus", "2"]].concat();
        expect_refusal(&run(&words), &words, &[says]);
    }
    for (words, says) in [
        (&["bench", "--random", "2"][..], "have 7 rows in all"),
        (&["bench", "--sizes", "9,7x8x8"], "M of 9x9x9 is 9"),
        (&["bench", "--sizes", "7"], "bench measures a GPU"),
        (&["tune", "--sizes", "7"], "products with groups are not tuned"),
        (&["explain", "tile2d"], "each option of the product is for `explain auto`"),
    ] {
        let words = [words, &["--groups", "3,4", "--compute", "bf16"]].concat();
        let mut command = command(&words);
        let ran = finish(command.env("CUDA_VISIBLE_DEVICES", "").output().unwrap());
        expect_refusal(&ran, &words, &[says]);
    }
    for text in ["", "3,x", "-3", "3,,4", "9000000000*1"] {
        let words = ["run", "auto", "7", "--groups", text];
        expect_refusal(&run(&words), &words, &["--groups"]);
    }
    for command in ["run", "bench"] {
        let help = run(&[command, "--help"]).stdout;
        assert!(help.contains("--groups <ROWS>"), "{help}");
    }
}

#[test]
fn results_with_and_without_groups_are_kept_apart() {
    let folder = TempDir::new().unwrap();
    let [plain, two, other, page] = ["plain.jsonl", "two.jsonl", "other.jsonl", "report.html"]
        .map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    for (save, groups) in [(&plain, &[][..]), (&two, &["--groups", "100,65"])] {
        let ran = grouped("soft", &[groups, &["--save", save]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }
    assert_eq!(grouped("soft", &["--groups", "65,100", "--save", &other]).code, Some(0));
    for (before, after, says) in [
        (&plain, &two, "their groups differ: none before, 100,65 after"),
        (&two, &plain, "their groups differ: 100,65 before, none after"),
        (&two, &other, "their groups differ: 100,65 before, 65,100 after"),
    ] {
        expect_refusal(&run(&["compare", before, after]), &[], &[says]);
    }
    let same = run(&["compare", &two, &two]);
    assert!(
        same.stdout.contains("165 x 40 x 24 in 2 groups, bf16, rows 100,65"),
        "{}",
        same.stdout
    );
    let ran = run(&["report", "--out", &page, &plain, &two]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let page = fs::read_to_string(page).unwrap();
    assert!(
        page.contains("165 x 40 x 24: 1 kernel") && page.contains("165 x 40 x 24 in 2 groups: ")
    );
}
