//! Operations among the 32 lanes of a warp.
//!
//! A `mask` names the lanes that take part, lane 0 in bit 0. Every lane of the mask must
//! reach the same call with the same mask, converged: never call these where only some of
//! the mask's lanes go.

use cuda_std_macros::gpu_only;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

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
    let mask: u32;
    // SAFETY: reads the set of active lanes; not `pure`, since it depends on control flow.
    unsafe { asm!("activemask.b32 {};", out(reg32) mask, options(nomem, nostack, preserves_flags)) }
    mask
}

/// Waits for the lanes of `mask`, and orders their memory accesses among each other.
#[gpu_only]
#[inline(always)]
pub fn sync_warp(mask: u32) {
    // SAFETY: a barrier; `asm!` without `nomem` orders the compiler's accesses too.
    unsafe { asm!("bar.warp.sync {};", in(reg32) mask, options(nostack, preserves_flags)) }
}

macro_rules! shuffles {
    ($($(#[$doc:meta])* $name:ident($lane:ident) = $mode:literal, $clamp:literal;)*) => {$(
        $(#[$doc])*
        /// Out of the warp, a lane gets its own `value` back.
        #[gpu_only]
        #[inline(always)]
        #[must_use]
        pub fn $name(mask: u32, value: u32, $lane: u32) -> u32 {
            let result: u32;
            // SAFETY: exchanges registers; not `pure`, since it depends on other lanes.
            unsafe {
                asm!(
                    concat!("shfl.sync.", $mode, ".b32 {}, {}, {}, ", $clamp, ", {};"),
                    out(reg32) result,
                    in(reg32) value,
                    in(reg32) $lane,
                    in(reg32) mask,
                    options(nomem, nostack, preserves_flags),
                );
            }
            result
        }
    )*};
}

shuffles! {
    /// The `value` of the lane `delta` below.
    warp_shuffle_up(delta) = "up", "0";
    /// The `value` of the lane `delta` above.
    warp_shuffle_down(delta) = "down", "31";
    /// The `value` of lane `index`.
    warp_shuffle_idx(index) = "idx", "31";
    /// The `value` of the lane whose number differs in the bits of `bits`.
    warp_shuffle_xor(bits) = "bfly", "31";
}

macro_rules! votes {
    ($($(#[$doc:meta])* $name:ident = $mode:literal;)*) => {$(
        $(#[$doc])*
        #[gpu_only]
        #[inline(always)]
        #[must_use]
        pub fn $name(mask: u32, predicate: bool) -> bool {
            let result: u32;
            // SAFETY: exchanges predicates; not `pure`, since it depends on other lanes.
            unsafe {
                asm!(
                    "{{",
                    ".reg .pred p, q;",
                    "setp.ne.u32 p, {input}, 0;",
                    concat!("vote.sync.", $mode, ".pred q, p, {mask};"),
                    "selp.u32 {result}, 1, 0, q; }}",
                    input = in(reg32) predicate as u32,
                    mask = in(reg32) mask,
                    result = out(reg32) result,
                    options(nomem, nostack),
                );
            }
            result != 0
        }
    )*};
}

votes! {
    /// Whether `predicate` holds in every lane of `mask`.
    warp_vote_all = "all";
    /// Whether `predicate` holds in some lane of `mask`.
    warp_vote_any = "any";
}

/// The lanes of `mask` in which `predicate` holds.
#[gpu_only]
#[inline(always)]
#[must_use]
pub fn warp_vote_ballot(mask: u32, predicate: bool) -> u32 {
    let result: u32;
    // SAFETY: exchanges predicates; not `pure`, since it depends on other lanes.
    unsafe {
        asm!(
            "{{",
            ".reg .pred p;",
            "setp.ne.u32 p, {input}, 0;",
            "vote.sync.ballot.b32 {result}, p, {mask}; }}",
            input = in(reg32) predicate as u32,
            mask = in(reg32) mask,
            result = out(reg32) result,
            options(nomem, nostack),
        );
    }
    result
}

/// The lanes of `mask` that have the same `value` as this one.
#[gpu_only]
#[inline(always)]
#[must_use]
pub fn warp_match_any(mask: u32, value: u32) -> u32 {
    let result: u32;
    // SAFETY: compares registers; not `pure`, since it depends on other lanes.
    unsafe {
        asm!(
            "match.any.sync.b32 {}, {}, {};",
            out(reg32) result,
            in(reg32) value,
            in(reg32) mask,
            options(nomem, nostack, preserves_flags),
        );
    }
    result
}

/// Whether all lanes of `mask` have the same `value`.
#[gpu_only]
#[inline(always)]
#[must_use]
pub fn warp_match_all(mask: u32, value: u32) -> bool {
    let result: u32;
    // SAFETY: compares registers; not `pure`, since it depends on other lanes.
    unsafe {
        asm!(
            "match.all.sync.b32 {}, {}, {};",
            out(reg32) result,
            in(reg32) value,
            in(reg32) mask,
            options(nomem, nostack, preserves_flags),
        );
    }
    result != 0
}

/// The sum of `value` over all 32 lanes, in every lane, in a fixed order: the same bits on
/// every run.
#[inline(always)]
#[must_use]
pub fn warp_sum(value: f32) -> f32 {
    let mut sum = value;
    let mut distance = 16;
    while distance > 0 {
        let other = warp_shuffle_xor(FULL_MASK, sum.to_bits(), distance);
        sum += f32::from_bits(other);
        distance /= 2;
    }
    sum
}
