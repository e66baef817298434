//! Device memory: an address space of its own over host memory.
//!
//! Addresses start at [`GLOBAL_BASE`], far above any address of a real GPU or
//! of the host, so that a pointer of the wrong kind is never taken for one.
//! Every allocation is followed by a gap that belongs to nobody, and no
//! address is handed out twice, so that a stale pointer stays recognisable.
//!
//! Every access to the host memory behind an allocation is a relaxed atomic:
//! blocks run in parallel and kernels may race, which must not be undefined
//! behaviour on the host. A racing access still tears only where a GPU's would.

use std::alloc::Layout;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{MemoryCall, MemoryError, Place};
use crate::written::Written;

/// The first device address.
pub(crate) const GLOBAL_BASE: u64 = 0x0050_0000_0000_0000;
/// One past the last device address.
pub(crate) const GLOBAL_END: u64 = 0x0051_0000_0000_0000;
/// Alignment of every allocation, in bytes.
const ALIGN: u64 = 256;
/// Bytes that belong to nobody after every allocation.
const GUARD: u64 = 1 << 20;
/// How many freed ranges are remembered.
const QUARANTINE: usize = 1 << 16;
/// A bad address is described by an allocation at most this far away.
const NEAR: u64 = 1 << 40;

/// One allocation and the host memory behind it. It outlives `free` for as
/// long as a launch holds it.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub base: u64,
    pub size: u64,
    /// The call that made it.
    pub allocated: MemoryCall,
    data: *mut u8,
    /// What `data` lies in.
    block: *mut u8,
    layout: Layout,
    /// Which bytes have been written, if that is checked.
    pub written: Option<Written>,
}

// SAFETY: `data` is owned by this value, and every access to it goes through
// relaxed atomics.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    fn new(
        (base, size): (u64, u64),
        allocated: MemoryCall,
        written: Option<Written>,
    ) -> Option<Allocation> {
        // For an alignment that is not the allocator's own, it would write zeros to all pages; like
        // this the host gives those of a large allocation when they are first written.
        let padded = usize::try_from(size.checked_add(ALIGN)?).ok()?;
        let layout = Layout::from_size_align(padded, align_of::<u64>()).ok()?;
        // SAFETY: the layout's size is not zero.
        let block = unsafe { std::alloc::alloc_zeroed(layout) };
        if block.is_null() {
            return None;
        }
        // SAFETY: less than `ALIGN` bytes are left out, and `size` bytes are behind them.
        let data = unsafe { block.add(block.align_offset(ALIGN as usize)) };
        Some(Allocation { base, size, allocated, data, block, layout, written })
    }

    /// The host address of the first byte.
    pub(crate) fn host(&self) -> *mut u8 {
        self.data
    }

    /// Notes that `bytes` bytes at `address` have been written.
    pub(crate) fn mark(&self, address: u64, bytes: u64) {
        if let Some(written) = &self.written {
            written.mark(address - self.base, bytes);
        }
    }

    /// Host address of `address`, if `bytes` bytes from there are inside.
    pub(crate) fn resolve(&self, address: u64, bytes: u64) -> Option<*mut u8> {
        let offset = address.checked_sub(self.base)?;
        if offset.checked_add(bytes)? > self.size {
            return None;
        }
        // SAFETY: `offset + bytes <= size`, so the result is inside `data`.
        Some(unsafe { self.data.add(offset as usize) })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: `block` came from `alloc_zeroed` with this layout.
        unsafe { std::alloc::dealloc(self.block, self.layout) }
    }
}

/// The allocations that were live at one moment, sorted by address.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    allocations: Vec<Arc<Allocation>>,
}

impl Snapshot {
    /// The allocations at or below `address`, and those above.
    fn around(&self, address: u64) -> (&[Arc<Allocation>], &[Arc<Allocation>]) {
        self.allocations.split_at(self.allocations.partition_point(|a| a.base <= address))
    }

    /// The allocation that contains `address`.
    pub(crate) fn find(&self, address: u64) -> Option<&Arc<Allocation>> {
        let found = self.around(address).0.last()?;
        (address - found.base < found.size).then_some(found)
    }

    /// All of them, by address.
    pub(crate) fn all(&self) -> &[Arc<Allocation>] {
        &self.allocations
    }

    /// The place in [`all`](Snapshot::all) of the allocation that contains `address`.
    pub(crate) fn index_of(&self, address: u64) -> Option<usize> {
        let index = self.around(address).0.len().checked_sub(1)?;
        let found = &self.allocations[index];
        (address - found.base < found.size).then_some(index)
    }
}

/// An allocation that was freed.
#[derive(Debug, Clone, Copy)]
struct Freed {
    base: u64,
    size: u64,
    allocated: MemoryCall,
    freed: MemoryCall,
}

#[derive(Debug)]
struct Space {
    live: Snapshot,
    /// Sorted by address. The lowest leaves where there are too many, and most come behind all
    /// others: a vector would be moved as a whole each time.
    freed: VecDeque<Freed>,
    next: u64,
    used: u64,
    /// Calls that allocated or freed, and launches, so far.
    calls: u64,
    launches: u64,
}

impl Space {
    /// The next call that allocates or frees.
    fn call(&mut self, name: &'static str) -> MemoryCall {
        self.calls += 1;
        MemoryCall { name, ordinal: self.calls, launches: self.launches }
    }

    /// The freed allocation that `address` lies in.
    fn freed_at(&self, address: u64) -> Option<&Freed> {
        let below = self.freed.partition_point(|freed| freed.base <= address);
        self.freed.get(below.checked_sub(1)?).filter(|freed| address - freed.base < freed.size)
    }
}

/// The address space of a device.
#[derive(Debug)]
pub(crate) struct Memory {
    total: u64,
    /// Whether reads of bytes that nobody wrote are looked for.
    track: bool,
    space: Mutex<Space>,
}

impl Memory {
    /// Memory of `total` bytes, which keeps track of those that have been written if `track`.
    pub(crate) fn new(total: u64, track: bool) -> Memory {
        let live = Snapshot::default();
        let (next, freed) = (GLOBAL_BASE, VecDeque::new());
        let space = Space { live, freed, next, used: 0, calls: 0, launches: 0 };
        Memory { total, track, space: Mutex::new(space) }
    }

    fn lock(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A launch begins.
    pub(crate) fn note_launch(&self) {
        self.lock().launches += 1;
    }

    /// Allocates, on behalf of the function `name`.
    pub(crate) fn alloc(&self, name: &'static str, bytes: u64) -> Result<u64, MemoryError> {
        if bytes == 0 {
            return Err(MemoryError::ZeroSize);
        }
        let mut space = self.lock();
        let free = self.total - space.used;
        let left = (GLOBAL_END - space.next).saturating_sub(GUARD);
        let padded = match bytes.checked_next_multiple_of(ALIGN) {
            Some(padded) if padded <= free && padded <= left => padded,
            _ => return Err(MemoryError::OutOfMemory { requested: bytes, free }),
        };
        let base = space.next;
        let written = self.track.then(|| Written::new(bytes));
        let call = space.call(name);
        let allocation = Allocation::new((base, bytes), call, written);
        let allocation = allocation.ok_or(MemoryError::HostMemory { requested: bytes })?;
        space.next += padded + GUARD;
        space.used += padded;
        // The highest address so far: the order stays.
        space.live.allocations.push(Arc::new(allocation));
        Ok(base)
    }

    /// Frees, on behalf of the function `name`.
    pub(crate) fn free(&self, name: &'static str, address: u64) -> Result<(), MemoryError> {
        let mut space = self.lock();
        let freed = space.call(name);
        let live = &mut space.live.allocations;
        let Ok(at) = live.binary_search_by_key(&address, |allocation| allocation.base) else {
            let before = space.freed_at(address).filter(|freed| freed.base == address);
            return Err(before.map_or(MemoryError::NotAnAllocation { address }, |before| {
                MemoryError::FreedTwice { address, freed: before.freed }
            }));
        };
        let allocation = live.remove(at);
        let (size, allocated) = (allocation.size, allocation.allocated);
        space.used -= size.next_multiple_of(ALIGN);
        let at = space.freed.partition_point(|freed| freed.base < address);
        space.freed.insert(at, Freed { base: address, size, allocated, freed });
        if space.freed.len() > QUARANTINE {
            space.freed.pop_front();
        }
        Ok(())
    }

    /// Bytes free, and bytes in all.
    pub(crate) fn info(&self) -> (u64, u64) {
        (self.total - self.lock().used, self.total)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.lock().live.clone()
    }

    /// The allocation that contains `address`.
    pub(crate) fn find(&self, address: u64) -> Option<Arc<Allocation>> {
        self.lock().live.find(address).cloned()
    }

    /// Says where `address` lies, for messages about an access that failed.
    pub(crate) fn place(&self, address: u64) -> Place {
        let space = self.lock();
        let (below, above) = space.live.around(address);
        let below = below.last().map(|a| (a.base, a.size));
        let above = above.first().map(|a| (a.base, a.size));
        if let Some((base, size)) = below
            && address - base < size
        {
            return Place::After { base, size, past_end: (address - base) as i64 - size as i64 };
        }
        if let Some(&Freed { base, size, allocated, freed }) = space.freed_at(address) {
            return Place::Freed { base, size, allocated, freed };
        }
        let after = below.map(|(base, size)| (address - base - size, base, size));
        let before = above.map(|(base, size)| (base - address, base, size));
        match (after, before) {
            (Some((past, base, size)), other)
                if past < NEAR && other.is_none_or(|(distance, ..)| past <= distance) =>
            {
                Place::After { base, size, past_end: past as i64 }
            }
            (_, Some((distance, base, size))) if distance < NEAR => {
                Place::Before { base, size, distance }
            }
            _ => Place::Nowhere,
        }
    }

    /// The host memory behind `bytes` bytes at `address`.
    fn range(&self, address: u64, bytes: u64) -> Result<(Arc<Allocation>, *mut u8), MemoryError> {
        self.find(address)
            .and_then(|found| found.resolve(address, bytes).map(|host| (found, host)))
            .ok_or_else(|| {
                let place = self.place(address);
                MemoryError::OutOfBounds { address, bytes, place }
            })
    }

    pub(crate) fn read(&self, address: u64, dst: &mut [u8]) -> Result<(), MemoryError> {
        if dst.is_empty() {
            return Ok(());
        }
        let (_keep, host) = self.range(address, dst.len() as u64)?;
        // SAFETY: `range` checked the source, and `_keep` keeps it alive.
        unsafe { load_bytes(host, dst) };
        Ok(())
    }

    pub(crate) fn write(&self, address: u64, src: &[u8]) -> Result<(), MemoryError> {
        if src.is_empty() {
            return Ok(());
        }
        let (allocation, host) = self.range(address, src.len() as u64)?;
        // SAFETY: `range` checked the destination, and `allocation` keeps it alive.
        unsafe { store_bytes(host, src) };
        allocation.mark(address, src.len() as u64);
        Ok(())
    }

    pub(crate) fn copy(&self, dst: u64, src: u64, bytes: u64) -> Result<(), MemoryError> {
        if bytes == 0 {
            return Ok(());
        }
        let (source, from) = self.range(src, bytes)?;
        let (target, to) = self.range(dst, bytes)?;
        const CHUNK: u64 = 1 << 16;
        let mut buffer = vec![0; bytes.min(CHUNK) as usize];
        // An overlapping copy to a higher address runs backwards, as memmove does.
        let backwards = dst > src;
        for i in 0..bytes.div_ceil(CHUNK) {
            let i = if backwards { bytes.div_ceil(CHUNK) - 1 - i } else { i };
            let start = i * CHUNK;
            let part = &mut buffer[..CHUNK.min(bytes - start) as usize];
            // SAFETY: both ranges were checked in full, and are kept alive.
            unsafe {
                load_bytes(from.add(start as usize), part);
                store_bytes(to.add(start as usize), part);
            }
        }
        if let (Some(to), Some(from)) = (&target.written, &source.written) {
            to.copy(dst - target.base, from, src - source.base, bytes);
        }
        Ok(())
    }

    /// Writes the pattern `value` `count` times.
    pub(crate) fn fill<const N: usize>(
        &self,
        address: u64,
        value: [u8; N],
        count: u64,
    ) -> Result<(), MemoryError> {
        if count == 0 {
            return Ok(());
        }
        let bytes = count.saturating_mul(N as u64);
        let (allocation, host) = self.range(address, bytes)?;
        if !address.is_multiple_of(N as u64) {
            return Err(MemoryError::Misaligned { address, align: N as u64 });
        }
        const CHUNK: usize = 1 << 12;
        let pattern: Vec<u8> = value.iter().copied().cycle().take(CHUNK).collect();
        let mut at = 0;
        while at < bytes {
            let part = &pattern[..(CHUNK as u64).min(bytes - at) as usize];
            // SAFETY: `at + part.len() <= bytes`, which `range` checked.
            unsafe { store_bytes(host.add(at as usize), part) };
            at += part.len() as u64;
        }
        allocation.mark(address, bytes);
        Ok(())
    }

    /// The allocations that are live.
    pub(crate) fn live(&self) -> Vec<(u64, u64)> {
        self.lock().live.allocations.iter().map(|live| (live.base, live.size)).collect()
    }
}

/// Copies device memory to `dst`.
///
/// # Safety
/// `dst.len()` bytes at `host` belong to a live allocation.
unsafe fn load_bytes(host: *const u8, dst: &mut [u8]) {
    let head = host.align_offset(8).min(dst.len());
    let (first, rest) = dst.split_at_mut(head);
    for (i, byte) in first.iter_mut().enumerate() {
        // SAFETY: `i < dst.len()`.
        *byte = unsafe { (*host.add(i).cast::<AtomicU8>()).load(Relaxed) };
    }
    let (words, tail) = rest.as_chunks_mut::<8>();
    for (i, word) in words.iter_mut().enumerate() {
        // SAFETY: in bounds as above; `host + head` is a multiple of 8.
        let value = unsafe { (*host.add(head + i * 8).cast::<AtomicU64>()).load(Relaxed) };
        *word = value.to_ne_bytes();
    }
    let done = head + words.len() * 8;
    for (i, byte) in tail.iter_mut().enumerate() {
        // SAFETY: `done + i < dst.len()`.
        *byte = unsafe { (*host.add(done + i).cast::<AtomicU8>()).load(Relaxed) };
    }
}

/// Copies `src` to device memory.
///
/// # Safety
/// `src.len()` bytes at `host` belong to a live allocation.
unsafe fn store_bytes(host: *mut u8, src: &[u8]) {
    let head = host.align_offset(8).min(src.len());
    let (first, rest) = src.split_at(head);
    for (i, &byte) in first.iter().enumerate() {
        // SAFETY: `i < src.len()`.
        unsafe { (*host.add(i).cast::<AtomicU8>()).store(byte, Relaxed) };
    }
    let (words, tail) = rest.as_chunks::<8>();
    for (i, &word) in words.iter().enumerate() {
        let word = u64::from_ne_bytes(word);
        // SAFETY: in bounds as above; `host + head` is a multiple of 8.
        unsafe { (*host.add(head + i * 8).cast::<AtomicU64>()).store(word, Relaxed) };
    }
    let done = head + words.len() * 8;
    for (i, &byte) in tail.iter().enumerate() {
        // SAFETY: `done + i < src.len()`.
        unsafe { (*host.add(done + i).cast::<AtomicU8>()).store(byte, Relaxed) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_aligned_apart_and_never_reused() {
        let memory = Memory::new(1 << 20, false);
        let a = memory.alloc("a", 100).unwrap();
        let b = memory.alloc("b", 1).unwrap();
        assert_eq!((a % 256, b % 256), (0, 0));
        assert!(b - a >= 100 + GUARD);
        memory.note_launch();
        memory.free("c", b).unwrap();
        assert_ne!(memory.alloc("d", 1).unwrap(), b);
        let allocated = MemoryCall { name: "b", ordinal: 2, launches: 0 };
        let freed = MemoryCall { name: "c", ordinal: 3, launches: 1 };
        assert_eq!(memory.free("e", b), Err(MemoryError::FreedTwice { address: b, freed }));
        let none = MemoryError::NotAnAllocation { address: b + 1 };
        assert_eq!(memory.free("f", b + 1), Err(none));
        assert_eq!(memory.place(b), Place::Freed { base: b, size: 1, allocated, freed });
    }

    #[test]
    fn the_budget_is_kept() {
        let memory = Memory::new(1024, false);
        assert_eq!(memory.alloc("alloc", 0), Err(MemoryError::ZeroSize));
        let a = memory.alloc("alloc", 600).unwrap();
        assert_eq!(memory.info(), (256, 1024));
        assert_eq!(
            memory.alloc("alloc", 257),
            Err(MemoryError::OutOfMemory { requested: 257, free: 256 })
        );
        memory.free("free", a).unwrap();
        assert_eq!(memory.info(), (1024, 1024));
        assert!(memory.alloc("alloc", u64::MAX).is_err());
        // The device has it, and no host has.
        let memory = Memory::new(u64::MAX >> 1, false);
        let requested = 1 << 47;
        let refused = Err(MemoryError::HostMemory { requested });
        assert_eq!(memory.alloc("alloc", requested), refused);
    }

    #[test]
    fn unaligned_reads_writes_and_copies() {
        let memory = Memory::new(1 << 30, false);
        let base = memory.alloc("alloc", 1 << 18).unwrap();
        let data: Vec<u8> = (0..200_000u32).map(|i| (i * 7 + i / 256) as u8).collect();
        memory.write(base + 3, &data).unwrap();
        for (start, len) in [(0, 200_000), (1, 17), (5, 3), (13, 64)] {
            let mut back = vec![0; len];
            memory.read(base + 3 + start as u64, &mut back).unwrap();
            assert_eq!(back, data[start..start + len]);
        }
        memory.copy(base + 1003, base + 3, 150_000).unwrap();
        let mut back = vec![0; 150_000];
        memory.read(base + 1003, &mut back).unwrap();
        assert_eq!(back, data[..150_000]);
        memory.fill(base + 4, 0x1234_5678u32.to_le_bytes(), 3).unwrap();
        let mut word = [0; 4];
        memory.read(base + 12, &mut word).unwrap();
        assert_eq!(u32::from_le_bytes(word), 0x1234_5678);
        assert_eq!(
            memory.fill(base + 2, [0u8; 4], 1),
            Err(MemoryError::Misaligned { address: base + 2, align: 4 })
        );
    }

    #[test]
    fn bad_ranges_say_where_they_lie() {
        let memory = Memory::new(1 << 20, false);
        let a = memory.alloc("alloc", 100).unwrap();
        let message =
            |address, len: usize| memory.read(address, &mut vec![0; len]).unwrap_err().to_string();
        assert!(message(a + 96, 8).contains("starts 4 bytes before the end of the 100-byte"));
        assert!(message(a + 104, 4).contains("4 bytes past the end of the 100-byte"));
        assert!(message(a - 8, 4).contains("8 bytes before the 100-byte"));
        assert!(message(0, 4).contains("no allocation is near"));
        memory.free("free", a).unwrap();
        assert!(message(a, 4).contains("and freed by `free` (memory call 2, after 0 launches)"));
    }
}
