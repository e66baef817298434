//! Predicted times.

use crate::plan::Configuration;

/// The predicted time of a product with a kernel. See
/// [`Auto::predictions`](super::Auto::predictions).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The kernel, and how it is launched.
    pub configuration: Configuration,
    /// The time, in nanoseconds.
    pub ns: f64,
    /// Whether device memory or the L2 cache takes longer than the steps along K.
    pub memory_bound: bool,
}
