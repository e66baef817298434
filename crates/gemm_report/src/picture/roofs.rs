//! What a device can do, as a run measured it.

use crate::row::Row;
use crate::run::Run;

/// What a device can do: rates that were measured between products.
#[derive(Clone, Debug, PartialEq)]
pub struct Roofs {
    /// Multiply-adds, in GFLOP/s.
    pub ffma_gflops: f64,
    /// Copies, in GB/s.
    pub copy_gbytes: f64,
    /// The run that measured them.
    pub source: String,
}

impl Roofs {
    /// The medians over the rows of a run; none where no row has them, as in older ladders.
    pub fn of(run: &Run) -> Option<Self> {
        let median = |value: fn(&Row) -> Option<f64>| {
            let values: Vec<f64> = run.rows.iter().filter_map(value).collect();
            (!values.is_empty()).then(|| sample_stats::median(&values))
        };
        Some(Self {
            ffma_gflops: median(|row| row.ffma_gflops)?,
            copy_gbytes: median(|row| row.copy_gbytes)?,
            source: run.label.clone(),
        })
    }
}
