//! `auto`: right whatever it chooses, by any table.

use std::collections::BTreeSet;

use host::select::table::{Costs, Measured};
use host::verify::Bound;
use host::{Auto, Compute, Device, DeviceMatrix, Gemm, Matrix, Table, find_kernel};

use crate::case::Case;
use crate::common::devices;
use crate::{FACTORS, assert_relative_eq, shapes};

/// Numbers that were measured nowhere, under which many kernels are chosen, with splits.
const TABLE: &str = include_str!("../../crates/cuda_gemm/src/select/table_for_tests.json");

fn table() -> Table {
    Table::parse(TABLE, "a test").unwrap_or_else(|error| panic!("{error}"))
}

/// By the device's own rule, by a table, and by one that prefers kernels that stay, where there
/// are such.
fn for_each_auto(test: impl Fn(&Device, &Auto)) {
    for device in devices() {
        test(&device, &device.auto().unwrap());
        let table = table();
        test(&device, &device.auto_by(&table).unwrap());
        if let Ok(persistent) = find_kernel("persistent")
            && device.resident_blocks(persistent, false).unwrap() > 0
        {
            let first = table.kernels()[0].clone();
            let costs = Costs { kernel: persistent, unaligned: None, ..first };
            let table = table.with_products(Vec::new()).unwrap().with_kernels(vec![costs]).unwrap();
            test(&device, &device.auto_by(&table).unwrap());
        }
    }
}

fn assert_right(device: &Device, auto: &Auto, case: &Case) {
    let choice = auto.choose(&case.gemm).unwrap();
    let prepared = case.with_alignment(auto.plan(case.gemm).unwrap()).prepare().unwrap();
    if choice.kernel.abi().splits_k() {
        assert_eq!(prepared.configuration().splits, choice.splits, "{choice}");
    }
    let name = format!("auto, {choice}");
    let result = case.run_with(device, &name, |a, b, c| prepared.run(a, b, c));
    let check = case.verify(&result, Bound::Probabilistic);
    assert!(check.passed(), "{name} on {}: {:?}: {check:?}", device.info().name, case.gemm);
}

#[test]
fn every_shape_and_factor() {
    for_each_auto(|device, auto| {
        let tile = find_kernel("tile_64x64").unwrap();
        for (seed, [m, n, k]) in (1..).zip(shapes(tile)) {
            for (alpha, beta) in FACTORS {
                let gemm = Gemm::new(m, n, k).scaled(alpha, beta);
                assert_right(device, auto, &Case::random(gemm, seed));
            }
        }
    });
}

#[test]
fn padded_rows_and_unaligned_bases() {
    for_each_auto(|device, auto| {
        for ([m, n, k], [pad_a, pad_b, pad_c]) in [
            ([33, 45, 29], [1, 2, 3]),
            ([132, 260, 36], [0, 0, 0]),
            ([64, 128, 600], [4, 8, 4]),
            ([16, 300, 700], [7, 0, 64]),
            ([3, 200, 0], [5, 5, 5]),
        ] {
            for offsets in [[0, 0, 0], [4, 8, 12], [1, 0, 0], [0, 2, 0], [0, 0, 3]] {
                let gemm = Gemm::new(m, n, k).scaled(1.5, -1.0);
                let gemm = gemm.leading_dimensions(k + pad_a, n + pad_b, n + pad_c);
                let mut case = Case::random(gemm, 9);
                case.margins = offsets.map(|offset| (offset, 0));
                assert_right(device, auto, &case);
            }
        }
    });
}

/// With beta 0 C is not read; with alpha 0 neither A nor B is.
#[test]
fn what_must_not_be_read_is_not() {
    for_each_auto(|device, auto| {
        let (m, n, k) = (70, 90, 33);
        let case = Case::random(Gemm::new(m, n, k), 11);
        assert_right(device, auto, &case);
        let mut case = Case::random(Gemm::new(m, n, k).scaled(0.0, 0.5), 12);
        let nan = |rows, cols| Matrix::from_fn(rows, cols, |_, _| f32::NAN);
        (case.a, case.b) = (nan(m, k), nan(k, n));
        let prepared = auto.prepare(case.gemm).unwrap();
        let result = case.run_with(device, "auto", |a, b, c| prepared.run(a, b, c));
        for (i, j) in [(0, 0), (m - 1, n - 1)] {
            assert_relative_eq!(result.at(i, j), 0.5 * case.c.at(i, j));
        }
    });
}

/// Many calls of one preparation, between calls of another: the same bits.
#[test]
fn repeated_calls_give_the_same_bits() {
    for_each_auto(|device, auto| {
        let cases =
            [[40, 40, 3000], [16, 500, 900]].map(|[m, n, k]| Case::random(Gemm::new(m, n, k), 22));
        let prepared = cases.each_ref().map(|case| auto.prepare(case.gemm).unwrap());
        let results = [0, 1, 0, 1, 0, 1].map(|i| {
            let a = DeviceMatrix::<f32>::from_host(device, &cases[i].a).unwrap();
            let b = DeviceMatrix::<f32>::from_host(device, &cases[i].b).unwrap();
            let mut c =
                DeviceMatrix::<f32>::zeros(device, [cases[i].gemm.m, cases[i].gemm.n]).unwrap();
            prepared[i].run(&a, &b, &mut c).unwrap();
            c.download().unwrap()
        });
        for i in 2..results.len() {
            assert_eq!(results[i], results[i - 2]);
        }
    });
}

/// The tests above are worth something only if different kernels are chosen, and splits.
#[test]
fn choices_differ() {
    for device in devices().iter().filter(|device| device.is_soft()) {
        let table = table();
        let own = Measured { name: device.info().name.clone(), ..table.device().clone() };
        let table = table.with_device(own).unwrap();
        let auto = device.auto_by(&table).unwrap();
        let sizes = [1, 16, 33, 64, 130, 512, 1000];
        let products = sizes.iter().flat_map(|&m| sizes.map(|n| [m, n]));
        let choices =
            products.flat_map(|[m, n]| sizes.map(|k| auto.choose(&Gemm::new(m, n, k)).unwrap()));
        let choices: Vec<_> = choices.collect();
        let kernels: BTreeSet<_> = choices.iter().map(|choice| choice.kernel.name()).collect();
        let of_f32 = table.kernels().iter().filter(|costs| Compute::F32.is_of(costs.kernel));
        assert_eq!(kernels.len(), of_f32.count(), "{kernels:?}");
        assert!(choices.iter().any(|choice| choice.splits > 1));
    }
}
