//! Comparing a result with the product in f64, under a tolerance from error analysis.
//!
//! # The tolerance
//!
//! A kernel computes `fl(alpha * s + beta * c)` with `s` a sum of K products, in f32
//! with unit roundoff `u = 2^-24`. Whatever the order of the sum and whether products
//! are fused, each product passes through at most K + 2 roundings, and `beta * c`
//! through two. So the error of element (i, j) is at most
//!
//! ```text
//! g * |alpha| * (|A| |B|)_ij  +  2 u * |beta * c_ij|  +  underflow
//! ```
//!
//! where `(|A| |B|)_ij <= ||a_i||_2 * ||b_j||_2` (Cauchy-Schwarz; the norms of a row of
//! A and a column of B), and `g` is one of two:
//!
//! - [`Bound::WorstCase`]: `g = n u` with `n = K + 2`, which always holds (Jeannerod and
//!   Rump, "Improved error bounds for inner products in floating-point arithmetic",
//!   2013).
//! - [`Bound::Probabilistic`]: `g = exp(lambda sqrt(n) u) - 1`, which holds where rounding
//!   errors are independent of each other with mean zero, as for random matrices (Higham
//!   and Mary, "A new approach to probabilistic rounding error analysis", 2019). An
//!   element is outside with probability at most `2 exp(-lambda^2 / 2)`; with
//!   `lambda = 8` that is 2.6e-14, or one wrong alarm in two million checks of
//!   4096 x 4096 elements. It is `n u` where that is smaller.
//!
//! Matrices that users bring may have structure (all elements equal, say), and then
//! rounding errors add up in one direction: they get the worst case.
//!
//! # Too large for a full product
//!
//! A full f64 product is M N K multiply-adds. Beyond what takes some seconds, or 2 GiB
//! for the reference, [`Method::Sampled`] compares
//!
//! - some rows and columns, element by element, as above; and
//! - **all** elements in groups of `w` neighbours in a row (Freivalds' check): with random
//!   signs `x_j`, `sum_j x_j C_ij` over a group must equal the same sum of the reference,
//!   for which only `A * (B * X)` is needed, `w` times less work. The signs are drawn
//!   independently of the errors, so by Hoeffding's inequality the sum of errors that are
//!   each within their tolerance `t_j` exceeds `lambda * sqrt(sum_j t_j^2)` with probability
//!   at most 2.6e-14. A group that fails is then computed element by element, and that
//!   decides.
//!
//! # NaN, infinities and overflow
//!
//! A comparison is `!(error <= tolerance)`, so a NaN never passes for a number. Where the
//! reference is NaN or infinite, the result must be NaN or the same infinity. Where the
//! norms allow an f32 overflow on the way (`||a_i|| ||b_j|| |alpha| > f32::MAX`, say),
//! a result that is not finite is not wrong: it is accepted, and counted.

use std::cmp::Ordering;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rayon::prelude::*;

use crate::error::Error;
use crate::matrix::Matrix;
use crate::reference::{piece, product};

/// Unit roundoff of f32.
const U: f64 = 1.0 / (1 << 24) as f64;

/// Covers what the tolerance leaves out: terms of second order in u, and the
/// reference's own rounding, 2^-29 of the tolerance.
const SLACK: f64 = 1.0 + 1e-6;

/// How many standard deviations the probabilistic bounds allow; see the module's
/// documentation for the odds.
const LAMBDA: f64 = 8.0;

/// The spacing of subnormal f32 numbers.
const TINY: f64 = f32::MIN_POSITIVE as f64 * f32::EPSILON as f64;

/// The most multiply-adds per core of a full reference, as FLOP: a few seconds.
const FULL_FLOPS_PER_CORE: f64 = 1.5e11;

/// The most f64 values kept of a reference: 2 GiB.
const MAX_VALUES: usize = 1 << 28;

/// Rows, and columns, that [`Method::Sampled`] compares element by element.
const SAMPLES: usize = 16;

/// How the largest error that is not a mistake is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// For random matrices.
    Probabilistic,
    /// For any matrices.
    WorstCase,
}

impl Bound {
    /// `g` of the module's documentation, for an inner dimension.
    fn factor(self, depth: usize) -> f64 {
        let n = depth as f64 + 2.0;
        let worst = n * U;
        match self {
            Self::WorstCase => worst * SLACK,
            Self::Probabilistic => (LAMBDA * n.sqrt() * U).exp_m1().min(worst) * SLACK,
        }
    }
}

/// How much of the reference is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// All of it.
    Full,
    /// Some rows and columns, and Freivalds' check of all elements in groups.
    Sampled {
        /// Neighbouring elements of a row per group.
        group: usize,
    },
}

impl Method {
    /// The full product where it takes a few seconds on this machine, else the cheaper
    /// check with groups as small as that time and memory allow. `depth` is the inner
    /// dimension, 0 where alpha is 0.
    pub fn choose(m: usize, n: usize, depth: usize) -> Self {
        let budget = FULL_FLOPS_PER_CORE * rayon::current_num_threads() as f64;
        let [m, n, depth] = [m, n, depth].map(|size| size as f64);
        let time = 2.0 * m * n * depth / budget;
        let space = m * n / MAX_VALUES as f64;
        let group = time.max(space).ceil() as usize;
        match group {
            0 | 1 => Self::Full,
            // A group does not reach over the end of a row.
            _ => Self::Sampled { group: group.min(n as usize) },
        }
    }

    /// Bytes of host memory that the reference and its making take.
    pub fn bytes(self, m: usize, n: usize, depth: usize) -> u128 {
        let [m, n, k] = [m as u128, n as u128, depth as u128];
        let values = match self {
            Self::Full => m * n,
            Self::Sampled { group } => {
                (m + k) * n.div_ceil(group as u128) + (m + n) * SAMPLES as u128
            }
        };
        // Norms and signs; and each task's blocks, 2.5 MiB.
        8 * (values + m + 2 * n) + rayon::current_num_threads() as u128 * (5 << 19)
    }
}

/// The matrices and factors of one product, on the host.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// m x k.
    pub a: &'a Matrix,
    /// k x n.
    pub b: &'a Matrix,
    /// The old C, m x n; not needed if beta is 0.
    pub c: Option<&'a Matrix>,
    /// The factor of the product, a finite number.
    pub alpha: f32,
    /// The factor of the old C, a finite number.
    pub beta: f32,
    /// The bound that suits the matrices.
    pub bound: Bound,
}

/// What a result was found to be.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// How much of the reference was computed.
    pub method: Method,
    /// Which bound the tolerance comes from.
    pub bound: Bound,
    /// Elements compared one by one.
    pub elements: u64,
    /// Elements outside their tolerance. With [`Method::Sampled`] the count stops at the
    /// first group of a row with a wrong element, so it is a lower bound.
    pub failures: u64,
    /// Elements that are not finite because f32 may overflow on the way; accepted.
    pub overflowed: u64,
    /// The element with the largest error, if any was compared with a finite reference.
    pub largest: Option<Deviation>,
    /// The element with the largest error in proportion to its tolerance.
    pub worst: Option<Deviation>,
}

/// One element's error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deviation {
    /// The element's row.
    pub row: usize,
    /// The element's column.
    pub col: usize,
    /// `|result - reference|`; infinite if the result is not what it should be and no
    /// number.
    pub error: f64,
    /// The largest error that would have passed.
    pub tolerance: f64,
}

impl Deviation {
    /// The error as a share of the tolerance: at most 1 passes.
    pub fn ratio(&self) -> f64 {
        if self.error == 0.0 { 0.0 } else { self.error / self.tolerance }
    }
}

impl Check {
    /// Whether every element that was compared is within its tolerance.
    pub fn passed(&self) -> bool {
        self.failures == 0
    }

    fn merge(mut self, other: Self) -> Self {
        self.elements += other.elements;
        self.failures += other.failures;
        self.overflowed += other.overflowed;
        self.largest = larger(self.largest, other.largest, |d| d.error);
        self.worst = larger(self.worst, other.worst, Deviation::ratio);
        self
    }

    fn count(&mut self, verdict: Verdict) {
        self.elements += 1;
        match verdict {
            Verdict::Same => {}
            Verdict::Overflowed => self.overflowed += 1,
            Verdict::Number { passed, deviation } => {
                self.failures += u64::from(!passed);
                self.largest = larger(self.largest, Some(deviation), |d| d.error);
                self.worst = larger(self.worst, Some(deviation), Deviation::ratio);
            }
        }
    }
}

/// The one with the larger key, the first if they are equal.
fn larger(
    a: Option<Deviation>,
    b: Option<Deviation>,
    key: impl Fn(&Deviation) -> f64,
) -> Option<Deviation> {
    match (a, b) {
        (Some(x), Some(y)) if key(&y).total_cmp(&key(&x)) == Ordering::Greater => b,
        (Some(_), _) => a,
        (None, _) => b,
    }
}

enum Verdict {
    /// Reference and result are NaN, or the same infinity.
    Same,
    /// Not finite, and f32 may overflow here.
    Overflowed,
    /// Anything else.
    Number { passed: bool, deviation: Deviation },
}

/// The reference of a [`Problem`], computed once for any number of results.
pub struct Reference<'a> {
    problem: Problem<'a>,
    /// The inner dimension, 0 where alpha is 0.
    depth: usize,
    /// `g` of the module's documentation.
    factor: f64,
    /// Norms of A's rows and B's columns, over their finite elements.
    row_norms: Vec<f64>,
    col_norms: Vec<f64>,
    method: Method,
    values: Values,
}

enum Values {
    /// `alpha * A * B + beta * C`, m x n.
    Full(Vec<f64>),
    Sampled(Sampled),
}

struct Sampled {
    /// Which rows and columns, in increasing order.
    rows: Vec<usize>,
    cols: Vec<usize>,
    /// `alpha * A * B` there: rows.len() x n and m x cols.len().
    row_values: Vec<f64>,
    col_values: Vec<f64>,
    /// Elements per group, and the random signs, 1 or -1, one per column.
    group: usize,
    signs: Vec<f64>,
    /// `alpha * A * B * X`: m x groups.
    sums: Vec<f64>,
}

impl<'a> Reference<'a> {
    /// Computes the reference. `seed` is for the samples and signs of
    /// [`Method::Sampled`].
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the matrices do not fit each other, or C is missing and beta
    /// is not 0.
    pub fn compute(problem: Problem<'a>, method: Method, seed: u64) -> Result<Self, Error> {
        let Problem { a, b, alpha, bound, .. } = problem;
        let (m, n) = (a.rows(), b.cols());
        expect_shape("B", b, a.cols(), n)?;
        if problem.beta != 0.0 {
            match problem.c {
                Some(c) => expect_shape("C", c, m, n)?,
                None => expect_shape("C", &Matrix::zeros(0, 0), m, n)?,
            }
        }
        // With alpha 0 neither A nor B is looked at: they may hold NaN.
        let depth = if alpha == 0.0 { 0 } else { a.cols() };
        let mut reference = Self {
            problem,
            depth,
            factor: bound.factor(depth),
            row_norms: row_norms(a, depth),
            col_norms: col_norms(b, depth),
            method,
            values: Values::Full(Vec::new()),
        };
        reference.values = match method {
            Method::Full => reference.full(),
            Method::Sampled { group } => Values::Sampled(reference.sampled(group, seed)),
        };
        Ok(reference)
    }

    fn full(&self) -> Values {
        let Problem { a, b, alpha, .. } = self.problem;
        let (m, n) = (a.rows(), b.cols());
        let mut values = vec![0.0; m * n];
        product([m, n, self.depth], piece(a), piece(b), &mut values);
        if n > 0 {
            values.par_chunks_mut(n).enumerate().for_each(|(row, values)| {
                for (col, value) in values.iter_mut().enumerate() {
                    *value = scale(alpha, *value) + self.old(row, col);
                }
            });
        }
        Values::Full(values)
    }

    fn sampled(&self, group: usize, seed: u64) -> Sampled {
        let Problem { a, b, alpha, .. } = self.problem;
        let (m, n, k) = (a.rows(), b.cols(), self.depth);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(u64::MAX);
        let rows = sample(m, &mut rng);
        let cols = sample(n, &mut rng);
        let signs: Vec<f64> =
            (0..n).map(|_| if rng.next_u32() >> 31 == 0 { 1.0 } else { -1.0 }).collect();

        let a_piece = piece(a);
        let b_piece = piece(b);
        let mut row_values = vec![0.0; rows.len() * n];
        let row_of_a = |row: usize, col, to: &mut [f64]| a_piece(rows[row], col, to);
        product([rows.len(), n, k], row_of_a, &b_piece, &mut row_values);

        let mut col_values = vec![0.0; m * cols.len()];
        let cols_of_b = |row, first: usize, to: &mut [f64]| {
            for (to, col) in to.iter_mut().zip(&cols[first..]) {
                *to = f64::from(b.at(row, *col));
            }
        };
        product([m, cols.len(), k], &a_piece, cols_of_b, &mut col_values);

        let groups = n.div_ceil(group);
        let mut bx = vec![0.0; k * groups];
        bx.par_chunks_mut(groups.max(1)).enumerate().for_each(|(row, sums)| {
            let terms = b.row(row).chunks(group).zip(signs.chunks(group));
            for (sum, (values, signs)) in sums.iter_mut().zip(terms) {
                *sum = values.iter().zip(signs).map(|(v, x)| f64::from(*v) * x).sum();
            }
        });
        let mut sums = vec![0.0; m * groups];
        let bx_piece = |row: usize, col: usize, to: &mut [f64]| {
            to.copy_from_slice(&bx[row * groups + col..][..to.len()]);
        };
        product([m, groups, k], &a_piece, bx_piece, &mut sums);

        for values in [&mut row_values, &mut col_values, &mut sums] {
            values.par_iter_mut().for_each(|value| *value = scale(alpha, *value));
        }
        Sampled { rows, cols, row_values, col_values, group, signs, sums }
    }

    /// Compares a result with the reference.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the result has not the product's shape.
    pub fn check(&self, result: &Matrix) -> Result<Check, Error> {
        let (m, n) = (self.problem.a.rows(), self.problem.b.cols());
        expect_shape("the result", result, m, n)?;
        Ok(match &self.values {
            Values::Full(values) => self.over_rows(m, |row, check| {
                for (col, got) in result.row(row).iter().enumerate() {
                    check.count(self.judge(row, col, values[row * n + col], *got));
                }
            }),
            Values::Sampled(sampled) => {
                let Sampled { rows, cols, row_values, col_values, .. } = sampled;
                let in_rows = self.over_rows(rows.len(), |i, check| {
                    for (col, got) in result.row(rows[i]).iter().enumerate() {
                        let expected = row_values[i * n + col] + self.old(rows[i], col);
                        check.count(self.judge(rows[i], col, expected, *got));
                    }
                });
                let elsewhere = self.over_rows(m, |row, check| {
                    if rows.binary_search(&row).is_ok() {
                        return;
                    }
                    for (j, &col) in cols.iter().enumerate() {
                        let expected = col_values[row * cols.len() + j] + self.old(row, col);
                        check.count(self.judge(row, col, expected, result.at(row, col)));
                    }
                    self.check_groups(row, result, sampled, check);
                });
                in_rows.merge(elsewhere)
            }
        })
    }

    /// Freivalds' check of one row: groups that are outside are looked at one element
    /// at a time, up to the first with a wrong element.
    fn check_groups(&self, row: usize, result: &Matrix, sampled: &Sampled, check: &mut Check) {
        let Sampled { cols, group, signs, sums, .. } = sampled;
        let Problem { a, b, alpha, beta, .. } = self.problem;
        let groups = b.cols().div_ceil(*group);
        for (g, got) in result.row(row).chunks(*group).enumerate() {
            let first = g * group;
            let (mut sum, mut squares, mut old_squares) = (0.0, 0.0, 0.0);
            for (j, got) in (first..).zip(got) {
                let old = self.old(row, j);
                sum += signs[j] * (f64::from(*got) - old);
                squares += self.col_norms[j].powi(2);
                old_squares += if beta == 0.0 { 0.0 } else { old.powi(2) };
            }
            let count = got.len() as f64;
            // The norm of a sum is at most the sum of the norms.
            let norm = self.factor * f64::from(alpha).abs() * self.row_norms[row] * squares.sqrt()
                + 2.0 * U * SLACK * old_squares.sqrt()
                + self.underflow() * count.sqrt();
            // The sum of the tolerances themselves is at most sqrt(count) times the norm.
            let tolerance = LAMBDA.min(count.sqrt()) * norm;
            let error = (sum - sums[row * groups + g]).abs();
            if error <= tolerance {
                continue;
            }
            let mut values = vec![0.0; got.len()];
            for l in 0..self.depth {
                let x = f64::from(a.at(row, l));
                for (value, y) in values.iter_mut().zip(&b.row(l)[first..]) {
                    *value += x * f64::from(*y);
                }
            }
            let before = check.failures;
            for (j, (value, got)) in (first..).zip(values.iter().zip(got)) {
                // What is in a sampled column has been compared.
                if cols.binary_search(&j).is_err() {
                    let expected = scale(alpha, *value) + self.old(row, j);
                    check.count(self.judge(row, j, expected, *got));
                }
            }
            if check.failures > before {
                return;
            }
        }
    }

    /// `beta * C` at an element; C is not read if beta is 0.
    fn old(&self, row: usize, col: usize) -> f64 {
        match self.problem.c {
            Some(c) if self.problem.beta != 0.0 => {
                f64::from(self.problem.beta) * f64::from(c.at(row, col))
            }
            _ => 0.0,
        }
    }

    /// What underflows can add up to: each operation is off by half a spacing of the
    /// subnormal numbers at most, counted whole here.
    fn underflow(&self) -> f64 {
        (self.depth as f64 * f64::from(self.problem.alpha).abs() + 2.0) * TINY
    }

    fn judge(&self, row: usize, col: usize, expected: f64, got: f32) -> Verdict {
        let norms = self.row_norms[row] * self.col_norms[col];
        let scaled = f64::from(self.problem.alpha).abs() * norms;
        let old = self.old(row, col).abs();
        let old = if old.is_finite() { old } else { 0.0 };
        let tolerance = self.factor * scaled + 2.0 * U * SLACK * old + self.underflow();
        let got = f64::from(got);
        if !got.is_finite() {
            if expected == got || expected.is_nan() && got.is_nan() {
                return Verdict::Same;
            }
            if norms.max(scaled + old) + tolerance > f64::from(f32::MAX) {
                return Verdict::Overflowed;
            }
        }
        let error = (got - expected).abs();
        let passed = error <= tolerance && expected.is_finite();
        let error = if error.is_nan() { f64::INFINITY } else { error };
        Verdict::Number { passed, deviation: Deviation { row, col, error, tolerance } }
    }

    /// Runs `visit` for each of `count` rows on all cores. The outcome does not depend
    /// on the number of cores.
    fn over_rows(&self, count: usize, visit: impl Fn(usize, &mut Check) + Sync) -> Check {
        let none = || Check {
            method: self.method,
            bound: self.problem.bound,
            elements: 0,
            failures: 0,
            overflowed: 0,
            largest: None,
            worst: None,
        };
        (0..count)
            .into_par_iter()
            .fold(none, |mut check, row| {
                visit(row, &mut check);
                check
            })
            .reduce(none, Check::merge)
    }
}

/// `alpha * sum`, with the sum of nothing being 0 for any alpha.
fn scale(alpha: f32, sum: f64) -> f64 {
    if alpha == 0.0 { 0.0 } else { f64::from(alpha) * sum }
}

fn expect_shape(
    what: &'static str,
    matrix: &Matrix,
    need_rows: usize,
    need_cols: usize,
) -> Result<(), Error> {
    let (rows, cols) = (matrix.rows(), matrix.cols());
    match (rows, cols) == (need_rows, need_cols) {
        true => Ok(()),
        false => Err(Error::Shape { what, rows, cols, need_rows, need_cols }),
    }
}

/// A finite element's square in f64, 0 for others: where there is a NaN or an
/// infinity, the reference is not finite and no tolerance is needed.
fn square(x: f32) -> f64 {
    if x.is_finite() { f64::from(x) * f64::from(x) } else { 0.0 }
}

fn row_norms(a: &Matrix, depth: usize) -> Vec<f64> {
    (0..a.rows())
        .into_par_iter()
        .map(|row| a.row(row)[..depth].iter().map(|&x| square(x)).sum::<f64>().sqrt())
        .collect()
}

fn col_norms(b: &Matrix, depth: usize) -> Vec<f64> {
    let n = b.cols();
    let add = |mut sums: Vec<f64>, other: Vec<f64>| {
        sums.iter_mut().zip(other).for_each(|(sum, x)| *sum += x);
        sums
    };
    // A fixed cut, so that the sums do not depend on the number of cores.
    let sums = (0..depth.div_ceil(1024))
        .into_par_iter()
        .map(|part| {
            let mut sums = vec![0.0; n];
            for row in part * 1024..depth.min((part + 1) * 1024) {
                for (sum, &x) in sums.iter_mut().zip(b.row(row)) {
                    *sum += square(x);
                }
            }
            sums
        })
        .collect::<Vec<_>>()
        .into_iter()
        .reduce(add)
        .unwrap_or_else(|| vec![0.0; n]);
    sums.into_iter().map(f64::sqrt).collect()
}

/// Up to [`SAMPLES`] different indices below `count`, in order. The first and the last
/// are always among them: mistakes like edges.
fn sample(count: usize, rng: &mut ChaCha8Rng) -> Vec<usize> {
    if count <= SAMPLES {
        return (0..count).collect();
    }
    let mut chosen = vec![0, count - 1];
    while chosen.len() < SAMPLES {
        // The remainder favours small indices by a factor of 1 + 2^-33: no matter.
        let index = (rng.next_u64() % count as u64) as usize;
        if !chosen.contains(&index) {
            chosen.push(index);
        }
    }
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
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

        /// The product in f32, as a kernel would do it.
        fn product(&self) -> Matrix {
            let depth = if self.alpha == 0.0 { 0 } else { self.a.cols() };
            Matrix::from_fn(self.a.rows(), self.b.cols(), |i, j| {
                let dot =
                    (0..depth).fold(0.0f32, |s, l| self.a.at(i, l).mul_add(self.b.at(l, j), s));
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
                    assert!(
                        !check.passed() && check.failures >= 1,
                        "{method:?} {row} {col} {wrong}"
                    );
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
        let norm =
            |x: &Matrix| x.as_slice().iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        let u = f64::from(f32::EPSILON) / 2.0;
        let expected = 8.0 * 32.0 * u * 2.0 * norm(&case.a) * norm(&case.b)
            + 2.0 * u * 0.5 * f64::from(case.c.at(0, 0)).abs();
        approx::assert_relative_eq!(check.worst.unwrap().tolerance, expected, max_relative = 1e-4);
        // The probabilistic bound is never above the worst case.
        for depth in [0, 1, 10, 61, 62, 63, 1000] {
            assert!(Bound::Probabilistic.factor(depth) <= Bound::WorstCase.factor(depth));
        }
    }

    #[test]
    fn large_problems_are_sampled() {
        assert_eq!(Method::choose(1024, 1024, 1024), Method::Full);
        assert_eq!(Method::choose(0, 0, 0), Method::Full);
        let Method::Sampled { group } = Method::choose(200_000, 200_000, 200_000) else { panic!() };
        assert!(group > 10);
        let Method::Sampled { group } = Method::choose(40_000, 40_000, 1) else { panic!() };
        assert!((6..40_000).contains(&group));
        // The reference then takes less than the matrices.
        let bytes = Method::choose(60_000, 60_000, 60_000).bytes(60_000, 60_000, 60_000);
        assert!(bytes < 8 * 60_000 * 60_000);
    }

    #[test]
    fn shapes_must_fit() {
        let case = Case::new(2, 3, 4, 1.0, 1.0);
        let Case { a, b, c, alpha, beta } = &case;
        let problem =
            Problem { a, b, c: Some(c), alpha: *alpha, beta: *beta, bound: Bound::WorstCase };
        let compute = |problem| Reference::compute(problem, Method::Full, 0);
        assert!(compute(Problem { b: a, ..problem }).is_err());
        assert!(compute(Problem { c: Some(a), ..problem }).is_err());
        assert!(compute(Problem { c: None, ..problem }).is_err());
        assert!(compute(Problem { c: None, beta: 0.0, ..problem }).is_ok());
        assert!(compute(problem).unwrap().check(a).is_err());
    }
}
