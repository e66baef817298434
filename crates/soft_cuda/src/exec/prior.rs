//! The launch in front of one that may begin before that has ended (programmatic dependent launch).
//!
//! Here it has ended. What it accessed is kept, and a thread that does not come after a
//! `griddepcontrol.wait` races with it.

use std::fmt;
use std::sync::Arc;

use ptx_syntax::source;

use super::access::Site;
use super::global::GlobalShadow;
use super::machine::index_in;
use crate::error::quoted;
use crate::fault::Earlier;

/// What a launch has accessed.
pub(crate) struct Prior {
    /// The stream that it was in.
    pub stream: u64,
    pub kernel: String,
    pub text: Arc<[String]>,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Base and bytes of each allocation, by address.
    pub allocations: Vec<(u64, u64)>,
    pub global: GlobalShadow,
}

impl fmt::Debug for Prior {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prior").field("kernel", &self.kernel).finish_non_exhaustive()
    }
}

impl Prior {
    /// An access of the bytes at `address` with which one of `site` races if nothing orders the
    /// two.
    pub(super) fn conflict(&self, address: u64, site: Site) -> Option<Earlier> {
        let after = self.allocations.partition_point(|&(base, _)| base <= address);
        let index = after.checked_sub(1)?;
        let (base, size) = self.allocations[index];
        let offset = address - base;
        if offset >= size {
            return None;
        }
        let (old, line, access) = self.global.conflict((index, size), offset, site)?;
        let text = self.text.get((line as usize).wrapping_sub(1));
        Some(Earlier {
            kernel: Some(self.kernel.clone()),
            access,
            line,
            instruction: text.map(|text| quoted(text)).unwrap_or_default(),
            source: source::place(&self.text, line),
            block: index_in(old.block(), self.grid),
            thread: index_in(old.thread() as u64, self.block),
        })
    }
}
