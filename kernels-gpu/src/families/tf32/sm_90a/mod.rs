//! The TF32 kernels for Hopper alone.

pub mod align1;
mod fragment;
mod main_loop;
mod producer;
pub mod split;
pub mod tma;
pub mod wgmma;

/// Step along K: 128 bytes.
const BK: u32 = 32;
