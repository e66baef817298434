//! cuBLAS keeps the same contract, and agrees with the rungs.

use cuda_gemm::Error as GemmError;
use gemm_bench::Error;
use host::verify::Bound;
use host::{
    Activation, Compute, Cublas, Device, DeviceMatrix, Element, Epilogue, Gemm, Groups, Job,
    Matrix, Operands, RotatingBuffers,
};

use crate::case::{Case, fits, kernels};
use crate::common::{gpu, skip};

/// Runs a test with cuBLAS on the GPU, if there are both.
fn with_cublas(test: impl Fn(&Device, &Cublas)) {
    let Some(device) = gpu() else { return };
    match Cublas::open(&device) {
        Ok(cublas) => test(&device, &cublas),
        Err(error) => skip(&error.to_string()),
    }
}

fn run(device: &Device, cublas: &Cublas, case: &Case) -> Matrix {
    let product = cublas.prepare(case.gemm).unwrap();
    case.run_with(device, "cublas", |a, b, c| product.enqueue(a, b, c))
}

#[test]
fn cublas_and_the_rungs_agree() {
    with_cublas(|device, cublas| {
        assert!(cublas.version().split('.').count() == 3, "{}", cublas.version());
        for (gemm, offset) in [
            (Gemm::new(1, 1, 1), 0),
            (Gemm::new(257, 129, 31), 1),
            (Gemm::new(128, 256, 64).scaled(-1.5, 0.5), 0),
            (Gemm::new(100, 77, 300).scaled(2.0, 1.0).leading_dimensions(303, 80, 90), 3),
            (Gemm::new(512, 512, 512), 0),
            (Gemm::new(257, 129, 31).transposed(true, false), 1),
            (Gemm::new(128, 256, 64).transposed(false, true), 0),
            (Gemm::new(100, 77, 300).transposed(true, true).leading_dimensions(110, 301, 90), 3),
            (Gemm::new(40, 50, 0).scaled(1.0, 0.5), 0),
            (Gemm::new(40, 50, 0), 0),
            (Gemm::new(0, 5, 5), 0),
            (Gemm::new(5, 0, 5), 0),
        ] {
            let mut case = Case::random(gemm, 31);
            case.margins = [(64 + offset, 64); 3];
            let check = case.verify(&run(device, cublas, &case), Bound::Probabilistic);
            assert!(check.passed(), "{gemm:?}: {check:?}");

            // With small integers every sum is exact, so that results are equal.
            let small = |rows, cols, salt| {
                let value = move |i, j| ((i * 31 + j * 17 + salt * 7) % 17) as f32 - 8.0;
                Matrix::from_fn(rows, cols, value)
            };
            let mut case = Case::new(gemm, |rows, cols, salt| small(rows, cols, salt as usize));
            case.margins = [(64 + offset, 64); 3];
            let theirs = run(device, cublas, &case);
            for descriptor in
                kernels(device).filter(|descriptor| fits(device, descriptor, &gemm).is_ok())
            {
                assert_eq!(case.run(device, descriptor), theirs, "{} {gemm:?}", descriptor.name());
            }
        }
    });
}

/// BLAS's rules for what is not read.
#[test]
fn cublas_reads_neither_a_nor_b_if_alpha_is_zero() {
    with_cublas(|device, cublas| {
        let mut case = Case::random(Gemm::new(70, 90, 33).scaled(0.0, 0.5), 32);
        case.a.as_mut_slice().fill(f32::NAN);
        case.b.as_mut_slice().fill(f32::NAN);
        let result = run(device, cublas, &case);
        assert!(case.verify(&result, Bound::WorstCase).passed());
    });
}

#[test]
fn cublas_refuses_what_was_not_prepared() {
    with_cublas(|device, cublas| {
        let zeros = |rows, cols| DeviceMatrix::<f32>::zeros(device, [rows, cols]).unwrap();
        let (a, b, mut c) = (zeros(4, 6), zeros(6, 5), zeros(4, 5));
        let product = cublas.prepare(Gemm::new(4, 5, 6)).unwrap();
        product.enqueue(&a, &b, &mut c).unwrap();
        assert!(matches!(
            product.enqueue(&b, &b, &mut c),
            Err(Error::Gemm(GemmError::Shape { what: "A", .. }))
        ));
        let padded = cublas.prepare(Gemm::new(4, 5, 6).leading_dimensions(6, 8, 5)).unwrap();
        assert!(matches!(
            padded.enqueue(&a, &b, &mut c),
            Err(Error::Gemm(GemmError::PlannedLd { what: "B", .. }))
        ));
        assert!(cublas.prepare(Gemm::new(2, 3, 4).leading_dimensions(3, 3, 3)).is_err());
    });
}

/// Groups in turn, each with its own B, also in parts of wider matrices.
#[test]
fn cublas_takes_groups_in_turn() {
    with_cublas(|device, cublas| {
        let groups: Groups = "70,0,2,5".parse().unwrap();
        let gemm = Gemm::new(77, 24, 40).computed_in(Compute::Bf16).scaled(2.0, 0.5);
        for (gemm, left) in [
            (gemm, 0),
            (gemm.transposed(false, true).stored_as(Element::Bf16), 0),
            (gemm.leading_dimensions(64, 48, 48), 8),
        ] {
            let gemm = groups.of(gemm).unwrap();
            assert!(matches!(cublas.prepare(gemm), Err(Error::Gemm(GemmError::GroupCount { .. }))));
            let product = cublas.prepare_groups(gemm, groups.clone()).unwrap();
            let operands = Operands::random(&gemm, 3).in_groups(groups.clone()).unwrap();
            let mut buffers = RotatingBuffers::within(device, &operands, 1, left).unwrap();
            let result = buffers.result(&Job::Cublas(Box::new(product)), operands.c()).unwrap();
            let reference = operands.reference(Bound::Probabilistic, 3).unwrap();
            let check = reference.check(&result).unwrap();
            assert!(check.passed() && check.elements == 77 * 24, "{gemm:?}: {check:?}");
        }
        let relu = gemm_with_relu(&groups);
        let refused = cublas.prepare_groups(relu, groups).err().unwrap();
        assert!(refused.to_string().contains("takes no groups with an epilogue"), "{refused}");
    });
}

/// A grouped product whose epilogue is for kernels of this library.
fn gemm_with_relu(groups: &Groups) -> Gemm {
    let relu = Epilogue::new().activation(Activation::Relu);
    groups.of(Gemm::new(77, 8, 8).computed_in(Compute::Bf16).then(relu)).unwrap()
}
