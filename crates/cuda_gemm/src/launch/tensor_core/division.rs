//! How a product is divided into tiles and parts of K, for a kernel for tensor cores.

use std::iter;

use kernels_gpu::abi::tensor_core::{BK, MAX_CLUSTER_SIZE, TensorCoreDescriptor};

use crate::gemm::{Gemm, Workspace};

/// Numbers of blocks in a cluster that are chosen from: those of the run that costs are fitted to.
const SPLITS: [u32; 6] = [1, 2, 3, 4, 6, 8];

/// Units of K of all tiles are counted in less than 31 bits.
const MAX_UNITS: u64 = 1 << 31;

/// Tiles of a C of `rows` x `cols`.
pub(super) fn tiles([rows, cols]: [usize; 2], kernel: &TensorCoreDescriptor) -> u64 {
    let along = |size: usize, tile: u32| (size as u64).div_ceil(tile.into());
    along(rows, kernel.rows()).saturating_mul(along(cols, kernel.cols()))
}

/// The most blocks in a cluster: each has a step along K.
pub(crate) fn most_splits(gemm: &Gemm, kernel: &TensorCoreDescriptor) -> u32 {
    let steps = gemm.depth().div_ceil(BK as usize);
    if kernel.splits() { steps.clamp(1, MAX_CLUSTER_SIZE as usize) as u32 } else { 1 }
}

/// What the blocks of a launch have of one product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Division {
    /// Whether `C^T = B^T A^T` is computed, so that its rows are C's columns.
    pub transposed: bool,
    /// Tiles of C.
    pub tiles: u64,
    /// Parts of K, each for a block of its own of a cluster.
    pub splits: u32,
    /// Clusters that share the steps of the tiles of all products (*stream-K*); if none, there is one for each tile.
    pub clusters: Option<u32>,
    /// Blocks that are to share a multiprocessor's memory: as many as can, or one.
    pub blocks: u32,
}

/// What is asked of a division, where it is not to be what seems best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub splits: Option<u32>,
    pub clusters: Option<u32>,
    pub blocks: Option<u32>,
}

impl Division {
    /// A block for each tile.
    pub(super) fn whole(gemm: &Gemm, kernel: &TensorCoreDescriptor) -> Self {
        let (plain, swapped) = (tiles([gemm.m, gemm.n], kernel), tiles([gemm.n, gemm.m], kernel));
        // Where both are as many, the transpose is stored in longer rows.
        let transposed = kernel.splits() && swapped <= plain;
        let tiles = if transposed { swapped } else { plain };
        let blocks = kernel.blocks_per_multiprocessor();
        Self { transposed, tiles, splits: 1, clusters: None, blocks }
    }

    /// All that is chosen from for a product: several numbers of blocks in a cluster, and of each a cluster for each tile, or
    /// as many clusters as run at once, or one block for each multiprocessor; with memory for as many blocks as can share a
    /// multiprocessor, or all of it for one.
    pub(super) fn all(
        gemm: &Gemm,
        kernel: &TensorCoreDescriptor,
        multiprocessors: u32,
    ) -> impl Iterator<Item = Self> + use<> {
        let (gemm, whole) = (*gemm, Self::whole(gemm, kernel));
        let (most, most_splits) = (whole.blocks, most_splits(&gemm, kernel));
        let shared = [[most, most], [most, 1], [1, 1]];
        let count = match (kernel.splits(), most) {
            (false, _) => 0,
            (true, 1) => 1,
            (true, _) => shared.len(),
        };
        let alone = (kernel.splits() && most > 1).then_some(1);
        let splits = SPLITS.into_iter().filter(move |splits| *splits <= most_splits);
        splits.flat_map(move |splits| {
            let of = move |blocks| Self { splits, blocks, ..whole };
            let whole = iter::once(most).chain(alone).map(of);
            let shared = shared.into_iter().take(count).filter_map(move |[blocks, at_once]| {
                of(blocks).stream_k(&gemm, multiprocessors.saturating_mul(at_once) / splits)
            });
            whole.chain(shared)
        })
    }

    /// What asks for this division.
    pub(super) fn asked(self) -> Asked {
        let Self { splits, clusters, blocks, .. } = self;
        Asked { splits: Some(splits), clusters, blocks: Some(blocks) }
    }

    /// Tiles of all C, and steps along K of a block of each of them.
    fn tiles_and_units(&self, gemm: &Gemm) -> [u64; 2] {
        let steps = gemm.depth().div_ceil(BK as usize) as u64;
        let tiles = self.tiles.saturating_mul(gemm.batch as u64);
        [tiles, tiles.saturating_mul(steps / u64::from(self.splits))]
    }

    /// The same division with the steps of all tiles shared by `clusters`, if they can be.
    pub(super) fn stream_k(self, gemm: &Gemm, clusters: u32) -> Option<Self> {
        let [tiles, units] = self.tiles_and_units(gemm);
        let clusters_fit = clusters > 0 && u64::from(clusters) <= units && units < MAX_UNITS;
        (clusters_fit && u64::from(clusters) != tiles)
            .then_some(Self { clusters: Some(clusters), ..self })
    }

    /// The same division among `clusters`, or as many as there can be.
    pub(super) fn among(self, gemm: &Gemm, clusters: u32) -> Self {
        let [_, units] = self.tiles_and_units(gemm);
        let most = u32::try_from(units).unwrap_or(u32::MAX);
        self.stream_k(gemm, clusters.clamp(1, most.max(1))).unwrap_or(self)
    }

    /// Memory that the launch needs.
    pub(super) fn workspace(self, kernel: &TensorCoreDescriptor) -> Workspace {
        let clusters = u128::from(self.clusters.unwrap_or(0));
        let tile = u128::from(kernel.rows()) * u128::from(kernel.cols());
        let warps = self.splits * kernel.warps_with_sums();
        Workspace { partials: clusters * 2 * tile, counters: clusters * u128::from(warps) }
    }

    /// Which of A and B lie as the transposes of what the kernel takes for them, in its order, where they lie so or as
    /// they are multiplied.
    pub(super) fn transposes(self, [trans_a, trans_b]: [bool; 2]) -> [bool; 2] {
        match self.transposed {
            true => [!trans_b, !trans_a],
            false => [trans_a, trans_b],
        }
    }

    /// The place of the entry point among those of a kernel with layouts, likewise.
    pub(super) fn entry(self, transposes: [bool; 2]) -> usize {
        let [trans_a, trans_b] = self.transposes(transposes).map(usize::from);
        trans_a + 2 * trans_b
    }

    /// Which of A and B must have rows that begin on 16 bytes, in the caller's order.
    pub(super) fn needs_alignment(self, kernel: &TensorCoreDescriptor) -> [bool; 2] {
        self.ordered(kernel.takes_unaligned().map(|takes| !takes))
    }

    /// What belongs to A and to B, or to rows and to columns of C, in the kernel's order.
    pub(super) fn ordered<T>(self, [a, b]: [T; 2]) -> [T; 2] {
        if self.transposed { [b, a] } else { [a, b] }
    }
}
