//! Hints to the compiler.

use cuda_std_macros::gpu_only;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// Returns `value`, of which the compiler then knows nothing, as `core::hint::black_box` does
/// (which goes through local memory here). It costs no instruction.
///
/// What is computed from the result is computed after the call, each time: not ahead of a loop
/// that has no register to spare for it.
#[gpu_only]
#[inline(always)]
#[must_use]
pub fn black_box(value: u32) -> u32 {
    let same: u32;
    // SAFETY: a move; not `pure`, so that it stays where it is.
    unsafe {
        asm!(
            "mov.b32 {}, {};",
            out(reg32) same,
            in(reg32) value,
            options(nomem, nostack, preserves_flags),
        );
    }
    same
}
