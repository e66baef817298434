//! Matrices in a device's memory, and views of parts, transposes and batches of them.

mod any_element;
mod groups;
mod memory;
mod operand;
mod owned;
mod placement;
mod pointers;
mod view;
mod view_mut;

pub use any_element::AnyElement;
pub use groups::GroupEnds;
pub(crate) use memory::Memory;
pub use operand::{AnyMatrix, IntoOperand, IntoOperandMut, OperandMut, OperandRef};
pub use owned::{DeviceMatrix, Layout};
pub(crate) use placement::Placement;
pub use pointers::{PointerBatch, PointerBatchMut};
pub use view::DeviceMatrixRef;
pub use view_mut::DeviceMatrixMut;
