//! The sizes of the block's shared memory, prefetches, and the device's heap.

use core::ffi::c_void;

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

/// Asks for the line at an address to be brought to the L2 cache (`prefetch.global.L2`): a hint.
///
/// # Safety
/// The address lies in an allocation of global memory.
#[gpu_only]
#[inline(always)]
pub unsafe fn prefetch_l2<T>(pointer: *const T) {
    // SAFETY: the caller's contract; a hint that changes no memory.
    unsafe {
        asm!(
            "{{ .reg .u64 %address; cvta.to.global.u64 %address, {}; prefetch.global.L2 [%address]; }}",
            in(reg64) pointer,
            options(nostack, preserves_flags, readonly),
        );
    }
}

/// `bytes` of global memory, aligned to 16 bytes; null if the heap has no more.
///
/// The memory lives until [`free`] takes it, in this launch or in a later one.
///
/// # Safety
/// None of its own; what to do with the memory is up to the caller.
#[gpu_only]
#[inline(always)]
#[must_use]
pub unsafe fn malloc(bytes: usize) -> *mut c_void {
    // SAFETY: the driver's function has no condition.
    unsafe { core::arch::nvptx::malloc(bytes) }
}

/// Gives memory back; null is allowed.
///
/// # Safety
/// [`malloc`] returned the pointer, nobody has freed it, and no thread still uses the memory.
#[gpu_only]
#[inline(always)]
pub unsafe fn free(pointer: *mut c_void) {
    // SAFETY: the caller's contract.
    unsafe { core::arch::nvptx::free(pointer) }
}
