//! What is refused.

use super::*;

#[test]
fn unknown_kernels() {
    refused(
        &["--kernel", "tile2", "--size", "8"],
        &["no kernel `tile2`", "the nearest are `tile2d`"],
    );
    refused(
        &["--kernel", "xyzzy", "--size", "8"],
        &["no kernel `xyzzy`; the nearest are ", "`rungs list` shows all"],
    );
    refused(&["--kernel", "cubals", "--size", "8"], &["the nearest are `cublas`"]);
    refused(&["--kernel", "cublas", "--size", "8"], &["cuBLAS runs on a GPU"]);
}

#[test]
fn a_gpu_that_is_not_there() {
    // Hides the GPUs of a machine that has some.
    let arguments = ["--kernel", "naive", "--size", "8", "--device", "gpu"];
    let ran = finish(command(&arguments).env("CUDA_VISIBLE_DEVICES", "").output().unwrap());
    expect_refusal(&ran, &arguments, &["`--device soft`"]);

    // The automatic choice goes on without, and says so.
    let arguments = ["--kernel", "naive", "--size", "8"];
    let ran = finish(command(&arguments).env("CUDA_VISIBLE_DEVICES", "").output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.starts_with("note: running on the software device"), "{}", ran.stderr);
    assert!(ran.stdout.contains("PASS"));
}

#[test]
fn memory_that_is_not_there() {
    let says = ["this needs 10.9 TiB of", "memory", "available"];
    refused(&["--kernel", "naive", "--size", "1000000"], &says);
    // More bytes than 64 bits can count.
    refused(&["--kernel", "naive", "--size", "2147483647"], &["this needs 48.0 EiB"]);
}

#[test]
fn numbers_that_overflow() {
    // What is mistyped is refused as such; a file without elements may have any shape.
    let files = Files::new();
    let dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (2147483648, 0), }";
    let (tall, empty) =
        (files.raw("tall.npy", dictionary, &[]), files.matrix("empty.npy", 0, 1, |_, _| 0.0));
    let says = ["m is 2147483648", "2147483647"];
    refused(&["--kernel", "naive", "--a", &tall, "--b", &empty], &says);
    refused(&["--kernel", "naive", "--size", "8", "--alpha", "nan"], &["alpha is NaN"]);
    for (factor, number, says) in [
        ("--alpha", "1e-50", "in which 1e-50 is 0"),
        ("--beta", "1e39", "a factor is f32, which ends at 3.4e38"),
    ] {
        let arguments = ["--kernel", "naive", "--size", "8", factor, number];
        super::expect_refusal(&super::soft(&arguments), &arguments, &[says]);
    }
}

#[test]
fn options_that_do_not_go_together() {
    for (arguments, says) in [
        (&["--kernel", "naive", "--m", "8"][..], "--n"),
        (
            &["--kernel", "naive", "--size", "8", "--m", "8", "--n", "8", "--k", "8"],
            "cannot be used with",
        ),
        (&["--kernel", "naive", "--a", "a.npy"], "--b"),
        (
            &["--kernel", "naive", "--a", "a.npy", "--b", "b.npy", "--size", "8"],
            "cannot be used with",
        ),
        (
            &["--kernel", "naive", "--a", "a.npy", "--b", "b.npy", "--seed", "8"],
            "cannot be used with",
        ),
        (&["--kernel", "naive", "--a", "a.npy", "--b", "b.npy", "--beta", "1"], "--c C.npy"),
        (&["--kernel", "naive", "--size", "8", "--repeat", "0"], "--samples"),
        (&["--kernel", "naive", "--size", "8", "--format", "xml"], "`json`"),
        (&["--kernel", "naive", "--size", "8", "--nonsense"], "--nonsense"),
        (&["--kernel", "all", "--size", "8", "--out", "c.npy"], "one kernel"),
    ] {
        expect_refusal(&soft(arguments), arguments, &[says]);
    }
}
