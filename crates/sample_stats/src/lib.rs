//! What a few samples say: middle, spread, and how sure one can be of the middle.
//!
//! Times on a GPU are skewed and have outliers, so everything here is about order, not about
//! sums: medians, an interval for a median that assumes no distribution, and a test of ranks.

mod middle;
mod rank;

pub use middle::{deviation, geometric_mean, median, median_interval, paired_ratio};
pub use rank::{Comparison, compare};
