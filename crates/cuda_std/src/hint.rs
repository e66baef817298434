//! Hints to the compiler.

use cuda_std_macros::gpu_only;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// Returns `value` and hides it from the optimiser, at no cost.
///
/// `core::hint::black_box` goes through local memory here. Values derived from the result are
/// recomputed after each call, instead of kept in registers across a loop.
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
