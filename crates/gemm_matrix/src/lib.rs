//! Dense row-major matrices of f32 in the host's memory, views of them, and NumPy's `.npy` files.

mod matrix;
pub mod npy;
mod view;
#[cfg(feature = "faer")]
mod with_faer;
#[cfg(feature = "ndarray")]
mod with_ndarray;

pub use matrix::Matrix;
pub use view::{MatrixMut, MatrixRef, ViewError};
