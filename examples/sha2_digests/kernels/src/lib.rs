//! What runs on the GPU.

#![no_std]

use cuda_std::prelude::*;
use sha2::{Digest, Sha256};

/// The digest of `prefix` followed by each number in turn, its lowest byte first.
#[kernel]
pub fn digests(prefix: &[u8], mut out: DisjointSlice<[u8; 32]>) {
    for (i, out) in out.iter_mut() {
        let mut hash = Sha256::new();
        hash.update(prefix);
        hash.update((i as u64).to_le_bytes());
        *out = hash.finalize().into();
    }
}
