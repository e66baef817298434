//! Matrices in a device's memory, and views of parts, transposes and batches of them.

mod conversions;
mod memory;
mod operand;
mod owned;
mod pointers;
mod view;

pub(crate) use memory::Memory;
pub use operand::{OperandMut, OperandRef};
pub use owned::{AnyMatrix, DeviceMatrix, Layout};
pub use pointers::{PointerBatch, PointerBatchMut};
pub use view::{DeviceMatrixMut, DeviceMatrixRef};
