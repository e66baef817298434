//! What checks find where a launch goes on.

use std::collections::HashMap;
use std::mem::Discriminant;
use std::sync::{Mutex, PoisonError};

use crate::fault::FaultKind;

/// What is wrong with what a warp does, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WarpFault {
    pub lane: u32,
    pub line: u32,
    pub kind: FaultKind,
}

/// Findings are the same if they are of one kind, at one line and, where there is another
/// access, that one is at the same line, too.
type Key = (u32, Discriminant<FaultKind>, u32);

/// Something that was found, by the first block that did it, and how often.
pub(crate) struct Found {
    /// Of the block, in the order of the launch.
    pub place: u64,
    pub warp: u32,
    pub fault: WarpFault,
    pub count: u64,
}

/// What the blocks of a launch did wrong and went on after.
pub(crate) struct Recorder {
    limit: usize,
    found: Mutex<HashMap<Key, Found>>,
}

impl Recorder {
    /// For findings at no more than `limit` places.
    pub(crate) fn new(limit: usize) -> Recorder {
        Recorder { limit, found: Mutex::default() }
    }

    /// Takes what was found; gives it back if the launch has to end with it.
    pub(crate) fn take(&self, place: u64, warp: u32, fault: WarpFault) -> Result<(), WarpFault> {
        if self.limit == 0 {
            return Err(fault);
        }
        let other = fault.kind.earlier().map_or(0, |earlier| earlier.line);
        let key = (fault.line, std::mem::discriminant(&fault.kind), other);
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = found.get_mut(&key) {
            known.count += 1;
            if place < known.place {
                *known = Found { place, warp, fault, count: known.count };
            }
            return Ok(());
        }
        if found.len() == self.limit {
            return Err(fault);
        }
        found.insert(key, Found { place, warp, fault, count: 1 });
        Ok(())
    }

    /// Takes everything out, in the order of the blocks, and of the lines of each.
    pub(crate) fn take_found(&self) -> Vec<Found> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Found> = std::mem::take(&mut *found).into_values().collect();
        all.sort_by_key(|found| {
            let earlier = found.fault.kind.earlier().map_or(0, |earlier| earlier.line);
            (found.place, found.fault.line, earlier)
        });
        all
    }
}
