//! Which products can be launched in which configuration.

use kernels_gpu::abi::{KernelAbi, KernelDescriptor, Target};

use super::clusters::{most_splits, possible_columns};
use super::configuration::Configuration;
use super::form::KernelForm;
use crate::problem::{Compute, Gemm};

impl Configuration {
    /// Whether a product's size, precision and layout can be launched like this; otherwise the
    /// reason.
    ///
    /// The epilogue and the type of C do not matter. `capability` is the device's compute
    /// capability.
    pub(crate) fn expect_possible(
        &self,
        gemm: &Gemm,
        capability: (u32, u32),
    ) -> Result<(), String> {
        let Self { kernel, splits, clusters, staged, .. } = *self;
        let blocks = self.blocks_per_multiprocessor;
        let (name, abi) = (kernel.name(), kernel.abi());
        if gemm.compute.with(kernel).is_err() && !is_fma_for_tf32(gemm, kernel) {
            return Err(format!("`{name}` does not compute in {}", gemm.compute));
        }
        if abi == KernelAbi::Wgmma {
            return Err(format!("`{name}` takes single plain products alone"));
        }
        if kernel.target() == Target::Sm90a && capability != (9, 0) {
            let (major, minor) = capability;
            return Err(format!(
                "`{name}` needs compute capability 9.0, and the device has {major}.{minor}"
            ));
        }
        let has_clusters = abi == KernelAbi::WgmmaClusters;
        if (splits > 1 && !abi.splits_k()) || (staged && abi != KernelAbi::SplitK) {
            return Err(format!("`{name}` takes neither splits nor copies"));
        }
        let most_splits = if has_clusters { most_splits(gemm, kernel) } else { u32::MAX };
        let has_blocks = kernel.blocks_per_multiprocessor() > 1;
        let form = KernelForm::of(gemm, self);
        let is_possible = (1..=most_splits).contains(&splits)
            && clusters.is_none_or(|clusters| clusters > 0 && has_clusters)
            && self.columns == possible_columns(&form, kernel, self.columns)
            && self.transposes_c == form.orientation(gemm, kernel)
            && blocks.is_none_or(|blocks| blocks == 1 && has_clusters && has_blocks);
        is_possible.then_some(()).ok_or_else(|| format!("`{name}` cannot be launched so: {self}"))
    }
}

/// Whether FMAs may compute this TF32 product: they are at least as accurate.
pub(crate) fn is_fma_for_tf32(gemm: &Gemm, kernel: &KernelDescriptor) -> bool {
    matches!(gemm.compute, Compute::Tf32 | Compute::Tf32x3) && Compute::F32.is_of(kernel)
}
