//! Tensor maps that a plan has made, for calls with the same matrices.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use cuda_driver::sys::CUtensorMap;

use crate::error::Error;

/// The most launches whose maps are kept: enough for a few input buffers of each layer that shares a plan.
const CAPACITY: usize = 256;

/// The tensor maps of A and B of a plan's launches, by what they were made of, so that the driver need not make them anew.
pub(super) struct MapCache<Key>(Mutex<HashMap<Key, [CUtensorMap; 2]>>);

impl<Key> Default for MapCache<Key> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<Key: Eq + Hash> MapCache<Key> {
    /// Those of a launch, which are made if they are not there. When the cache is full, it is emptied first.
    pub(super) fn get(
        &self,
        key: Key,
        make: impl FnOnce() -> Result<[CUtensorMap; 2], Error>,
    ) -> Result<[CUtensorMap; 2], Error> {
        // Whole, whoever panicked with it.
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

    #[test]
    fn maps_are_made_once_until_there_are_too_many() {
        let cache = MapCache::default();
        let mut made = 0;
        let mut get = |key: usize| {
            let make = || {
                made += 1;
                Ok(Default::default())
            };
            cache.get(key, make).unwrap();
            made
        };
        for key in (0..CAPACITY).chain(0..CAPACITY) {
            get(key);
        }
        assert_eq!(get(0), CAPACITY);
        assert_eq!(get(CAPACITY), CAPACITY + 1);
        assert_eq!(get(0), CAPACITY + 2, "it was emptied");
        assert_eq!(cache.0.lock().unwrap().len(), 2);
    }

    #[test]
    fn what_cannot_be_made_is_not_kept() {
        let cache = MapCache::default();
        let refused = cache.get(7, || Err(Error::PlannedAlignment { what: "A" }));
        assert!(refused.is_err());
        assert!(cache.get(7, || Ok(Default::default())).is_ok());
    }
}
