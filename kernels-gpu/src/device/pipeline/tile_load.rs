//! Bulk copies of tiles for tensor cores, with hints for the L2 cache.

use cuda_std::mbarrier::Mbarrier;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;
use cuda_std::tma::{self, CachePolicy, TensorMap};

use crate::abi::tensor_core::BK;

/// The widest tile of C with which an operand that is read once is evicted first. With tiles of
/// 128, eviction costs up to 2 % of the time (`NOTES.md`, "What L2 evicts first").
const NARROW: u32 = 64;

/// Whether the L2 cache is to evict A first, and whether B.
///
/// It is if each of the operand's tiles is read for only one tile of C, and that one is narrow. A
/// tile of C has `rows` and `cols`, and C has `down` x `across` tiles. `is_alone` says whether an
/// operand belongs to one product.
#[inline(always)]
pub fn read_once(
    [rows, cols]: [u32; 2],
    [down, across]: [u32; 2],
    is_alone: [bool; 2],
) -> [bool; 2] {
    let once = |extent: u32, tiles: u32| extent <= NARROW && tiles == 1;
    [once(cols, across) && is_alone[0], once(rows, down) && is_alone[1]]
}

/// Zeros the lines that no copy fills. Each panel has `lines` lines of [`BK`] elements, and copies
/// fill the first `copied` of them.
///
/// `wgmma` also reads those lines, and nobody stores what it makes of them.
///
/// # Safety
/// The `threads` threads of a block call this, before a barrier of the block. Until then nobody
/// else reads or writes the panels.
#[inline(always)]
pub unsafe fn clear_lines(
    smem: SharedPtr<u16>,
    panels: u32,
    [copied, lines]: [u32; 2],
    threads: u32,
) {
    if copied >= lines {
        return;
    }
    // SAFETY: the caller's contract.
    unsafe { zero_lines(smem, panels, [copied, lines], threads) };
    tma::fence_proxy_async();
}

/// [`clear_lines`] without the fence, which must follow.
///
/// # Safety
/// As for [`clear_lines`].
#[inline(always)]
pub unsafe fn zero_lines(
    smem: SharedPtr<u16>,
    panels: u32,
    [copied, lines]: [u32; 2],
    threads: u32,
) {
    for panel in 0..panels {
        let chunks = lines.saturating_sub(copied) * BK / 8;
        for at in (thread::thread_idx_x()..chunks).step_by(threads as usize) {
            // SAFETY: the caller's contract; on 16 bytes.
            unsafe {
                let line = smem.add((panel * lines + copied) * BK);
                line.add(at * 8).cast::<u32>().store_vec(0, [0; 4]);
            }
        }
    }
}

/// As [`tma::load`]; if the tile is read once, the L2 cache is to evict it first.
///
/// # Safety
/// As for [`tma::load`].
#[inline(always)]
pub unsafe fn load_tile<T, const RANK: usize>(
    to: SharedPtr<T>,
    map: &TensorMap,
    at: [i32; RANK],
    full: Mbarrier,
    is_read_once: bool,
) {
    // SAFETY: the caller's contract.
    unsafe {
        match is_read_once {
            true => tma::load_with_policy(to, map, at, full, CachePolicy::evict_first()),
            false => tma::load(to, map, at, full),
        }
    }
}
