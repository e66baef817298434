//! The heap that kernels allocate from by `malloc`: one allocation of the device's memory, as large
//! as CUDA makes it unless it is told otherwise.
//!
//! Memory that was freed is used again only when there is no other left, so that what a check of
//! races knows of its last owner is seldom in the way. Within the heap, accesses outside of a block
//! of memory are not found.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::memory::Memory;

/// Bytes of the heap (CUDA Programming Guide: "Heap Memory Allocation").
const BYTES: u64 = 8 << 20;
/// Alignment of what `malloc` returns.
const ALIGN: u64 = 16;

/// The heap of a device, which is there from the first launch on that needs it.
#[derive(Debug, Default)]
pub(crate) struct Heap(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Where it lies, or 0.
    base: u64,
    /// Where the part begins that was never used.
    next: u64,
    /// Address and bytes of what is allocated, and of what was freed.
    live: BTreeMap<u64, u64>,
    freed: BTreeMap<u64, u64>,
}

impl Heap {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the heap, unless it is there. Where the device has too little memory left, there is
    /// none, and every `malloc` fails.
    pub(crate) fn prepare(&self, memory: &Memory) {
        let mut state = self.lock();
        if state.base == 0
            && let Ok(base) = memory.alloc("malloc", BYTES)
        {
            (state.base, state.next) = (base, base);
        }
    }

    /// `malloc`: an address, or 0.
    pub(crate) fn alloc(&self, bytes: u64) -> u64 {
        let mut state = self.lock();
        let Some(bytes) = bytes.max(1).checked_next_multiple_of(ALIGN) else { return 0 };
        let address = if bytes <= state.base + BYTES - state.next && state.base != 0 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_can_be_had_again() {
        let (memory, heap) = (Memory::new(2 * BYTES, false), Heap::default());
        assert_eq!((heap.alloc(8), heap.free(0)), (0, true));
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
    fn a_device_without_room_has_no_heap() {
        let (memory, heap) = (Memory::new(BYTES / 2, false), Heap::default());
        heap.prepare(&memory);
        assert_eq!(heap.alloc(1), 0);
    }
}
