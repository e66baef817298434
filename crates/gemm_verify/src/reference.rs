//! The reference of a product, and its comparison with results.

use std::sync::Arc;

use gemm_matrix::{Element, Matrix};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rayon::prelude::*;

use super::arithmetic::Arithmetic;
use super::check::{Check, Deviation, LAMBDA, Method, Problem, SAMPLES, SLACK, TINY, U, Verdict};
use crate::epilogue::Epilogue;
use crate::error::Error;
use crate::product::{begin, piece, product};

/// The most tasks of a comparison.
const TASKS: usize = 1024;

/// The reference of a [`Problem`], computed once for any number of results.
#[derive(Clone)]
pub struct Reference<'a> {
    problem: Problem<'a>,
    /// The inner dimension, or 0 if alpha is 0.
    depth: usize,
    /// `g` and `h` of [the crate](crate).
    factor: f64,
    rms_factor: f64,
    /// Norms of A's rows and B's columns, over their finite elements.
    row_norms: Vec<f64>,
    col_norms: Vec<f64>,
    method: Method,
    values: Arc<Values>,
    epilogue: Epilogue<'a>,
    /// The type that results are rounded to.
    output: Element,
    /// Whether products may be rounded to it before the old C is added.
    rounds_products: bool,
}

enum Values {
    /// `alpha * A * B + beta * C`, m x n.
    Full(Vec<f64>),
    Sampled(Sampled),
}

struct Sampled {
    /// The sampled rows and columns, in increasing order.
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
    /// Computes the reference; `seed` is for the samples and signs of [`Method::Sampled`].
    ///
    /// # Errors
    ///
    /// - [`Error::Shape`] if the matrices do not fit each other, or C is missing and beta is not 0.
    /// - [`Error::TooLarge`] if C's elements overflow a `usize`.
    pub fn compute(problem: Problem<'a>, method: Method, seed: u64) -> Result<Self, Error> {
        let Problem { a, b, alpha, bound, .. } = problem;
        let (m, n) = (a.rows(), b.cols());
        expect_shape("B", b, a.cols(), n)?;
        // A without columns may have any number of rows, and B without rows any number of columns.
        if m.checked_mul(n).is_none() {
            return Err(Error::TooLarge { what: "m", value: m, max: usize::MAX / n });
        }
        if problem.beta != 0.0 {
            match problem.c {
                Some(c) => expect_shape("C", c, m, n)?,
                None => expect_shape("C", &Matrix::zeros(0, 0), m, n)?,
            }
        }
        // With alpha 0 neither A nor B is read: they may hold NaN.
        let depth = if alpha == 0.0 { 0 } else { a.cols() };
        let mut reference = Self {
            problem,
            depth,
            factor: Arithmetic::default().factor(bound, depth),
            rms_factor: Arithmetic::default().rms_factor(depth),
            row_norms: row_norms(a, depth, 0.0),
            col_norms: col_norms(b, depth, 0.0),
            method,
            values: Arc::new(Values::Full(Vec::new())),
            epilogue: Epilogue::default(),
            output: Element::F32,
            rounds_products: false,
        };
        reference.values = Arc::new(match method {
            Method::Full => reference.full(),
            Method::Sampled { group } => Values::Sampled(reference.sampled(group.max(1), seed)),
        });
        Ok(reference)
    }

    /// Sets the operations on each element before results are compared.
    ///
    /// ```
    /// use gemm_matrix::{Activation, Axis, Matrix};
    /// use gemm_verify::{Bound, Epilogue, Method, Problem, Reference};
    ///
    /// let (a, b) = (Matrix::from_vec(1, 1, vec![2.0]), Matrix::from_vec(1, 2, vec![1.0, -3.0]));
    /// let problem =
    ///     Problem { a: &a, b: &b, c: None, alpha: 1.0, beta: 0.0, bound: Bound::WorstCase };
    /// let epilogue = Epilogue {
    ///     bias: Some((Axis::Column, &[0.5, 1.0])),
    ///     activation: Some(Activation::Relu),
    ///     ..Epilogue::default()
    /// };
    /// let reference = Reference::compute(problem, Method::Full, 0)?.then(epilogue)?;
    /// assert!(reference.check(&Matrix::from_vec(1, 2, vec![2.5, 0.0]))?.passed());
    /// assert!(!reference.check(&Matrix::from_vec(1, 2, vec![2.5, -5.0]))?.passed());
    /// # Ok::<(), gemm_verify::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`].
    pub fn then(self, epilogue: Epilogue<'a>) -> Result<Self, Error> {
        epilogue.expect_shape(self.problem.a.rows(), self.problem.b.cols())?;
        Ok(Self { epilogue, ..self })
    }

    /// Sets the arithmetic, and with it the bounds.
    #[must_use]
    pub fn computed_by(mut self, arithmetic: Arithmetic) -> Self {
        let Problem { a, b, bound, .. } = self.problem;
        self.factor = arithmetic.factor(bound, self.depth);
        self.rms_factor = arithmetic.rms_factor(self.depth);
        let floor = arithmetic.floor();
        self.row_norms = row_norms(a, self.depth, floor);
        self.col_norms = col_norms(b, self.depth, floor);
        self
    }

    /// Sets the type that results are finally rounded to, to the nearest.
    ///
    /// ```
    /// use gemm_matrix::{Element, Matrix};
    /// use gemm_verify::{Bound, Method, Problem, Reference};
    ///
    /// let (a, b) = (Matrix::from_vec(1, 1, vec![257.0]), Matrix::from_vec(1, 1, vec![1.0]));
    /// let problem =
    ///     Problem { a: &a, b: &b, c: None, alpha: 1.0, beta: 0.0, bound: Bound::WorstCase };
    /// let exact = Reference::compute(problem, Method::Full, 0)?;
    /// let result = Matrix::from_vec(1, 1, vec![256.0]);
    /// assert!(!exact.check(&result)?.passed());
    /// let rounded = exact.stored_as(Element::Bf16);
    /// assert!(rounded.check(&result)?.passed());
    /// assert!(!rounded.check(&Matrix::from_vec(1, 1, vec![260.0]))?.passed());
    /// # Ok::<(), gemm_verify::Error>(())
    /// ```
    #[must_use]
    pub fn stored_as(self, output: Element) -> Self {
        Self { output, ..self }
    }

    /// Allows that products are rounded to the type of the results before the old C is added, as
    /// cuBLAS may do. Then a sum is rounded twice.
    ///
    /// ```
    /// use gemm_matrix::{Element, Matrix};
    /// use gemm_verify::{Bound, Method, Problem, Reference};
    ///
    /// let one = |value| Matrix::from_vec(1, 1, vec![value]);
    /// // The product is between 1 and the next number, which is larger by 2^-7.
    /// let (a, b, c) = (one(1.0), one(1.003_906_25), one(-1.0));
    /// let problem =
    ///     Problem { a: &a, b: &b, c: Some(&c), alpha: 1.0, beta: 1.0, bound: Bound::WorstCase };
    /// let once = Reference::compute(problem, Method::Full, 0)?.stored_as(Element::Bf16);
    /// let twice = once.clone().with_rounded_products();
    /// let [exact, rounded] = [one(0.003_906_25), one(0.0)];
    /// assert!(once.check(&exact)?.passed() && twice.check(&exact)?.passed());
    /// assert!(!once.check(&rounded)?.passed() && twice.check(&rounded)?.passed());
    /// assert!(!twice.check(&one(-0.008))?.passed());
    /// # Ok::<(), gemm_verify::Error>(())
    /// ```
    #[must_use]
    pub fn with_rounded_products(self) -> Self {
        Self { rounds_products: true, ..self }
    }

    /// The largest error of rounding a product of this size before the old C is added.
    fn product_rounding(&self, value: f64) -> f64 {
        if self.rounds_products && self.problem.beta != 0.0 { self.rounding(value) } else { 0.0 }
    }

    /// The largest error of rounding a number of this size to the type of the results.
    ///
    /// It is 0 for f32, whose rounding is among the product's.
    fn rounding(&self, value: f64) -> f64 {
        if self.output == Element::F32 || !value.is_finite() {
            return 0.0;
        }
        self.output.unit_roundoff() * value.abs().max(self.output.min_positive())
    }

    fn full(&self) -> Values {
        let Problem { a, b, alpha, .. } = self.problem;
        let (m, n) = (a.rows(), b.cols());
        let mut values = vec![0.0; m * n];
        begin(fmas([m, n, self.depth]));
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
        let groups = n.div_ceil(group);
        begin(fmas([rows.len(), n, k]) + fmas([m, cols.len() + groups, k]));
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
    /// [`Error::Shape`] if the result does not have the product's shape.
    pub fn check(&self, result: &Matrix) -> Result<Check, Error> {
        let (m, n) = (self.problem.a.rows(), self.problem.b.cols());
        expect_shape("the result", result, m, n)?;
        Ok(match &*self.values {
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

    /// Freivalds' check of one row.
    ///
    /// Failing groups are compared element by element, up to the first group with a wrong element.
    fn check_groups(&self, row: usize, result: &Matrix, sampled: &Sampled, check: &mut Check) {
        let Sampled { cols, group, signs, sums, .. } = sampled;
        if !self.epilogue.is_none() {
            return;
        }
        let Problem { a, b, alpha, beta, .. } = self.problem;
        let groups = b.cols().div_ceil(*group);
        for (g, got) in result.row(row).chunks(*group).enumerate() {
            let first = g * group;
            let (mut sum, mut squares, mut old_squares, mut roundings) = (0.0, 0.0, 0.0, 0.0);
            for (j, got) in (first..).zip(got) {
                let old = self.old(row, j);
                sum += signs[j] * (f64::from(*got) - old);
                squares += self.col_norms[j].powi(2);
                old_squares += if beta == 0.0 { 0.0 } else { old.powi(2) };
                let product = f64::from(*got) - old;
                roundings +=
                    self.rounding(f64::from(*got)).powi(2) + self.product_rounding(product).powi(2);
            }
            let count = got.len() as f64;
            // The norm of a sum is at most the sum of the norms.
            let norm = self.factor * f64::from(alpha).abs() * self.row_norms[row] * squares.sqrt()
                + 2.0 * U * SLACK * old_squares.sqrt()
                + self.underflow() * count.sqrt()
                + roundings.sqrt();
            // The sum of the tolerances is at most sqrt(count) times the norm.
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
                // Sampled columns have already been compared.
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

    /// The most that underflows add up to.
    ///
    /// Each operation errs by at most half a spacing of the subnormal numbers, counted here as a
    /// whole one.
    fn underflow(&self) -> f64 {
        (self.depth as f64 * f64::from(self.problem.alpha).abs() + 2.0) * TINY
    }

    fn judge(&self, row: usize, col: usize, expected: f64, got: f32) -> Verdict {
        let norms = self.row_norms[row] * self.col_norms[col];
        let scaled = f64::from(self.problem.alpha).abs() * norms;
        let old = self.old(row, col);
        let product = expected - old;
        let old = if old.is_finite() { old.abs() } else { 0.0 };
        let others = 2.0 * U * SLACK * old
            + self.underflow()
            + self.product_rounding(product.abs() + self.factor * scaled);
        let bounds = [self.factor, self.rms_factor].map(|factor| factor * scaled + others);
        let (expected, [tolerance, rms]) = self.epilogue.apply(row, col, expected, bounds);
        let rounding = self.rounding(expected.abs() + tolerance);
        let (tolerance, rms) = (tolerance + rounding, rms + rounding);
        let got = f64::from(got);
        if !got.is_finite() {
            if expected == got || expected.is_nan() && got.is_nan() {
                return Verdict::Same;
            }
            let max = f64::from(f32::MAX);
            if norms + tolerance > max || scaled + old + tolerance > max {
                return Verdict::Overflowed;
            }
            let is_too_large = expected.abs() + tolerance > self.output.max();
            if is_too_large && got.is_infinite() && got.signum() == expected.signum() {
                return Verdict::Overflowed;
            }
        }
        let error = (got - expected).abs();
        let passed = error <= tolerance && expected.is_finite();
        let error = if error.is_nan() { f64::INFINITY } else { error };
        Verdict::Number { passed, deviation: Deviation { row, col, error, tolerance }, rms }
    }

    /// Runs `visit` for each of `count` rows on all cores.
    ///
    /// The outcome does not depend on the number of cores.
    fn over_rows(&self, count: usize, visit: impl Fn(usize, &mut Check) + Sync) -> Check {
        let none = || Check::new(self.method, self.problem.bound);
        // Fixed chunks, merged in order, because sums of errors are rounded.
        (0..count)
            .into_par_iter()
            .fold_chunks(count.div_ceil(TASKS).max(1), none, |mut check, row| {
                visit(row, &mut check);
                check
            })
            .collect::<Vec<_>>()
            .into_iter()
            .fold(none(), Check::merge)
    }
}

/// `alpha * sum`, where an empty sum is 0 for any alpha.
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

/// The square of a finite element in f64; 0 for NaN and infinities.
///
/// A nonzero element below `floor` counts as `floor`. With a NaN or an infinity the reference is
/// not finite, and needs no tolerance.
fn square(x: f32, floor: f64) -> f64 {
    let magnitude = if x == 0.0 { 0.0 } else { f64::from(x).abs().max(floor) };
    if x.is_finite() { magnitude * magnitude } else { 0.0 }
}

/// The number of FMAs of a product.
fn fmas(sizes: [usize; 3]) -> u128 {
    // Saturates beyond any product that memory holds.
    sizes.map(|size| size as u128).into_iter().fold(1, u128::saturating_mul)
}

fn row_norms(a: &Matrix, depth: usize, floor: f64) -> Vec<f64> {
    (0..a.rows())
        .into_par_iter()
        .map(|row| a.row(row)[..depth].iter().map(|&x| square(x, floor)).sum::<f64>().sqrt())
        .collect()
}

fn col_norms(b: &Matrix, depth: usize, floor: f64) -> Vec<f64> {
    let n = b.cols();
    let add = |mut sums: Vec<f64>, other: Vec<f64>| {
        sums.iter_mut().zip(other).for_each(|(sum, x)| *sum += x);
        sums
    };
    // Fixed chunks, so that the sums do not depend on the number of cores.
    let sums = (0..depth.div_ceil(1024))
        .into_par_iter()
        .map(|part| {
            let mut sums = vec![0.0; n];
            for row in part * 1024..depth.min((part + 1) * 1024) {
                for (sum, &x) in sums.iter_mut().zip(b.row(row)) {
                    *sum += square(x, floor);
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

/// Up to [`SAMPLES`] different indices below `count`, in order.
///
/// The first and the last are always among them, because mistakes are likely at the edges.
fn sample(count: usize, rng: &mut ChaCha8Rng) -> Vec<usize> {
    if count <= SAMPLES {
        return (0..count).collect();
    }
    let mut chosen = vec![0, count - 1];
    while chosen.len() < SAMPLES {
        // The remainder favours small indices by a factor of 1 + 2^-33, which does not matter.
        let index = (rng.next_u64() % count as u64) as usize;
        if !chosen.contains(&index) {
            chosen.push(index);
        }
    }
    chosen.sort_unstable();
    chosen
}
