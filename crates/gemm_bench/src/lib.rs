//! Measures matrix products: one timer, statistics, roofline peaks, telemetry, cuBLAS as the
//! baseline, the comparison with it, and the tuner of [`cuda_gemm::auto`]'s tables.
//!
//! Times are in milliseconds unless a name ends in `_ns`, rates in GFLOP/s and GB/s (10^9), and
//! sizes of memory in bytes. The modules lie in layers, of which none knows one above it:
//!
//! 1. [`compare`]: kernels next to cuBLAS, shape by shape; [`tune`]: what `auto` goes by;
//! 2. [`baseline`]; [`forecast`]: how long the software device will take;
//! 3. [`workload`]; [`side_by_side`], which times products in turn; [`buffers`]: the matrices on the
//!    device; [`limit`]: how busy a product keeps a GPU;
//! 4. [`candidate`]: what is asked for, loaded: kernels, `auto`'s choice, cuBLAS; [`job`]: a product that is
//!    ready to run; [`cublas`];
//! 5. [`batch`], [`time`] and [`roofline`], all by the [`timer`]; [`telemetry`], [`explain`];
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
pub mod timer;
pub mod tune;
pub mod workload;

pub use baseline::Baseline;
pub use buffers::{L2, RotatingBuffers};
pub use candidate::{Loaded, Selection, are_wide};
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
pub use timer::Timer;
