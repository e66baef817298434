//! The kernels for tensor cores that take f32.

use host::kernels::{KernelDescriptor, TF32, TF32X3};
use host::verify::{Arithmetic, Bound, Check, Method, Problem, Products, Reference};
use host::{Device, Gemm, Matrix};

use crate::case::{Case, SPLITS};
use crate::common::devices;

/// Runs a test for every kernel on every device that can run it.
fn for_each(test: impl Fn(&Device, &'static KernelDescriptor, Products)) {
    for device in devices().iter().filter(|device| device.info().capability == (9, 0)) {
        for descriptor in TF32 {
            test(device, descriptor, Products::TensorCore);
        }
        for descriptor in TF32X3 {
            test(device, descriptor, Products::Tf32x3);
        }
    }
}

/// The nearest TF32 number, ties away from zero.
fn round(x: f32) -> f32 {
    let bits = x.to_bits().wrapping_add(0x1000) & !0x1fff;
    if x.is_nan() { x } else { f32::from_bits(bits) }
}

/// A and B as they are multiplied.
fn multiplied(matrix: &Matrix, products: Products) -> Matrix {
    Matrix::from_fn(matrix.rows(), matrix.cols(), |row, col| match products {
        Products::Tf32x3 => matrix.at(row, col),
        _ => round(matrix.at(row, col)),
    })
}

fn verify(case: &Case, result: &Matrix, products: Products) -> Check {
    let Case { gemm: Gemm { alpha, beta, trans_a, trans_b, .. }, a, b, c, .. } = case;
    let op = |matrix: &Matrix, trans| if trans { matrix.transposed() } else { matrix.clone() };
    let [a, b] = [op(a, *trans_a), op(b, *trans_b)].map(|matrix| multiplied(&matrix, products));
    let bound = Bound::Probabilistic;
    let problem = Problem { a: &a, b: &b, c: Some(c), alpha: *alpha, beta: *beta, bound };
    let arithmetic = Arithmetic { products, ..Arithmetic::default() };
    let reference = Reference::compute(problem, Method::Full, 0).unwrap().computed_by(arithmetic);
    reference.check(result).unwrap()
}

#[test]
fn every_shape_factor_and_split() {
    for_each(|device, descriptor, products| {
        let [bm, bn, bk] = [descriptor.tile().bm, descriptor.tile().bn, descriptor.tile().bk]
            .map(|size| size as usize);
        let shapes = [
            [1, 1, 1],
            [7, 11, 13],
            [1, 300, 9],
            [300, 1, 70],
            [bm, bn, bk - 1],
            [bm, bn, bk],
            [bm + 1, bn - 1, bk + 1],
            [bm - 1, bn + 4, 3 * bk],
            // More steps than there are stages.
            [bm, bn, 9 * bk + 8],
            [0, 5, 5],
            [5, 0, 5],
            [5, 5, 0],
        ];
        let factors = [(1.0, 0.0), (-1.5, 0.5), (0.0, 2.0)];
        for ([m, n, k], at) in shapes.into_iter().zip(0..) {
            // Rows that begin on 16 bytes, and others; so do rows of C on 8 bytes.
            let (lda, ldb) = (k + at % 3, n + at % 2);
            for splits in SPLITS.into_iter().take(if k > bk { SPLITS.len() } else { 1 }) {
                let (alpha, beta) = factors[(at + splits as usize) % 3];
                let gemm = Gemm::new(m, n, k).strided(lda, ldb, n + at % 4).scaled(alpha, beta);
                let case = Case { splits, ..Case::random(gemm, 7) };
                let check = verify(&case, &case.run(device, descriptor), products);
                let name = descriptor.name();
                assert!(check.passed(), "{name} on {}: {gemm:?}: {check:?}", device.info().name);
                assert_eq!(check.elements, (m * n) as u64);
            }
        }
    });
}

/// Whoever reads the wrong element, or one that is not there, gets another integer.
#[test]
fn integers_are_exact() {
    for_each(|device, descriptor, _| {
        let (m, n, k) = (descriptor.tile().bm as usize + 3, descriptor.tile().bn as usize + 5, 130);
        for gemm in [Gemm::new(m, n, k), Gemm::new(m, n, k).transposed(true, true)] {
            let make = |rows, cols, which: u64| {
                Matrix::from_fn(rows, cols, |row, col| {
                    ((row * 7 + col * 3) as u64 % (5 + which)) as f32
                })
            };
            let case = Case { splits: 2, ..Case::new(gemm, make) };
            let check = case.verify(&case.run(device, descriptor), Bound::WorstCase);
            assert_eq!(
                check.largest.map(|it| it.error),
                Some(0.0),
                "{}: {check:?}",
                descriptor.name()
            );
        }
    });
}
