//! Matrices of f32 in a device's memory, and views of parts and batches of them; matrices of 16-bit
//! floats.

mod batch;
mod half;
mod memory;
mod owned;
mod pointers;
mod view;

pub use batch::{DeviceBatchMut, DeviceBatchRef};
pub use half::DeviceHalfMatrix;
pub(crate) use memory::Memory;
pub use owned::{DeviceMatrix, Layout};
pub use pointers::{PointerBatch, PointerBatchMut};
pub use view::{DeviceMatrixMut, DeviceMatrixRef};
