//! Measures single products: the fastest choice for each.

use cuda_gemm::select::{MeasuredProduct, Measurement};
use cuda_gemm::{Auto, Gemm};

use super::tuner::{Progress, Tuner};
use crate::error::Error;
use crate::shape::Shape;
use crate::stats;

/// The result of [`Tuner::products`].
pub struct TunedProducts {
    /// The results of the products that were not skipped.
    pub results: Vec<Measurement>,
    /// The number of choices that disagreed.
    pub wrong: usize,
    /// The model's choice relative to the fastest, in time. This is a geometric mean over products.
    pub measured_loss: f64,
    /// GFLOP/s of multiply-adds, before and after. They show how clocks drift. `None` on the
    /// software device.
    pub ffma_gflops: Option<[f64; 2]>,
}

impl Tuner {
    /// Measures these products with [`Auto::measure`]: up to 24 candidates for each.
    ///
    /// The device's [file](cuda_gemm::Device::keep_measurements_in) keeps the fastest. An `auto`
    /// that chooses [by the model alone](Auto::by_model_alone) measures known products again.
    ///
    /// ```
    /// use cuda_gemm::select::ProductFile;
    /// use cuda_gemm::{Compute, Device, DeviceChoice, Gemm};
    /// use gemm_bench::Error;
    /// use gemm_bench::tune::Tuner;
    ///
    /// # fn main() -> Result<(), Error> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("products.json");
    /// let device = Device::open(DeviceChoice::SoftSm90)?;
    /// device.keep_measurements_in(Some(ProductFile::new(path)));
    /// let layer = Gemm::new(16, 64, 256).computed_in(Compute::Bf16);
    /// let auto = device.auto()?.by_model_alone();
    /// let tuned = Tuner::new(&device)?.products(&auto, &[layer], |_| Ok::<_, Error>(()))?;
    /// let fastest = tuned.results[0].choice;
    /// assert_eq!(device.auto()?.choose(&layer)?, fastest);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `report`; the errors of [`Auto::measure`], [`Error::NoRecord`],
    /// [`Error::NothingMeasured`], or [`cuda_gemm::Error::Driver`].
    pub fn products<E: From<Error>>(
        &self,
        auto: &Auto,
        products: &[Gemm],
        mut report: impl FnMut(Progress<'_>) -> Result<(), E>,
    ) -> Result<TunedProducts, E> {
        products.iter().try_for_each(check)?;
        let before = self.rates()?;
        let (mut results, mut losses, mut wrong) = (Vec::new(), Vec::new(), 0);
        for (done, gemm) in products.iter().enumerate() {
            report(Progress::Step { done, total: products.len() })?;
            let shape = Shape::of(gemm);
            for measured in auto.measure(&[*gemm], candidates(gemm)).map_err(Error::from)? {
                if let Some(reason) = measured.skipped {
                    report(Progress::NotMeasured { shape, reason: &reason.to_string() })?;
                    continue;
                }
                wrong += measured.dropped.len();
                for (configuration, reason) in &measured.dropped {
                    let configuration = *configuration;
                    report(Progress::WrongChoice { shape, configuration, reason })?;
                }
                if let Some(fastest) = measured.fastest() {
                    report(Progress::Product { measured: &measured, fastest })?;
                    losses.push(measured.timed[0].ns / fastest.ns);
                }
                results.push(measured);
            }
        }
        if results.is_empty() {
            return Err(Error::NothingMeasured { count: products.len() }.into());
        }
        let rates = before.zip(self.rates()?);
        let measured_loss = stats::geometric_mean(&losses).unwrap_or(1.0);
        let ffma_gflops = rates.map(|(before, after)| [before.ffma, after.ffma]);
        Ok(TunedProducts { results, wrong, measured_loss, ffma_gflops })
    }
}

/// How many candidates are timed. Long products get fewer.
fn candidates(gemm: &Gemm) -> usize {
    match gemm.flops() {
        ..=2e10 => 24,
        ..=5e11 => 16,
        ..=5e12 => 6,
        _ => 3,
    }
}

/// Whether [`Tuner::products`] accepts a product.
///
/// # Errors
///
/// The errors of [`Gemm::validate`], and [`Error::NoRecord`].
pub fn check(gemm: &Gemm) -> Result<(), Error> {
    gemm.validate()?;
    match MeasuredProduct::is_possible(gemm) {
        true => Ok(()),
        false => Err(Error::NoRecord { shape: Shape::of(gemm).to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use cuda_gemm::select::Skipped;
    use cuda_gemm::{Compute, Device, DeviceChoice};

    use super::*;

    #[test]
    fn products_are_measured_in_any_precision() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let batch = Gemm::new(1, 64, 128).transposed(false, true).stacked(8);
        let products = [batch.computed_in(Compute::Tf32), batch.computed_in(Compute::F16)];
        device.keep_measurements_in(None);
        let auto = device.auto().unwrap();
        let mut reported = 0;
        let tuned = Tuner::new(&device).unwrap().products(&auto, &products, |progress| {
            reported += usize::from(matches!(progress, Progress::Product { .. }));
            Ok::<_, Error>(())
        });
        let tuned = tuned.unwrap();
        assert_eq!((tuned.results.len(), tuned.wrong, reported), (2, 0, 2));
        assert!(tuned.measured_loss >= 1.0);
        for (result, gemm) in tuned.results.iter().zip(products) {
            assert_eq!((result.gemm, result.skipped), (gemm, None));
            assert_eq!(result.fastest().unwrap().configuration, result.choice);
            let predicted = auto.candidates(&gemm, 1)[0].configuration;
            assert_eq!(result.timed[0].configuration, predicted);
            assert!(result.timed.len() > 3);
        }
        // Only the model alone measures known products again.
        let tuner = Tuner::new(&device).unwrap();
        let skipped = |auto: &Auto| {
            let mut reasons = Vec::new();
            let tuned = tuner.products(auto, &products, |progress| {
                if let Progress::NotMeasured { reason, .. } = progress {
                    reasons.push(reason.to_owned());
                }
                Ok::<_, Error>(())
            });
            (tuned.map(|tuned| tuned.results.len()).ok(), reasons)
        };
        assert_eq!(skipped(&auto), (None, vec![Skipped::Known.to_string(); 2]));
        assert_eq!(skipped(&auto.by_model_alone()), (Some(2), Vec::new()));
    }

    #[test]
    fn products_without_a_record_are_refused_first() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let (tuner, auto) = (Tuner::new(&device).unwrap(), device.auto().unwrap());
        let refused = |gemm: Gemm| {
            let result =
                tuner.products(&auto, &[gemm], |_| Err(Error::NothingMeasured { count: 9 }));
            result.err().unwrap().to_string()
        };
        let shared = refused(Gemm::new(8, 8, 8).batched(2, [64, 0, 65]));
        assert!(shared.contains("cannot have a record"), "{shared}");
        let wrong = refused(Gemm::new(8, 8, 8).leading_dimensions(4, 8, 8));
        assert!(wrong.contains("lda"), "{wrong}");
    }
}
