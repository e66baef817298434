//! The ladder: GEMM kernels in Rust, from naive to fast, one rung per file.
//!
//! Every rung computes `C = alpha * A * B + beta * C` in f32 on row-major matrices, for
//! every shape, alpha and beta. Read the files in the order of [`LADDER`]: each starts with
//! what changed since the rung before, and why.
//!
//! The crate is built twice. `cuda_builder` builds it for the GPU; the host depends on it
//! as an ordinary library, for the [`Spec`] of each rung.

#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch))]
#![allow(clippy::needless_range_loop, reason = "the indices name rows and columns")]
#![allow(clippy::too_many_arguments, reason = "a GEMM has eleven parameters, as in BLAS")]

mod epilogue;
pub mod naive;
mod spec;
pub mod tile2d;

pub use spec::{GridOrder, Shared, Spec, Tile};

/// Every rung, in the order of the ladder.
pub const LADDER: &[&Spec] = &[&naive::SPEC, &tile2d::SPEC];
