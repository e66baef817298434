//! Matrices from and to files.

use super::*;

#[test]
fn files_in_and_out() {
    let files = Files::new();
    let f = |i: usize, j: usize| ((i * 7 + j * 3) % 11) as f32 - 5.0;
    let g = |i: usize, j: usize| ((i * 5 + j * 2) % 13) as f32 - 6.0;
    let h = |i: usize, j: usize| (i + 10 * j) as f32;
    let (m, n, k) = (9, 12, 20);
    let expected: Vec<f32> = (0..m * n)
        .map(|at| {
            let (i, j) = (at / n, at % n);
            2.0 * (0..k).map(|l| f(i, l) * g(l, j)).sum::<f32>() - h(i, j)
        })
        .collect();
    let c = files.matrix("c.npy", m, n, h);
    let rows = (files.matrix("a.npy", m, k, f), files.matrix("b.npy", k, n, g));
    let columns = (files.fortran("af.npy", m, k, f), files.fortran("bf.npy", k, n, g));
    for (name, a, b) in
        [("1", &rows.0, &rows.1), ("2", &columns.0, &rows.1), ("3", &columns.0, &columns.1)]
    {
        let out = files.path(name);
        let ran = soft(&[
            "--kernel", "tile2d", "--a", a, "--b", b, "--c", &c, "--alpha", "2", "--beta", "-1",
            "--out", &out, "--format", "json",
        ]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let result = json(&ran);
        assert!(result["seed"].is_null());
        assert_eq!([&result["m"], &result["n"], &result["k"]], [m, n, k]);
        assert_eq!(result["check"]["bound"], "worst_case");
        let (header, elements) = read_npy(&out);
        assert!(header.contains("'shape': (9, 12)") && header.contains("'fortran_order': False"));
        assert_eq!(elements, expected);
    }
    // What was written can be read again, and replaced.
    let out = files.path("1");
    let ran = soft(&["--kernel", "naive", "--a", &out, "--b", &out, "--out", &out]);
    expect_refusal(&ran, &["shape"], &["B is 9 x 12", "needs 12 x 12"]);
    let square = files.matrix("s.npy", 9, 9, |i, j| f32::from(i == j));
    let other = files.path("2");
    let ran = soft(&["--kernel", "naive", "--a", &square, "--b", &out, "--out", &other]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(read_npy(&other).1, expected);
    assert_eq!(files.names().len(), 9, "no temporary file is left");
}

#[test]
fn random_products_can_be_stored_too() {
    let files = Files::new();
    let out = files.path("c.npy");
    assert_eq!(
        soft(&["--kernel", "naive", "--m", "3", "--n", "4", "--k", "5", "--out", &out]).code,
        Some(0)
    );
    let (header, elements) = read_npy(&out);
    assert!(header.contains("(3, 4)") && elements.len() == 12);
}

#[test]
fn unused_c_is_said() {
    let files = Files::new();
    let square = files.matrix("s.npy", 2, 2, |i, j| f32::from(i == j));
    let ran = soft(&["--kernel", "naive", "--a", &square, "--b", &square, "--c", &square]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.stderr.contains("warning: --c is not read"), "{}", ran.stderr);
}

#[test]
fn overflow_is_said_and_nan_is_stored() {
    let files = Files::new();
    let huge = files.matrix("h.npy", 2, 2, |_, _| 3e38);
    let ran = soft(&["--kernel", "naive", "--a", &huge, "--b", &huge]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("warning: naive: 4 element(s) overflow f32"), "{}", ran.stderr);
    // Twice 300 * 300 is more than f16 has, and twice 1.5e19 * 1.5e19 more than bf16 has.
    for (name, value) in [("f16", 300.0), ("bf16", 1.5e19)] {
        let large = files.matrix(name, 2, 2, |_, _| value);
        let product = ["--device", "soft-sm90", "--kernel", "auto", "--a", &large, "--b", &large];
        let ran = run(&[&product[..], &["--compute", name, "--output", name]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let says = format!("warning: auto: 4 element(s) overflow {name} and");
        assert!(ran.stderr.contains(&says), "{}", ran.stderr);
    }

    // A is finite in the file, and not in the type that it is multiplied in.
    for (name, value) in [("f16", 7e4), ("bf16", 3.4e38), ("tf32", 3.4028e38)] {
        let large = files.matrix("large.npy", 2, 2, |_, _| value);
        let one = files.matrix("one.npy", 2, 2, |i, j| f32::from(u8::from(i == j)));
        let ran = soft(&["--kernel", "auto", "--compute", name, "--a", &large, "--b", &one]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let says = format!("warning: 4 element(s) of A overflow {name} and");
        assert!(ran.stderr.contains(&says) && !ran.stderr.contains("of B"), "{}", ran.stderr);
    }

    let nan = files.matrix("n.npy", 2, 2, |i, _| if i == 0 { f32::NAN } else { 1.0 });
    let out = files.path("out.npy");
    let ran =
        soft(&["--kernel", "naive", "--a", &nan, "--b", &nan, "--out", &out, "--format", "json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(json(&ran)["max_abs_error"].is_null(), "no element has a finite reference");
    assert!(read_npy(&out).1.iter().all(|x| x.is_nan()));
}

#[test]
fn bad_files() {
    let files = Files::new();
    let good = files.matrix("good.npy", 4, 4, |i, j| (i + j) as f32);
    let out = files.path("out.npy");
    let header = |descr: &str, shape: &str| {
        format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}")
    };
    let double = files.raw("f8.npy", &header("'<f8'", "(4, 4)"), &[0; 128]);
    let vector = files.raw("vector.npy", &header("'<f4'", "(16,)"), &[0; 64]);
    let cube = files.raw("cube.npy", &header("'<f4'", "(4, 2, 2)"), &[0; 64]);
    let short = files.raw("short.npy", &header("'<f4'", "(4, 4)"), &[0; 63]);
    let promise = files.raw("promise.npy", &header("'<f4'", "(1000000, 1000000)"), &[0; 64]);
    let endless = files.raw("endless.npy", &header("'<f4'", "(4294967296, 4294967296)"), &[0; 64]);
    let garbage = files.path("garbage.npy");
    fs::write(&garbage, "1,2\n3,4\n").unwrap();
    let cut = files.path("cut.npy");
    fs::write(&cut, &fs::read(&good).unwrap()[..30]).unwrap();
    let wide = files.matrix("wide.npy", 3, 5, |_, _| 0.0);
    let missing = files.path("missing.npy");
    let before = files.names();
    for (path, says) in [
        (&double, &["f8.npy", "float64 ('<f8')", "float32 ('<f4')"][..]),
        (&vector, &["vector.npy", "1 dimension(s)", "must have 2"]),
        (&cube, &["3 dimension(s)"]),
        (&short, &["truncated", "64 bytes", "63 follow"]),
        (&promise, &["truncated"]),
        (&endless, &["too large"]),
        (&garbage, &["not a .npy file"]),
        (&cut, &["header is damaged (it ends early)"]),
        (&missing, &["missing.npy"]),
        (&wide, &["3 x 5"]),
    ] {
        refused(
            &["--kernel", "naive", "--a", path, "--b", &good, "--out", &out],
            says_of(path, &wide, says),
        );
        refused(&["--kernel", "naive", "--a", &good, "--b", path, "--out", &out], says);
        let with_c = [
            "--kernel", "naive", "--a", &good, "--b", &good, "--c", path, "--beta", "1", "--out",
            &out,
        ];
        refused(&with_c, says);
    }
    assert_eq!(files.names(), before, "no output, whole or partial");
}

/// A 3 x 5 matrix is a fine A: then it is B that does not fit.
fn says_of<'a>(path: &str, wide: &str, says: &'a [&'a str]) -> &'a [&'a str] {
    if path == wide { &["B is 4 x 4", "needs 5 x 4"] } else { says }
}

#[test]
fn outputs_that_cannot_be_written() {
    let files = Files::new();
    let inside = files.path("no/such/folder/out.npy");
    // So large that computing first would be noticed.
    let size = ["--kernel", "naive", "--size", "4096", "--out"];
    refused(
        &[&size[..], &[&inside]].concat(),
        &["cannot write", "no/such/folder/out.npy", "its folder does not exist"],
    );
    refused(&[&size[..], &[files.0.path().to_str().unwrap()]].concat(), &["it is a folder"]);
    refused(&[&size[..], &["/"]].concat(), &["it is a folder"]);
    let save = ["--kernel", "all", "--size", "4096", "--save"];
    refused(&[&save[..], &[&inside]].concat(), &["cannot write", "its folder does not exist"]);
    refused(&[&save[..], &[files.0.path().to_str().unwrap()]].concat(), &["it is a folder"]);
    expect_refusal(&soft(&[&size[..], &[""]].concat()), &[], &["--out"]);
    if cfg!(unix) {
        refused(&[&size[..], &["/dev/null"]].concat(), &["not a regular file"]);
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
    let protected = files.matrix("protected.npy", 1, 1, |_, _| 1.0);
    let mut permissions = fs::metadata(&protected).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&protected, permissions).unwrap();
    refused(&[&size[..], &[&protected]].concat(), &["write-protected"]);
    assert_eq!(files.names(), [Path::new(&protected)]);
}

#[cfg(unix)]
#[test]
fn an_output_through_a_link_replaces_the_target() {
    let files = Files::new();
    let target = files.matrix("target.npy", 1, 1, |_, _| 1.0);
    let link = files.path("link.npy");
    std::os::unix::fs::symlink(&target, &link).unwrap();
    assert_eq!(soft(&["--kernel", "naive", "--size", "2", "--out", &link]).code, Some(0));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(read_npy(&target).1.len(), 4);
}
