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
//! What it adds to `cargo rustc --target nvptx64-nvidia-cuda`:
//! - it asks rustup for `rust-src` where that is missing ([`rust_src`]);
//! - it keeps the optimiser from copying barriers and their like, and refuses assembly that could
//!   be copied so ([`ptx::Refused`]);
//! - it sets the flags that make the code fast and right, each explained where it is set;
//! - it writes the launch bounds of `#[kernel]` and the alignment of its grid constants into the
//!   PTX, and refuses PTX in which a kernel calls a function that does not exist or, if it must
//!   not, can panic or uses local memory ([`ptx`], [`Panic`], [`LocalMemory`]);
//! - what is refused is named by its place in the Rust source;
//! - it gives the crate `no_std` and the unstable features that kernels need, Rust-CUDA's values of
//!   `cfg(target_feature)`, and tells cargo which files and variables a build script depends on;
//! - the PTX is the same, byte for byte, wherever the checkout and the Rust sources lie.

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
