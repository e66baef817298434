//! The program's library: [`cuda_gemm`], [`gemm_bench`] and [`gemm_verify`] under one name.
//!
//! ```
//! use host::{Device, DeviceChoice, DeviceMatrix, Gemm, Matrix};
//!
//! # fn main() -> Result<(), host::Error> {
//! let device = Device::open(DeviceChoice::Soft)?;
//! let (a, b) = (Matrix::random(30, 50, 42, 1), Matrix::random(50, 20, 42, 2));
//! let problem = host::verify::Problem {
//!     a: &a,
//!     b: &b,
//!     c: None,
//!     alpha: 1.0,
//!     beta: 0.0,
//!     bound: host::verify::Bound::Probabilistic,
//! };
//! let reference = host::verify::Reference::compute(problem, host::verify::Method::Full, 0)?;
//!
//! let product = device.auto()?.prepare(Gemm::new(30, 20, 50))?;
//! let a = DeviceMatrix::<f32>::from_host(&device, &a)?;
//! let b = DeviceMatrix::<f32>::from_host(&device, &b)?;
//! let mut c = DeviceMatrix::<f32>::zeros(&device, [30, 20])?;
//! product.run(&a, &b, &mut c)?;
//! assert!(reference.check(&c.download()?)?.passed());
//! # Ok(())
//! # }
//! ```

pub mod doctor;

pub use cuda_gemm::{
    Activation, AnyMatrix, Auto, Axis, CUresult, Compute, Configuration, Device, DeviceChoice,
    DeviceInfo, DeviceKind, DeviceMatrix, DeviceMatrixMut, DeviceMatrixRef, Element, EntryPoint,
    Environment, Epilogue, Extras, Gemm, Graph, Kernel, LaunchPlan, Layout, Limits, MAX_DIMENSION,
    Matrix, MatrixMut, MatrixRef, OperandMut, OperandRef, Peak, Plan, PlanBuilder, Product, Scalar,
    Stream, Table, Timer, bf16, f16, find_kernel, gemm, kernels, nearest_names, npy, ptx, select,
};
pub use gemm_bench::{
    Baseline, Candidate, Cublas, CublasProduct, Error, Groups, Job, KernelOptions, L2, Limit, Load,
    Loaded, Operands, RotatingBuffers, Selection, Shape, SideBySide, Title, baseline, batch,
    buffers, candidate, compare, cublas, explain, forecast, limit, operands, require_memory,
    roofline, shape, side_by_side, stats, telemetry, time, tune, workload,
};
pub use gemm_report;
pub use gemm_verify as verify;
pub use host_system::{format, memory, text};
