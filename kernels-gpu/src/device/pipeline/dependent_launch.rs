//! Launches of a stream that overlap, on GPUs that can (*programmatic dependent launch*, sm_90): see
//! [`cuda_std::dependent_launch`]. On others these functions do nothing.

/// Whether launches overlap.
const OVERLAPS: bool = cfg!(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"));

/// Lets the next launch begin while this one runs, and waits for the one in front of this one: before this a kernel
/// accesses no global memory.
///
/// The blocks of the next launch begin when all of this one have, and then wait in turn: so what a launch costs
/// before its first load is paid while the launch in front of it computes.
#[inline(always)]
pub fn begin() {
    if OVERLAPS {
        cuda_std::dependent_launch::launch_dependents();
    }
    wait();
}

/// Waits for the launch in front; again, if need be.
#[inline(always)]
pub fn wait() {
    if OVERLAPS {
        cuda_std::dependent_launch::wait();
    }
}
