//! What the host and a kernel agree on: descriptors, parameters and their options.
//!
//! Nothing here runs on the device. Kernels build their descriptors from the constants that they use.

pub(crate) mod descriptor;
pub mod epilogue;
pub mod layout;
pub mod tensor_core;

pub use self::descriptor::{
    Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Reads, Shared, Target, Tile, Unaligned,
};
