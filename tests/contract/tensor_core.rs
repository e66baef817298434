//! The kernels for tensor cores, which take A and B in 16 bits.

use cuda_gemm::{AnyMatrix, Error, bf16, f16};
use host::kernels::TENSOR_CORE;
use host::kernels::abi::tensor_core::{BK, MAX_CLUSTER_SIZE};
use host::kernels::abi::{KernelAbi, KernelDescriptor, Reads};
use host::kernels::ladder::tensor::sm_90a::wgmma;
use host::verify::Bound;
use host::{
    Activation, Axis, Compute, Configuration, Device, DeviceChoice, DeviceMatrix, Epilogue, Extras,
    Gemm, Job, Layout, Matrix, Operands, Plan, RotatingBuffers,
};

use crate::case::{Case, edges};
use crate::common::{devices, is_whole};

/// The types that tensor cores take in 16 bits.
const TYPES: [Compute; 2] = [Compute::Bf16, Compute::F16];

/// The entry point for operands of a type as they are multiplied.
pub fn entry_point(descriptor: &KernelDescriptor, compute: Compute) -> &str {
    descriptor.entry_points(compute == Compute::F16)[0]
}

fn has_clusters(descriptor: &KernelDescriptor) -> bool {
    descriptor.abi() == KernelAbi::WgmmaClusters
}

/// Whether rows of A, and of B, may begin anywhere.
fn reads_anywhere(descriptor: &KernelDescriptor) -> [bool; 2] {
    [false, true].map(|is_b| descriptor.reads(is_b, false) == Reads::Anywhere)
}

/// A dense matrix of a product's input type.
pub fn on(device: &Device, compute: Compute, matrix: &Matrix) -> AnyMatrix {
    let shape = [matrix.rows(), matrix.cols()];
    let layout = Layout::dense(matrix.cols());
    let mut copy = AnyMatrix::zeros_of(device, compute.element(), shape, layout).unwrap();
    copy.upload(matrix).unwrap();
    copy
}

/// Runs a test for every kernel and type on every device that can run it.
pub fn for_each(test: impl Fn(&Device, &'static KernelDescriptor, Compute)) {
    for device in &devices() {
        let has_maps = device.info().capability == (9, 0);
        // Those by `mma.sync` run on one of the software devices: that of compute capability 9.0 if
        // they are taken there.
        let runs = |descriptor: &&KernelDescriptor| match descriptor.abi() {
            KernelAbi::MmaPointers if device.is_soft() => {
                has_maps == (reads_anywhere(descriptor) == [true; 2])
            }
            KernelAbi::MmaPointers => true,
            _ => has_maps,
        };
        for descriptor in TENSOR_CORE.iter().copied().filter(runs) {
            // Those whose threads load A are the slowest there, and in f16 the same but for one
            // instruction.
            let is_slow =
                device.is_soft() && has_clusters(descriptor) && reads_anywhere(descriptor)[0];
            for compute in if is_slow { &TYPES[..1] } else { &TYPES[..] } {
                test(device, descriptor, *compute);
            }
        }
    }
}

/// A and B as the kernel multiplies them.
fn rounded(case: Case, compute: Compute) -> Case {
    let [a, b] = [&case.a, &case.b].map(|matrix| matrix.clone().rounded(compute.element()));
    Case { a, b, gemm: case.gemm.computed_in(compute), ..case }
}

/// Runs the product and returns C, having made sure that nothing else was written.
fn run(
    case: &Case,
    device: &Device,
    descriptor: &'static KernelDescriptor,
    compute: Compute,
) -> Matrix {
    let plan = device.kernel(descriptor).unwrap().prepare(case.gemm).unwrap();
    let half = |matrix| on(device, compute, matrix);
    let (a, b) = (half(&case.a), half(&case.b));
    case.run_with(device, entry_point(descriptor, compute), |_, _, c| plan.run(&a, &b, c))
}

#[test]
fn every_shape_and_factor() {
    for_each(|device, descriptor, compute| {
        let [bm, bn, bk] =
            [descriptor.tile().bm, descriptor.tile().bn, BK].map(|size| size as usize);
        let shapes = edges([bm, bn, bk], bn + 2, 11);
        let factors = [(1.0, 0.0), (-1.5, 0.5), (0.0, 2.0)];
        for ([m, n, k], at) in shapes.into_iter().zip(0..) {
            for (alpha, beta) in factors {
                // Rows of C that begin on 8 bytes, and others.
                let gemm =
                    Gemm::new(m, n, k).leading_dimensions(k, n, n + at % 4).scaled(alpha, beta);
                let case = rounded(Case::random(gemm, 7), compute);
                let check =
                    case.verify(&run(&case, device, descriptor, compute), Bound::Probabilistic);
                let name = entry_point(descriptor, compute);
                assert!(check.passed(), "{name} on {}: {gemm:?}: {check:?}", device.info().name);
                assert_eq!(check.elements, (m * n) as u64);
            }
        }
    });
}

/// Whoever reads the wrong element, or one that is not there, gets another integer.
#[test]
fn integers_are_exact() {
    for_each(|device, descriptor, compute| {
        let (m, n, k) = (descriptor.tile().bm as usize + 3, descriptor.tile().bn as usize + 5, 130);
        let make = |rows, cols, which: u64| {
            Matrix::from_fn(rows, cols, |row, col| {
                ((row * 7 + col * 3) as u64 % (5 + which)) as f32
            })
        };
        let case = rounded(Case::new(Gemm::new(m, n, k), make), compute);
        let c = run(&case, device, descriptor, compute);
        let expected = Matrix::from_fn(m, n, |row, col| {
            (0..k).map(|at| case.a.at(row, at) * case.b.at(at, col)).sum()
        });
        assert!(c == expected, "{} on {}", entry_point(descriptor, compute), device.info().name);
    });
}

/// BLAS: with alpha 0 neither A nor B is read, and what is not finite goes where it belongs.
#[test]
fn what_is_not_finite() {
    for_each(|device, descriptor, compute| {
        let nan = |rows, cols, _| Matrix::from_fn(rows, cols, |_, _| f32::NAN);
        let gemm = Gemm::new(9, 10, 70).computed_in(compute).scaled(0.0, 0.0);
        let case = Case::new(gemm, nan);
        assert!(
            run(&case, device, descriptor, compute).as_slice().iter().all(|value| *value == 0.0)
        );

        let mut case = rounded(Case::random(Gemm::new(70, 80, 100), 3), compute);
        let place =
            |matrix: &Matrix, at, value| {
                let (rows, cols) = (matrix.rows(), matrix.cols());
                Matrix::from_fn(rows, cols, |row, col| {
                    if [row, col] == at { value } else { matrix.at(row, col) }
                })
            };
        case.a = place(&case.a, [3, 99], f32::INFINITY);
        case.b = place(&case.b, [5, 7], f32::NAN);
        let c = run(&case, device, descriptor, compute);
        for row in 0..70 {
            for col in 0..80 {
                let value = c.at(row, col);
                let right = match (row, col) {
                    (_, 7) => value.is_nan(),
                    (3, _) => value.is_infinite(),
                    _ => value.is_finite(),
                };
                assert!(right, "{row} {col}: {value}");
            }
        }
    });
}

#[test]
fn the_same_bits_each_time() {
    for_each(|device, descriptor, compute| {
        let case = rounded(Case::random(Gemm::new(200, 300, 500), 5), compute);
        let [one, other] = [(); 2].map(|()| run(&case, device, descriptor, compute));
        assert!(one == other, "{}", entry_point(descriptor, compute));
    });
}

/// Where there is no `wgmma`, the library takes a kernel with `mma.sync`, of tiles that suit the
/// product.
#[test]
fn products_of_any_size_run_without_wgmma() {
    let device = Device::open(DeviceChoice::Soft).unwrap();
    let auto = device.auto().unwrap();
    let multiprocessors = device.info().limits.multiprocessors as usize;
    for (rows, cols, k) in [(128, 256, 8), (128, 128, 70), (64, 64, 200)] {
        let gemm = Gemm::new(rows * multiprocessors, cols, k);
        for compute in TYPES {
            let descriptor = auto.choose(&gemm.computed_in(compute)).unwrap().kernel;
            assert!(descriptor.name().starts_with("mma"), "{}", descriptor.name());
            let case = rounded(Case::random(gemm, 2), compute);
            let c = run(&case, &device, descriptor, compute);
            assert!(case.verify(&c, Bound::Probabilistic).passed(), "{}", descriptor.name());
        }
    }
}

/// What the kernels with layouts can do besides, in combinations: each is there with several
/// others.
fn variants(gemm: Gemm, compute: Compute) -> Vec<Gemm> {
    let half = compute.element();
    let bias = Epilogue::new().bias(Axis::Column).activation(Activation::Gelu);
    let short = |activation| Epilogue::new().bias(Axis::Column).activation(activation);
    let all =
        Epilogue::new().scale(Axis::Row).bias(Axis::Row).activation(Activation::Silu).residual();
    let shared = |gemm: Gemm| {
        let [stride_a, _, stride_c] = gemm.stacked(3).strides();
        gemm.batched(3, [stride_a, 0, stride_c])
    };
    let products = [
        gemm.transposed(true, false),
        gemm.transposed(false, true).scaled(-1.5, 0.5).stored_as(half),
        gemm.transposed(true, true).then(bias.scale(Axis::Column)),
        gemm.stored_as(half).then(bias),
        // Where the sums lie.
        gemm.stored_as(half).then(short(Activation::GeluTanh)),
        gemm.transposed(false, true).scaled(2.0, 1.0).stored_as(half).then(short(Activation::Silu)),
        gemm.transposed(true, false).stacked(2).scaled(2.0, -1.0).stored_as(half).then(all),
        shared(gemm.transposed(false, true)).then(all),
        gemm.transposed(true, true).stacked(3).stored_as(half),
        shared(gemm).scaled(0.0, 2.0).stored_as(half).then(bias),
    ];
    products.map(|gemm| gemm.computed_in(compute)).to_vec()
}

#[test]
fn transposes_batches_outputs_and_epilogues() {
    for_each(|device, descriptor, compute| {
        if !descriptor.takes_transposes() {
            return;
        }
        let (m, n) = (descriptor.tile().bm as usize, descriptor.tile().bn as usize);
        // Whole tiles, and edges on all sides with rows that begin anywhere.
        for (odd, [m, n, k]) in [(0, [m, n, 2 * BK as usize]), (1, [m + 17, n - n / 5 - 1, 75])] {
            // Leading dimensions for any transpose.
            let ld = m.max(n).max(k) + 3 * odd;
            for gemm in variants(Gemm::new(m, n, k).leading_dimensions(ld, ld, ld), compute) {
                let kernel = device.kernel(descriptor).unwrap();
                let plan = kernel.plan(gemm);
                let plan = if odd == 0 { plan } else { plan.any_alignment() };
                let job = Job::Kernel(plan.prepare().unwrap());
                let operands = Operands::random(&gemm, 11);
                let buffers = RotatingBuffers::within(device, &operands, 1, 3 * odd);
                let result = buffers.unwrap().result(&job, operands.c()).unwrap();
                let reference = operands.reference(Bound::Probabilistic, 11).unwrap();
                let check = reference.check(&result).unwrap();
                let name = (entry_point(descriptor, compute), &device.info().name);
                assert!(check.passed(), "{name:?}: {gemm:?}: {check:?}");
                assert_eq!(check.elements, (gemm.batch * m * n) as u64);
            }
        }
    });
}

/// Where nothing lies between rows, what is in front of a row may be read, except of the first one.
#[test]
fn rows_without_gaps_begin_anywhere() {
    for_each(|device, descriptor, compute| {
        if reads_anywhere(descriptor) != [true; 2] {
            return;
        }
        let case = rounded(Case::random(Gemm::new(70, 67, 75), 17), compute);
        for offset in [1, 4, 7] {
            let stored = |matrix: &Matrix| {
                let (shape, cols) = ([matrix.rows(), matrix.cols()], matrix.cols());
                let layout = Layout { offset, ..Layout::dense(cols) };
                let element = compute.element();
                let mut copy = AnyMatrix::zeros_of(device, element, shape, layout).unwrap();
                // NaN in both types.
                copy.fill_buffer(0x7fff).unwrap();
                copy.upload(matrix).unwrap();
                copy
            };
            let (a, b) = (stored(&case.a), stored(&case.b));
            let c = case.run_with(device, entry_point(descriptor, compute), |_, _, c| {
                let plan = device.kernel(descriptor).unwrap().plan(case.gemm);
                plan.any_alignment().prepare()?.run(&a, &b, c)
            });
            let check = case.verify(&c, Bound::Probabilistic);
            let name = entry_point(descriptor, compute);
            assert!(check.passed(), "{name}: {offset}: {check:?}");
        }
    });
}

/// C in 16 bits is the f32 one, rounded once.
#[test]
fn sixteen_bits_are_rounded_to_nearest_even() {
    for_each(|device, descriptor, compute| {
        if !descriptor.takes_transposes() {
            return;
        }
        let gemm = Gemm::new(70, 131, 90).computed_in(compute).scaled(3.0, 0.0);
        let element = compute.element();
        let operands = Operands::random(&gemm, 3);
        let half = |matrix| on(device, compute, matrix);
        let (a, b) = (half(operands.a()), half(operands.b()));
        let mut wide = DeviceMatrix::<f32>::zeros(device, [70, 131]).unwrap();
        let mut narrow = on(device, compute, &Matrix::zeros(70, 131));
        let kernel = device.kernel(descriptor).unwrap();
        kernel.prepare(gemm).unwrap().run(&a, &b, &mut wide).unwrap();
        let plan = kernel.prepare(gemm.stored_as(element)).unwrap();
        plan.run(&a, &b, &mut narrow).unwrap();
        let expected = wide.download().unwrap().rounded(element);
        assert!(narrow.download().unwrap() == expected, "{}", entry_point(descriptor, compute));

        // Numbers that are too large for f16 are infinite in it, as everywhere.
        let plan = kernel.prepare(gemm.scaled(1e6, 0.0).stored_as(element)).unwrap();
        plan.run(&a, &b, &mut narrow).unwrap();
        let is_infinite = narrow.download().unwrap().as_slice().iter().any(|x| x.is_infinite());
        assert_eq!(is_infinite, compute == Compute::F16);
    });
}

/// Alpha and beta in device memory, with a C in 16 bits.
#[test]
fn factors_in_device_memory() {
    for_each(|device, descriptor, compute| {
        if !descriptor.takes_transposes() {
            return;
        }
        let element = compute.element();
        let half = |elements| {
            let matrix = Matrix::from_vec(1, 1, vec![elements]);
            on(device, compute, &matrix)
        };
        let factor = |value| {
            DeviceMatrix::<f32>::from_host(device, &Matrix::from_vec(1, 1, vec![value])).unwrap()
        };
        let gemm = Gemm::new(1, 1, 1).device_factors().stored_as(element);
        let gemm = gemm.computed_in(compute);
        let plan = device.kernel(descriptor).unwrap().prepare(gemm).unwrap();
        let (a, b, mut c) = (half(2.0), half(3.0), half(8.0));
        let (alpha, beta) = (factor(5.0), factor(0.5));
        let extras = Extras::new().factors(alpha.view(), beta.view());
        plan.run_with(&a, &b, &mut c, extras).unwrap();
        assert_eq!(c.download().unwrap().as_slice(), [34.0]);
        assert!(matches!(plan.run(&a, &b, &mut c), Err(Error::Extras { .. })));
    });
}

/// Expects that a plan's product of random matrices is right, with the same bits each time.
fn expect_right(device: &Device, plan: Plan<'static>, seed: u64) {
    let (gemm, configuration) = (*plan.gemm(), *plan.configuration());
    let job = Job::Kernel(plan);
    let operands = Operands::random(&gemm, seed);
    let mut buffers = RotatingBuffers::new(device, &operands, 1).unwrap();
    let result = buffers.result(&job, operands.c()).unwrap();
    let reference = operands.reference(Bound::Probabilistic, 11).unwrap();
    let check = reference.check(&result).unwrap();
    let name = &device.info().name;
    assert!(check.passed(), "{name}: {configuration} for {gemm:?}: {check:?}");
    assert!(result == buffers.result(&job, operands.c()).unwrap(), "the same bits");
}

/// Every number of splits, of few rows and of few columns, whole tiles and edges, and as many
/// splits as steps.
#[test]
fn splits_of_both_orientations() {
    for_each(|device, descriptor, compute| {
        if !has_clusters(descriptor) {
            let plan =
                device.kernel(descriptor).unwrap().plan(Gemm::new(8, 8, 512).computed_in(compute));
            assert!(matches!(plan.splits(2).prepare(), Err(Error::CannotSplit { .. })));
            return;
        }
        let (long, short) = (descriptor.tile().bm as usize, descriptor.tile().bn as usize);
        let half = compute.element();
        let kernel = device.kernel(descriptor).unwrap();
        // On the software device each product has one type of elements, in turn.
        let has_turns = !is_whole() && device.is_soft() && !reads_anywhere(descriptor)[0];
        let turn = u32::from(compute == Compute::Bf16);
        for (splits, extra) in (1..=MAX_CLUSTER_SIZE).zip([0, 1, 8, 3, 12, 0, 7, 4]) {
            let (long, short) = (long + 5 * extra, short - extra.min(short / 2));
            // One step each, or an odd one more.
            let k = (splits * BK) as usize + if extra == 0 { 0 } else { BK as usize + extra };
            let bias = Epilogue::new().bias(Axis::Column);
            let gemms = [
                Gemm::new(short, long, k).scaled(1.0, 0.5),
                Gemm::new(long, short, k).transposed(true, true).then(bias),
                Gemm::new(short, long, k).transposed(false, true).stored_as(half),
                Gemm::new(long, short, k).stored_as(half).stacked(2),
            ];
            let gemms = (splits..).zip(gemms);
            for (_, gemm) in gemms.filter(|(at, _)| !has_turns || at % 2 == turn) {
                let gemm = gemm.computed_in(compute);
                let plan = kernel.plan(gemm).splits(splits).any_alignment().prepare().unwrap();
                assert_eq!(plan.configuration().splits, splits);
                expect_right(device, plan, splits.into());
            }
        }
        // No more than there are steps, and none of nothing.
        for (k, splits) in [(BK as usize + 1, 2), (0, 1)] {
            let gemm = Gemm::new(8, 8, k).computed_in(compute);
            assert_eq!(
                kernel.plan(gemm).splits(8).prepare().unwrap().configuration().splits,
                splits
            );
        }
    });
}

/// Clusters that share the steps of all tiles: less than a tile each, a tile and a bit, several
/// tiles; and as many as tiles, which have one each.
#[test]
fn stream_k() {
    for_each(|device, descriptor, compute| {
        let kernel = device.kernel(descriptor).unwrap();
        if !has_clusters(descriptor) {
            let plan = kernel.plan(Gemm::new(8, 8, 512).computed_in(compute));
            assert!(matches!(plan.clusters(2).prepare(), Err(Error::CannotSplit { .. })));
            return;
        }
        let (long, short) = (descriptor.tile().bm as usize, descriptor.tile().bn as usize);
        let half = compute.element();
        let bias = Epilogue::new().bias(Axis::Column);
        // Four tiles of seven steps, or of a few more, or more tiles.
        let k = 7 * BK as usize - 3;
        for (gemm, splits, clusters) in [
            (Gemm::new(2 * short, 2 * long - 5, k).scaled(-1.5, 0.5), 1, 9),
            (Gemm::new(2 * long - 5, 2 * short, k).transposed(true, true).then(bias), 1, 3),
            (Gemm::new(short, 2 * long, k).stored_as(half).stacked(2), 2, 5),
            // So many that each of two entries is written three times.
            (Gemm::new(3 * short, 2 * long, k).stored_as(half), 1, 1),
            // The second cluster begins with a part, and writes both entries again while others add
            // up.
            (Gemm::new(3 * short, 3 * long, k).stored_as(half), 2, 2),
            (Gemm::new(short, long, 5 * k).transposed(false, true), 3, 11),
            (Gemm::new(short - 1, long, 9 * k).stored_as(half), 1, 62),
        ] {
            let gemm = gemm.computed_in(compute);
            // Of these, some have all memory of a multiprocessor as stages.
            let blocks = if splits == 1 { 1 } else { descriptor.blocks_per_multiprocessor() };
            let plan = kernel.plan(gemm).splits(splits).clusters(clusters).any_alignment();
            let plan = plan.blocks_per_multiprocessor(blocks).prepare().unwrap();
            let most = descriptor.blocks_per_multiprocessor();
            let expected = Configuration {
                splits,
                clusters: Some(clusters),
                blocks_per_multiprocessor: (blocks < most).then_some(1),
                ..Configuration::new(descriptor)
            };
            assert_eq!(*plan.configuration(), expected, "{gemm:?}");
            expect_right(device, plan, clusters.into());
        }
        // No more than there are steps, and none of nothing.
        let clusters = |k: usize, clusters: u32| {
            let gemm = Gemm::new(8, 8, k).computed_in(compute);
            kernel
                .plan(gemm)
                .splits(1)
                .clusters(clusters)
                .prepare()
                .unwrap()
                .configuration()
                .clusters
        };
        assert_eq!([clusters(130, 8), clusters(130, 1), clusters(0, 8)], [Some(3), None, None]);
    });
}

/// Tiles with fewer columns: each width that has instructions of its own, and parts of C that are
/// not as wide, with parts of K and shared tiles.
#[test]
fn narrow_tiles() {
    for_each(|device, descriptor, compute| {
        let kernel = device.kernel(descriptor).unwrap();
        let (long, short) = (descriptor.tile().bm as usize, descriptor.tile().bn);
        let k = 3 * BK as usize - 3;
        if !has_clusters(descriptor) {
            let plan = kernel.plan(Gemm::new(8, long, k).computed_in(compute));
            assert!(matches!(plan.columns(16).prepare(), Err(Error::CannotSplit { .. })));
            return;
        }
        let configuration = |gemm: Gemm, columns: u32| {
            let plan = kernel.plan(gemm.computed_in(compute)).columns(columns).any_alignment();
            *plan.prepare().unwrap().configuration()
        };
        let along_k = Gemm::new(8, 2 * long, k).transposed(false, true);
        if !descriptor.narrows() || short == 16 {
            assert_eq!(configuration(along_k, 16).columns, None, "{}", descriptor.name());
            return;
        }
        // Rounded up to whole panels, if the copied operand lies along N.
        let [first, last] = [1, short].map(|columns| configuration(along_k, columns).columns);
        assert_eq!([first, last], [Some(16), None]);
        let in_panels = Gemm::new(8, 2 * long, k).transposed(true, false);
        let panels = (short > 64).then_some(64);
        assert_eq!(configuration(in_panels, 16).columns, panels, "{}", descriptor.name());
        let half = compute.element();
        let bias = Epilogue::new().bias(Axis::Column);
        let all: Vec<_> = (1..short / 16).map(|units| 16 * units).collect();
        // On the software device each type has every other width.
        let has_turns = !is_whole() && device.is_soft();
        let turn = usize::from(compute == Compute::Bf16);
        for (at, columns) in all.into_iter().enumerate() {
            if has_turns && at % 2 != turn {
                continue;
            }
            let width = columns as usize;
            let (gemm, splits, clusters) = match at % 4 {
                0 => (Gemm::new(2 * width, long + 5, k).stored_as(half), 1, None),
                1 => (Gemm::new(width + 1, 2 * long, k).scaled(-1.5, 0.5).then(bias), 2, None),
                2 => (Gemm::new(3 * width - 7, long, k).stored_as(half).stacked(2), 1, Some(4)),
                _ => (Gemm::new(2 * width, 2 * long - 3, k), 3, Some(3)),
            };
            let gemm = gemm.transposed(at % 3 == 0, true).computed_in(compute);
            let plan = kernel.plan(gemm).splits(splits).columns(columns).transposes_c(at % 2 == 0);
            let plan = match clusters {
                Some(clusters) => plan.any_alignment().clusters(clusters),
                None => plan.any_alignment(),
            };
            let plan = plan.prepare().unwrap();
            // If A lies along M, the transpose of the product may need whole panels.
            let possible = plan.configuration().columns;
            let is_as_asked = possible == Some(columns);
            let is_in_panels = possible.is_none_or(|cols| cols.is_multiple_of(64));
            assert!(is_as_asked || gemm.trans_a && is_in_panels, "{possible:?}: {gemm:?}");
            expect_right(device, plan, splits.into());
        }
        // More tiles than blocks run at once: a block has up to four.
        for (k, beta) in [(70, 0.0), (0, 0.5)] {
            let many = Gemm::new(10 * long, 45 * 16 - 8, k).transposed(false, true);
            let many = many.scaled(1.0, beta).stored_as(half).computed_in(compute);
            let plan = kernel.plan(many).columns(16).transposes_c(false).any_alignment();
            let plan = plan.blocks_per_multiprocessor(1).prepare().unwrap();
            let blocks = plan.launch_plan().block_count();
            assert!(!device.is_soft() || blocks == 132, "{}: {blocks}", descriptor.name());
            expect_right(device, plan, 1);
        }
    });
}

/// A column without gaps needs no copy: it is a row of its transpose. One with gaps does.
#[test]
fn columns_are_read_where_they_lie() {
    for_each(|device, descriptor, compute| {
        if !descriptor.takes_transposes() {
            return;
        }
        let kernel = device.kernel(descriptor).unwrap();
        for (gemm, ld, any_alignment) in [
            (Gemm::new(70, 1, 136), 1, false),
            (Gemm::new(70, 1, 136), 3, true),
            (Gemm::new(1, 72, 131).transposed(true, false), 1, false),
            (Gemm::new(1, 1, 67).transposed(true, false), 1, false),
            (Gemm::new(70, 72, 1), 1, true),
        ] {
            let [lda, ldb] = [gemm.lda, gemm.ldb].map(|own| if own == 1 { ld } else { own });
            let gemm = gemm.leading_dimensions(lda, ldb, gemm.ldc).computed_in(compute);
            let plan = kernel.plan(gemm);
            let plan = if any_alignment { plan.any_alignment() } else { plan };
            let job = Job::Kernel(plan.prepare().unwrap());
            let operands = Operands::random(&gemm, 5);
            let mut buffers = RotatingBuffers::new(device, &operands, 1).unwrap();
            let result = buffers.result(&job, operands.c()).unwrap();
            let reference = operands.reference(Bound::Probabilistic, 11).unwrap();
            let check = reference.check(&result).unwrap();
            assert!(check.passed(), "{}: {gemm:?}: {check:?}", entry_point(descriptor, compute));
        }
    });
}

#[test]
fn what_does_not_fit_is_refused() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    let gemm = Gemm::new(4, 5, 8).computed_in(Compute::Bf16);
    let auto = device.auto().unwrap();
    assert!(matches!(auto.prepare(gemm.scaled(f32::NAN, 0.0)), Err(Error::NotFinite { .. })));

    let plan = auto.prepare(gemm.leading_dimensions(8, 8, 5)).unwrap();
    let (a, b) = (
        DeviceMatrix::<bf16>::zeros(&device, [4, 8]).unwrap(),
        DeviceMatrix::<bf16>::zeros_in(&device, [8, 5], Layout::padded(5)).unwrap(),
    );
    let mut c = DeviceMatrix::<f32>::zeros(&device, [4, 5]).unwrap();
    plan.run(&a, &b, &mut c).unwrap();
    let other = DeviceMatrix::<f16>::zeros(&device, [4, 8]).unwrap();
    let wrong_type = plan.run(&other, &b, &mut c).unwrap_err();
    assert!(
        wrong_type.to_string().starts_with("A holds f16, and the product was prepared for bf16")
    );
    let wrong_shape = plan.run(&a, &a, &mut c).unwrap_err();
    assert!(matches!(wrong_shape, Error::Shape { what: "B", .. }), "{wrong_shape}");
    let mut short = DeviceMatrix::<f32>::zeros(&device, [5, 5]).unwrap();
    let wrong_c = plan.run(&a, &b, &mut short).unwrap_err();
    assert!(matches!(wrong_c, Error::Shape { what: "C", .. }), "{wrong_c}");

    // Rows of 16 bytes that do not begin on 16.
    let addresses = [a.address() + 2, b.address(), c.address()];
    // SAFETY: nothing is enqueued.
    let unaligned = unsafe { plan.run_raw(addresses, Default::default()) }.unwrap_err();
    assert!(matches!(unaligned, Error::PlannedAlignment { what: "A" }), "{unaligned}");

    let device = Device::open(DeviceChoice::Soft).unwrap();
    let refused = device.kernel(&wgmma::DESCRIPTOR).unwrap_err();
    assert!(matches!(refused, Error::NeedsHopper { .. }), "{refused}");
}
