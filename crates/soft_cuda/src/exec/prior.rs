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
    /// Base, bytes and number of each allocation that it accessed, by address.
    pub allocations: Vec<(u64, u64, usize)>,
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

    /// An access with which a copy or fill of a range races if nothing orders the two, and its
    /// address.
    pub(crate) fn conflict_with(
        &self,
        (first, bytes_of): (u64, u64),
        access: Access,
    ) -> Option<(u64, Earlier)> {
        /// Bytes that are searched at once, and those in which what was found is looked for.
        const STEPS: [u64; 2] = [1 << 12, 4];
        let kind = if access == Access::Store { AccessKind::Store } else { AccessKind::Load };
        let end = first.saturating_add(bytes_of);
        let common = |from: u64, bytes: u64| [from.max(first), (from + bytes).min(end)];
        let ranges: Vec<[u64; 2]> = match self {
            Self::Launch(launch) => {
                launch.allocations.iter().map(|(base, size, _)| common(*base, *size)).collect()
            }
            Self::Copy { reads, writes } => {
                let all = [reads, writes].into_iter().flatten();
                all.map(|(from, bytes)| common(*from, *bytes)).collect()
            }
        };
        // The first part of a range with a conflict.
        let search = |[mut at, end]: [u64; 2], step: u64| {
            while at < end {
                let next = (at / step + 1).saturating_mul(step).min(end);
                let site = Site { line: 0, kind, bytes: (next - at) as u32 };
                if let Some(earlier) = self.conflict(at, site) {
                    return Some(([at, next], earlier));
                }
                at = next;
            }
            None
        };
        ranges.into_iter().find_map(|range| {
            let (part, _) = search(range, STEPS[0])?;
            search(part, STEPS[1]).map(|([at, _], earlier)| (at, earlier))
        })
    }

    /// Whether it accessed an allocation.
    pub(crate) fn touches(&self, (base, size): (u64, u64)) -> bool {
        match self {
            Self::Launch(launch) => {
                launch.allocations.binary_search_by_key(&base, |(base, ..)| *base).is_ok()
            }
            Self::Copy { reads, writes } => {
                let is_inside = |range: &(u64, u64)| range.0.wrapping_sub(base) < size;
                [reads, writes].into_iter().flatten().any(is_inside)
            }
        }
    }

    pub(crate) fn is_launch(&self) -> bool {
        matches!(self, Self::Launch(_))
    }

    /// Bytes of the allocations whose accesses are kept, and about as many for the rest.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Launch(launch) => launch.global.bytes(&launch.allocations),
            Self::Copy { .. } => size_of::<Self>() as u64,
        }
    }
}

impl PriorLaunch {
    fn conflict(&self, address: u64, site: Site) -> Option<Earlier> {
        let after = self.allocations.partition_point(|&(base, ..)| base <= address);
        let (base, size, index) = self.allocations[after.checked_sub(1)?];
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
