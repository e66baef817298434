//! Kernels that are no rungs, for products that the ladders' last rungs are wrong for.
//!
//! A family needs `abi` and `device` alone: no rung, and no other family.

pub mod f32;
pub mod half;
pub mod tf32;
