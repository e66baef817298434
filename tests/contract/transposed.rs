//! Operands that lie transposed.

use cuda_gemm::Error;
use host::verify::Bound;
use host::{DeviceMatrix, Gemm, Limits};

use crate::case::{Case, for_each_kernel};
use crate::common::devices;

/// A, B or both.
const WHICH: [[bool; 2]; 3] = [[true, false], [false, true], [true, true]];

/// Every kernel, aligned or not, with gaps between rows and without, with several tiles to copy,
/// and vectors, some of which need no copy.
#[test]
fn every_kernel_takes_transposed_operands() {
    for_each_kernel(|device, descriptor| {
        for [m, n, k] in [[70, 132, 68], [33, 65, 9], [1, 40, 37], [40, 1, 37], [5, 7, 1]] {
            for ([trans_a, trans_b], pad) in WHICH.into_iter().zip([0, 4, 3]) {
                let gemm = Gemm::new(m, n, k).scaled(-0.5, 1.5).transposed(trans_a, trans_b);
                let Gemm { lda, ldb, ldc, .. } = gemm;
                let mut case = Case::random(gemm.leading_dimensions(lda + pad, ldb + pad, ldc), 41);
                case.margins[0].0 = pad;
                case.splits = 2;
                case.assert_right(device, descriptor, Bound::Probabilistic);
            }
        }
    });
}

/// What is not read need not be there, transposed or not; nothing is copied where C is empty.
#[test]
fn nothing_is_copied_that_is_not_read() {
    for_each_kernel(|device, descriptor| {
        for (gemm, splits) in [
            (Gemm::new(5, 7, 0), 1),
            (Gemm::new(5, 7, 9).scaled(0.0, 0.5), 2),
            (Gemm::new(0, 7, 9), 1),
            (Gemm::new(5, 0, 9), 1),
        ] {
            let mut case = Case::random(gemm.transposed(true, true), 42);
            case.splits = splits;
            case.assert_right(device, descriptor, Bound::Probabilistic);
        }
    });
}

/// A grid that is too small: panels begin inside the copies.
#[test]
fn panels_of_transposed_operands() {
    for_each_kernel(|device, descriptor| {
        let [bm, bn] = [descriptor.tile().bm as usize, descriptor.tile().bn as usize];
        let gemm = Gemm::new(2 * bm + 1, 2 * bn + 3, 20).transposed(true, true);
        let mut case = Case::random(gemm, 43);
        case.limits = Some(Limits { grid: [1; 3], ..device.info().limits });
        case.assert_right(device, descriptor, Bound::Probabilistic);
    });
}

/// `auto` takes them, too, and refuses matrices that lie the other way.
#[test]
fn auto_takes_transposed_operands() {
    for device in devices() {
        let auto = device.auto().unwrap();
        for [trans_a, trans_b] in WHICH {
            let gemm = Gemm::new(100, 60, 300).transposed(trans_a, trans_b);
            let case = Case::random(gemm, 44);
            let plan = case.with_alignment(auto.plan(gemm).unwrap()).prepare().unwrap();
            let result = case.run_with(&device, "auto", |a, b, c| plan.run(a, b, c));
            assert!(case.verify(&result, Bound::Probabilistic).passed(), "{gemm:?}");

            let [a, b, c] = Gemm::new(100, 60, 300)
                .shapes()
                .map(|[rows, cols]| DeviceMatrix::<f32>::zeros(&device, [rows, cols]).unwrap());
            let mut c = c;
            let refused = plan.run(&a, &b, &mut c);
            let expected = if trans_a { "A" } else { "B" };
            assert!(matches!(refused, Err(Error::Shape { what, .. }) if what == expected));
        }
    }
}
