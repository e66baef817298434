//! The heap that kernels allocate from by `malloc`: one allocation of the device's memory.
//!
//! Memory that was freed is used again only when there is no other left, so that what a check of
//! races knows of its last owner is seldom in the way. Within the heap, accesses outside of a block
//! of memory are not found.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::memory::Memory;

/// Bytes of a heap unless something else is asked for (CUDA Programming Guide: "Heap Memory
/// Allocation").
const BYTES: u64 = 8 << 20;
/// Alignment of what `malloc` returns.
const ALIGN: u64 = 16;

/// A heap of kernels ([`LaunchOptions::heap`](crate::LaunchOptions::heap)).
///
/// It has its memory from the first launch on that needs it until it is dropped.
#[derive(Debug)]
pub struct Heap {
    bytes: u64,
    state: Mutex<State>,
}

impl Default for Heap {
    /// A heap of 8 MiB, as CUDA makes it unless it is told otherwise.
    fn default() -> Heap {
        Heap::new(BYTES)
    }
}

#[derive(Debug, Default)]
struct State {
    /// What its memory is part of, once it has any.
    memory: Option<Arc<Memory>>,
    /// Where it lies, or 0.
    base: u64,
    /// Where the part begins that was never used.
    next: u64,
    /// Address and bytes of what is allocated, and of what was freed.
    live: BTreeMap<u64, u64>,
    freed: BTreeMap<u64, u64>,
}

impl Heap {
    /// A heap of `bytes` bytes.
    pub fn new(bytes: u64) -> Heap {
        Heap { bytes, state: Mutex::default() }
    }

    /// Bytes of the heap.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a launch has needed it, so that it has its memory.
    pub fn is_used(&self) -> bool {
        self.lock().memory.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates the heap's memory, unless it is there. If the device has too little memory left,
    /// there is none, and every `malloc` fails.
    pub(crate) fn prepare(&self, memory: &Arc<Memory>) {
        let mut state = self.lock();
        if state.memory.is_none()
            && let Ok(base) = memory.alloc("malloc", self.bytes)
        {
            state.memory = Some(Arc::clone(memory));
            (state.base, state.next) = (base, base);
        }
    }

    /// `malloc`: an address, or 0.
    pub(crate) fn alloc(&self, bytes: u64) -> u64 {
        let mut state = self.lock();
        let Some(bytes) = bytes.max(1).checked_next_multiple_of(ALIGN) else { return 0 };
        let address = if bytes <= state.base + self.bytes - state.next && state.base != 0 {
            let address = state.next;
            state.next += bytes;
            address
        } else {
            let found = state.freed.iter().find(|(_, size)| **size >= bytes);
            let Some((address, size)) = found.map(|(address, size)| (*address, *size)) else {
                return 0;
            };
            state.freed.remove(&address);
            if size > bytes {
                state.freed.insert(address + bytes, size - bytes);
            }
            address
        };
        state.live.insert(address, bytes);
        address
    }

    /// `free`: whether `address` is 0 or that of something allocated.
    pub(crate) fn free(&self, address: u64) -> bool {
        let mut state = self.lock();
        if address == 0 {
            return true;
        }
        let Some(mut bytes) = state.live.remove(&address) else { return false };
        let mut first = address;
        // Together with its neighbours, if they are free.
        if let Some(after) = state.freed.remove(&(address + bytes)) {
            bytes += after;
        }
        if let Some((&before, &size)) = state.freed.range(..address).next_back()
            && before + size == address
        {
            (first, bytes) = (before, bytes + size);
        }
        state.freed.insert(first, bytes);
        true
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        let state = self.lock();
        if let Some(memory) = &state.memory {
            // It came from `alloc`, and was not freed since: it cannot fail.
            let _ = memory.free("malloc", state.base);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_can_be_had_again() {
        let (memory, heap) = (Arc::new(Memory::new(2 * BYTES, false)), Heap::default());
        assert_eq!((heap.alloc(8), heap.free(0), heap.is_used()), (0, true, false));
        heap.prepare(&memory);
        heap.prepare(&memory);
        let all: Vec<u64> = (0..4).map(|_| heap.alloc(BYTES / 4)).collect();
        assert!(all.windows(2).all(|pair| pair[1] - pair[0] == BYTES / 4) && all[0] != 0);
        assert_eq!(heap.alloc(1), 0);
        for i in [1, 3, 0, 2] {
            assert!(heap.free(all[i]) && !heap.free(all[i]) && !heap.free(all[i] + 16));
        }
        let [a, b, rest] = [1, 17, BYTES - 48].map(|bytes| heap.alloc(bytes));
        assert_eq!((a, b - a, rest - b), (all[0], 16, 32));
        assert_eq!((heap.alloc(1), heap.alloc(u64::MAX)), (0, 0));
    }

    #[test]
    fn a_heap_is_as_large_as_it_was_made_and_gives_its_memory_back() {
        let memory = Arc::new(Memory::new(4 * BYTES, false));
        for bytes in [BYTES / 4, 3 * BYTES] {
            let heap = Heap::new(bytes);
            heap.prepare(&memory);
            assert!(heap.is_used());
            assert_eq!(heap.alloc(bytes + 1), 0);
            assert_ne!(heap.alloc(bytes), 0);
            assert_eq!(memory.info().0, 4 * BYTES - bytes);
            drop(heap);
            assert_eq!(memory.info().0, 4 * BYTES);
        }
    }

    #[test]
    fn a_device_without_room_has_no_heap() {
        let (memory, heap) = (Arc::new(Memory::new(BYTES / 2, false)), Heap::default());
        heap.prepare(&memory);
        assert_eq!(heap.alloc(1), 0);
    }
}
