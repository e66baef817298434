//! The rungs: one kernel per file, whole, in the order in which they are read.
//!
//! A rung teaches one technique. The files say what changed since the rung before; the order is
//! that of [`LADDER`](crate::LADDER) and [`TENSOR_CORE_LADDER`](crate::TENSOR_CORE_LADDER).

#[cfg(feature = "ladder_f32")]
pub mod f32;
#[cfg(feature = "ladder_tensor")]
pub mod tensor;
