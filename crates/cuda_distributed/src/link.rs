//! What a link between devices does.

/// The time of a message between two ranks: `latency + bytes / rate`.
///
/// ```
/// use cuda_distributed::Link;
///
/// let link = Link { gbytes_per_s: 250.0, latency_us: 20.0 };
/// assert_eq!(link.microseconds(250_000_000), 1020.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// The rate in each direction while all ranks send, in GB/s (10^9).
    pub gbytes_per_s: f64,
    /// The time of an empty message, in us.
    pub latency_us: f64,
}

impl Link {
    /// The time of a message of this many bytes, in us.
    pub fn microseconds(&self, bytes: usize) -> f64 {
        self.latency_us + 1e-3 * bytes as f64 / self.gbytes_per_s
    }
}
