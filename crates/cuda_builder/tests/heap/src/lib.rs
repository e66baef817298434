//! Kernels that use the heap.

#![no_std]

extern crate alloc;

use alloc::collections::BTreeMap;

use cuda_std::prelude::*;

/// Aligned to more than `malloc` is.
#[repr(align(64))]
struct Wide(u64);

/// Collections that grow and shrink.
pub fn collections(i: u32) -> u64 {
    let mut values: Vec<u32> = (0..i % 20 + 1).map(|x| x * x % 17).collect();
    values.push(i);
    values.sort();
    values.dedup();
    let words: String = values.iter().map(|x| format!("{x},")).collect();
    let counts = words.bytes().fold(BTreeMap::new(), |mut counts, byte| {
        *counts.entry(byte).or_insert(0u64) += 1;
        counts
    });
    let boxes: Vec<Box<Wide>> = (0..3).map(|x| Box::new(Wide(x + u64::from(i)))).collect();
    let aligned = boxes.iter().all(|wide| (&raw const **wide).addr().is_multiple_of(64));
    let boxed: Box<dyn Fn(u64) -> u64> = Box::new(move |x| x + values.len() as u64);
    let digest = counts.into_iter().fold(0u64, |sum, (byte, count)| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte) * count)
    });
    boxed(digest) + boxes[2].0 + u64::from(aligned)
}

/// Calls [`collections`].
///
/// # Safety
/// `out` has an element for each thread of one block, and nothing else touches it.
#[kernel]
pub unsafe fn allocates(out: *mut u64) {
    let i = thread::index_1d();
    // SAFETY: as the launch promises.
    unsafe { *out.add(i as usize) = collections(i) };
}

/// Wants more than the heap has.
///
/// # Safety
/// One thread; `out` has an element.
#[kernel]
pub unsafe fn allocates_much(out: *mut u64) {
    let values: Vec<u64> = (0..1 << 21).collect();
    // SAFETY: as the launch promises.
    unsafe { *out = values.iter().sum() };
}

/// Frees what was not allocated.
///
/// # Safety
/// Never, on a device that does not stop it.
#[cfg(target_arch = "nvptx64")]
#[kernel]
pub unsafe fn frees_other(out: *mut u64) {
    use core::alloc::{GlobalAlloc, Layout};
    // SAFETY: none: the software device stops here.
    unsafe { cuda_std::heap::DeviceHeap.dealloc(out.cast(), Layout::new::<u64>()) };
}
