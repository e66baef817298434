//! Kernels that compute no product: copies of operands, the tiles of groups, and measurements of the
//! device's peaks.

pub mod groups;
pub mod roofline;
pub mod staging;
