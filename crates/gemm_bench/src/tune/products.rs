//! Measures single products: the fastest accurate choice for each.

use cuda_gemm::select::MeasuredProduct;
use cuda_gemm::{Auto, Gemm};

use super::search::CandidateSearch;
use super::search_result::SearchResult;
use super::tuner::{Progress, Tuner};
use crate::baseline;
use crate::error::Error;
use crate::shape::Shape;
use crate::stats;

/// The result of [`Tuner::products`].
pub struct TunedProducts {
    /// The products that were measured.
    pub results: Vec<SearchResult>,
    /// The number of wrong choices.
    pub wrong: usize,
    /// The model's choice relative to the fastest, in time. This is a geometric mean over products.
    pub measured_loss: f64,
    /// GFLOP/s of multiply-adds, before and after. They show how clocks drift. `None` on the
    /// software device.
    pub ffma_gflops: Option<[f64; 2]>,
}

impl Tuner {
    /// Measures these products among the choices of `auto`.
    ///
    /// [`SearchResult::record`] is the fastest that is accurate, whatever the model says. A
    /// [`ProductFile`](cuda_gemm::select::ProductFile) keeps it for `auto`.
    ///
    /// ```
    /// use cuda_gemm::select::ProductFile;
    /// use cuda_gemm::{Compute, Device, DeviceChoice, Gemm};
    /// use gemm_bench::Error;
    /// use gemm_bench::tune::{Progress, Tuner};
    ///
    /// # fn main() -> Result<(), Error> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("products.json");
    /// let device = Device::open(DeviceChoice::SoftSm90)?;
    /// let file = ProductFile::new(path);
    /// let layer = Gemm::new(16, 64, 256).computed_in(Compute::Bf16);
    /// let tuned = Tuner::new(&device)?.products(&device.auto()?, &[layer], |progress| {
    ///     if let Progress::Product { result } = progress {
    ///         file.add(&device, &[result.record()])?;
    ///     }
    ///     Ok::<_, Error>(())
    /// })?;
    /// let fastest = tuned.results[0].fastest().configuration;
    /// device.keep_measurements_in(Some(file));
    /// assert_eq!(device.auto()?.choose(&layer)?, fastest);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `report`; the errors of [`Gemm::validate`], [`Error::NoRecord`],
    /// [`Error::NothingMeasured`], a fault of a kernel, or [`cuda_gemm::Error::Driver`].
    pub fn products<E: From<Error>>(
        &self,
        auto: &Auto,
        products: &[Gemm],
        mut report: impl FnMut(Progress<'_>) -> Result<(), E>,
    ) -> Result<TunedProducts, E> {
        products.iter().try_for_each(check)?;
        let context = &self.context;
        let before = context.ffma_gflops()?;
        // The software device has none.
        let cublas = match context.device.is_soft() {
            true => None,
            false => match baseline::load(&context.device)? {
                Ok(cublas) => Some(cublas),
                Err(missing) => {
                    report(Progress::NoBaseline(&missing))?;
                    None
                }
            },
        };
        let search = CandidateSearch { context, auto, cublas: cublas.as_ref() };
        let mut results = Vec::new();
        for (done, gemm) in products.iter().enumerate() {
            report(Progress::Step { done, total: products.len() })?;
            let shape = Shape::of(gemm);
            let result = match search.run(*gemm)? {
                Ok(result) => result,
                Err(reason) => {
                    report(Progress::NotMeasured { shape, reason: &reason })?;
                    continue;
                }
            };
            if let Some(reason) = &result.not_compared {
                report(Progress::NotCompared(reason))?;
            }
            for (configuration, reason) in &result.wrong {
                let configuration = *configuration;
                report(Progress::WrongChoice { shape, configuration, reason })?;
            }
            report(Progress::Product { result: &result })?;
            results.push(result);
        }
        if results.is_empty() {
            return Err(Error::NothingMeasured { count: products.len() }.into());
        }
        let after = context.ffma_gflops()?;
        let wrong = results.iter().map(|result| result.wrong.len()).sum();
        let losses: Vec<_> = results.iter().map(SearchResult::loss_of_chosen).collect();
        let measured_loss = stats::geometric_mean(&losses).unwrap_or(1.0);
        let ffma_gflops = before.zip(after).map(|(before, after)| [before, after]);
        Ok(TunedProducts { results, wrong, measured_loss, ffma_gflops })
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
    use cuda_gemm::{Compute, Device, DeviceChoice};

    use super::*;

    #[test]
    fn products_are_measured_in_any_precision() {
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let batch = Gemm::new(1, 64, 128).transposed(false, true).stacked(8);
        let products = [batch.computed_in(Compute::Tf32), batch.computed_in(Compute::F16)];
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
            let record = result.record();
            assert_eq!(record.compute, gemm.compute);
            assert_eq!(record.best.configuration(), result.fastest().configuration);
        }
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
