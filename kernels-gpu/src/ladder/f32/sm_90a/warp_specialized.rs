//! Rung 17, `warp_specialized`: warps that fill the pipeline, and warps that multiply.
//!
//! # The idea
//!
//! The real cost of a copy or a transposition is not its own time: the warp that issues it has no
//! FMAs to issue meanwhile. So warps divide the work. Four *producer* warps fill the stages, eight
//! *consumer* warps empty them. A consumer has only a wait and an arrival per tile left, and its
//! scheduler can issue FMAs the rest of the time:
//!
//! ```text
//!   copy engine    B ------------------> full[stage] --.
//!                  raw A --> raw_full --.              |
//!   4 producers    transpose <----------'              |
//!                      '---------------> full[stage] --+--> 8 consumers multiply
//!                  wait <--------------- empty[stage] <-----------'
//! ```
//!
//! A launch gives every thread of the block the same number of registers, 168, and producers need
//! few. So producers give registers back, and consumers take them (`setmaxnreg`): 56 and 224.
//!
//! # What changed
//!
//! Against `tma`: four more warps, a loop for each role, and registers that change hands. Each
//! producer thread transposes 4 x 4 elements. It does so one tile behind the copies, so that they
//! have a tile's time to arrive.
//!
//! The consumers' loop has two changes of its own:
//!
//! - The loop body is half a tile, 8 steps, 17 KB of instructions. A whole tile is twice that and
//!   does not fit into the instruction cache.
//! - The first fragments of a tile are loaded during the last step of the tile before.
//!
//! # What should get better, and what comes next
//!
//! The consumers' schedulers issue little but FMAs until the tile is done. Two losses are left,
//! which `persistent` removes:
//!
//! - While the block stores its outputs, nothing is copied or multiplied.
//! - If the number of tiles is no multiple of the multiprocessors, most of them idle in the last
//!   wave.

use cuda_std::prelude::*;
use cuda_std::tma::{TensorMap, fence_proxy_async};

use crate::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target, Tile};
use crate::device::multiply::thread_tile::{Fragments, THREADS, TM, TN, ThreadTile};
use crate::device::output::matrix::Output;
use crate::device::output::thread_tile::{STAGE_OUT, store_tile, store_zeros};
use crate::device::pipeline::f32_stages::{
    BK, BM, BN, PIPELINE_END, STAGES, SharedStorage, TileNumber,
};
use crate::device::schedule::raster::rasterized_tile;

/// Threads that compute, and threads that fill the pipeline.
const CONSUMERS: u32 = THREADS;
const PRODUCERS: u32 = 128;
/// Steps along K that the loop spells out, and how often it does so for a tile.
const PART: u32 = 8;
const PARTS: u32 = BK / PART;

/// Offset in shared memory, in elements.
const OUT_AT: u32 = PIPELINE_END.next_multiple_of(4);

const _: () = assert!(BM == PRODUCERS, "each producer thread transposes four columns of four rows");
const _: () = assert!(BK.is_multiple_of(PART) && PART.is_multiple_of(2), "whole parts");

/// What the host needs to launch [`warp_specialized()`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "warp_specialized",
    summary: "producer warps copy and transpose, consumer warps multiply and have the registers",
    origin: None,
    tile: Tile { bm: BM, bn: BN, bk: BK, tm: TM, tn: TN },
    block: [CONSUMERS + PRODUCERS, 1],
    grid: GridOrder::ColumnsAlongX,
    shared: Shared::Dynamic(|_| (OUT_AT + CONSUMERS / 32 * STAGE_OUT) as u64 * 4),
    unaligned: None,
    abi: KernelAbi::TensorMap,
    arithmetic: Arithmetic::Fma,
    target: Target::Sm90a,
    source: include_str!("warp_specialized.rs"),
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
#[kernel(block = CONSUMERS + PRODUCERS, min_blocks = 1)]
pub unsafe fn warp_specialized(
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
    let (warp, lane) = (tid / 32, warp::lane_id());
    let (block_y, block_x) = rasterized_tile();
    let (block_row, block_col) = (block_y * BM, block_x * BN);
    let tiles = k.div_ceil(BK);

    let storage = SharedStorage::new();
    if tid == 0 {
        // SAFETY: one thread, once, before the block's barrier.
        unsafe { storage.init(PRODUCERS, CONSUMERS * PARTS) };
    }
    thread::sync_threads();

    if warp >= CONSUMERS / 32 {
        // SAFETY: four whole warps, the block's last group; the others take what it gives.
        unsafe { thread::warpgroup_reg_dealloc::<56>() };
        let transposer = storage.transposer(warp - CONSUMERS / 32, lane);
        // One tile behind the copies, which have had a tile's time to arrive.
        let transpose = |tile: TileNumber| {
            // SAFETY: the producers waited until the stage was empty; each thread has its own part.
            unsafe { transposer.transpose::<4, true>(tile) };
        };
        let mut state = TileNumber(0);
        while state.0 < tiles {
            // SAFETY: all threads have read what was in the stages, and said so behind a fence. For
            // A and B they did so at `empty`, for raw A at the barrier of these warps.
            unsafe {
                storage.empty(state).wait_parity(state.phase::<STAGES>() ^ 1);
                if tid == CONSUMERS {
                    let at = state.0 * BK;
                    storage.copy_tile(state, [map_a, map_b], [[at, block_row], [block_col, at]]);
                }
            }
            if state.0 > 0 {
                transpose(state.previous());
            }
            // SAFETY: the producer threads, all of them; nobody else uses this barrier.
            unsafe { thread::named_barrier_sync::<2, PRODUCERS>() };
            state = state.next();
        }
        if state.0 > 0 {
            transpose(state.previous());
        }
        return;
    }

    // SAFETY: the block's first two groups; 56 + 2 * 224 is what the launch gave to the three.
    unsafe { thread::warpgroup_reg_alloc::<224>() };
    // SAFETY: the caller keeps the contract, and there is no other output.
    let c = unsafe { Output::new(c, ldc, m, n, alpha, beta) };
    if k == 0 {
        // A path of its own: a second path into the stores makes the loop slower.
        // SAFETY: the consumer threads, and this block's tile.
        unsafe { store_zeros(c, block_row, block_col, tid) };
        return;
    }
    let outputs = ThreadTile::new(warp, lane);
    let (a_mine, b_mine) = outputs.operands(storage.a, storage.b);
    let mut acc = [[0.0f32; TN as usize]; TM as usize];
    let tile = |part: u32| {
        let place = part % (STAGES * PARTS);
        (a_mine.add(place * (PART * BM)), b_mine.add(place * (PART * BN)))
    };
    let mut part = 0;
    let end = tiles * PARTS;
    let mut fragments = Fragments::new();
    let (mut a_part, mut b_part) = tile(part);
    // SAFETY: a tile that is full stays until this thread has said that it is empty.
    unsafe {
        storage.wait_until_full(TileNumber(0));
        fragments.load(a_part, b_part, 0);
    }
    loop {
        for kk in 0..PART - 1 {
            fragments.multiply(&mut acc, kk);
            // SAFETY: as above.
            unsafe { fragments.load(a_part, b_part, kk + 1) };
        }
        // SAFETY: all of this thread's loads come before the copy that overwrites them. There is
        // one arrival per part.
        unsafe {
            fence_proxy_async();
            storage.empty(TileNumber(part / PARTS)).arrive();
        }
        part += 1;
        if part == end {
            break;
        }
        // SAFETY: as above.
        unsafe { storage.wait_until_full(TileNumber(part / PARTS)) };
        (a_part, b_part) = tile(part);
        // SAFETY: as above.
        unsafe { fragments.load(a_part, b_part, 0) };
        fragments.multiply(&mut acc, PART - 1);
    }
    fragments.multiply(&mut acc, PART - 1);
    store_tile!(c, block_row, block_col, outputs, &acc, storage.a.add(OUT_AT));
}
