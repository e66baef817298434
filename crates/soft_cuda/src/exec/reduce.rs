//! Reductions by bulk copies (`cp.reduce.async.bulk`): what they do to each element.

use super::atomic::{RMWS, Rmw, Word};

/// The operation of a bulk reduction, and the bytes of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reduction {
    pub rmw: Rmw,
    /// 2, 4 or 8.
    pub bytes: u32,
}

impl Reduction {
    /// As one word that is not 0.
    pub(crate) fn pack(self) -> u32 {
        (self.rmw as u32) << 8 | self.bytes
    }

    /// What [`pack`](Self::pack) made a word of; `None` of 0, which stands for a plain copy.
    pub(super) fn unpack(word: u32) -> Option<Reduction> {
        (word != 0).then(|| Reduction { rmw: RMWS[(word >> 8) as usize], bytes: word & 0xff })
    }

    /// Reduces `bytes` bytes at `from` into those at `to`, each element atomically.
    ///
    /// # Safety
    /// Both places are aligned to an element and have so many bytes, and `to` is accessed only
    /// atomically.
    pub(super) unsafe fn apply(self, to: *mut u8, from: *const u8, bytes: u32) {
        // SAFETY: by contract.
        unsafe {
            match self.bytes {
                2 => self.each::<u16>(to, from, bytes),
                4 => self.each::<u32>(to, from, bytes),
                _ => self.each::<u64>(to, from, bytes),
            }
        }
    }

    /// # Safety
    /// As for [`apply`](Self::apply), with elements `T`.
    unsafe fn each<T: Word>(self, to: *mut u8, from: *const u8, bytes: u32) {
        for at in (0..bytes as usize).step_by(size_of::<T>()) {
            // SAFETY: by contract.
            unsafe {
                let operand = from.add(at).cast::<T>().read();
                T::update(to.add(at), |old| T::apply(self.rmw, old, operand, operand));
            }
        }
    }
}
