//! Tensor cores on f32 matrices: `tf32` rounds A and B to TF32, `tf32x3` has the accuracy of f32.
//!
//! A *TF32* number is an f32 with 10 bits of mantissa. Tensor cores multiply TF32 at half the rate
//! of `bf16`. They read an f32 and ignore its last 13 bits, so a kernel that wants rounding to
//! nearest rounds before.
//!
//! `tf32x3` splits each number into `big = round(x)` and `small = round(x - big)`. Together they
//! are x, except for its last bit. Three products are added:
//!
//! ```text
//!   A * B = A_small * B_big + A_big * B_small + A_big * B_big     (+ A_small * B_small: 2^-22 of it)
//! ```
//!
//! Tensor cores truncate their sums, so the errors of a long sum all have one sign. So each step
//! along K starts with new sums, the small products first. FADDs then add them to the sums in f32.
//!
//! # The kernels
//!
//! - [`tma`](sm_90a::tma), on Hopper: bulk copies round. `tf32` alone, for large products.
//! - [`split`](sm_90a::split), on Hopper: bulk copies round, and K is split. `tf32` alone, for few
//!   rows or columns.
//! - [`align1`](sm_90a::align1), on Hopper: misaligned matrices, for few rows or columns, or a
//!   short K.
//! - [`wgmma`](sm_90a::wgmma), on Hopper: producer warps round, or split.
//! - [`mma`], from compute capability 8.0: every thread rounds, or splits, what it multiplies.
//!
//! # Arithmetic
//!
//! `tf32` rounds every element to the nearest TF32 number, ties to even. An f32 within 2^-12 of the
//! largest becomes infinite.
//!
//! `tf32x3` is right for every finite f32, and for most others:
//!
//! - NaN and infinities go where f32 has them, with one exception: infinity times a number below
//!   2^-136 is NaN.
//! - An infinity becomes `big`, 1 with its sign, and `small`, itself. As `big` it would make NaN
//!   with a `small` of zero.
//! - A number that overflows as TF32 is truncated instead.
//! - The `small` of a number below 2^-103 loses bits, because TF32's smallest number is 2^-136. Its
//!   error is at most that.

pub mod mma;
mod rounding;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
pub mod sm_90a;
mod warp_tile;
