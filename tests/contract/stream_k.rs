//! Persistent blocks that share tiles of C along K, and matrices that bulk copies cannot reach.

use cuda_gemm::Error;
use host::kernels::LADDER;
use host::kernels::abi::{KernelAbi, KernelDescriptor};
use host::verify::Bound;
use host::{Device, DeviceMatrix, Gemm, Layout, Limits};

use crate::case::{Case, for_each_kernel};
use crate::common::devices;

/// Runs a test for every kernel with tensor maps.
fn for_each_tensor_kernel(test: impl Fn(&Device, &'static KernelDescriptor)) {
    for_each_kernel(|device, descriptor| {
        if descriptor.abi().has_tensor_maps() {
            test(device, descriptor);
        }
    });
}

/// Runs a test for every kernel with persistent blocks.
fn for_each_persistent_kernel(test: impl Fn(&Device, &'static KernelDescriptor)) {
    for_each_tensor_kernel(|device, descriptor| {
        if descriptor.abi() == KernelAbi::StreamK {
            test(device, descriptor);
        }
    });
}

/// Tiles that are cut into two pieces and into many, with whole ones before and after them, and
/// shares that end inside a tile, at its end, and tiles later.
#[test]
fn tiles_that_are_cut_up_are_whole_in_the_end() {
    for_each_persistent_kernel(|device, descriptor| {
        let [bm, bn, bk] = [descriptor.tile().bm, descriptor.tile().bn, descriptor.tile().bk]
            .map(|size| size as usize);
        // Tiles of C along m and n, steps along K, multiprocessors; the blocks and the tiles that
        // they share.
        for ([height, width, steps, multiprocessors], expected) in [
            ([1, 1, 7, 132], (7, 1)),
            ([1, 1, 20, 132], (8, 1)),
            ([1, 1, 11, 3], (3, 1)),
            ([1, 2, 10, 5], (5, 2)),
            ([3, 1, 14, 2], (2, 3)),
            ([1, 4, 9, 3], (3, 4)),
            ([2, 3, 12, 4], (4, 6)),
            ([9, 1, 8, 4], (4, 5)),
            ([2, 2, 3, 1], (1, 0)),
        ] {
            // The last tile and the last step are not full.
            let (m, n, k) = (height * bm - 3, width * bn - 5, steps * bk - 1);
            let gemm = Gemm::new(m, n, k).scaled(-0.5, 2.0);
            let multiprocessors = multiprocessors as u32;
            let limits = Limits { multiprocessors, ..device.info().limits };
            let kernel = device.kernel(descriptor).unwrap();
            let prepared = kernel.plan(gemm).within(&limits).prepare().unwrap();
            let [launch] = prepared.launch_plan().launches() else { panic!("one launch") };
            assert_eq!((launch.grid[0], launch.stream_k_tiles), expected);
            let case = Case { limits: Some(limits), ..Case::random(gemm, 41) };
            case.assert_right(device, descriptor, Bound::Probabilistic);
        }
    });
}

/// Long sums are stored in parts: of stream-K tiles, and of whole ones.
#[test]
fn long_sums_are_right_in_parts() {
    for_each_persistent_kernel(|device, descriptor| {
        let [bm, bn, bk] = [descriptor.tile().bm, descriptor.tile().bn, descriptor.tile().bk]
            .map(|size| size as usize);
        for tiles in [3, 4] {
            let gemm = Gemm::new(tiles * bm - 1, bn, 1700).scaled(0.5, -1.0);
            let limits = Limits { multiprocessors: 2, ..device.info().limits };
            let kernel = device.kernel(descriptor).unwrap();
            let prepared = kernel.plan(gemm).within(&limits).prepare().unwrap();
            let [launch] = prepared.launch_plan().launches() else { panic!("one launch") };
            assert_eq!(launch.stream_k_tiles, if tiles == 3 { 3 } else { 0 });
            // Three parts, of which the last is shorter.
            assert_eq!(1700usize.div_ceil(launch.accumulation_steps as usize * bk), 3);
            let case = Case { limits: Some(limits), ..Case::random(gemm, 43) };
            case.assert_right(device, descriptor, Bound::Probabilistic);
        }
    });
}

/// One preparation serves any number of calls, and blocks add up in the same order however they
/// arrive: also with copies of A and B, which each call makes anew.
#[test]
fn repeated_calls_give_the_same_bits() {
    for_each_persistent_kernel(|device, descriptor| {
        let (m, n) = (descriptor.tile().bm as usize + 9, descriptor.tile().bn as usize + 4);
        for k in [15 * descriptor.tile().bk as usize, 15 * descriptor.tile().bk as usize - 1] {
            let limits = Limits { multiprocessors: 7, ..device.info().limits };
            let gemm = Gemm::new(m, n, k);
            let kernel = device.kernel(descriptor).unwrap();
            let prepared = kernel.plan(gemm).within(&limits).prepare().unwrap();
            assert!(prepared.launch_plan().launches()[0].stream_k_tiles > 0);
            let results = [51, 52, 51].map(|seed| {
                let case = Case::random(gemm, seed);
                let a = DeviceMatrix::<f32>::from_host(device, &case.a).unwrap();
                let b = DeviceMatrix::<f32>::from_host(device, &case.b).unwrap();
                let mut c = DeviceMatrix::<f32>::zeros(device, [m, n]).unwrap();
                prepared.run(&a, &b, &mut c).unwrap();
                let result = c.download().unwrap();
                assert!(
                    case.verify(&result, Bound::Probabilistic).passed(),
                    "{}",
                    descriptor.name()
                );
                result
            });
            assert!(results[0] == results[2] && results[0] != results[1], "{}", descriptor.name());
        }
    });
}

/// A call may find A or B where bulk copies reach it, and the next one where they do not.
#[test]
fn the_address_decides_at_each_call() {
    for_each_tensor_kernel(|device, descriptor| {
        let gemm = Gemm::new(40, 36, 44);
        let case = Case::random(gemm, 61);
        let kernel = device.kernel(descriptor).unwrap();
        let prepared = kernel.plan(gemm).any_alignment().prepare().unwrap();
        let results = [[0, 0], [1, 0], [4, 2], [3, 3], [0, 0]].map(|offsets| {
            let place = |matrix: &host::Matrix, offset| {
                let layout = Layout { offset, ld: matrix.cols(), tail: 0 };
                let (rows, cols) = (matrix.rows(), matrix.cols());
                let mut copy = DeviceMatrix::<f32>::zeros_in(device, [rows, cols], layout).unwrap();
                copy.upload(matrix).unwrap();
                copy
            };
            let (a, b) = (place(&case.a, offsets[0]), place(&case.b, offsets[1]));
            let mut c = DeviceMatrix::<f32>::zeros(device, [40, 36]).unwrap();
            prepared.run(&a, &b, &mut c).unwrap();
            c.download().unwrap()
        });
        assert!(case.verify(&results[0], Bound::Probabilistic).passed());
        assert!(results.iter().all(|result| *result == results[0]));

        // Without memory for copies, which operand needs one is said.
        let prepared = kernel.prepare(gemm).unwrap();
        let [a, b, wide_b] = [(40, 44), (44, 36), (44, 37)]
            .map(|(rows, cols)| DeviceMatrix::<f32>::zeros(device, [rows, cols]).unwrap());
        let mut c = DeviceMatrix::<f32>::zeros(device, [40, 36]).unwrap();
        prepared.run(&a, &b, &mut c).unwrap();
        let gemm = Gemm { ldb: 37, ..gemm };
        let prepared = kernel.prepare(gemm).unwrap();
        let part = wide_b.submatrix(0..44, 1..37).unwrap();
        prepared.run(&a, part, &mut c).unwrap();
        let wide = DeviceMatrix::<f32>::zeros(device, [40, 48]).unwrap();
        let prepared = kernel.prepare(Gemm { lda: 48, ..gemm }).unwrap();
        let part = wide.submatrix(0..40, 1..45).unwrap();
        let refused = prepared.run(part, wide_b.submatrix(0..44, 1..37).unwrap(), &mut c);
        assert!(matches!(refused, Err(Error::PlannedAlignment { what: "A" })));
    });
}

/// Copies with less than a group per row and with long rows, and on one multiprocessor copies
/// that take several rounds of the grid.
#[test]
fn copies_of_all_shapes_are_whole() {
    for_each_tensor_kernel(|device, descriptor| {
        for [m, n, k] in
            [[1, 1, 1], [5, 1, 2], [300, 3, 1], [2, 5, 2001], [1, 30_001, 3], [130, 257, 301]]
        {
            for (pad, multiprocessors) in [(1, 1), (3, 132)] {
                let gemm = Gemm::new(m, n, k).leading_dimensions(k + pad, n + pad, n);
                let mut case = Case::random(gemm, 71);
                case.limits = Some(Limits { multiprocessors, ..device.info().limits });
                case.margins = [(1, 0), (3, 0), (0, 0)];
                case.assert_right(device, descriptor, Bound::Probabilistic);
            }
        }
    });
}

/// What needs Hopper says so elsewhere, and a copy that does not fit is refused.
#[test]
fn what_cannot_run_is_refused() {
    for device in devices() {
        for descriptor in LADDER.iter().filter(|descriptor| descriptor.abi().has_tensor_maps()) {
            match device.kernel(descriptor) {
                Ok(kernel) => {
                    assert_eq!(device.info().capability, (9, 0));
                    let large = kernel.prepare(Gemm::new(1 << 30, 1, (1 << 30) - 1));
                    assert!(matches!(large, Err(Error::DeviceMemory { .. })));
                }
                Err(error) => {
                    assert_ne!(device.info().capability, (9, 0));
                    assert!(matches!(error, Error::NeedsHopper { .. }), "{error}");
                }
            }
        }
    }
}
