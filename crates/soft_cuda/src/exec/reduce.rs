//! Reductions by bulk copies (`cp.reduce.async.bulk`): what they do to each element.

use super::atomic::Word;
use super::rmw::Reduction;

impl Reduction {
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
