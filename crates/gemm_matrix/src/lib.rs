//! Dense row-major f32 matrices on the host, and views of them.
//!
//! Also NumPy's `.npy` files, the element types of device matrices, and the names of epilogue
//! operations.
//!
//! Sizes and leading dimensions are in elements. [`Matrix`], [`MatrixRef`], [`MatrixMut`] and
//! [`npy`] have examples, which also show errors.
//!
//! # Features
//!
//! - `random`: `Matrix::random`.
//! - `ndarray` and `faer`: `TryFrom` their views for [`MatrixRef`] and [`MatrixMut`].
//! - `ndarray` also: `From` between [`Matrix`] and `Array2`.

mod element;
mod epilogue;
mod matrix;
pub mod npy;
mod view;
#[cfg(feature = "faer")]
mod with_faer;
#[cfg(feature = "ndarray")]
mod with_ndarray;

pub use element::{Element, Scalar};
pub use epilogue::{Activation, Axis};
/// The 16-bit element types.
pub use half::{bf16, f16};
pub use matrix::Matrix;
pub use view::{MatrixMut, MatrixRef, ViewError, span};
