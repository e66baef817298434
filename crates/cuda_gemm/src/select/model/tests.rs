//! The arithmetic, with costs that are easy to calculate with: they were measured nowhere.

use std::collections::BTreeMap;

use super::*;
use crate::device::{Device, DeviceChoice};
use crate::plan::find_kernel;
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

fn costs(name: &str, paces: &[(f64, f64)]) -> Costs {
    let pace = |&(fixed_ns, step_ns)| Pace { fixed_ns, step_ns };
    let paces: Vec<_> = paces.iter().map(pace).collect();
    let kernel = find_kernel(name).unwrap();
    let twice = |pace: &Pace| Pace { step_ns: 2.0 * pace.step_ns, ..*pace };
    let unaligned = kernel.unaligned().map(|_| paces.iter().map(twice).collect());
    Costs {
        kernel,
        unaligned: unaligned.unwrap_or_default(),
        aligned_wave: None,
        unaligned_wave: None,
        aligned: paces,
        reduction_ns: 50.0,
        partial_ns: 7.0,
        tile_ns: 30.0,
        narrow: 1.0,
        transposed_b: 1.0,
    }
}

/// Launches take 1000 ns, and copies next to nothing.
fn model(kernels: Vec<Costs>) -> Model {
    Model::new(&Table::new(measured(), 1000.0, 1e9, kernels, Vec::new()).unwrap())
}

fn one_kernel(paces: &[(f64, f64)]) -> Model {
    model(vec![costs("tile_64x64", paces)])
}

fn time(model: &Model, gemm: &Gemm, splits: u32) -> f64 {
    let plain = Configuration::new(model.kernels()[0].kernel);
    model.time(gemm, &Configuration { splits, ..plain }).unwrap().ns.round()
}

/// A product of so many tiles of 64 x 64, with so many steps of 64.
fn tiles(rows: usize, cols: usize, steps: usize) -> Gemm {
    Gemm::new(64 * rows, 64 * cols, 64 * steps)
}

#[test]
fn waves() {
    let model = model(vec![costs("tile_64x64", &[(100.0, 10.0), (120.0, 15.0)])]);
    let alone = 100.0 + 3.0 * 10.0;
    let both = 120.0 + 3.0 * 15.0;
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
    // With three at once or more, one block more counts as two.
    let paces = [(100.0, 10.0), (120.0, 15.0), (130.0, 20.0)];
    let of_three = one_kernel(&paces);
    let three = paces.map(|(fixed, step)| fixed + 3.0 * step);
    // 0.3 blocks more than its share is what a multiprocessor has that is busy.
    for (rows, cols, expected) in [
        (10, 3, three[2]),
        (10, 4, (three[2] + three[1]) * 4.3 / 4.0),
        (10, 5, (three[2] + three[1]) * 5.3 / 5.0),
        (1, 45, three[2] + three[1]),
        (1, 58, 2.0 * three[2] * 6.1 / 6.0),
        (10, 6, 2.0 * three[2] * 6.3 / 6.0),
        (10, 7, (2.0 * three[2] + three[0]) * 7.3 / 7.0),
    ] {
        let expected: f64 = 1000.0 + expected;
        let gemm = tiles(rows, cols, 3);
        assert_eq!(time(&of_three, &gemm, 1), expected.round(), "{rows} x {cols}");
    }
    // Part of a tile is a tile, and part of a step a step; both without alignment.
    let part = Gemm::new(64 + 1, 4, 2 * 64 + 4);
    assert_eq!(time(&model, &part, 1), 1000.0 + alone);
    let part = Gemm::new(64 + 1, 3, 2 * 64 + 4);
    assert_eq!(time(&model, &part, 1), 1000.0 + 100.0 + 3.0 * 20.0);
    // Nothing to sum, and nothing at all.
    assert_eq!(time(&model, &tiles(1, 1, 3).scaled(0.0, 1.0), 1), 1100.0);
    assert!(model.fastest(&Gemm::new(0, 5, 5)).is_none());
}

/// Waves after the first take less, the last in proportion.
#[test]
fn waves_overlap() {
    let paces = [(100.0, 10.0), (120.0, 15.0)];
    let wave = Some(Pace { fixed_ns: 20.0, step_ns: 12.0 });
    let overlapping =
        Costs { aligned_wave: wave, unaligned_wave: None, ..costs("tile_64x64", &paces) };
    let model = model(vec![overlapping]);
    let (alone, both, further) = (100.0 + 3.0 * 10.0, 120.0 + 3.0 * 15.0, 20.0 + 3.0 * 12.0);
    for (rows, cols, expected) in [
        (2, 5, alone),
        (4, 5, both),
        (4, 10, both + further),
        (6, 10, both + 2.0 * further),
        (3, 7, both + alone * further / both),
    ] {
        let expected: f64 = 1000.0 + expected;
        assert_eq!(time(&model, &tiles(rows, cols, 3), 1), expected.round(), "{rows} x {cols}");
    }
}

#[test]
fn less_than_a_tile_of_columns() {
    let paces = [(100.0, 10.0), (120.0, 15.0)];
    let narrow = Costs { narrow: 1.4, ..costs("tile_64x64", &paces) };
    let model = model(vec![narrow]);
    for (m, n, expected) in [
        (64, 64, 100.0 + 3.0 * 10.0),
        (60, 68, 100.0 + 3.0 * 10.0),
        (64, 60, 1.4 * (100.0 + 3.0 * 10.0)),
        (20 * 64, 60, 1.4 * (120.0 + 3.0 * 15.0)),
    ] {
        assert_eq!(time(&model, &Gemm::new(m, n, 3 * 64), 1), 1000.0 + expected, "{m} x {n}");
    }
    // B as it lies, and as a copy.
    let transposed = Costs { transposed_b: 1.2, ..costs("tile_64x64", &paces) };
    let transposed = super::Model { kernels: vec![transposed], ..model.clone() };
    let gemm = Gemm::new(64, 64, 3 * 64).transposed(false, true);
    let unaligned = 100.0 + 3.0 * 20.0;
    assert_eq!(time(&transposed, &gemm, 1), 1000.0 + 1.2 * unaligned);
    // To share a tile takes what it takes elsewhere.
    let shared = 1.4 * (100.0 + 2.0 * 10.0) + 50.0 + 2.0 * 7.0;
    assert_eq!(time(&model, &Gemm::new(64, 60, 4 * 64), 2), 1000.0 + shared);
}

#[test]
fn splits() {
    let model = model(vec![costs("tile_64x64", &[(100.0, 10.0)])]);
    let gemm = tiles(1, 1, 100);
    assert_eq!(time(&model, &gemm, 1), 1000.0 + 100.0 + 1000.0);
    assert_eq!(time(&model, &gemm, 4), 1000.0 + 100.0 + 250.0 + 50.0 + 4.0 * 7.0);
    // Whole steps do not go further than 7 x 15, and then 15 of 7.
    assert_eq!(time(&model, &gemm, 8), 1000.0 + 100.0 + 130.0 + 50.0 + 8.0 * 7.0);
    assert_eq!(time(&model, &gemm, 9), 1000.0 + 100.0 + 120.0 + 50.0 + 9.0 * 7.0);
    // A reduction for each wave of one block: thirty blocks come in three.
    let three_waves = 3.0 * (100.0 + 4.0 * 10.0) + 3.0 * (50.0 + 25.0 * 7.0);
    assert_eq!(time(&model, &gemm, 25), 1000.0 + three_waves);
    // Ten multiprocessors: the best is one split for each, and not more.
    let best = model.fastest(&gemm).unwrap();
    assert_eq!(best.configuration.splits, 10);
    assert_eq!(best.ns.round(), 1000.0 + 100.0 + 100.0 + 50.0 + 70.0);
    // With tiles enough there is nothing to split, nor with a single step.
    assert_eq!(model.fastest(&tiles(10, 1, 4)).unwrap().configuration.splits, 1);
    assert_eq!(model.fastest(&tiles(1, 1, 1)).unwrap().configuration.splits, 1);
    // What is said is what a launch does.
    let limits = Device::open(DeviceChoice::Soft).unwrap().info().limits;
    for estimate in model.ranking(&tiles(1, 3, 77), 9) {
        let choice = estimate.configuration;
        let plan = crate::LaunchPlan::new(&choice, tiles(1, 3, 77), &limits, "a device").unwrap();
        assert_eq!(*plan.configuration(), choice);
    }
}

/// No thread adds up more than it may, unless C fills the GPU many times, nor more than need be, unless that is faster.
#[test]
fn long_sums_are_split() {
    let model = model(vec![costs("tile_64x64", &[(100.0, 10.0)])]);
    // Four slices, each with a quarter of the steps. Splits of a grid that fills the GPU take a wave each.
    let steps = |length: u32, times: usize| 4 * times * length as usize / 64;
    let splits = |tall, steps| model.fastest(&tiles(tall, 10, steps)).unwrap().configuration.splits;
    let long = |times| steps(LONGEST_SUM, times);
    assert_eq!([splits(1, long(1)), splits(1, long(1) + 1)], [1, 2]);
    assert_eq!([splits(1, long(3)), splits(3, long(3)), splits(4, long(3))], [3, 1, 1]);
    // 52 steps where 40 make a short sum: 1620 ns, and 1848 in two splits, whose sums are short; with other costs 1524
    // and 1536, which 4 % make up for.
    let short = steps(SHORT_SUM, 1) + 12;
    assert_eq!(splits(1, short), 1);
    let cheap = Costs { reduction_ns: 2.0, partial_ns: 1.0, ..costs("tile_64x64", &[(4.0, 10.0)]) };
    let cheap = super::Model { kernels: vec![cheap], ..model.clone() };
    assert_eq!(cheap.fastest(&tiles(1, 10, short)).unwrap().configuration.splits, 2);
    // 110 steps make a short sum in three splits, which is 1.6 doublings and 6.3 %: one split takes 2104 ns, three take 2122
    // and three reductions.
    let chosen = |reduction_ns| {
        let costs = Costs { reduction_ns, partial_ns: 0.0, ..costs("tile_64x64", &[(4.0, 10.0)]) };
        let model = super::Model { kernels: vec![costs], ..cheap.clone() };
        model.fastest(&tiles(1, 10, 110)).unwrap().configuration.splits
    };
    assert_eq!([30.0, 50.0].map(chosen), [3, 1]);
}

/// `outer_32x128` takes fours of K, and `small_32x32` whole steps of 16.
#[test]
fn a_short_k_counts_by_fours() {
    let [outer, small] =
        ["outer_32x128", "small_32x32"].map(|name| model(vec![costs(name, &[(0.0, 1600.0)])]));
    let times = [(0, 0.0, 0.0), (4, 400.0, 1600.0), (16, 1600.0, 1600.0), (20, 2000.0, 3200.0)];
    for (k, by_fours, by_steps) in times {
        let gemm = Gemm::new(32, 32, k);
        assert_eq!(time(&outer, &gemm, 1), 1000.0 + by_fours, "{k}");
        assert_eq!(time(&small, &gemm, 1), 1000.0 + by_steps, "{k}");
    }
}

/// Of the tiles for a short K: 36 columns more for each run of C, where its rows do not begin on 32 bytes.
#[test]
fn partial_sectors_take_time() {
    let time = |name: &str, gemm: Gemm| {
        let model = Model::new(
            &Table::new(measured(), 1000.0, 1.0, vec![costs(name, &[(0.0, 0.01)])], Vec::new())
                .unwrap(),
        );
        let plain = Configuration::new(model.kernels()[0].kernel);
        model.time(&gemm, &plain).unwrap().ns - 1000.0
    };
    for (name, run) in [("outer_32x128", 128.0), ("outer_64x32", 32.0)] {
        let [aligned, others] = [1000, 1001].map(|n| {
            let gemm = Gemm::new(500, n, 1);
            let read = 4.0 * (500 + n) as f64;
            (time(name, gemm) - read) / (4.0 * 500.0 * n as f64)
        });
        assert!((aligned - 1.0).abs() < 1e-6, "{aligned}");
        assert!((others - 1.0 - 36.0 / run).abs() < 1e-6, "{others}");
        let padded = Gemm::new(500, 1001, 1).leading_dimensions(1, 1001, 1008);
        assert!(time(name, padded) < time(name, Gemm::new(500, 1001, 1)));
    }
    let small = |n: usize| time("small_32x32", Gemm::new(20, n, 1)) / (20 * n) as f64;
    assert!((small(20) / small(24) - 1.0).abs() < 0.1);
}

/// Only rows of B that are even, and tiles that are wider than high.
#[test]
fn pairs_of_b_take_less() {
    for (name, factor) in [("tile_64x128", 0.95), ("tile_64x64", 1.0), ("tile_4x128", 1.0)] {
        let model = model(vec![costs(name, &[(0.0, 1000.0)])]);
        let steps = |gemm: &Gemm| time(&model, gemm, 1) - 1000.0;
        let odd = steps(&Gemm::new(4, 1001, 512));
        assert_eq!(steps(&Gemm::new(4, 1002, 512)), factor * odd, "{name}");
        assert_eq!(steps(&Gemm::new(4, 1002, 512).leading_dimensions(512, 1003, 1002)), odd);
        assert_eq!(steps(&Gemm::new(4, 1001, 512).leading_dimensions(512, 1002, 1001)), odd);
        assert_eq!(steps(&Gemm::new(4, 1002, 512).transposed(false, true)), odd);
    }
}

/// If that takes no more than 1.35 times as long.
#[test]
fn sums_of_few_elements_are_compensated() {
    for (step, [few, more]) in [(120.0, [0, 1]), (370.0, [0, 1]), (380.0, [1, 1])] {
        let names = ["skinny_n_32x1", "tile_16x16x16"];
        let model = model(vec![costs(names[0], &[(0.0, step)]), costs(names[1], &[(0.0, 10.0)])]);
        let chosen = |gemm: &Gemm| model.fastest(gemm).unwrap().configuration.kernel.name();
        assert_eq!(chosen(&Gemm::new(128, 1, 16)), names[few], "{step}");
        assert_eq!(chosen(&Gemm::new(128, 1, 4)), names[few], "{step}");
        assert_eq!(chosen(&Gemm::new(128, 1, 2)), names[1], "{step}");
        assert_eq!(chosen(&Gemm::new(129, 1, 16)), names[more], "{step}");
        assert_eq!(chosen(&Gemm::new(65, 1, 16).batched(2, [1040, 16, 65])), names[more], "{step}");
        let ranking = model.ranking(&Gemm::new(64, 1, 16), 2);
        let ranked: Vec<_> = ranking.iter().map(|one| one.configuration.kernel.name()).collect();
        assert_eq!(ranked, [names[few], names[1 - few]], "{step}");
    }
}

#[test]
fn memory_is_a_floor() {
    let mut model = model(vec![costs("tile_64x64", &[(100.0, 10.0)])]);
    let gemm = tiles(2, 2, 2).scaled(1.0, 0.5);
    let bytes: f64 = 4.0 * (4.0 * 128.0 * 128.0);
    model.copy = 10.0;
    assert_eq!(time(&model, &gemm, 1), (1000.0 + bytes / 10.0).round());
    let estimate = model.fastest(&gemm).unwrap();
    assert!(estimate.memory_bound == Some(true));
    model.copy = 1e9;
    assert!(model.fastest(&gemm).unwrap().memory_bound == Some(false));
    // Ten tiles at a time, eight of them in a column: where the cache holds little, each
    // column of tiles reads all of A.
    model.copy = 1.0;
    model.l2_bytes = 0.0;
    let gemm = tiles(8, 4, 1);
    let again: f64 = 4.0 * 64.0 * (8.0 * 64.0 * 4.0 / 1.25 + 4.0 * 64.0);
    let c = 4.0 * 8.0 * 4.0 * 64.0 * 64.0;
    assert_eq!(time(&model, &gemm, 1), (1000.0 + again + c).round());
}

/// A block has begun before its first step waits for memory.
#[test]
fn reading_overlaps_with_steps_alone() {
    let mut model = model(vec![costs("tile_64x64", &[(100.0, 10.0)])]);
    model.copy = 1000.0;
    let (gemm, read) = (tiles(1, 1, 100), 4.0 * 2.0 * 64.0 * 6400.0);
    let reading: f64 = 1000.0 + 100.0 + read / 1000.0;
    assert_eq!(time(&model, &gemm, 1), reading.round());
    model.copy = 1e9;
    assert_eq!(time(&model, &gemm, 1), 1000.0 + 100.0 + 1000.0);
}

/// With the tile of another kernel, because the numbers are rounder.
#[test]
fn blocks_that_stay_share_all_steps() {
    let costs = costs("tile_64x64", &[(100.0, 10.0)]);
    let model = model(vec![costs.clone()]);
    let persistent = |rows, cols, steps| {
        let work = Work::new(&tiles(rows, cols, steps), costs.kernel, false);
        let (time, sharing) = model.persistent(&costs, &work);
        (time.fixed_ns + time.step_ns, sharing)
    };
    // One tile each; two each; 15 tiles for ten blocks, where it pays to share them and where not.
    assert_eq!(persistent(10, 1, 4), (140.0, 0.0));
    assert_eq!(persistent(10, 2, 4), (180.0 + 30.0, 0.0));
    assert_eq!(persistent(15, 1, 20), (400.0 + 30.0, 50.0 + 2.0 * 7.0));
    assert_eq!(persistent(15, 1, 4), (180.0 + 30.0, 0.0));
    // One tile for eight blocks at most, and a block for each step at most.
    assert_eq!(persistent(1, 1, 100), (100.0 + 130.0, 50.0 + 9.0 * 7.0));
    assert_eq!(persistent(1, 1, 1), (110.0, 0.0));
    assert_eq!(persistent(1, 1, 0), (100.0, 0.0));
}

#[test]
fn rows_that_tensor_maps_cannot_reach_are_copied() {
    let mut model = model(vec![costs("persistent", &[(100.0, 10.0)])]);
    model.copy = 1000.0;
    let gemm = Gemm::new(128, 256, 160);
    // One tile of ten steps, for eight blocks.
    let dense = 1000.0 + 100.0 + 2.0 * 10.0 + 50.0 + 9.0 * 7.0;
    let (a, b) = (4.0 * 128.0 * 160.0, 4.0 * 160.0 * 256.0);
    // One launch for both.
    let copy = |bytes: f64| 1600.0 + 2.0 * bytes / 1000.0;
    for (gemm, expected) in [
        (gemm, dense),
        (gemm.leading_dimensions(164, 260, 257), dense),
        (gemm.leading_dimensions(161, 256, 256), dense + copy(a)),
        (gemm.leading_dimensions(161, 257, 256), dense + copy(a + b)),
    ] {
        let memory = (a + b + 4.0 * 128.0 * 256.0) / 1000.0 - 120.0;
        assert_eq!(time(&model, &gemm, 1), (expected + memory).round(), "{gemm:?}");
    }
}

/// Twice as long for each step, or a copy of B.
#[test]
fn tiles_have_the_choice_of_a_copy() {
    let mut model = model(vec![costs("tile_64x64", &[(100.0, 10.0)])]);
    model.copy = 1e5;
    let copied = |gemm: Gemm| model.fastest(&gemm).is_some_and(|best| best.configuration.staged);
    // Copying takes 1600 ns and something, a step without it 10 ns more; in one split each.
    let long = Gemm::new(64 * 10, 63, 64 * 200);
    assert!(copied(long));
    assert!(!copied(Gemm::new(64 * 10, 63, 64 * 50)));
    // Nothing to gain where B is aligned, whatever A and C are, nor where nothing is read.
    assert!(!copied(Gemm { ldc: 65, lda: 64 * 200 + 1, ..Gemm::new(640, 64, 64 * 200) }));
    assert!(!copied(long.scaled(0.0, 1.0)));
    let with = |staged| {
        let plain = Configuration::new(model.kernels()[0].kernel);
        model.time(&long, &Configuration { staged, ..plain }).unwrap()
    };
    let bytes: f64 = 4.0 * 63.0 * 64.0 * 200.0;
    let saved = with(false).ns - with(true).ns;
    assert_eq!(saved.round(), (200.0 * 10.0 - 1600.0 - 2.0 * bytes / 1e5).round());
}

#[test]
fn a_ranking_has_no_more_than_two_of_a_kernel() {
    let small = costs("tile_32x32", &[(100.0, 5.0), (100.0, 8.0)]);
    let model = model(vec![costs("tile_64x64", &[(100.0, 10.0)]), small]);
    let gemm = tiles(1, 2, 100);
    let ranking = model.ranking(&gemm, 6);
    assert_eq!(ranking.len(), 4);
    assert!(ranking.is_sorted_by(|a, b| a.ns <= b.ns));
    assert_eq!(ranking[0], model.fastest(&gemm).unwrap());
    for name in ["tile_64x64", "tile_32x32"] {
        assert_eq!(ranking.iter().filter(|e| e.configuration.kernel.name() == name).count(), 2);
    }
    assert_eq!(model.ranking(&gemm, 1).len(), 1);
}

/// It is part of every first call for a shape.
#[test]
fn choosing_is_quick() {
    let all = kernels_gpu::TILES.iter();
    let model = model(
        all.map(|descriptor| costs(descriptor.name(), &[(100.0, 10.0), (100.0, 15.0)])).collect(),
    );
    let clock = std::time::Instant::now();
    const CALLS: usize = 1000;
    for i in 1..=CALLS {
        std::hint::black_box(model.fastest(&Gemm::new(i, 4096, 4096)));
    }
    let each = clock.elapsed() / CALLS as u32;
    // 20 us is what it may take; machines that run tests are slow and busy.
    assert!(each.as_micros() < 200, "{each:?}");
    eprintln!("{each:?} per choice");
}

/// Nothing to compute, and what no launch takes: no time, and no overflow on the way.
#[test]
fn what_cannot_be_launched_takes_no_time() {
    let model =
        model(["persistent", "skinny_n_32x1"].map(|name| costs(name, &[(100.0, 10.0)])).into());
    const MAX: usize = crate::problem::MAX_DIMENSION;
    for costs in model.kernels() {
        let time = |gemm: Gemm, splits| {
            let choice = Configuration { splits, ..Configuration::new(costs.kernel) };
            model.time(&gemm, &choice).map(|one| (one.ns, one.configuration.splits))
        };
        for gemm in [Gemm::new(0, 5, 5), Gemm::new(5, 0, 5), Gemm::new(usize::MAX, usize::MAX, 1)] {
            assert_eq!(time(gemm, 1), None, "{gemm:?}");
            assert!(model.fastest(&gemm).is_none() && model.ranking(&gemm, 3).is_empty());
        }
        // As many splits as a launch takes, and more work than 64 bits count.
        let (ns, splits) = time(Gemm::new(MAX, MAX, MAX), u32::MAX).unwrap();
        assert!(ns.is_finite() && splits <= 65535, "{ns} {splits}");
    }
}
