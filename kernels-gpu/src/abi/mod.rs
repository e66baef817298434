//! The interface of host and kernels: descriptors, parameters and their options.
//!
//! A kernel builds its descriptor from its own constants.

pub(crate) mod descriptor;
pub mod epilogue;
pub mod groups;
pub mod layout;
pub mod tensor_core;

pub use self::descriptor::{
    Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Reads, Shared, Target, Tile, Unaligned,
};
