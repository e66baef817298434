//! Compares a result with the product in f64, with a tolerance from error analysis.
//!
//! The example uses all types of the crate.
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
//! A kernel computes `fl(alpha * s + beta * c)` in f32 with unit roundoff `u = 2^-24`, where `s` is
//! a sum of K products. In any order of the sum, with or without fused products, each product
//! passes through at most K + 2 roundings, and `beta * c` through two. So the error of element
//! (i, j) is at most
//!
//! ```text
//! g * |alpha| * (|A| |B|)_ij  +  2 u * |beta * c_ij|  +  underflow
//! ```
//!
//! where `(|A| |B|)_ij <= ||a_i||_2 * ||b_j||_2` (Cauchy-Schwarz; the norms of a row of A and a
//! column of B). The factor `g` is one of two:
//!
//! - [`Bound::WorstCase`]: `g = n u` with `n = K + 2`. This bound always holds (Jeannerod and Rump,
//!   "Improved error bounds for inner products in floating-point arithmetic", 2013).
//! - [`Bound::Probabilistic`]: `g = exp(lambda sqrt(n) u) - 1`, or `n u` if that is smaller. This
//!   bound holds if rounding errors are independent with mean zero, as for random matrices. See
//!   Higham and Mary, "A new approach to probabilistic rounding error analysis", 2019. An element
//!   is outside with probability at most `2 exp(-lambda^2 / 2)`. With `lambda = 8` that is 2.6e-14,
//!   or one false alarm in two million checks of 4096 x 4096 elements.
//!
//! # The root mean square
//!
//! The bounds above grow with K, and hold for the largest of many errors. For random matrices, most
//! errors are therefore hundreds of times smaller. So with [`Bound::Probabilistic`],
//! [`Check::passed`] also requires that the root mean square of the errors is within a bound. This
//! bound is the root mean square, over the compared elements, of `h * |alpha| * ||a_i||_2 *
//! ||b_j||_2` plus the other terms of the tolerance.
//!
//! The bound holds for matrices like those of `Matrix::random`: elements are independent, with mean
//! zero and of equal size along K. See Higham and Mary, "Sharper probabilistic backward error
//! analysis for basic linear algebra kernels with random data", 2020. In the root mean square, a
//! sum of `j` products is then `sqrt(j)` times one product, and `||a_i|| ||b_j||` is K times one.
//!
//! - FMAs, and additions in any order: the rounding errors of sums of 1, 2, ..., K products are
//!   independent of each other. They add up to at most `u sqrt(K (K + 1) / 2)` products. With the
//!   roundings of products, alpha and the last sum, `h = u sqrt((1 + 7 / K) / 2)`, which does not
//!   grow with K.
//! - Tensor cores: the error of one instruction is at most `(2 + (d + 1) / 2) u` of the largest of
//!   its numbers. After `j` instructions the root mean square of that number is `sqrt(j d)`
//!   products. Truncation errors are not independent, so they add up linearly (Minkowski's
//!   inequality), to less than `0.75 (K + 4)^1.5 u` products for any `d` from 4 on. With three
//!   roundings of the sum, `h = (0.75 (K + 4)^1.5 / K + 3 / sqrt(K)) u`.
//! - [`Products::Tf32`]: each product loses less than `c = 2^-9 + 2^-20` of itself, with a random
//!   sign. `h` is `c / sqrt(K)` plus `1 + c` times that of tensor cores.
//! - [`Products::Tf32x3`]: the omitted parts of each product cost `12 u / sqrt(K)`. Steps of 32
//!   begin with sums of 0, so that their errors are independent of each other. They cost
//!   `sqrt(32 / K)` times the tensor cores' loss in one step. FADDs add no more than FMAs would.
//!
//! These bounds are means, and errors of few elements vary. So the root mean square of `e` elements
//! passes up to `1 + 8 / e^(1/4)` times the bound. This factor treats only `sqrt(e)` elements as
//! independent, since elements of a row share a row of A. For one element it is 9.
//!
//! The table has results of less precise arithmetic than claimed, with 64 x 64 random elements. It
//! counts the elements outside their tolerance, out of 4096. The root mean square is a multiple of
//! its bound, and passes up to 2. Fewer elements are fewer chances for one to be outside; the root
//! mean square does not depend on their number.
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
//! The last three become harder to find as K grows, since the bound for tensor cores grows.
//!
//! # Matrices of users
//!
//! Matrices of users may have structure, for example equal elements. Rounding errors may then add
//! up in one direction, so these matrices get the worst case.
//!
//! # Epilogues
//!
//! Each step of an [`Epilogue`] passes the tolerance on. A factor multiplies it, and an activation
//! multiplies it by the largest slope of any, 1.13. Each step adds its own rounding, and an
//! activation eight.
//!
//! # Results in 16 bits
//!
//! [`Reference::stored_as`] sets the type of the results. This adds half a unit in the last place
//! of that type to the tolerance, for the largest value that the element may have.
//!
//! # Tensor cores
//!
//! [`Reference::computed_by`] sets the arithmetic, if it is not f32 FMAs. A and B are the matrices
//! on the device: rounded to its type, as with `Matrix::rounded`.
//!
//! An instruction adds `d` products, 4 to 16, and the old sum at once. Products are exact. Each of
//! the `d + 1` numbers is truncated below 2^-25 of the largest one, and the sum to 24 bits. So the
//! error of one instruction is at most `(2 + (d + 1) / 2) u` of the largest sum. In `K / d`
//! instructions that is less than `(9 K / 8 + 4) u` for any `d`: the `n` of the worst case.
//!
//! Truncation errors have the sign of the sum, which alternates for random matrices. Their spread
//! is below `2.7 sqrt(K) u`, for which the probabilistic bound has 3 instead of 1. A number below
//! the smallest normal number of its type counts as that number, since it has that exponent.
//!
//! [`Products::Tf32`] is for matrices whose conversion to TF32 is unknown. Each element loses less
//! than 2^-10 of itself, and a product less than `2^-9 + 2^-20` of itself.
//!
//! [`Products::Tf32x3`] writes x as `big + small + rest`: `big` is x, and `small` is `x - big`,
//! both rounded to the 11 bits of TF32.
//!
//! - With `2^e <= |x| < 2^(e + 1)`, `small` is at most `2^(e - 11)` and a multiple of `2^(e - 23)`.
//!   So `rest` is at most `2^(e - 23) <= 2 u |x|`.
//! - `x * y` loses the rest of both factors, 4 u. It also loses the omitted `small * small`, at
//!   most `2^-22 = 4 u`: together 8 u of `|x y|`. If `big` would overflow, both parts are
//!   truncated, and `rest` is 3 u of x: together 9 u.
//! - In a step of 32 along K, the error of the tensor cores' own sum is at most
//!   `9 * 32 / 8 u = 36 u`, always in one direction. The sums of `big * small` are 2^-10 of it, and
//!   add less than 1 u.
//! - So the error of a step is less than `(36 + 12) u` of its part of `(|A| |B|)_ij`. All steps
//!   together lose less than this share of the whole, whatever K is.
//! - FADDs add the `ceil(K / 32)` sums of steps, as above. Either bound covers them.
//! - From 2^-103 on, the last bit of x is at least 2^-126, the smallest normal number of TF32, so
//!   that `small` is zero or normal. A smaller x counts as 2^-103.
//!
//! # Too large for a full product
//!
//! A full f64 product is M N K FMAs. If that would take more than some seconds, or its reference
//! more than 2 GiB, [`Method::Sampled`] compares
//!
//! - some rows and columns, element by element, as above; and
//! - **all** elements in groups of `w` neighbours in a row (Freivalds' check).
//!
//! With random signs `x_j`, the sum `sum_j x_j C_ij` over a group must equal that of the reference.
//! Only `A * (B * X)` is needed, which is `w` times less work. The signs are drawn independently of
//! the errors. By Hoeffding's inequality, the sum of errors within their tolerances `t_j` then
//! exceeds `lambda * sqrt(sum_j t_j^2)` with probability at most 2.6e-14. A group that fails is
//! computed element by element, and the elements decide. An epilogue need not be linear, so that it
//! leaves only the rows and columns to compare.
//!
//! # NaN, infinities and overflow
//!
//! A comparison is `!(error <= tolerance)`, so a NaN never passes for a number. If the reference is
//! NaN or infinite, the result must be NaN or the same infinity. If the norms allow an f32 overflow
//! on the way, for example with `||a_i|| ||b_j|| |alpha| > f32::MAX`, a result that is not finite
//! is accepted and counted.

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
