//! Matrices of f32 in a device's memory, and views of parts of them.

mod memory;
mod owned;
mod view;

pub(crate) use memory::Memory;
pub use owned::{DeviceMatrix, Layout};
pub use view::{DeviceMatrixMut, DeviceMatrixRef};
