//! Rung 16, `tma`: tiles that one thread asks for, and barriers that count their bytes.
//!
//! # The idea
//!
//! On Hopper one thread asks for a whole tile with one instruction: `cp.async.bulk.tensor`,
//! executed by the tensor memory accelerator.
//!
//! - The host describes the matrix in a *tensor map*.
//! - The copy engine computes the addresses, fills with zeros at the edges, and counts the bytes at
//!   a barrier in shared memory (*mbarrier*).
//! - Each stage of the pipeline has two such barriers. *full* completes a phase when the tile may
//!   be read, *empty* when all have read it.
//!
//! A warp that waits for a tile no longer waits for the block to come to the same place:
//!
//! ```text
//!   tile t+2   copy engine   B, and A as it lies: raw
//!   tile t+1   all threads             transpose raw A into its stage
//!   tile t     all threads                       multiply
//!
//!   B --------------------------------> full[stage] --> multiply --> empty[stage]
//!   raw A --> raw_full --> transpose -------^                            |
//!   ^----------------- the next tile of this stage ----------------------'
//! ```
//!
//! The engine cannot transpose. So A arrives as it lies, and all threads transpose each tile in
//! shared memory, a tile before it is needed: see `pipeline`.
//!
//! # What changed
//!
//! Against `async_copy`:
//!
//! - Thread 0 asks for the tiles, two ahead. Nobody computes an address or checks an edge of A or
//!   B.
//! - Mbarriers replace the block's barrier. Each thread waits for itself, so warps may be most of a
//!   tile apart. One block with `warptile`'s 8 x 16 outputs per thread hides the latency that took
//!   two blocks.
//! - The engine copies only whole rows of 16 bytes. If a row of A or B does not begin on 16 bytes,
//!   the host copies the matrix first.
//! - Before a thread says that a tile was read, `fence.proxy.async` orders its loads before the
//!   engine's writes.
//! - The unaligned entry point is gone: only stores to C check bounds.
//!
//! # What should get better, and what comes next
//!
//! A tile costs a thread two loads and eight stores, instead of copies and their addresses. But a
//! warp that transposes does not multiply. All warps transpose between two tiles, and none goes on
//! before the slowest is done. `warp_specialized` gives that work to other warps.

use cuda_std::prelude::*;
use cuda_std::tma::{TensorMap, fence_proxy_async};

use crate::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target, Tile};
use crate::device::multiply::thread_tile::{Fragments, THREADS, TM, TN, ThreadTile};
use crate::device::output::matrix::Output;
use crate::device::output::thread_tile::{STAGE_OUT, store_tile};
use crate::device::pipeline::f32_stages::{
    BK, BM, BN, PIPELINE_END, STAGE_A, STAGE_B, STAGES, SharedStorage, TileNumber,
};
use crate::device::schedule::raster::rasterized_tile;

/// Offset in shared memory, in elements.
const OUT_AT: u32 = PIPELINE_END.next_multiple_of(4);

const _: () = assert!(THREADS / 32 == 2 * 4, "two halves of the rows, four groups of columns");

/// What the host needs to launch [`tma()`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "tma",
    summary: "bulk tensor copies that one thread asks for; mbarriers, full and empty",
    origin: None,
    tile: Tile { bm: BM, bn: BN, bk: BK, tm: TM, tn: TN },
    block: [THREADS, 1],
    grid: GridOrder::ColumnsAlongX,
    shared: Shared::Dynamic(|_| (OUT_AT + THREADS / 32 * STAGE_OUT) as u64 * 4),
    unaligned: None,
    abi: KernelAbi::TensorMap,
    arithmetic: Arithmetic::Fma,
    target: Target::Sm90a,
    source: include_str!("tma.rs"),
    variants: &[],
    reads_anywhere: [false; 2],
    compensates: false,
};

/// `C = alpha * A * B + beta * C`.
///
/// # Safety
/// - The parameters are as [`KernelAbi::TensorMap`] says, and the grid covers C with blocks as
///   [`DESCRIPTOR`] says.
/// - Nothing else writes A or B, or touches C, during the launch.
#[kernel(block = THREADS, min_blocks = 1)]
pub unsafe fn tma(
    m: u32,
    n: u32,
    k: u32,
    alpha: f32,
    #[grid_constant] map_a: &TensorMap,
    #[grid_constant] map_b: &TensorMap,
    beta: f32,
    c: *mut f32,
    ldc: u32,
) {
    let tid = thread::thread_idx_x();
    let (warp, lane) = (tid / 32, tid % 32);
    let (block_y, block_x) = rasterized_tile();
    let (block_row, block_col) = (block_y * BM, block_x * BN);
    let tiles = k.div_ceil(BK);

    let storage = SharedStorage::new();
    if tid == 0 {
        // SAFETY: one thread, once, before the block's barrier.
        unsafe { storage.init(THREADS, THREADS) };
    }
    thread::sync_threads();

    // Asks for a tile, if there is one.
    let copy = |tile: TileNumber| {
        if tid == 0 && tile.0 < tiles {
            // SAFETY: all have read what was in the stage, and said so behind a fence. What was in
            // the raw stage they had transposed before the tile two before this one was full,
            // which this thread has waited for.
            unsafe {
                storage.empty(tile).wait_parity(tile.phase::<STAGES>() ^ 1);
                let at = tile.0 * BK;
                storage.copy_tile(tile, [map_a, map_b], [[at, block_row], [block_col, at]]);
            }
        }
    };
    let transposer = storage.transposer(warp % 4, warp / 4 * (BM / 2) + lane);
    let transpose = |tile: TileNumber| {
        if tile.0 < tiles {
            // SAFETY: the tile that was in the stage has been read by all: each thread has since
            // transposed two tiles more. Each has its own part.
            unsafe { transposer.transpose::<2, true>(tile) };
        }
    };

    let outputs = ThreadTile::new(warp, lane);
    let (a_mine, b_mine) = outputs.operands(storage.a, storage.b);
    let mut acc = [[0.0f32; TN as usize]; TM as usize];
    let mut fragments = Fragments::new();

    let mut state = TileNumber(0);
    copy(state);
    copy(state.next());
    transpose(state);
    while state.0 < tiles {
        // SAFETY: initialised before the block's barrier.
        unsafe { storage.wait_until_full(state) };
        copy(state.next().next());
        transpose(state.next());

        // Compute: for each k of the tile, an outer product of 8 values of A and 16 of B.
        let stage = state.stage::<STAGES>();
        let (a_tile, b_tile) = (a_mine.add(stage * STAGE_A), b_mine.add(stage * STAGE_B));
        // SAFETY: a tile that is full stays until this thread has said that it is empty.
        unsafe { fragments.load(a_tile, b_tile, 0) };
        for kk in 0..BK {
            if kk + 1 < BK {
                // SAFETY: as above.
                unsafe { fragments.load(a_tile, b_tile, kk + 1) };
            }
            fragments.multiply(&mut acc, kk);
        }
        // SAFETY: all of this thread's loads come before what is copied over them.
        unsafe {
            fence_proxy_async();
            storage.empty(state).arrive();
        }
        state = state.next();
    }

    // SAFETY: the caller keeps the contract, and there is no other output.
    let c = unsafe { Output::new(c, ldc, m, n, alpha, beta) };
    store_tile!(c, block_row, block_col, outputs, &acc, storage.a.add(OUT_AT));
}
