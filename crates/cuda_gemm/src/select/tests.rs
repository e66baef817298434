//! Tables, and choices by them. Their numbers were measured nowhere.

mod tables;

use super::*;
use cuda_driver::sys;
use gemm_matrix::Element;

use crate::device::{DeviceChoice, Peak};
use crate::plan::find_kernel;
use kernels_gpu::LADDER;
use kernels_gpu::abi::Shared;
use table::Measured;

/// A table of three kernels.
const TABLE: &str = include_str!("table_for_tests.json");

fn table() -> Table {
    Table::parse(TABLE, "a test").unwrap_or_else(|error| panic!("{error}"))
}

fn timed(name: &str, splits: u32, staged: bool) -> table::Timed {
    let plain = Configuration::new(find_kernel(name).unwrap());
    table::Timed::new(Configuration { splits, staged, ..plain }, 9000.0)
}

/// The test table, as if of this device.
fn own(device: &Device) -> Table {
    let table = table();
    let name = device.info().name.clone();
    table.with_device(Measured { name, ..table.device().clone() }).unwrap()
}

/// The measured configuration of a product, if any.
fn measured(auto: &Auto, gemm: &Gemm) -> Option<Configuration> {
    auto.measured_choice(gemm).map(|found| found.configuration)
}

/// The table with one more measured product.
fn with_product(table: &Table, gemm: &Gemm, best: Configuration) -> Result<Table, Error> {
    let mut device = table.device().clone();
    device.add(best.kernel);
    let mut products = table.products().to_vec();
    products.push(MeasuredProduct::new(gemm, table::Timed::new(best, 9000.0)));
    table.with_device(device)?.with_products(products)
}

#[test]
fn measured_products_come_first_and_only_they() {
    let device = Device::open(DeviceChoice::Soft).unwrap();
    let auto = device.auto_by(&own(&device)).unwrap();
    let choose = |gemm: Gemm| auto.choose(&gemm).unwrap();
    let by_costs = |gemm: Gemm| auto.model().fastest(&gemm).unwrap().configuration;
    let gemm = Gemm::new(512, 512, 512);
    let fastest =
        Configuration { splits: 3, ..Configuration::new(find_kernel("tile_32x32").unwrap()) };
    assert_eq!(measured(&auto, &gemm), Some(fastest));
    assert_eq!(choose(gemm), fastest);
    assert_ne!(by_costs(gemm), fastest);
    // Other factors change nothing, nor do larger leading dimensions that stay aligned.
    assert_eq!(choose(gemm.scaled(2.0, 1.0).leading_dimensions(516, 512, 520)), fastest);
    for other in [
        Gemm::new(512, 512, 516),
        Gemm::new(513, 512, 512),
        gemm.leading_dimensions(513, 512, 512),
        gemm.scaled(0.0, 1.0),
        gemm.stacked(2),
    ] {
        assert_eq!(measured(&auto, &other), None, "{other:?}");
        assert_eq!(choose(other), by_costs(other), "{other:?}");
    }
    assert!(auto.basis().to_string().starts_with("measured on Software"));
}

/// Records exist in every precision, with any division.
#[test]
fn products_on_tensor_cores_are_measured_too() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    let configuration = |name: &str, splits, clusters, blocks_per_multiprocessor| Configuration {
        splits,
        clusters,
        blocks_per_multiprocessor,
        ..Configuration::new(find_kernel(name).unwrap())
    };
    let bf16 = Gemm::new(40, 96, 1000).transposed(false, true).computed_in(Compute::Bf16);
    let odd = Gemm::new(40, 96, 1001).transposed(false, true).computed_in(Compute::Bf16);
    let tf32 = Gemm::new(40, 96, 1000).computed_in(Compute::Tf32).stacked(3);
    let mut table = own(&device);
    for (gemm, best) in [
        (bf16, configuration("wgmma_split_128x32", 2, Some(5), Some(1))),
        (odd, configuration("wgmma_split_64x32_align1", 3, None, None)),
        (tf32, configuration("tf32_split_16x128", 4, None, None)),
    ] {
        let chosen = device.auto_by(&table).unwrap().predictions(&gemm, 1)[0];
        assert_ne!(chosen.configuration, best);
        let with = with_product(&table, &gemm, best).unwrap();
        let auto = device.auto_by(&with).unwrap();
        assert_eq!(measured(&auto, &gemm), Some(best));
        assert_eq!(*auto.prepare(gemm).unwrap().configuration(), best);
        // Another alpha changes nothing. Another type or another size is another product. In 16
        // bits, a product that reads C is another one.
        assert_eq!(measured(&auto, &gemm.scaled(2.0, 0.0)), Some(best));
        let of_16_bits = gemm.compute.is_16_bits();
        assert_eq!(measured(&auto, &gemm.scaled(2.0, 1.0)).is_none(), of_16_bits);
        for other in [gemm.computed_in(Compute::F16), Gemm { m: 41, ..gemm }] {
            assert_eq!(measured(&auto, &other), None, "{other:?}");
        }
        // Matrices whose rows are padded are not those that were measured.
        let padded = odd.leading_dimensions(1008, 1008, 96);
        assert_eq!(measured(&auto, &padded), None);
        let again = Table::parse(&with.to_json(), "a copy").unwrap();
        assert_eq!(again.to_json(), with.to_json());
        table = with;
    }
    assert_eq!(table.products().len(), 4);
    // The caller's settings come first.
    let auto = device.auto_by(&table).unwrap();
    let builder = auto.plan(bf16).unwrap();
    assert_eq!(builder.splits(3).prepare().unwrap().configuration().splits, 3);

    let refused = |gemm: Gemm, best: Configuration, says: &str| {
        let Err(error) = with_product(&table, &gemm, best) else { panic!("{best}") };
        assert!(error.to_string().contains(says), "{error}");
    };
    let plain = configuration("wgmma_64x64", 1, None, None);
    let neither = "takes neither splits nor copies";
    refused(
        tf32,
        plain,
        "product tf32 3*40x96x1000: `best`: `wgmma_64x64` does not compute in tf32",
    );
    refused(bf16, Configuration { splits: 2, ..plain }, neither);
    refused(
        bf16,
        Configuration { clusters: Some(2), ..plain },
        "`wgmma_64x64` cannot be launched so",
    );
    let split = configuration("wgmma_split_64x16", 2, None, None);
    refused(bf16, Configuration { splits: 99, ..split }, "cannot be launched so");
    refused(bf16, Configuration { blocks_per_multiprocessor: Some(2), ..split }, "cannot be");
    refused(bf16, configuration("wgmma_pipelined", 1, None, None), "single plain products alone");
    refused(bf16, Configuration { clusters: Some(0), ..plain }, "`best.clusters` is 0");
    refused(bf16, configuration("tile_64x64", 1, None, None), "does not compute in bf16");
    let split = configuration("tf32_split_16x128", 2, Some(2), None);
    refused(tf32, split, "`tf32_split_16x128` cannot be launched so");
    let auto = device.auto_by(&table).unwrap();
    let by = |configuration| auto.plan_by(bf16, &configuration).map(|_| ()).unwrap_err();
    for wrong in
        [split, Configuration { splits: 0, ..plain }, configuration("naive", 1, None, None)]
    {
        assert!(matches!(by(wrong), Error::Compute { .. }), "{wrong}");
    }
    // With another type of C, it is another product.
    let more = bf16.stored_as(Element::Bf16);
    let with = with_product(&table, &more, configuration("wgmma_split_128x32", 2, None, None));
    let with = with.unwrap();
    assert_eq!(with.products().len(), table.products().len() + 1);
    assert!(with.to_json().contains("\"output\": \"bf16\""));
    assert_eq!(Table::parse(&with.to_json(), "a copy").unwrap().to_json(), with.to_json());

    let mut device = table.device().clone();
    device.ptx_sha256.remove("wgmma_split_128x32");
    let Err(error) = table.with_device(device) else { panic!() };
    assert!(error.to_string().contains("is not in the device's `ptx_sha256`"), "{error}");
}

/// Tables without `packed` have no copies. Written tables are read back equal.
#[test]
fn a_measured_product_may_have_copies() {
    let staged = |text: &str| {
        let Ok(table) = Table::parse(text, "a test") else { panic!("{text}") };
        let Ok(again) = Table::parse(&table.to_json(), "the same") else { panic!("{text}") };
        let [first, second] = [table, again].map(|table| table.products()[0].best.configuration);
        assert_eq!(first, second);
        first.staged
    };
    assert!(!staged(TABLE));
    let text = TABLE.replacen("\"splits\": 3", "\"splits\": 3, \"packed\": true", 1);
    assert!(staged(&text));
}

#[test]
fn choices_that_cannot_be_made() {
    let device = Device::open(DeviceChoice::Soft).unwrap();
    for auto in [device.auto().unwrap(), device.auto_by(&own(&device)).unwrap()] {
        assert!(matches!(auto.choose(&Gemm::new(usize::MAX, 1, 1)), Err(Error::TooLarge { .. })));
        // Nothing to compute is no reason to fail.
        for gemm in [Gemm::new(0, 5, 5), Gemm::new(5, 0, 5), Gemm::new(5, 5, 0)] {
            assert_eq!(auto.choose(&gemm).unwrap().splits, 1);
            auto.prepare(gemm).unwrap();
        }
    }
}

#[test]
fn another_device_gets_scaled_costs() {
    let table = table();
    let mut info = Device::open(DeviceChoice::Soft).unwrap().info().clone();
    // Half the clock, half the lanes, half the bandwidth.
    let clock_khz = table.device().clock_khz / 2;
    info.peak = Some(Peak { clock_khz, multiprocessors: 7, lanes: table.device().lanes / 2 });
    info.memory_gbytes = Some(table.device().memory_gbytes / 2.0);
    // Room for one block of the first kernel, two of the second, and none of the third.
    let shared = |name| match crate::find_kernel(name).unwrap().shared() {
        Shared::Dynamic(bytes) => bytes(1) as u32,
        Shared::Static(bytes) => bytes,
        Shared::Stages { bytes, .. } => bytes[0],
    };
    info.shared_per_multiprocessor = shared("tile_64x64") + 1024;
    info.limits.shared_optin = shared("tile_64x64");
    assert!(shared("tile_16x128") > shared("tile_64x64"));
    let scaled = scale::scaled(&table, &info).unwrap();
    let names: Vec<_> = scaled.kernels().iter().map(|costs| costs.kernel.name()).collect();
    assert_eq!(names, ["tile_64x64", "tile_32x32"]);
    let (was, is) = (&table.kernels()[0], &scaled.kernels()[0]);
    assert_eq!((was.aligned.resident, is.aligned.resident), (2, 1));
    assert_eq!(is.aligned.step_ns, 4.0 * was.aligned.step_ns);
    assert_eq!(is.aligned.reduction_ns, 4.0 * was.aligned.reduction_ns);
    assert_eq!(is.aligned.out_of_bounds, was.aligned.out_of_bounds);
    let room = (shared("tile_64x64") + 1024) / (shared("tile_32x32") + 1024);
    assert_eq!(scaled.kernels()[1].aligned.resident, room);
    assert_eq!(scaled.costs().copy_gbytes, table.costs().copy_gbytes / 2.0);
    // Each multiprocessor has its own connection to the L2 cache.
    let share = 7.0 / f64::from(table.device().multiprocessors);
    approx::assert_relative_eq!(scaled.costs().l2_gbytes, table.costs().l2_gbytes * share);
    assert_eq!(scaled.costs().clusters, [7, 3, 1, 1, 1, 1, 1, 1]);
    assert_eq!((scaled.device().multiprocessors, scaled.products().len()), (7, 0));
}

/// FMAs scale with lanes, and tensor cores do not. An A100 has half the lanes.
#[test]
fn tensor_cores_scale_with_the_clock() {
    let table = &Table::built_in().unwrap()[0];
    let mut info = Device::open(DeviceChoice::Soft).unwrap().info().clone();
    let measured = table.device();
    let (clock_khz, lanes) = (measured.clock_khz / 2, measured.lanes / 2);
    info.peak = Some(Peak { clock_khz, multiprocessors: 108, lanes });
    let scaled = scale::scaled(table, &info).unwrap();
    let slower = |name: &str| {
        let [was, is] = [table, &scaled].map(|table| {
            let mut kernels = table.kernels().iter();
            kernels.find(|costs| costs.kernel.name() == name).unwrap().aligned.step_ns
        });
        is / was
    };
    approx::assert_relative_eq!(slower("tile_64x64"), 4.0, max_relative = 1e-3);
    approx::assert_relative_eq!(slower("tf32_mma_64x64"), 2.0, max_relative = 1e-3);
}

/// Values that the driver does not report scale nothing.
#[test]
fn a_device_that_tells_no_clocks_gets_the_costs_as_they_are() {
    let table = table();
    let mut info = Device::open(DeviceChoice::Soft).unwrap().info().clone();
    info.peak = Some(Peak { clock_khz: 0, multiprocessors: 7, lanes: 0 });
    info.memory_gbytes = Some(0.0);
    let scaled = scale::scaled(&table, &info).unwrap();
    assert_eq!(scaled.costs().copy_gbytes, table.costs().copy_gbytes);
    assert_eq!(scaled.kernels()[0].aligned, table.kernels()[0].aligned);
}

#[test]
fn room_is_what_the_driver_says() {
    for choice in [DeviceChoice::Soft, DeviceChoice::SoftSm90] {
        let device = Device::open(choice).unwrap();
        for descriptor in LADDER.iter().chain(kernels_gpu::TILES) {
            let room = scale::room(device.info(), descriptor);
            let asked = device.resident_blocks(descriptor, false).unwrap();
            if room == 0 {
                assert_eq!(asked, 0, "{}", descriptor.name());
                continue;
            }
            // The driver also counts registers, in each of four parts of a multiprocessor.
            let entry_point = device.entry_point(descriptor.name()).unwrap();
            let registers =
                entry_point.attribute(sys::CU_FUNC_ATTRIBUTE_NUM_REGS).unwrap().next_multiple_of(8);
            let warps = 65_536 / 4 / (32 * registers) * 4;
            let by_registers = warps / descriptor.threads().div_ceil(32);
            assert_eq!(room.min(by_registers), asked, "{}", descriptor.name());
        }
    }
}

/// The software device has no GPCs. Only the number of blocks limits clusters.
#[test]
fn active_clusters_are_what_the_driver_says() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    let kernel = find_kernel("wgmma_split_192x192").unwrap();
    let multiprocessors = device.info().limits.multiprocessors;
    for size in 1..=8 {
        let clusters = device.active_clusters(kernel, size).unwrap();
        assert_eq!(clusters, multiprocessors / size, "{size}");
    }
}

#[test]
fn an_unknown_device_gets_what_has_room() {
    let device = Device::open(DeviceChoice::Soft).unwrap();
    let auto = device.auto_by(&table()).unwrap();
    assert_eq!(*auto.basis(), Basis::Scaled("Test GPU".to_owned()));
    assert!(auto.products.is_empty());
    for costs in auto.model().kernels() {
        let room = scale::room(device.info(), costs.kernel);
        assert!((1..=room).contains(&costs.aligned.resident), "{}", costs.kernel.name());
    }
    assert!(auto.basis().to_string().contains("scaled from what was measured on Test GPU"));
    assert!(auto.choose(&Gemm::new(512, 512, 512)).is_ok());
}

#[test]
fn every_precision_has_kernels_on_every_device() {
    for (device, by_mma) in [(DeviceChoice::Soft, true), (DeviceChoice::SoftSm90, false)] {
        let auto = Device::open(device).unwrap().auto().unwrap();
        for compute in Compute::ALL {
            let gemm = Gemm::new(1024, 1024, 1024).computed_in(compute);
            let name = auto.choose(&gemm).unwrap().kernel.name();
            let is_by_mma = name == "mma" || name.starts_with("mma_") || name.contains("_mma_");
            // FMAs are as fast as three products of TF32 by `mma.sync` on Hopper.
            let has_mma = !matches!(compute, Compute::F32 | Compute::Tf32x3);
            assert_eq!(is_by_mma, by_mma && has_mma, "{compute}: {name}");
        }
    }
}

/// Kernels with tensor maps need a Hopper device.
#[test]
fn no_tensor_maps_without_hopper() {
    let tensor = LADDER.iter().filter(|descriptor| descriptor.abi().has_tensor_maps());
    let [old, new] = [DeviceChoice::Soft, DeviceChoice::SoftSm90].map(Device::open);
    let (old, new) = (old.unwrap(), new.unwrap());
    for descriptor in tensor {
        assert_eq!(scale::room(old.info(), descriptor), 0);
        assert_eq!(old.resident_blocks(descriptor, false).unwrap(), 0);
        assert_eq!(scale::room(new.info(), descriptor), 1);
    }
}

#[test]
fn tensor_cores_warm_up_as_products_choose_them() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    let auto = device.auto().unwrap();
    let large = Gemm::new(4096, 4096, 64).transposed(true, false);
    for compute in [Compute::Bf16, Compute::F16] {
        for gemm in [Gemm::new(72, 40, 8), large].map(|gemm| gemm.computed_in(compute)) {
            let chosen = auto.choose(&gemm).unwrap().kernel.name();
            assert_eq!(auto.warm_up(&[gemm, gemm]).unwrap(), [chosen], "{gemm:?}");
        }
    }
    // In each precision, by one call.
    let all = Compute::ALL.map(|compute| Gemm::new(512, 512, 512).computed_in(compute));
    assert_eq!(auto.warm_up(&all).unwrap().len(), 4);
    let nan = Gemm::new(1, 1, 1).scaled(f32::NAN, 0.0).computed_in(Compute::Bf16);
    assert!(matches!(auto.warm_up(&[nan]), Err(Error::NotFinite { .. })));
}
