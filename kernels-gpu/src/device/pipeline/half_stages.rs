//! Stages of 16-bit operands: a producer waits until a stage is released, and asks for its tiles.

use cuda_std::mbarrier::{self, Mbarrier};
use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;
use cuda_std::tma::TensorMap;

use crate::abi::tensor_core::{BK, PANEL};
use crate::device::pipeline::state::PipelineState;
use crate::device::pipeline::tile_load::{clear_lines, load_tile};
use crate::device::schedule::groups::Place;
use crate::device::schedule::persistent::Tiles;

const _: () =
    assert!(BK == PANEL, "a row of a tile of A is 128 bytes, and so is a step's part of B");

/// The stages of a block: tiles of A, of B, and two barriers for each.
#[derive(Clone, Copy)]
pub struct Stages<const STAGES: u32> {
    pub a: SharedPtr<u16>,
    pub b: SharedPtr<u16>,
    pub full: Mbarrier,
    pub empty: Mbarrier,
    /// Rows and columns of a tile of C; columns are whole panels.
    pub rows: u32,
    pub cols: u32,
}

impl<const STAGES: u32> Stages<STAGES> {
    /// Initialises the barriers, for `warps` that read a stage.
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

    /// Zeros the lines of the stages that no copy fills, with blocks of `threads`.
    ///
    /// # Safety
    /// All threads of the block call this, before a barrier of the block.
    #[inline(always)]
    pub unsafe fn clear_rest<const GROUPED: bool>(self, tiles: Tiles<GROUPED>, threads: u32) {
        for (smem, lines, copied) in
            [(self.a, self.rows, tiles.rows), (self.b, self.cols, tiles.cols)]
        {
            // SAFETY: in the stages, which nobody reads or writes before the barrier.
            unsafe { clear_lines(smem, STAGES, [copied, lines], threads) };
        }
    }

    /// A stage's tiles of A and of B.
    #[inline(always)]
    pub fn tiles(self, stage: u32) -> [SharedPtr<u16>; 2] {
        [self.a.add(stage * (self.rows * BK)), self.b.add(stage * (BK * self.cols))]
    }

    /// Fills the stages with the steps of all tiles of a block, in turn: the producer's loop.
    ///
    /// # Safety
    /// One thread calls this, once. The maps are as the launch promises, and all who read a stage
    /// arrive at its `empty`.
    #[inline(always)]
    pub unsafe fn produce<const GROUPED: bool, const TRANS_A: bool, const TRANS_B: bool>(
        self,
        tiles: Tiles<GROUPED>,
        steps: u32,
        maps: [&TensorMap; 2],
    ) {
        let [once_a, once_b] = tiles.read_once();
        let cols = if TRANS_B { tiles.cols } else { self.cols };
        let mut state = PipelineState::FIRST;
        let mut tile = thread::block_idx_x();
        while tile < tiles.count() {
            let Place { product, row, col, .. } = tiles.place(tile);
            let [product_a, product_b] =
                [product * tiles.step_a, product * tiles.step_b].map(u32::cast_signed);
            for step in 0..steps {
                let full = self.full.add(state.stage);
                let [a, b] = self.tiles(state.stage);
                // SAFETY: all warps have said that the `wgmma` that read the stage are done, and
                // nobody else reads or writes it.
                unsafe {
                    self.empty.add(state.stage).wait_parity(state.parity ^ 1);
                    full.arrive_expect_tx(2 * BK * (tiles.rows + cols));
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
