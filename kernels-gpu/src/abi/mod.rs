//! What the host and a kernel agree on: descriptors, parameters and their options.
//!
//! A kernel builds its descriptor from the constants that it uses itself.

pub(crate) mod descriptor;
pub mod epilogue;
pub mod layout;
pub mod tensor_core;

pub use self::descriptor::{
    Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Reads, Shared, Target, Tile, Unaligned,
};
