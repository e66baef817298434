//! The model's arithmetic, with simple costs. They were measured nowhere.

use std::collections::BTreeMap;

use super::*;
use crate::device::{Device, DeviceChoice};
use crate::plan::find_kernel;
use crate::select::configurations::{LONGEST_SUM, SHORT_SUM};
use crate::select::table::Measured;

const MULTIPROCESSORS: u32 = 10;

fn measured() -> Measured {
    Measured {
        name: "a device".to_owned(),
        capability: (9, 0),
        multiprocessors: MULTIPROCESSORS,
        clock_khz: 1_000_000,
        lanes: 128,
        l2_bytes: 1 << 30,
        memory_gbytes: 1000.0,
        unix_time: 0,
        driver_version: None,
        host_version: String::new(),
        ptx_sha256: BTreeMap::new(),
        changed_since: BTreeMap::new(),
    }
}

/// Launches take 1000 ns, and bytes next to nothing.
const DEVICE: DeviceCosts = DeviceCosts {
    launch_ns: 1000.0,
    copy_gbytes: 1e9,
    l2_gbytes: 1e9,
    multiprocessor_gbytes: 1e9,
    staging_ns: 600.0,
    clusters: [10, 5, 3, 2, 2, 1, 1, 1],
    vector: 0.5,
    activation: 0.25,
    matrix: 2.0,
};

/// Blocks take 100 ns, and steps 10 ns. Their neighbours do not matter.
const ENTRY: EntryCosts = EntryCosts {
    resident: 1,
    step_ns: 10.0,
    shared_step_ns: 0.0,
    block_ns: 100.0,
    store_ns: 0.0,
    next_tile: 1.0,
    reduction_ns: 50.0,
    partial_ns: 7.0,
    out_of_bounds: 0.0,
    misaligned_c: 0.0,
    transposed_c: 0.0,
    misaligned_operand: 0.0,
    narrow_step: 0.0,
    uneven_step: 0.0,
};

/// Costs of a kernel. Misaligned matrices double its step time, if it has another entry point.
fn costs(name: &str, aligned: EntryCosts) -> Costs {
    let kernel = find_kernel(name).unwrap();
    let twice = EntryCosts { step_ns: 2.0 * aligned.step_ns, ..aligned };
    Costs { kernel, aligned, unaligned: kernel.unaligned().map(|_| twice) }
}

fn model_of(device: DeviceCosts, kernels: Vec<Costs>) -> Model {
    Model::new(&Table::new(measured(), device, kernels, Vec::new()).unwrap())
}

fn model(name: &str, aligned: EntryCosts) -> Model {
    model_of(DEVICE, vec![costs(name, aligned)])
}

fn time_by(model: &Model, gemm: &Gemm, configuration: Configuration) -> f64 {
    model.time(gemm, &configuration).unwrap().ns.round()
}

fn time(model: &Model, gemm: &Gemm, splits: u32) -> f64 {
    let plain = Configuration::new(model.kernels()[0].kernel);
    time_by(model, gemm, Configuration { splits, ..plain })
}

/// A product of whole tiles and steps of 64.
fn tiles(rows: usize, cols: usize, steps: usize) -> Gemm {
    Gemm::new(64 * rows, 64 * cols, 64 * steps)
}

#[test]
fn waves_are_whole() {
    let two = EntryCosts { resident: 2, shared_step_ns: 1e-9, store_ns: 20.0, ..ENTRY };
    let model = model("tile_64x64", two);
    let (alone, both) = (100.0 + 20.0 + 30.0, 100.0 + 40.0 + 30.0);
    for (rows, cols, expected) in [
        (1, 1, alone),
        (2, 5, alone),
        (1, 11, both),
        (4, 5, both),
        (3, 7, both + alone),
        (4, 10, 2.0 * both),
        (41, 1, 2.0 * both + alone),
    ] {
        assert_eq!(time(&model, &tiles(rows, cols, 3), 1), 1000.0 + expected, "{rows} x {cols}");
    }
    // Parts of tiles and steps count whole. A misaligned step takes twice as long.
    assert_eq!(time(&model, &Gemm::new(64 + 1, 4, 2 * 64 + 4), 1), 1000.0 + alone);
    assert_eq!(time(&model, &Gemm::new(64 + 1, 3, 2 * 64 + 4), 1), 1000.0 + alone + 30.0);
    // Without anything to sum there is one step. A C without elements has no time.
    assert_eq!(time(&model, &tiles(1, 1, 3).scaled(0.0, 0.0), 1), 1000.0 + 120.0 + 10.0);
    assert!(model.fastest(&Gemm::new(0, 5, 5)).is_none());
}

/// Two resident blocks may be as fast as one. At some point they wait for the multiprocessor.
#[test]
fn resident_blocks_share_throughput() {
    let step = |shared_step_ns| {
        let two = EntryCosts { resident: 2, shared_step_ns, block_ns: 0.0, ..ENTRY };
        (time(&model("tile_64x64", two), &tiles(20, 1, 1000), 1) - 1000.0) / 1000.0
    };
    approx::assert_relative_eq!(step(0.5), 10.0, max_relative = 1e-3);
    approx::assert_relative_eq!(step(20.0), 40.0, max_relative = 1e-2);
    approx::assert_relative_eq!(step(5.0), 10.0 * 2f64.powf(0.25), max_relative = 1e-3);
}

#[test]
fn splits_meet() {
    let model = model("tile_64x64", ENTRY);
    let gemm = tiles(1, 1, 100);
    assert_eq!(time(&model, &gemm, 1), 1000.0 + 100.0 + 1000.0);
    assert_eq!(time(&model, &gemm, 4), 1000.0 + 100.0 + 250.0 + 50.0 + 4.0 * 7.0);
    // Whole steps make 8 splits of 13, and 9 of 12.
    assert_eq!(time(&model, &gemm, 8), 1000.0 + 100.0 + 130.0 + 50.0 + 8.0 * 7.0);
    assert_eq!(time(&model, &gemm, 9), 1000.0 + 100.0 + 120.0 + 50.0 + 9.0 * 7.0);
    // A reduction for each wave: 25 blocks come in three.
    let three_waves = 3.0 * (100.0 + 4.0 * 10.0) + 3.0 * (50.0 + 25.0 * 7.0);
    assert_eq!(time(&model, &gemm, 25), 1000.0 + three_waves);
    // The best number of splits is one per multiprocessor.
    let best = model.fastest(&gemm).unwrap();
    assert_eq!((best.configuration.splits, best.ns.round()), (10, 1320.0));
    assert_eq!(model.fastest(&tiles(10, 1, 4)).unwrap().configuration.splits, 1);
    assert_eq!(model.fastest(&tiles(1, 1, 1)).unwrap().configuration.splits, 1);
    // A launch does what its configuration says.
    let limits = Device::open(DeviceChoice::Soft).unwrap().info().limits;
    for estimate in model.ranking(&tiles(1, 3, 77)) {
        let choice = estimate.configuration;
        let plan = crate::LaunchPlan::new(&choice, tiles(1, 3, 77), &limits, "a device").unwrap();
        assert_eq!(*plan.configuration(), choice);
    }
}

#[test]
fn long_sums_are_split() {
    // Four slices, each with a quarter of the steps.
    let steps = |length: u32, times: usize| 4 * times * length as usize / 64;
    let splits = |model: &Model, tall, steps| {
        model.fastest(&tiles(tall, 10, steps)).unwrap().configuration.splits
    };
    let expensive = model("tile_64x64", ENTRY);
    let long = |times| steps(LONGEST_SUM, times);
    assert_eq!([1, 2].map(|more| splits(&expensive, 1, long(1) + more - 1)), [1, 2]);
    assert_eq!([1, 3].map(|tall| splits(&expensive, tall, long(3))), [3, 1]);
    // A sum that is hardly longer than a short one is split if that costs hardly more.
    let short = steps(SHORT_SUM, 1) + 12;
    assert_eq!(splits(&expensive, 1, short), 1);
    let cheap = EntryCosts { block_ns: 4.0, reduction_ns: 2.0, partial_ns: 1.0, ..ENTRY };
    assert_eq!(splits(&model("tile_64x64", cheap), 1, short), 2);
}

#[test]
fn memory_overlaps_with_steps() {
    let gemm = tiles(2, 2, 2).scaled(1.0, 0.5);
    let slow = DeviceCosts { copy_gbytes: 1.0, ..DEVICE };
    let slow = model_of(slow, vec![costs("tile_64x64", ENTRY)]);
    // A, B, and C twice.
    let matrix = 4.0 * 128.0 * 128.0;
    let best = slow.fastest(&gemm).unwrap();
    approx::assert_relative_eq!(best.ns, 1100.0 + overlap(20.0, 4.0 * matrix), max_relative = 1e-8);
    assert!(best.memory_bound);
    let fast = model("tile_64x64", ENTRY);
    assert!(!fast.fastest(&gemm).unwrap().memory_bound);
    // Ten tiles at a time, eight of them in a column. If the cache holds little, each column of
    // tiles reads all of A.
    let small = Model { l2_bytes: 0.0, ..slow };
    let gemm = tiles(8, 4, 1);
    let again = 4.0 * 64.0 * (8.0 * 64.0 * 4.0 / 1.25 + 4.0 * 64.0);
    let c = 4.0 * 8.0 * 4.0 * 64.0 * 64.0;
    let plain = Configuration::new(small.kernels()[0].kernel);
    let ns = small.time(&gemm, &plain).unwrap().ns;
    approx::assert_relative_eq!(ns, 1400.0 + overlap(40.0, again + c), max_relative = 1e-8);
}

#[test]
fn edge_tiles_are_slower_as_far_as_they_are_out_of_bounds() {
    let edges = EntryCosts { out_of_bounds: 1.0, ..ENTRY };
    let model = model("tile_64x64", edges);
    let steps = |gemm| time(&model, &gemm, 1) - 1100.0;
    assert_eq!(steps(tiles(10, 1, 100)), 1000.0);
    // All ten tiles have half their columns out of bounds.
    assert_eq!(steps(Gemm::new(640, 32, 6400)), 1500.0);
    // One of ten tiles does.
    assert_eq!(steps(Gemm::new(64, 640 - 32, 6400)), 1050.0);
}

#[test]
fn misaligned_matrices_and_epilogues_are_stored_slower() {
    let slow = EntryCosts { store_ns: 100.0, misaligned_c: 1.0, ..ENTRY };
    let model = model("tile_64x64", slow);
    let store = |gemm: Gemm| time(&model, &gemm, 1) - 1110.0;
    let gemm = tiles(1, 1, 1);
    assert_eq!(store(gemm), 100.0);
    assert_eq!(store(gemm.leading_dimensions(64, 64, 65)), 200.0);
    assert_eq!(store(gemm.scaled(1.0, 1.0)), 300.0);
    let epilogue = Epilogue::new().bias(gemm_matrix::Axis::Row);
    assert_eq!(store(gemm.then(epilogue)), 150.0);
    assert_eq!(store(gemm.then(epilogue.activation(gemm_matrix::Activation::Relu))), 175.0);
    assert_eq!(store(gemm.then(Epilogue::new().residual())), 300.0);
}

/// Persistent blocks compute several tiles, or share steps.
#[test]
fn persistent_blocks_share_steps() {
    let persistent = EntryCosts { next_tile: 0.3, ..ENTRY };
    let model = model("persistent", persistent);
    let tile = find_kernel("persistent").unwrap().tile();
    let [bm, bn, bk] = [tile.bm, tile.bn, tile.bk].map(|size| size as usize);
    let time = |count: usize, steps: usize| {
        time(&model, &Gemm::new(count * bm, bn, steps * bk), 1) - 1000.0
    };
    // One tile for each block, and two.
    assert_eq!(time(10, 4), 140.0);
    assert_eq!(time(20, 4), 180.0 + 30.0);
    // 15 tiles for ten blocks: it pays to share long tiles, and not short ones.
    assert_eq!(time(15, 20), 400.0 + 60.0 + 50.0 + 2.0 * 7.0);
    assert_eq!(time(15, 4), 180.0 + 30.0);
    // At most eight blocks share a tile, and one for each step.
    assert_eq!(time(1, 100), 100.0 + 130.0 + 50.0 + 9.0 * 7.0);
    assert_eq!(time(1, 1), 110.0);
}

/// A cluster lies in one GPC. So fewer run at once than multiprocessors have room for.
#[test]
fn clusters_come_in_waves() {
    let model = model("wgmma_split_192x192", ENTRY);
    let kernel = model.kernels()[0].kernel;
    let by = |count: usize, splits, clusters| {
        let gemm = Gemm::new(192 * count, 192, 64 * 24).computed_in(Compute::Bf16);
        let configuration = Configuration { splits, clusters, ..Configuration::new(kernel) };
        time_by(&model, &gemm, configuration) - 1000.0
    };
    let sum = |parts: f64| 50.0 + 7.0 * parts;
    assert_eq!(by(10, 1, None), 340.0);
    // Three clusters of three at once, so four take two waves.
    assert_eq!(by(3, 3, None), 180.0 + sum(3.0));
    assert_eq!(by(4, 3, None), 2.0 * 180.0 + (1.0 + 1.0) * sum(3.0));
    // Five tiles for four clusters: 30 steps each, of three tiles, and partial sums of two.
    assert_eq!(by(5, 1, Some(4)), 3.0 * 100.0 + 300.0 + sum(2.0));
}

#[test]
fn operands_are_staged_where_that_pays() {
    let device = DeviceCosts { copy_gbytes: 1e5, ..DEVICE };
    let model = model_of(device, vec![costs("tile_64x64", ENTRY)]);
    let copied = |gemm: Gemm| model.fastest(&gemm).is_some_and(|best| best.configuration.staged);
    // Staging takes 600 ns and the bytes, a misaligned step 10 ns more.
    let long = Gemm::new(64 * 10, 63, 64 * 100);
    assert!(copied(long));
    assert!(!copied(Gemm::new(64 * 10, 63, 64 * 20)));
    // There is nothing to gain if B is aligned, or if nothing is read.
    assert!(!copied(Gemm { ldc: 65, lda: 64 * 100 + 1, ..Gemm::new(640, 64, 64 * 100) }));
    assert!(!copied(long.scaled(0.0, 1.0)));
    // Bulk copies need staged rows.
    let model = model_of(device, vec![costs("persistent", ENTRY)]);
    let gemm = Gemm::new(128, 256, 160);
    let staged = |gemm: Gemm| time(&model, &gemm, 1) - time(&model, &Gemm::new(128, 256, 160), 1);
    let bytes: f64 = 4.0 * 160.0 * (128.0 + 256.0);
    assert_eq!(staged(gemm.leading_dimensions(164, 260, 257)), 0.0);
    assert_eq!(staged(gemm.leading_dimensions(161, 257, 256)), (600.0 + 2.0 * bytes / 1e5).round());
}

#[test]
fn sums_of_few_elements_are_compensated() {
    for (step_ns, [few, more]) in [(120.0, [0, 1]), (370.0, [0, 1]), (390.0, [1, 1])] {
        let names = ["skinny_n_32x1", "tile_16x16x16"];
        let entry = |step_ns| EntryCosts { step_ns, block_ns: 0.0, ..ENTRY };
        let model =
            model_of(DEVICE, vec![costs(names[0], entry(step_ns)), costs(names[1], entry(10.0))]);
        let chosen = |gemm: &Gemm| model.fastest(gemm).unwrap().configuration.kernel.name();
        assert_eq!(chosen(&Gemm::new(128, 1, 16)), names[few], "{step_ns}");
        assert_eq!(chosen(&Gemm::new(128, 1, 2)), names[1], "{step_ns}");
        assert_eq!(chosen(&Gemm::new(129, 1, 16)), names[more], "{step_ns}");
        let batch = Gemm::new(65, 1, 16).batched(2, [1040, 16, 65]);
        assert_eq!(chosen(&batch), names[more], "{step_ns}");
    }
}

/// FMAs may take 2 % longer than TF32. They are more accurate.
#[test]
fn fmas_are_chosen_for_tf32_if_they_are_as_fast() {
    for (factor, expected) in [(1.01, "tile_64x64"), (1.1, "tf32_64x128")] {
        let aligned = EntryCosts { step_ns: 1000.0, ..ENTRY };
        let fma = EntryCosts { step_ns: 2000.0 * factor, ..ENTRY };
        let model = model_of(DEVICE, vec![costs("tile_64x64", fma), costs("tf32_64x128", aligned)]);
        let gemm = Gemm::new(64, 64, 2560).computed_in(Compute::Tf32);
        let plain = model.ranking(&gemm).into_iter().find(|one| one.configuration.splits == 1);
        assert_eq!(plain.unwrap().configuration.kernel.name(), expected, "{factor}");
    }
}

/// Choosing is part of a shape's first call.
#[test]
fn choosing_is_quick() {
    let table = &Table::built_in().unwrap()[0];
    let model = Model::new(table);
    for compute in [Compute::F32, Compute::Tf32, Compute::Bf16] {
        let choice = |m| {
            let gemm = Gemm::new(m, 4096, 4096).computed_in(compute);
            let clock = std::time::Instant::now();
            std::hint::black_box(model.fastest(&gemm));
            clock.elapsed()
        };
        // The quickest of many: machines that run tests are busy.
        let quickest = (1..=300).map(choice).min().unwrap();
        assert!(quickest.as_micros() < 1000, "{compute}: {quickest:?}");
    }
}

/// Products without elements, or too large, have no time. Nothing overflows on the way.
#[test]
fn what_cannot_be_launched_takes_no_time() {
    let model =
        model_of(DEVICE, ["persistent", "skinny_n_32x1"].map(|name| costs(name, ENTRY)).into());
    const MAX: usize = crate::problem::MAX_DIMENSION;
    for costs in model.kernels() {
        let time = |gemm: Gemm, splits| {
            let choice = Configuration { splits, ..Configuration::new(costs.kernel) };
            model.time(&gemm, &choice).map(|one| one.ns)
        };
        for gemm in [Gemm::new(0, 5, 5), Gemm::new(5, 0, 5), Gemm::new(usize::MAX, usize::MAX, 1)] {
            assert_eq!(time(gemm, 1), None, "{gemm:?}");
            assert!(model.ranking(&gemm).is_empty());
        }
        assert!(time(Gemm::new(MAX, MAX, MAX), u32::MAX).unwrap().is_finite());
    }
    // The largest sizes, with every kernel; and settings that no launch has.
    for table in Table::built_in().unwrap() {
        let model = Model::new(&table);
        for costs in model.kernels() {
            let gemm = Gemm::new(MAX, MAX, MAX).computed_in(Compute::of_kernel(costs.kernel));
            for (splits, clusters) in [(1, None), (0, None), (0, Some(1)), (8, Some(u32::MAX))] {
                let plain = Configuration::new(costs.kernel);
                let choice = Configuration { splits, clusters, ..plain };
                assert!(model.time(&gemm, &choice).unwrap().ns.is_finite(), "{choice}");
            }
            assert!(model.ranking(&gemm).iter().all(|one| one.ns.is_finite()));
        }
    }
}
