//! Locks of pages of device memory, for what is noted of their words.

use std::sync::atomic::{AtomicBool, Ordering::*};

/// Logarithm of the bytes of a page.
const PAGE: u32 = 12;
/// Locks; pages share them.
const LOCKS: usize = 64;
/// Tries before a thread lets others run: the one that has the lock may not.
const TRIES: u32 = 200;

/// One lock, in a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Lock(AtomicBool);

/// The locks of all pages in one launch.
pub(super) struct Stripes([Lock; LOCKS]);

/// Holds some of them until it is dropped.
pub(super) struct Held<'s> {
    stripes: &'s Stripes,
    locks: u64,
}

impl Stripes {
    pub(super) fn new() -> Stripes {
        Stripes(std::array::from_fn(|_| Lock::default()))
    }

    /// Locks the pages of `bytes` bytes at each of `offsets` into allocation number `index`. All
    /// locks are taken in one order, so that nobody waits in a circle.
    #[inline(always)]
    pub(super) fn lock(
        &self,
        index: usize,
        offsets: impl IntoIterator<Item = u64>,
        bytes: u32,
    ) -> Held<'_> {
        let mut locks = 0;
        for offset in offsets {
            let last = (offset + u64::from(bytes.max(1) - 1)) >> PAGE;
            for page in (offset >> PAGE..=last).take(LOCKS) {
                locks |= 1 << ((page + index as u64) % LOCKS as u64);
            }
        }
        let held = Held { stripes: self, locks };
        for Lock(lock) in held.each() {
            let mut tries = 0;
            while lock.swap(true, Acquire) {
                tries += 1;
                match tries % TRIES {
                    0 => std::thread::yield_now(),
                    _ => std::hint::spin_loop(),
                }
            }
        }
        held
    }
}

impl Held<'_> {
    #[inline(always)]
    fn each(&self) -> impl Iterator<Item = &Lock> {
        let mut left = self.locks;
        std::iter::from_fn(move || {
            let lock = self.stripes.0.get(left.trailing_zeros() as usize);
            left &= left.wrapping_sub(1);
            lock
        })
    }
}

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.each().for_each(|Lock(lock)| lock.store(false, Release));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_exclude_each_other_in_any_order() {
        let (stripes, sum) = (Stripes::new(), std::sync::atomic::AtomicU32::new(0));
        std::thread::scope(|scope| {
            for from in 0..4 {
                let (stripes, sum) = (&stripes, &sum);
                scope.spawn(move || {
                    for i in 0..10_000 {
                        let offsets = [(i + from) << PAGE, 7 << PAGE, (100 - from) << PAGE];
                        let _held = stripes.lock(3, offsets, 16);
                        sum.store(sum.load(Relaxed) + 1, Relaxed);
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 40_000);
    }

    #[test]
    fn bytes_over_pages_lock_all_of_them() {
        let stripes = Stripes::new();
        assert_eq!(stripes.lock(0, [4095], 1).locks, 1);
        assert_eq!(stripes.lock(0, [4095], 2).locks, 3);
        assert_eq!(stripes.lock(1, [0, 64 << PAGE], 4).locks, 2);
        assert_eq!(stripes.lock(0, [0], u32::MAX).locks, u64::MAX);
    }
}
