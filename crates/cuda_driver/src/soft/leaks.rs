//! Allocations that nobody freed before their context ended.

use std::sync::{Mutex, PoisonError};

use super::instance::device;

/// An allocation that was not freed before its context ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leak {
    /// Its address on the device.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
}

static LEAKS: Mutex<Vec<Leak>> = Mutex::new(Vec::new());

/// The allocations of contexts that have ended, in which they were not freed. They are looked for
/// with [`soft_cuda::Checks::memory`], and written to stderr then.
pub fn leaks() -> Vec<Leak> {
    LEAKS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// A context ends with these allocations in it.
pub(super) fn note(addresses: &[u64]) {
    if !device().config().checks.memory {
        return;
    }
    let found = addresses.iter().filter_map(|&address| device().allocation_of(address));
    let found: Vec<Leak> = found.map(|(address, bytes)| Leak { address, bytes }).collect();
    for Leak { address, bytes } in &found {
        eprintln!(
            "software device: the context ended before the {bytes}-byte allocation at {address:#x} was freed"
        );
    }
    LEAKS.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
}
