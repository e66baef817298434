//! Adding up what groups and splits have summed, in a fixed order.
//!
//! A thread's outputs travel in fours. In shared memory and in the workspace, the threads of a
//! group lie side by side for each four, so that every access of a warp is contiguous.

use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;
use cuda_std::{atomic, vec};

/// Fours of outputs that a thread has at most: 8 x 8 outputs.
pub const MOST_QUADS: usize = 16;

/// A thread's outputs; those past its last are not used, and take no registers.
pub type Quads = [F32x4; MOST_QUADS];

/// Which outputs are whose.
#[derive(Clone, Copy)]
pub struct Whose {
    /// Fours of outputs per thread.
    pub quads: u32,
    /// Threads per group.
    pub threads: u32,
    /// The thread's number in its group, and the group's.
    pub in_group: u32,
    pub group: u32,
}

impl Whose {
    /// Elements in a tile of C.
    const fn elements(self) -> u32 {
        self.quads * self.threads * 4
    }

    /// Where a quad of this thread lies among the elements of a tile.
    #[inline(always)]
    fn place(self, quad: u32) -> u32 {
        (quad * self.threads + self.in_group) * 4
    }

    /// The number of the quad that is this thread's `i`th when the groups share them.
    #[inline(always)]
    pub fn quad<const GROUPS: u32>(self, i: usize) -> u32 {
        self.group + i as u32 * GROUPS
    }

    /// Whether there is such a quad: the smallest tiles have fewer than groups.
    #[inline(always)]
    pub fn has<const GROUPS: u32>(self, i: usize) -> bool {
        self.quads.is_multiple_of(GROUPS) || self.quad::<GROUPS>(i) < self.quads
    }

    /// How many quads a thread looks after when `groups` share them.
    const fn share(self, groups: u32) -> usize {
        self.quads.div_ceil(groups) as usize
    }
}

/// Adds up the outputs of all groups. Each has a sum of every output; afterwards `sums[i]` is
/// the total of the thread's `i`th [`quad`](Whose::quad).
///
/// # Safety
/// Every thread of the block makes this call, under conditions that are the same for all of a
/// warp. `smem` has room for a tile of C per group, and no copies are on their way there.
#[inline(always)]
pub unsafe fn add_groups<const GROUPS: u32>(whose: Whose, smem: SharedPtr<f32>, sums: &mut Quads) {
    let tile = |group: u32| smem.add(group * whose.elements());
    // SAFETY: the first barrier is after the last use of the slots, the second after the
    // stores; each thread stores to places of its own; all threads of the block come to both.
    unsafe {
        thread::sync_threads_aligned();
        for quad in 0..whose.quads {
            tile(whose.group).store4(whose.place(quad), sums[quad as usize]);
        }
        thread::sync_threads_aligned();
        for i in 0..whose.share(GROUPS) {
            sums[i] = [0.0; 4];
            if whose.has::<GROUPS>(i) {
                for group in 0..GROUPS {
                    let place = whose.place(whose.quad::<GROUPS>(i));
                    add(&mut sums[i], tile(group).load4(place));
                }
            }
        }
    }
}

/// Adds up the sums of all splits. Returns true in the block that does it, the last to arrive,
/// where `sums` then holds the totals; what it holds elsewhere means nothing.
///
/// # Safety
/// Every thread of the block makes this call, under conditions that are the same for all of a
/// warp, and every block of the grid does. `partials` and `counters` are as [`KernelAbi::SplitK`](crate::KernelAbi::SplitK) says, `partials` a multiple of 16.
#[inline(always)]
pub unsafe fn add_splits<const GROUPS: u32>(
    whose: Whose,
    partials: *mut f32,
    counters: *mut u32,
    sums: &mut Quads,
) -> bool {
    let splits = thread::grid_dim_z();
    let tile = (thread::block_idx_y() * thread::grid_dim_x() + thread::block_idx_x()) as usize;
    let elements = whose.elements() as usize;
    // Where this thread's quads begin in the first split's part; the others follow at constant
    // distances.
    let first = partials
        .wrapping_add(tile * splits as usize * elements + whose.place(whose.group) as usize);
    let distance = (GROUPS * whose.threads * 4) as usize;
    let of_split = |z: u32, i: usize| first.wrapping_add(z as usize * elements + i * distance);
    let share = whose.share(GROUPS);

    // SAFETY: room for a tile per block, of which this one fills its own.
    unsafe {
        for i in 0..share {
            if whose.has::<GROUPS>(i) {
                vec::store4_cg(of_split(thread::block_idx_z(), i), sums[i]);
            }
        }
    }
    // SAFETY: the caller's contract.
    if !unsafe { is_last(counters, tile as u32) } {
        return false;
    }

    // As many splits at a time as registers can hold: their loads wait together.
    let at_once = MOST_QUADS / share;
    for i in 0..share {
        sums[i] = [0.0; 4];
    }
    let mut begin = 0;
    while begin < splits {
        let mut loaded: Quads = [[0.0; 4]; MOST_QUADS];
        for ahead in 0..at_once {
            // Past the end the last once more, unused.
            let z = (begin + ahead as u32).min(splits - 1);
            for i in 0..share {
                if whose.has::<GROUPS>(i) {
                    // SAFETY: stored by the block of this split, as said above.
                    loaded[ahead * share + i] = unsafe { vec::load4_cg(of_split(z, i)) };
                }
            }
        }
        for ahead in 0..at_once {
            if begin + (ahead as u32) < splits {
                for i in 0..share {
                    add(&mut sums[i], loaded[ahead * share + i]);
                }
            }
        }
        begin += at_once as u32;
    }
    true
}

/// Whether this block is the last of those that share a tile of C to come here. It can load
/// what all threads of the others have stored before they came.
///
/// # Safety
/// As for [`add_splits`]; `tile` is the tile's number.
#[inline(always)]
pub unsafe fn is_last(counters: *mut u32, tile: u32) -> bool {
    let last = thread::grid_dim_z() - 1;
    // The barrier puts the block's stores before its count, which releases them. The last to
    // count acquires all others' stores, and the second barrier puts them before its block's
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

#[inline(always)]
fn add(sum: &mut F32x4, other: F32x4) {
    for j in 0..4 {
        sum[j] += other[j];
    }
}
