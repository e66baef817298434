//! The kernels for tensor cores, which take A and B in 16 bits.

use cuda_gemm::Error;
use cust::memory::DevicePointer;
use host::kernels::tensor_core::BK;
use host::kernels::{TENSOR_CORE, TensorCoreAbi, TensorCoreDescriptor, wgmma};
use host::verify::Bound;
use host::{Device, DeviceChoice, DeviceHalfMatrix, DeviceMatrix, Gemm, InputType, Matrix};

use crate::case::Case;
use crate::common::devices;

/// Runs a test for every kernel and type on every device that can run it.
fn for_each(test: impl Fn(&Device, &'static TensorCoreDescriptor, InputType)) {
    for device in &devices() {
        let has_maps = device.info().capability == (9, 0);
        let runs = |descriptor: &&TensorCoreDescriptor| {
            has_maps || descriptor.abi() == TensorCoreAbi::Pointer
        };
        for descriptor in TENSOR_CORE.iter().copied().filter(runs) {
            for input in InputType::ALL {
                test(device, descriptor, input);
            }
        }
    }
}

/// A and B as the kernel multiplies them.
fn rounded(case: Case, input: InputType) -> Case {
    let [a, b] = [&case.a, &case.b].map(|matrix| DeviceHalfMatrix::rounded(input, matrix));
    Case { a, b, ..case }
}

/// Runs the product and returns C, having made sure that nothing else was written.
fn run(
    case: &Case,
    device: &Device,
    descriptor: &'static TensorCoreDescriptor,
    input: InputType,
) -> Matrix {
    let plan = device.tensor_core(descriptor, input).unwrap().prepare(case.gemm).unwrap();
    let half = |matrix| DeviceHalfMatrix::from_host(device, input, matrix).unwrap();
    let (a, b) = (half(&case.a), half(&case.b));
    case.run_with(device, descriptor.entry_point(input), |_, _, c| plan.enqueue(&a, &b, c))
}

#[test]
fn every_shape_and_factor() {
    for_each(|device, descriptor, input| {
        let [bm, bn, bk] = [descriptor.rows(), descriptor.cols(), BK].map(|size| size as usize);
        let shapes = [
            [1, 1, 1],
            [7, 11, 13],
            [1, 300, 9],
            [300, 1, 70],
            [bm, bn, bk - 1],
            [bm, bn, bk],
            [bm + 1, bn - 1, bk + 1],
            [bm - 1, bn + 2, 3 * bk],
            // More steps than there are stages.
            [bm, bn, 11 * bk + 8],
            [0, 5, 5],
            [5, 0, 5],
            [5, 5, 0],
        ];
        let factors = [(1.0, 0.0), (-1.5, 0.5), (0.0, 2.0)];
        for ([m, n, k], at) in shapes.into_iter().zip(0..) {
            for (alpha, beta) in factors {
                // Rows of C that begin on 8 bytes, and others.
                let gemm = Gemm::new(m, n, k).strided(k, n, n + at % 4).scaled(alpha, beta);
                let case = rounded(Case::random(gemm, 7), input);
                let check =
                    case.verify(&run(&case, device, descriptor, input), Bound::Probabilistic);
                let name = descriptor.entry_point(input);
                assert!(check.passed(), "{name} on {}: {gemm:?}: {check:?}", device.info().name);
                assert_eq!(check.elements, (m * n) as u64);
            }
        }
    });
}

/// Whoever reads the wrong element, or one that is not there, gets another integer.
#[test]
fn integers_are_exact() {
    for_each(|device, descriptor, input| {
        let (m, n, k) = (descriptor.rows() as usize + 3, descriptor.cols() as usize + 5, 130);
        let make = |rows, cols, which: u64| {
            Matrix::from_fn(rows, cols, |row, col| {
                ((row * 7 + col * 3) as u64 % (5 + which)) as f32
            })
        };
        let case = rounded(Case::new(Gemm::new(m, n, k), make), input);
        let c = run(&case, device, descriptor, input);
        let expected = Matrix::from_fn(m, n, |row, col| {
            (0..k).map(|at| case.a.at(row, at) * case.b.at(at, col)).sum()
        });
        assert!(c == expected, "{} on {}", descriptor.entry_point(input), device.info().name);
    });
}

/// BLAS: with alpha 0 neither A nor B is read, and what is not finite goes where it belongs.
#[test]
fn what_is_not_finite() {
    for_each(|device, descriptor, input| {
        let nan = |rows, cols, _| Matrix::from_fn(rows, cols, |_, _| f32::NAN);
        let case = Case::new(Gemm::new(9, 10, 70).scaled(0.0, 0.0), nan);
        assert!(run(&case, device, descriptor, input).as_slice().iter().all(|value| *value == 0.0));

        let mut case = rounded(Case::random(Gemm::new(70, 80, 100), 3), input);
        let place =
            |matrix: &Matrix, at, value| {
                let (rows, cols) = (matrix.rows(), matrix.cols());
                Matrix::from_fn(rows, cols, |row, col| {
                    if [row, col] == at { value } else { matrix.at(row, col) }
                })
            };
        case.a = place(&case.a, [3, 99], f32::INFINITY);
        case.b = place(&case.b, [5, 7], f32::NAN);
        let c = run(&case, device, descriptor, input);
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
    for_each(|device, descriptor, input| {
        let case = rounded(Case::random(Gemm::new(200, 300, 500), 5), input);
        let [one, other] = [(); 2].map(|()| run(&case, device, descriptor, input));
        assert!(one == other, "{}", descriptor.entry_point(input));
    });
}

/// Where there is no `wgmma`, the library takes a kernel with `mma.sync`, of tiles that suit the product.
#[test]
fn products_of_any_size_run_without_wgmma() {
    let device = Device::open(DeviceChoice::Soft).unwrap();
    let multiprocessors = device.info().limits.multiprocessors as usize;
    let cases = [(128, 256, "mma_128x256"), (128, 128, "mma"), (64, 64, "mma_64x64")];
    for (rows, cols, name) in cases {
        let gemm = Gemm::new(rows * multiprocessors, cols, 8);
        for input in InputType::ALL {
            let kernel = device.tensor_core_for(&gemm, input).unwrap();
            assert_eq!(kernel.descriptor().name(), name);
        }
        let case = rounded(Case::random(gemm, 2), InputType::Bf16);
        let descriptor = device.tensor_core_for(&gemm, InputType::Bf16).unwrap().descriptor();
        let c = run(&case, &device, descriptor, InputType::Bf16);
        assert!(case.verify(&c, Bound::Probabilistic).passed(), "{name}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    let gemm = Gemm::new(4, 5, 6);
    let kernel = device.tensor_core_for(&gemm, InputType::Bf16).unwrap();
    for other in [gemm.transposed(true, false), gemm.transposed(false, true), gemm.stacked(2)] {
        assert!(matches!(kernel.prepare(other), Err(Error::TensorCoreShape { .. })), "{other:?}");
    }
    assert!(matches!(kernel.prepare(gemm.scaled(f32::NAN, 0.0)), Err(Error::NotFinite { .. })));

    let plan = kernel.prepare(gemm).unwrap();
    let half = |input, rows, cols| {
        DeviceHalfMatrix::from_host(&device, input, &Matrix::zeros(rows, cols)).unwrap()
    };
    let (a, b) = (half(InputType::Bf16, 4, 6), half(InputType::Bf16, 6, 5));
    let mut c = DeviceMatrix::zeros(&device, 4, 5).unwrap();
    plan.enqueue(&a, &b, &mut c).unwrap();
    let wrong_type = plan.enqueue(&half(InputType::F16, 4, 6), &b, &mut c).unwrap_err();
    assert!(
        wrong_type.to_string().starts_with("A is of f16, and the product was prepared for bf16")
    );
    let wrong_shape = plan.enqueue(&a, &a, &mut c).unwrap_err();
    assert!(matches!(wrong_shape, Error::Shape { what: "B", .. }), "{wrong_shape}");
    let mut short = DeviceMatrix::zeros(&device, 5, 5).unwrap();
    let wrong_c = plan.enqueue(&a, &b, &mut short).unwrap_err();
    assert!(matches!(wrong_c, Error::Shape { what: "C", .. }), "{wrong_c}");

    // Rows of 12 bytes: no bulk copy reaches the second.
    let [a, b] = [&a, &b].map(|matrix| DevicePointer::<u16>::from_raw(matrix.address()));
    // SAFETY: nothing is enqueued.
    let unaligned = unsafe { plan.enqueue_raw(a, b, c.as_device_ptr()) }.unwrap_err();
    assert!(unaligned.to_string().contains("do not begin on 16 bytes"), "{unaligned}");

    let device = Device::open(DeviceChoice::Soft).unwrap();
    let refused = device.tensor_core(&wgmma::DESCRIPTOR, InputType::F16).unwrap_err();
    assert!(matches!(refused, Error::NeedsHopper { .. }), "{refused}");
}
