//! Results that pass, results that fail, and the reasons.

mod rms;

use gemm_matrix::{Axis, Element, Matrix};

use super::*;

const BOTH: [Method; 2] = [Method::Full, Method::Sampled { group: 8 }];

struct Case {
    a: Matrix,
    b: Matrix,
    c: Matrix,
    alpha: f32,
    beta: f32,
}

impl Case {
    fn new(m: usize, n: usize, k: usize, alpha: f32, beta: f32) -> Self {
        Self {
            a: Matrix::random(m, k, 3, 1),
            b: Matrix::random(k, n, 3, 2),
            c: Matrix::random(m, n, 3, 3),
            alpha,
            beta,
        }
    }

    /// Computes the product in f32, as a kernel would.
    fn product(&self) -> Matrix {
        let depth = if self.alpha == 0.0 { 0 } else { self.a.cols() };
        Matrix::from_fn(self.a.rows(), self.b.cols(), |i, j| {
            let dot = (0..depth).fold(0.0f32, |s, l| self.a.at(i, l).mul_add(self.b.at(l, j), s));
            let old = if self.beta == 0.0 { 0.0 } else { self.beta * self.c.at(i, j) };
            self.alpha * dot + old
        })
    }

    fn check_with(&self, result: &Matrix, method: Method, bound: Bound) -> Check {
        let Self { a, b, c, alpha, beta } = self;
        let problem = Problem { a, b, c: Some(c), alpha: *alpha, beta: *beta, bound };
        Reference::compute(problem, method, 5).unwrap().check(result).unwrap()
    }

    fn check(&self, result: &Matrix, method: Method) -> Check {
        self.check_with(result, method, Bound::Probabilistic)
    }
}

/// Scaling to a subnormal number rounds to a multiple of the smallest.
#[test]
fn subnormal_numbers_may_be_scaled() {
    for [alpha, scale] in [[1e-36, 3e-8], [1e-44, 0.3], [1e-38, 1e-3]] {
        let case = Case::new(16, 16, 1, alpha, 0.0);
        let Case { a, b, .. } = &case;
        let problem = Problem { a, b, c: None, alpha, beta: 0.0, bound: Bound::Probabilistic };
        let scales = [scale; 16];
        let reference = Reference::compute(problem, Method::Full, 5).unwrap();
        let epilogue = Epilogue { scale: Some((Axis::Row, &scales)), ..Epilogue::default() };
        let reference = reference.then(epilogue).unwrap();
        let product = case.product();
        let with = |factor: f32| Matrix::from_fn(16, 16, |i, j| factor * product.at(i, j));
        let check = reference.check(&with(scale)).unwrap();
        assert!(check.passed(), "{alpha:e} {scale:e}: {:?}", check.failure());
        let wrong = Matrix::from_fn(16, 16, |i, j| with(scale).at(i, j) + 1e-43);
        assert!(!reference.check(&wrong).unwrap().passed());
    }
}

/// A and B without elements, and a C whose number of elements wraps to 0.
#[test]
fn a_c_that_cannot_be_counted_is_refused() {
    for method in BOTH {
        let (a, b) = (Matrix::zeros(1 << 33, 0), Matrix::zeros(0, 1 << 31));
        let problem =
            Problem { a: &a, b: &b, c: None, alpha: 1.0, beta: 0.0, bound: Bound::Probabilistic };
        let refused = Reference::compute(problem, method, 5);
        assert!(matches!(refused, Err(Error::TooLarge { what: "m", .. })));
        assert_eq!(method.bytes(usize::MAX, usize::MAX, usize::MAX), u128::MAX);
    }
}

#[test]
fn groups_of_nothing_are_groups_of_one() {
    let case = Case::new(40, 20, 30, 1.0, 0.0);
    let method = Method::Sampled { group: 0 };
    assert!(case.check(&case.product(), method).passed());
    assert_eq!(method.bytes(40, 20, 30), Method::Sampled { group: 1 }.bytes(40, 20, 30));
}

#[test]
fn right_results_pass() {
    for method in BOTH {
        for [m, n, k] in [[1, 1, 1], [70, 90, 300], [33, 17, 0], [0, 5, 5], [5, 0, 5]] {
            for (alpha, beta) in [(1.0, 0.0), (-1.5, 0.5), (0.0, 2.0), (0.0, 0.0)] {
                let case = Case::new(m, n, k, alpha, beta);
                let check = case.check(&case.product(), method);
                assert!(check.passed(), "{m} {n} {k} {alpha} {beta} {check:?}");
                if method == Method::Full {
                    assert_eq!(check.elements, (m * n) as u64);
                }
            }
        }
    }
}

#[test]
fn one_wrong_element_is_found_wherever_it_is() {
    let case = Case::new(40, 50, 200, 1.0, 0.0);
    let right = case.product();
    for method in BOTH {
        for (row, col) in [(0, 0), (39, 49), (17, 23), (5, 48)] {
            for wrong in [f32::NAN, f32::INFINITY, right.at(row, col) + 0.1] {
                let mut result = right.clone();
                result.as_mut_slice()[row * 50 + col] = wrong;
                let check = case.check(&result, method);
                assert!(!check.passed() && check.failures >= 1, "{method:?} {row} {col} {wrong}");
                let worst = check.worst.unwrap();
                assert_eq!((worst.row, worst.col), (row, col));
                assert!(worst.ratio() > 1.0);
            }
        }
    }
}

#[test]
fn a_missing_k_is_found() {
    let case = Case::new(64, 64, 500, 1.0, 0.0);
    let short = Matrix::from_fn(64, 64, |i, j| {
        (0..499).fold(0.0f32, |s, l| case.a.at(i, l).mul_add(case.b.at(l, j), s))
    });
    for method in BOTH {
        assert!(!case.check(&short, method).passed());
    }
}

#[test]
fn an_untouched_c_is_found() {
    let case = Case::new(30, 30, 30, 1.0, 0.0);
    for method in BOTH {
        assert!(!case.check(&Matrix::from_fn(30, 30, |_, _| f32::NAN), method).passed());
        assert!(!case.check(&Matrix::zeros(30, 30), method).passed());
    }
}

#[test]
fn nan_and_infinities_follow_the_reference() {
    let mut case = Case::new(20, 20, 40, 1.0, 0.0);
    case.a.as_mut_slice()[3 * 40 + 7] = f32::NAN;
    case.a.as_mut_slice()[5 * 40 + 7] = f32::INFINITY;
    case.b.as_mut_slice()[2 * 20 + 9] = f32::NEG_INFINITY;
    let right = case.product();
    assert!(right.at(3, 0).is_nan() && right.at(5, 1).is_infinite());
    for method in BOTH {
        assert!(case.check(&right, method).passed());
        for wrong in [0.0, f32::NAN, -right.at(5, 1)] {
            let mut result = right.clone();
            result.as_mut_slice()[5 * 20 + 1] = wrong;
            assert!(!case.check(&result, method).passed(), "{method:?} {wrong}");
        }
        let mut result = right.clone();
        result.as_mut_slice()[3 * 20] = 1.0;
        assert!(!case.check(&result, method).passed());
    }
}

#[test]
fn beta_zero_ignores_c_and_alpha_zero_ignores_a_and_b() {
    let mut case = Case::new(9, 11, 13, 1.0, 0.0);
    case.c.as_mut_slice().fill(f32::NAN);
    let mut other = Case::new(9, 11, 13, 0.0, 2.0);
    other.a.as_mut_slice().fill(f32::NAN);
    other.b.as_mut_slice().fill(f32::INFINITY);
    for method in BOTH {
        assert!(case.check(&case.product(), method).passed());
        assert!(other.check(&other.product(), method).passed());
    }
}

#[test]
fn an_overflow_on_the_way_is_counted_and_not_held_against_the_result() {
    let mut case = Case::new(1, 1, 3, 1.0, 0.0);
    case.a = Matrix::from_vec(1, 3, vec![3e38, 3e38, -3e38]);
    case.b = Matrix::from_vec(3, 1, vec![1.0, 1.0, 1.0]);
    let result = case.product();
    assert!(result.at(0, 0).is_infinite());
    let check = case.check(&result, Method::Full);
    assert!(check.passed() && check.overflowed == 1);
    // A finite result still has to be right.
    assert!(!case.check(&Matrix::zeros(1, 1), Method::Full).passed());
}

#[test]
fn subnormal_products_pass() {
    let mut case = Case::new(8, 8, 64, 1.0, 0.0);
    for x in case.a.as_mut_slice() {
        *x *= 1e-23;
    }
    for x in case.b.as_mut_slice() {
        *x *= 1e-22;
    }
    let check = case.check(&case.product(), Method::Full);
    assert!(check.passed(), "{check:?}");
}

#[test]
fn structured_matrices_need_the_worst_case() {
    // Equal elements round in the same direction at every step.
    let k = 20_000;
    let mut case = Case::new(1, 1, k, 1.0, 0.0);
    case.a = Matrix::from_fn(1, k, |_, _| 0.1);
    case.b = Matrix::from_fn(k, 1, |_, _| 0.1);
    let result = case.product();
    assert!(case.check_with(&result, Method::Full, Bound::WorstCase).passed());
    assert!(!case.check_with(&result, Method::Full, Bound::Probabilistic).passed());
}

#[test]
fn the_tolerance_is_the_formula() {
    let case = Case::new(1, 1, 1022, -2.0, 0.5);
    let check = case.check(&case.product(), Method::Full);
    let norm = |x: &Matrix| x.as_slice().iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    let u = f64::from(f32::EPSILON) / 2.0;
    let expected = 8.0 * 32.0 * u * 2.0 * norm(&case.a) * norm(&case.b)
        + 2.0 * u * 0.5 * f64::from(case.c.at(0, 0)).abs();
    approx::assert_relative_eq!(check.worst.unwrap().tolerance, expected, max_relative = 1e-4);
    for depth in [0, 1, 10, 1000] {
        let expected = (depth as f64 + 2.0) * u;
        let worst = Bound::WorstCase.factor(depth);
        approx::assert_relative_eq!(worst, expected, max_relative = 1e-5);
    }
    // The probabilistic bound is never above the worst case.
    for depth in [0, 1, 10, 61, 62, 63, 1000] {
        assert!(Bound::Probabilistic.factor(depth) <= Bound::WorstCase.factor(depth));
    }
}

#[test]
fn a_product_is_rounded_twice_only_before_an_old_c() {
    let one = |value| Matrix::from_vec(1, 1, vec![value]);
    // Its rounding to bf16 errs by up to 2^-8.
    let (a, b) = (one(1.0), one(1.0));
    for (beta, c, is_more) in [(0.0, None, false), (1.0, Some(one(-0.5)), true)] {
        let problem =
            Problem { a: &a, b: &b, c: c.as_ref(), alpha: 1.0, beta, bound: Bound::WorstCase };
        let once = Reference::compute(problem, Method::Full, 0).unwrap();
        let once = once.stored_as(Element::Bf16);
        let twice = once.clone().with_rounded_products();
        let exact = 1.0 - beta * 0.5;
        let passes = |reference: &Reference<'_>, error: f32| {
            reference.check(&one(exact + error)).unwrap().passed()
        };
        // One rounding of the sum, and one of the product.
        let [sum, product] = [exact / 256.0, 1.0 / 256.0];
        assert!(passes(&once, 0.9 * sum) && !passes(&once, 1.1 * sum));
        assert_eq!(passes(&twice, 0.9 * (sum + product)), is_more);
        assert!(!passes(&twice, 1.1 * (sum + product)));
    }
}

#[test]
fn the_rms_error_is_of_all_elements() {
    // More rows than tasks, so that some are merged.
    let (m, n) = (3000, 4);
    let case = Case {
        a: Matrix::from_fn(m, 1, |_, _| 1.0),
        b: Matrix::from_fn(1, n, |_, _| 1.0),
        ..Case::new(m, n, 1, 1.0, 0.0)
    };
    // Errors of 3, 4 and 0: exact in f32 and in their squares.
    let mut result = Matrix::from_fn(m, n, |i, j| [4.0, -3.0, 1.0, 1.0][(i + j) % 4]);
    let check = case.check(&result, Method::Full);
    assert_eq!((check.numbers, check.squared_errors), (12_000, 25.0 * 3000.0));
    assert_eq!(check.rms_error(), Some(2.5));
    assert_eq!(case.check(&case.product(), Method::Full).rms_error(), Some(0.0));
    // All of these few columns are samples.
    let sampled = case.check(&case.product(), Method::Sampled { group: 2 });
    assert_eq!((sampled.numbers, sampled.rms_error()), (12_000, Some(0.0)));
    result.as_mut_slice()[7] = f32::NAN;
    assert_eq!(case.check(&result, Method::Full).rms_error(), Some(f64::INFINITY));
}

#[test]
fn what_has_no_error_is_not_in_the_mean() {
    let mut case = Case::new(1, 3, 1, 1.0, 0.0);
    case.a = Matrix::from_vec(1, 1, vec![2.0]);
    case.b = Matrix::from_vec(1, 3, vec![f32::INFINITY, 1.0, f32::NAN]);
    let check =
        case.check(&Matrix::from_vec(1, 3, vec![f32::INFINITY, 5.0, f32::NAN]), Method::Full);
    assert_eq!((check.elements, check.numbers, check.rms_error()), (3, 1, Some(3.0)));
    let empty = Case::new(0, 3, 1, 1.0, 0.0);
    assert_eq!(empty.check(&empty.product(), Method::Full).rms_error(), None);
}

#[test]
fn large_problems_are_sampled() {
    assert_eq!(Method::choose(1024, 1024, 1024), Method::Full);
    assert_eq!(Method::choose(0, 0, 0), Method::Full);
    let Method::Sampled { group } = Method::choose(200_000, 200_000, 200_000) else { panic!() };
    assert!(group > 10);
    let Method::Sampled { group } = Method::choose(40_000, 40_000, 1) else { panic!() };
    assert!((6..40_000).contains(&group));
    // The reference then needs less memory than the matrices.
    let bytes = Method::choose(60_000, 60_000, 60_000).bytes(60_000, 60_000, 60_000);
    assert!(bytes < 8 * 60_000 * 60_000);
}

#[test]
fn shapes_must_fit() {
    let case = Case::new(2, 3, 4, 1.0, 1.0);
    let Case { a, b, c, alpha, beta } = &case;
    let problem = Problem { a, b, c: Some(c), alpha: *alpha, beta: *beta, bound: Bound::WorstCase };
    let compute = |problem| Reference::compute(problem, Method::Full, 0);
    assert!(compute(Problem { b: a, ..problem }).is_err());
    assert!(compute(Problem { c: Some(a), ..problem }).is_err());
    assert!(compute(Problem { c: None, ..problem }).is_err());
    assert!(compute(Problem { c: None, beta: 0.0, ..problem }).is_ok());
    assert!(compute(problem).unwrap().check(a).is_err());
}

/// The exponent of a number.
fn exponent(x: f64) -> i32 {
    (x.to_bits() >> 52 & 0x7ff) as i32 - 1023
}

/// A product as an H200's tensor cores compute it, with `d` steps along K per instruction.
///
/// Each product and the old sum are truncated 25 bits below the largest exponent, and their sum to
/// f32.
fn by_tensor_core(a: &Matrix, b: &Matrix, input: Element, d: usize) -> Matrix {
    let cut = |sum: f64| f64::from_bits(sum.to_bits() & !((1 << 29) - 1)) as f32;
    let of_factor = |x: f32| exponent(f64::from(x).abs().max(input.min_positive()));
    Matrix::from_fn(a.rows(), b.cols(), |i, j| {
        let mut sum = 0.0;
        for first in (0..a.cols()).step_by(d) {
            let factors = (first..a.cols().min(first + d)).map(|l| (a.at(i, l), b.at(l, j)));
            let mut terms: Vec<(f64, i32)> = factors
                .map(|(x, y)| (f64::from(x) * f64::from(y), of_factor(x) + of_factor(y)))
                .collect();
            terms.push((f64::from(sum), exponent(f64::from(sum))));
            let terms = terms.into_iter().filter(|&(term, _)| term != 0.0);
            let Some(largest) = terms.clone().map(|(_, exponent)| exponent).max() else { continue };
            let unit = f64::from(largest - 25).exp2();
            sum = cut(terms.map(|(term, _)| (term / unit).trunc() * unit).sum());
        }
        sum
    })
}

/// Checks the tensor cores' product of A and B.
fn check_tensor_core(
    [a, b]: [&Matrix; 2],
    result: &Matrix,
    input: Element,
    (method, bound): (Method, Bound),
) -> Check {
    let arithmetic = Arithmetic { input, products: Products::TensorCore };
    let problem = Problem { a, b, c: None, alpha: 1.0, beta: 0.0, bound };
    let reference = Reference::compute(problem, method, 5).unwrap().computed_by(arithmetic);
    reference.check(result).unwrap()
}

const HALVES: [Element; 2] = [Element::Bf16, Element::F16];

#[test]
fn bounds_know_the_types() {
    let (a, b) = (Matrix::random(40, 500, 3, 1), Matrix::random(500, 60, 3, 2));
    for input in HALVES {
        let [a16, b16] = [&a, &b].map(|matrix| matrix.clone().rounded(input));
        for how in BOTH.into_iter().zip([Bound::Probabilistic, Bound::WorstCase]) {
            for d in [4, 8, 16] {
                let result = by_tensor_core(&a16, &b16, input, d);
                let right = check_tensor_core([&a16, &b16], &result, input, how);
                assert!(right.passed(), "{input} {d} {right:?}");
                // A reference for matrices that were not rounded.
                assert!(!check_tensor_core([&a, &b], &result, input, how).passed(), "{input}");
                // A product that lacks a step along K.
                let short = by_tensor_core(
                    &Matrix::from_fn(40, 499, |i, l| a16.at(i, l)),
                    &Matrix::from_fn(499, 60, |l, j| b16.at(l, j)),
                    input,
                    d,
                );
                let missing = check_tensor_core([&a16, &b16], &short, input, how);
                assert!(!missing.passed(), "{input}");
            }
        }
    }
}

/// Truncation is not rounding: the errors of a long sum add up while it keeps its sign.
#[test]
fn long_random_sums_of_tensor_cores_pass() {
    const K: usize = 1 << 16;
    for input in HALVES {
        let [a, b] = [Matrix::random(12, K, 3, 1), Matrix::random(K, 12, 3, 2)];
        let [a, b] = [a, b].map(|matrix| matrix.rounded(input));
        for d in [4, 16] {
            let result = by_tensor_core(&a, &b, input, d);
            for bound in [Bound::Probabilistic, Bound::WorstCase] {
                let check = check_tensor_core([&a, &b], &result, input, (Method::Full, bound));
                assert!(check.passed(), "{input} {d} {check:?}");
            }
        }
    }
}

/// Truncation of a sum of 1 nearly reaches the worst case of an instruction with four steps.
///
/// Three terms of almost 2^-24 lose half, one of almost 2^-25 loses everything, and then the sum
/// loses the three halves.
#[test]
fn the_worst_case_of_tensor_cores_is_nearly_reached() {
    const K: usize = 4096;
    let almost_two = 2.0 - 1.0 / 128.0;
    let a = Matrix::from_fn(1, K, |_, l| if l == 0 { 1.0 } else { almost_two / 4096.0 });
    let b = Matrix::from_fn(K, 1, |l, _| match l {
        0 => 1.0,
        _ if l % 4 == 3 => 1.0 / 16384.0,
        _ => 1.0 / 8192.0,
    });
    for input in HALVES {
        let result = by_tensor_core(&a, &b, input, 4);
        assert_eq!(result.at(0, 0), 1.0);
        let check = |bound| check_tensor_core([&a, &b], &result, input, (Method::Full, bound));
        let worst = check(Bound::WorstCase);
        assert!(worst.passed() && worst.worst.unwrap().ratio() > 0.75, "{input} {worst:?}");
        assert!(!check(Bound::Probabilistic).passed(), "{input}");
    }
}
