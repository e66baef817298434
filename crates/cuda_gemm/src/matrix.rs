//! Matrices of f32 in a device's memory, and views of parts and batches of them; matrices of 16-bit
//! floats.

mod batch;
mod half;
mod half_view;
mod memory;
mod operand;
mod owned;
mod pointers;
mod view;

pub use batch::{DeviceBatchMut, DeviceBatchRef};
pub use half::DeviceHalfMatrix;
pub use half_view::{DeviceHalfMut, DeviceHalfRef};
pub(crate) use memory::Memory;
pub(crate) use operand::Layout as OperandLayout;
pub use operand::{OperandMut, OperandRef};
pub use owned::{DeviceMatrix, Layout};
pub use pointers::{PointerBatch, PointerBatchMut};
pub use view::{DeviceMatrixMut, DeviceMatrixRef};
