//! Kernels for tensor cores with A and B of 16 bits: for a short K, and for few tiles.

pub mod mma_outer;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
pub mod wgmma_split;
