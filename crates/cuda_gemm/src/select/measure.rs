//! Times a product's best predictions, and keeps the fastest.
//!
//! A measurement has matrices of its own, so that the caller's C is untouched. It works on the
//! caller's stream, after earlier work, and waits for the end. In a stream capture nothing is
//! measured.
//!
//! All results must agree first ([`agreement`]). Then the choices take turns for several rounds. L2
//! is cold: launches take turns on more copies of the matrices than fit into it. To overwrite a
//! buffer instead would leave L2 full of lines that the next launch has to write back. The median
//! counts.

mod agreement;
mod rehearsal;

use std::fmt;

use super::Auto;
use super::measured::{Source, Store};
use super::product_key::{as_launched, dense};
use super::table::{MeasuredProduct, Timed};
use crate::device::Stream;
use crate::error::{Error, ErrorKind};
use crate::plan::{Configuration, PlanBuilder};
use crate::problem::Gemm;

use rehearsal::rehearse;

/// The result of [`Auto::measure`] for a product.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The product.
    pub gemm: Gemm,
    /// The choice from now on.
    pub choice: Configuration,
    /// The timed choices: the one before measuring, then by prediction. Empty if nothing was
    /// measured.
    pub timed: Vec<Timed>,
    /// The choices with wrong results, and how these differ.
    pub dropped: Vec<(Configuration, String)>,
    /// The reason if nothing was measured.
    pub skipped: Option<Skipped>,
}

/// The reason why a product was not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Skipped {
    /// It was measured before.
    Known,
    /// The stream captures.
    Capture,
    /// It [cannot have a record](MeasuredProduct::is_possible).
    NoRecord,
    /// There are fewer than two choices to compare.
    NoChoice,
    /// Its sums are too long to be compared exactly.
    TooLong,
    /// Device memory is too short for the matrices.
    Memory,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Known => "it was measured before",
            Self::Capture => "the stream captures a graph",
            Self::NoRecord => {
                "its rows are in groups, its matrices are not like dense ones, alpha is 0, or a \
                 batch shares A or B"
            }
            Self::NoChoice => "there are fewer than two choices to compare",
            Self::TooLong => "its sums are too long to be compared exactly",
            Self::Memory => "device memory is too short",
        })
    }
}

impl Measurement {
    /// The fastest choice. `None` if results disagree, since nobody knows which is right.
    pub fn fastest(&self) -> Option<&Timed> {
        let fastest = self.timed.iter().min_by(|one, other| one.ns.total_cmp(&other.ns));
        fastest.filter(|_| self.dropped.is_empty())
    }

    /// An error that names the dropped choices, if any.
    fn expect_agreement(&self) -> Result<(), Error> {
        if self.dropped.is_empty() {
            return Ok(());
        }
        let reasons = self.dropped.iter().map(|(dropped, reason)| format!("{dropped}: {reason}"));
        let Gemm { m, n, k, compute, .. } = self.gemm;
        Err(Error::Disagreement {
            product: format!("{m}x{n}x{k} in {compute}"),
            reason: reasons.collect::<Vec<_>>().join("; "),
        })
    }
}

impl Auto {
    /// Measures these products, except those measured before. [By the model
    /// alone](Auto::by_model_alone), it measures all of them.
    ///
    /// A program calls this before it serves, with all products that it will have. Each product
    /// costs a few milliseconds on a GPU. For progress, call it for one product at a time.
    ///
    /// - It times the first `candidates` choices of the model with random matrices of its own, and
    ///   with a cold L2 cache. The fastest is the choice from now on.
    /// - It first compares their results. A choice whose result differs is in
    ///   [`Measurement::dropped`], and the product's earlier record is removed.
    /// - It keeps the results in the [device's file](crate::select::ProductFile::of), for later
    ///   processes. They hold for this GPU, its driver and the PTX of the kernels.
    /// - Errors of rounding are not compared.
    ///
    /// ```
    /// use cuda_gemm::select::Skipped;
    /// use cuda_gemm::{Compute, Device, DeviceChoice, Gemm};
    ///
    /// let device = Device::open(DeviceChoice::SoftSm90)?;
    /// let auto = device.auto()?;
    /// let layer = Gemm::new(16, 64, 128).transposed(false, true).computed_in(Compute::Bf16);
    /// for measured in auto.measure(&[layer], 3)? {
    ///     assert!(measured.dropped.is_empty());
    ///     println!("{}: {:?}", measured.choice, measured.timed);
    /// }
    /// let again = auto.measure(&[layer], 3)?;
    /// assert_eq!(again[0].skipped, Some(Skipped::Known));
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`Error::ProductFile`] if the file cannot be read or written. It is read before anything
    ///   is measured. Each problem is returned once. Later calls do without the file.
    /// - The errors of [`Auto::choose`] and [`PlanBuilder::prepare`], and a fault of a kernel.
    pub fn measure(&self, products: &[Gemm], candidates: usize) -> Result<Vec<Measurement>, Error> {
        self.measure_on(&self.device.stream(), products, candidates)
    }

    /// Measures products on a stream.
    pub(super) fn measure_on(
        &self,
        stream: &Stream,
        products: &[Gemm],
        candidates: usize,
    ) -> Result<Vec<Measurement>, Error> {
        let store = Store::of(&self.device);
        // Another thread's capture ends first.
        let _exclusive = stream.exclusive();
        if stream.is_capturing()? {
            let skipped = |gemm: &Gemm| self.skipped(gemm, Skipped::Capture);
            return products.iter().map(skipped).collect();
        }
        // After the stream, which a caller may hold already.
        let _measuring = store.measuring();
        store.refresh(&self.device);
        store.problem()?;
        let (mut found, mut records, mut doubtful) = (Vec::new(), Vec::new(), Vec::new());
        let measured = products.iter().try_for_each(|gemm| {
            let one = self.measure_one(stream, gemm, candidates)?;
            let one = one.or_else(|reason| self.skipped(gemm, reason))?;
            match one.fastest() {
                Some(best) => records.push(MeasuredProduct::new(gemm, *best)),
                // No earlier record survives: its kernel may be the wrong one.
                None if !one.dropped.is_empty() => {
                    doubtful.push(MeasuredProduct::new(gemm, Timed::new(one.choice, 1.0)));
                }
                None => {}
            }
            found.push(one);
            Ok(())
        });
        // Measurements before an error are not lost.
        let kept = store.remember(&self.device, &records);
        let forgotten = store.forget(&self.device, &doubtful);
        measured.and(kept).and(forgotten).map(|()| found)
    }

    fn measure_one(
        &self,
        stream: &Stream,
        gemm: &Gemm,
        candidates: usize,
    ) -> Result<Result<Measurement, Skipped>, Error> {
        gemm.validate()?;
        if !MeasuredProduct::is_possible(gemm) {
            return Ok(Err(Skipped::NoRecord));
        }
        if self.is_known(gemm) {
            return Ok(Err(Skipped::Known));
        }
        let choices = self.worth_timing(gemm, candidates)?;
        if choices.len() < 2 || gemm.flops() == 0.0 {
            return Ok(Err(Skipped::NoChoice));
        }
        let (timed, dropped) = match rehearse(self, stream, &as_measured(gemm), &choices) {
            Ok(Ok(found)) => found,
            Ok(Err(reason)) => return Ok(Err(reason)),
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                return Ok(Err(Skipped::Memory));
            }
            Err(error) => return Err(error),
        };
        let (gemm, choice) = (*gemm, choices[0]);
        let mut measured = Measurement { gemm, choice, timed, dropped, skipped: None };
        measured.choice = measured.fastest().map_or(choice, |timed| timed.configuration);
        Ok(Ok(measured))
    }

    /// Whether this device measured the product. A record of a product without an epilogue may be
    /// of a kernel that has none, and does not count.
    fn is_known(&self, gemm: &Gemm) -> bool {
        self.measured_choice(gemm).is_some_and(|found| found.source != Source::Table)
    }

    /// The choice before measuring, then the model's next ones.
    fn worth_timing(&self, gemm: &Gemm, count: usize) -> Result<Vec<Configuration>, Error> {
        let mut choices = vec![self.choose(gemm)?];
        for prediction in self.candidates(gemm, count) {
            let choice = prediction.configuration;
            if !choices.contains(&choice) && gemm.suits(choice.kernel) {
                choices.push(choice);
            }
        }
        choices.truncate(count);
        Ok(choices)
    }

    fn skipped(&self, gemm: &Gemm, reason: Skipped) -> Result<Measurement, Error> {
        let choice = self.choose(gemm)?;
        let (timed, dropped) = (Vec::new(), Vec::new());
        Ok(Measurement { gemm: *gemm, choice, timed, dropped, skipped: Some(reason) })
    }

    /// The plan of a product on a stream. With two candidates or more, a new product is measured
    /// first.
    pub(crate) fn plan_on(
        &self,
        gemm: Gemm,
        stream: &Stream,
        candidates: usize,
    ) -> Result<PlanBuilder, Error> {
        if candidates > 1 && self.by_measurements && !self.is_known(&gemm) {
            let measured = self.measure_on(stream, &[gemm], candidates)?;
            measured.iter().try_for_each(Measurement::expect_agreement)?;
        }
        Ok(self.plan_by(gemm, &self.choose(&gemm)?)?.on(stream))
    }
}

/// The product that stands for all with its record. Its matrices are dense.
fn as_measured(gemm: &Gemm) -> Gemm {
    let Gemm { m, n, k, trans_a, trans_b, batch, compute, .. } = as_launched(gemm);
    let product = dense([m, n, k], [trans_a, trans_b], batch, compute);
    if !compute.is_16_bits() {
        return product;
    }
    let reads_c = gemm.factors_on_device || gemm.beta != 0.0;
    let product = product.stored_as(gemm.output).scaled(1.0, if reads_c { 1.0 } else { 0.0 });
    product.then(gemm.epilogue)
}

#[cfg(test)]
mod tests;
