//! Tensor cores, `wgmma_persistent`: products of 16-bit tiles by whole warpgroups, in a pipeline
//! that never stops.
//!
//! # The idea
//!
//! Copies, products and stores overlap if a block goes from tile to tile. The producer fills the
//! pipeline for the next tile while this one is multiplied. One warpgroup stores while the other
//! multiplies.
//!
//! ```text
//!   producer      | tile 0 ... | tile 1 ...     | tile 2 ...
//!   warpgroup 0   | tile 0          |st| tile 1         |st|
//!   warpgroup 1      | tile 0          |st| tile 1         |st|
//! ```
//!
//! # What changed
//!
//! Against `wgmma_pipelined`:
//!
//! - The grid has one block per multiprocessor, which computes one tile after the other, as
//!   `persistent` does in f32. Stages and their phases count on from tile to tile.
//! - The second warpgroup begins two stages late, and the lag stays: while one stores its half of
//!   the tile, the other has the tensor cores to itself.
//! - A launch begins while the kernel before it ends (*programmatic dependent launch*), and
//!   initialises its barriers meanwhile.
//! - It lets the next kernel begin before it has itself waited. The next kernel waits until this
//!   one has ended, and this one waits for all before it.
//! - Smaller tiles are for products that have too few of this size. With one consumer warpgroup no
//!   registers move.
//! - A bias of columns is copied while its tile is multiplied, so that storing does not wait for
//!   it. Other operands of an epilogue are read when the tile is stored.
//! - Entry points for groups of rows read where a tile is from a table, which a kernel in front has
//!   made (`abi/groups.rs`).
//!
//! # What should get better, and what comes next
//!
//! Copies, products and stores overlap. But the lag is only two stages, so most of a store's time
//! still shows. In `wgmma_pingpong` each warpgroup has a tile of its own.
//! `runs/h200/tensor-cores` compares the speed with cuBLAS's.

use core::array;

use cuda_std::dependent_launch;
use cuda_std::hint::black_box;
use cuda_std::mbarrier::Mbarrier;
use cuda_std::prelude::*;
use cuda_std::shared;
use cuda_std::sm_90a::wgmma::{Accumulator, wait_group};
use cuda_std::tma::{self, TensorMap};

use crate::abi::epilogue::Parameters;
use crate::abi::groups::GroupTile;
use crate::abi::tensor_core::{
    ALIGNMENT, BK, PANEL, RESERVED_SHARED_MEMORY_PER_BLOCK, SHARED_MEMORY_PER_MULTIPROCESSOR,
    variants,
};
use crate::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target};
use crate::device::multiply::warpgroup::multiply_step;
use crate::device::output::bias::StagedBias;
use crate::device::output::fragments::is_large;
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

/// Stages by which the second warpgroup lags behind the first.
const STAGGER: u32 = 2;

/// Declares a kernel for each element type and layout, and its [`KernelDescriptor`].
macro_rules! kernels {
    ($(
        $(#[$doc:meta])*
        $descriptor:ident = $name:ident $(and $grouped:ident)?: $summary:literal,
        [f32; $sums:literal] x $warpgroups:literal, $stages:literal stages;
    )*) => {$(
        $(#[$doc])*
        pub const $descriptor: KernelDescriptor = KernelDescriptor {
            name: stringify!($name),
            summary: $summary,
            origin: None,
            tile: crate::abi::Tile::of_fragments([$warpgroups * WM, <[f32; $sums] as Accumulator>::COLS], $warpgroups * WARPGROUP),
            block: [($warpgroups + 1) * WARPGROUP, 1],
            grid: GridOrder::Persistent,
            shared: Shared::Stages { blocks: 1, bytes: [Storage::<$sums, $warpgroups, $stages>::END; 2], front: None },
            unaligned: None,
            abi: KernelAbi::WgmmaBatched,
            arithmetic: Arithmetic::Bits16,
            target: Target::Sm90a,
            source: include_str!("wgmma_persistent.rs"),
            variants: variants!($name, layouts $(, $grouped)?),
            reads_anywhere: [false; 2],
            compensates: false,
        };

        /// Computes `C = epilogue(alpha * op(A) * op(B) + beta * C)` for each product of a batch.
        ///
        /// # Safety
        /// - The parameters and the grid are as [`KernelDescriptor`] says.
        /// - Nothing else writes A or B, or touches C, during the launch.
        #[kernel(
            block = ($warpgroups + 1) * WARPGROUP,
            min_blocks = 1,
            variants(
                TRANS_A = false as _ | true as ta,
                TRANS_B = false as _ | true as tb,
                F16 = false as _ | true as f16,
            )
        )]
        pub unsafe fn $name<const TRANS_A: bool, const TRANS_B: bool, const F16: bool>(
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
            let tile = [$warpgroups * WM, <[f32; $sums] as Accumulator>::COLS];
            let tile = parts::<false, TRANS_A, TRANS_B>([m, n], tile);
            let tiles = Tiles::new([m, n], batch, stride_c, options, Groups::NONE, tile);
            // SAFETY: the block is as large as these numbers say.
            unsafe {
                gemm::<$sums, $warpgroups, $stages, false, F16, TRANS_A, TRANS_B>(
                    k, tiles, [map_a, map_b], c,
                );
            }
        }

        $(
            /// Computes a grouped product: each group of rows has a B of its own.
            ///
            /// # Safety
            /// As for the kernel of batches.
            #[kernel(
                block = ($warpgroups + 1) * WARPGROUP,
                min_blocks = 1,
                variants(
                    TRANS_B = false as _ | true as tb,
                    F16 = false as _ | true as f16,
                )
            )]
            pub unsafe fn $grouped<const TRANS_B: bool, const F16: bool>(
                m: u32,
                n: u32,
                k: u32,
                alpha: f32,
                #[grid_constant] map_a: &TensorMap,
                #[grid_constant] map_b: &TensorMap,
                beta: f32,
                c: *mut f32,
                ldc: u32,
                groups: *const GroupTile,
                options: u32,
                epilogue: Parameters,
            ) {
                // SAFETY: as above.
                let (c, groups) = unsafe {
                    let c = Output::new(c, ldc, m, n, alpha, beta);
                    (TensorOutput::<F16>::new(c, options, epilogue), Groups::new(groups))
                };
                let tile = [$warpgroups * WM, <[f32; $sums] as Accumulator>::COLS];
                let tile = parts::<true, false, TRANS_B>([m, n], tile);
                let tiles = Tiles::new([m, n], 1, 0, options, groups, tile);
                // SAFETY: the block is as large as these numbers say.
                unsafe {
                    gemm::<$sums, $warpgroups, $stages, true, F16, false, TRANS_B>(
                        k, tiles, [map_a, map_b], c,
                    );
                }
            }
        )?
    )*};
}

kernels! {
    /// For large products.
    DESCRIPTOR = wgmma_persistent and wgmma_persistent_grouped:
        "tensor cores: 128 x 256 per block, two consumer warpgroups that take turns at storing",
        [f32; 128] x 2, 4 stages;
    /// If its tiles leave fewer multiprocessors idle in the tail wave.
    TILE_128X192 = wgmma_128x192: "wgmma_persistent with 128 x 192 outputs per block",
        [f32; 96] x 2, 5 stages;
    /// For products with too few tiles of those sizes for all multiprocessors.
    TILE_128X128 = wgmma_128x128 and wgmma_128x128_grouped: "wgmma_persistent with 128 x 128 outputs per block",
        [f32; 64] x 2, 6 stages;
    /// For products with still fewer tiles.
    TILE_64X128 = wgmma_64x128 and wgmma_64x128_grouped: "wgmma_persistent with 64 x 128 outputs per block",
        [f32; 64] x 1, 8 stages;
    /// For the smallest products.
    TILE_64X64 = wgmma_64x64: "wgmma_persistent with 64 x 64 outputs per block",
        [f32; 32] x 1, 8 stages;
}

/// The layout of shared memory.
///
/// In order: the stages of A, those of B, each warp's memory for staged sums, each warp's copy of a
/// bias, and two barriers for each stage.
struct Storage<const SUMS: usize, const WARPGROUPS: u32, const STAGES: u32>;

impl<const SUMS: usize, const WARPGROUPS: u32, const STAGES: u32>
    Storage<SUMS, WARPGROUPS, STAGES>
{
    /// Elements of a stage.
    const STAGE_A: u32 = WARPGROUPS * WM * BK;
    const STAGE_B: u32 = BK * Self::PANELS;
    /// Columns of C per block: each thread of a warpgroup has `SUMS` of its sums.
    const BN: u32 = SUMS as u32 * WARPGROUP / WM;
    /// Columns of the panels of B that cover them.
    const PANELS: u32 = Self::BN.next_multiple_of(PANEL);
    /// Warps with sums.
    const WARPS: u32 = WARPGROUPS * WARPGROUP / 32;
    /// Offsets in elements.
    const B_AT: u32 = STAGES * Self::STAGE_A;
    const STAGING_AT: u32 = Self::B_AT + STAGES * Self::STAGE_B;
    const BIAS_AT: u32 = Self::STAGING_AT + Self::WARPS * STAGING * 2;
    const BARRIERS_AT: u32 = Self::BIAS_AT + Self::WARPS * Self::BN * 2;

    /// Bytes in all, in the worst case: PTX promises a multiple of 128, and the swizzle wants one
    /// of [`ALIGNMENT`].
    const END: u32 = {
        assert!(
            STAGGER < STAGES,
            "the producer fills the stages of the lag before any is released"
        );
        let bytes = Self::BARRIERS_AT * 2 + 2 * STAGES * 8 + (ALIGNMENT - 128);
        assert!(
            bytes + RESERVED_SHARED_MEMORY_PER_BLOCK <= SHARED_MEMORY_PER_MULTIPROCESSOR,
            "a multiprocessor has no more"
        );
        bytes
    };
}

/// The kernel: `WARPGROUPS` consumer warpgroups, and one more that produces.
///
/// Each consumer warpgroup has 64 rows of a tile of C, in `SUMS` sums per thread.
///
/// # Safety
/// As for [`wgmma_persistent()`]. The block has `WARPGROUPS` and one more.
#[inline(always)]
unsafe fn gemm<
    const SUMS: usize,
    const WARPGROUPS: u32,
    const STAGES: u32,
    const GROUPED: bool,
    const F16: bool,
    const TRANS_A: bool,
    const TRANS_B: bool,
>(
    k: u32,
    tiles: Tiles<GROUPED>,
    maps: [&TensorMap; 2],
    c: TensorOutput<F16>,
) where
    [f32; SUMS]: Accumulator,
{
    let tid = thread::thread_idx_x();
    let warpgroup = tid / WARPGROUP;
    let steps = k.div_ceil(BK);
    let bn = Storage::<SUMS, WARPGROUPS, STAGES>::BN;

    if steps == 0 {
        // A path of its own: a second path to the accumulators would make `ptxas` serialise all
        // `wgmma`.
        dependent_launch::wait();
        // SAFETY: all threads of the block are here.
        unsafe { tiles.counted().store_empty(c, (WARPGROUPS + 1) * WARPGROUP) };
        return;
    }

    let memory = shared::dynamic_shared_mem::<u16>();
    let a_smem = memory.add(memory.address().wrapping_neg() % ALIGNMENT / 2);
    let barriers = a_smem.add(Storage::<SUMS, WARPGROUPS, STAGES>::BARRIERS_AT);
    let staging = a_smem.add(Storage::<SUMS, WARPGROUPS, STAGES>::STAGING_AT).cast::<f32>();
    let bias = a_smem.add(Storage::<SUMS, WARPGROUPS, STAGES>::BIAS_AT).cast::<f32>();
    let full = Mbarrier::at(barriers.cast());
    let stages = Stages::<STAGES> {
        a: a_smem,
        b: a_smem.add(Storage::<SUMS, WARPGROUPS, STAGES>::B_AT),
        full,
        empty: full.add(STAGES),
        rows: WARPGROUPS * WM,
        cols: Storage::<SUMS, WARPGROUPS, STAGES>::PANELS,
    };
    // SAFETY: all threads, before the block's barrier.
    unsafe { stages.clear_rest(tiles, (WARPGROUPS + 1) * WARPGROUP) };
    if tid == 0 {
        // SAFETY: one thread, once, before the block's barrier; both are grid constants.
        unsafe {
            stages.init(4 * WARPGROUPS);
            tma::prefetch(maps[0]);
            tma::prefetch(maps[1]);
        }
    }
    thread::sync_threads();
    // Everything up to here overlaps the end of the kernel in front.
    dependent_launch::launch_dependents();
    dependent_launch::wait();
    let tiles = tiles.counted();

    if warpgroup == WARPGROUPS {
        if moves_registers(WARPGROUPS) {
            // SAFETY: a whole warpgroup, the block's last. The others take what it gives.
            unsafe { give_registers::<WARPGROUPS>() };
        }
        if tid == WARPGROUPS * WARPGROUP {
            // SAFETY: one thread of the block; the maps are as the caller promises.
            unsafe { stages.produce::<GROUPED, TRANS_A, TRANS_B>(tiles, steps, maps) };
        }
        return;
    }

    if moves_registers(WARPGROUPS) {
        // SAFETY: each of the other warpgroups, once.
        unsafe { take_registers::<WARPGROUPS>() };
    }
    let lane = warp::lane_id();
    // SAFETY: the barriers are initialised. One thread of each warp arrives, since a warp that
    // waits for a group knows only of its own part.
    let release = |stage: u32| unsafe {
        if lane == 0 {
            stages.empty.add(stage).arrive();
        }
    };
    if warpgroup == 1 && steps > STAGGER && thread::block_idx_x() < tiles.count() {
        // SAFETY: the barrier's first phase, which lasts until this warpgroup has also read the
        // stage.
        unsafe { stages.full.add(STAGGER).wait_parity(0) };
    }
    let mut state = PipelineState::FIRST;
    let mut tile = thread::block_idx_x();
    while tile < tiles.count() {
        // Recomputed at each use, so that it occupies no registers in between.
        let place = || {
            let place = tiles.place(black_box(tile));
            let warp = black_box(tid) / 32;
            // SAFETY: the warp's own memory, with an element for each of these columns.
            let bias = unsafe { StagedBias::at(bias.add(warp * bn)) };
            (warp, place.row + warp * 16, place.col, tiles.output(c, place), bias)
        };
        if const { is_large(SUMS) } && c.has_old() {
            let (_, row, col, c, _) = place();
            // SAFETY: whole warps.
            unsafe { c.prefetch_old([row, col], bn) };
        }
        if c.epilogue.has_column_bias() {
            let (_, _, col, c, bias) = place();
            // SAFETY: whole warps, each with its own memory.
            unsafe { c.copy_bias(col, bn, bias) };
        }
        let mut acc = [0.0f32; SUMS];
        let mut before = state.stage;
        let mut step = 0;
        loop {
            let [a, b] = stages.tiles(state.stage);
            // SAFETY:
            // - Whole warpgroups come here: the conditions of both loops are the same for their
            //   threads. `wgmma` itself (`.sync`) waits for threads that a wait or a release
            //   delays.
            // - The stage is full and lies as the maps copy it. It stays until it is released, when
            //   its group is done.
            // - Nothing touches the sums before the wait.
            unsafe {
                stages.full.add(state.stage).wait_parity(state.parity);
                let a = a.add(warpgroup * (WM * BK));
                multiply_step::<SUMS, F16, TRANS_A, TRANS_B>(&mut acc, [a, b], step > 0);
                if step > 0 {
                    wait_group::<1>();
                    release(before);
                }
            }
            before = state.stage;
            state = state.next::<STAGES>();
            step += 1;
            if step == steps {
                break;
            }
        }
        // SAFETY: as above.
        unsafe { acc.wait() };
        release(before);

        let (warp, row, col, c, bias) = place();
        let staging = staging.add(warp * STAGING);
        // SAFETY: whole warps, each with its own memory and sums. Nobody else touches these
        // elements.
        unsafe {
            c.store_fragments::<WM, false, _, _, _>(row, col, staging, bias, array::from_ref(&acc))
        };
        tile += thread::grid_dim_x();
    }
}
