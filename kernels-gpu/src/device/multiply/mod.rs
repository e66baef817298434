//! Products of the stages' tiles: FMAs of a thread's fragments, and `wgmma` of a warpgroup's tiles.

pub mod thread_tile;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
pub mod warpgroup;
