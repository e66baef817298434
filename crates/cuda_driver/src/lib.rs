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
//! The GPUs come first, in the driver's order. The software device follows, in two models:
//!
//! | ordinal | compute capability | loads |
//! |---|---|---|
//! | [`soft_ordinal`] | 8.0 | PTX for `sm_80` |
//! | [`soft_sm90_ordinal`] | 9.0 | also PTX for `sm_90a`, with tensor maps |
//!
//! More devices of both models follow in turn if `SOFT_CUDA_DEVICES` or [`soft_ordinals`] asks for
//! them. All share one memory, and any two are peers. Each has a primary context of its own.
//!
//! Without a GPU the first model is device 0, so unmodified `cust` programs run on it.
//! `CUDA_VISIBLE_DEVICES` hides GPUs as usual.
//!
//! `cuDeviceGetCount` returns the number of GPUs plus that of software devices. `cuInit` fails only
//! if [the environment](crate#checks) is invalid. [`gpu_count`] says why there is no GPU.
//!
//! # Where a call goes
//!
//! One rule holds for every function:
//!
//! - A call with a handle or a device address goes to the device that owns it. Handles and
//!   addresses of the software device have a tag in their upper 16 bits, which no real pointer has.
//!   A `CUdevice` is an ordinal.
//! - Any other call goes to the calling thread's current context.
//! - A call that mixes devices, such as a copy from a GPU address to a software address, returns
//!   `CUDA_ERROR_INVALID_VALUE`: copy through host memory instead.
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
//! | `arg` | the device of an argument |
//! | `gpu` | the NVIDIA driver, loaded and called by name |
//! | `types`, `codes`, `last_error` | types and result codes, the text of a failure |
//!
//! # What the software device leaves out
//!
//! These return `CUDA_ERROR_NOT_SUPPORTED`:
//!
//! - arrays, textures, surfaces, external memory, the JIT linker and managed memory
//! - graphs that were not captured
//! - tensor maps of 8-bit, integer or f64 elements, interleaved ones, and ones with element strides
//!
//! Kernels run inside `cuLaunchKernel`, but faults are reported as on a GPU: the launch succeeds,
//! and every later call in its context returns the error. [`soft::last_fault`] has the full text.
//!
//! The limits of a context hold as on a GPU:
//!
//! - `CU_LIMIT_STACK_SIZE` (up to 512 KiB) for kernels whose calls have no known depth
//! - `CU_LIMIT_MALLOC_HEAP_SIZE` until the first launch of a kernel that allocates
//!
//! An endless loop ends only with an instruction budget, which [`soft::configure`] sets.
//!
//! A module loads if its declarations can be read. For a kernel that the device cannot run,
//! `cuModuleGetFunction` returns `CUDA_ERROR_INVALID_PTX`, and [`last_error()`] names the line and
//! what is missing. `CU_FUNC_ATTRIBUTE_NUM_REGS` is an estimate
//! ([`Kernel::registers`](soft_cuda::Kernel::registers)), which occupancy depends on.
//!
//! # Checks
//!
//! The environment switches on further checks of the software device, and adds devices:
//!
//! | variable | value |
//! |---|---|
//! | `SOFT_CUDA_CHECK` | `none` (the default), `all`, or some of `races`, `memory` and `sync` with commas between them; see [`soft_cuda::Checks`] |
//! | `SOFT_CUDA_SCHEDULE` | `in-order` (the default), `random:SEED` or `adversarial`; see [`soft_cuda::Schedule`] |
//! | `SOFT_CUDA_INSTRUCTION_BUDGET` | warp instructions after which a launch is ended |
//! | `SOFT_CUDA_DEVICES` | software devices of each model, 1 (the default) to 64 |
//!
//! An empty variable counts as unset. For any other value `cuInit` returns
//! `CUDA_ERROR_INVALID_VALUE`, and [`last_error()`] explains it. [`soft::configure_with`] overrides
//! the variables.
//!
//! A finding is a fault of the launch, as above. With
//! [`max_findings`](soft_cuda::Config::max_findings), launches go on. [`soft::findings`] lists
//! everything, as text or as JSON (feature `json`).
//!
//! # Stream capture
//!
//! `cust` has no calls for it; the functions of [`sys`] accept its raw handles. Between
//! [`cuStreamBeginCapture_v2`](sys::cuStreamBeginCapture_v2) and
//! [`cuStreamEndCapture`](sys::cuStreamEndCapture) the software device records launches of kernels
//! and graphs, and asynchronous fills and copies between device addresses.
//! [`cuGraphLaunch`](sys::cuGraphLaunch) runs them in that order.
//!
//! As in NVIDIA's driver, two kinds of calls fail and invalidate the capture: calls that would wait
//! for it, and allocations, frees and waits for events that the capture mode forbids. `cust` turns
//! these errors into `UnknownError`; [`last_error()`] explains them.
//!
//! Differences from NVIDIA's driver:
//!
//! - A capture stays in the stream in which it began, which cannot be `CU_STREAM_PER_THREAD`.
//!   Events, host functions, allocations and copies to and from the host return
//!   `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` there.
//! - The grid and the block of a captured launch are checked when the graph is launched.
//! - A graph runs in streams of the context in which it was captured, and goes with it.
//! - Captures on GPUs and on the software device do not know of each other.
//!
//! # Linking
//!
//! A crate that calls only `cust` must name this one, or cargo leaves it out of the link: `use
//! cuda_driver as _;` is enough. Two settings belong into the workspace's `Cargo.toml`. The patch
//! keeps the build scripts of `cust` from looking for a CUDA toolkit, and the profile makes the
//! software device fast:
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
//! and this crate calls no other driver of the process. A forwarded call looks its name up in the
//! driver's library only. A library that calls back into this crate is no driver
//! ([`GpuUnavailable::CallsBack`]).
//!
//! On Windows and macOS a shared library exports the symbols. That does no harm, because each
//! library there names the source of an imported symbol. On other systems, libraries loaded later
//! (cuBLAS) find the real `libcuda` if the program is an executable linked without `-rdynamic`. A
//! Rust `dylib` must contain the callers of `cust` as well as this crate.
//!
//! # Error codes
//!
//! `cust_raw` turns result codes into a Rust enum. A code newer than the enum would be undefined
//! behaviour, so it becomes `CUDA_ERROR_UNKNOWN`, and [`last_error()`] keeps the original. A panic
//! in this crate or the software device becomes `CUDA_ERROR_UNKNOWN` too: it must not unwind into
//! C.
//!
//! # A trap in `cust`
//!
//! `ModuleJitOption::DetermineTargetFromContext` pushes an option without a value, so the values of
//! all options after it are off by one. Put it last: there this crate drops it, because it is the
//! default.

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
pub use ordinals::{gpu_count, soft_ordinal, soft_ordinals, soft_sm90_ordinal};
pub use soft_cuda;
