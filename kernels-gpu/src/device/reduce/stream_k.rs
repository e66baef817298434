//! The fix-up of stream-K: partial sums of a tile are added up in global memory.

use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;
use cuda_std::{atomic, vec};

use crate::device::schedule::stream_k::{Role, Scheduler};

/// The memory of the fix-up, which adds up the partial sums of a tile.
#[derive(Clone, Copy)]
pub struct Fixup {
    /// Three tiles per block: for the end of a tile, for the beginning of one, and for a whole one.
    pub partials: *mut f32,
    /// One per stream-K tile; zero before the launch, and after it.
    pub counters: *mut u32,
    /// One word of shared memory.
    pub word: SharedPtr<u32>,
}

impl Fixup {
    /// Adds this thread's sums of a work tile to its tile's.
    ///
    /// Returns true if `sums` became those of the whole tile. Each call is by the same `THREADS`
    /// threads of the block, numbered by `thread`. They use the named barrier `BARRIER`.
    ///
    /// # Safety
    /// - The host's memory is as [`Fixup`] says, and so is shared memory.
    /// - The threads are whole warps, which all come with the same work tile.
    #[inline(always)]
    pub unsafe fn reduce<
        const BARRIER: u32,
        const THREADS: u32,
        const TM: usize,
        const TN: usize,
    >(
        self,
        scheduler: Scheduler,
        tile: u32,
        role: Role,
        thread: u32,
        sums: &mut [[f32; TN]; TM],
    ) -> bool {
        if role.is_whole_tile() && role.starts_part() && role.ends_part() {
            return true;
        }
        // Neighbouring threads have neighbouring groups of four.
        let size = (THREADS as usize) * TM * TN;
        let at = |partial: u32, group: usize| {
            let first = partial as usize * size + thread as usize * 4;
            // SAFETY: inside, by the contract.
            unsafe { self.partials.add(first + group * THREADS as usize * 4) }
        };
        let partial =
            thread::block_idx_x() * 3 + role.starts_tile() as u32 + role.is_whole_tile() as u32;
        if !role.starts_part() {
            // SAFETY: stored by this thread.
            unsafe { add(sums, |group| at(partial, group)) };
        }
        if role.is_whole_tile() && role.ends_part() {
            return true;
        }
        // Down a column, with pairs swapped: `persistent` says why.
        for j in 0..TN {
            for i in (0..TM).step_by(4) {
                let four = core::array::from_fn(|e| sums[i + (e ^ 1)][j]);
                // SAFETY: this thread's own words; the pointer is a multiple of 16.
                unsafe { vec::store4(at(partial, (j * TM + i) / 4), four) };
            }
        }
        if !role.ends_part() {
            return false;
        }
        let (first, last) = (
            scheduler.owner(tile * scheduler.steps),
            scheduler.owner(tile * scheduler.steps + scheduler.steps - 1),
        );
        // SAFETY: all of these threads have the same work tile, and so come here.
        unsafe { thread::named_barrier_sync::<BARRIER, THREADS>() };
        if thread == 0 {
            // SAFETY: one counter for each stream-K tile; the word is ours.
            unsafe {
                let counter = self.counters.add(tile as usize);
                self.word.store(0, atomic::atomic_inc_acq_rel_u32_device(counter, last - first));
            }
        }
        // SAFETY: as above.
        unsafe { thread::named_barrier_sync::<BARRIER, THREADS>() };
        // SAFETY: stored before the barrier.
        if unsafe { self.word.load(0) } != last - first {
            return false;
        }
        *sums = [[0.0; TN]; TM];
        let mut block = first;
        while block <= last {
            let partial = block * 3 + (block == first) as u32;
            // SAFETY: stored by the same thread of that block, before it arrived.
            unsafe { add(sums, |group| at(partial, group)) };
            block += 1;
        }
        true
    }
}

/// Adds what [`Fixup::reduce`] stored; `at` gives the place of each group of four.
///
/// # Safety
/// It is there, and nobody writes it.
#[inline(always)]
unsafe fn add<const TM: usize, const TN: usize>(
    sums: &mut [[f32; TN]; TM],
    at: impl Fn(usize) -> *mut f32,
) {
    for j in 0..TN {
        for i in (0..TM).step_by(4) {
            // SAFETY: the caller's contract.
            let four = unsafe { vec::load4_cg(at((j * TM + i) / 4)) };
            for e in 0..4 {
                sums[i + e][j] += four[e ^ 1];
            }
        }
    }
}
