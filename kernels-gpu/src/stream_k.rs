//! Work for blocks that stay: whole tiles of C, and pieces of tiles where whole ones do not
//! come out even (stream-K; Osama et al., 2023).
//!
//! 512 tiles on 132 multiprocessors are 3.88 rounds: in the last one some have nothing to do.
//! So the first tiles are cut up along K, in equal shares for all blocks, as if their steps
//! lay on one long string; the tiles that are left come out even, and are done whole:
//!
//! ```text
//!   block 0   | tile 0      | tile 1 .. | tile 5 | tile 8  |
//!   block 1   |.. tile 1 | tile 2    .. | tile 6 | tile 9  |
//!   block 2   | ..2 | tile 3         .. | tile 7 | tile 10 |
//! ```
//!
//! The blocks that share a tile leave their sums in memory. The last one to arrive adds them
//! up, in the order of K, whoever it is: so nobody waits, and the bits are always the same.

use cuda_std::atomic;
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;
use cuda_std::vec;

/// The tiles of a C and how they are shared out among blocks; the same in every thread.
#[derive(Clone, Copy)]
pub struct Shares {
    /// Tiles of C, and steps along K for each.
    pub tiles: u32,
    pub steps: u32,
    /// Tiles, the first ones, that are cut up.
    pub streamed: u32,
}

/// A tile of C, or a piece of one: its steps along K.
#[derive(Clone, Copy)]
pub struct Piece {
    pub tile: u32,
    pub first: u32,
    pub steps: u32,
}

/// The pieces of one block, in order.
#[derive(Clone, Copy)]
pub struct Pieces {
    shares: Shares,
    /// Steps of the string, from here to the end of the share.
    at: u32,
    end: u32,
    /// The next whole tile.
    tile: u32,
}

impl Shares {
    /// The pieces of this block.
    #[inline(always)]
    pub fn pieces(self) -> Pieces {
        let block = thread::block_idx_x();
        Pieces {
            shares: self,
            at: self.start(block),
            end: self.start(block + 1),
            tile: self.streamed + block,
        }
    }

    /// Where a block's share of the string begins.
    #[inline(always)]
    fn start(self, block: u32) -> u32 {
        block * (self.streamed * self.steps) / blocks()
    }

    /// The block whose share has this step.
    #[inline(always)]
    fn owner(self, step: u32) -> u32 {
        ((step + 1) * blocks() - 1) / (self.streamed * self.steps).max(1)
    }
}

impl Pieces {
    /// The next piece, if there is one.
    #[inline(always)]
    pub fn next(&mut self) -> Option<Piece> {
        let steps = self.shares.steps;
        if self.at < self.end {
            let (tile, first) = (self.at / steps.max(1), self.at % steps.max(1));
            let count = (steps - first).min(self.end - self.at);
            self.at += count;
            Some(Piece { tile, first, steps: count })
        } else if self.tile < self.shares.tiles {
            let tile = self.tile;
            self.tile += blocks();
            Some(Piece { tile, first: 0, steps })
        } else {
            None
        }
    }
}

#[inline(always)]
fn blocks() -> u32 {
    thread::grid_dim_x().max(1)
}

/// Where the sums of pieces meet: in global memory.
#[derive(Clone, Copy)]
pub struct Meeting {
    /// Two pieces for each block: the end of a tile and the beginning of one.
    pub partials: *mut f32,
    /// One for each tile that is cut up; zero before the launch, and after it.
    pub counters: *mut u32,
    /// One word of shared memory.
    pub word: SharedPtr<u32>,
}

impl Meeting {
    /// Puts this thread's sums of a piece in; true if they became those of the whole tile. To
    /// be called by the same `THREADS` threads of the block, `thread` numbers them; they use
    /// the block's barrier `BARRIER`.
    ///
    /// # Safety
    /// The host's memory is as [`Meeting`] says, and shared memory likewise.
    #[inline(always)]
    pub unsafe fn join<const BARRIER: u32, const THREADS: u32, const TM: usize, const TN: usize>(
        self,
        shares: Shares,
        piece: Piece,
        thread: u32,
        sums: &mut [[f32; TN]; TM],
    ) -> bool {
        if piece.steps == shares.steps {
            return true;
        }
        let (first, last) = (
            shares.owner(piece.tile * shares.steps),
            shares.owner(piece.tile * shares.steps + shares.steps - 1),
        );
        // Neighbouring threads have neighbouring groups of four.
        let size = (THREADS as usize) * TM * TN;
        let at = |slot: u32, group: usize| {
            let first = slot as usize * size + thread as usize * 4;
            // SAFETY: inside, by the contract.
            unsafe { self.partials.add(first + group * THREADS as usize * 4) }
        };
        let slot = thread::block_idx_x() * 2 + (piece.first == 0) as u32;
        for i in 0..TM {
            for j in (0..TN).step_by(4) {
                // SAFETY: this thread's own words; the pointer is a multiple of 16.
                unsafe { vec::store4(at(slot, (i * TN + j) / 4), swapped(sums[i], j)) };
            }
        }
        thread::sync_some_threads::<BARRIER, THREADS>();
        if thread == 0 {
            // SAFETY: one counter for each tile that is cut up; the word is ours.
            unsafe {
                let counter = self.counters.add(piece.tile as usize);
                self.word.store(0, atomic::atomic_inc_acq_rel_u32_device(counter, last - first));
            }
        }
        thread::sync_some_threads::<BARRIER, THREADS>();
        // SAFETY: stored before the barrier.
        if unsafe { self.word.load(0) } != last - first {
            return false;
        }
        *sums = [[0.0; TN]; TM];
        let mut block = first;
        while block <= last {
            let slot = block * 2 + (block == first) as u32;
            for i in 0..TM {
                for j in (0..TN).step_by(4) {
                    // SAFETY: written by the same thread of that block, before it arrived.
                    let four = unsafe { vec::load4_cg(at(slot, (i * TN + j) / 4)) };
                    for e in 0..4 {
                        sums[i][j + e] += four[e ^ 1];
                    }
                }
            }
            block += 1;
        }
        true
    }
}

/// Four neighbours from `first` on, with each pair swapped; see [`Meeting::join`].
#[inline(always)]
pub fn swapped<const N: usize>(row: [f32; N], first: usize) -> F32x4 {
    core::array::from_fn(|e| row[first + (e ^ 1)])
}
