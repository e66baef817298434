//! Reading, writing and checking tables.

use std::collections::BTreeMap;

use super::*;

/// Tables have the tree's PTX, or accept its changes.
#[test]
fn built_in_tables_are_of_the_ptx_in_the_tree() {
    let mut stale = String::new();
    for (file, text) in table::TUNED {
        let table = Table::parse(text, file).unwrap_or_else(|error| panic!("{error}"));
        let changes = table.changes().into_iter().filter(|change| !change.is_accepted);
        let changed: Vec<_> = changes.map(|change| change.entry_point).collect();
        if !changed.is_empty() {
            stale += &format!(
                "the PTX of {} has changed since crates/cuda_gemm/tuned/{file} was measured; on an {}, type \
                 `cargo xtask tune`; without one, have the table say so: \
                 `cargo run -p host -- tune --accept crates/cuda_gemm/tuned/{file}`\n",
                changed.join(", "),
                table.device().name
            );
        }
        // Accepting changes then alters nothing else.
        assert!(
            table.to_json() == *text,
            "crates/cuda_gemm/tuned/{file} is not as `rungs tune` writes it"
        );
    }
    assert!(stale.is_empty(), "{stale}");
}

#[test]
fn a_table_reads_back_what_it_wrote() {
    let table = table();
    let again = Table::parse(&table.to_json(), "again").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again.to_json(), table.to_json());
    assert_eq!(again.products()[0].best.configuration, table.products()[0].best.configuration);
}

#[test]
fn a_bad_table_says_which_line_or_entry() {
    let line_of = |text: &str| TABLE.lines().position(|line| line.contains(text)).unwrap() + 1;
    let parse = |from: &str, to: &str| {
        let text = TABLE.replacen(from, to, 1);
        assert_ne!(text, TABLE, "{from}");
        let Err(Error::Table { place, reason }) = Table::parse(&text, "bad.json") else {
            panic!("{to}")
        };
        (place, reason)
    };
    for (from, to, line, says) in [
        ("\"tile_64x64\"", "\"tile_64x46\"", 0, "the nearest are `tile_64x64`"),
        ("\"copy_gbytes\"", "\"copy_gb\"", 0, "unknown field `copy_gb`"),
        ("\"block_ns\": 1000.0,", "", 1, "missing field `block_ns`"),
        ("\"splits\": 3", "\"splits\": 3, \"parts\": 2", 1, "unknown field `parts`"),
        ("\"step_ns\": 1000.0", "\"step_ns\": null", 0, "null"),
        ("\"ptx_sha256\": {}", "\"ptx_sha256\": \"of all\"", 0, "expected a map"),
    ] {
        let (place, reason) = parse(from, to);
        assert!(reason.contains(says), "{to}: {reason}");
        // A missing field is noticed at the end of its object, and so is any of `best`.
        if line == 0 {
            assert_eq!(place, format!("bad.json:{}", line_of(from)), "{to}");
        }
    }
    for (from, to, says) in [
        ("\"multiprocessors\": 4", "\"multiprocessors\": 0", "`multiprocessors` is 0"),
        ("{}", "{ \"stage_operands\": \"12\" }", "the SHA-256 of `stage_operands` is `12`"),
        ("\"launch_ns\": 2000.0", "\"launch_ns\": -1.0", "`launch_ns` is -1.0, and must be"),
        ("\"copy_gbytes\": 4000.0", "\"copy_gbytes\": 0.0", "`copy_gbytes` is 0.0, and must be"),
        (
            "\"copy_gbytes\": 4000.0",
            "\"copy_gbytes\": 1e-300",
            "`copy_gbytes` is 1e-300, and must be",
        ),
        ("\"tile_32x32\"", "\"tile_64x64\"", "there are two `tile_64x64`"),
        ("\"step_ns\": 1200.0", "\"step_ns\": 0", "`tile_64x64`: `unaligned.step_ns` is 0"),
        ("\"store_ns\": 500.0", "\"store_ns\": -0.5", "`aligned.store_ns` is -0.5"),
        ("\"splits\": 3", "\"splits\": 0", "splits` is 0, and must be at least 1"),
        ("\"m\": 512", "\"m\": 4294967296", "product 4294967296x512x512: m is"),
    ] {
        let (place, reason) = parse(from, to);
        assert!(place == "bad.json" && reason.contains(says), "{to}: {place}: {reason}");
    }
    let Err(Error::Table { place, reason }) = Table::parse("{", "cut.json") else { panic!() };
    assert!(place == "cut.json:1" && reason.contains("EOF"), "{place}: {reason}");
    let missing = std::path::Path::new("no such table.json");
    let Err(error) = Table::read(missing) else { panic!() };
    assert!(error.to_string().contains("no such table.json"), "{error}");
}

/// Every way to make a table checks it.
#[test]
fn no_table_is_made_that_is_not_checked() {
    let table = table();
    let refused = |table: Result<Table, Error>, says: &str| {
        let Err(Error::Table { place, reason }) = table else { panic!("{says}") };
        assert!(place == "the table of Test GPU" && reason.contains(says), "{place}: {reason}");
    };
    refused(table.with_kernels(Vec::new()), "it has no kernels");
    let kernels = |alter: fn(&mut table::Costs)| {
        let mut kernels = table.kernels().to_vec();
        alter(&mut kernels[0]);
        table.with_kernels(kernels)
    };
    for (alter, says) in [
        (|costs| costs.aligned.resident = 0, "`aligned.resident` is 0, and must be from 1 to 32"),
        (|costs| costs.aligned.resident = 33, "`aligned.resident` is 33"),
        (|costs| costs.unaligned = None, "the kernel has an entry point for `unaligned`"),
        (|costs| costs.aligned.block_ns = -1.0, "`aligned.block_ns` is -1"),
        (|costs| costs.aligned.step_ns = f64::NAN, "`aligned.step_ns` is NaN"),
        (|costs| costs.aligned.step_ns = 0.0, "`aligned.step_ns` is 0"),
        (|costs| costs.aligned.reduction_ns = f64::INFINITY, "`aligned.reduction_ns` is inf"),
        (
            |costs| costs.unaligned.as_mut().unwrap().out_of_bounds = -0.5,
            "`unaligned.out_of_bounds` is -0.5",
        ),
    ] as [(fn(&mut table::Costs), _); _]
    {
        refused(kernels(alter), says);
    }
    // The most blocks that any multiprocessor holds.
    assert!(kernels(|costs| costs.aligned.resident = 32).is_ok());

    let device = |alter: fn(&mut Measured)| {
        let mut device = table.device().clone();
        alter(&mut device);
        table.with_device(device)
    };
    for (alter, says) in [
        (|device| device.multiprocessors = 0, "`multiprocessors` is 0"),
        (|device| device.clock_khz = 0, "`clock_khz` is 0"),
        (|device| device.lanes = 0, "`lanes` is 0"),
        (|device| device.memory_gbytes = 0.0, "`memory_gbytes` is 0"),
        (|device| device.memory_gbytes = f64::INFINITY, "`memory_gbytes` is inf"),
    ] as [(fn(&mut Measured), _); _]
    {
        refused(device(alter), says);
    }
    for digest in ["0".repeat(63), "0".repeat(65), "g".repeat(64), "A".repeat(64)] {
        let digests = BTreeMap::from([("stage_operands".to_owned(), digest)]);
        let [mut measured, mut since] = [(); 2].map(|()| table.device().clone());
        measured.ptx_sha256.clone_from(&digests);
        since.changed_since = digests;
        for device in [measured, since] {
            refused(table.with_device(device), "the SHA-256 of `stage_operands` is");
        }
    }

    let mut products = table.products().to_vec();
    products.extend_from_within(..1);
    refused(table.with_products(products), "there are two products 512x512x512");
    let product = |alter: fn(&mut MeasuredProduct)| {
        let mut products = table.products().to_vec();
        alter(&mut products[0]);
        table.with_products(products)
    };
    let neither = "`async_copy` takes neither splits nor copies";
    for (alter, says) in [
        (|at| at.n = 1 << 32, "n is 4294967296"),
        (|at| at.best.configuration.splits = 0, "`best.splits` is 0"),
        (|at| at.best.ns = 0.0, "`best.ns` is 0"),
        (|at| at.best.ns = f64::NAN, "`best.ns` is NaN"),
        (|at| at.best = timed("async_copy", 3, false), neither),
        (|at| at.best = timed("async_copy", 1, true), neither),
        // This kernel has neither costs nor digests.
        (|at| at.best = timed("smem_full", 1, false), "`best`: `smem_full` is not among"),
    ] as [(fn(&mut MeasuredProduct), _); _]
    {
        refused(product(alter), says);
    }

    let persistent = table::Costs {
        kernel: crate::find_kernel("persistent").unwrap(),
        unaligned: None,
        ..table.kernels()[0].clone()
    };
    let old = Measured { capability: (8, 0), ..table.device().clone() };
    let of_all = table.with_kernels(table.kernels()[..3].to_vec()).unwrap();
    let old = of_all.with_device(old).unwrap();
    refused(old.with_kernels(vec![persistent]), "`persistent`: it needs compute capability 9.0");
    let mut products = table.products().to_vec();
    products[0].best = timed("persistent", 1, false);
    refused(old.with_products(products), "`best`: `persistent` needs compute capability 9.0");
}
