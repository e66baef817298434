//! Work that another launch or copy may run beside: the launch in front of an early one
//! (programmatic dependent launch), and what other streams do.
//!
//! Here it has ended. What it accessed is kept, and accesses that nothing orders race with it.

use std::fmt;
use std::sync::Arc;

use ptx_syntax::source;

use super::access::{AccessKind, Site};
use super::global::GlobalShadow;
use super::machine::index_in;
use crate::error::quoted;
use crate::fault::{Access, Earlier};

/// What a launch or a copy has accessed.
pub(crate) enum Prior {
    Launch(Box<PriorLaunch>),
    /// Bytes that a copy or a fill has read and written.
    Copy {
        reads: Option<(u64, u64)>,
        writes: Option<(u64, u64)>,
    },
}

/// A launch that has ended.
pub(crate) struct PriorLaunch {
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
        let name = match self {
            Self::Launch(launch) => &launch.kernel,
            Self::Copy { .. } => "a copy",
        };
        f.debug_tuple("Prior").field(&name).finish()
    }
}

impl Prior {
    /// The accesses of a whole launch or copy with which one of `site` at `address` races if
    /// nothing orders the two.
    pub(super) fn conflict(&self, address: u64, site: Site) -> Option<Earlier> {
        match self {
            Self::Launch(launch) => launch.conflict(address, site),
            Self::Copy { reads, writes } => {
                let overlaps = |range: &Option<(u64, u64)>| {
                    range.is_some_and(|(first, bytes)| {
                        first < address + u64::from(site.bytes) && address < first + bytes
                    })
                };
                let access = match (overlaps(writes), overlaps(reads) && site.kind.writes()) {
                    (true, _) => Access::Store,
                    (false, true) => Access::Load,
                    (false, false) => return None,
                };
                Some(Earlier::of_copy(access))
            }
        }
    }

    /// An access with which a copy or fill of a range races if nothing orders the two.
    pub(crate) fn conflict_with(
        &self,
        (mut address, mut bytes): (u64, u64),
        access: Access,
    ) -> Option<Earlier> {
        let kind = if access == Access::Store { AccessKind::Store } else { AccessKind::Load };
        while bytes > 0 {
            let some = bytes.min(1 << 30) as u32;
            let site = Site { line: 0, kind, bytes: some };
            if let Some(earlier) = self.conflict(address, site) {
                return Some(earlier);
            }
            (address, bytes) = (address + u64::from(some), bytes - u64::from(some));
        }
        None
    }

    /// Bytes of the allocations whose accesses are kept one by one.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Launch(launch) => launch.global.bytes(&launch.allocations),
            Self::Copy { .. } => 0,
        }
    }
}

impl PriorLaunch {
    fn conflict(&self, address: u64, site: Site) -> Option<Earlier> {
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
            is_beside: false,
            access,
            line,
            instruction: text.map(|text| quoted(text)).unwrap_or_default(),
            source: source::place(&self.text, line),
            block: index_in(old.block(), self.grid),
            thread: index_in(old.thread() as u64, self.block),
        })
    }
}
