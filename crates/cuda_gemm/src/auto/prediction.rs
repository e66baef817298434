//! What a choice in any precision is made from: predicted times.

use kernels_gpu::KernelDescriptor;

use super::model::Estimate;
use super::{Auto, Choice, tf32};
use crate::gemm::{Compute, Gemm};
use crate::launch::tensor_core::{self, TensorCoreTime};

/// What a kernel should take for a product: see [`Auto::predictions`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The kernel's name.
    pub kernel: &'static str,
    /// Parts of K that are summed over by blocks of their own.
    pub splits: u32,
    /// Clusters of so many blocks that share the steps along K of all tiles (stream-K), in place of one for each tile: see
    /// [`TensorCorePlan::clusters`](crate::TensorCorePlan::clusters).
    pub clusters: Option<u32>,
    /// Whether A and B are staged where 128-bit accesses do not reach them: see [`Choice::staged`].
    pub staged: bool,
    /// The time, in nanoseconds.
    pub ns: f64,
    /// Whether memory takes longer than the blocks, where costs tell the two apart.
    pub memory_bound: Option<bool>,
}

impl From<Estimate> for Prediction {
    fn from(Estimate { choice, ns, memory_bound }: Estimate) -> Self {
        let Choice { descriptor, splits, staged } = choice;
        let kernel = descriptor.name();
        Self { kernel, splits, clusters: None, staged, ns, memory_bound: Some(memory_bound) }
    }
}

impl Auto {
    /// The best few choices for a product in whichever precision it says, by costs alone: the one that is taken, and then
    /// the fastest first; none where there are no costs.
    ///
    /// ```
    /// use cuda_gemm::{Compute, Device, DeviceChoice, Gemm};
    ///
    /// let auto = Device::open(DeviceChoice::SoftSm90)?.auto()?;
    /// let gemm = Gemm::new(16, 256, 4096).computed_in(Compute::Bf16);
    /// let [best, second] = auto.predictions(&gemm, 2)[..] else { panic!() };
    /// assert!(best.splits > 1 && best.ns <= second.ns);
    /// assert_eq!(best.kernel, auto.product(gemm)?.kernel_name());
    /// // The software device has none for f32.
    /// assert!(auto.predictions(&Gemm::new(16, 256, 4096), 2).is_empty());
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    pub fn predictions(&self, gemm: &Gemm, count: usize) -> Vec<Prediction> {
        let info = self.device.info();
        let mut all: Vec<_> = match gemm.compute {
            Compute::F32 => self.ranking(gemm, count).into_iter().map(Prediction::from).collect(),
            Compute::Tf32 | Compute::Tf32x3 => {
                let times = tf32::times(gemm, self.gpu(), &self.factors);
                let of = |(descriptor, splits, us): (&'static KernelDescriptor, usize, f64)| {
                    Prediction {
                        kernel: descriptor.name(),
                        splits: splits as u32,
                        clusters: None,
                        staged: tf32::is_staged(gemm, descriptor),
                        ns: 1e3 * us,
                        memory_bound: None,
                    }
                };
                let mut all: Vec<_> = times.map(of).collect();
                all.extend(self.fastest_fma(gemm).map(Prediction::from));
                all.sort_by(|one, other| one.ns.total_cmp(&other.ns));
                let mut names = Vec::new();
                all.retain(|one| {
                    let is_first = !names.contains(&one.kernel);
                    names.push(one.kernel);
                    is_first
                });
                all
            }
            Compute::Bf16 | Compute::F16 => {
                let of = |TensorCoreTime { kernel, splits, clusters, us }| Prediction {
                    kernel,
                    splits,
                    clusters,
                    staged: false,
                    ns: 1e3 * us,
                    memory_bound: None,
                };
                tensor_core::times(gemm, info, &self.factors).into_iter().map(of).collect()
            }
        };
        all.truncate(count);
        all
    }
}
