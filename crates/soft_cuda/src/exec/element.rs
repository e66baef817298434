//! Elements as they lie in memory.
//!
//! Global memory is accessed by relaxed atomics (see [`crate::memory`]).

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// An element as it lies in memory.
pub(crate) trait Element: Copy {
    const BYTES: u32 = size_of::<Self>() as u32;
    /// # Safety
    /// `at` is aligned and inside memory that is accessed only atomically.
    unsafe fn load_atomic(at: *const u8) -> Self;
    /// # Safety
    /// As for `load_atomic`.
    unsafe fn store_atomic(at: *mut u8, value: Self);
}

macro_rules! element {
    ($($ty:ty, $atomic:ty;)*) => {$(
        impl Element for $ty {
            #[inline(always)]
            unsafe fn load_atomic(at: *const u8) -> $ty {
                // SAFETY: by contract.
                unsafe { (*at.cast::<$atomic>()).load(Relaxed) }
            }
            #[inline(always)]
            unsafe fn store_atomic(at: *mut u8, value: $ty) {
                // SAFETY: by contract.
                unsafe { (*at.cast::<$atomic>()).store(value, Relaxed) }
            }
        }
    )*};
}

element! {
    u8, AtomicU8;
    u16, AtomicU16;
    u32, AtomicU32;
    u64, AtomicU64;
}

/// An element type and the register lane it is loaded to or stored from, for accesses that find
/// out while they run. Loads extend by the element's sign, stores truncate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transfer {
    /// 1, 2, 4 or 8.
    pub bytes: u32,
    pub signed: bool,
    /// Whether the register has 64 bits.
    pub wide: bool,
}

impl Transfer {
    pub(crate) fn pack(self) -> u32 {
        self.bytes | u32::from(self.signed) << 8 | u32::from(self.wide) << 9
    }

    pub(crate) fn unpack(word: u32) -> Transfer {
        Transfer { bytes: word & 0xff, signed: word >> 8 & 1 != 0, wide: word >> 9 & 1 != 0 }
    }

    /// The bits of a register that holds the element `raw`, whose upper bits are zero.
    pub(crate) fn extend(self, raw: u64) -> u64 {
        let top = 64 - 8 * self.bytes;
        if self.signed { ((raw << top) as i64 >> top) as u64 } else { raw }
    }

    /// # Safety
    /// `at` is aligned and inside memory that is accessed only atomically.
    pub(crate) unsafe fn load(self, at: *const u8) -> u64 {
        // SAFETY: by contract.
        self.extend(unsafe {
            match self.bytes {
                1 => u8::load_atomic(at).into(),
                2 => u16::load_atomic(at).into(),
                4 => u32::load_atomic(at).into(),
                _ => u64::load_atomic(at),
            }
        })
    }

    /// # Safety
    /// As for [`load`](Transfer::load).
    pub(crate) unsafe fn store(self, at: *mut u8, bits: u64) {
        // SAFETY: by contract.
        unsafe {
            match self.bytes {
                1 => u8::store_atomic(at, bits as u8),
                2 => u16::store_atomic(at, bits as u16),
                4 => u32::store_atomic(at, bits as u32),
                _ => u64::store_atomic(at, bits),
            }
        }
    }
}

/// Copies `from_src` bytes, by words if both ends are aligned, and fills up to `bytes` with zeros.
///
/// # Safety
/// `dst` has room for `bytes`, `src` has `from_src` bytes.
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, from_src: u32, bytes: u32) {
    const WORD: usize = size_of::<u32>();
    let (from_src, bytes) = (from_src as usize, bytes as usize);
    let aligned = (dst.addr() | src.addr()).is_multiple_of(WORD);
    let words = if aligned { from_src / WORD } else { 0 };
    // SAFETY: by contract.
    unsafe {
        for i in 0..words {
            dst.cast::<u32>().add(i).write(u32::load_atomic(src.add(i * WORD)));
        }
        for i in words * WORD..from_src {
            dst.add(i).write(u8::load_atomic(src.add(i)));
        }
        match (bytes, from_src) {
            (_, all) if all == bytes => {}
            // A call of `memset` would take longer.
            (4, 0) => dst.cast::<[u8; 4]>().write([0; 4]),
            (16, 0) => dst.cast::<[u8; 16]>().write([0; 16]),
            _ => dst.add(from_src).write_bytes(0, bytes - from_src),
        }
    }
}
