//! Operations among all threads of a block.

use crate::shared::SharedPtr;
use crate::thread;
use crate::warp::{WarpShuffleValue, lane_id, warp_reduce_by};

/// The values of all threads of the block reduced to one by `op`, in every thread.
///
/// The order is fixed, so that a sum of floats has the same bits on every run. `op` is associative
/// and commutative, except for rounding. `scratch` may be used again as soon as the call returns.
///
/// ```no_run
/// # use cuda_std::prelude::*; use cuda_std::block::block_reduce;
/// # unsafe fn f(value: f32) {
/// let scratch = shared_array![f32; 32];
/// // SAFETY: the whole block is here, and `scratch` has an element for each warp.
/// let largest = unsafe { block_reduce(*scratch, value, f32::max) };
/// # }
/// ```
///
/// # Safety
/// - All threads of the block come to this same call, none having returned, and they are whole
///   warps.
/// - `scratch` has an element for each warp, and nothing else accesses them meanwhile.
#[inline(always)]
#[must_use]
pub unsafe fn block_reduce<T: WarpShuffleValue>(
    scratch: SharedPtr<T>,
    value: T,
    op: impl Fn(T, T) -> T,
) -> T {
    let dim = thread::block_dim();
    let index = thread::thread_idx();
    let warp = ((index.z * dim.y + index.y) * dim.x + index.x) / thread::warp_size();
    // SAFETY: the caller's contract; a barrier lies between the stores and the loads, and another
    // one between the loads and what the caller does next.
    unsafe {
        let value = warp_reduce_by(value, &op);
        if lane_id() == 0 {
            scratch.write(warp, value);
        }
        thread::sync_threads();
        let mut result = scratch.read(0);
        for other in 1..dim.element_product() / thread::warp_size() {
            result = op(result, scratch.read(other));
        }
        thread::sync_threads();
        result
    }
}
