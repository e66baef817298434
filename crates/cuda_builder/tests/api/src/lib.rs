//! Kernels that use what `cuda_std` shares with Rust-CUDA, each writing what it found.

#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch))]

#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
pub mod cluster;
pub mod float;
pub mod halves;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
pub mod hopper;
#[cfg(any(feature = "math", not(target_arch = "nvptx64")))]
pub mod math;
pub mod matrices;
pub mod memory;
pub mod threads;
pub mod typed;
