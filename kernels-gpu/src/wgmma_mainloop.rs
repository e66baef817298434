//! What [`wgmma_persistent`](crate::wgmma_persistent) and [`wgmma_pingpong`](crate::wgmma_pingpong) have alike: the products of a
//! launch, the stages that bulk copies fill, and a step along K.

use cuda_std::mbarrier::{self, Mbarrier};
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;
use cuda_std::tma::TensorMap;
use cuda_std::wgmma::{Accumulator, Tile};

use crate::pipeline_state::PipelineState;
use crate::swizzle::swizzle_wide;
use crate::tensor_core::options::{BROADCAST_A, BROADCAST_B};
use crate::tensor_core::{BK, PANEL};
use crate::tensor_output::{AT_ONCE, TensorOutput};
use crate::tile_load::{load_tile, read_once};

/// Rows of the sums of a `wgmma`.
pub const WM: u32 = 64;
/// Threads of a warpgroup.
pub const WARPGROUP: u32 = 128;
/// Registers of a thread of the producer warpgroup and of the consumer warpgroups.
pub const PRODUCER_REGISTERS: u32 = 40;
pub const CONSUMER_REGISTERS: u32 = 232;

const _: () =
    assert!(BK == PANEL, "a row of a tile of A is 128 bytes, and so is a step's part of B");

/// Registers of each thread of a block of `warpgroups`, as a launch of one block per multiprocessor
/// gives them.
const fn launched_registers(warpgroups: u32) -> u32 {
    65536 / (warpgroups * WARPGROUP) / 8 * 8
}

/// Whether registers move from the producer to the `consumers`, warpgroups. With one a thread has as many as it can name
/// from the launch on, and `setmaxnreg.inc` must not lower that.
pub const fn moves_registers(consumers: u32) -> bool {
    let launched = launched_registers(consumers + 1);
    let moves = launched < CONSUMER_REGISTERS;
    assert!(
        !moves
            || PRODUCER_REGISTERS <= launched
                && PRODUCER_REGISTERS + consumers * CONSUMER_REGISTERS
                    <= (consumers + 1) * launched,
        "the consumers wait without end for more registers than the producer gives back"
    );
    moves
}

/// The tiles of the products of a launch.
#[derive(Clone, Copy)]
pub struct Tiles {
    /// Of each product.
    width: u32,
    height: u32,
    products: u32,
    /// Elements from one C to the next.
    stride_c: u64,
    /// From one product to the next in the maps' third dimension: 0 if all have the same.
    step_a: u32,
    step_b: u32,
    /// Rows and columns of a tile.
    rows: u32,
    cols: u32,
}

impl Tiles {
    /// Those of `products` of m x n elements, whose [`options`](crate::tensor_core::options) say what they share.
    #[inline(always)]
    pub fn new(
        [m, n]: [u32; 2],
        products: u32,
        stride_c: u64,
        options: u32,
        [rows, cols]: [u32; 2],
    ) -> Self {
        Self {
            width: n.div_ceil(cols),
            height: m.div_ceil(rows),
            products,
            stride_c,
            step_a: u32::from(options & BROADCAST_A == 0),
            step_b: u32::from(options & BROADCAST_B == 0),
            rows,
            cols,
        }
    }

    /// How many there are.
    #[inline(always)]
    pub fn count(self) -> u32 {
        self.width * self.height * self.products
    }

    /// The product of a tile, and the tile's first row and column in it.
    #[inline(always)]
    pub fn place(self, tile: u32) -> (u32, u32, u32) {
        let of_product = self.width * self.height;
        let product = tile / of_product.max(1);
        let (y, x) = swizzle_wide(tile - product * of_product, self.width, self.height);
        (product, y * self.rows, x * self.cols)
    }

    /// Whether the L2 cache is to evict A first, and whether B.
    #[inline(always)]
    fn read_once(self) -> [bool; 2] {
        let is_alone = [self.step_a, self.step_b].map(|step| step != 0 || self.products == 1);
        read_once([self.rows, self.cols], [self.height, self.width], is_alone)
    }

    /// C of a tile's product.
    #[inline(always)]
    pub fn output<const F16: bool>(self, c: TensorOutput<F16>, product: u32) -> TensorOutput<F16> {
        c.of_product(product, self.stride_c)
    }

    /// Stores all tiles where K is 0, by blocks of `threads`.
    ///
    /// # Safety
    /// All threads of all blocks call this, and nothing else stores C.
    #[inline(always)]
    pub unsafe fn store_empty<const F16: bool>(self, c: TensorOutput<F16>, threads: u32) {
        let mut tile = thread::block_idx_x();
        while tile < self.count() {
            let (product, row, col) = self.place(tile);
            let c = self.output(c, product);
            // One column of the tile for each thread, a few rows at a time.
            let parts = self.rows / AT_ONCE as u32 * self.cols;
            for at in (thread::thread_idx_x()..parts).step_by(threads as usize) {
                let (row, col) = (row + at / self.cols * AT_ONCE as u32, col + at % self.cols);
                // SAFETY: elements of the block's tile, this thread's alone.
                unsafe { c.store_empty(|i| (row + i as u32, col)) };
            }
            tile += thread::grid_dim_x();
        }
    }
}

/// The stages of a block: tiles of A, of B, and two barriers for each.
#[derive(Clone, Copy)]
pub struct Stages<const STAGES: u32> {
    pub a: SharedPtr<u16>,
    pub b: SharedPtr<u16>,
    pub full: Mbarrier,
    pub empty: Mbarrier,
    /// Rows and columns of a tile of C.
    pub rows: u32,
    pub cols: u32,
}

impl<const STAGES: u32> Stages<STAGES> {
    /// Initialises the barriers, where `warps` read a stage.
    ///
    /// # Safety
    /// One thread calls this, once, before a barrier of the block.
    #[inline(always)]
    pub unsafe fn init(self, warps: u32) {
        // SAFETY: the caller's contract.
        unsafe {
            for stage in 0..STAGES {
                self.full.add(stage).init(1); // the producer, and the bytes that it asks for
                self.empty.add(stage).init(warps); // a thread of each warp
            }
        }
        mbarrier::fence_init();
    }

    /// A stage's tiles of A and of B.
    #[inline(always)]
    pub fn tiles(self, stage: u32) -> [SharedPtr<u16>; 2] {
        [self.a.add(stage * (self.rows * BK)), self.b.add(stage * (BK * self.cols))]
    }

    /// Fills the stages with the steps of all tiles of a block in turn: what the thread does that produces.
    ///
    /// # Safety
    /// One thread calls this, once; the maps are as the launch promises, and who reads a stage arrives at its `empty`.
    #[inline(always)]
    pub unsafe fn produce<const TRANS_A: bool, const TRANS_B: bool>(
        self,
        tiles: Tiles,
        steps: u32,
        maps: [&TensorMap; 2],
    ) {
        let [once_a, once_b] = tiles.read_once();
        let mut state = PipelineState::FIRST;
        let mut tile = thread::block_idx_x();
        while tile < tiles.count() {
            let (product, row, col) = tiles.place(tile);
            let [product_a, product_b] =
                [product * tiles.step_a, product * tiles.step_b].map(u32::cast_signed);
            for step in 0..steps {
                let full = self.full.add(state.stage);
                let [a, b] = self.tiles(state.stage);
                // SAFETY: all warps have said that the `wgmma` that read the stage are done, and
                // nobody else reads or writes it.
                unsafe {
                    self.empty.add(state.stage).wait_parity(state.parity ^ 1);
                    full.arrive_expect_tx(2 * BK * (self.rows + self.cols));
                    let at = (step * BK).cast_signed();
                    if TRANS_A {
                        for panel in 0..self.rows / PANEL {
                            let row = (row + panel * PANEL).cast_signed();
                            let to = a.add(panel * (BK * PANEL));
                            load_tile(to, maps[0], [row, at, product_a], full, once_a);
                        }
                    } else {
                        load_tile(a, maps[0], [at, row.cast_signed(), product_a], full, once_a);
                    }
                    if TRANS_B {
                        load_tile(b, maps[1], [at, col.cast_signed(), product_b], full, once_b);
                    } else {
                        for panel in 0..self.cols / PANEL {
                            let col = (col + panel * PANEL).cast_signed();
                            let to = b.add(panel * (BK * PANEL));
                            load_tile(to, maps[1], [col, at, product_b], full, once_b);
                        }
                    }
                }
                state = state.next::<STAGES>();
            }
            tile += thread::grid_dim_x();
        }
    }
}

/// A step along K, of tiles that lie as they were copied.
///
/// # Safety
/// As for [`Accumulator::multiply_bf16`].
#[inline(always)]
pub unsafe fn multiply_step<
    const SUMS: usize,
    const F16: bool,
    const TRANS_A: bool,
    const TRANS_B: bool,
>(
    acc: &mut [f32; SUMS],
    [a, b]: [SharedPtr<u16>; 2],
    accumulate: bool,
) where
    [f32; SUMS]: Accumulator,
{
    // SAFETY: the caller's contract.
    unsafe {
        match (TRANS_A, TRANS_B) {
            (false, false) => {
                multiply::<SUMS, F16, _, _>(acc, Tile::k_major(a), Tile::mn_major(b), accumulate);
            }
            (true, false) => {
                multiply::<SUMS, F16, _, _>(acc, Tile::mn_major(a), Tile::mn_major(b), accumulate);
            }
            (false, true) => {
                multiply::<SUMS, F16, _, _>(acc, Tile::k_major(a), Tile::k_major(b), accumulate);
            }
            (true, true) => {
                multiply::<SUMS, F16, _, _>(acc, Tile::mn_major(a), Tile::k_major(b), accumulate);
            }
        }
    }
}

/// The same of tiles that are described.
///
/// # Safety
/// As for [`Accumulator::multiply_bf16`].
#[inline(always)]
pub unsafe fn multiply<const SUMS: usize, const F16: bool, const A: bool, const B: bool>(
    acc: &mut [f32; SUMS],
    a: Tile<A>,
    b: Tile<B>,
    accumulate: bool,
) where
    [f32; SUMS]: Accumulator,
{
    // SAFETY: the caller's contract.
    unsafe {
        match F16 {
            true => acc.multiply_f16(a, b, accumulate),
            false => acc.multiply_bf16(a, b, accumulate),
        }
    }
}
