//! Matrix products on NVIDIA GPUs and a software device, with the kernels of `kernels-gpu`.
//!
//! ```
//! use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, gemm};
//!
//! # fn main() -> Result<(), cuda_gemm::Error> {
//! let device = Device::open(DeviceChoice::Auto)?;
//! let a = DeviceMatrix::from_slice(&device, [2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! let b = DeviceMatrix::from_slice(&device, [3, 2], &[1f32, 0.0, 0.0, 1.0, 1.0, 1.0])?;
//! let mut c = DeviceMatrix::<f32>::zeros(&device, [2, 2])?;
//! gemm(&a, &b).run(&mut c)?;
//! assert_eq!(c.to_vec()?, [4.0, 5.0, 10.0, 11.0]);
//! # Ok(())
//! # }
//! ```
//!
//! [`gemm()`] accepts views: a matrix, a part of one, its transpose, a batch. Their element type
//! determines the precision. [`Product`] has alpha and beta, epilogues, plans for hot paths, and
//! advanced choices. Every wrong size is an error before any launch.
//!
//! Matrices are row-major. Sizes and leading dimensions are in elements, memory is in bytes, rates
//! are in GB/s and GFLOP/s (10^9).
//!
//! # Rooms
//!
//! | module | contents |
//! |---|---|
//! | [`device`](Device) | opens GPUs and the software device |
//! | [`matrix`](DeviceMatrix) | device memory and views |
//! | [`problem`](Gemm) | the requested product |
//! | [`plan`](Plan) | the launches of a product |
//! | [`select`] | the choice of a kernel |
//! | [`blas`] | the arguments of BLAS |
//!
//! # Linking
//!
//! A project outside this workspace needs a `[patch]` in its `Cargo.toml`: see "Linking" in
//! [`cuda_driver`].
//!
//! # Features
//!
//! - `ndarray` and `faer`: conversions of their matrices to [`MatrixRef`] and [`MatrixMut`].
//! - `random`: `Matrix::random`.

pub mod blas;
mod device;
pub mod error;
mod launch;
mod matrix;
mod plan;
mod problem;
mod product;
pub mod ptx;
pub mod select;

pub use cuda_driver::sys::CUresult;
pub use cuda_driver::{soft, soft_cuda};
/// Contexts, streams and addresses of the driver, as this crate's functions accept them.
pub use cust;
pub use device::{
    Device, DeviceChoice, DeviceInfo, DeviceKind, Entered, EntryPoint, Environment, Event,
    Exclusive, Graph, Limits, Peak, Stream, Timer,
};
pub use error::{Error, ErrorKind};
pub use gemm_matrix::{
    Activation, Axis, Element, Matrix, MatrixMut, MatrixRef, Scalar, ViewError, bf16, f16, npy,
};
pub use kernels_gpu as kernels;
pub use matrix::{
    AnyElement, AnyMatrix, DeviceMatrix, DeviceMatrixMut, DeviceMatrixRef, GroupEnds, IntoOperand,
    IntoOperandMut, Layout, OperandMut, OperandRef, PointerBatch, PointerBatchMut,
};
pub use plan::{
    Configuration, Extras, Kernel, Launch, LaunchPlan, Plan, PlanBuilder, RawExtra, RawExtras,
    Workspace, expect_planned, find_kernel, nearest_names,
};
pub use problem::{Batching, Compute, Epilogue, Gemm, MAX_DIMENSION};
pub use product::{OutputOf, Precision, Product, gemm};
pub use select::{Auto, Table};
