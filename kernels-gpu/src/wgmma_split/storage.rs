//! How shared memory is divided.

use super::shares::QUAD;
use super::work::Entry;
use super::{WARPGROUP, WM};
use crate::tensor_core::{ALIGNMENT, BK, PANEL};

/// Shared memory of a multiprocessor, and what each block takes besides its own, in bytes.
pub const SHARED: u32 = 228 << 10;
pub const RESERVED: u32 = 1 << 10;

/// More stages would hold more bytes than a multiprocessor can have in flight.
const MOST_STAGES: u32 = 10;

/// What lies in shared memory: the stages of A and those of B, the partial sums of a tile, two barriers for each stage and
/// two for entries, two entries that say what the block computes, and a word. Sums that take too much of the memory lie in
/// place of the stages.
pub struct Storage<const SUMS: usize, const WARPGROUPS: u32, const BLOCKS: u32>;

impl<const SUMS: usize, const WARPGROUPS: u32, const BLOCKS: u32>
    Storage<SUMS, WARPGROUPS, BLOCKS>
{
    pub const BM: u32 = WARPGROUPS * WM;
    /// A warpgroup has so many sums for each of its threads.
    pub const BN: u32 = SUMS as u32 * WARPGROUP / WM;
    /// Columns of a panel of a B that is not transposed.
    pub const PANEL: u32 = if Self::BN < PANEL { Self::BN } else { PANEL };
    /// Elements of a stage.
    pub const STAGE_A: u32 = Self::BM * BK;
    pub const STAGE_B: u32 = Self::BN * BK;
    /// Bytes for a block.
    const ROOM: u32 = SHARED / BLOCKS - RESERVED - ALIGNMENT;
    /// Partial sums from one column of the tile to the next: eight columns of four rows are in different banks.
    pub const PITCH: u32 = Self::BM + QUAD;
    /// Bytes of a tile's sums.
    const SUMS_BYTES: u32 = Self::BN * Self::PITCH * 4;
    /// Whether sums have memory of their own, so that in a launch of one split a block's next tile is copied while they are
    /// added up.
    pub const SEPARATE: bool = Self::SUMS_BYTES * 6 <= Self::ROOM;
    /// As many as there is room for.
    pub const STAGES: u32 = {
        let room = Self::ROOM - if Self::SEPARATE { Self::SUMS_BYTES } else { 0 };
        let stages = room / ((Self::STAGE_A + Self::STAGE_B) * 2 + 2 * 8);
        if stages < MOST_STAGES { stages } else { MOST_STAGES }
    };
    /// Offsets in elements.
    pub const B_AT: u32 = Self::STAGES * Self::STAGE_A;
    const STAGES_END: u32 = Self::B_AT + Self::STAGES * Self::STAGE_B;
    pub const SUMS_AT: u32 = if Self::SEPARATE { Self::STAGES_END } else { 0 };
    pub const BARRIERS_AT: u32 =
        Self::STAGES_END + if Self::SEPARATE { Self::SUMS_BYTES / 2 } else { 0 };
    /// In a launch of one split, a tile's copies begin when the tile so many before it has been added up.
    pub const LAG: u32 = if Self::SEPARATE { 2 } else { 1 };
    /// Bytes of all of it, wherever it begins: PTX promises a multiple of 128, and the swizzle wants
    /// one of [`ALIGNMENT`].
    pub const END: u32 = {
        assert!(Self::STAGES >= 3, "some stages are in flight while one is multiplied");
        assert!(Self::SUMS_BYTES <= Self::BARRIERS_AT * 2, "the sums fit the stages");
        Self::BARRIERS_AT * 2
            + (2 * Self::STAGES + 2) * 8
            + (2 * Entry::WORDS + 1) * 4
            + (ALIGNMENT - 128)
    };
}
