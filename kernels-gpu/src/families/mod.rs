//! Kernels that are not rungs, for products that the ladders' last rungs are too large or too slow
//! for.
//!
//! A family needs `abi` and `device` alone: no rung, and no other family.

#[cfg(feature = "f32")]
pub mod f32;
#[cfg(feature = "half")]
pub mod half;
#[cfg(feature = "tf32")]
pub mod tf32;
