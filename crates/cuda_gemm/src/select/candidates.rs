//! What a choice is made from: predicted times of all candidates.

use super::prediction::Prediction;
use super::{Auto, fmas_ahead, tf32, wgmma};
use crate::problem::{Compute, Gemm};

/// Kernels for f32 that are worth a measurement in other precisions.
const FMAS: usize = 4;

impl Auto {
    /// What a product should take: up to `count` kernels, in f32 each in up to two ways.
    ///
    /// The first is what is taken, unless the product [was measured](Auto::measured_choice); the
    /// others have the fastest first. Times are by costs, except of a kernel for f32 in another
    /// precision: if the product was measured in f32, that is its time. There are none where there
    /// are no costs.
    ///
    /// ```
    /// use cuda_gemm::{Compute, Device, DeviceChoice, Gemm};
    ///
    /// let auto = Device::open(DeviceChoice::SoftSm90)?.auto()?;
    /// let gemm = Gemm::new(16, 256, 4096).computed_in(Compute::Bf16);
    /// let [best, second] = auto.predictions(&gemm, 2)[..] else { panic!() };
    /// assert!(best.configuration.splits > 1 && best.ns <= second.ns);
    /// assert_eq!(best.configuration, auto.choose(&gemm)?);
    /// // The software device has none for f32.
    /// assert!(auto.predictions(&Gemm::new(16, 256, 4096), 2).is_empty());
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    pub fn predictions(&self, gemm: &Gemm, count: usize) -> Vec<Prediction> {
        let of_all = if is_f32(gemm) { count } else { usize::MAX };
        let mut all = self.candidates_with(gemm, of_all, 1);
        if !is_f32(gemm) {
            let mut names = Vec::new();
            all.retain(|Prediction { configuration, .. }| {
                let name = configuration.kernel.name();
                let is_first = !names.contains(&name);
                names.push(name);
                is_first
            });
            all.truncate(count);
        }
        all
    }

    /// What is worth a measurement for a product: up to `count` kernels and ways to divide the
    /// product, the first as for [`Auto::predictions`].
    ///
    /// ```
    /// use cuda_gemm::{Compute, Device, DeviceChoice, Gemm};
    ///
    /// let auto = Device::open(DeviceChoice::SoftSm90)?.auto()?;
    /// let gemm = Gemm::new(16, 256, 4096).computed_in(Compute::Bf16);
    /// for candidate in auto.candidates(&gemm, 5) {
    ///     let product = auto.plan_by(gemm, &candidate.configuration)?.prepare()?;
    ///     assert_eq!(*product.configuration(), candidate.configuration);
    /// }
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    pub fn candidates(&self, gemm: &Gemm, count: usize) -> Vec<Prediction> {
        let mut all = self.candidates_with(gemm, count, FMAS);
        if !is_f32(gemm)
            && let Some(taken) = self.predictions(gemm, 1).pop()
        {
            // Of kernels for f32 one that was measured is taken, not one whose costs say less.
            all.retain(|other| other.configuration != taken.configuration);
            all.insert(0, taken);
            all.truncate(count);
        }
        all
    }

    /// Like `candidates`, with `fmas` kernels for f32 among those of TF32.
    fn candidates_with(&self, gemm: &Gemm, count: usize, fmas: usize) -> Vec<Prediction> {
        let mut all = match gemm.compute {
            Compute::F32 => return self.ranking(gemm, count),
            Compute::Tf32 | Compute::Tf32x3 => {
                tf32::times(gemm, self.gpu()).chain(self.fma_ranking(gemm, fmas)).collect()
            }
            Compute::Bf16 | Compute::F16 => wgmma::times(gemm, self.device.info()),
        };
        let ahead = |one: &Prediction| match Compute::F32.is_of(one.configuration.kernel) {
            true => one.ns / fmas_ahead(gemm.compute),
            false => one.ns,
        };
        all.sort_by(|one, other| ahead(one).total_cmp(&ahead(other)));
        all.truncate(count);
        all
    }
}

/// What is taken in f32 need not have the least time.
fn is_f32(gemm: &Gemm) -> bool {
    gemm.compute == Compute::F32
}
