//! Kernels that compute no product: copies of operands, and measurements of the device's peaks.

pub mod roofline;
pub mod staging;
