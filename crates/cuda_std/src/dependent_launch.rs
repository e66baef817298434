//! The kernels before and behind this one in a stream (*programmatic dependent launch*, sm_90; PTX ISA:
//! "Parallel Synchronization and Communication Instructions: griddepcontrol").
//!
//! A launch whose attributes allow it (`CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`) may begin
//! before the kernel in front of it has ended: when all blocks of that one have called
//! [`launch_dependents`], or ended. Until [`wait`] it may do what needs nothing from other kernels: compute
//! indices, initialise barriers, fetch tensor maps. Of its own blocks and threads none waits for another here.

use cuda_std_macros::gpu_only;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// Lets the next kernel of the stream begin, as soon as all blocks of this one have called this or ended
/// (`griddepcontrol.launch_dependents`). Of what this one writes the other sees nothing before its [`wait`].
#[gpu_only]
#[inline(always)]
pub fn launch_dependents() {
    // SAFETY: lets another kernel start, which accesses no memory that this one may write before this one ends.
    unsafe { asm!("griddepcontrol.launch_dependents;", options(nostack, preserves_flags)) }
}

/// Waits until all kernels that this one depends on have ended, and sees what they wrote
/// (`griddepcontrol.wait`). Where the launch did not begin early, this does nothing.
#[gpu_only]
#[inline(always)]
pub fn wait() {
    // SAFETY: `asm!` without `nomem` orders the compiler's accesses too.
    unsafe { asm!("griddepcontrol.wait;", options(nostack, preserves_flags)) }
}
