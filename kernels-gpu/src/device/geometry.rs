//! The geometry of a kernel, as one type.

use crate::abi::Tile;

/// The geometry of a kernel: constants of a type that has no values, as CUTLASS's `GemmShape`s
/// are. All sizes are counts of f32 elements.
pub trait Geometry {
    /// Rows and columns of C per block, and its step along K (`ThreadblockShape`).
    const BM: u32;
    const BN: u32;
    const BK: u32;
    /// Rows and columns of C per warp (`WarpShape`), or less, where a warp has several slices.
    const WM: u32;
    const WN: u32;
    /// Rows and columns of C per thread.
    const TM: u32;
    const TN: u32;
    /// Slices of a block's step along K (slice-K; CUTLASS's `kPartitionsK`).
    const SLICES: u32;
    /// Stages of the circular buffer in shared memory.
    const STAGES: u32;
    /// Quads of a thread that go through an epilogue at once: more wait for memory less often, and take more registers.
    const EPILOGUE_QUADS: u32 = 4;
    /// The largest K of which a launch of no more blocks than the next constant says, two for each of an H100's multiprocessors,
    /// compensates the sums of each slice, since it waits for other things; 0 if none does. Three is the least that gains.
    const COMPENSATED_K: u32 = 0;
    const COMPENSATED_BLOCKS: u32 = 264;

    /// Threads of a slice, which have a sum of every output of the block's tile, and of a block.
    const SLICE_THREADS: u32 = Self::BM / Self::TM * (Self::BN / Self::TN);
    const THREADS: u32 = Self::SLICE_THREADS * Self::SLICES;
    /// The step along K of a slice.
    const SLICE_K: u32 = Self::BK / Self::SLICES;

    /// What the host sees of it.
    const TILE: Tile =
        Tile { bm: Self::BM, bn: Self::BN, bk: Self::BK, tm: Self::TM, tn: Self::TN };

    /// Waits until this thread's copies for the oldest stage have arrived: of the latest groups
    /// of copies, `STAGES - 2` may be in flight.
    fn wait_for_oldest();
}

/// Stages of the circular buffer that a K needs: of no more steps than can be in flight, each has one.
pub const fn stages<G: Geometry>(k: u32) -> u32 {
    let steps = k.div_ceil(G::BK);
    match steps < G::STAGES {
        true if steps == 0 => 1,
        true => steps,
        false => G::STAGES,
    }
}
