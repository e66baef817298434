//! The rungs for tensor cores: A and B of 16 bits, sums in f32.
//!
//! `mma` and `wgmma_persistent` are also built with other tiles, beside the rung: the code is the
//! rung's, and only its constants differ.

pub mod mma;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
pub mod sm_90a;
