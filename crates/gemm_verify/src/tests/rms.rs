//! The bound of the root mean square: right results pass, and it finds errors that elements hide.

use super::*;
use crate::arithmetic::nearest_tf32;

/// The fills of A and B: independent elements of mean zero.
const FILLS: [fn(usize, usize, u64) -> Matrix; 4] = [uniform, normal, scaled, signs];

fn uniform(rows: usize, cols: usize, stream: u64) -> Matrix {
    Matrix::random(rows, cols, 17, stream)
}

/// Normal elements, with Box and Muller's method.
fn normal(rows: usize, cols: usize, stream: u64) -> Matrix {
    let [x, y] = [uniform(rows, cols, stream), uniform(rows, cols, stream + 100)];
    Matrix::from_fn(rows, cols, |i, j| {
        let [x, y] = [&x, &y].map(|matrix| f64::from(matrix.at(i, j)));
        ((-2.0 * (0.5 - 0.5 * x).ln()).sqrt() * (std::f64::consts::PI * y).cos()) as f32
    })
}

/// Each row of A and column of B has its own scale.
fn scaled(rows: usize, cols: usize, stream: u64) -> Matrix {
    let all = uniform(rows, cols, stream);
    Matrix::from_fn(rows, cols, |i, j| {
        let of = if stream == 1 { i } else { j };
        all.at(i, j) * [1e-6, 1.0, 3e5][of % 3]
    })
}

fn signs(rows: usize, cols: usize, stream: u64) -> Matrix {
    let all = uniform(rows, cols, stream);
    Matrix::from_fn(rows, cols, |i, j| if all.at(i, j) < 0.0 { -1.0 / 3.0 } else { 1.0 / 3.0 })
}

fn map(matrix: &Matrix, f: impl Fn(f32) -> f32) -> Matrix {
    Matrix::from_fn(matrix.rows(), matrix.cols(), |i, j| f(matrix.at(i, j)))
}

fn truncated_tf32(x: f32) -> f32 {
    f32::from_bits(x.to_bits() & !0x1fff)
}

/// FMAs over `split` consecutive steps along K, whose sums are added in order.
fn by_fma(a: &Matrix, b: &Matrix, split: usize) -> Matrix {
    let k = a.cols();
    Matrix::from_fn(a.rows(), b.cols(), |i, j| {
        let part = |first: usize| {
            let steps = first..k.min(first + split);
            steps.fold(0.0f32, |sum, l| a.at(i, l).mul_add(b.at(l, j), sum))
        };
        (0..k).step_by(split).map(part).sum()
    })
}

/// Splits both matrices in `big` and `small`, sums steps with tensor cores, and adds these with
/// FADDs.
fn by_tf32x3(a: &Matrix, b: &Matrix) -> Matrix {
    let step = Products::TF32X3_STEP;
    let [[big_a, small_a], [big_b, small_b]] = [a, b].map(|matrix| {
        let big = map(matrix, nearest_tf32);
        let small = Matrix::from_fn(matrix.rows(), matrix.cols(), |i, j| {
            nearest_tf32(matrix.at(i, j) - big.at(i, j))
        });
        [big, small]
    });
    let mut sums = Matrix::zeros(a.rows(), b.cols());
    for first in (0..a.cols()).step_by(step) {
        let count = step.min(a.cols() - first);
        // The small products come first, in one sum.
        let of_a = Matrix::from_fn(a.rows(), 3 * count, |i, l| {
            [&small_a, &big_a, &big_a][l / count].at(i, first + l % count)
        });
        let of_b = Matrix::from_fn(3 * count, b.cols(), |l, j| {
            [&big_b, &small_b, &big_b][l / count].at(first + l % count, j)
        });
        let part = by_tensor_core(&of_a, &of_b, Element::F32, 4);
        sums = Matrix::from_fn(a.rows(), b.cols(), |i, j| sums.at(i, j) + part.at(i, j));
    }
    sums
}

fn check(a: &Matrix, b: &Matrix, result: &Matrix, products: Products) -> Check {
    let arithmetic = Arithmetic { input: Element::F32, products };
    let problem = Problem { a, b, c: None, alpha: 1.0, beta: 0.0, bound: Bound::Probabilistic };
    let reference = Reference::compute(problem, Method::Full, 5).unwrap();
    reference.computed_by(arithmetic).check(result).unwrap()
}

/// The root mean square, as a multiple of the bound.
fn multiple(check: &Check) -> f64 {
    (check.squared_errors / check.squared_bounds).sqrt()
}

const SHAPES: [[usize; 3]; 11] = [
    [1, 1, 1],
    [1, 1, 17],
    [1, 1, 5000],
    [1, 40, 33],
    [40, 1, 130],
    [9, 7, 2],
    [20, 20, 5],
    [30, 20, 64],
    [16, 24, 1000],
    [12, 12, 20_000],
    [3, 4, 100_000],
];

#[test]
fn right_results_are_within_the_bound() {
    for fill in FILLS {
        for [m, n, k] in SHAPES {
            let [a, b] = [fill(m, k, 1), fill(k, n, 2)];
            let [a32, b32] = [&a, &b].map(|matrix| map(matrix, nearest_tf32));
            let [a16, b16] = [&a, &b].map(|matrix| matrix.clone().rounded(Element::Bf16));
            let results = [
                (Products::Fma, [&a, &b], by_fma(&a, &b, k)),
                (Products::Fma, [&a, &b], by_fma(&a, &b, 100)),
                (Products::Tf32x3, [&a, &b], by_tf32x3(&a, &b)),
                (Products::TensorCore, [&a32, &b32], by_tensor_core(&a32, &b32, Element::F32, 4)),
                (Products::TensorCore, [&a32, &b32], by_tensor_core(&a32, &b32, Element::F32, 8)),
                (Products::TensorCore, [&a16, &b16], by_tensor_core(&a16, &b16, Element::Bf16, 16)),
                (Products::Tf32, [&a, &b], by_tensor_core(&a32, &b32, Element::F32, 4)),
                (
                    Products::Tf32,
                    [&a, &b],
                    by_tensor_core(
                        &map(&a, truncated_tf32),
                        &map(&b, truncated_tf32),
                        Element::F32,
                        8,
                    ),
                ),
            ];
            for (products, [a, b], result) in results {
                let check = check(a, b, &result, products);
                assert!(check.passed(), "{m} {n} {k} {products:?} {check:?}");
                // With many elements, the root mean square is below the bound itself.
                let is_below = m * n < 100 || multiple(&check) <= 1.0;
                assert!(is_below, "{m} {n} {k} {products:?} {}", multiple(&check));
            }
        }
    }
}

/// The table in the crate's documentation, for 64 x 64 elements.
///
/// It has the elements outside their tolerance, and the root mean square as a multiple of its
/// bound, which passes up to 2.
#[test]
fn what_is_computed_in_less_than_is_claimed_is_found() {
    for (k, expected) in [
        (4096, [(1474, 788), (0, 98), (761, 591), (172, 50), (0, 4), (22, 12), (3, 9)]),
        (12_288, [(15, 447), (0, 57), (35, 346), (0, 37), (0, 1), (0, 4), (0, 3)]),
    ] {
        let [a, b] = [uniform(64, k, 1), uniform(k, 64, 2)];
        let both = |f: fn(f32) -> f32| [&a, &b].map(|matrix| map(matrix, f));
        let bf16 = |x| Element::Bf16.round(x);
        let rounded = [both(bf16), both(nearest_tf32), both(truncated_tf32)];
        let [by_bf16, by_tf32, by_truncated] =
            rounded.each_ref().map(|[a, b]| by_tensor_core(a, b, Element::F32, 8));
        let by_f32 = by_fma(&a, &b, k);
        let [[a16, b16], [a32, b32], _] = &rounded;
        let plants = [
            (Products::Fma, [&a, &b], &by_bf16),
            (Products::Fma, [&a, &b], &by_tf32),
            (Products::Fma, [&a, &b], &map(&by_f32, bf16)),
            (Products::Tf32x3, [&a, &b], &by_tf32),
            (Products::TensorCore, [a32, b32], &by_truncated),
            (Products::TensorCore, [a32, b32], &by_bf16),
            (Products::TensorCore, [a16, b16], &map(&by_bf16, bf16)),
        ];
        for ((claimed, [a, b], result), expected) in plants.into_iter().zip(expected) {
            let check = check(a, b, result, claimed);
            let found = multiple(&check);
            assert_eq!((check.failures, found.round() as u64), expected, "{k} {claimed:?}");
            assert_eq!(check.passed(), expected == (0, 1), "{k} {claimed:?}");
            // The reason names the failed criterion.
            let reason = check.failure().unwrap_or_default();
            assert_eq!(reason.contains("wrong; at row"), check.failures > 0, "{reason}");
            let by_rms = check.failures == 0 && !check.passed();
            assert_eq!(reason.contains("the rms error is"), by_rms, "{reason}");
        }
    }
}

#[test]
fn matrices_of_users_are_judged_by_elements() {
    let case = Case::new(20, 20, 3000, 1.0, 0.0);
    let [a, b] = [&case.a, &case.b].map(|matrix| map(matrix, nearest_tf32));
    let result = by_fma(&a, &b, 3000);
    let of_users = case.check_with(&result, Method::Full, Bound::WorstCase);
    assert!(of_users.passed() && of_users.rms_tolerance().is_none());
    assert!(!case.check(&result, Method::Full).passed());
    assert!(!case.check(&result, Method::Sampled { group: 8 }).passed());
}

#[test]
fn the_rms_tolerance_is_the_formula() {
    let case = Case::new(4, 4, 1022, -2.0, 0.5);
    let check = case.check(&case.product(), Method::Full);
    let square = |x: f32| f64::from(x).powi(2);
    let bounds = (0..4).flat_map(|i| (0..4).map(move |j| (i, j))).map(|(i, j)| {
        let norms = (0..1022).map(|l| square(case.a.at(i, l))).sum::<f64>().sqrt()
            * (0..1022).map(|l| square(case.b.at(l, j))).sum::<f64>().sqrt();
        let u = f64::from(f32::EPSILON) / 2.0;
        let root = ((1.0 + 7.0 / 1022.0) / 2.0f64).sqrt();
        root * u * 2.0 * norms + 2.0 * u * 0.5 * f64::from(case.c.at(i, j)).abs()
    });
    // For 16 elements the root mean square passes up to 1 + 8 / 2 times the bound.
    let expected = 5.0 * (bounds.map(|bound: f64| bound.powi(2)).sum::<f64>() / 16.0).sqrt();
    approx::assert_relative_eq!(check.rms_tolerance().unwrap(), expected, max_relative = 1e-4);
}

/// All instructions together, each with its largest error.
#[test]
fn the_factor_of_tensor_cores_is_a_bound() {
    let u = f64::from(f32::EPSILON) / 2.0;
    for d in 4..=16 {
        let mut whole = 0.0;
        for k in 1..=5000 {
            let of_instruction =
                |terms: usize| (2.0 + (terms as f64 + 1.0) / 2.0) * f64::sqrt(k as f64);
            let all = whole + of_instruction(if k % d == 0 { d } else { k % d });
            if k % d == 0 {
                whole = all;
            }
            let arithmetic = Arithmetic { input: Element::Bf16, products: Products::TensorCore };
            assert!(all * u <= arithmetic.rms_factor(k) * k as f64, "{d} {k}");
        }
    }
}
