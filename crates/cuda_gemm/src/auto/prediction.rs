//! What a choice in any precision is made from: predicted times.

use super::model::Estimate;
use super::{Auto, Choice, Configuration, fmas_ahead, tf32};
use crate::gemm::{Compute, Gemm};
use crate::launch::tensor_core;

/// What a kernel should take for a product: see [`Auto::predictions`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The kernel, and how it is launched.
    pub configuration: Configuration,
    /// The time, in nanoseconds.
    pub ns: f64,
    /// Whether memory takes longer than the blocks, where costs tell the two apart.
    pub memory_bound: Option<bool>,
}

/// Kernels for f32 that are worth a measurement in other precisions.
const FMAS: usize = 4;

impl From<Estimate> for Prediction {
    fn from(Estimate { choice, ns, memory_bound }: Estimate) -> Self {
        Self { configuration: choice.into(), ns, memory_bound: Some(memory_bound) }
    }
}

impl Auto {
    /// What a product should take in nanoseconds, in whichever precision it says: up to `count` kernels, in f32 each in up to two ways. The first is
    /// what is taken, unless the product has an [exception](Auto::exception); the others have the fastest first. Times are by costs, but of a
    /// kernel for f32 in another precision what was measured, if this product was measured in f32. There are none where there are no costs.
    ///
    /// ```
    /// use cuda_gemm::{Compute, Device, DeviceChoice, Gemm};
    ///
    /// let auto = Device::open(DeviceChoice::SoftSm90)?.auto()?;
    /// let gemm = Gemm::new(16, 256, 4096).computed_in(Compute::Bf16);
    /// let [best, second] = auto.predictions(&gemm, 2)[..] else { panic!() };
    /// assert!(best.configuration.splits > 1 && best.ns <= second.ns);
    /// assert_eq!(best.configuration.kernel, auto.product(gemm)?.kernel_name());
    /// // The software device has none for f32.
    /// assert!(auto.predictions(&Gemm::new(16, 256, 4096), 2).is_empty());
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    pub fn predictions(&self, gemm: &Gemm, count: usize) -> Vec<Prediction> {
        let of_all = if is_f32(gemm) { count } else { usize::MAX };
        let mut all = self.candidates_with(gemm, of_all, 1);
        if !is_f32(gemm) {
            let mut names = Vec::new();
            all.retain(|Prediction { configuration: Configuration { kernel, .. }, .. }| {
                let is_first = !names.contains(kernel);
                names.push(*kernel);
                is_first
            });
            all.truncate(count);
        }
        all
    }

    /// What is worth a measurement for a product: up to `count` kernels and ways to divide the product, the first as for [`Auto::predictions`].
    /// In 16 bits those for matrices whose rows begin on 16 bytes where the product's do; what they are prepared for otherwise needs
    /// [`any_alignment`](crate::launch::ProductBuilder::any_alignment).
    ///
    /// ```
    /// use cuda_gemm::{Compute, Device, DeviceChoice, Gemm};
    ///
    /// let auto = Device::open(DeviceChoice::SoftSm90)?.auto()?;
    /// let gemm = Gemm::new(16, 256, 4096).computed_in(Compute::Bf16);
    /// for candidate in auto.candidates(&gemm, 5) {
    ///     let product = auto.product_by(gemm, &candidate.configuration)?.prepare()?;
    ///     assert_eq!(product.splits().unwrap_or(1), candidate.configuration.splits);
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

    /// The same with so many kernels for f32 in other precisions.
    fn candidates_with(&self, gemm: &Gemm, count: usize, fmas: usize) -> Vec<Prediction> {
        let mut all: Vec<_> = match gemm.compute {
            Compute::F32 => self.ranking(gemm, count).into_iter().map(Prediction::from).collect(),
            Compute::Tf32 | Compute::Tf32x3 => {
                let times = tf32::times(gemm, self.gpu());
                let times = times.map(|(descriptor, splits, us)| {
                    let (splits, staged) = (splits as u32, tf32::is_staged(gemm, descriptor));
                    let configuration = Choice { descriptor, splits, staged }.into();
                    Prediction { configuration, ns: 1e3 * us, memory_bound: None }
                });
                let fmas = self.fma_ranking(gemm, fmas);
                times.chain(fmas.into_iter().map(Prediction::from)).collect()
            }
            Compute::Bf16 | Compute::F16 => {
                let times = tensor_core::times(gemm, self.device.info());
                let times = times.map(|time| Prediction {
                    configuration: Configuration::of_division(time.kernel, time.division),
                    ns: 1e3 * time.us,
                    memory_bound: None,
                });
                times.collect()
            }
        };
        if !is_f32(gemm) {
            let is_fma = |one: &Prediction| {
                let choice = one.configuration.choice(gemm.compute);
                choice.is_some_and(|choice| Compute::of_kernel(choice.descriptor) == Compute::F32)
            };
            let ahead = |one: &Prediction| {
                one.ns / if is_fma(one) { fmas_ahead(gemm.compute) } else { 1.0 }
            };
            all.sort_by(|one, other| ahead(one).total_cmp(&ahead(other)));
            all.truncate(count);
        }
        all
    }
}

/// What is taken in f32 need not have the least time.
fn is_f32(gemm: &Gemm) -> bool {
    gemm.compute == Compute::F32
}
