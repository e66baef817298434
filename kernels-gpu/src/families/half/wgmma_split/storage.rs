//! How shared memory is divided.

use super::{WARPGROUP, WM};
use crate::abi::tensor_core::{
    ALIGNMENT, BK, MAX_STAGES, PANEL, RESERVED_SHARED_MEMORY_PER_BLOCK,
    SHARED_MEMORY_PER_MULTIPROCESSOR, stage_bytes, stages,
};
use crate::device::output::staging::STAGING;
use crate::device::schedule::cluster::Entry;

/// The layout of a block's shared memory. In order:
///
/// - two barriers for each possible stage, and two for the entries;
/// - two entries, which say what the block computes;
/// - a word for each warp with sums;
/// - each warp's memory for staged sums;
/// - the stages, each of A and then of B; the launch's memory limits their number.
///
/// If the blocks of a cluster share a tile, their partial sums lie in the stages' memory.
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
    /// Bytes of a tile's sums.
    const SUMS_BYTES: u32 = Self::BM * Self::BN * 4;
    /// Byte offsets of the `empty` barriers, the entries' barriers, the entries, a word for each
    /// warp, and staged sums.
    pub const EMPTY_AT: u32 = MAX_STAGES * 8;
    pub const READ_AT: u32 = 2 * Self::EMPTY_AT;
    pub const ENTRIES_AT: u32 = Self::READ_AT + 2 * 8;
    pub const SAID_AT: u32 = Self::ENTRIES_AT + 2 * Entry::WORDS * 4;
    pub const STAGING_AT: u32 = (Self::SAID_AT + 4 * WARPGROUPS * 4).next_multiple_of(16);
    const END: u32 = Self::STAGING_AT + 4 * WARPGROUPS * STAGING * 4;
    /// Bytes in front of the stages, in the worst case: PTX promises a multiple of 128, and the
    /// swizzle wants one of [`ALIGNMENT`].
    pub const FRONT: u32 = Self::END.next_multiple_of(128) + ALIGNMENT - 128;

    /// Bytes from the beginning of a block's memory to its stages.
    #[inline(always)]
    pub fn stages_at(beginning: u32) -> u32 {
        (beginning + Self::END).next_multiple_of(ALIGNMENT) - beginning
    }

    /// The number of the widest tile's stages that fit these bytes.
    #[inline(always)]
    pub const fn stages(bytes: u32) -> u32 {
        stages([Self::BM, Self::BN], bytes - Self::FRONT)
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
            Self::SUMS_BYTES <= stages * stage_bytes([Self::BM, Self::BN]),
            "the sums fit the stages"
        );
        Self::FRONT + stages * stage_bytes([Self::BM, Self::BN])
    }
}
