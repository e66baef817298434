//! Operations among the 32 lanes of a warp.
//!
//! A `mask` names the lanes that take part, lane 0 in bit 0.
//!
//! # Safety of operations with a mask
//!
//! If these rules are broken, the behaviour of the warp is undefined (PTX ISA: `shfl.sync`,
//! `vote.sync`, `match.sync`, `bar.warp.sync`): it may hang, or give any value. The caller makes
//! sure that
//! - the calling lane is in its own mask;
//! - every lane in the mask that has not returned comes to the same call, with the same mask:
//!   never call these where only some of the mask's lanes go.

use cuda_std_macros::gpu_only;

#[cfg(target_arch = "nvptx64")]
use crate::intrinsics;

mod lane;
mod shuffle;

pub use lane::{lane_id, lanemask_eq, lanemask_ge, lanemask_gt, lanemask_le, lanemask_lt};
pub use shuffle::{
    WarpShuffleValue, warp_shuffle_down, warp_shuffle_idx, warp_shuffle_up, warp_shuffle_xor,
};

/// All 32 lanes.
pub const FULL_MASK: u32 = u32::MAX;

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

/// Elects one of the lanes of `mask`, and says whether it is this one (`elect.sync`, sm_90).
///
/// This is for work that one lane does for all, such as asking for a bulk copy. The same mask
/// elects the same lane each time.
///
/// # Safety
/// See the [module](self).
#[gpu_only]
#[inline(always)]
#[must_use]
pub unsafe fn elect_sync(mask: u32) -> bool {
    // SAFETY: the caller's contract.
    unsafe { intrinsics::elect_sync(mask).is_elected }
}

/// A value that [`warp_match_any`] and [`warp_match_all`] compare, by its bits.
pub trait WarpMatchValue: Copy {
    /// [`warp_match_any`].
    ///
    /// # Safety
    /// See the [module](self).
    unsafe fn match_any(mask: u32, value: Self) -> u32;
    /// [`warp_match_all`].
    ///
    /// # Safety
    /// See the [module](self).
    unsafe fn match_all(mask: u32, value: Self) -> Option<u32>;
}

macro_rules! matches {
    ($any:ident, $all:ident: $($ty:ty, |$value:ident| $bits:expr;)*) => {$(
        impl WarpMatchValue for $ty {
            #[gpu_only]
            #[inline(always)]
            unsafe fn match_any(mask: u32, $value: $ty) -> u32 {
                // SAFETY: the caller's contract.
                unsafe { intrinsics::$any(mask, $bits) }
            }

            #[gpu_only]
            #[inline(always)]
            unsafe fn match_all(mask: u32, $value: $ty) -> Option<u32> {
                // SAFETY: the caller's contract.
                let matched = unsafe { intrinsics::$all(mask, $bits) };
                matched.all.then_some(matched.lanes)
            }
        }
    )*};
}

matches! {
    match_any, match_all:
    u32, |value| value;
    i32, |value| value as u32;
    f32, |value| value.to_bits();
}

matches! {
    match_any_64, match_all_64:
    u64, |value| value;
    i64, |value| value as u64;
    f64, |value| value.to_bits();
}

/// The lanes of `mask` that have the same bits in `value` as this one (`match.any.sync`, sm_70).
///
/// # Safety
/// See the [module](self).
#[inline(always)]
#[must_use]
pub unsafe fn warp_match_any<T: WarpMatchValue>(mask: u32, value: T) -> u32 {
    // SAFETY: the caller's contract.
    unsafe { T::match_any(mask, value) }
}

/// `mask`, if all lanes of it have the same bits in `value` (`match.all.sync`, sm_70).
///
/// # Safety
/// See the [module](self).
#[inline(always)]
#[must_use]
pub unsafe fn warp_match_all<T: WarpMatchValue>(mask: u32, value: T) -> Option<u32> {
    // SAFETY: the caller's contract.
    unsafe { T::match_all(mask, value) }
}

/// The operation of [`warp_reduce`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarpReductionOp {
    /// The sum, wrapping.
    Add,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
}

/// A value that [`warp_reduce`] accepts: `u32` and `i32`.
pub trait WarpReduceValue: Copy {
    /// [`warp_reduce`].
    ///
    /// # Safety
    /// See the [module](self).
    unsafe fn reduce(mask: u32, value: Self, op: WarpReductionOp) -> Self;
}

macro_rules! reductions {
    ($($ty:ty: $min:ident, $max:ident;)*) => {$(
        impl WarpReduceValue for $ty {
            #[gpu_only]
            #[inline(always)]
            unsafe fn reduce(mask: u32, value: $ty, op: WarpReductionOp) -> $ty {
                let bits = value as u32;
                // SAFETY: the caller's contract.
                unsafe {
                    match op {
                        WarpReductionOp::Add => intrinsics::redux_add(bits, mask) as $ty,
                        WarpReductionOp::Min => intrinsics::$min(value, mask),
                        WarpReductionOp::Max => intrinsics::$max(value, mask),
                        WarpReductionOp::And => intrinsics::redux_and(bits, mask) as $ty,
                        WarpReductionOp::Or => intrinsics::redux_or(bits, mask) as $ty,
                        WarpReductionOp::Xor => intrinsics::redux_xor(bits, mask) as $ty,
                    }
                }
            }
        }
    )*};
}

reductions! {
    u32: redux_umin, redux_umax;
    i32: redux_min, redux_max;
}

/// The values of all lanes of `mask` reduced to one, in every lane (`redux.sync`, sm_80).
///
/// For other types and operations see [`warp_reduce_by`].
///
/// # Safety
/// See the [module](self).
#[inline(always)]
#[must_use]
pub unsafe fn warp_reduce<T: WarpReduceValue>(mask: u32, value: T, op: WarpReductionOp) -> T {
    // SAFETY: the caller's contract.
    unsafe { T::reduce(mask, value, op) }
}

/// The values of all 32 lanes reduced to one by `op`, in every lane (`shfl.sync.bfly`).
///
/// The order is fixed, so that a sum of floats has the same bits on every run. `op` is associative
/// and commutative, except for rounding.
///
/// # Safety
/// See the [module](self), with [`FULL_MASK`].
#[inline(always)]
#[must_use]
pub unsafe fn warp_reduce_by<T: WarpShuffleValue>(value: T, op: impl Fn(T, T) -> T) -> T {
    let mut result = value;
    let mut distance = 16;
    while distance > 0 {
        // SAFETY: the caller's contract.
        let (other, _) = unsafe { warp_shuffle_xor(FULL_MASK, result, distance, 32) };
        result = op(result, other);
        distance /= 2;
    }
    result
}

/// The sum of `value` over all 32 lanes, in every lane: [`warp_reduce_by`] addition.
///
/// # Safety
/// See the [module](self), with [`FULL_MASK`].
#[inline(always)]
#[must_use]
pub unsafe fn warp_sum(value: f32) -> f32 {
    // SAFETY: the caller's contract.
    unsafe { warp_reduce_by(value, |sum, other| sum + other) }
}
