//! Measures matrix products: a timer, statistics, interleaved batches, roofline peaks, telemetry,
//! and cuBLAS as the baseline.

pub mod batch;
pub mod cublas;
pub mod error;
mod events;
pub mod explain;
pub mod roofline;
pub mod stats;
pub mod telemetry;
pub mod time;

pub use cublas::{Cublas, CublasProduct};
pub use error::Error;
