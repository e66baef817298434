//! Memory for registers and variables: at the alignment of a cache line, and of any vector access.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Bytes of a line.
const LINE: usize = 128;

/// A buffer that starts as zeros. What is never touched takes no memory of the host.
pub(super) struct Lines {
    allocated: NonNull<u8>,
    layout: Layout,
    bytes: usize,
}

impl Lines {
    /// A buffer of so many bytes, if the host has room for it.
    pub(super) fn new(bytes: usize) -> Option<Lines> {
        // Only at the alignment of `malloc` are zeros had without writing them.
        let layout = Layout::from_size_align(bytes.checked_add(LINE)?, align_of::<u64>()).ok()?;
        // SAFETY: the size is not zero.
        let allocated = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Lines { allocated, layout, bytes })
    }

    /// Its first byte, at the beginning of a line.
    pub(super) fn start(&self) -> *mut u8 {
        let allocated = self.allocated.as_ptr();
        // SAFETY: less than a line, for which there is room behind the bytes asked for.
        unsafe { allocated.add(allocated.align_offset(LINE)) }
    }

    /// Sets all bytes.
    pub(super) fn fill(&mut self, byte: u8) {
        // SAFETY: the buffer has that many bytes.
        unsafe { self.start().write_bytes(byte, self.bytes) };
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it with this layout.
        unsafe { dealloc(self.allocated.as_ptr(), self.layout) };
    }
}

// SAFETY: the buffer is owned, as a `Box` is.
unsafe impl Send for Lines {}
