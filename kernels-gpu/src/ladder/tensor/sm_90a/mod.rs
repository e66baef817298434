//! The rungs that multiply by `wgmma`, for Hopper alone.

pub mod wgmma;
pub mod wgmma_persistent;
pub mod wgmma_pingpong;
pub mod wgmma_pipelined;
