//! A kernel and its launch settings.

use std::fmt;

use kernels_gpu::abi::{KernelDescriptor, Tile};
use serde::{Deserialize, Serialize};

use super::names::by_name;

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
    /// kernel with [`KernelAbi::WgmmaClusters`](kernels_gpu::abi::KernelAbi::WgmmaClusters).
    pub clusters: Option<u32>,
    /// Columns of a tile, if fewer than the kernel's.
    ///
    /// A multiple of 16, or of 64 if the kernel's B does not lie along K. For a kernel that
    /// [narrows](KernelDescriptor::narrows).
    pub columns: Option<u32>,
    /// Whether C is stored as the transpose of the result, `C^T = B^T A^T`.
    ///
    /// `None` chooses the form with fewer tiles, or C itself at equal numbers. For a kernel with
    /// [`KernelAbi::WgmmaClusters`](kernels_gpu::abi::KernelAbi::WgmmaClusters).
    pub transposes_c: Option<bool>,
    /// Blocks per multiprocessor, if fewer than [the
    /// most](KernelDescriptor::blocks_per_multiprocessor).
    ///
    /// The only such number is 1, which gives a block more stages.
    pub blocks_per_multiprocessor: Option<u32>,
    /// Whether misaligned A and B are copied first, for a kernel with
    /// [`KernelAbi::SplitK`](kernels_gpu::abi::KernelAbi::SplitK).
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
