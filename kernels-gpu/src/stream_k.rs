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
//!
//! A long sum is also put aside after so many steps, and added to the next one: short chains
//! make small errors.

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
    /// Steps after which a sum is put aside; not 0.
    pub chain: u32,
}

/// Steps along K of a tile of C: a link of a part, and a part is what one block has of the tile.
#[derive(Clone, Copy)]
pub struct Piece {
    pub tile: u32,
    pub first: u32,
    pub steps: u32,
    /// Whether it is the first of its part, and the last.
    opens: bool,
    closes: bool,
    /// Whether the part begins where the tile does, and ends there.
    heads: bool,
    tails: bool,
}

/// The pieces of one block, in order.
#[derive(Clone, Copy)]
pub struct Pieces {
    shares: Shares,
    /// Steps of the string, from here to the end of the share.
    at: u32,
    end: u32,
    /// The next whole tile, and how many of its steps have been.
    tile: u32,
    done: u32,
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
            done: 0,
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
        let Shares { tiles, steps, chain, .. } = self.shares;
        if self.at < self.end {
            let (tile, first) = (self.at / steps.max(1), self.at % steps.max(1));
            // The part may begin after the tile does, and end before it.
            let start = self.shares.start(thread::block_idx_x());
            let begin = start.max(tile * steps) - tile * steps;
            let end = (self.end - tile * steps).min(steps);
            let count = (end - first).min(chain);
            self.at += count;
            Some(Piece {
                tile,
                first,
                steps: count,
                opens: first == begin,
                closes: first + count == end,
                heads: begin == 0,
                tails: end == steps,
            })
        } else if self.tile < tiles {
            let (tile, first) = (self.tile, self.done);
            let count = (steps - first).min(chain);
            let closes = first + count == steps;
            if closes {
                self.tile += blocks();
                self.done = 0;
            } else {
                self.done += count;
            }
            let opens = first == 0;
            Some(Piece { tile, first, steps: count, opens, closes, heads: true, tails: true })
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
    /// Three tiles for each block: for the end of a tile, for the beginning of one, and for a
    /// whole one.
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
        let whole = piece.heads && piece.tails;
        if whole && piece.opens && piece.closes {
            return true;
        }
        // Neighbouring threads have neighbouring groups of four.
        let size = (THREADS as usize) * TM * TN;
        let at = |slot: u32, group: usize| {
            let first = slot as usize * size + thread as usize * 4;
            // SAFETY: inside, by the contract.
            unsafe { self.partials.add(first + group * THREADS as usize * 4) }
        };
        let slot = thread::block_idx_x() * 3 + piece.heads as u32 + whole as u32;
        if !piece.opens {
            // SAFETY: stored by this thread.
            unsafe { add(sums, |group| at(slot, group)) };
        }
        if whole && piece.closes {
            return true;
        }
        for i in 0..TM {
            for j in (0..TN).step_by(4) {
                // SAFETY: this thread's own words; the pointer is a multiple of 16.
                unsafe { vec::store4(at(slot, (i * TN + j) / 4), swapped(sums[i], j)) };
            }
        }
        if !piece.closes {
            return false;
        }
        let (first, last) = (
            shares.owner(piece.tile * shares.steps),
            shares.owner(piece.tile * shares.steps + shares.steps - 1),
        );
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
            let slot = block * 3 + (block == first) as u32;
            // SAFETY: stored by the same thread of that block, before it arrived.
            unsafe { add(sums, |group| at(slot, group)) };
            block += 1;
        }
        true
    }
}

/// Adds what [`Meeting::join`] stored, which is at `at` for each group of four.
///
/// # Safety
/// It is there, and nobody writes it.
#[inline(always)]
unsafe fn add<const TM: usize, const TN: usize>(
    sums: &mut [[f32; TN]; TM],
    at: impl Fn(usize) -> *mut f32,
) {
    for i in 0..TM {
        for j in (0..TN).step_by(4) {
            // SAFETY: the caller's contract.
            let four = unsafe { vec::load4_cg(at((i * TN + j) / 4)) };
            for e in 0..4 {
                sums[i][j + e] += four[e ^ 1];
            }
        }
    }
}

/// Four neighbours from `first` on, with each pair swapped; see [`Meeting::join`].
#[inline(always)]
pub fn swapped<const N: usize>(row: [f32; N], first: usize) -> F32x4 {
    core::array::from_fn(|e| row[first + (e ^ 1)])
}
