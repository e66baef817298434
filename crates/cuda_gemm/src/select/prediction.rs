//! A predicted time.

use crate::plan::Configuration;

/// What a kernel should take for a product: see [`Auto::predictions`](super::Auto::predictions).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The kernel, and how it is launched.
    pub configuration: Configuration,
    /// The time, in nanoseconds.
    pub ns: f64,
    /// Whether device memory takes longer than the blocks.
    pub memory_bound: bool,
}
