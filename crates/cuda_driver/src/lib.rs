//! The CUDA driver API in one binary for every machine.
//!
//! This crate defines the `cu*` functions that the published `cust` 0.3.2
//! calls, so a program that uses `cust` links with no CUDA toolkit and no
//! `libcuda`. At run time two kinds of device answer, in the same process:
//!
//! - **the GPUs** of an NVIDIA driver, when the machine has one: `libcuda.so.1`
//!   (`nvcuda.dll` on Windows) is loaded on first use and calls are forwarded to it;
//! - **the software device** of [`soft_cuda`], which is always there.
//!
//! # Device ordinals
//!
//! The GPUs come first, in the driver's order. After them comes the software device,
//! of compute capability 8.0, as [`soft_ordinal`]; on a machine without a GPU it is
//! device 0, so unmodified `cust` programs run on it. It has a second model, of
//! compute capability 9.0, as [`soft_sm90_ordinal`], which loads PTX for `sm_90a`
//! and has tensor maps. Both have the same memory. `CUDA_VISIBLE_DEVICES` hides GPUs
//! as it always does. `cuDeviceGetCount` answers the GPUs plus two, and `cuInit`
//! succeeds unless [the environment](crate#checks) makes no sense; [`gpu_count`] says why there is no GPU.
//!
//! # Where a call goes
//!
//! One rule for every function. A call with a handle or a device address goes to
//! the device that the handle belongs to: the software device's handles and
//! addresses carry a tag in their upper 16 bits that no real pointer has, and a `CUdevice`
//! is an ordinal. A call
//! without one goes to the calling thread's current context. A call that mixes
//! the two kinds, such as a copy between a GPU address and a software address,
//! answers `CUDA_ERROR_INVALID_VALUE`: copy through host memory instead.
//!
//! # Layers
//!
//! Each file imports only from layers below its own:
//!
//! | layer | what it has |
//! |---|---|
//! | `sys` | the exported functions; each goes to the driver, to `soft`, or to a handler below |
//! | `global`, `contexts` | functions that look into a structure, or work on both kinds of context |
//! | [`soft`] | the software device's answers |
//! | `route`, `stack`, `ordinals`, `init` | which device a call goes to: arguments, the thread's contexts, ordinals |
//! | `arg` | what an argument tells |
//! | `gpu` | the NVIDIA driver, loaded and called by name |
//! | `types`, `codes`, `last_error` | types and result codes, the text of a failure |
//!
//! # What the software device leaves out
//!
//! Arrays, textures, surfaces, external memory, the JIT linker, managed memory, and
//! graphs other than captured ones answer `CUDA_ERROR_NOT_SUPPORTED` there, and so do tensor maps of other types
//! than f32, interleaved ones, and those with element strides. Kernels run inside
//! `cuLaunchKernel`; a fault is reported as on a GPU all the same: the launch
//! succeeds, and every later call in that context returns the error until the
//! context is gone. [`soft::last_fault`] has the full text. The limits of a context hold as on a GPU:
//! `CU_LIMIT_STACK_SIZE` where a kernel's calls tell nobody how deep they are (up to 512 KiB), and
//! `CU_LIMIT_MALLOC_HEAP_SIZE`, until a kernel that allocates has been launched. What was set is
//! what is read back. A kernel with a loop
//! without end runs until [`soft::configure`] has set a budget of instructions.
//!
//! A module loads if its declarations can be read, also with a kernel that the device does not
//! run. `cuModuleGetFunction` answers `CUDA_ERROR_INVALID_PTX` for such a kernel, and
//! [`last_error()`] names the line and what is missing. `CU_FUNC_ATTRIBUTE_NUM_REGS` is an estimate
//! ([`Kernel::registers`](soft_cuda::Kernel::registers)), which occupancy depends on.
//!
//! # Checks
//!
//! The environment says what the software device checks beyond what it always does:
//!
//! | variable | value |
//! |---|---|
//! | `SOFT_CUDA_CHECK` | `none` (the default), `all`, or some of `races`, `memory` and `sync` with commas between them; see [`soft_cuda::Checks`] |
//! | `SOFT_CUDA_SCHEDULE` | `in-order` (the default), `random:SEED` or `adversarial`; see [`soft_cuda::Schedule`] |
//! | `SOFT_CUDA_INSTRUCTION_BUDGET` | warp instructions after which a launch is ended |
//!
//! An empty variable is one that is not set. `cuInit` answers `CUDA_ERROR_INVALID_VALUE` to any
//! other value, unless [`soft::configure_with`] has set something in its place, and
//! [`last_error()`] explains it. What a check finds is a fault of the launch, as above, unless
//! [`max_findings`](soft_cuda::Config::max_findings) of [`soft::configure`] lets launches go on;
//! [`soft::findings`] lists everything, as text, or as JSON (the feature `json`).
//!
//! # Stream capture
//!
//! `cust` has no calls for it; those of [`sys`] take its raw handles. On the software
//! device, a stream between [`cuStreamBeginCapture_v2`](sys::cuStreamBeginCapture_v2) and
//! [`cuStreamEndCapture`](sys::cuStreamEndCapture) records kernel launches, asynchronous
//! copies from device to device and fills, and launches of graphs;
//! [`cuGraphLaunch`](sys::cuGraphLaunch) runs them in that order. As in NVIDIA's driver, a
//! call that would wait for a capture, and an allocation, a free or a wait for an event that
//! the capture mode forbids, answers an error and invalidates the capture. `cust` turns
//! these errors into `UnknownError`; [`last_error()`] explains them. What differs from
//! NVIDIA's driver:
//!
//! - A capture stays in the one stream in which it began, and that is not
//!   `CU_STREAM_PER_THREAD`. Recording an event in it, host functions, copies to and from
//!   the host and allocations in it answer `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.
//! - The grid and the block of a captured launch are checked when the graph is launched.
//! - A graph runs in streams of the context in which it was captured, and goes with it.
//! - Captures on GPUs and on the software device do not know of each other.
//!
//! # Linking
//!
//! A crate that only calls `cust` has to name this one, or cargo leaves it out of
//! the link: `use cuda_driver as _;` is enough. And the build scripts of `cust` look for
//! a CUDA toolkit, which a workspace that uses it has to keep them from, in its own
//! `Cargo.toml`; the software device is slow unless it is optimised:
//!
//! ```toml
//! [patch.crates-io]
//! find_cuda_helper = { path = "THIS CHECKOUT/crates/find_cuda_helper" }
//! # Not needed, but builds sooner: the published one brings three vector libraries.
//! cust_core = { path = "THIS CHECKOUT/crates/cust_core" }
//!
//! [profile.dev.package.soft_cuda]
//! opt-level = 3
//! ```
//!
//! The symbols stay inside the executable, or the shared library (`cdylib`), that this crate is
//! linked into: on Linux for x86-64 and AArch64 they are hidden. So no other library calls them,
//! and nothing here calls another driver that the process has loaded. A forwarded call looks its
//! name up in the driver's library alone. Where that library turns out to call this crate, it is
//! no driver ([`GpuUnavailable::CallsBack`]).
//!
//! On Windows and macOS a shared library does export them, which nobody notices there: each
//! library says which other one a name comes from. On other systems, libraries loaded later
//! (cuBLAS) find the real `libcuda` as long as the program is an executable that is not linked
//! with `-rdynamic`. A Rust `dylib` has to contain whatever calls `cust`, not this crate alone.
//!
//! # Error codes
//!
//! `cust_raw` turns result codes into a Rust enum, for which a code newer than
//! the enum is undefined behaviour. Such codes come back as `CUDA_ERROR_UNKNOWN`,
//! and [`last_error()`] keeps the original. So does a panic in this crate or in the software
//! device, which must not unwind into a C caller.
//!
//! # A trap in `cust` that cannot be mended here
//!
//! `ModuleJitOption::DetermineTargetFromContext` pushes an option without a value,
//! so the values of all options after it are off by one. As the last option it is
//! dropped here (it is the default); put it nowhere else.

mod arg;
mod codes;
mod contexts;
mod global;
mod gpu;
mod init;
mod last_error;
mod ordinals;
mod route;
pub mod soft;
mod stack;
pub mod sys;
mod types;

pub use codes::error_text;
pub use gpu::GpuUnavailable;
pub use last_error::last_error;
pub use ordinals::{gpu_count, soft_ordinal, soft_sm90_ordinal};
pub use soft_cuda;
