//! Builds a crate of GPU kernels to PTX, with stock rustc.
//!
//! The API is that of Rust-CUDA's `CudaBuilder`, which drives a compiler backend of its
//! own. Here the compiler is the rustc that is already installed: its LLVM has an NVPTX
//! backend, and `core` is built for it from the `rust-src` component.
//!
//! ```no_run
//! use cuda_builder::{CudaArch, CudaBuilder};
//!
//! let ptx = CudaBuilder::new("../kernels").arch(CudaArch::Sm80).copy_to("kernels.ptx").build()?;
//! # Ok::<(), cuda_builder::CudaBuilderError>(())
//! ```
//!
//! It adds this to `cargo rustc --target nvptx64-nvidia-cuda`:
//! - It asks rustup for `rust-src` if that is missing ([`rust_src`]).
//! - It keeps the optimiser from copying convergent instructions, and refuses assembly that could
//!   be copied ([`ptx::Refused`]).
//! - It sets the flags for fast and correct code, each explained where it is set.
//! - It writes launch bounds and the alignment of grid constants into the PTX.
//! - It refuses calls of functions that do not exist, and on request panics and local memory
//!   ([`ptx`], [`Panic`], [`LocalMemory`]). Errors name the place in the Rust source.
//! - It gives the crate `no_std`, the unstable features that kernels need, and Rust-CUDA's values
//!   of `cfg(target_feature)`.
//! - It tells cargo which files and variables a build script depends on.
//! - The PTX is the same, byte for byte, wherever the checkout and the Rust sources lie.

mod arch;
mod builder;
mod cargo;
mod convergence;
mod depend;
mod diagnose;
mod error;
pub mod ptx;
mod rerun;
mod rules;
mod run;
pub mod rust_src;
#[cfg(feature = "sources")]
pub mod sources;

pub use arch::CudaArch;
pub use builder::{CudaBuilder, DebugInfo};
pub use cargo::target_dir;
pub use error::CudaBuilderError;
pub use rules::{LocalMemory, Panic, Rules};
