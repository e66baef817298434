//! The rungs with tensor maps, for Hopper alone: bulk copies, warp roles, persistent blocks.

pub mod persistent;
pub mod tma;
pub mod warp_specialized;
