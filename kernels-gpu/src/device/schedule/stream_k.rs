//! The stream-K scheduler of persistent blocks (Osama et al., 2023).
//!
//! 512 tiles of C on 132 multiprocessors are 3.88 waves: in the tail wave some multiprocessors are
//! idle. So the first tiles, the *stream-K tiles*, are cut up along K. Their steps are numbered as
//! one sequence, and every block has an equal share of it. The number of tiles left is a multiple
//! of the number of blocks; these are done whole (*data-parallel tiles*):
//!
//! ```text
//!   block 0   | tile 0      | tile 1 .. | tile 5 | tile 8  |
//!   block 1   |.. tile 1 | tile 2    .. | tile 6 | tile 9  |
//!   block 2   | ..2 | tile 3         .. | tile 7 | tile 10 |
//! ```
//!
//! The blocks that share a tile store their partial sums. The last one to arrive adds them up in
//! the order of K (*fix-up*, `device/reduce/stream_k.rs`). So no block waits, and the bits are
//! always the same.
//!
//! A long sum is also stored after `accumulation_steps` and added to the next one (blocked
//! summation). The error of a sum grows with its accumulation length.

use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

/// The division of work among blocks: the same in every thread.
#[derive(Clone, Copy)]
pub struct Scheduler {
    /// Tiles of C.
    pub tiles: u32,
    /// Steps along K of each tile.
    pub steps: u32,
    /// The first tiles, which are cut up along K.
    pub stream_k_tiles: u32,
    /// Steps after which a sum is stored, and a new one begun; not 0.
    pub accumulation_steps: u32,
}

/// Steps along K of a tile of C that are summed up in registers.
///
/// They are all that the block has of the tile, its part, or as much as the accumulation length
/// allows.
#[derive(Clone, Copy)]
pub struct WorkTile {
    pub tile: u32,
    pub first: u32,
    pub steps: u32,
    pub role: Role,
}

/// Where a tile of C is: its product in the batch, and its first row and column there.
#[derive(Clone, Copy)]
pub struct TilePlace {
    pub product: u32,
    pub row: u32,
    pub col: u32,
}

/// Which part of its tile a work tile is in, and where in that part, in four bits.
#[derive(Clone, Copy)]
pub struct Role(u32);

impl Role {
    #[inline(always)]
    fn new(starts_part: bool, ends_part: bool, starts_tile: bool, ends_tile: bool) -> Self {
        Role(
            starts_part as u32
                | (ends_part as u32) << 1
                | (starts_tile as u32) << 2
                | (ends_tile as u32) << 3,
        )
    }

    /// Whether the work tile is the first of the block's part.
    #[inline(always)]
    pub fn starts_part(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether the work tile is the last of the block's part.
    #[inline(always)]
    pub fn ends_part(self) -> bool {
        self.0 & 2 != 0
    }

    /// Whether the part begins where the tile does.
    #[inline(always)]
    pub fn starts_tile(self) -> bool {
        self.0 & 4 != 0
    }

    /// Whether the part is the whole tile.
    #[inline(always)]
    pub fn is_whole_tile(self) -> bool {
        self.0 & 12 == 12
    }
}

/// The work tiles of one block, in order.
#[derive(Clone, Copy)]
pub struct WorkTiles {
    scheduler: Scheduler,
    /// The current step of the stream-K tiles, and the end of the block's share.
    at: u32,
    end: u32,
    /// The next data-parallel tile, and the number of its steps that are done.
    tile: u32,
    done: u32,
}

/// An entry of the scheduler's mailbox in shared memory.
///
/// It is a work tile, written by the producer and read by the consumers.
#[derive(Clone, Copy)]
pub struct MailboxEntry(SharedPtr<u32>);

impl MailboxEntry {
    /// Words of shared memory per entry.
    pub const WORDS: u32 = 6;

    /// The entry with this number.
    #[inline(always)]
    pub fn at(mailbox: SharedPtr<u32>, number: u32) -> Self {
        MailboxEntry(mailbox.add(number * Self::WORDS))
    }

    /// Writes the next work tile, and where its tile of C is.
    ///
    /// # Safety
    /// The entry lies in shared memory, and nobody else reads or writes it at this time.
    #[inline(always)]
    pub unsafe fn write(self, work: WorkTile, place: TilePlace) {
        // SAFETY: the caller's contract.
        unsafe {
            self.0.store(0, work.steps);
            self.0.store(1, work.tile);
            self.0.store(2, work.role.0);
            self.0.store(3, place.product);
            self.0.store(4, place.row);
            self.0.store(5, place.col);
        }
    }

    /// Writes that there is no next work tile.
    ///
    /// # Safety
    /// As for [`MailboxEntry::write`].
    #[inline(always)]
    pub unsafe fn write_end(self) {
        // SAFETY: the caller's contract.
        unsafe { self.0.store(0, 0) };
    }

    /// Steps along K; 0 if there is no work tile.
    ///
    /// # Safety
    /// The entry has been written, and nobody writes it at this time.
    #[inline(always)]
    pub unsafe fn steps(self) -> u32 {
        // SAFETY: the caller's contract.
        unsafe { self.0.load(0) }
    }

    /// Where the tile of C is.
    ///
    /// # Safety
    /// As for [`MailboxEntry::steps`].
    #[inline(always)]
    pub unsafe fn place(self) -> TilePlace {
        // SAFETY: the caller's contract.
        let [product, row, col] = unsafe { [self.0.load(3), self.0.load(4), self.0.load(5)] };
        TilePlace { product, row, col }
    }

    /// The tile of C, and the work tile's role there.
    ///
    /// # Safety
    /// As for [`MailboxEntry::steps`].
    #[inline(always)]
    pub unsafe fn tile(self) -> (u32, Role) {
        // SAFETY: the caller's contract.
        unsafe { (self.0.load(1), Role(self.0.load(2))) }
    }
}

impl Scheduler {
    /// The work tiles of this block.
    #[inline(always)]
    pub fn work_tiles(self) -> WorkTiles {
        let block = thread::block_idx_x();
        WorkTiles {
            scheduler: self,
            at: self.start(block),
            end: self.start(block + 1),
            tile: self.stream_k_tiles + block,
            done: 0,
        }
    }

    /// The step at which a block's share of the stream-K tiles begins.
    #[inline(always)]
    fn start(self, block: u32) -> u32 {
        block * (self.stream_k_tiles * self.steps) / blocks()
    }

    /// The block that owns this step.
    #[inline(always)]
    pub fn owner(self, step: u32) -> u32 {
        ((step + 1) * blocks() - 1) / (self.stream_k_tiles * self.steps).max(1)
    }
}

impl WorkTiles {
    /// The next work tile, if there is one.
    #[inline(always)]
    pub fn next(&mut self) -> Option<WorkTile> {
        let Scheduler { tiles, steps, accumulation_steps, .. } = self.scheduler;
        if self.at < self.end {
            let (tile, first) = (self.at / steps.max(1), self.at % steps.max(1));
            // The part may begin after the tile does, and end before it.
            let start = self.scheduler.start(thread::block_idx_x());
            let begin = start.max(tile * steps) - tile * steps;
            let end = (self.end - tile * steps).min(steps);
            let count = (end - first).min(accumulation_steps);
            self.at += count;
            Some(WorkTile {
                tile,
                first,
                steps: count,
                role: Role::new(first == begin, first + count == end, begin == 0, end == steps),
            })
        } else if self.tile < tiles {
            let (tile, first) = (self.tile, self.done);
            let count = (steps - first).min(accumulation_steps);
            let ends_part = first + count == steps;
            if ends_part {
                self.tile += blocks();
                self.done = 0;
            } else {
                self.done += count;
            }
            let role = Role::new(first == 0, ends_part, true, true);
            Some(WorkTile { tile, first, steps: count, role })
        } else {
            None
        }
    }
}

#[inline(always)]
fn blocks() -> u32 {
    thread::grid_dim_x().max(1)
}
