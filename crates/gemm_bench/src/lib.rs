//! Measures matrix products.
//!
//! The crate has statistics, roofline peaks, telemetry, cuBLAS as the baseline, the
//! comparison with it, and the tuner of [`cuda_gemm::select`]'s tables.
//!
//! Times are in milliseconds unless a name ends in `_ns`, rates in GFLOP/s and GB/s (10^9), and
//! sizes of memory in bytes. The rooms form layers. No room knows one above its own:
//!
//! 1. [`tune`], the tables of `auto` and the quality of its choices;
//! 2. [`compare`], kernels next to cuBLAS, shape by shape;
//! 3. [`workload`], the products, their matrices and what computes them; [`baseline`], cuBLAS;
//! 4. [`analysis`], peaks and limits;
//! 5. [`measure`], how one time is taken with a [`Timer`](cuda_gemm::Timer);
//! 6. [`stats`] and [`error`].

pub mod analysis;
pub mod baseline;
pub mod compare;
pub mod error;
pub mod measure;
pub mod tune;
pub mod workload;

pub use analysis::{explain, forecast, limit, roofline};
pub use baseline::{cublas, cublas_product};
pub use compare::side_by_side;
pub use measure::{batch, buffers, telemetry, time};
pub use workload::{candidate, groups, job, operands, shape};

pub use baseline::Baseline;
pub use buffers::{L2, RotatingBuffers};
pub use candidate::{Loaded, Selection};
pub use cublas::Cublas;
pub use cublas_product::CublasProduct;
pub use error::{Error, require_memory};
pub use groups::Groups;
pub use job::{Candidate, Job, KernelOptions, Title};
pub use limit::{Limit, Load};
pub use operands::Operands;
pub use sample_stats as stats;
pub use shape::Shape;
pub use side_by_side::SideBySide;
