//! Programmatic dependent launch (`griddepcontrol`, sm_90): launches of a stream that overlap.
//!
//! A launch whose attributes allow it (`CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`) may
//! begin before the kernel in front of it has ended. It begins when all blocks of that kernel have
//! called [`launch_dependents`] or exited. Before [`wait`] it may do work that needs no other
//! kernel: compute indices, initialise barriers, fetch tensor maps. These calls synchronise no
//! threads.

use cuda_std_macros::gpu_only;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// Lets the next kernel of the stream begin (`griddepcontrol.launch_dependents`).
///
/// It begins when all blocks of this kernel have called this or exited. It sees writes of this
/// kernel only after its [`wait`].
#[gpu_only]
#[inline(always)]
pub fn launch_dependents() {
    // SAFETY: lets another kernel start, which accesses no memory that this one may write before
    // this one ends.
    unsafe { asm!("griddepcontrol.launch_dependents;", options(nostack, preserves_flags)) }
}

/// Waits until all kernels that this one depends on have ended (`griddepcontrol.wait`).
///
/// Then it sees what they wrote. If the launch did not begin early, this does nothing.
#[gpu_only]
#[inline(always)]
pub fn wait() {
    // SAFETY: `asm!` without `nomem` orders the compiler's accesses too.
    unsafe { asm!("griddepcontrol.wait;", options(nostack, preserves_flags)) }
}
