//! Dense row-major matrices of f32 in the host's memory, views of them, and NumPy's `.npy` files.

mod matrix;
pub mod npy;
mod view;

pub use matrix::Matrix;
pub use view::{MatrixMut, MatrixRef, ViewError};
