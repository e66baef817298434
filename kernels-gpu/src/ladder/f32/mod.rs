//! The rungs in f32, by FMAs: from one thread per output to persistent blocks with stream-K.

pub mod async_copy;
pub mod coalesced;
pub mod frag_prefetch;
pub mod naive;
pub mod prefetch;
pub mod regtile;
pub mod rows2;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
pub mod sm_90a;
pub mod smem2d;
pub mod smem_full;
pub mod smem_tile;
pub mod tile1d;
pub mod tile2d;
pub mod transposed;
pub mod vec4;
pub mod warptile;
