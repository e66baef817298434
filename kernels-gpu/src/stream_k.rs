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
    pub role: Role,
}

/// Which of a tile's pieces a piece is, in four bits.
#[derive(Clone, Copy)]
pub struct Role(u32);

impl Role {
    #[inline(always)]
    fn new(opens: bool, closes: bool, heads: bool, tails: bool) -> Self {
        Role(opens as u32 | (closes as u32) << 1 | (heads as u32) << 2 | (tails as u32) << 3)
    }

    /// Whether it is the first of its part.
    #[inline(always)]
    fn opens(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether it is the last of its part.
    #[inline(always)]
    fn closes(self) -> bool {
        self.0 & 2 != 0
    }

    /// Whether the part begins where the tile does.
    #[inline(always)]
    fn heads(self) -> bool {
        self.0 & 4 != 0
    }

    /// Whether the part is the whole tile.
    #[inline(always)]
    fn whole(self) -> bool {
        self.0 & 12 == 12
    }
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

/// A piece in shared memory: some threads of a block decide, the others read.
#[derive(Clone, Copy)]
pub struct Ticket(SharedPtr<u32>);

impl Ticket {
    /// Words of shared memory that one takes.
    pub const WORDS: u32 = 3;

    /// The ticket with this number.
    #[inline(always)]
    pub fn at(tickets: SharedPtr<u32>, number: u32) -> Self {
        Ticket(tickets.add(number * Self::WORDS))
    }

    /// Says what the next piece is.
    ///
    /// # Safety
    /// The ticket lies in shared memory, and nobody else reads or writes it at this time.
    #[inline(always)]
    pub unsafe fn write(self, piece: Piece) {
        // SAFETY: the caller's contract.
        unsafe {
            self.0.store(0, piece.steps);
            self.0.store(1, piece.tile);
            self.0.store(2, piece.role.0);
        }
    }

    /// Says that there is none.
    ///
    /// # Safety
    /// As for [`Ticket::write`].
    #[inline(always)]
    pub unsafe fn write_end(self) {
        // SAFETY: the caller's contract.
        unsafe { self.0.store(0, 0) };
    }

    /// Steps along K; 0 if there is no piece.
    ///
    /// # Safety
    /// The ticket has been written, and nobody writes it at this time.
    #[inline(always)]
    pub unsafe fn steps(self) -> u32 {
        // SAFETY: the caller's contract.
        unsafe { self.0.load(0) }
    }

    /// The piece's tile, and its role there.
    ///
    /// # Safety
    /// As for [`Ticket::steps`].
    #[inline(always)]
    pub unsafe fn tile(self) -> (u32, Role) {
        // SAFETY: the caller's contract.
        unsafe { (self.0.load(1), Role(self.0.load(2))) }
    }
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
                role: Role::new(first == begin, first + count == end, begin == 0, end == steps),
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
            let role = Role::new(first == 0, closes, true, true);
            Some(Piece { tile, first, steps: count, role })
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
    /// The host's memory is as [`Meeting`] says, and shared memory likewise. The threads are whole
    /// warps, all of which come with the same piece.
    #[inline(always)]
    pub unsafe fn join<const BARRIER: u32, const THREADS: u32, const TM: usize, const TN: usize>(
        self,
        shares: Shares,
        tile: u32,
        role: Role,
        thread: u32,
        sums: &mut [[f32; TN]; TM],
    ) -> bool {
        if role.whole() && role.opens() && role.closes() {
            return true;
        }
        // Neighbouring threads have neighbouring groups of four.
        let size = (THREADS as usize) * TM * TN;
        let at = |slot: u32, group: usize| {
            let first = slot as usize * size + thread as usize * 4;
            // SAFETY: inside, by the contract.
            unsafe { self.partials.add(first + group * THREADS as usize * 4) }
        };
        let slot = thread::block_idx_x() * 3 + role.heads() as u32 + role.whole() as u32;
        if !role.opens() {
            // SAFETY: stored by this thread.
            unsafe { add(sums, |group| at(slot, group)) };
        }
        if role.whole() && role.closes() {
            return true;
        }
        // Down a column, and pairs swapped: `persistent` says why.
        for j in 0..TN {
            for i in (0..TM).step_by(4) {
                let four = core::array::from_fn(|e| sums[i + (e ^ 1)][j]);
                // SAFETY: this thread's own words; the pointer is a multiple of 16.
                unsafe { vec::store4(at(slot, (j * TM + i) / 4), four) };
            }
        }
        if !role.closes() {
            return false;
        }
        let (first, last) = (
            shares.owner(tile * shares.steps),
            shares.owner(tile * shares.steps + shares.steps - 1),
        );
        // SAFETY: all of these threads have the same piece, and so come here.
        unsafe { thread::named_barrier_sync::<BARRIER, THREADS>() };
        if thread == 0 {
            // SAFETY: one counter for each tile that is cut up; the word is ours.
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
