//! Launches, checks and times the GEMM kernels of `kernels-gpu`, on a GPU or on the
//! software device.
//!
//! ```no_run
//! use host::{Device, DeviceChoice, DeviceMatrix, Gemm, Matrix, find_kernel};
//!
//! # fn main() -> Result<(), host::Error> {
//! let device = Device::open(DeviceChoice::Auto)?;
//! let (a, b) = (Matrix::random(300, 500, 42, 1), Matrix::random(500, 200, 42, 2));
//!
//! let kernel = device.kernel(find_kernel("tile2d")?)?;
//! let product = kernel.prepare(Gemm::new(300, 200, 500))?;
//!
//! let a = DeviceMatrix::from_host(&device, &a)?;
//! let b = DeviceMatrix::from_host(&device, &b)?;
//! let mut c = DeviceMatrix::zeros(&device, 300, 200)?;
//! product.enqueue(&a, &b, &mut c)?;
//! let c = c.download()?;
//! # Ok(())
//! # }
//! ```
//!
//! Everything that can be wrong about sizes is found by [`Kernel::prepare`]; what it
//! returns is safe to call. [`auto`] chooses the kernel that is fastest for a product. [`verify`] says whether a result is right, [`time`] how
//! long it took, and [`batch`] which of two is faster.

pub mod auto;
pub mod batch;
pub mod cublas;
pub mod device;
pub mod environment;
pub mod error;
pub mod explain;
pub mod format;
pub mod gemm;
pub mod launch;
pub mod limits;
pub mod matrix;
pub mod memory;
pub mod npy;
pub mod output;
mod product;
pub mod ptx;
pub mod roofline;
pub mod stats;
pub mod telemetry;
pub mod text;
pub mod time;
pub mod verify;

pub use auto::{Auto, Choice, Table};
pub use cublas::{Cublas, CublasProduct};
pub use cuda_driver::sys::CUresult;
pub use device::{Device, DeviceChoice, DeviceInfo, DeviceKind};
pub use error::Error;
pub use gemm::{Gemm, Plan};
pub use kernels_gpu as kernels;
pub use launch::{Kernel, PlanBuilder, Prepared, find_kernel, nearest_name};
pub use limits::Limits;
pub use matrix::{DeviceMatrix, Layout, Matrix};
