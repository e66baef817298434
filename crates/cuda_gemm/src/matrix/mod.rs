//! Matrices in a device's memory, and views of parts, transposes and batches of them.

mod groups;
mod memory;
mod operand;
mod owned;
mod pointers;
mod view;
mod view_mut;

pub use groups::GroupEnds;
pub(crate) use memory::Memory;
pub(crate) use operand::Placement;
pub use operand::{AnyElement, AnyMatrix, IntoOperand, IntoOperandMut, OperandMut, OperandRef};
pub use owned::{DeviceMatrix, Layout};
pub use pointers::{PointerBatch, PointerBatchMut};
pub use view::DeviceMatrixRef;
pub use view_mut::DeviceMatrixMut;
