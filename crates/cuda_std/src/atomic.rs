//! Atomic operations that `core::sync::atomic` lacks on the GPU, or has only as a loop.
//!
//! `core`'s integer atomics work in kernels, in global and shared memory. `cuda_builder` gives them
//! the scope of the whole system (`atom.sys`). On a thread's own variables they are ordinary
//! instructions. Atomics of 8 and 16 bits access the whole 32-bit word. This module adds:
//!
//! - floats ([`AtomicF32`], [`AtomicF64`]), for the device, a block or the system;
//! - integers for a device ([`DeviceAtomicU32`]) or a block ([`BlockAtomicU32`]);
//! - functions on pointers to global memory, for the device, of one instruction each.
//!
//! The functions are relaxed, except the ones named `acq_rel`: they order only the access itself.
//! Pair them with a fence of [`thread`](crate::thread) if order matters.

use cuda_std_macros::gpu_only;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

mod scoped;

pub use scoped::{
    AtomicF32, AtomicF64, BlockAtomicF32, BlockAtomicF64, BlockAtomicI32, BlockAtomicI64,
    BlockAtomicU32, BlockAtomicU64, DeviceAtomicI32, DeviceAtomicI64, DeviceAtomicU32,
    DeviceAtomicU64, SystemAtomicF32, SystemAtomicF64, SystemAtomicI32, SystemAtomicI64,
    SystemAtomicU32, SystemAtomicU64,
};

macro_rules! atomics {
    ($($(#[$doc:meta])* $name:ident($ty:ty) = $op:literal;)*) => {$(
        $(#[$doc])*
        /// Returns the value before.
        ///
        /// # Safety
        /// `pointer` is in global memory, aligned, and valid for reads and writes; other
        /// accesses at the same time are atomic too.
        #[gpu_only]
        #[inline(always)]
        pub unsafe fn $name(pointer: *mut $ty, value: $ty) -> $ty {
            let before: $ty;
            // SAFETY: the caller's contract.
            unsafe {
                asm!(
                    concat!("atom.", $op, " {}, [{}], {};"),
                    out(reg32) before,
                    in(reg64) pointer,
                    in(reg32) value,
                    options(nostack, preserves_flags),
                );
            }
            before
        }
    )*};
}

atomics! {
    /// Adds, device-wide. The order of f32 additions is not fixed, nor are the last bits.
    atomic_add_f32_device(f32) = "relaxed.gpu.global.add.f32";
    /// Adds, wrapping, device-wide.
    atomic_add_u32_device(u32) = "relaxed.gpu.global.add.u32";
    /// Takes the smaller value, device-wide.
    atomic_min_u32_device(u32) = "relaxed.gpu.global.min.u32";
    /// Takes the larger value, device-wide.
    atomic_max_u32_device(u32) = "relaxed.gpu.global.max.u32";
    /// Adds 1, or stores 0 if the value before is `value` or more, device-wide. A thread that reads
    /// the new value in the same way sees what this thread has written or seen before
    /// (`atom.acq_rel`).
    atomic_inc_acq_rel_u32_device(u32) = "acq_rel.gpu.global.inc.u32";
    /// Exchanges, device-wide.
    atomic_exch_u32_device(u32) = "relaxed.gpu.global.exch.b32";
}

/// Stores `new` if the value is `expected`, device-wide. Returns the value before.
///
/// # Safety
/// As for the other operations of this module.
#[gpu_only]
#[inline(always)]
pub unsafe fn atomic_cas_u32_device(pointer: *mut u32, expected: u32, new: u32) -> u32 {
    let before: u32;
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "atom.relaxed.gpu.global.cas.b32 {}, [{}], {}, {};",
            out(reg32) before,
            in(reg64) pointer,
            in(reg32) expected,
            in(reg32) new,
            options(nostack, preserves_flags),
        );
    }
    before
}
