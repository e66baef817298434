//! Matrices of f32 in a device's memory, and views of parts and batches of them.

mod batch;
mod memory;
mod owned;
mod pointers;
mod view;

pub use batch::{DeviceBatchMut, DeviceBatchRef};
pub(crate) use memory::Memory;
pub use owned::{DeviceMatrix, Layout};
pub use pointers::{PointerBatch, PointerBatchMut};
pub use view::{DeviceMatrixMut, DeviceMatrixRef};
