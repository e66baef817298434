//! A kernel and how it is launched, whatever it computes in.

use std::fmt;

use kernels_gpu::TENSOR_CORE;
use kernels_gpu::abi::tensor_core::{InputType, TensorCoreAbi, TensorCoreDescriptor};
use kernels_gpu::abi::{KernelAbi, KernelDescriptor, Target};

use super::choice::Choice;
use crate::gemm::{Compute, Gemm};
use crate::launch::TensorCorePlan;
use crate::launch::tensor_core::{self, Asked};

/// A kernel, by its name, and how a product is launched with it: [`Auto::product_by`](crate::Auto::product_by) prepares one so.
///
/// ```
/// use cuda_gemm::auto::Configuration;
/// use cuda_gemm::{Choice, find_kernel};
///
/// let choice = Choice { descriptor: find_kernel("tile_64x64")?, splits: 3, staged: false };
/// assert_eq!(Configuration::from(choice).to_string(), "tile_64x64 in 3 splits");
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The kernel's name; of one for matrices in 16 bits that for bf16.
    pub kernel: &'static str,
    /// Parts of K that are summed over by blocks of their own; 1 where K is not split.
    pub splits: u32,
    /// Clusters of so many blocks that share the steps along K of all tiles (stream-K), in place of one for each tile: see
    /// [`TensorCorePlan::clusters`](crate::TensorCorePlan::clusters).
    pub clusters: Option<u32>,
    /// Blocks that share a multiprocessor, where they are fewer than [could be](TensorCoreDescriptor::blocks_per_multiprocessor): see
    /// [`TensorCoreBuilder::blocks_per_multiprocessor`](crate::TensorCoreBuilder::blocks_per_multiprocessor).
    pub blocks_per_multiprocessor: Option<u32>,
    /// Whether A and B are staged where 128-bit accesses do not reach them: see [`Choice::staged`].
    pub staged: bool,
}

impl From<Choice> for Configuration {
    fn from(Choice { descriptor, splits, staged }: Choice) -> Self {
        let kernel = descriptor.name();
        Self { kernel, splits, clusters: None, blocks_per_multiprocessor: None, staged }
    }
}

impl From<&TensorCorePlan> for Configuration {
    fn from(plan: &TensorCorePlan) -> Self {
        let kernel = plan.kernel().descriptor();
        let [splits, blocks] = [plan.splits(), plan.blocks_per_multiprocessor()].map(Some);
        Self::of_division(kernel, Asked { splits, clusters: plan.clusters(), blocks })
    }
}

/// A kernel by which products in a precision may be computed.
#[derive(Clone, Copy)]
pub(in crate::auto) enum AnyKernel {
    /// For f32 matrices.
    F32(&'static KernelDescriptor),
    /// For matrices in 16 bits, of this type.
    Half(&'static TensorCoreDescriptor, InputType),
}

impl AnyKernel {
    /// The one with this name, if it is for products in this precision; FMAs are for those in TF32 and tf32x3, too.
    pub(in crate::auto) fn find(name: &str, compute: Compute) -> Option<Self> {
        match compute.input() {
            Some(input) => {
                let known = TENSOR_CORE.iter().find(|known| known.name() == name)?;
                Some(Self::Half(known, input))
            }
            None => {
                let mut known = compute.f32_kernels().chain(Compute::F32.f32_kernels());
                known.find(|known| known.name() == name).map(Self::F32)
            }
        }
    }
}

impl Configuration {
    /// A kernel for matrices in 16 bits, with what is asked of its division.
    pub(super) fn of_division(kernel: &TensorCoreDescriptor, division: Asked) -> Self {
        let most = kernel.blocks_per_multiprocessor();
        Self {
            kernel: kernel.name(),
            splits: division.splits.unwrap_or(1),
            clusters: division.clusters,
            blocks_per_multiprocessor: division.blocks.filter(|blocks| *blocks < most),
            staged: false,
        }
    }

    /// What asks for its division of that kernel.
    pub(super) fn division(&self, kernel: &TensorCoreDescriptor) -> Asked {
        let most = kernel.blocks_per_multiprocessor();
        let blocks = Some(self.blocks_per_multiprocessor.unwrap_or(most));
        Asked { splits: Some(self.splits), clusters: self.clusters, blocks }
    }

    /// The kernel, if a product of this size, precision and layout can be launched so on a device of this compute capability, whatever its
    /// epilogue and the type of its C are; otherwise why not.
    pub(in crate::auto) fn kernel_for(
        &self,
        gemm: &Gemm,
        capability: (u32, u32),
    ) -> Result<AnyKernel, String> {
        let Self { kernel, splits, clusters, blocks_per_multiprocessor: blocks, staged } = *self;
        let Some(known) = AnyKernel::find(kernel, gemm.compute) else {
            return Err(format!("`{kernel}` does not compute in {}", gemm.compute));
        };
        let (takes_splits, takes_copies, needs_hopper) = match known {
            AnyKernel::F32(known) => {
                let abi = known.abi();
                let is_of_hopper = known.target() == Target::Sm90a || abi.has_tensor_maps();
                (abi.splits_k(), abi == KernelAbi::SplitK, is_of_hopper)
            }
            AnyKernel::Half(known, input) => {
                if known.layouts(input).is_none() {
                    return Err(format!("`{kernel}` takes single plain products alone"));
                }
                (known.splits(), false, known.abi() == TensorCoreAbi::TensorMap)
            }
        };
        if needs_hopper && capability != (9, 0) {
            let (major, minor) = capability;
            return Err(format!(
                "`{kernel}` needs compute capability 9.0, and the device has {major}.{minor}"
            ));
        }
        let (most_splits, most_blocks, has_clusters) = match known {
            AnyKernel::F32(_) => (u32::MAX, 1, false),
            AnyKernel::Half(known, _) => (
                tensor_core::most_splits(gemm, known),
                if takes_splits { known.blocks_per_multiprocessor() } else { 1 },
                takes_splits,
            ),
        };
        if (splits > 1 && !takes_splits) || (staged && !takes_copies) {
            return Err(format!("`{kernel}` takes neither splits nor copies"));
        }
        let is_possible = (1..=most_splits).contains(&splits)
            && clusters.is_none_or(|clusters| clusters > 0 && has_clusters)
            && blocks.is_none_or(|blocks| blocks == 1 && most_blocks > 1);
        is_possible
            .then_some(known)
            .ok_or_else(|| format!("`{kernel}` cannot be launched so: {self}"))
    }

    /// The same as a choice among the kernels for f32 matrices, if the kernel is one for such products in this precision.
    pub fn choice(&self, compute: Compute) -> Option<Choice> {
        match AnyKernel::find(self.kernel, compute)? {
            AnyKernel::F32(descriptor) => {
                Some(Choice { descriptor, splits: self.splits, staged: self.staged })
            }
            AnyKernel::Half(..) => None,
        }
    }
}

/// In words, as in `wgmma_split_64x16 in 2 splits by 66 clusters`.
impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, splits, clusters, blocks_per_multiprocessor, staged } = *self;
        f.write_str(kernel)?;
        if splits > 1 {
            write!(f, " in {splits} splits")?;
        }
        if let Some(clusters) = clusters {
            write!(f, " by {clusters} clusters")?;
        }
        if let Some(blocks) = blocks_per_multiprocessor {
            let blocks_are = if blocks == 1 { "block" } else { "blocks" };
            write!(f, ", {blocks} {blocks_are} on a multiprocessor")?;
        }
        f.write_str(if staged { ", staged" } else { "" })
    }
}
