//! Launches of all kinds of kernels, without a device.

use super::*;
use crate::plan::find_kernel;
use crate::problem::{Compute, MAX_DIMENSION};
use kernels_gpu::abi::{GridOrder, Tile};
use kernels_gpu::{LADDER, f32_kernels};

/// A kernel whose x axis walks the rows of C, with tiles of 16 x 16.
fn rows_along_x() -> &'static KernelDescriptor {
    let descriptor = find_kernel("naive").unwrap();
    let Tile { bm, bn, .. } = descriptor.tile();
    assert!(matches!(descriptor.grid(), GridOrder::RowsAlongX) && [bm, bn] == [16, 16]);
    descriptor
}

/// A kernel whose x axis walks the columns of C, with tiles of 32 x 32.
fn columns_along_x() -> &'static KernelDescriptor {
    let descriptor = find_kernel("coalesced").unwrap();
    let Tile { bm, bn, .. } = descriptor.tile();
    assert!(matches!(descriptor.grid(), GridOrder::ColumnsAlongX) && [bm, bn] == [32, 32]);
    descriptor
}

fn plan(kernel: &'static KernelDescriptor, gemm: Gemm) -> Result<LaunchPlan, Error> {
    split(kernel, gemm, 1)
}

fn split(kernel: &'static KernelDescriptor, gemm: Gemm, splits: u32) -> Result<LaunchPlan, Error> {
    let configuration = Configuration { splits, ..Configuration::new(kernel) };
    LaunchPlan::new(&configuration, gemm, &Limits::H200, "a device")
}

#[test]
fn every_rung_fits_every_device() {
    for descriptor in f32_kernels() {
        assert!(descriptor.threads() <= 1024, "{}", descriptor.name());
        plan(descriptor, Gemm::new(300, 200, 100)).unwrap();
        // Keeps panels of an aligned matrix aligned: B and C are cut into columns.
        let is_cut =
            descriptor.unaligned().is_some_and(|other| other.vectorized[1] || other.vectorized[2]);
        assert!(!is_cut || descriptor.tile().bn % 4 == 0, "{}", descriptor.name());
    }
}

#[test]
fn the_grid_covers_c_exactly() {
    let gemm = Gemm::new(33, 65, 5);
    assert_eq!(plan(rows_along_x(), gemm).unwrap().launches()[0].grid, [3, 5]);
    assert_eq!(plan(columns_along_x(), gemm).unwrap().launches()[0].grid, [3, 2]);
    let gemm = Gemm::new(32, 64, 5);
    assert_eq!(plan(rows_along_x(), gemm).unwrap().launches()[0].grid, [2, 4]);
    assert_eq!(plan(columns_along_x(), gemm).unwrap().launches()[0].grid, [2, 1]);
}

#[test]
fn a_tall_c_is_cut_into_panels() {
    let m = 65535 * 32 * 2 + 7;
    let gemm = Gemm::new(m, 3, 5).leading_dimensions(9, 4, 6);
    let plan = plan(columns_along_x(), gemm).unwrap();
    let [first, second, last] = plan.launches() else { panic!("{:?}", plan.launches()) };
    assert_eq!(first.grid, [1, 65535]);
    assert_eq!((first.row, first.col), (0, 0));
    assert_eq!((second.row, second.col), (65535 * 32, 0));
    assert_eq!((last.grid, last.m, last.n), ([1, 1], 7, 3));
    assert_eq!(plan.launches().iter().map(|l| l.m as usize).sum::<usize>(), m);
}

#[test]
fn a_wide_c_is_cut_where_y_walks_columns() {
    let n = 65535 * 16 + 1;
    let plan = plan(rows_along_x(), Gemm::new(3, n, 2)).unwrap();
    let [first, last] = plan.launches() else { panic!("{:?}", plan.launches()) };
    assert_eq!((first.grid, first.n), ([1, 65535], 65535 * 16));
    assert_eq!((last.grid, last.n), ([1, 1], 1));
    assert_eq!((last.row, last.col), (0, 65535 * 16));
}

#[test]
fn an_empty_c_launches_nothing_and_an_empty_k_does() {
    for descriptor in LADDER {
        assert!(plan(descriptor, Gemm::new(0, 5, 5)).unwrap().launches().is_empty());
        assert!(plan(descriptor, Gemm::new(5, 0, 5)).unwrap().launches().is_empty());
        assert_eq!(plan(descriptor, Gemm::new(5, 5, 0)).unwrap().launches().len(), 1);
    }
}

#[test]
fn splits_are_whole_steps_and_never_empty() {
    let descriptor = find_kernel("tile_64x64").unwrap();
    let bk = descriptor.tile().bk as usize;
    let plan = |k, splits| split(descriptor, Gemm::new(65, 127, k), splits).unwrap();
    for k in 0..20 * bk {
        for splits in [0, 1, 2, 3, 7, 65536, u32::MAX] {
            let plan = plan(k, splits);
            let (count, depth) =
                (plan.configuration().splits as usize, plan.split_depth() as usize);
            assert!((1..=splits.clamp(1, MAX_SPLITS)).contains(&plan.configuration().splits));
            assert!(depth > 0 && depth.is_multiple_of(bk) && count * depth >= k);
            assert!(count == 1 || (count - 1) * depth < k, "{k} {splits}: {count} of {depth}");
        }
    }
    // Two by two tiles of 64 x 64.
    let workspace = plan(10 * bk, 3).workspace();
    assert_eq!(workspace, Workspace { partials: 3 * 4 * 64 * 64, counters: 4 });
    assert_eq!(workspace.bytes(), 4 * (3 * 4 * 64 * 64 + 4));
    assert_eq!(plan(10 * bk, 1).workspace(), Workspace::default());
    // Up to 65535 blocks along z, 3 per product.
    let batch = Gemm::new(65, 127, 10 * bk).batched(30_000, [0, 0, 65 * 127]);
    let plan = split(descriptor, batch, 3).unwrap();
    assert_eq!((plan.configuration().splits, plan.products_per_launch()), (3, 21845));
    assert_eq!((plan.launch_count(), plan.block_count()), (2, 4 * 3 * 30_000));
    assert_eq!(plan.workspace().counters, 4 * 21845);
    let plan = split(LADDER[0], batch, 1).unwrap();
    assert_eq!((plan.launches().len(), plan.products_per_launch()), (1, 1));
    assert_eq!((plan.launch_count(), plan.block_count()), (30_000, 5 * 8 * 30_000));
    let refused = split(LADDER[0], Gemm::new(1, 1, 1), 2);
    assert!(matches!(refused, Err(Error::CannotSplit { kernel: "naive" })));
}

#[test]
fn a_kernel_refuses_every_precision_that_it_is_not_for() {
    let gemm = Gemm::new(5, 6, 7);
    for descriptor in f32_kernels() {
        let own = Compute::of_kernel(descriptor);
        for compute in Compute::ALL {
            match plan(descriptor, gemm.computed_in(compute)) {
                // The default precision fits any kernel.
                Ok(plan) => {
                    assert!(compute == own || compute == Compute::F32);
                    assert_eq!(plan.gemm().compute, own);
                }
                Err(refused) => {
                    assert!(compute != own && compute != Compute::F32);
                    let says = format!("{own}: say `.computed_in(Compute::{own:?})`");
                    assert!(refused.to_string().contains(&says), "{refused}");
                }
            }
        }
    }
}

#[test]
fn sizes_are_checked() {
    let naive = LADDER[0];
    let big = MAX_DIMENSION + 1;
    for gemm in [Gemm::new(big, 1, 1), Gemm::new(1, big, 1), Gemm::new(1, 1, usize::MAX)] {
        assert!(matches!(plan(naive, gemm), Err(Error::TooLarge { .. })), "{gemm:?}");
    }
    let gemm = Gemm::new(2, 3, 4);
    let narrow = gemm.transposed(true, true).leading_dimensions(2, 3, 3);
    for gemm in [gemm.leading_dimensions(3, 3, 3), gemm.leading_dimensions(4, 2, 3), narrow] {
        assert!(matches!(plan(naive, gemm), Err(Error::LeadingDimension { .. })), "{gemm:?}");
    }
    let gemm = Gemm::new(1, 1, 1).scaled(f32::NAN, 0.0);
    assert!(matches!(plan(naive, gemm), Err(Error::NotFinite { what: "alpha", .. })));
    // The largest accepted sizes: nothing may overflow.
    let max = MAX_DIMENSION;
    assert!(plan(naive, Gemm::new(max, max, max)).is_ok());
    assert!(Gemm::new(max, max, max).bytes() > u128::from(u64::MAX / 2));
    let max = usize::MAX;
    assert_eq!(Gemm::new(max, max, max).bytes(), u128::MAX);
}

#[test]
fn too_much_shared_memory_names_both_numbers() {
    let hungry = find_kernel("smem_full").unwrap();
    assert_eq!(plan(hungry, Gemm::new(1, 1, 200)).unwrap().shared_bytes(), 51200);
    let error = plan(hungry, Gemm::new(1, 1, 4096)).unwrap_err().to_string();
    assert!(error.contains("1048576") && error.contains("232448"), "{error}");
    // With alpha 0 nothing is summed, so shared memory is not needed.
    assert!(plan(hungry, Gemm::new(1, 1, 4096).scaled(0.0, 1.0)).is_ok());
}

#[test]
fn more_blocks_than_fit_are_the_most() {
    let is_limited = |kernel: &&KernelDescriptor| kernel.blocks_per_multiprocessor() > 1;
    let mut kernels = kernels_gpu::kernels().filter(is_limited);
    let has_clusters = |kernel: &&KernelDescriptor| kernel.abi() == KernelAbi::WgmmaClusters;
    let kernel = kernels.find(|one| has_clusters(one) && Compute::Bf16.is_of(one)).unwrap();
    let with = |blocks_per_multiprocessor| {
        let whole = Configuration::new(kernel);
        let configuration = Configuration { blocks_per_multiprocessor, ..whole };
        let gemm = Gemm::new(8192, 8192, 256).computed_in(Compute::Bf16);
        let plan = LaunchPlan::new(&configuration, gemm, &Limits::H200, "a device").unwrap();
        (*plan.configuration(), plan.shared_bytes(), plan.block_count())
    };
    let most = kernel.blocks_per_multiprocessor();
    assert_eq!(with(Some(most + 1)), with(None));
    assert_eq!(with(Some(most)), with(None));
    // A lone block has more memory. Each multiprocessor has one of them.
    let ((_, alone, blocks), (_, shared, all)) = (with(Some(1)), with(None));
    assert!(alone > shared, "{alone} bytes, and {shared}");
    assert_eq!([blocks, all], [1, u64::from(most)].map(|each| each * 132));
}

#[test]
fn the_blocks_of_a_batch_are_those_of_its_launches() {
    let limits = Limits { grid: [1 << 20, 1 << 10, 4], ..Limits::H200 };
    for kernel in ["tile_64x64", "persistent"].map(|name| find_kernel(name).unwrap()) {
        for batch in 1..=9 {
            let gemm = Gemm::new(100, 200, 300).stacked(batch);
            let plan = LaunchPlan::new(&Configuration::new(kernel), gemm, &limits, "a device");
            let plan = plan.unwrap();
            let grids = plan.all_launches().map(|(_, products, launch)| {
                plan.grid(launch, products).map(u64::from).iter().product::<u64>()
            });
            let name = format!("{} of {}", batch, kernel.name());
            assert_eq!(plan.launch_count(), plan.all_launches().count() as u64, "{name}");
            assert_eq!(plan.block_count(), grids.sum::<u64>(), "{name}");
        }
    }
}
