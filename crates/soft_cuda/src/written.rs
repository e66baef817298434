//! Which bytes of an allocation have been written.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

/// Bytes that one element of the map stands for, one bit each.
const GROUP: u64 = 4;
const ALL: u8 = (1 << GROUP) - 1;

/// Which bytes of an allocation have been written, by anyone.
#[derive(Debug)]
pub(crate) struct Written {
    bytes: u64,
    groups: Box<[AtomicU8]>,
    /// All of them.
    whole: AtomicBool,
}

/// The bits of those bytes of group `group` that lie between `from` and `to`.
fn part(group: u64, from: u64, to: u64) -> u8 {
    let first = from.saturating_sub(group * GROUP).min(GROUP);
    let last = to.saturating_sub(group * GROUP).min(GROUP);
    ((1u16 << last) - (1 << first)) as u8
}

impl Written {
    /// Of `bytes` bytes, none.
    pub(crate) fn new(bytes: u64) -> Written {
        let groups = Box::new_zeroed_slice(bytes.div_ceil(GROUP) as usize);
        // SAFETY: an atomic byte may be zero.
        let groups = unsafe { groups.assume_init() };
        Written { bytes, groups, whole: AtomicBool::new(false) }
    }

    /// Notes a write of `bytes` bytes at `offset`.
    #[inline]
    pub(crate) fn mark(&self, offset: u64, bytes: u64) {
        if self.whole() {
            return;
        }
        let end = offset + bytes;
        for group in offset / GROUP..end.div_ceil(GROUP) {
            match part(group, offset, end) {
                ALL => self.groups[group as usize].store(ALL, Relaxed),
                part => {
                    self.groups[group as usize].fetch_or(part, Relaxed);
                }
            }
        }
        if offset == 0 && end == self.bytes {
            self.whole.store(true, Relaxed);
        }
    }

    /// Whether all bytes have been written.
    #[inline]
    pub(crate) fn whole(&self) -> bool {
        self.whole.load(Relaxed)
    }

    /// Whether all of `bytes` bytes at `offset` have been written.
    #[inline]
    pub(crate) fn covers(&self, offset: u64, bytes: u64) -> bool {
        if self.whole() {
            return true;
        }
        let end = offset + bytes;
        (offset / GROUP..end.div_ceil(GROUP)).all(|group| {
            let part = part(group, offset, end);
            self.groups[group as usize].load(Relaxed) & part == part
        })
    }

    /// Takes over what is known of `bytes` bytes of `other` at `from`.
    pub(crate) fn copy(&self, to: u64, other: &Written, from: u64, bytes: u64) {
        if other.covers(from, bytes) {
            return self.mark(to, bytes);
        }
        let written: Vec<bool> = (0..bytes).map(|i| other.covers(from + i, 1)).collect();
        for (i, _) in written.iter().enumerate().filter(|(_, written)| **written) {
            self.mark(to + i as u64, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_apart() {
        let written = Written::new(13);
        written.mark(3, 6);
        assert!(written.covers(3, 6) && written.covers(4, 4));
        assert!(!written.covers(2, 2) && !written.covers(8, 2));
        let copy = Written::new(20);
        copy.copy(5, &written, 0, 13);
        assert!(copy.covers(8, 6) && !copy.covers(7, 1) && !copy.covers(14, 1));
        written.mark(0, 13);
        assert!(written.covers(0, 13));
    }
}
