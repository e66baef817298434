//! How a product is divided into tiles and parts of K, for a kernel for tensor cores.

use kernels_gpu::TensorCoreDescriptor;
use kernels_gpu::tensor_core::{BK, MOST_SPLITS};

use crate::gemm::Gemm;

/// Tiles of a C of so many rows and columns.
pub(super) fn tiles([rows, cols]: [usize; 2], kernel: &TensorCoreDescriptor) -> u64 {
    let along = |size: usize, tile: u32| (size as u64).div_ceil(tile.into());
    along(rows, kernel.rows()).saturating_mul(along(cols, kernel.cols()))
}

/// What the blocks of a launch have of one product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Division {
    /// Whether `C^T = B^T A^T` is computed, so that its rows are C's columns.
    pub transposed: bool,
    /// Tiles of C.
    pub tiles: u64,
    /// Parts of K, each for a block of its own.
    pub splits: u32,
}

impl Division {
    /// A block for each tile.
    pub(super) fn whole(gemm: &Gemm, kernel: &TensorCoreDescriptor) -> Self {
        let (plain, swapped) = (tiles([gemm.m, gemm.n], kernel), tiles([gemm.n, gemm.m], kernel));
        // Where both are as many, the transpose is stored in longer rows.
        match kernel.splits() && swapped <= plain {
            true => Self { transposed: true, tiles: swapped, splits: 1 },
            false => Self { transposed: false, tiles: plain, splits: 1 },
        }
    }

    /// All that a kernel can be launched in for a product.
    pub(super) fn all(
        gemm: &Gemm,
        kernel: &TensorCoreDescriptor,
    ) -> impl Iterator<Item = Self> + use<> {
        let whole = Self::whole(gemm, kernel);
        let steps = gemm.depth().div_ceil(BK as usize);
        let most = if kernel.splits() { steps.clamp(1, MOST_SPLITS as usize) as u32 } else { 1 };
        (1..=most).map(move |splits| Self { splits, ..whole })
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

    /// What belongs to A and to B, or to rows and to columns of C, in the kernel's order.
    pub(super) fn ordered<T>(self, [a, b]: [T; 2]) -> [T; 2] {
        if self.transposed { [b, a] } else { [a, b] }
    }
}
