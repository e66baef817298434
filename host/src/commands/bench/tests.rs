//! Tests of what a call of `bench` does.

use clap::Parser;
use serde_json::Value;

use super::*;
use crate::commands::args::{Args, Command};
use crate::io::stdio::Accent;

fn products(args: &BenchArgs) -> Vec<Gemm> {
    args.sizes.iter().map(|shape| args.gemm(*shape).unwrap()).collect()
}

/// Everything but cuBLAS, on the software device: rows say what was done.
#[test]
fn a_row_for_every_kernel_and_shape() {
    let folder = tempfile::tempdir().unwrap();
    let save = folder.path().join("rows.jsonl");
    let line = format!(
        "bench --kernels tile2d,smem_full --sizes 9,4x5x1000 --l2 warm --samples 6 \
         --sample-ms 1 --format csv --save {}",
        save.display()
    );
    let words = std::iter::once("rungs").chain(line.split(' '));
    let Some(Command::Bench(args)) = Args::parse_from(words).command else { panic!() };
    let device = Device::open(DeviceChoice::Soft).unwrap();
    let choices = ["tile2d", "smem_full"].map(|name| Selection::parse(name).unwrap());
    let reporter = RowReporter::new(args.format, args.save.as_deref(), |_, _| Ok(())).unwrap();
    let rows = Rows::new(reporter, args.sizes.len());
    assert_eq!(
        measure(&args, &device, rows, &choices, &products(&args), None).unwrap(),
        Outcome::Right
    );

    let text = std::fs::read_to_string(&save).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [environment, rows @ .., first, second] = &lines[..] else { panic!("{text}") };
    assert_eq!(environment["environment"]["device_kind"], "soft");
    assert_eq!(rows.len(), 4);
    for (i, row) in rows.iter().enumerate() {
        assert_eq!(row["kernel"], ["tile2d", "smem_full"][i % 2]);
        assert_eq!([&row["m"], &row["n"], &row["k"]], [[9, 9, 9], [4, 5, 1000]][i / 2]);
        if i == 3 {
            assert_eq!((&row["status"], row["sets"].as_u64()), (&"REFUSED".into(), Some(1)));
            assert!(row["reason"].as_str().unwrap().contains("256000 bytes"), "{row}");
            assert!(row["time_median"].is_null());
            continue;
        }
        assert_eq!((&row["status"], &row["l2"]), (&"PASS".into(), &"warm".into()), "{row}");
        assert_eq!(row["samples_ms"].as_array().unwrap().len(), 6);
        let [min, median, max] =
            ["time_min", "time_median", "time_max"].map(|name| row[name].as_f64().unwrap());
        assert!(0.0 < min && min <= median && median <= max, "{row}");
        assert!(row["percent_of_ffma"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["percent_of_copy"].as_f64().unwrap() > 0.0, "{row}");
        let [max, rms] = ["max_abs_error", "rms_error"].map(|name| row[name].as_f64().unwrap());
        assert!(0.0 < rms && rms < max && max < 1e-3, "{row}");
        // This device runs a launch at once, so nothing hides the host.
        assert_eq!(row["gap_free"], false);
        assert!(row["ratio"].is_null() && row["watts"].is_null());
    }
    assert_eq!(
        (&first["summary"]["kernel"], &first["summary"]["refused"]),
        (&"tile2d".into(), &0.into())
    );
    assert_eq!(second["summary"]["refused"], 1);
}

#[test]
fn a_row_of_auto_says_what_was_chosen() {
    let words = "rungs bench --sizes 20 --l2 warm --samples 6 --sample-ms 1".split(' ');
    let Some(Command::Bench(mut args)) = Args::parse_from(words).command else { panic!() };
    assert_eq!(args.kernels(), ["auto"]);
    let folder = tempfile::tempdir().unwrap();
    args.save = Some(folder.path().join("rows.jsonl"));
    let device = Device::open(DeviceChoice::Soft).unwrap();
    let reporter = RowReporter::new(args.format, args.save.as_deref(), |_, _| Ok(())).unwrap();
    let rows = Rows::new(reporter, args.sizes.len());
    assert_eq!(
        measure(&args, &device, rows, &[Selection::Auto], &products(&args), None).unwrap(),
        Outcome::Right
    );
    let text = std::fs::read_to_string(args.save.unwrap()).unwrap();
    let row: Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
    assert_eq!((&row["kernel"], &row["status"]), (&"auto".into(), &"PASS".into()));
    let choice = device.auto().unwrap().choose(&host::Gemm::new(20, 20, 20)).unwrap();
    assert_eq!(row["chosen"], choice.kernel.name());
    assert_eq!(row["splits"], choice.splits);
}

#[test]
fn a_row_that_cannot_be_printed_is_saved_and_the_last() {
    let words = "rungs bench --sizes 9,8 --l2 warm --samples 6 --sample-ms 1 --format csv";
    let Some(Command::Bench(mut args)) = Args::parse_from(words.split(' ')).command else {
        panic!()
    };
    let folder = tempfile::tempdir().unwrap();
    args.save = Some(folder.path().join("rows.jsonl"));
    let device = Device::open(DeviceChoice::Soft).unwrap();
    let print = |text: &str, _: &[Accent<'_>]| match text.contains("PASS") {
        true => Err(Error::Output { path: "stdout".into(), reason: "full".into() }),
        false => Ok(()),
    };
    let reporter = RowReporter::new(args.format, args.save.as_deref(), print).unwrap();
    let rows = Rows::new(reporter, args.sizes.len());
    let choices = [Selection::parse("naive").unwrap()];
    assert!(matches!(
        measure(&args, &device, rows, &choices, &products(&args), None),
        Err(Error::Output { .. })
    ));
    let text = std::fs::read_to_string(args.save.unwrap()).unwrap();
    assert_eq!(text.lines().count(), 2, "the environment and a row: {text}");
}

/// Shapes that say how matrices lie, and options that say it of the others.
#[test]
fn rows_of_transposes_and_batches() {
    let folder = tempfile::tempdir().unwrap();
    let save = folder.path().join("rows.jsonl");
    let line = format!(
        "bench --kernels tile2d,tile_32x32 --sizes 3*9x8x7:TN,10x11x12 --batch 2 --trans-b \
         --alpha 0.5 --beta -1 --l2 warm --samples 6 --sample-ms 1 --save {}",
        save.display()
    );
    let words = std::iter::once("rungs").chain(line.split(' ').filter(|word| !word.is_empty()));
    let Some(Command::Bench(args)) = Args::parse_from(words).command else { panic!() };
    let device = Device::open(DeviceChoice::Soft).unwrap();
    let choices = ["tile2d", "tile_32x32"].map(|name| Selection::parse(name).unwrap());
    let reporter = RowReporter::new(args.format, args.save.as_deref(), |_, _| Ok(())).unwrap();
    let rows = Rows::new(reporter, 4);
    let outcome = measure(&args, &device, rows, &choices, &products(&args), None).unwrap();
    assert_eq!(outcome, Outcome::Right);
    let text = std::fs::read_to_string(&save).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (i, row) in lines[1..5].iter().enumerate() {
        let expected = [(3, true, 3 * 9 * 8), (2, false, 2 * 10 * 11)][i / 2];
        let found = (row["batch"].as_i64(), &row["trans_a"], row["elements"].as_i64());
        assert_eq!(found, (Some(expected.0), &expected.1.into(), Some(expected.2)), "{row}");
        assert_eq!((&row["trans_b"], &row["status"]), (&true.into(), &"PASS".into()), "{row}");
        assert_eq!((&row["alpha"], &row["beta"]), (&0.5.into(), &(-1.0).into()), "{row}");
    }
}

/// Groups in parts of wider matrices, in a table whose head says what cuBLAS does.
#[test]
fn rows_of_groups() {
    let folder = tempfile::tempdir().unwrap();
    let save = folder.path().join("rows.jsonl");
    let line = format!(
        "bench --kernels auto,wgmma --sizes 77x24x40:NT,77x8x9 --groups 70,0,2,5 --compute bf16 \
         --margins 8,16 --beta 0.5 --l2 warm --samples 6 --sample-ms 1 --save {}",
        save.display()
    );
    let words = std::iter::once("rungs").chain(line.split_whitespace());
    let Some(Command::Bench(args)) = Args::parse_from(words).command else { panic!() };
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    let choices = ["auto", "wgmma"].map(|name| Selection::parse(name).unwrap());
    let print = |text: &str, _: &[Accent<'_>]| {
        let says = "C = 1 A B + 0.5 C, 4 group(s) of 0 to 70 rows, random matrices";
        assert!(!text.contains("product:") || text.contains(says), "{text}");
        Ok(())
    };
    let reporter = RowReporter::new(args.format, args.save.as_deref(), print).unwrap();
    let products = products(&args);
    assert_eq!((products[0].matrices(), products[0].stride_b), ([1, 4, 1], 24 * (40 + 24)));
    let rows = Rows::new(reporter, 4);
    let outcome = measure(&args, &device, rows, &choices, &products, None).unwrap();
    assert_eq!(outcome, Outcome::Right);
    let text = std::fs::read_to_string(&save).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (i, row) in lines[1..5].iter().enumerate() {
        let status = ["PASS", "REFUSED"][i % 2];
        assert_eq!((&row["status"], &row["groups"]), (&status.into(), &"70,0,2,5".into()), "{row}");
        assert_eq!((row["m"].as_u64(), row["batch"].as_u64()), (Some(77), Some(1)), "{row}");
    }
    assert_eq!(lines[1]["elements"], 77 * 24);
}

#[test]
fn random_layers_are_more_shapes() {
    let line = "rungs bench --random 2 --random-layers 3 --seed 5 --compute bf16 --output bf16";
    let Some(Command::Bench(args)) = Args::parse_from(line.split(' ')).command else { panic!() };
    let layers = host::shape::random_layers(3, 5);
    assert_eq!(args.random(), [host::shape::random(2, 5), layers.clone()].concat());
    let gemm = args.gemm(layers[0]).unwrap();
    assert_eq!((gemm.compute, gemm.output), (Compute::Bf16, host::Element::Bf16));
    assert!(gemm.trans_b && !gemm.trans_a);
}

/// Random shapes are drawn by the seed; parts of wider matrices are right wherever they begin, for
/// kernels with 128-bit and with scalar copies, and in batches.
#[test]
fn random_shapes_and_parts_of_wider_matrices() {
    let line = "bench --kernels tile_64x64,outer_32x64 --sizes 8,3*5x9x70:NT --random 2 --seed 5 \
                --margins 1,2 --beta 0.5 --l2 warm --samples 6 --sample-ms 1";
    let words = std::iter::once("rungs").chain(line.split_whitespace());
    let Some(Command::Bench(mut args)) = Args::parse_from(words).command else { panic!() };
    let folder = tempfile::tempdir().unwrap();
    args.save = Some(folder.path().join("rows.jsonl"));
    assert_eq!((args.random().len(), args.options().left), (2, 1));
    assert_eq!(args.random(), host::shape::random(2, 5));
    let products = products(&args);
    assert_eq!([products[0].lda, products[0].ldb, products[0].ldc], [11; 3]);
    let batch = &products[1];
    assert_eq!([batch.lda, batch.ldb, batch.ldc], [73, 73, 12]);
    assert_eq!(batch.strides(), [5 * 73, 9 * 73, 5 * 12]);
    let device = Device::open(DeviceChoice::Soft).unwrap();
    let choices = ["tile_64x64", "outer_32x64"].map(|name| Selection::parse(name).unwrap());
    let reporter = RowReporter::new(args.format, args.save.as_deref(), |_, _| Ok(())).unwrap();
    let rows = Rows::new(reporter, 2 * products.len());
    let outcome = measure(&args, &device, rows, &choices, &products, None).unwrap();
    assert_eq!(outcome, Outcome::Right);
    let saved = std::fs::read_to_string(args.save.as_ref().unwrap()).unwrap();
    assert_eq!(saved.matches("\"margins\":\"1,2\"").count(), 2 * products.len());
}
