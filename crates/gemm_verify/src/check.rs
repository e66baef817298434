//! The check of a result: method, bound and outcome.

use std::cmp::Ordering;

use gemm_matrix::Matrix;

/// Unit roundoff of f32.
pub(super) const U: f64 = 1.0 / (1 << 24) as f64;

/// Covers two effects that the tolerance leaves out: terms of second order in u, and the
/// reference's own rounding, 2^-29 of the tolerance.
pub(super) const SLACK: f64 = 1.0 + 1e-6;

/// Standard deviations that the probabilistic bounds allow.
///
/// See [the crate](crate) for the odds.
pub(super) const LAMBDA: f64 = 8.0;

/// The spacing of subnormal f32 numbers.
pub(super) const TINY: f64 = f32::MIN_POSITIVE as f64 * f32::EPSILON as f64;

/// The most FLOP per core of a full reference: a few seconds.
const FULL_FLOPS_PER_CORE: f64 = 1.5e11;

/// The most f64 values of a reference: 2 GiB.
const MAX_VALUES: usize = 1 << 28;

/// Rows and columns that [`Method::Sampled`] compares element by element.
pub(super) const SAMPLES: usize = 16;

/// The bound of the largest error that is not a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// For random matrices, whose elements are independent and have mean zero.
    ///
    /// The root mean square of the errors is bounded as well.
    Probabilistic,
    /// For any matrices: bounds each element by itself.
    WorstCase,
}

impl Bound {
    /// `g` of [the crate](crate), for an inner dimension.
    pub(super) fn factor(self, depth: usize) -> f64 {
        let n = depth as f64 + 2.0;
        let worst = n * U;
        match self {
            Self::WorstCase => worst * SLACK,
            Self::Probabilistic => (LAMBDA * n.sqrt() * U).exp_m1().min(worst) * SLACK,
        }
    }
}

/// The part of the reference that is computed.
///
/// ```
/// use gemm_verify::Method;
///
/// assert_eq!(Method::choose(100, 100, 100), Method::Full);
/// // Eight bytes for each element of C, and more for what makes the reference.
/// assert!(Method::Full.bytes(100, 100, 100) > 8 * 100 * 100);
/// assert!(matches!(Method::choose(1 << 20, 1 << 20, 1 << 20), Method::Sampled { .. }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The whole reference.
    Full,
    /// Some rows and columns, and Freivalds' check of all elements in groups.
    Sampled {
        /// Neighbouring elements of a row per group; 0 counts as 1.
        group: usize,
    },
}

impl Method {
    /// Chooses the full product if it takes a few seconds on this machine.
    ///
    /// Otherwise chooses the cheaper check, with groups as small as that time and memory allow.
    /// `depth` is the inner dimension, or 0 if alpha is 0.
    pub fn choose(m: usize, n: usize, depth: usize) -> Self {
        let budget = FULL_FLOPS_PER_CORE * rayon::current_num_threads() as f64;
        let [m, n, depth] = [m, n, depth].map(|size| size as f64);
        let time = 2.0 * m * n * depth / budget;
        let space = m * n / MAX_VALUES as f64;
        let group = time.max(space).ceil() as usize;
        match group {
            0 | 1 => Self::Full,
            // A group does not extend past the end of a row.
            _ => Self::Sampled { group: group.min(n as usize) },
        }
    }

    /// Bytes of host memory for the reference and its computation; saturates.
    pub fn bytes(self, m: usize, n: usize, depth: usize) -> u128 {
        let [m, n, k] = [m as u128, n as u128, depth as u128];
        let values = match self {
            Self::Full => m * n,
            Self::Sampled { group } => (m + k)
                .saturating_mul(n.div_ceil(group.max(1) as u128))
                .saturating_add((m + n) * SAMPLES as u128),
        };
        // Norms and signs, and each task's blocks of 2.5 MiB.
        let blocks = rayon::current_num_threads() as u128 * (5 << 19);
        values.saturating_add(m + 2 * n).saturating_mul(8).saturating_add(blocks)
    }
}

/// The matrices and factors of one product, on the host.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// The matrix A, m x k.
    pub a: &'a Matrix,
    /// The matrix B, k x n.
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

/// The outcome of a check.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The part of the reference that was computed.
    pub method: Method,
    /// The bound of the tolerance.
    pub bound: Bound,
    /// Elements compared one by one.
    pub elements: u64,
    /// Elements outside their tolerance.
    ///
    /// With [`Method::Sampled`] this is a lower bound: the count stops at a row's first group with
    /// a wrong element.
    pub failures: u64,
    /// Elements that are not finite because f32 may overflow on the way; they are accepted.
    pub overflowed: u64,
    /// The element with the largest error, if any was compared with a finite reference.
    pub largest: Option<Deviation>,
    /// The element with the largest error relative to its tolerance.
    pub worst: Option<Deviation>,
    /// Elements that have an error. Excluded are overflowed elements, and expected NaN and
    /// infinities.
    pub numbers: u64,
    /// The sum of the squared errors; infinite if an error is.
    pub squared_errors: f64,
    /// The sum of the squared root-mean-square bounds, which [`Bound::Probabilistic`] also checks.
    pub squared_bounds: f64,
}

/// The error of one element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deviation {
    /// The element's row.
    pub row: usize,
    /// The element's column.
    pub col: usize,
    /// `|result - reference|`; infinite for a result that is wrongly not a number.
    pub error: f64,
    /// The largest error that passes.
    pub tolerance: f64,
}

impl Deviation {
    /// The error relative to the tolerance: at most 1 passes.
    pub fn ratio(&self) -> f64 {
        if self.error == 0.0 { 0.0 } else { self.error / self.tolerance }
    }
}

impl Check {
    /// A check without elements.
    pub fn new(method: Method, bound: Bound) -> Self {
        Self {
            method,
            bound,
            elements: 0,
            failures: 0,
            overflowed: 0,
            largest: None,
            worst: None,
            numbers: 0,
            squared_errors: 0.0,
            squared_bounds: 0.0,
        }
    }

    /// Whether all compared elements, and the errors' root mean square, are within tolerance.
    pub fn passed(&self) -> bool {
        self.failure().is_none()
    }

    /// The reason why the check failed, in words.
    pub fn failure(&self) -> Option<String> {
        if self.failures > 0 {
            let place = self.worst.map(|Deviation { row, col, error, .. }| {
                format!("; at row {row}, column {col} the error is {error:.3e}")
            });
            let or_more = if self.method == Method::Full { "" } else { " or more" };
            return Some(format!("{}{or_more} wrong{}", self.failures, place.unwrap_or_default()));
        }
        let (error, tolerance) = self.rms_error().zip(self.rms_tolerance())?;
        let passed = error <= tolerance;
        (!passed).then(|| {
            format!(
                "the rms error is {error:.3e}, and at most {tolerance:.3e} is right, although no element \
                 is outside of its own tolerance"
            )
        })
    }

    /// The root mean square of the errors of individually compared elements.
    ///
    /// `None` if no element has an error. Unlike the largest error, it hardly depends on luck.
    pub fn rms_error(&self) -> Option<f64> {
        (self.numbers > 0).then(|| (self.squared_errors / self.numbers as f64).sqrt())
    }

    /// The largest root mean square that passes; `None` if only elements count.
    pub fn rms_tolerance(&self) -> Option<f64> {
        if self.numbers == 0 || self.bound == Bound::WorstCase {
            return None;
        }
        let numbers = self.numbers as f64;
        let luck = 1.0 + LAMBDA / numbers.sqrt().sqrt();
        Some((self.squared_bounds / numbers).sqrt() * luck)
    }

    /// Moves the check's elements down by `rows` rows.
    #[must_use]
    pub fn below(mut self, rows: usize) -> Self {
        for deviation in [&mut self.largest, &mut self.worst].into_iter().flatten() {
            deviation.row += rows;
        }
        self
    }

    /// Combines two checks by one method.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.elements += other.elements;
        self.failures += other.failures;
        self.overflowed += other.overflowed;
        self.largest = larger(self.largest, other.largest, |d| d.error);
        self.worst = larger(self.worst, other.worst, Deviation::ratio);
        self.numbers += other.numbers;
        self.squared_errors += other.squared_errors;
        self.squared_bounds += other.squared_bounds;
        self
    }

    pub(super) fn count(&mut self, verdict: Verdict) {
        self.elements += 1;
        match verdict {
            Verdict::Same => {}
            Verdict::Overflowed => self.overflowed += 1,
            Verdict::Number { passed, deviation, rms } => {
                self.failures += u64::from(!passed);
                self.largest = larger(self.largest, Some(deviation), |d| d.error);
                self.worst = larger(self.worst, Some(deviation), Deviation::ratio);
                self.numbers += 1;
                self.squared_errors += deviation.error.powi(2);
                self.squared_bounds += rms.powi(2);
            }
        }
    }
}

/// The deviation with the larger key, or the first if they are equal.
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

pub(super) enum Verdict {
    /// The reference and the result are NaN, or the same infinity.
    Same,
    /// The result is not finite, and f32 may overflow here.
    Overflowed,
    /// Any other result; `rms` bounds the error in the root mean square.
    Number { passed: bool, deviation: Deviation, rms: f64 },
}
