//! The sizes of the block's shared memory.

use cuda_std_macros::gpu_only;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// Bytes of dynamic shared memory that the launch asked for.
#[gpu_only]
#[inline(always)]
#[must_use]
pub fn dynamic_smem_size() -> u32 {
    let bytes: u32;
    // SAFETY: reads a special register.
    unsafe {
        asm!(
            "mov.u32 {}, %dynamic_smem_size;",
            out(reg32) bytes,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    bytes
}

/// Bytes of shared memory that the block has, declared and dynamic together.
#[gpu_only]
#[inline(always)]
#[must_use]
pub fn total_smem_size() -> u32 {
    let bytes: u32;
    // SAFETY: reads a special register.
    unsafe {
        asm!(
            "mov.u32 {}, %total_smem_size;",
            out(reg32) bytes,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    bytes
}
