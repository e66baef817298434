//! Statistics of a few samples: middle, spread, and confidence in the middle.
//!
//! Times on a GPU are skewed and have outliers, so everything here uses order, not sums. There are
//! medians, an interval for a median that assumes no distribution, and a test of ranks.

mod middle;
mod rank;

pub use middle::{deviation, geometric_mean, median, median_interval, paired_ratio, percentile};
pub use rank::{Comparison, compare};
