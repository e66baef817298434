//! Allocations that nobody freed before their context ended.

use soft_cuda::Finding;

use super::instance::device;

/// An allocation that was not freed before its context ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leak {
    /// Its address on the device.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// Allocations that were not freed before their context ended.
///
/// [`soft_cuda::Checks::memory`] looks for them and writes them to stderr. [`findings`] also has
/// the calls that made them.
pub fn leaks() -> Vec<Leak> {
    let leak = |finding: &Finding| match *finding {
        Finding::Leak { address, bytes, .. } => Some(Leak { address, bytes }),
        _ => None,
    };
    findings().iter().filter_map(leak).collect()
}

/// What the software device has found wrong so far: see [`soft_cuda::Device::findings`].
pub fn findings() -> soft_cuda::Findings {
    device().findings()
}

/// As [`findings`], and forgets them.
pub fn take_findings() -> soft_cuda::Findings {
    device().take_findings()
}

/// A context ends with these allocations in it.
pub(super) fn note(addresses: &[u64]) {
    if !device().config().checks.memory {
        return;
    }
    let before = findings().len();
    addresses.iter().for_each(|&address| _ = device().note_leak(address));
    for leak in findings().iter().skip(before) {
        eprintln!("software device: {leak}");
    }
}
