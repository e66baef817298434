//! What a validation found: the times of a product's candidates, and summaries of many.

use cuda_gemm::{Configuration, Gemm};

use super::class::Class;
use crate::shape::Shape;
use crate::stats;

/// The first candidates that [`Validated::measured_ratio`] times.
pub const FIRST: usize = 3;

/// The time below which a product is short. Its loss is told in microseconds, because launches
/// decide there.
const SHORT_NS: f64 = 1e4;

/// The high percentile of a [`Summary`].
const HIGH: f64 = 95.0;

/// A configuration that was timed, of [`Validated::runs`].
pub struct Run {
    /// The kernel, and how it is launched.
    pub configuration: Configuration,
    /// The predicted time.
    pub predicted_ns: f64,
    /// The median time, in turn with the other runs.
    pub ns: f64,
    /// The rms error of the compared elements, against f64. Only the choice and the fastest are
    /// compared.
    pub rms_error: Option<f64>,
}

/// The result of one product.
pub struct Validated {
    /// The kind of the product.
    pub class: Class,
    /// The product.
    pub gemm: Gemm,
    /// The timed runs: the choice first, then by prediction. Runs that were found wrong are left
    /// out.
    pub runs: Vec<Run>,
}

impl Validated {
    /// The product's shape.
    pub fn shape(&self) -> Shape {
        Shape::of(&self.gemm)
    }

    /// The ratio if the first [`FIRST`] candidates are measured. It compares their fastest with the
    /// fastest of all.
    ///
    /// A choice by measuring these candidates loses this factor.
    pub fn measured_ratio(&self) -> f64 {
        let first = self.runs.iter().take(FIRST).map(|run| run.ns).fold(f64::INFINITY, f64::min);
        first / self.fastest().ns
    }

    /// The choice of `auto`.
    pub fn chosen(&self) -> &Run {
        &self.runs[0]
    }

    /// The fastest of all timed runs.
    pub fn fastest(&self) -> &Run {
        let fastest = self.runs.iter().min_by(|one, other| one.ns.total_cmp(&other.ns));
        fastest.unwrap_or(&self.runs[0])
    }

    /// The choice's time relative to the fastest. 1 if the choice is the fastest.
    pub fn ratio(&self) -> f64 {
        self.chosen().ns / self.fastest().ns
    }

    /// The microseconds that the choice costs beyond the fastest.
    pub fn lost_us(&self) -> f64 {
        1e-3 * (self.chosen().ns - self.fastest().ns)
    }

    /// Whether the fastest takes less than 10 us.
    pub fn is_short(&self) -> bool {
        self.fastest().ns < SHORT_NS
    }
}

/// The result of [`validate`](super::validate).
pub struct Validation {
    /// The products that were judged.
    pub products: Vec<Validated>,
    /// How many configurations were wrong.
    pub wrong: usize,
}

impl Validation {
    /// Sums up a class, or all products. `None` if none of them was judged.
    pub fn summary(&self, class: Option<Class>) -> Option<Summary<'_>> {
        let is_of = |one: &&Validated| class.is_none_or(|class| one.class == class);
        let products: Vec<_> = self.products.iter().filter(is_of).collect();
        let ratios: Vec<_> = products.iter().map(|one| one.ratio()).collect();
        let measured: Vec<_> = products.iter().map(|one| one.measured_ratio()).collect();
        let worst = products.iter().max_by(|one, other| one.ratio().total_cmp(&other.ratio()))?;
        let short = products.iter().filter(|one| one.is_short());
        let lost: Vec<_> = short.map(|one| one.lost_us()).collect();
        Some(Summary {
            products: products.len(),
            geometric_mean: stats::geometric_mean(&ratios)?,
            percentile_95: stats::percentile(&ratios, HIGH),
            worst,
            measured: MeasuredSummary {
                geometric_mean: stats::geometric_mean(&measured)?,
                percentile_95: stats::percentile(&measured, HIGH),
                worst: stats::percentile(&measured, 100.0),
            },
            short: (!lost.is_empty()).then(|| ShortSummary {
                products: lost.len(),
                percentile_95_us: stats::percentile(&lost, HIGH),
                worst_us: stats::percentile(&lost, 100.0),
            }),
        })
    }
}

/// How far choices are from the fastest. [`Validation::summary`] makes it.
pub struct Summary<'a> {
    /// How many products.
    pub products: usize,
    /// The geometric mean of [`Validated::ratio`].
    pub geometric_mean: f64,
    /// The 95th percentile of the ratio.
    pub percentile_95: f64,
    /// The product with the largest ratio.
    pub worst: &'a Validated,
    /// The summary if the first candidates are measured. See [`Validated::measured_ratio`].
    pub measured: MeasuredSummary,
    /// The products whose fastest takes less than 10 us. `None` if there are none.
    pub short: Option<ShortSummary>,
}

/// How far the first candidates' fastest lags behind. It is compared with the fastest of all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredSummary {
    /// The geometric mean of [`Validated::measured_ratio`].
    pub geometric_mean: f64,
    /// The 95th percentile of the ratio.
    pub percentile_95: f64,
    /// The largest ratio.
    pub worst: f64,
}

/// Microseconds that choices for short products lose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShortSummary {
    /// How many products.
    pub products: usize,
    /// The 95th percentile.
    pub percentile_95_us: f64,
    /// The largest loss.
    pub worst_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_gemm::find_kernel;

    /// Two of four choices take twice the fastest's time. One of the three short products loses 3
    /// us.
    #[test]
    fn summaries_are_of_ratios_and_of_microseconds() {
        let configuration = Configuration::new(find_kernel("tile_64x64").unwrap());
        let product = |class, us: [f64; 2]| Validated {
            class,
            gemm: Gemm::new(8, 8, 8),
            runs: us
                .map(|us| Run { configuration, predicted_ns: 1.0, ns: 1e3 * us, rms_error: None })
                .into(),
        };
        let products = vec![
            product(Class::Plain, [4.0, 4.0]),
            product(Class::Layers, [200.0, 100.0]),
            product(Class::Plain, [6.0, 3.0]),
            product(Class::Plain, [5.0, 7.0]),
        ];
        let validation = Validation { products, wrong: 0 };
        let all = validation.summary(None).unwrap();
        approx::assert_relative_eq!(all.geometric_mean, 2f64.sqrt(), epsilon = 1e-12);
        approx::assert_relative_eq!(all.percentile_95, 2.0, epsilon = 1e-12);
        let short = all.short.unwrap();
        assert_eq!(short.products, 3);
        approx::assert_relative_eq!(short.worst_us, 3.0, epsilon = 1e-12);
        approx::assert_relative_eq!(short.percentile_95_us, 3.0, epsilon = 1e-12);
        assert!(validation.summary(Some(Class::Layers)).unwrap().short.is_none());
        assert!(validation.summary(Some(Class::Batches)).is_none());
    }
}
