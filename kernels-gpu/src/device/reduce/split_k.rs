//! The slice-K and split-K reductions, in a fixed order.
//!
//! A thread's outputs are moved as quads, four neighbours in a row of C. In shared memory and in
//! the workspace, all threads of a slice have their quads of one number side by side. So every
//! access of a warp is contiguous.

use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;
use cuda_std::{atomic, vec};

use crate::device::geometry::Geometry;
use crate::device::schedule::split_k::{Params, Split};

/// The most quads of outputs per thread: 8 x 8 outputs.
pub const MAX_QUADS: usize = 16;

/// A thread's outputs. Those past its last are unused, and take no registers.
pub type Quads = [F32x4; MAX_QUADS];

/// The output partition of a thread.
///
/// Before the slice-K reduction it has a sum of each quad of its slice's thread. Afterwards the
/// slices share these out.
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
    const fn elements(self) -> u32 {
        self.quads * self.threads * 4
    }

    /// Where a quad of this thread lies among the elements of a tile.
    #[inline(always)]
    fn offset(self, quad: u32) -> u32 {
        (quad * self.threads + self.in_slice) * 4
    }

    /// The number of the quad that is this thread's `i`th after the slice-K reduction.
    #[inline(always)]
    pub fn quad<G: Geometry>(self, i: usize) -> u32 {
        self.slice + i as u32 * G::SLICES
    }

    /// Whether there is such a quad: the smallest tiles have fewer quads than slices.
    #[inline(always)]
    pub fn has<G: Geometry>(self, i: usize) -> bool {
        self.quads.is_multiple_of(G::SLICES) || self.quad::<G>(i) < self.quads
    }

    /// Quads of a thread after the slice-K reduction.
    const fn own(self, slices: u32) -> usize {
        self.quads.div_ceil(slices) as usize
    }
}

/// The slice-K reduction: adds up the outputs of all slices.
///
/// Each slice has a sum of every output. Afterwards `sums[i]` is the total of the thread's own
/// [`quad`](OutputPartition::quad) `i`.
///
/// - Every thread of the block makes this call, under conditions that are the same for all of a
///   warp.
/// - `smem` has room for a tile of C per slice, and no copies are in flight there.
#[inline(always)]
pub unsafe fn reduce_slices<G: Geometry>(
    outputs: OutputPartition,
    smem: SharedPtr<f32>,
    sums: &mut Quads,
) {
    let tile = |slice: u32| smem.add(slice * outputs.elements());
    // SAFETY: the first barrier is after the last use of the stages, and the second after the
    // stores. Each thread stores to places of its own. All threads of the block come to both
    // barriers.
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

/// Slices that are added up pairwise.
const PAIRWISE: usize = 8;

/// The pairwise sum of the first `count` of some quads; both numbers are powers of two.
///
/// The error of a sum grows with the number of additions to each of its terms.
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

/// The split-K reduction: adds up the sums of all splits.
///
/// Returns true in the block that does it, which is the last to arrive. There `sums` then holds the
/// totals; elsewhere its contents mean nothing.
///
/// # Safety
/// - Every thread of the block makes this call, under conditions that are the same for all of a
///   warp. Every block of the product does.
/// - `partials` and `counters` are the product's, as [`Params::workspace`] says, and `partials` is
///   a multiple of 16.
#[inline(always)]
pub unsafe fn reduce_splits<G: Geometry>(
    outputs: OutputPartition,
    split: Split,
    partials: *mut f32,
    counters: *mut u32,
    sums: &mut Quads,
) -> bool {
    let splits = split.count;
    let tile = tile_number() as usize;
    let elements = outputs.elements() as usize;
    // Where this thread's quads begin in the first split's part. The others follow at constant
    // distances.
    let first = partials
        .wrapping_add(tile * splits as usize * elements + outputs.offset(outputs.slice) as usize);
    let distance = (G::SLICES * outputs.threads * 4) as usize;
    let of_split = |z: u32, i: usize| first.wrapping_add(z as usize * elements + i * distance);
    let own = outputs.own(G::SLICES);

    // SAFETY: there is room for a tile per block, and this block fills its own.
    unsafe {
        for i in 0..own {
            if outputs.has::<G>(i) {
                vec::store4_cg(of_split(split.index, i), sums[i]);
            }
        }
    }
    // SAFETY: the caller's contract.
    if !unsafe { is_last_to_arrive(splits, counters, tile as u32) } {
        return false;
    }

    // As many splits at a time as registers can hold, so that their loads are in flight together.
    let at_once = MAX_QUADS / own;
    for i in 0..own {
        sums[i] = [0.0; 4];
    }
    let mut begin = 0;
    while begin < splits {
        let mut loaded: Quads = [[0.0; 4]; MAX_QUADS];
        for ahead in 0..at_once {
            // Past the end the last split is loaded again, and not used.
            let z = (begin + ahead as u32).min(splits - 1);
            for i in 0..own {
                if outputs.has::<G>(i) {
                    // SAFETY: stored by the block of this split, as said above.
                    loaded[ahead * own + i] = unsafe { vec::load4_cg(of_split(z, i)) };
                }
            }
        }
        // Four sums of every fourth split each, and then the sum of the four, for a smaller error.
        // There are too few registers for `pairwise`.
        let apart = if at_once < 4 { at_once } else { 4 };
        for i in 0..own {
            for ahead in apart..at_once {
                if begin + (ahead as u32) < splits {
                    let (of, other) = (ahead % apart * own + i, loaded[ahead * own + i]);
                    add(&mut loaded[of], other);
                }
            }
            let mut sum = loaded[i];
            for ahead in 1..apart {
                if begin + (ahead as u32) < splits {
                    add(&mut sum, loaded[ahead * own + i]);
                }
            }
            add(&mut sums[i], sum);
        }
        begin += at_once as u32;
    }
    true
}

/// The split-K reduction of a block whose threads have `SUMS` sums each.
///
/// Its tile of C has `elements`. Returns true in the block that adds up, where `sums` then holds
/// the totals. `is_last` says, from the counters, whether the block is the last to arrive:
/// [`is_last_to_arrive`] or [`is_last_of_part`].
///
/// # Safety
/// - As for the entry points.
/// - The block's first `elements / SUMS` threads come here.
/// - `is_last` orders their stores before it ahead of the loads of the last block behind it.
#[inline(always)]
pub unsafe fn reduce_sums<const SUMS: usize>(
    params: Params,
    split: Split,
    elements: u32,
    sums: &mut [f32; SUMS],
    is_last: impl FnOnce(*mut u32) -> bool,
) -> bool {
    const { assert!(SUMS.is_multiple_of(4), "sums are moved in fours") };
    let (partials, counters) = params.workspace(elements);
    let first = tile_number() as usize * split.count as usize * elements as usize
        + (thread::thread_idx_x() * 4) as usize;
    let place = |of: u32, quad: usize| {
        let offset = of * elements + quad as u32 * (elements / SUMS as u32 * 4);
        partials.wrapping_add(first + offset as usize)
    };
    // SAFETY: there is room for a tile per block, where each thread has its own quads. Those of the
    // other blocks were stored before the last block came.
    unsafe {
        for quad in 0..SUMS / 4 {
            let four = core::array::from_fn(|i| sums[quad * 4 + i]);
            vec::store4_cg(place(split.index, quad), four);
        }
        if !is_last(counters) {
            return false;
        }
        *sums = [0.0; SUMS];
        // As many quads at a time as there are registers for their loads, from one split or
        // several.
        let quads = const { if SUMS / 4 < MAX_QUADS { SUMS / 4 } else { MAX_QUADS } };
        let at_once = const { MAX_QUADS / if SUMS / 4 < MAX_QUADS { SUMS / 4 } else { MAX_QUADS } };
        for first in (0..SUMS / 4).step_by(MAX_QUADS) {
            let mut begin = 0;
            while begin < split.count {
                let mut loaded: Quads = [[0.0; 4]; MAX_QUADS];
                for ahead in 0..at_once {
                    for quad in 0..quads {
                        if begin + (ahead as u32) < split.count {
                            let of = place(begin + ahead as u32, first + quad);
                            loaded[ahead * quads + quad] = vec::load4_cg(of);
                        }
                    }
                }
                for ahead in 0..at_once {
                    for quad in 0..quads {
                        for i in 0..4 {
                            sums[(first + quad) * 4 + i] += loaded[ahead * quads + quad][i];
                        }
                    }
                }
                begin += at_once as u32;
            }
        }
    }
    true
}

/// The number of the block's tile of C, for data that the blocks of a tile share.
#[inline(always)]
pub fn tile_number() -> u32 {
    thread::block_idx_y() * thread::grid_dim_x() + thread::block_idx_x()
}

/// Whether this block is the last to come here, of those that share a tile of C.
///
/// The last block can load everything that all threads of the others stored before they came.
///
/// # Safety
/// As for [`reduce_splits`]; `tile` is the tile's number, and `splits` are not 0.
#[inline(always)]
pub unsafe fn is_last_to_arrive(splits: u32, counters: *mut u32, tile: u32) -> bool {
    let last = splits - 1;
    // The barrier puts the block's stores before its count, which releases them. The last block to
    // count acquires the stores of all others. The second barrier puts these before the block's
    // loads.
    // SAFETY: the whole block adds up a tile, or none of it does.
    unsafe { thread::sync_threads_aligned() };
    let mut is_last = false;
    if thread::thread_idx_x() == 0 {
        // SAFETY: one counter per tile, which only this touches. It wraps to zero, ready for
        // the next launch.
        let before =
            unsafe { atomic::atomic_inc_acq_rel_u32_device(counters.add(tile as usize), last) };
        is_last = before == last;
    }
    // SAFETY: as above.
    unsafe { thread::sync_threads_or(is_last) != 0 }
}

/// [`is_last_to_arrive`] for a part of the block's threads, which includes the first.
///
/// They `meet` at a barrier of their own. `flag` is shared memory that none of them uses behind the
/// first barrier.
///
/// # Safety
/// As for [`is_last_to_arrive`], for these threads. `meet` is a barrier for all of them.
#[inline(always)]
pub unsafe fn is_last_of_part(
    splits: u32,
    counters: *mut u32,
    flag: SharedPtr<u32>,
    meet: impl Fn(),
) -> bool {
    let last = splits - 1;
    meet();
    if thread::thread_idx_x() == 0 {
        // SAFETY: as in `is_last_to_arrive`; the flag is this thread's until the barrier.
        unsafe {
            let counter = counters.add(tile_number() as usize);
            let before = atomic::atomic_inc_acq_rel_u32_device(counter, last);
            flag.store(0, u32::from(before == last));
        }
    }
    meet();
    // SAFETY: stored before the barrier.
    unsafe { flag.load(0) != 0 }
}

#[inline(always)]
pub fn add(sum: &mut F32x4, other: F32x4) {
    for j in 0..4 {
        sum[j] += other[j];
    }
}
