//! Slice-K: the slices of a block add up their sums in shared memory, in a fixed order.
//!
//! A thread's outputs are moved as quads, four neighbours in a row of C. In shared memory and in
//! the workspace, the quads of the same number of all threads of a slice lie side by side, so that
//! every access of a warp is contiguous.

use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

use crate::device::geometry::Geometry;

/// Quads of outputs that a thread has at most: 8 x 8 outputs.
pub const MAX_QUADS: usize = 16;

/// A thread's outputs; those past its last are not used, and take no registers.
pub type Quads = [F32x4; MAX_QUADS];

/// The output partition of a thread. Before the slice-K reduction it has a sum of each quad of its
/// slice's thread; afterwards the slices have shared these out.
#[derive(Clone, Copy)]
pub struct OutputPartition {
    /// Quads per thread of a slice.
    pub quads: u32,
    /// Threads per slice.
    pub threads: u32,
    /// The thread's number in its slice, and the slice's.
    pub in_slice: u32,
    pub slice: u32,
}

impl OutputPartition {
    /// Elements in a tile of C.
    pub const fn elements(self) -> u32 {
        self.quads * self.threads * 4
    }

    /// Where a quad of this thread lies among the elements of a tile.
    #[inline(always)]
    pub fn offset(self, quad: u32) -> u32 {
        (quad * self.threads + self.in_slice) * 4
    }

    /// The number of the quad that is this thread's `i`th after the slice-K reduction.
    #[inline(always)]
    pub fn quad<G: Geometry>(self, i: usize) -> u32 {
        self.slice + i as u32 * G::SLICES
    }

    /// Whether there is such a quad: the smallest tiles have fewer than slices.
    #[inline(always)]
    pub fn has<G: Geometry>(self, i: usize) -> bool {
        self.quads.is_multiple_of(G::SLICES) || self.quad::<G>(i) < self.quads
    }

    /// How many quads a thread has after the slice-K reduction.
    pub const fn own(self, slices: u32) -> usize {
        self.quads.div_ceil(slices) as usize
    }
}

/// The slice-K reduction: adds up the outputs of all slices. Each has a sum of every output;
/// afterwards `sums[i]` is the total of the thread's own [`quad`](OutputPartition::quad) `i`.
///
/// # Safety
/// Every thread of the block makes this call, under conditions that are the same for all of a
/// warp. `smem` has room for a tile of C per slice, and no copies are in flight there.
#[inline(always)]
pub unsafe fn reduce_slices<G: Geometry>(
    outputs: OutputPartition,
    smem: SharedPtr<f32>,
    sums: &mut Quads,
) {
    let tile = |slice: u32| smem.add(slice * outputs.elements());
    // SAFETY: the first barrier is after the last use of the stages, the second after the
    // stores; each thread stores to places of its own; all threads of the block come to both.
    unsafe {
        thread::sync_threads_aligned();
        for quad in 0..outputs.quads {
            tile(outputs.slice).store4(outputs.offset(quad), sums[quad as usize]);
        }
        thread::sync_threads_aligned();
        for i in 0..outputs.own(G::SLICES) {
            sums[i] = [0.0; 4];
            if outputs.has::<G>(i) {
                let offset = outputs.offset(outputs.quad::<G>(i));
                // A few slices at a time.
                for first in (0..G::SLICES).step_by(PAIRWISE) {
                    let mut loaded = [[0.0f32; 4]; PAIRWISE];
                    for ahead in 0..G::SLICES.min(PAIRWISE as u32) {
                        loaded[ahead as usize] = tile(first + ahead).load4(offset);
                    }
                    add(&mut sums[i], pairwise(loaded, G::SLICES.min(PAIRWISE as u32) as usize));
                }
            }
        }
    }
}

/// How many slices are added up pairwise.
const PAIRWISE: usize = 8;

/// The sum of the first `count` of some quads, both powers of two, pairwise: the error of a sum grows with how often
/// a number in it is added to.
#[inline(always)]
fn pairwise<const N: usize>(mut quads: [F32x4; N], count: usize) -> F32x4 {
    const { assert!(N.is_power_of_two(), "each has another one") };
    for step in 0..N.ilog2() {
        let distance = 1 << step;
        for i in (0..count - count % (2 * distance)).step_by(2 * distance) {
            let other = quads[i + distance];
            add(&mut quads[i], other);
        }
    }
    quads[0]
}

#[inline(always)]
pub fn add(sum: &mut F32x4, other: F32x4) {
    for j in 0..4 {
        sum[j] += other[j];
    }
}
