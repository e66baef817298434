//! The geometry of a kernel, as one type.

use crate::abi::Tile;

/// The geometry of a kernel: constants of a type without values, like CUTLASS's `GemmShape`.
///
/// All sizes are counts of f32 elements.
pub trait Geometry {
    /// Rows and columns of C per block, and its step along K (`ThreadblockShape`).
    const BM: u32;
    const BN: u32;
    const BK: u32;
    /// Rows and columns of C per warp (`WarpShape`), or less if a warp has several slices.
    const WM: u32;
    const WN: u32;
    /// Rows and columns of C per thread.
    const TM: u32;
    const TN: u32;
    /// Slices of a block's step along K (slice-K; CUTLASS's `kPartitionsK`).
    const SLICES: u32;
    /// Stages of the circular buffer in shared memory.
    const STAGES: u32;
    /// Quads of a thread that go through an epilogue at once. More quads wait for memory less
    /// often, but take more registers.
    const EPILOGUE_QUADS: u32 = 4;
    /// The largest K with which the sums of each slice are compensated; 0 if none are.
    ///
    /// They are only in a launch of at most [`COMPENSATED_BLOCKS`](Self::COMPENSATED_BLOCKS), which
    /// waits for other things. That is two blocks for each of an H100's multiprocessors. The
    /// smallest K that gains is 3.
    const COMPENSATED_K: u32 = 0;
    const COMPENSATED_BLOCKS: u32 = 264;

    /// Threads of a slice, which have a sum of every output of the block's tile. Below: threads of
    /// a block.
    const SLICE_THREADS: u32 = Self::BM / Self::TM * (Self::BN / Self::TN);
    const THREADS: u32 = Self::SLICE_THREADS * Self::SLICES;
    /// A slice's part of a step along K.
    const SLICE_K: u32 = Self::BK / Self::SLICES;

    /// The geometry as the host sees it.
    const TILE: Tile =
        Tile { bm: Self::BM, bn: Self::BN, bk: Self::BK, tm: Self::TM, tn: Self::TN };

    /// Waits until this thread's copies for the oldest stage have arrived.
    ///
    /// The latest `STAGES - 2` groups of copies may still be in flight.
    fn wait_for_oldest();
}

/// Stages of the circular buffer that a K needs. If there are fewer steps than stages, each step
/// has one.
pub const fn stages<G: Geometry>(k: u32) -> u32 {
    let steps = k.div_ceil(G::BK);
    match steps < G::STAGES {
        true if steps == 0 => 1,
        true => steps,
        false => G::STAGES,
    }
}
