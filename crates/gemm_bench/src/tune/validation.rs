//! The validation: judges `auto` on products nobody tuned for.
//!
//! A model is judged on what it was not fitted to. So products are drawn at random, and measured
//! products do not count.
//!
//! Timing all candidates would cost too much. Candidates that are predicted to come close are
//! timed, and a few others. These show whether predictions mislead.

use cuda_gemm::select::Prediction;
use cuda_gemm::{Auto, Configuration, Device, Gemm, Table};

use super::class::Class;
use super::pool::OperandPool;
use super::tuner::{POLICY, Progress, Tuner, check, operands, reference};
use super::validated::{Run, Validated, Validation};
use crate::batch::Policy;
use crate::error::Error;
use crate::shape::{Draw, Shape};

/// The highest predicted time of a close candidate. It is relative to the choice. All close
/// candidates are timed.
const CLOSE: f64 = 2.0;

/// How many of the other candidates are timed.
const OTHERS: usize = 10;

/// How candidates are sampled. A first sample of twice the best ends a candidate.
const VALIDATION: Policy = Policy { samples: 5, sample_ms: 0.5, slowest: 2.0, ..POLICY };

/// Judges `auto` on products that nobody tuned for.
///
/// For each product, `auto` chooses by its model alone. The choice is timed in turn with all
/// candidates that are predicted within twice its time, and with ten others. `seed` draws these
/// others. The L2 cache is cold. The choice and the fastest are checked, with the bounds of the
/// [`Tuner`](super::Tuner).
///
/// Without `table`, `auto` chooses by the built-in table for this device. An error of `report` ends
/// it.
///
/// ```
/// use cuda_gemm::{Compute, Device, DeviceChoice, Gemm};
/// use gemm_bench::Error;
/// use gemm_bench::tune::{Class, validate};
///
/// # fn main() -> Result<(), Error> {
/// let device = Device::open(DeviceChoice::SoftSm90)?;
/// let product = Gemm::new(16, 64, 128).computed_in(Compute::Bf16);
/// let products = [(Class::Layers, product)];
/// let validation = validate(&device, None, &products, 42, |_| Ok::<_, Error>(()))?;
/// let all = validation.summary(None).expect("a product");
/// println!("{:.3}x of the fastest, {}", all.geometric_mean, all.worst.chosen().configuration);
/// assert!(all.products == 1 && all.geometric_mean >= 1.0);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// - the error of `report`
/// - [`Error::NothingMeasured`] if no product can be judged
/// - the errors of [`Gemm::validate`] and [`Device::auto_by`]
/// - a fault of a kernel, or [`cuda_gemm::Error::Driver`]
pub fn validate<E: From<Error>>(
    device: &Device,
    table: Option<&Table>,
    products: &[(Class, Gemm)],
    seed: u64,
    mut report: impl FnMut(Progress<'_>) -> Result<(), E>,
) -> Result<Validation, E> {
    let is_valid = |(_, gemm): &(Class, Gemm)| gemm.validate();
    products.iter().try_for_each(is_valid).map_err(Error::from)?;
    let auto = by_model_alone(device, table)?;
    let tuner = Tuner::new(device)?;
    let largest = products.iter().map(|(_, gemm)| gemm.bytes()).max().unwrap_or(0);
    let pool = OperandPool::for_products(device, largest)?;
    let mut judge = Judge { tuner, auto, pool, draw: Draw::new(seed) };
    let mut validation = Validation { products: Vec::new(), wrong: 0 };
    for (done, (class, gemm)) in products.iter().enumerate() {
        report(Progress::Step { done, total: products.len() })?;
        let shape = Shape::of(gemm);
        let (runs, wrong) = judge.judge(gemm)?;
        validation.wrong += wrong.len();
        for (configuration, reason) in &wrong {
            let configuration = *configuration;
            report(Progress::WrongChoice { shape, configuration, reason })?;
        }
        match runs {
            Ok(runs) => {
                let product = Validated { class: *class, gemm: *gemm, runs };
                report(Progress::Judged(&product))?;
                validation.products.push(product);
            }
            Err(reason) => report(Progress::NotMeasured { shape, reason: &reason })?,
        }
    }
    match validation.products.is_empty() {
        true => Err(Error::NothingMeasured { count: products.len() }.into()),
        false => Ok(validation),
    }
}

/// Makes an [`Auto`] that chooses by costs alone. Without a table, the software device has
/// [`Device::auto`].
fn by_model_alone(device: &Device, table: Option<&Table>) -> Result<Auto, Error> {
    let table = match table {
        Some(table) => table.clone(),
        // No table is of the software device.
        None if device.is_soft() => return Ok(device.auto()?.by_model_alone()),
        None => Table::nearest(device.info())?,
    };
    Ok(device.auto_by(&table)?.by_model_alone())
}

/// Runs, or the reason why there are none, and wrong choices.
type Judged = (Result<Vec<Run>, String>, Vec<(Configuration, String)>);

/// The means of judging products.
struct Judge {
    tuner: Tuner,
    auto: Auto,
    pool: OperandPool,
    draw: Draw,
}

impl Judge {
    /// Times the choice and others in turn. The choice and the fastest are checked.
    ///
    /// A product with a wrong choice is not judged. If the fastest is wrong, it is dropped, and the
    /// next one is checked.
    fn judge(&mut self, gemm: &Gemm) -> Result<Judged, Error> {
        let not = |reason: String| Ok((Err(reason), Vec::new()));
        let chosen = self.auto.choose(gemm)?;
        let predictions = self.auto.candidates(gemm, usize::MAX);
        // The draw comes before anything fails. So the others of a product do not depend on its
        // neighbours.
        let Some(selected) = selected(chosen, predictions, &mut self.draw) else {
            return not("nothing is predicted for it on this device without a table".to_owned());
        };
        if !self.pool.has_room(gemm) {
            return not("it does not fit the memory".to_owned());
        }
        let choices: Vec<_> = selected.iter().map(|one| (*gemm, one.configuration)).collect();
        let times = self.tuner.time(&self.auto, &mut self.pool, VALIDATION, &choices)?;
        if times[0].is_none() {
            return not("the choice does not fit the memory".to_owned());
        }
        let run = |(Prediction { configuration, ns, .. }, time): (_, Option<f64>)| {
            Some(Run { configuration, predicted_ns: ns, ns: time?, rms_error: None })
        };
        self.checked(gemm, selected.into_iter().zip(times).filter_map(run).collect())
    }

    /// Checks the choice, and the fastest right run.
    fn checked(&self, gemm: &Gemm, mut runs: Vec<Run>) -> Result<Judged, Error> {
        let mut wrong = Vec::new();
        let made =
            operands(*gemm).and_then(|operands| Ok((self.tuner.buffers(&operands)?, operands)));
        let (mut buffers, operands) = match made {
            Ok(made) => made,
            Err(error) if error.is_refusal() => return Ok((Err(error.to_string()), wrong)),
            Err(error) => return Err(error),
        };
        let reference = reference(&operands)?;
        let mut at = 0;
        loop {
            let configuration = runs[at].configuration;
            let plan = self.auto.plan_by(*gemm, &configuration)?.prepare()?;
            match check(plan, &mut buffers, &reference)? {
                Ok(check) => runs[at].rms_error = check.rms_error(),
                Err(reason) => {
                    wrong.push((configuration, reason));
                    runs.remove(at);
                    if at == 0 {
                        let reason = "the choice is wrong".to_owned();
                        return Ok((Err(reason), wrong));
                    }
                }
            }
            let fastest = (0..runs.len()).min_by(|i, j| runs[*i].ns.total_cmp(&runs[*j].ns));
            at = fastest.unwrap_or(0);
            if at == 0 || runs[at].rms_error.is_some() {
                return Ok((Ok(runs), wrong));
            }
        }
    }
}

/// The predictions to time: of the choice, then of others, the least time first. `None` if the
/// choice has no prediction.
fn selected(
    chosen: Configuration,
    predictions: Vec<Prediction>,
    draw: &mut Draw,
) -> Option<Vec<Prediction>> {
    let (own, others): (Vec<_>, Vec<_>) =
        predictions.into_iter().partition(|one| one.configuration == chosen);
    let chosen = own.into_iter().next()?;
    let (mut selected, mut far): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|one| one.ns <= CLOSE * chosen.ns);
    for _ in 0..OTHERS.min(far.len()) {
        selected.push(far.swap_remove(draw.below(far.len())));
    }
    selected.sort_by(|one, other| one.ns.total_cmp(&other.ns));
    selected.insert(0, chosen);
    Some(selected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_gemm::{Compute, DeviceChoice, find_kernel};

    /// Numbers that were measured nowhere.
    const TABLE: &str = include_str!("../../../cuda_gemm/src/select/table_for_tests.json");

    /// A few tiny products, one of each class.
    fn tiny(compute: Compute) -> Vec<(Class, Gemm)> {
        let gemms = [
            Gemm::new(20, 33, 40),
            Gemm::new(8, 64, 64).transposed(false, true),
            Gemm::new(16, 24, 32).transposed(true, false).stacked(3),
        ];
        Class::ALL.into_iter().zip(gemms.map(|gemm| gemm.computed_in(compute))).collect()
    }

    #[test]
    fn products_of_all_classes_are_judged() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let table = Table::parse(TABLE, "a test").unwrap();
        for (compute, table) in [(Compute::F32, Some(&table)), (Compute::Bf16, None)] {
            let products = tiny(compute);
            let (mut steps, mut shapes) = (0, Vec::new());
            let validation = validate(&device, table, &products, 7, |progress| {
                match progress {
                    Progress::Step { done, total } => {
                        assert_eq!((done, total), (steps, 3));
                        steps += 1;
                    }
                    Progress::Judged(product) => shapes.push(product.shape()),
                    _ => panic!("all is right"),
                }
                Ok::<_, Error>(())
            });
            let validation = validation.unwrap();
            assert_eq!((steps, validation.wrong), (3, 0));
            let expected: Vec<_> = products.iter().map(|(_, gemm)| Shape::of(gemm)).collect();
            assert_eq!(shapes, expected);
            let auto = by_model_alone(&device, table).unwrap();
            for product in &validation.products {
                let choice = auto.choose(&product.gemm).unwrap();
                assert_eq!(product.chosen().configuration, choice);
                assert!(product.runs.len() > 1 && product.ratio() >= 1.0);
                let is_choice = |run: &&Run| run.configuration == choice;
                assert_eq!(product.runs.iter().filter(is_choice).count(), 1);
                assert_eq!(product.is_short(), product.fastest().ns < 1e4);
            }
            assert_eq!(validation.summary(None).unwrap().products, 3);
            for class in Class::ALL {
                let summary = validation.summary(Some(class)).unwrap();
                assert_eq!((summary.products, summary.worst.class), (1, class));
                let (mean, worst) = (summary.geometric_mean, summary.worst.ratio());
                approx::assert_relative_eq!(mean, worst, max_relative = 1e-12);
                assert_eq!(summary.percentile_95, summary.worst.ratio());
            }
        }
    }

    #[test]
    fn what_is_close_and_ten_others_are_timed() {
        let prediction = |splits: u32, ns: f64| {
            let kernel = find_kernel("tile_64x64").unwrap();
            let configuration = Configuration { splits, ..Configuration::new(kernel) };
            Prediction { configuration, ns, memory_bound: false }
        };
        let predictions: Vec<_> =
            (1..=100).map(|splits| prediction(splits, 100.0 * f64::from(splits))).collect();
        let chosen = predictions[1].configuration;
        let draw = |seed| selected(chosen, predictions.clone(), &mut Draw::new(seed)).unwrap();
        let drawn = draw(5);
        let (own, others) = (drawn[0], &drawn[1..]);
        assert_eq!(own.ns, 200.0);
        assert!(others.is_sorted_by(|one, other| one.ns < other.ns));
        let close: Vec<_> = others[..3].iter().map(|one| one.ns).collect();
        assert_eq!((close, others.len()), (vec![100.0, 300.0, 400.0], 13));
        assert_eq!(draw(5), drawn);
        assert_ne!(draw(6), drawn);
        // If there are few, all are timed. A choice without a prediction cannot be judged.
        let mut draw = Draw::new(5);
        let few = predictions[..7].to_vec();
        assert_eq!(selected(chosen, few, &mut draw).unwrap().len(), 7);
        assert!(selected(chosen, Vec::new(), &mut draw).is_none());
    }

    #[test]
    fn without_predictions_nothing_is_judged() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let mut reasons = Vec::new();
        let none = validate(&device, None, &tiny(Compute::F32), 7, |progress| {
            if let Progress::NotMeasured { reason, .. } = progress {
                reasons.push(reason.to_owned());
            }
            Ok(())
        });
        assert!(matches!(none, Err(Error::NothingMeasured { count: 3 })));
        assert!(reasons.len() == 3 && reasons[0].contains("nothing is predicted"));
        // Nor is a batch of pointers, whose matrices may lie anywhere.
        let table = Table::parse(TABLE, "a test").unwrap();
        let pointers = [(Class::Batches, Gemm::new(8, 16, 32).batched_pointers(2))];
        let none = validate(&device, Some(&table), &pointers, 7, |_| Ok(()));
        assert!(matches!(none, Err(Error::NothingMeasured { count: 1 })));
        // Products may share a matrix.
        let shared = [(Class::Batches, Gemm::new(8, 16, 32).batched(2, [0, 32 * 16, 8 * 16]))];
        let judged = validate(&device, Some(&table), &shared, 7, |_| Ok::<_, Error>(())).unwrap();
        assert_eq!((judged.products.len(), judged.wrong), (1, 0));
        let invalid = [(Class::Plain, Gemm::new(8, 8, 8).leading_dimensions(4, 8, 8))];
        let invalid = validate(&device, None, &invalid, 7, |_| Ok(()));
        assert!(matches!(invalid, Err(Error::Gemm(_))));
    }
}
