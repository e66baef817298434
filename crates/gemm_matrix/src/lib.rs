//! Dense row-major matrices of f32 in the host's memory, views of them, NumPy's `.npy` files, the types
//! of elements that devices take, and the names of what is done to the elements of a product.
//!
//! Sizes and leading dimensions are in elements. [`Matrix`], [`MatrixRef`], [`MatrixMut`] and
//! [`npy`] have examples, which show errors, too.
//!
//! # Features
//!
//! `random`: `Matrix::random`. `ndarray` and `faer`: `TryFrom` their views for [`MatrixRef`] and
//! [`MatrixMut`], and `From` between [`Matrix`] and `ndarray`'s `Array2`.

mod element;
mod epilogue;
mod matrix;
pub mod npy;
mod view;
#[cfg(feature = "faer")]
mod with_faer;
#[cfg(feature = "ndarray")]
mod with_ndarray;

pub use element::Element;
pub use epilogue::{Activation, Axis};
pub use matrix::Matrix;
pub use view::{MatrixMut, MatrixRef, ViewError, span};
