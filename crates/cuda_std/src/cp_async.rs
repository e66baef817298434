//! Asynchronous copies from global to shared memory (`cp.async`, sm_80).
//!
//! A copy bypasses the registers: the thread issues it and goes on. Copies form groups.
//! [`commit_group`] closes a group, and [`wait_group`] waits until at most a given number of the
//! latest groups are in flight. A wait covers this thread's own copies. A barrier after it makes
//! the copies of all threads visible to all.

use cuda_std_macros::gpu_only;

use crate::shared::SharedPtr;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

macro_rules! copies {
    ($($(#[$doc:meta])* $whole:ident, $zfill:ident = $op:literal, $bytes:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// - `from` is in global memory, aligned to the size of the copy, and valid for reading
        ///   that much. Nothing writes it before the copy is done.
        /// - `to` is aligned to the size of the copy. Nothing else reads or writes there before the
        ///   copy is done.
        #[gpu_only]
        #[inline(always)]
        pub unsafe fn $whole(to: SharedPtr<f32>, from: *const f32) {
            // SAFETY: the caller's contract.
            unsafe {
                asm!(
                    concat!($op, " [{}], [{}], ", $bytes, ";"),
                    in(reg32) to.address(),
                    in(reg64) from,
                    options(nostack, preserves_flags),
                );
            }
        }

        $(#[$doc])*
        /// If not `inside`, nothing is read, and zeros are stored (a source size of 0).
        ///
        /// # Safety
        /// As without `_zfill`; if not `inside`, `from` need only be aligned.
        #[gpu_only]
        #[inline(always)]
        pub unsafe fn $zfill(to: SharedPtr<f32>, from: *const f32, inside: bool) {
            let bytes: u32 = if inside { $bytes } else { 0 };
            // SAFETY: the caller's contract; with a source size of 0 nothing is read.
            unsafe {
                asm!(
                    concat!($op, " [{}], [{}], ", $bytes, ", {};"),
                    in(reg32) to.address(),
                    in(reg64) from,
                    in(reg32) bytes,
                    options(nostack, preserves_flags),
                );
            }
        }
    )*};
}

copies! {
    /// Copies one f32 to `to` (`cp.async.ca.shared.global`, 4 bytes).
    copy, copy_zfill = "cp.async.ca.shared.global", 4;
    /// Copies two f32 to `to` (`cp.async.ca.shared.global`, 8 bytes).
    copy2, copy2_zfill = "cp.async.ca.shared.global", 8;
    /// Copies four f32 to `to` (`cp.async.cg.shared.global`, 16 bytes).
    copy4, copy4_zfill = "cp.async.cg.shared.global", 16;
    /// Copies four f32 to `to` through the L1 cache (`cp.async.ca.shared.global`, 16 bytes): for
    /// data that several blocks of a multiprocessor read.
    copy4_ca, copy4_ca_zfill = "cp.async.ca.shared.global", 16;
}

/// Copies the first `bytes` of 16 bytes to `to`, and stores zeros for the rest
/// (`cp.async.cg.shared.global`).
///
/// # Safety
/// - `bytes` is at most 16.
/// - `from` is in global memory, aligned to 16 bytes, and valid for reading `bytes`. Nothing writes
///   those before the copy is done.
/// - `to` is aligned to 16 bytes. Nothing else reads or writes its 16 bytes before the copy is
///   done.
#[gpu_only]
#[inline(always)]
pub unsafe fn copy16_zfill<T>(to: SharedPtr<T>, from: *const T, bytes: u32) {
    // SAFETY: the caller's contract; no more than `bytes` is read.
    unsafe {
        asm!(
            "cp.async.cg.shared.global [{}], [{}], 16, {};",
            in(reg32) to.address(),
            in(reg64) from,
            in(reg32) bytes,
            options(nostack, preserves_flags),
        );
    }
}

/// Makes a group of the copies issued since the last one (`cp.async.commit_group`). The
/// group may be empty.
#[gpu_only]
#[inline(always)]
pub fn commit_group() {
    // SAFETY: moves no memory by itself; without `nomem` it stays after the copies.
    unsafe { asm!("cp.async.commit_group;", options(nostack, preserves_flags)) }
}

/// Waits until at most the latest `PENDING` groups of this thread are in flight
/// (`cp.async.wait_group`).
#[gpu_only]
#[inline(always)]
pub fn wait_group<const PENDING: u32>() {
    // SAFETY: waits; without `nomem` no load moves before it.
    unsafe {
        asm!("cp.async.wait_group {};", const PENDING, options(nostack, preserves_flags));
    }
}
