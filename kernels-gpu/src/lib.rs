//! The ladder: GEMM kernels in Rust, from naive to fast, one rung per file.
//!
//! Every rung computes `C = alpha * A * B + beta * C` in f32 on row-major matrices, for
//! every shape, alpha and beta. Read the files in the order of [`LADDER`]: each starts with
//! what changed since the rung before, and why. A second ladder, [`TENSOR_CORE_LADDER`], is for tensor
//! cores, whose A and B are in 16 bits. Beside the ladders are kernels that are no rungs: [`tiles`], for small
//! products in f32; [`wgmma_split`], for products in 16 bits of few tiles, and [`mma_outer`], of a short K; and
//! [`tf32`], for tensor cores and matrices of f32.
//!
//! The crate is built twice. `cuda_builder` builds it for the GPU; the host depends on it
//! as an ordinary library, for the [`KernelDescriptor`] of each rung.

#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch))]
#![allow(clippy::needless_range_loop, reason = "the indices name rows and columns")]
#![allow(clippy::too_many_arguments, reason = "a GEMM has eleven parameters, as in BLAS")]

pub mod async_copy;
pub mod coalesced;
mod dependent_launch;
mod descriptor;
pub mod epilogue;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
mod f32_pipeline;
pub mod frag_prefetch;
mod fragment;
mod half_rows;
mod half_tile;
pub mod matrix;
pub mod mma;
pub mod mma_outer;
pub mod naive;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
pub mod persistent;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
mod pipeline_state;
pub mod prefetch;
pub mod regtile;
pub mod roofline;
pub mod rows2;
mod share;
pub mod smem2d;
pub mod smem_full;
pub mod smem_tile;
pub mod staging;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
mod stream_k;
mod swizzle;
pub mod tensor_core;
mod tensor_output;
pub mod tf32;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
mod thread_tile;
pub mod tile1d;
pub mod tile2d;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
mod tile_load;
pub mod tiles;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
pub mod tma;
pub mod transposed;
pub mod vec4;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
pub mod warp_specialized;
pub mod warptile;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
pub mod wgmma;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
mod wgmma_mainloop;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
pub mod wgmma_persistent;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
pub mod wgmma_pingpong;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
pub mod wgmma_pipelined;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
pub mod wgmma_split;

pub use descriptor::{
    Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Reads, Shared, Target, Tile, Unaligned,
};
pub use tensor_core::{InputType, TensorCoreAbi, TensorCoreDescriptor};
pub use tiles::TILES;

/// Every rung, in the order of the ladder; for the host.
#[cfg(not(target_arch = "nvptx64"))]
pub const LADDER: &[&KernelDescriptor] = &[
    &naive::DESCRIPTOR,
    &coalesced::DESCRIPTOR,
    &smem_full::DESCRIPTOR,
    &smem_tile::DESCRIPTOR,
    &rows2::DESCRIPTOR,
    &tile1d::DESCRIPTOR,
    &tile2d::DESCRIPTOR,
    &vec4::DESCRIPTOR,
    &regtile::DESCRIPTOR,
    &smem2d::DESCRIPTOR,
    &transposed::DESCRIPTOR,
    &frag_prefetch::DESCRIPTOR,
    &prefetch::DESCRIPTOR,
    &warptile::DESCRIPTOR,
    &async_copy::DESCRIPTOR,
    &tma::DESCRIPTOR,
    &warp_specialized::DESCRIPTOR,
    &persistent::DESCRIPTOR,
];

/// The kernels for tensor cores on f32 matrices, of each [`Arithmetic`] those for Hopper first, and then
/// from the largest tile to the smallest; for the host.
#[cfg(not(target_arch = "nvptx64"))]
pub const TF32: &[&KernelDescriptor] = &[
    &tf32::tma::TILE_256X128,
    &tf32::tma::TILE_192X128,
    &tf32::tma::TILE_128X128,
    &tf32::tma::TILE_64X128,
    &tf32::split::TILE_128X128,
    &tf32::split::TILE_64X128,
    &tf32::split::TILE_32X128,
    &tf32::split::TILE_16X128,
    &tf32::wgmma::tf32_64x64::DESCRIPTOR,
    &tf32::align1::tf32_mma_128x64_align1::DESCRIPTOR,
    &tf32::align1::tf32_mma_64x128_align1::DESCRIPTOR,
    &tf32::mma::tf32_mma_128x128::DESCRIPTOR,
    &tf32::mma::tf32_mma_64x64::DESCRIPTOR,
    &tf32::wgmma::tf32x3_128x128::DESCRIPTOR,
    &tf32::wgmma::tf32x3_64x64::DESCRIPTOR,
    &tf32::mma::tf32x3_mma_128x128::DESCRIPTOR,
    &tf32::mma::tf32x3_mma_64x64::DESCRIPTOR,
];

/// All kernels whose A, B and C are f32: the ladder, the tiles, and those of [`tf32`]; for the host.
#[cfg(not(target_arch = "nvptx64"))]
pub fn f32_kernels() -> impl Iterator<Item = &'static KernelDescriptor> + Clone {
    [LADDER, TILES, TF32].into_iter().flatten().copied()
}

/// The ladder of tensor cores, whose A and B are in 16 bits: every rung, in its order; for the host.
#[cfg(not(target_arch = "nvptx64"))]
pub const TENSOR_CORE_LADDER: &[&TensorCoreDescriptor] = &[
    &mma::DESCRIPTOR,
    &wgmma::DESCRIPTOR,
    &wgmma_pipelined::DESCRIPTOR,
    &wgmma_persistent::DESCRIPTOR,
    &wgmma_pingpong::DESCRIPTOR,
];

/// All kernels for tensor cores with A and B in 16 bits: the rungs of [`TENSOR_CORE_LADDER`], `mma` and
/// `wgmma_persistent` in other sizes of their tiles, and [`wgmma_split`] for products of few tiles; for the host.
#[cfg(not(target_arch = "nvptx64"))]
pub const TENSOR_CORE: &[&TensorCoreDescriptor] = &[
    &mma::DESCRIPTOR,
    &mma::TILE_128X256,
    &mma::TILE_64X64,
    &mma_outer::TILE_128X64,
    &mma_outer::TILE_64X128,
    &wgmma::DESCRIPTOR,
    &wgmma_pipelined::DESCRIPTOR,
    &wgmma_persistent::DESCRIPTOR,
    &wgmma_persistent::TILE_128X192,
    &wgmma_persistent::TILE_128X128,
    &wgmma_persistent::TILE_64X128,
    &wgmma_persistent::TILE_64X64,
    &wgmma_pingpong::DESCRIPTOR,
    &wgmma_split::TILE_64X16,
    &wgmma_split::TILE_128X32,
    &wgmma_split::TILE_128X64,
    &wgmma_split::TILE_128X128,
    &wgmma_split::TILE_256X128,
    &wgmma_split::TILE_64X16_ALIGN1,
    &wgmma_split::TILE_64X32_ALIGN1,
    &wgmma_split::TILE_64X64_ALIGN1,
];
