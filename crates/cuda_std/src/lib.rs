//! The device standard library: what a kernel needs that `core` does not have.
//!
//! The names are those of Rust-CUDA's `cuda_std` wherever it has one. The
//! implementation is this project's own, on rustc's in-tree NVPTX backend, because the
//! published crate needs a compiler from 2021.
//!
//! A crate of kernels begins with `#![no_std]`, and `cuda_builder` gives it the unstable features
//! that it needs. A crate that kernels depend on, and that has kernels or assembly of its own,
//! names them: `#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch))]`. A
//! kernel is a function:
//!
//! ```no_run
//! use cuda_std::prelude::*;
//!
//! /// `y[i] += a * x[i]`.
//! ///
//! /// # Safety
//! /// `y` has at least `x.len()` elements, and nothing else touches it.
//! #[kernel(max_block = 256)]
//! pub unsafe fn saxpy(a: f32, x: &[f32], y: *mut f32) {
//!     let i = thread::index_1d() as usize;
//!     if i < x.len() {
//!         // SAFETY: `i` is in bounds of both, and belongs to this thread alone.
//!         unsafe { *y.add(i) = fma(a, x[i], *y.add(i)) }
//!     }
//! }
//! ```
//!
//! `PORTING.md` in this crate's folder says what Rust-CUDA's constructs become here.
//! `COMPARISON.md` says what works, next to cuda-oxide's examples.
//!
//! | module | what |
//! |---|---|
//! | [`disjoint`] | slices whose elements are divided among the threads |
//! | `launch` | on the host: typed launches |
//! | [`thread`] | indices, dimensions, barriers and fences |
//! | [`shared`] | the block's shared memory |
//! | [`warp`] | votes, shuffles, matches, reductions within a warp |
//! | [`block`] | reductions within a block |
//! | [`atomic`] | atomic floats, and atomic read-modify-write on global memory |
//! | [`constant`] | constant memory |
//! | [`ptr`] | state spaces of pointers |
//! | [`cfg`](mod@cfg) | the compute capability |
//! | [`misc`] | clocks, breakpoints, counters |
//! | [`mem`] | the sizes of shared memory |
//! | [`io`] | `print!` and `println!` |
//! | [`cluster`] | clusters of blocks, and the shared memory of other blocks |
//! | [`dependent_launch`] | the kernels before and behind this one in a stream |
//! | [`cp_async`] | asynchronous copies to shared memory |
//! | [`mbarrier`] | barriers that count arrivals and bytes |
//! | [`tma`] | bulk copies of tensor tiles to shared memory |
//! | [`mma`] | matrices in the registers of a warp, and products of them by tensor cores |
//! | [`sm_90a::wgmma`] | products of tiles in shared memory by the tensor cores of a warpgroup |
//! | [`vec`] | global loads and stores of up to 128 bits, with cache operators |
//! | [`math`] | `sqrt`, `sin`, `exp` and the like, as methods |
//! | [`fast`] | approximate forms of them |
//! | `half` | 16-bit floats, and pairs of them |
//! | [`function`] | functions as parameters, instead of closures |
//! | [`float`] | FMA, and single instructions |
//! | `heap` | an allocator for `alloc` |
//! | [`hint`] | hints to the compiler |
//!
//! On other targets than `nvptx64` everything type-checks, and functions of a GPU panic. So editors
//! work, and a host crate can use the constants of a crate of kernels.
//!
//! # What keeps the code fast and right
//!
//! - Shared memory has 32-bit addresses of its own here ([`shared`]): rustc cannot place
//!   a static there, and generic pointers to it compile to slow generic loads.
//! - Barriers, shuffles and other convergent instructions must not be copied by the optimiser.
//!   Here they are LLVM's convergent intrinsics, and `cuda_builder` keeps the functions around them
//!   from being copied. Assembly is used for operations of one thread, like an arrival at an
//!   [`mbarrier`]: a copy of it in another arm of a branch does no harm.
//! - An operation that PTX leaves undefined is `unsafe`, with its contract.
//! - Assembly with its own scope closes the brace at the end of a line. A brace on its own line
//!   would look like the end of the kernel to tools that read PTX by lines.
//!
//! # Panics
//!
//! A kernel may panic: index a slice, divide, `unwrap`, `assert!`. The thread prints its own place
//! in the grid, the place in the source and the message, and ends the launch with an error. Code
//! that can panic is larger, and needs local memory for the message. `CudaBuilder::panic` and
//! `#[kernel(no_panic)]` turn it into a build error, for kernels whose every instruction counts.

#![no_std]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(
        abi_unadjusted,
        asm_experimental_arch,
        core_intrinsics,
        link_llvm_intrinsics,
        stdarch_nvptx
    ),
    allow(internal_features)
)]

#[cfg(feature = "alloc")]
extern crate alloc;

mod access;
pub mod atomic;
pub mod block;
pub mod cfg;
pub mod cluster;
pub mod constant;
pub mod cp_async;
pub mod dependent_launch;
pub mod disjoint;
pub mod fast;
pub mod float;
pub mod function;
#[cfg(feature = "half")]
pub mod half;
#[cfg(all(feature = "alloc", target_arch = "nvptx64"))]
pub mod heap;
pub mod hint;
#[cfg(target_arch = "nvptx64")]
mod intrinsics;
pub mod io;
#[cfg(all(feature = "launch", not(target_arch = "nvptx64")))]
pub mod launch;
pub mod math;
pub mod mbarrier;
pub mod mem;
pub mod misc;
pub mod mma;
#[cfg(target_arch = "nvptx64")]
mod panic;
pub mod ptr;
pub mod shared;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
pub mod sm_90a;
pub mod thread;
pub mod tma;
pub mod vec;
pub mod warp;

#[doc(hidden)]
pub use cuda_std_macros::symbol as __symbol;
pub use cuda_std_macros::{address_space, gpu_only, kernel, shared_array};
pub use float::{fma, max_nan};
pub use glam;
#[cfg(feature = "half")]
pub use half::{bf16, f16};
pub use math::{FloatExt, GpuFloat};
#[cfg(feature = "vek")]
pub use vek;

/// The parameter that `#[kernel]` declares for a `#[grid_constant]` of `BYTES` bytes.
///
/// It has bytes, because rustc passes no type of greater alignment than 16. `cuda_builder` aligns
/// it.
#[doc(hidden)]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GridConstant<const BYTES: usize>([u8; BYTES]);

/// The parameter that `#[kernel]` declares for a value.
///
/// rustc warns of an array that is a parameter by itself.
#[doc(hidden)]
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct ByValue<T>(pub T);

/// The items that `#[kernel]` makes for the host, if there are typed launches.
#[cfg(all(feature = "launch", not(target_arch = "nvptx64")))]
#[doc(hidden)]
#[macro_export]
macro_rules! __on_host {
    ($($item:item)*) => { $($item)* };
}

/// The items that `#[kernel]` makes for the host, if there are typed launches.
#[cfg(not(all(feature = "launch", not(target_arch = "nvptx64"))))]
#[doc(hidden)]
#[macro_export]
macro_rules! __on_host {
    ($($item:item)*) => {};
}

/// The items that most kernels use.
pub mod prelude {
    #[cfg(feature = "alloc")]
    pub use alloc::borrow::ToOwned;
    #[cfg(feature = "alloc")]
    pub use alloc::boxed::Box;
    #[cfg(feature = "alloc")]
    pub use alloc::format;
    #[cfg(feature = "alloc")]
    pub use alloc::rc::Rc;
    #[cfg(feature = "alloc")]
    pub use alloc::string::{String, ToString};
    #[cfg(feature = "alloc")]
    pub use alloc::vec::Vec;

    pub use crate::disjoint::DisjointSlice;
    #[cfg(feature = "half")]
    pub use crate::f16;
    pub use crate::float::{fma, max_nan};
    pub use crate::function::DeviceFn;
    pub use crate::math::{FloatExt, GpuFloat};
    pub use crate::shared::{self, SharedArray};
    pub use crate::vec::F32x4;
    pub use crate::{gpu_only, kernel, print, println, shared_array, thread, warp};
}
