//! Tensor cores, `wgmma_pingpong`: two warpgroups with a tile each, one multiplies, one stores.
//!
//! # The idea
//!
//! In `wgmma_persistent` both warpgroups come to the end of their tile at nearly the same time. The
//! tensor cores idle while sums are scaled, go through an epilogue, and are stored. With a small K
//! or a long epilogue that is a large part of the time.
//!
//! Here each warpgroup has a tile of its own and they take turns (*ping-pong*, as CUTLASS calls
//! it). One stores while the other has the tensor cores to itself:
//!
//! ```text
//!   producer      | tile 0     | tile 1     | tile 2     | tile 3     |
//!   warpgroup 0   | multiplies | stores ... | multiplies | stores ... |
//!   warpgroup 1                | multiplies | stores ... | multiplies |
//! ```
//!
//! # What changed
//!
//! Against `wgmma_persistent`:
//!
//! - A warpgroup computes every other tile of its block, and reads only the stages of those. For
//!   each step it has two `wgmma` in flight, with 64 of the tile's 128 rows each.
//! - Two more barriers say whose turn it is. A warpgroup hands over when it has issued its last
//!   `wgmma`, so that those of the other are queued behind them.
//! - A stage is read by four warps rather than eight.
//!
//! # What should get better, and what comes next
//!
//! Stores and epilogues vanish behind the products of the next tile. The price is a smaller tile
//! for the same registers: 128 x 128 outputs need a third more bytes per product than 128 x 256.

use cuda_std::dependent_launch;
use cuda_std::hint::black_box;
use cuda_std::mbarrier::Mbarrier;
use cuda_std::prelude::*;
use cuda_std::shared;
use cuda_std::sm_90a::wgmma::{Accumulator, wait_group};
use cuda_std::tma::{self, TensorMap};

use crate::abi::epilogue::Parameters;
use crate::abi::tensor_core::{
    ALIGNMENT, BK, RESERVED_SHARED_MEMORY_PER_BLOCK, SHARED_MEMORY_PER_MULTIPROCESSOR, variants,
};
use crate::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target};
use crate::device::multiply::warpgroup::multiply_step;
use crate::device::output::bias::StagedBias;
use crate::device::output::matrix::Output;
use crate::device::output::staging::STAGING;
use crate::device::output::tensor::TensorOutput;
use crate::device::pipeline::half_stages::Stages;
use crate::device::pipeline::roles::{
    WARPGROUP, WM, give_registers, moves_registers, take_registers,
};
use crate::device::pipeline::state::PipelineState;
use crate::device::schedule::groups::Groups;
use crate::device::schedule::persistent::{Tiles, parts};

/// A thread's sums of one `wgmma`, and the number of these that a tile has, one below the other.
const SUMS: usize = 64;
const COUNT: usize = 2;
/// Rows and columns of C of a warpgroup.
const BM: u32 = COUNT as u32 * WM;
const BN: u32 = <[f32; SUMS] as Accumulator>::COLS;
/// Stages of the pipeline.
const STAGES: u32 = 6;
/// Consumer warpgroups.
const WARPGROUPS: u32 = 2;
/// Threads of a block.
const THREADS: u32 = (WARPGROUPS + 1) * WARPGROUP;

/// Warps with sums.
const WARPS: u32 = WARPGROUPS * WARPGROUP / 32;

/// The layout of shared memory: offsets in elements.
///
/// In order: the stages of A, those of B, each warp's memory for staged sums, and each warp's copy
/// of a bias. Then two barriers for each stage, and one for each warpgroup's turn.
const B_AT: u32 = STAGES * BM * BK;
const STAGING_AT: u32 = B_AT + STAGES * BK * BN;
const BIAS_AT: u32 = STAGING_AT + WARPS * STAGING * 2;
const BARRIERS_AT: u32 = BIAS_AT + WARPS * BN * 2;
/// Bytes in all, in the worst case: PTX promises a multiple of 128, and the swizzle wants one of
/// [`ALIGNMENT`].
const SHARED_BYTES: u32 = BARRIERS_AT * 2 + (2 * STAGES + WARPGROUPS) * 8 + (ALIGNMENT - 128);

const _: () = assert!(moves_registers(WARPGROUPS), "a consumer's sums need them");
const _: () = assert!(
    SHARED_BYTES + RESERVED_SHARED_MEMORY_PER_BLOCK <= SHARED_MEMORY_PER_MULTIPROCESSOR,
    "a multiprocessor has no more"
);

/// What the host needs to launch [`wgmma_pingpong()`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "wgmma_pingpong",
    summary: "two warpgroups with 128 x 128 outputs each: one multiplies while the other one stores",
    origin: None,
    tile: crate::abi::Tile::of_fragments([BM, BN], THREADS),
    block: [THREADS, 1],
    grid: GridOrder::Persistent,
    shared: Shared::Stages { blocks: 1, bytes: [SHARED_BYTES; 2], front: None },
    unaligned: None,
    abi: KernelAbi::WgmmaBatched,
    arithmetic: Arithmetic::Bits16,
    target: Target::Sm90a,
    source: include_str!("wgmma_pingpong.rs"),
    variants: variants!(wgmma_pingpong, layouts),
    reads_anywhere: [false; 2],
    compensates: false,
};

/// Computes `C = epilogue(alpha * op(A) * op(B) + beta * C)` for each product of a batch.
///
/// # Safety
/// - The parameters and the grid are as [`KernelDescriptor`] says.
/// - Nothing else writes A or B, or touches C, during the launch.
#[kernel(
    block = THREADS,
    min_blocks = 1,
    variants(
        TRANS_A = false as _ | true as ta,
        TRANS_B = false as _ | true as tb,
        F16 = false as _ | true as f16,
    )
)]
pub unsafe fn wgmma_pingpong<const TRANS_A: bool, const TRANS_B: bool, const F16: bool>(
    m: u32,
    n: u32,
    k: u32,
    alpha: f32,
    #[grid_constant] map_a: &TensorMap,
    #[grid_constant] map_b: &TensorMap,
    beta: f32,
    c: *mut f32,
    ldc: u32,
    batch: u32,
    stride_c: u64,
    options: u32,
    epilogue: Parameters,
) {
    // SAFETY: the caller keeps the contract, and there is no other output.
    let c = unsafe {
        let c = Output::new(c, ldc, m, n, alpha, beta);
        TensorOutput::<F16>::new(c, options, epilogue)
    };
    let tile = parts::<false, TRANS_A, TRANS_B>([m, n], [BM, BN]);
    let tiles = Tiles::new([m, n], batch, stride_c, options, Groups::NONE, tile);
    // SAFETY: the block is as large as these numbers say.
    unsafe { gemm::<F16, TRANS_A, TRANS_B>(k, tiles, [map_a, map_b], c) };
}

/// The kernel.
///
/// # Safety
/// As for [`wgmma_pingpong()`].
#[inline(always)]
unsafe fn gemm<const F16: bool, const TRANS_A: bool, const TRANS_B: bool>(
    k: u32,
    tiles: Tiles<false>,
    maps: [&TensorMap; 2],
    c: TensorOutput<F16>,
) {
    let tid = thread::thread_idx_x();
    let warpgroup = tid / WARPGROUP;
    let steps = k.div_ceil(BK);

    if steps == 0 {
        // A path of its own: a second path to the accumulators would make `ptxas` serialise all
        // `wgmma`.
        dependent_launch::wait();
        // SAFETY: all threads of the block are here.
        unsafe { tiles.store_empty(c, THREADS) };
        return;
    }

    let memory = shared::dynamic_shared_mem::<u16>();
    let a_smem = memory.add(memory.address().wrapping_neg() % ALIGNMENT / 2);
    let barriers = a_smem.add(BARRIERS_AT);
    let staging = a_smem.add(STAGING_AT).cast::<f32>();
    let bias = a_smem.add(BIAS_AT).cast::<f32>();
    let full = Mbarrier::at(barriers.cast());
    let stages = Stages::<STAGES> {
        a: a_smem,
        b: a_smem.add(B_AT),
        full,
        empty: full.add(STAGES),
        rows: BM,
        cols: BN,
    };
    // SAFETY: all threads, before the block's barrier.
    unsafe { stages.clear_rest(tiles, THREADS) };
    let turns = full.add(2 * STAGES);
    if tid == 0 {
        // SAFETY: one thread, once, before the block's barrier; both are grid constants.
        unsafe {
            for turn in 0..WARPGROUPS {
                turns.add(turn).init(4); // a thread of each warp of the other one
            }
            stages.init(4);
            tma::prefetch(maps[0]);
            tma::prefetch(maps[1]);
        }
    }
    thread::sync_threads();
    // Everything up to here overlaps the end of the kernel in front.
    dependent_launch::launch_dependents();
    dependent_launch::wait();

    if warpgroup == WARPGROUPS {
        // SAFETY: a whole warpgroup, the block's last. The others take what it gives.
        unsafe { give_registers::<WARPGROUPS>() };
        if tid == WARPGROUPS * WARPGROUP {
            // SAFETY: one thread of the block; the maps are as the caller promises.
            unsafe { stages.produce::<false, TRANS_A, TRANS_B>(tiles, steps, maps) };
        }
        return;
    }

    // SAFETY: each of the other warpgroups, once.
    unsafe { take_registers::<WARPGROUPS>() };
    let lane = warp::lane_id();
    // SAFETY: the barriers are initialised. One thread of each warp arrives, since a warp that
    // waits for a group knows only of its own part.
    let arrive = |barrier: Mbarrier| unsafe {
        if lane == 0 {
            barrier.arrive();
        }
    };
    // The stages in front of the warpgroup's first tile are the other warpgroup's.
    let mut state = PipelineState::FIRST.skip::<STAGES>(warpgroup * steps);
    // Warpgroup 0 starts with the turn.
    let mut turn = warpgroup ^ 1;
    let mut tile = thread::block_idx_x() + warpgroup * thread::grid_dim_x();
    while tile < tiles.count() {
        // Recomputed at each use, so that it occupies no registers in between.
        let place = || {
            let place = tiles.place(black_box(tile));
            let warp = black_box(tid) / 32;
            // SAFETY: the warp's own memory, with an element for each of these columns.
            let bias = unsafe { StagedBias::at(bias.add(warp * BN)) };
            (warp, place.row + warp % 4 * 16, place.col, tiles.output(c, place), bias)
        };
        if c.epilogue.has_column_bias() {
            let (_, _, col, c, bias) = place();
            // SAFETY: whole warps, each with its own memory.
            unsafe { c.copy_bias(col, BN, bias) };
        }
        let mut acc = [[0.0f32; SUMS]; COUNT];
        let mut before = state.stage;
        let mut step = 0;
        // SAFETY: the barrier is initialised. The other warpgroup has waited for all its stages
        // until now. So no stage is two phases ahead of what is waited for below.
        unsafe { turns.add(warpgroup).wait_parity(turn) };
        turn ^= 1;
        loop {
            let [a, b] = stages.tiles(state.stage);
            // SAFETY:
            // - Whole warpgroups come here: the conditions of both loops are the same for their
            //   threads. `wgmma` itself (`.sync`) waits for threads that a wait or a release
            //   delays.
            // - The stage is full and lies as the maps copy it. It stays until it is released, when
            //   its groups are done.
            // - Nothing touches the sums before the wait.
            unsafe {
                stages.full.add(state.stage).wait_parity(state.parity);
                for i in 0..COUNT {
                    let a = a.add(i as u32 * (WM * BK));
                    multiply_step::<SUMS, F16, TRANS_A, TRANS_B>(&mut acc[i], [a, b], step > 0);
                }
                if step > 0 {
                    wait_group::<{ COUNT as u32 }>();
                    arrive(stages.empty.add(before));
                }
            }
            before = state.stage;
            state = state.next::<STAGES>();
            step += 1;
            if step == steps {
                break;
            }
        }
        arrive(turns.add(warpgroup ^ 1));
        for i in 0..COUNT {
            // SAFETY: as above.
            unsafe { acc[i].wait() };
        }
        arrive(stages.empty.add(before));

        let (warp, row, col, c, bias) = place();
        let staging = staging.add(warp * STAGING);
        // SAFETY: whole warps, each with its own memory and sums. Nobody else touches these
        // elements.
        unsafe { c.store_fragments::<WM, true, _, _, _>(row, col, staging, bias, &acc) };
        // Skip the stages of the other warpgroup's tile.
        state = state.skip::<STAGES>(steps);
        tile += WARPGROUPS * thread::grid_dim_x();
    }
}
