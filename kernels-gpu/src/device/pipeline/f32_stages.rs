//! The pipeline of the rungs with tensor maps, from [`tma`](crate::ladder::f32::sm_90a::tma) on:
//! stages in shared memory, their barriers, and the copies that fill them.
//!
//! Kernels for tensor cores have stages of their own.
//!
//! A tile of B arrives as it is needed. The copy engine cannot transpose. So a tile of A arrives
//! *raw*, with a row of 64 bytes for each row of the tile, and threads transpose it into its stage.
//! The engine swizzles the raw rows, so that neighbouring lanes read different banks. The 16-byte
//! groups of rows 2 and 3 change places in pairs, those of rows 4 and 5 by two, and so on.

use cuda_std::mbarrier::{self, Mbarrier};
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;
use cuda_std::tma::{self, TensorMap};

/// Rows of C per block.
pub const BM: u32 = 128;
/// Columns of C per block.
pub const BN: u32 = 256;
/// Step along K.
pub const BK: u32 = 16;
/// Stages of the pipeline: tiles of A and B that are ready to be multiplied, or in flight.
pub const STAGES: u32 = 4;
/// Raw tiles of A, to be transposed.
pub const RAW_STAGES: u32 = 2;

/// Elements of a stage.
pub const STAGE_A: u32 = BK * BM;
pub const STAGE_B: u32 = BK * BN;

/// Offsets in shared memory, in elements.
const B_AT: u32 = STAGES * STAGE_A;
const RAW_AT: u32 = B_AT + STAGES * STAGE_B;
const BARRIERS_AT: u32 = RAW_AT + RAW_STAGES * STAGE_A;
/// Where the pipeline ends in shared memory, in elements.
pub const PIPELINE_END: u32 = BARRIERS_AT + 2 * (2 * STAGES + RAW_STAGES);

const _: () = assert!(BK == 16, "a raw row is 64 bytes, four groups of four");

/// The number of a tile along K, which gives its place in the pipeline.
///
/// The tiles use the stages in turn, and each use is a phase of the stage's barriers.
#[derive(Clone, Copy)]
pub struct TileNumber(pub u32);

impl TileNumber {
    /// The next tile.
    #[inline(always)]
    pub fn next(self) -> Self {
        TileNumber(self.0.wrapping_add(1))
    }

    /// The tile before.
    #[inline(always)]
    pub fn previous(self) -> Self {
        TileNumber(self.0.wrapping_sub(1))
    }

    /// The tile's stage, of `STAGES`.
    #[inline(always)]
    pub fn stage<const STAGES: u32>(self) -> u32 {
        self.0 % STAGES
    }

    /// The parity of the phase that the tile completes at its stage's barrier.
    #[inline(always)]
    pub fn phase<const STAGES: u32>(self) -> u32 {
        self.0 / STAGES % 2
    }
}

/// The layout of shared memory.
#[derive(Clone, Copy)]
pub struct SharedStorage {
    /// Tiles of A, transposed: (STAGES, BK, BM).
    pub a: SharedPtr<f32>,
    /// Tiles of B: (STAGES, BK, BN).
    pub b: SharedPtr<f32>,
    /// Raw tiles of A: (RAW_STAGES, BM, BK).
    raw: SharedPtr<f32>,
    /// Barriers of the stages: A has been transposed, and B has arrived.
    full: Mbarrier,
    /// Barriers of the stages: all who read the tile are done.
    empty: Mbarrier,
    /// Barriers of the raw stages: the raw tile has arrived.
    raw_full: Mbarrier,
}

impl SharedStorage {
    /// The layout at the beginning of dynamic shared memory.
    #[inline(always)]
    pub fn new() -> Self {
        let a = shared::dynamic_shared_mem::<f32>();
        let full = Mbarrier::at(a.add(BARRIERS_AT).cast());
        let empty = full.add(STAGES);
        let raw_full = empty.add(STAGES);
        SharedStorage { a, b: a.add(B_AT), raw: a.add(RAW_AT), full, empty, raw_full }
    }

    /// Initialises the barriers.
    ///
    /// `transposing` threads transpose each tile, and those that read it arrive `reads` times.
    ///
    /// # Safety
    /// One thread calls this, once; a barrier of the block follows before any other use.
    #[inline(always)]
    pub unsafe fn init(self, transposing: u32, reads: u32) {
        // SAFETY: nobody uses them before the barrier.
        unsafe {
            for stage in 0..STAGES {
                // One more arrival, by the thread that asks for B.
                self.full.add(stage).init(1 + transposing);
                self.empty.add(stage).init(reads);
            }
            for stage in 0..RAW_STAGES {
                self.raw_full.add(stage).init(1);
            }
        }
        mbarrier::fence_init();
    }

    /// The barrier whose phase completes when a tile may be read.
    #[inline(always)]
    pub fn full(self, tile: TileNumber) -> Mbarrier {
        self.full.add(tile.stage::<STAGES>())
    }

    /// The barrier whose phase completes when all have read a tile.
    #[inline(always)]
    pub fn empty(self, tile: TileNumber) -> Mbarrier {
        self.empty.add(tile.stage::<STAGES>())
    }

    /// The barrier whose phase completes when a raw tile has arrived.
    #[inline(always)]
    fn raw_full(self, tile: TileNumber) -> Mbarrier {
        self.raw_full.add(tile.stage::<RAW_STAGES>())
    }

    /// Waits until a tile may be read.
    ///
    /// # Safety
    /// The barriers have been initialised, and the thread waits for the tiles in turn.
    #[inline(always)]
    pub unsafe fn wait_until_full(self, tile: TileNumber) {
        // SAFETY: the caller's contract.
        unsafe { self.full(tile).wait_parity(tile.phase::<STAGES>()) };
    }

    /// Asks for a tile: BM rows of A and BN columns of B, at these coordinates of their maps.
    ///
    /// # Safety
    /// - One thread calls this for each tile.
    /// - The raw stage was transposed and the stage was read by all, and the copy engine may know:
    ///   see [`tma::load_2d`].
    /// - The maps are as [`KernelAbi::TensorMap`](crate::abi::KernelAbi::TensorMap) says, with
    ///   `RANK` dimensions.
    #[inline(always)]
    pub unsafe fn copy_tile<const RANK: usize>(
        self,
        tile: TileNumber,
        [map_a, map_b]: [&TensorMap; 2],
        [at_a, at_b]: [[u32; RANK]; 2],
    ) {
        let (raw_full, full) = (self.raw_full(tile), self.full(tile));
        // SAFETY: the caller's contract; the barriers expect what the copies bring.
        unsafe {
            raw_full.arrive_expect_tx(STAGE_A * 4);
            let to = self.raw.add(tile.stage::<RAW_STAGES>() * STAGE_A);
            tma::load(to, map_a, at_a.map(u32::cast_signed), raw_full);
            full.arrive_expect_tx(STAGE_B * 4);
            let to = self.b.add(tile.stage::<STAGES>() * STAGE_B);
            tma::load(to, map_b, at_b.map(u32::cast_signed), full);
        }
    }

    /// [`copy_tile`](Self::copy_tile) for a transposed A, which arrives as it is needed.
    ///
    /// # Safety
    /// As for [`copy_tile`](Self::copy_tile). A's map is of its transpose, as
    /// [`KernelAbi::StreamK`](crate::abi::KernelAbi::StreamK) says.
    #[inline(always)]
    pub unsafe fn copy_transposed_tile<const RANK: usize>(
        self,
        tile: TileNumber,
        [map_a, map_b]: [&TensorMap; 2],
        [at_a, at_b]: [[u32; RANK]; 2],
    ) {
        let (full, stage) = (self.full(tile), tile.stage::<STAGES>());
        // SAFETY: the caller's contract; the barrier expects what the copies bring.
        unsafe {
            full.arrive_expect_tx((STAGE_A + STAGE_B) * 4);
            let to = self.a.add(stage * STAGE_A);
            tma::load(to, map_a, at_a.map(u32::cast_signed), full);
            let to = self.b.add(stage * STAGE_B);
            tma::load(to, map_b, at_b.map(u32::cast_signed), full);
        }
    }

    /// The part of each tile of A that a thread transposes: columns `4 * group` to `4 * group + 3`,
    /// from row `row` on.
    #[inline(always)]
    pub fn transposer(self, group: u32, row: u32) -> Transposer {
        Transposer {
            storage: self,
            source: self.raw.add(row * BK + (group ^ (row / 2 % 4)) * 4),
            target: self.a.add(group * 4 * BM + row),
        }
    }
}

/// A thread's part in transposing tiles of A: four columns of some rows, 32 apart.
#[derive(Clone, Copy)]
pub struct Transposer {
    storage: SharedStorage,
    source: SharedPtr<f32>,
    target: SharedPtr<f32>,
}

impl Transposer {
    /// Transposes this thread's part of a raw tile, once it has arrived.
    ///
    /// The part is four elements of each of `ROWS` rows. Then the thread arrives at the stage's
    /// barrier. Neighbouring lanes store to neighbouring banks. With `FENCE`, a thread that has
    /// waited for that barrier may have the raw tile copied over.
    ///
    /// # Safety
    /// - The thread transposes the tiles in turn.
    /// - The stage of A has been read by all.
    /// - No other thread has this part.
    #[inline(always)]
    pub unsafe fn transpose<const ROWS: usize, const FENCE: bool>(self, tile: TileNumber) {
        // SAFETY: the caller's contract; the raw tile is there when its barrier says so.
        unsafe {
            self.storage.raw_full(tile).wait_parity(tile.phase::<RAW_STAGES>());
            let source = self.source.add(tile.stage::<RAW_STAGES>() * STAGE_A);
            let rows: [F32x4; ROWS] = core::array::from_fn(|i| source.load4(i as u32 * 32 * BK));
            let target = self.target.add(tile.stage::<STAGES>() * STAGE_A);
            for k in 0..4 {
                for (i, row) in rows.iter().enumerate() {
                    target.store(k * BM + i as u32 * 32, row[k as usize]);
                }
            }
            if FENCE {
                tma::fence_proxy_async();
            }
            self.storage.full(tile).arrive();
        }
    }
}
