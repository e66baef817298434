//! Tensor cores on f32 matrices: `tf32` rounds A and B to TF32, `tf32x3` has the accuracy of f32.
//!
//! A *TF32* number is an f32 of which 10 bits of the mantissa are left. Tensor cores multiply tiles of
//! them, half as many in a cycle as of `bf16`, and read them as f32, of which they ignore the last 13 bits:
//! who wants them rounded to nearest does that before.
//!
//! `tf32x3` splits each number in two, `big = round(x)` and `small = round(x - big)`, which together are
//! x but for its last bit, and adds three products:
//!
//! ```text
//!   A * B = A_small * B_big + A_big * B_small + A_big * B_big     (+ A_small * B_small: 2^-22 of it)
//! ```
//!
//! Tensor cores truncate their sums, so that errors of a long sum are all of one sign. So each step
//! along K has sums of its own, the small products first, which FADDs then add to those in f32.
//!
//! # The kernels
//!
//! - [`tma`](sm_90a::tma), on Hopper: bulk copies round. `tf32` alone, for large products.
//! - [`split`](sm_90a::split), on Hopper: the same with K split, for few rows or columns.
//! - [`align1`](sm_90a::align1), on Hopper: matrices that lie anywhere, for few rows or columns, or a short K.
//! - [`wgmma`](sm_90a::wgmma), on Hopper: producer warps round, or split.
//! - [`mma`], on GPUs from compute capability 8.0 on: every thread rounds, or splits, what it multiplies.
//!
//! # Arithmetic
//!
//! `tf32`: every element is rounded to the nearest TF32 number, ties to even. An f32 within 2^-12 of the largest
//! becomes infinite.
//!
//! `tf32x3`: NaN and infinities go where f32 has them, but for infinity times a number below 2^-136, which is NaN.
//! An infinity is split in 1 with its sign and itself: as `big` it would make NaN of a `small` of zero. What overflows
//! as TF32 is truncated instead, so that all finite f32 are right. The `small` of a number below 2^-103 loses bits to TF32's smallest, 2^-136: its error
//! is at most that.

pub mod mma;
mod rounding;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
pub mod sm_90a;
mod warp_tile;
