//! How shared memory is divided.

use super::{WARPGROUP, WM};
use crate::abi::tensor_core::{
    ALIGNMENT, BK, MAX_STAGES, PANEL, RESERVED_SHARED_MEMORY_PER_BLOCK,
    SHARED_MEMORY_PER_MULTIPROCESSOR, stage_bytes, stages,
};
use crate::device::reduce::cluster::QUAD;
use crate::device::schedule::cluster::Entry;

/// The layout of a block's shared memory. In order:
///
/// - two barriers for each possible stage, and two for the entries;
/// - two entries, which say what the block computes;
/// - a word for each warp with sums;
/// - the partial sums of a tile, if they are small enough;
/// - the stages, each of A and then of B; the launch's memory limits their number.
///
/// Larger sums lie in the stages' memory.
pub struct Storage<const SUMS: usize, const WARPGROUPS: u32, const BLOCKS: u32>;

impl<const SUMS: usize, const WARPGROUPS: u32, const BLOCKS: u32>
    Storage<SUMS, WARPGROUPS, BLOCKS>
{
    pub const BM: u32 = WARPGROUPS * WM;
    /// The most columns of a tile: each thread of a warpgroup has up to `SUMS` of its sums.
    pub const BN: u32 = SUMS as u32 * WARPGROUP / WM;
    /// Columns of a panel, if B is not transposed.
    pub const PANEL: u32 = if Self::BN < PANEL { Self::BN } else { PANEL };
    /// Elements of A in a stage.
    pub const STAGE_A: u32 = Self::BM * BK;
    /// Bytes for a block if `BLOCKS` blocks share a multiprocessor.
    const ROOM: u32 = SHARED_MEMORY_PER_MULTIPROCESSOR / BLOCKS - RESERVED_SHARED_MEMORY_PER_BLOCK;
    /// Partial sums from one column of the tile to the next. Eight columns of four rows are in
    /// different banks.
    pub const PITCH: u32 = Self::BM + QUAD;
    /// Bytes of a tile's sums.
    const SUMS_BYTES: u32 = Self::BN * Self::PITCH * 4;
    /// Whether the sums have memory of their own. If K is not split, the next tile is then copied
    /// while these sums are added up.
    pub const SEPARATE: bool = Self::SUMS_BYTES * 6 <= Self::ROOM;
    /// If K is not split, a tile's copies begin once the tile `LAG` places before it is added up.
    pub const LAG: u32 = if Self::SEPARATE { 2 } else { 1 };
    /// Byte offsets of the `empty` barriers, the entries' barriers, the entries, a word for each
    /// warp, and the sums.
    pub const EMPTY_AT: u32 = MAX_STAGES * 8;
    pub const READ_AT: u32 = 2 * Self::EMPTY_AT;
    pub const ENTRIES_AT: u32 = Self::READ_AT + 2 * 8;
    pub const SAID_AT: u32 = Self::ENTRIES_AT + 2 * Entry::WORDS * 4;
    const SUMS_AT: u32 = (Self::SAID_AT + 4 * WARPGROUPS * 4).next_multiple_of(16);
    /// Bytes in front of the stages, in the worst case: PTX promises a multiple of 128, and the
    /// swizzle wants one of [`ALIGNMENT`].
    pub const FRONT: u32 = {
        let sums = if Self::SEPARATE { Self::SUMS_BYTES } else { 0 };
        (Self::SUMS_AT + sums).next_multiple_of(128) + ALIGNMENT - 128
    };

    /// Bytes from the beginning of a block's memory to its stages.
    #[inline(always)]
    pub fn stages_at(beginning: u32) -> u32 {
        let sums = if Self::SEPARATE { Self::SUMS_BYTES } else { 0 };
        (beginning + Self::SUMS_AT + sums).next_multiple_of(ALIGNMENT) - beginning
    }

    /// Where the sums begin, if the stages begin at this byte.
    #[inline(always)]
    pub fn sums_at(stages_at: u32) -> u32 {
        if Self::SEPARATE { Self::SUMS_AT } else { stages_at }
    }

    /// Lines of a stage of B, or columns of its panels, of the widest tile.
    const LINES_B: u32 = Self::BN.next_multiple_of(Self::PANEL);

    /// The number of the widest tile's stages that fit these bytes.
    #[inline(always)]
    pub const fn stages(bytes: u32) -> u32 {
        stages([Self::BM, Self::LINES_B], bytes - Self::FRONT)
    }

    /// Bytes of shared memory for a block, with at most `most_stages`, if `blocks` share a
    /// multiprocessor.
    pub const fn bytes(blocks: u32, most_stages: u32) -> u32 {
        let stages = Self::stages(
            SHARED_MEMORY_PER_MULTIPROCESSOR / blocks - RESERVED_SHARED_MEMORY_PER_BLOCK,
        );
        let stages = if stages < most_stages { stages } else { most_stages };
        assert!(stages >= 3, "some stages are in flight while one is multiplied");
        assert!(
            Self::SEPARATE || Self::SUMS_BYTES <= stages * stage_bytes([Self::BM, Self::LINES_B]),
            "the sums fit the stages"
        );
        Self::FRONT + stages * stage_bytes([Self::BM, Self::LINES_B])
    }
}
