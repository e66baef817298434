//! The ladder: GEMM kernels in Rust, from naive to fast, one rung per file.
//!
//! Every rung computes `C = alpha * A * B + beta * C` in f32 on row-major matrices, for
//! every shape, alpha and beta. Read the files in the order of [`LADDER`]: each starts with what
//! changed since the rung before, and why. A second ladder, [`TENSOR_CORE_LADDER`], is for tensor
//! cores, with A and B in 16 bits.
//!
//! Beside the ladders are kernels that are not rungs:
//!
//! - [`families::f32`], for small products in f32;
//! - [`wgmma_split`](families::half::wgmma_split), for 16-bit products of few tiles;
//! - [`mma_outer`](families::half::mma_outer), for 16-bit products with a short K;
//! - [`families::tf32`], for f32 matrices on tensor cores.
//!
//! `cuda_builder` builds each family of kernels, a feature of the crate, for the GPU separately.
//! The host depends on the crate as on an ordinary library, for the [`KernelDescriptor`] of each
//! rung.

#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch))]
#![cfg_attr(
    target_arch = "nvptx64",
    allow(dead_code, unused_imports, unused_macros, reason = "a build has one family of kernels")
)]
#![allow(clippy::needless_range_loop, reason = "the indices name rows and columns")]
#![allow(clippy::too_many_arguments, reason = "a GEMM has eleven parameters, as in BLAS")]

pub mod abi;
mod device;
pub mod families;
pub mod ladder;
#[cfg(feature = "utility")]
pub mod utility;

#[cfg(not(target_arch = "nvptx64"))]
use self::abi::KernelDescriptor;
#[cfg(not(target_arch = "nvptx64"))]
use self::families::f32::{outer, skinny_m, skinny_n, small, tile_shapes};

/// Every rung, in the order of the ladder; for the host.
#[cfg(not(target_arch = "nvptx64"))]
pub const LADDER: &[&KernelDescriptor] = &[
    &ladder::f32::naive::DESCRIPTOR,
    &ladder::f32::coalesced::DESCRIPTOR,
    &ladder::f32::smem_full::DESCRIPTOR,
    &ladder::f32::smem_tile::DESCRIPTOR,
    &ladder::f32::rows2::DESCRIPTOR,
    &ladder::f32::tile1d::DESCRIPTOR,
    &ladder::f32::tile2d::DESCRIPTOR,
    &ladder::f32::vec4::DESCRIPTOR,
    &ladder::f32::regtile::DESCRIPTOR,
    &ladder::f32::smem2d::DESCRIPTOR,
    &ladder::f32::transposed::DESCRIPTOR,
    &ladder::f32::frag_prefetch::DESCRIPTOR,
    &ladder::f32::prefetch::DESCRIPTOR,
    &ladder::f32::warptile::DESCRIPTOR,
    &ladder::f32::async_copy::DESCRIPTOR,
    &ladder::f32::sm_90a::tma::DESCRIPTOR,
    &ladder::f32::sm_90a::warp_specialized::DESCRIPTOR,
    &ladder::f32::sm_90a::persistent::DESCRIPTOR,
];

/// The kernels of [`families::f32`]; for the host.
///
/// They are sorted from the largest tile to the smallest. Kernels for a short K follow, then those
/// for few rows or columns.
#[cfg(not(target_arch = "nvptx64"))]
pub const TILES: &[&KernelDescriptor] = &[
    &tile_shapes::tile_128x128x16::DESCRIPTOR,
    &tile_shapes::tile_64x128x16::DESCRIPTOR,
    &tile_shapes::tile_64x128::DESCRIPTOR,
    &tile_shapes::tile_64x64x16::DESCRIPTOR,
    &tile_shapes::tile_64x48x16::DESCRIPTOR,
    &tile_shapes::tile_64x64::DESCRIPTOR,
    &tile_shapes::tile_64x48::DESCRIPTOR,
    &tile_shapes::tile_64x32::DESCRIPTOR,
    &tile_shapes::tile_32x128::DESCRIPTOR,
    &tile_shapes::tile_32x64::DESCRIPTOR,
    &tile_shapes::tile_32x32::DESCRIPTOR,
    &tile_shapes::tile_16x16x16::DESCRIPTOR,
    &tile_shapes::tile_16x128::DESCRIPTOR,
    &tile_shapes::tile_4x128::DESCRIPTOR,
    &small::small_32x32::DESCRIPTOR,
    &outer::outer_32x128::DESCRIPTOR,
    &outer::outer_16x128::DESCRIPTOR,
    &outer::outer_32x64::DESCRIPTOR,
    &outer::outer_64x32::DESCRIPTOR,
    &skinny_m::skinny_m_8x128::DESCRIPTOR,
    &skinny_m::skinny_m_4x128::DESCRIPTOR,
    &skinny_m::skinny_m_2x64::DESCRIPTOR,
    &skinny_m::skinny_m_2x32::DESCRIPTOR,
    &skinny_n::skinny_n_32x16::DESCRIPTOR,
    &skinny_n::skinny_n_32x8::DESCRIPTOR,
    &skinny_n::skinny_n_32x4::DESCRIPTOR,
    &skinny_n::skinny_n_32x2::DESCRIPTOR,
    &skinny_n::skinny_n_32x1::DESCRIPTOR,
];

/// The kernels for tensor cores on f32 matrices; for the host.
///
/// They are sorted by [`Arithmetic`](abi::Arithmetic), with those for Hopper first, and then from
/// the largest tile to the smallest.
#[cfg(not(target_arch = "nvptx64"))]
pub const TF32: &[&KernelDescriptor] = &[
    &families::tf32::sm_90a::tma::TILE_256X128,
    &families::tf32::sm_90a::tma::TILE_192X128,
    &families::tf32::sm_90a::tma::TILE_128X128,
    &families::tf32::sm_90a::tma::TILE_64X128,
    &families::tf32::sm_90a::split::TILE_128X128,
    &families::tf32::sm_90a::split::TILE_64X128,
    &families::tf32::sm_90a::split::TILE_32X128,
    &families::tf32::sm_90a::split::TILE_16X128,
    &families::tf32::sm_90a::wgmma::tf32_64x64::DESCRIPTOR,
    &families::tf32::sm_90a::align1::tf32_mma_128x64_align1::DESCRIPTOR,
    &families::tf32::sm_90a::align1::tf32_mma_64x128_align1::DESCRIPTOR,
    &families::tf32::mma::tf32_mma_128x128::DESCRIPTOR,
    &families::tf32::mma::tf32_mma_64x64::DESCRIPTOR,
    &families::tf32::sm_90a::wgmma::tf32x3_128x128::DESCRIPTOR,
    &families::tf32::sm_90a::wgmma::tf32x3_64x64::DESCRIPTOR,
    &families::tf32::mma::tf32x3_mma_128x128::DESCRIPTOR,
    &families::tf32::mma::tf32x3_mma_64x64::DESCRIPTOR,
];

/// All kernels whose A, B and C are f32; for the host.
///
/// These are the ladder, the tiles, and [`tf32`](families::tf32).
#[cfg(not(target_arch = "nvptx64"))]
pub fn f32_kernels() -> impl Iterator<Item = &'static KernelDescriptor> + Clone {
    [LADDER, TILES, TF32].into_iter().flatten().copied()
}

/// All kernels, of every type; for the host.
#[cfg(not(target_arch = "nvptx64"))]
pub fn kernels() -> impl Iterator<Item = &'static KernelDescriptor> + Clone {
    f32_kernels().chain(TENSOR_CORE.iter().copied())
}

/// The ladder of tensor cores, with A and B in 16 bits: every rung, in order; for the host.
#[cfg(not(target_arch = "nvptx64"))]
pub const TENSOR_CORE_LADDER: &[&KernelDescriptor] = &[
    &ladder::tensor::mma::DESCRIPTOR,
    &ladder::tensor::sm_90a::wgmma::DESCRIPTOR,
    &ladder::tensor::sm_90a::wgmma_pipelined::DESCRIPTOR,
    &ladder::tensor::sm_90a::wgmma_persistent::DESCRIPTOR,
    &ladder::tensor::sm_90a::wgmma_pingpong::DESCRIPTOR,
];

/// All kernels for tensor cores with A and B in 16 bits; for the host.
///
/// These are the rungs of [`TENSOR_CORE_LADDER`], `mma` and `wgmma_persistent` with other tiles,
/// [`mma_outer`](families::half::mma_outer) for a short K, and
/// [`wgmma_split`](families::half::wgmma_split) for few tiles.
#[cfg(not(target_arch = "nvptx64"))]
pub const TENSOR_CORE: &[&KernelDescriptor] = &[
    &ladder::tensor::mma::DESCRIPTOR,
    &ladder::tensor::mma::TILE_128X256,
    &ladder::tensor::mma::TILE_64X64,
    &families::half::mma_outer::TILE_128X64,
    &families::half::mma_outer::TILE_64X128,
    &ladder::tensor::sm_90a::wgmma::DESCRIPTOR,
    &ladder::tensor::sm_90a::wgmma_pipelined::DESCRIPTOR,
    &ladder::tensor::sm_90a::wgmma_persistent::DESCRIPTOR,
    &ladder::tensor::sm_90a::wgmma_persistent::TILE_128X192,
    &ladder::tensor::sm_90a::wgmma_persistent::TILE_128X128,
    &ladder::tensor::sm_90a::wgmma_persistent::TILE_64X128,
    &ladder::tensor::sm_90a::wgmma_persistent::TILE_64X64,
    &ladder::tensor::sm_90a::wgmma_pingpong::DESCRIPTOR,
    &families::half::wgmma_split::TILE_64X16,
    &families::half::wgmma_split::TILE_128X32,
    &families::half::wgmma_split::TILE_64X64,
    &families::half::wgmma_split::TILE_64X128,
    &families::half::wgmma_split::TILE_64X192,
    &families::half::wgmma_split::TILE_128X256,
    &families::half::wgmma_split::TILE_192X192,
    &families::half::wgmma_split::TILE_64X16_ALIGN1,
    &families::half::wgmma_split::TILE_64X32_ALIGN1,
    &families::half::wgmma_split::TILE_64X64_ALIGN1,
];
