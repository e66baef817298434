//! Measures matrix products.
//!
//! The crate has statistics, roofline peaks, telemetry, cuBLAS as the baseline, the
//! comparison with it, and the tuner of [`cuda_gemm::select`]'s tables.
//!
//! Times are in milliseconds unless a name ends in `_ns`, rates in GFLOP/s and GB/s (10^9), and
//! sizes of memory in bytes. The modules form layers. No module knows a layer above its own:
//!
//! 1. [`compare`], kernels next to cuBLAS, shape by shape; [`tune`], the tables of `auto`
//!    and the quality of its choices;
//! 2. [`baseline`]; [`forecast`], the estimated time of the software device;
//! 3. [`workload`]; [`side_by_side`], which times products in turn; [`buffers`], the matrices on
//!    the device; [`limit`], the use of a GPU's units by a product;
//! 4. [`candidate`], the loaded kernels, `auto` and cuBLAS; [`job`], a product that is ready to
//!    run; [`cublas`];
//! 5. [`batch`], [`time`] and [`roofline`], which use the [`Timer`](cuda_gemm::Timer); [`telemetry`], [`explain`];
//! 6. [`shape`], [`stats`] and [`error`].

pub mod baseline;
pub mod batch;
pub mod buffers;
pub mod candidate;
pub mod compare;
pub mod cublas;
pub mod cublas_fastest;
mod cublas_lt;
pub mod cublas_product;
pub mod error;
pub mod explain;
pub mod forecast;
pub mod job;
pub mod limit;
pub mod operands;
pub mod roofline;
pub mod shape;
pub mod side_by_side;
pub mod telemetry;
pub mod time;
pub mod tune;
pub mod workload;

pub use baseline::Baseline;
pub use buffers::{L2, RotatingBuffers};
pub use candidate::{Loaded, Selection};
pub use cublas::Cublas;
pub use cublas_fastest::CublasFastest;
pub use cublas_product::CublasProduct;
pub use error::{Error, require_memory};
pub use job::{Candidate, Job, KernelOptions, Title};
pub use limit::{Limit, Load};
pub use operands::Operands;
pub use sample_stats as stats;
pub use shape::Shape;
pub use side_by_side::SideBySide;
