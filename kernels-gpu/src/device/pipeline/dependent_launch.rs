//! Overlapping launches of a stream (*programmatic dependent launch*, sm_90): see
//! [`cuda_std::dependent_launch`].
//!
//! On GPUs that cannot overlap them, these functions do nothing.

/// Whether launches overlap.
const OVERLAPS: bool = cfg!(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"));

/// Lets the next launch begin while this one runs, and waits for the launch in front.
///
/// A kernel accesses no global memory before this. The blocks of the next launch begin when all
/// blocks of this one have, and then wait in turn. So the cost of a launch before its first load is
/// paid while the launch in front computes.
#[inline(always)]
pub fn begin() {
    if OVERLAPS {
        cuda_std::dependent_launch::launch_dependents();
    }
    wait();
}

/// Waits for the launch in front. It may be called again.
#[inline(always)]
pub fn wait() {
    if OVERLAPS {
        cuda_std::dependent_launch::wait();
    }
}
