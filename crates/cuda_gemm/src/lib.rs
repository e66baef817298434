//! Matrix products on NVIDIA GPUs, and on a software device, by the kernels of `kernels-gpu`.
//!
//! ```
//! use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm, Matrix};
//!
//! # fn main() -> Result<(), cuda_gemm::Error> {
//! let device = Device::open(DeviceChoice::Auto)?;
//! let a = Matrix::from_fn(30, 50, |row, col| (row + col) as f32);
//! let b = Matrix::from_fn(50, 20, |row, col| if row == col { 1.0 } else { 0.0 });
//!
//! // The kernel that is fastest for a product of 30 x 50 and 50 x 20; once for any number of calls.
//! let product = device.auto()?.prepare(Gemm::new(30, 20, 50))?;
//!
//! let a = DeviceMatrix::from_host(&device, &a)?;
//! let b = DeviceMatrix::from_host(&device, &b)?;
//! let mut c = DeviceMatrix::zeros(&device, 30, 20)?;
//! product.enqueue(&a, &b, &mut c)?;
//! assert_eq!(c.download()?.row(1)[..3], [1.0, 2.0, 3.0]);
//! # Ok(())
//! # }
//! ```
//!
//! Everything that can be wrong about sizes is found by [`Auto::prepare`] and [`Kernel::prepare`]; what they
//! return is safe to call. [`find_kernel`] finds a kernel by its name, for [`Device::kernel`].
//!
//! Matrices are row-major. Sizes and leading dimensions are in elements, memory is in bytes, rates
//! are in GB/s and GFLOP/s (10^9).
//!
//! # Linking
//!
//! A project outside of this workspace needs a `[patch]` in its `Cargo.toml`: see "Linking" in
//! [`cuda_driver`].
//!
//! # Features
//!
//! `ndarray` and `faer`: their matrices as [`MatrixRef`] and [`MatrixMut`]. `random`:
//! `Matrix::random`.

pub mod auto;
pub mod blas;
pub mod device;
pub mod environment;
pub mod error;
pub mod gemm;
pub mod graph;
pub mod launch;
pub mod limits;
pub mod matrix;
pub mod ptx;
mod queue;
pub mod stream;

pub use auto::{Auto, Choice, Table};
pub use cuda_driver::sys::CUresult;
pub use cuda_driver::{soft, soft_cuda};
/// Contexts, streams and addresses of the driver, as this crate takes them.
pub use cust;
pub use device::{Device, DeviceChoice, DeviceInfo, DeviceKind, Entered};
pub use error::Error;
pub use gemm::{Compute, Epilogue, Gemm, LaunchPlan};
pub use gemm_matrix::{Activation, Axis, Element, Matrix, MatrixMut, MatrixRef, ViewError, npy};
pub use graph::Graph;
pub use kernels_gpu as kernels;
pub use kernels_gpu::abi::tensor_core::InputType;
pub use launch::{
    Extras, Kernel, Plan, PlanBuilder, Product, ProductBuilder, TensorCoreBuilder,
    TensorCoreKernel, TensorCorePlan, find_kernel, find_tensor_core, nearest_names,
};
pub use limits::Limits;
pub use matrix::{
    DeviceBatchMut, DeviceBatchRef, DeviceHalfMatrix, DeviceHalfMut, DeviceHalfRef, DeviceMatrix,
    DeviceMatrixMut, DeviceMatrixRef, Layout, OperandMut, OperandRef, PointerBatch,
    PointerBatchMut,
};
pub use queue::Exclusive;
pub use stream::Stream;
