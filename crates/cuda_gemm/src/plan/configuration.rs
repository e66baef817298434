//! A kernel and its launch settings.

use std::fmt;

use kernels_gpu::abi::{KernelAbi, KernelDescriptor, Target, Tile};
use serde::{Deserialize, Serialize};

use super::clusters::{most_splits, possible_columns};
use super::form::KernelForm;
use super::names::by_name;
use crate::problem::{Compute, Gemm};

/// A kernel, and the division of a product among its blocks.
///
/// ```
/// use cuda_gemm::{Configuration, find_kernel};
///
/// let kernel = find_kernel("tile_64x64")?;
/// let configuration = Configuration { splits: 3, staged: true, ..Configuration::new(kernel) };
/// assert_eq!(configuration.to_string(), "tile_64x64 in 3 splits, staged");
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Configuration {
    /// The kernel.
    #[serde(with = "by_name")]
    pub kernel: &'static KernelDescriptor,
    /// Parts of K, each summed by a block of its own; 1 if K is not split.
    pub splits: u32,
    /// Stream-K: the clusters of `splits` blocks that share the steps along K of all tiles.
    ///
    /// `None` means that clusters share no tile. A cluster of one block may then take several. For a
    /// kernel with [`KernelAbi::WgmmaClusters`].
    pub clusters: Option<u32>,
    /// Columns of a tile, if fewer than the kernel's.
    ///
    /// A multiple of 16, or of 64 if the kernel's B does not lie along K. For a kernel that
    /// [narrows](KernelDescriptor::narrows).
    pub columns: Option<u32>,
    /// Whether C is stored as the transpose of the result, `C^T = B^T A^T`.
    ///
    /// `None` chooses the form with fewer tiles, or C itself at equal numbers. For a kernel with
    /// [`KernelAbi::WgmmaClusters`].
    pub transposes_c: Option<bool>,
    /// Blocks per multiprocessor, if fewer than [the
    /// most](KernelDescriptor::blocks_per_multiprocessor).
    ///
    /// The only such number is 1, which gives a block more stages.
    pub blocks_per_multiprocessor: Option<u32>,
    /// Whether misaligned A and B are copied first, for a kernel with [`KernelAbi::SplitK`].
    #[serde(default, rename = "packed")]
    pub staged: bool,
}

impl Configuration {
    /// A configuration whose blocks compute whole tiles.
    pub const fn new(kernel: &'static KernelDescriptor) -> Self {
        Self {
            kernel,
            splits: 1,
            clusters: None,
            columns: None,
            transposes_c: None,
            blocks_per_multiprocessor: None,
            staged: false,
        }
    }

    /// The tile that a block computes.
    pub fn tile(&self) -> Tile {
        let tile = self.kernel.tile();
        Tile { bn: self.columns.unwrap_or(tile.bn), ..tile }
    }

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

impl PartialEq for Configuration {
    fn eq(&self, other: &Self) -> bool {
        let parts = |of: &Self| {
            // Names are unique.
            let name = of.kernel.name();
            let launch = (of.splits, of.clusters, of.blocks_per_multiprocessor);
            (name, launch, of.columns, of.transposes_c, of.staged)
        };
        parts(self) == parts(other)
    }
}

impl Eq for Configuration {}

impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

/// Writes words, as in `wgmma_split_64x16 in 2 splits by 66 clusters`.
impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, splits, clusters, columns, .. } = *self;
        f.write_str(kernel.name())?;
        if let Some(columns) = columns {
            write!(f, " of {columns} columns")?;
        }
        if splits > 1 {
            write!(f, " in {splits} splits")?;
        }
        if let Some(clusters) = clusters {
            write!(f, " by {clusters} clusters")?;
        }
        if let Some(transposes_c) = self.transposes_c {
            f.write_str(if transposes_c { ", transposed" } else { ", not transposed" })?;
        }
        if let Some(blocks) = self.blocks_per_multiprocessor {
            let blocks_are = if blocks == 1 { "block" } else { "blocks" };
            write!(f, ", {blocks} {blocks_are} on a multiprocessor")?;
        }
        f.write_str(if self.staged { ", staged" } else { "" })
    }
}
