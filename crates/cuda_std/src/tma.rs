//! Bulk copies of tensor tiles to shared memory (`cp.async.bulk.tensor`, sm_90): Hopper's
//! tensor memory accelerator.
//!
//! One thread asks for a whole tile. The host describes the matrix and the tile in a
//! [`TensorMap`]; the copy names only the map and the tile's first element, fills up with
//! zeros what lies outside the matrix, and reports its bytes to an [`Mbarrier`].

use cuda_std_macros::gpu_only;

use crate::mbarrier::Mbarrier;
use crate::shared::SharedPtr;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// What the driver's `cuTensorMapEncodeTiled` made: a `CUtensorMap`.
///
/// A kernel takes it as `#[grid_constant] map: &TensorMap`, and the host passes the 128 bytes.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug)]
pub struct TensorMap([u64; 16]);

/// Asks for a tile of a matrix (`cp.async.bulk.tensor.2d`): the one whose first element is in
/// column `col` and row `row`. Its bytes, all of them even at the edge, are reported to
/// `barrier`.
///
/// # Safety
/// - The map describes a matrix of two dimensions, and rows before columns: its dimension 0
///   walks along a row. Nothing writes the matrix before the copy is done.
/// - `to` is aligned to 128 bytes, and has room for the map's tile in shared memory, which
///   nothing else reads or writes before the copy is done.
/// - `barrier` expects the bytes, or will: see [`Mbarrier::arrive_expect_tx`].
#[gpu_only]
#[inline(always)]
pub unsafe fn load_2d(to: SharedPtr<f32>, map: &TensorMap, col: u32, row: u32, barrier: Mbarrier) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes \
             [{to}], [{map}, {{{col}, {row}}}], [{barrier}];",
            to = in(reg32) to.address(),
            map = in(reg64) &raw const *map,
            col = in(reg32) col,
            row = in(reg32) row,
            barrier = in(reg32) barrier.address(),
            options(nostack, preserves_flags),
        );
    }
}

/// Fetches the map itself, so that the first copy need not wait for it (`prefetch.tensormap`).
#[gpu_only]
#[inline(always)]
pub fn prefetch(map: &TensorMap) {
    // SAFETY: a hint.
    unsafe {
        asm!(
            "prefetch.tensormap [{}];",
            in(reg64) &raw const *map,
            options(nostack, preserves_flags),
        );
    }
}

/// Orders this thread's accesses to shared memory before bulk copies that are asked for after
/// a barrier (`fence.proxy.async.shared::cta`): a tile may only be copied over one that was
/// read when the reads are done, and no barrier alone says that to the copy.
#[gpu_only]
#[inline(always)]
pub fn fence_shared() {
    // SAFETY: a fence; `asm!` without `nomem` orders the compiler's accesses too.
    unsafe { asm!("fence.proxy.async.shared::cta;", options(nostack, preserves_flags)) }
}
