//! Operations among the 32 lanes of a warp.
//!
//! A `mask` names the lanes that take part, lane 0 in bit 0.
//!
//! # Safety of operations with a mask
//!
//! What a warp does when these rules are broken is undefined (PTX ISA: `shfl.sync`, `vote.sync`,
//! `match.sync`, `bar.warp.sync`): it may hang, or give any value. The caller makes sure that
//! - the calling lane is in its own mask;
//! - every lane in the mask that has not returned comes to the same call, with the same mask:
//!   never call these where only some of the mask's lanes go.

use cuda_std_macros::gpu_only;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

#[cfg(target_arch = "nvptx64")]
use crate::intrinsics;

/// All 32 lanes.
pub const FULL_MASK: u32 = u32::MAX;

/// The thread's lane in its warp, 0 to 31.
#[gpu_only]
#[inline(always)]
#[must_use]
pub fn lane_id() -> u32 {
    let lane: u32;
    // SAFETY: reads a special register.
    unsafe {
        asm!(
            "mov.u32 {}, %laneid;",
            out(reg32) lane,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    lane
}

/// The lanes of the warp that run this instruction together.
#[gpu_only]
#[inline(always)]
#[must_use]
pub fn activemask() -> u32 {
    // SAFETY: reads the set of active lanes.
    unsafe { intrinsics::activemask() }
}

/// Waits for the lanes of `mask`, and orders their memory accesses among each other
/// (`bar.warp.sync`).
///
/// # Safety
/// See the [module](self).
#[gpu_only]
#[inline(always)]
pub unsafe fn sync_warp(mask: u32) {
    // SAFETY: the caller's contract.
    unsafe { intrinsics::bar_warp_sync(mask) }
}

macro_rules! shuffles {
    ($($(#[$doc:meta])* $name:ident($lane:ident) = $intrinsic:ident, $clamp:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// See the [module](self). The lane that the value comes from is in `mask`, too, and has
        /// not returned.
        #[gpu_only]
        #[inline(always)]
        #[must_use]
        pub unsafe fn $name(mask: u32, value: u32, $lane: u32) -> u32 {
            // SAFETY: the caller's contract.
            unsafe { intrinsics::$intrinsic(mask, value, $lane, $clamp) }
        }
    )*};
}

shuffles! {
    /// The `value` of the lane `delta % 32` below (`shfl.sync.up`). Where there is none, a lane
    /// gets its own `value` back.
    warp_shuffle_up(delta) = shfl_up, 0;
    /// The `value` of the lane `delta % 32` above (`shfl.sync.down`). Where there is none, a lane
    /// gets its own `value` back.
    warp_shuffle_down(delta) = shfl_down, 31;
    /// The `value` of lane `index % 32` (`shfl.sync.idx`).
    warp_shuffle_idx(index) = shfl_idx, 31;
    /// The `value` of the lane whose number differs in the bits of `bits % 32`
    /// (`shfl.sync.bfly`).
    warp_shuffle_xor(bits) = shfl_bfly, 31;
}

/// Whether `predicate` holds in every lane of `mask` (`vote.sync.all`).
///
/// # Safety
/// See the [module](self).
#[gpu_only]
#[inline(always)]
#[must_use]
pub unsafe fn warp_vote_all(mask: u32, predicate: bool) -> bool {
    // SAFETY: the caller's contract.
    unsafe { intrinsics::vote_all(mask, predicate) }
}

/// Whether `predicate` holds in some lane of `mask` (`vote.sync.any`).
///
/// # Safety
/// See the [module](self).
#[gpu_only]
#[inline(always)]
#[must_use]
pub unsafe fn warp_vote_any(mask: u32, predicate: bool) -> bool {
    // SAFETY: the caller's contract.
    unsafe { intrinsics::vote_any(mask, predicate) }
}

/// The lanes of `mask` in which `predicate` holds (`vote.sync.ballot`).
///
/// # Safety
/// See the [module](self).
#[gpu_only]
#[inline(always)]
#[must_use]
pub unsafe fn warp_vote_ballot(mask: u32, predicate: bool) -> u32 {
    // SAFETY: the caller's contract.
    unsafe { intrinsics::vote_ballot(mask, predicate) }
}

/// The lanes of `mask` that have the same `value` as this one (`match.any.sync`, sm_70).
///
/// # Safety
/// See the [module](self).
#[gpu_only]
#[inline(always)]
#[must_use]
pub unsafe fn warp_match_any(mask: u32, value: u32) -> u32 {
    // SAFETY: the caller's contract.
    unsafe { intrinsics::match_any(mask, value) }
}

/// Whether all lanes of `mask` have the same `value` (`match.all.sync`, sm_70).
///
/// # Safety
/// See the [module](self).
#[gpu_only]
#[inline(always)]
#[must_use]
pub unsafe fn warp_match_all(mask: u32, value: u32) -> bool {
    // SAFETY: the caller's contract.
    unsafe { intrinsics::match_all(mask, value).all }
}

/// The sum of `value` over all 32 lanes, in every lane, in a fixed order: the same bits on
/// every run.
///
/// # Safety
/// See the [module](self), with [`FULL_MASK`].
#[inline(always)]
#[must_use]
pub unsafe fn warp_sum(value: f32) -> f32 {
    let mut sum = value;
    let mut distance = 16;
    while distance > 0 {
        // SAFETY: the caller's contract.
        let other = unsafe { warp_shuffle_xor(FULL_MASK, sum.to_bits(), distance) };
        sum += f32::from_bits(other);
        distance /= 2;
    }
    sum
}
