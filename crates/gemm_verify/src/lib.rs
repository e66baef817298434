//! Comparing a result with the product in f64, under a tolerance from error analysis. The example
//! is for all types of the crate.
//!
//! ```
//! use gemm_matrix::Matrix;
//! use gemm_verify::{Bound, Method, Problem, Reference};
//!
//! let a = Matrix::from_vec(2, 2, vec![1.0, 2.0, 3.0, 4.0]);
//! let b = Matrix::from_vec(2, 1, vec![0.5, 0.25]);
//! let problem =
//!     Problem { a: &a, b: &b, c: None, alpha: 2.0, beta: 0.0, bound: Bound::WorstCase };
//! let reference = Reference::compute(problem, Method::choose(2, 1, 2), 42)?;
//!
//! let right = reference.check(&Matrix::from_vec(2, 1, vec![2.0, 5.0]))?;
//! assert!(right.passed() && right.elements == 2 && right.rms_error() == Some(0.0));
//! let wrong = reference.check(&Matrix::from_vec(2, 1, vec![2.0, f32::NAN]))?;
//! let worst = wrong.worst.expect("an element with an error");
//! assert!(!wrong.passed() && (worst.row, worst.col) == (1, 0) && worst.ratio() > 1.0);
//! // Of another shape.
//! assert!(reference.check(&a).is_err());
//! # Ok::<(), gemm_verify::Error>(())
//! ```
//!
//! # The tolerance
//!
//! A kernel computes `fl(alpha * s + beta * c)` with `s` a sum of K products, in f32
//! with unit roundoff `u = 2^-24`. Whatever the order of the sum and whether products
//! are fused, each product passes through at most K + 2 roundings, and `beta * c`
//! through two. So the error of element (i, j) is at most
//!
//! ```text
//! g * |alpha| * (|A| |B|)_ij  +  2 u * |beta * c_ij|  +  underflow
//! ```
//!
//! where `(|A| |B|)_ij <= ||a_i||_2 * ||b_j||_2` (Cauchy-Schwarz; the norms of a row of
//! A and a column of B), and `g` is one of two:
//!
//! - [`Bound::WorstCase`]: `g = n u` with `n = K + 2`, which always holds (Jeannerod and
//!   Rump, "Improved error bounds for inner products in floating-point arithmetic",
//!   2013).
//! - [`Bound::Probabilistic`]: `g = exp(lambda sqrt(n) u) - 1`, which holds where rounding
//!   errors are independent of each other with mean zero, as for random matrices (Higham
//!   and Mary, "A new approach to probabilistic rounding error analysis", 2019). An
//!   element is outside with probability at most `2 exp(-lambda^2 / 2)`; with
//!   `lambda = 8` that is 2.6e-14, or one wrong alarm in two million checks of
//!   4096 x 4096 elements. It is `n u` where that is smaller.
//!
//! # The root mean square
//!
//! The bounds above grow with K and hold for the largest of many errors, so for random matrices most errors are
//! hundreds of times smaller. With [`Bound::Probabilistic`], [`Check::passed`] wants the root mean square of the
//! errors within a bound, too: that of `h * |alpha| * ||a_i||_2 * ||b_j||_2`, with what is added to it above,
//! over the elements that are compared. It holds for matrices whose elements are independent, with mean zero and
//! of the same size along K, as `Matrix::random` makes them (Higham and Mary, "Sharper probabilistic backward
//! error analysis for basic linear algebra kernels with random data", 2020): a sum of `j` products then is
//! `sqrt(j)` times one of them in the root mean square, and `||a_i|| ||b_j||` is K times one.
//!
//! - FMAs, and additions in any order: the rounding errors of sums of 1, 2, ..., K products, which are
//!   independent of each other, add up to `u sqrt(K (K + 1) / 2)` products at most. Products that are rounded, alpha
//!   and the last sum make `h = u sqrt((1 + 7 / K) / 2)`, which does not grow with K.
//! - Tensor cores: one instruction is off by at most `(2 + (d + 1) / 2) u` of the largest of its numbers, of
//!   which `sqrt(j d)` products are the root mean square after `j` instructions. Errors that are cut off are not
//!   independent, so they add up as they are (Minkowski's inequality), to less than `0.75 (K + 4)^1.5 u` products for
//!   any `d` from 4 on, which is `h = (0.75 (K + 4)^1.5 / K + 3 / sqrt(K)) u` with three roundings of the sum.
//! - [`Products::Tf32`]: each product loses less than `c = 2^-9 + 2^-20` of itself, and has a random sign:
//!   `c / sqrt(K)`, and `1 + c` times that of tensor cores.
//! - [`Products::Tf32x3`]: likewise `12 u / sqrt(K)` for what is left out of each product. Steps of 32 begin with
//!   sums of 0, so that their errors are independent of each other: `sqrt(32 / K)` times what tensor cores lose
//!   in one. FADDs add no more than FMAs would.
//!
//! These are means, and errors of few elements vary: the root mean square of `e` elements passes up to
//! `1 + 8 / e^(1/4)` times the bound, as if only `sqrt(e)` of them were independent, where those of a row share
//! a row of A. With one element, this is 9 times the bound.
//!
//! What is computed in less than is claimed, with 64 x 64 random elements: how many of these 4096 are outside of
//! their tolerance, and the root mean square as a multiple of its bound, of which 2 passes. Fewer elements are
//! fewer chances for one to be outside; the root mean square does not depend on it.
//!
//! | claimed | computed | outside, K = 4096 | rms | outside, K = 12,288 | rms |
//! |---|---|---:|---:|---:|---:|
//! | f32 | in bf16 | 1474 | 788 | 15 | 447 |
//! | f32 | in TF32 | 0 | 98 | 0 | 57 |
//! | f32 | C rounded to bf16 | 761 | 591 | 35 | 346 |
//! | `tf32x3` | in TF32 | 172 | 50 | 0 | 37 |
//! | TF32, rounded to nearest | truncated | 0 | 4.3 | 0 | 1.5, not found |
//! | TF32, rounded to nearest | in bf16 | 22 | 12 | 0 | 3.8 |
//! | bf16, C in f32 | C rounded to bf16 | 3 | 8.8 | 0 | 3.0 |
//!
//! The last three get harder to find as K grows, since the bound of tensor cores does.
//!
//! # Matrices of users
//!
//! Matrices that users bring may have structure (all elements equal, say), and then
//! rounding errors add up in one direction: they get the worst case.
//!
//! # Epilogues
//!
//! Each step of an [`Epilogue`] carries the tolerance on: a factor multiplies it, an activation by the
//! largest slope that it has (1.13), and each adds its own rounding, an activation eight.
//!
//! # Results in 16 bits
//!
//! [`Reference::stored_as`] says what results are rounded to. That adds half a unit in the last place of
//! that type to the tolerance, of what the element may be.
//!
//! # Tensor cores
//!
//! [`Reference::computed_by`] says how a product is computed, where that is not by FMAs in f32. A and
//! B are what the device has: rounded to its type, as `Matrix::rounded` does.
//!
//! An instruction adds `d` products, 4 to 16, and the old sum at once. Products are exact. Each of the
//! `d + 1` numbers is cut off below 2^-25 of the largest one, and the sum to 24 bits, so that one
//! instruction is off by at most `(2 + (d + 1) / 2) u` of the largest sum. In `K / d` of them that is
//! less than `(9 K / 8 + 4) u` for any `d`: the `n` of the worst case. Cut off is not rounded: errors
//! have the sign of the sum, which for random matrices goes to and fro. Their spread is below
//! `2.7 sqrt(K) u`, and 3 is what the probabilistic bound takes in place of 1. A number below the
//! smallest normal one of its type counts as if it were that, since its exponent does.
//!
//! [`Products::Tf32`] is for matrices of which it is not known how they become TF32: each element loses less than
//! 2^-10 of itself, and a product less than `2^-9 + 2^-20` of itself.
//!
//! [`Products::Tf32x3`] writes x as `big + small + rest`, where `big` is x and `small` is `x - big`, both rounded
//! to the 11 bits of TF32. With `2^e <= |x| < 2^(e + 1)`, `small` is at most `2^(e - 11)`, a multiple of
//! `2^(e - 23)`, so that `rest` is at most `2^(e - 23) <= 2 u |x|`. `x * y` loses that of both factors, 4 u, and
//! `small * small`, which is left out and at most `2^-22 = 4 u`: 8 u of `|x y|`. (Where `big` would overflow, both
//! parts are truncated, and `rest` is 3 u of x: 9 u.) In a step of 32 along K, the tensor cores' own sum is off by
//! `9 * 32 / 8 u = 36 u` at most, cut off always in one direction. The sums of `big * small`, which are 2^-10 of
//! it, add less than 1 u. So a step is off by less than `(36 + 12) u` of its part of `(|A| |B|)_ij`, and all
//! steps together of the whole, whatever K is. FADDs add the `ceil(K / 32)` sums of steps, as above, which
//! either bound covers. From 2^-103 on, the last bit of x is at least 2^-126, the smallest normal number of TF32,
//! so that `small` is zero or normal; a smaller x counts as if it were 2^-103.
//!
//! # Too large for a full product
//!
//! A full f64 product is M N K FMAs. Beyond what takes some seconds, or 2 GiB
//! for the reference, [`Method::Sampled`] compares
//!
//! - some rows and columns, element by element, as above; and
//! - **all** elements in groups of `w` neighbours in a row (Freivalds' check): with random
//!   signs `x_j`, `sum_j x_j C_ij` over a group must equal the same sum of the reference,
//!   for which only `A * (B * X)` is needed, `w` times less work. The signs are drawn
//!   independently of the errors, so by Hoeffding's inequality the sum of errors that are
//!   each within their tolerance `t_j` exceeds `lambda * sqrt(sum_j t_j^2)` with probability
//!   at most 2.6e-14. A group that fails is then computed element by element, and that
//!   decides. With an epilogue, which need not be linear, there is no such check: what is compared
//!   are the rows and columns.
//!
//! # NaN, infinities and overflow
//!
//! A comparison is `!(error <= tolerance)`, so a NaN never passes for a number. Where the
//! reference is NaN or infinite, the result must be NaN or the same infinity. Where the
//! norms allow an f32 overflow on the way (`||a_i|| ||b_j|| |alpha| > f32::MAX`, say),
//! a result that is not finite is not wrong: it is accepted, and counted.

mod arithmetic;
mod check;
mod epilogue;
mod error;
mod product;
mod reference;
#[cfg(test)]
mod tests;

pub use arithmetic::{Arithmetic, Products, nearest_tf32};
pub use check::{Bound, Check, Deviation, Method, Problem};
pub use epilogue::Epilogue;
pub use error::Error;
pub use product::progress;
pub use reference::Reference;
