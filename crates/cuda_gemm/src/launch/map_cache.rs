//! A plan's tensor maps, reused by calls with the same matrices.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use cuda_driver::sys::CUtensorMap;

use super::staging::Operand;
use crate::error::Error;

/// The most launches whose maps are kept: a few input buffers for each layer that shares a plan.
const CAPACITY: usize = 256;

/// The start of a launch's part of C, the operands, and the number of products.
type Key = ([usize; 2], [Operand; 2], u32);

/// The tensor maps of A and B for a plan's launches, kept so that the driver need not remake them.
#[derive(Default)]
pub(crate) struct MapCache(Mutex<HashMap<Key, [CUtensorMap; 2]>>);

impl MapCache {
    /// Returns the maps of a launch, or makes and keeps them. A full cache is emptied first.
    pub(super) fn get(
        &self,
        key: Key,
        make: impl FnOnce() -> Result<[CUtensorMap; 2], Error>,
    ) -> Result<[CUtensorMap; 2], Error> {
        // Consistent even after a panic.
        let mut maps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = maps.get(&key) {
            return Ok(*found);
        }
        let made = make()?;
        if maps.len() == CAPACITY {
            maps.clear();
        }
        maps.insert(key, made);
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(row: usize) -> Key {
        ([row, 0], Default::default(), 1)
    }

    #[test]
    fn maps_are_made_once_until_there_are_too_many() {
        let cache = MapCache::default();
        let mut made = 0;
        let mut get = |row: usize| {
            let make = || {
                made += 1;
                Ok(Default::default())
            };
            cache.get(key(row), make).unwrap();
            made
        };
        for row in (0..CAPACITY).chain(0..CAPACITY) {
            get(row);
        }
        assert_eq!(get(0), CAPACITY);
        assert_eq!(get(CAPACITY), CAPACITY + 1);
        assert_eq!(get(0), CAPACITY + 2, "it was emptied");
        assert_eq!(cache.0.lock().unwrap().len(), 2);
    }

    #[test]
    fn what_cannot_be_made_is_not_kept() {
        let cache = MapCache::default();
        let refused = cache.get(key(7), || Err(Error::PlannedAlignment { what: "A" }));
        assert!(refused.is_err());
        assert!(cache.get(key(7), || Ok(Default::default())).is_ok());
    }
}
