//! Tensor cores, `wgmma_persistent`: products of 16-bit tiles by whole warpgroups, in a pipeline that
//! never stops.
//!
//! # The idea
//!
//! Copies, products and stores can all go on at the same time, if a block goes from tile to tile: the
//! producer fills the pipeline for the next tile while this one is multiplied, and one warpgroup stores
//! while the other one multiplies.
//!
//! ```text
//!   producer      | tile 0 ... | tile 1 ...     | tile 2 ...
//!   warpgroup 0   | tile 0          |st| tile 1         |st|
//!   warpgroup 1      | tile 0          |st| tile 1         |st|
//! ```
//!
//! # What changed
//!
//! Against [`wgmma_pipelined`](crate::wgmma_pipelined):
//!
//! - The grid has one block per multiprocessor, which takes one tile after the other, as
//!   [`persistent`](crate::persistent) does in f32. Stages and their phases are counted on from tile to
//!   tile.
//! - The second warpgroup begins two stages late, and the lag stays: while one stores its
//!   half of the tile, the other has the tensor cores to itself.
//! - A launch begins while the kernel before it ends (*programmatic dependent launch*): meanwhile barriers are
//!   initialised. It lets the next kernel begin before it has waited itself: that one waits, too, until this one has
//!   ended, and so until all before this one have.
//! - Smaller tiles, for products of which there would be too few: with one consumer warpgroup no
//!   registers move.
//!
//! # What should get better, and what comes next
//!
//! Copies, products and stores overlap. What is left is to move fewer bytes for the same product: the
//! blocks of a cluster could share their tiles. How fast it is next to cuBLAS is recorded in
//! `runs/2026-11-22-h200-tensor-core`.

use cuda_std::dependent_launch;
use cuda_std::hint::black_box;
use cuda_std::mbarrier::{self, Mbarrier};
use cuda_std::prelude::*;
use cuda_std::shared;
use cuda_std::tma::{self, TensorMap};
use cuda_std::wgmma::{Accumulator, Tile, wait_group};

use crate::epilogue::Parameters;
use crate::matrix::Output;
use crate::pipeline::StageState;
use crate::swizzle::swizzle_wide as swizzle;
use crate::tensor_core::options::{HALF_OUTPUT, SHARED_A, SHARED_B};
use crate::tensor_core::{ALIGNMENT, BK, PANEL, TensorCoreAbi, TensorCoreDescriptor};
use crate::tensor_output::{AT_ONCE, STAGING, TensorOutput};

/// Rows of a warpgroup's sums, which `wgmma` sets.
const WM: u32 = 64;
/// Threads of a warpgroup.
const WARPGROUP: u32 = 128;
/// Stages by which the second warpgroup lags behind the first.
const STAGGER: u32 = 2;
/// Registers of a thread of the producer warpgroup and of the consumer warpgroups.
const PRODUCER_REGISTERS: u32 = 40;
const CONSUMER_REGISTERS: u32 = 232;

const _: () =
    assert!(BK == PANEL, "a row of a tile of A is 128 bytes, and so is a step's part of B");

/// Registers of each thread of so many warpgroups, as a launch of one block per multiprocessor
/// gives them.
const fn launched_registers(warpgroups: u32) -> u32 {
    65536 / (warpgroups * WARPGROUP) / 8 * 8
}

macro_rules! names {
    ($($name:ident)*) => {
        [$(stringify!($name)),*]
    };
}

/// Declares a kernel for each type of the operands and each way that they lie, and its
/// [`TensorCoreDescriptor`].
macro_rules! kernels {
    ($(
        $(#[$doc:meta])*
        $descriptor:ident: $summary:literal,
        [f32; $sums:literal] x $warpgroups:literal, $stages:literal stages,
        bf16: $bf16:ident $bf16_ta:ident $bf16_tb:ident $bf16_ta_tb:ident,
        f16: $f16:ident $f16_ta:ident $f16_tb:ident $f16_ta_tb:ident;
    )*) => {$(
        $(#[$doc])*
        pub const $descriptor: TensorCoreDescriptor = TensorCoreDescriptor {
            name: stringify!($bf16),
            f16: stringify!($f16),
            layouts: Some([
                names![$bf16 $bf16_ta $bf16_tb $bf16_ta_tb],
                names![$f16 $f16_ta $f16_tb $f16_ta_tb],
            ]),
            summary: $summary,
            tile: [$warpgroups * WM, <[f32; $sums] as Accumulator>::COLS],
            threads: ($warpgroups + 1) * WARPGROUP,
            shared_bytes: Storage::<$sums, $warpgroups, $stages>::END,
            abi: TensorCoreAbi::TensorMap,
            persistent: true,
            splits: false,
            blocks: 1,
            starts_early: true,
            source: include_str!("wgmma_persistent.rs"),
        };
        kernels!(@one $bf16, $sums, $warpgroups, $stages, false, false, false);
        kernels!(@one $bf16_ta, $sums, $warpgroups, $stages, false, true, false);
        kernels!(@one $bf16_tb, $sums, $warpgroups, $stages, false, false, true);
        kernels!(@one $bf16_ta_tb, $sums, $warpgroups, $stages, false, true, true);
        kernels!(@one $f16, $sums, $warpgroups, $stages, true, false, false);
        kernels!(@one $f16_ta, $sums, $warpgroups, $stages, true, true, false);
        kernels!(@one $f16_tb, $sums, $warpgroups, $stages, true, false, true);
        kernels!(@one $f16_ta_tb, $sums, $warpgroups, $stages, true, true, true);
    )*};
    (
        @one $name:ident, $sums:literal, $warpgroups:literal, $stages:literal, $f16:literal,
        $trans_a:literal, $trans_b:literal
    ) => {
        /// `C = epilogue(alpha * op(A) * op(B) + beta * C)`, of each product of a batch.
        ///
        /// # Safety
        /// - The parameters and the grid are as [`TensorCoreDescriptor`] says.
        /// - Nothing else writes A or B, or touches C, during the launch.
        #[kernel(block = ($warpgroups + 1) * WARPGROUP, min_blocks = 1)]
        pub unsafe fn $name(
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
                TensorOutput::<$f16>::new(c, options & HALF_OUTPUT != 0, epilogue)
            };
            let batch = Batch {
                products: batch,
                stride_c,
                step_a: u32::from(options & SHARED_A == 0),
                step_b: u32::from(options & SHARED_B == 0),
            };
            let shape = [m, n, k];
            // SAFETY: the block is as large as these numbers say.
            unsafe {
                gemm::<$sums, $warpgroups, $stages, $f16, $trans_a, $trans_b>(
                    shape, batch, [map_a, map_b], c,
                );
            }
        }
    };
}

kernels! {
    /// For large products.
    DESCRIPTOR:
        "bf16 tensor cores: 128 x 256 per block, two consumer warpgroups that take turns at storing",
        [f32; 128] x 2, 4 stages,
        bf16: wgmma_persistent wgmma_persistent_ta wgmma_persistent_tb wgmma_persistent_ta_tb,
        f16: wgmma_persistent_f16 wgmma_persistent_ta_f16 wgmma_persistent_tb_f16
            wgmma_persistent_ta_tb_f16;
    /// Where rounds of such tiles leave fewer multiprocessors without one.
    TILE_128X192: "the same with 128 x 192 outputs per block",
        [f32; 96] x 2, 5 stages,
        bf16: wgmma_128x192 wgmma_128x192_ta wgmma_128x192_tb wgmma_128x192_ta_tb,
        f16: wgmma_128x192_f16 wgmma_128x192_ta_f16 wgmma_128x192_tb_f16 wgmma_128x192_ta_tb_f16;
    /// For products of too few tiles of that size for all multiprocessors.
    TILE_128X128: "the same with 128 x 128 outputs per block",
        [f32; 64] x 2, 6 stages,
        bf16: wgmma_128x128 wgmma_128x128_ta wgmma_128x128_tb wgmma_128x128_ta_tb,
        f16: wgmma_128x128_f16 wgmma_128x128_ta_f16 wgmma_128x128_tb_f16 wgmma_128x128_ta_tb_f16;
    /// For still fewer.
    TILE_64X128: "the same with 64 x 128 outputs per block",
        [f32; 64] x 1, 8 stages,
        bf16: wgmma_64x128 wgmma_64x128_ta wgmma_64x128_tb wgmma_64x128_ta_tb,
        f16: wgmma_64x128_f16 wgmma_64x128_ta_f16 wgmma_64x128_tb_f16 wgmma_64x128_ta_tb_f16;
    /// For the smallest products.
    TILE_64X64: "the same with 64 x 64 outputs per block",
        [f32; 32] x 1, 8 stages,
        bf16: wgmma_64x64 wgmma_64x64_ta wgmma_64x64_tb wgmma_64x64_ta_tb,
        f16: wgmma_64x64_f16 wgmma_64x64_ta_f16 wgmma_64x64_tb_f16 wgmma_64x64_ta_tb_f16;
}

/// The products of a launch.
#[derive(Clone, Copy)]
struct Batch {
    products: u32,
    /// Elements from one C to the next.
    stride_c: u64,
    /// From one product to the next in the maps' third dimension: 0 if all have the same.
    step_a: u32,
    step_b: u32,
}

/// What lies in shared memory: the stages of A, those of B, what each warp stages sums in, and two
/// barriers for each stage.
struct Storage<const SUMS: usize, const WARPGROUPS: u32, const STAGES: u32>;

impl<const SUMS: usize, const WARPGROUPS: u32, const STAGES: u32>
    Storage<SUMS, WARPGROUPS, STAGES>
{
    /// Elements of a stage.
    const STAGE_A: u32 = WARPGROUPS * WM * BK;
    const STAGE_B: u32 = BK * Self::BN;
    /// Columns of C per block: a warpgroup has so many sums for each of its threads.
    const BN: u32 = SUMS as u32 * WARPGROUP / WM;
    /// Offsets in elements.
    const B_AT: u32 = STAGES * Self::STAGE_A;
    const STAGING_AT: u32 = Self::B_AT + STAGES * Self::STAGE_B;
    const BARRIERS_AT: u32 = Self::STAGING_AT + WARPGROUPS * WARPGROUP / 32 * STAGING * 2;
    /// Bytes of all of it, wherever it begins: PTX promises a multiple of 128, and the swizzle wants
    /// one of [`ALIGNMENT`].
    const END: u32 = {
        assert!(
            STAGGER < STAGES,
            "the producer fills the stages of the lag before any is released"
        );
        assert!(Self::BN.is_multiple_of(PANEL), "a tile of B is whole panels");
        Self::BARRIERS_AT * 2 + 2 * STAGES * 8 + (ALIGNMENT - 128)
    };
    /// Whether registers move from the producer to the consumers. With one consumer warpgroup a
    /// thread has as many as it can name from the launch on, and `setmaxnreg.inc` must not lower that.
    const MOVES_REGISTERS: bool = {
        let launched = launched_registers(WARPGROUPS + 1);
        let moves = launched < CONSUMER_REGISTERS;
        assert!(
            !moves
                || PRODUCER_REGISTERS <= launched
                    && PRODUCER_REGISTERS + WARPGROUPS * CONSUMER_REGISTERS
                        <= (WARPGROUPS + 1) * launched,
            "the consumers wait without end for more registers than the producer gives back"
        );
        moves
    };
}

/// The kernel: blocks of `WARPGROUPS` consumer warpgroups, each with 64 rows of a tile of C and
/// `SUMS` sums per thread, and one more that produces.
///
/// # Safety
/// As for [`wgmma_persistent()`]; the block has so many warpgroups.
#[inline(always)]
unsafe fn gemm<
    const SUMS: usize,
    const WARPGROUPS: u32,
    const STAGES: u32,
    const F16: bool,
    const TRANS_A: bool,
    const TRANS_B: bool,
>(
    [m, n, k]: [u32; 3],
    batch: Batch,
    maps: [&TensorMap; 2],
    c: TensorOutput<F16>,
) where
    [f32; SUMS]: Accumulator,
{
    let bm = WARPGROUPS * WM;
    let bn = Storage::<SUMS, WARPGROUPS, STAGES>::BN;
    let stage_a = Storage::<SUMS, WARPGROUPS, STAGES>::STAGE_A;
    let stage_b = Storage::<SUMS, WARPGROUPS, STAGES>::STAGE_B;
    let tid = thread::thread_idx_x();
    let warpgroup = tid / WARPGROUP;
    let (width, height) = (n.div_ceil(bn), m.div_ceil(bm));
    let (tiles, steps) = (width * height * batch.products, k.div_ceil(BK));
    // The product of a tile, and the tile's row and column in it.
    let place = |tile: u32| {
        let product = tile / (width * height).max(1);
        let (y, x) = swizzle(tile - product * (width * height), width, height);
        (product, y * bm, x * bn)
    };

    if steps == 0 {
        dependent_launch::wait();
        // Apart, because a second way to the sums would have the assembler serialise all `wgmma`.
        let mut tile = thread::block_idx_x();
        while tile < tiles {
            let (product, row, col) = place(tile);
            let c = c.of_product(product, batch.stride_c);
            // One column of the tile for each thread, a few rows at a time.
            for at in
                (tid..bm / AT_ONCE as u32 * bn).step_by(((WARPGROUPS + 1) * WARPGROUP) as usize)
            {
                let (row, col) = (row + at / bn * AT_ONCE as u32, col + at % bn);
                // SAFETY: elements of the block's tile, this thread's alone.
                unsafe { c.store_empty(|i| (row + i as u32, col)) };
            }
            tile += thread::grid_dim_x();
        }
        return;
    }

    let memory = shared::dynamic_shared_mem::<u16>();
    let a_smem = memory.add(memory.address().wrapping_neg() % ALIGNMENT / 2);
    let b_smem = a_smem.add(Storage::<SUMS, WARPGROUPS, STAGES>::B_AT);
    let barriers = a_smem.add(Storage::<SUMS, WARPGROUPS, STAGES>::BARRIERS_AT);
    let staging = a_smem.add(Storage::<SUMS, WARPGROUPS, STAGES>::STAGING_AT).cast::<f32>();
    let full = Mbarrier::at(barriers.cast());
    let empty = full.add(STAGES);
    if tid == 0 {
        // SAFETY: one thread, once, before the block's barrier; both are grid constants.
        unsafe {
            for stage in 0..STAGES {
                full.add(stage).init(1); // the producer, and the bytes that it asks for
                empty.add(stage).init(4 * WARPGROUPS); // a thread of each warp
            }
            tma::prefetch(maps[0]);
            tma::prefetch(maps[1]);
        }
        mbarrier::fence_init();
    }
    thread::sync_threads();
    // All until here went on while the kernel before this one ended.
    dependent_launch::launch_dependents();
    dependent_launch::wait();

    if warpgroup == WARPGROUPS {
        if Storage::<SUMS, WARPGROUPS, STAGES>::MOVES_REGISTERS {
            // SAFETY: a whole warpgroup, the block's last, with more than that; the others take what it
            // gives.
            unsafe { thread::warpgroup_reg_dealloc::<PRODUCER_REGISTERS>() };
        }
        if tid != WARPGROUPS * WARPGROUP {
            return;
        }
        let mut state = StageState::FIRST;
        let mut tile = thread::block_idx_x();
        while tile < tiles {
            let (product, row, col) = place(tile);
            let [product_a, product_b] =
                [product * batch.step_a, product * batch.step_b].map(u32::cast_signed);
            for step in 0..steps {
                let full = full.add(state.stage);
                // SAFETY: both warpgroups have said that the `wgmma` that read the stage are done,
                // and nobody else reads or writes it.
                unsafe {
                    empty.add(state.stage).wait_parity(state.parity ^ 1);
                    full.arrive_expect_tx(2 * (stage_a + stage_b));
                    let at = (step * BK).cast_signed();
                    let to = a_smem.add(state.stage * stage_a);
                    if TRANS_A {
                        for panel in 0..WARPGROUPS {
                            let row = (row + panel * WM).cast_signed();
                            let to = to.add(panel * (WM * BK));
                            tma::load(to, maps[0], [row, at, product_a], full);
                        }
                    } else {
                        tma::load(to, maps[0], [at, row.cast_signed(), product_a], full);
                    }
                    let to = b_smem.add(state.stage * stage_b);
                    if TRANS_B {
                        tma::load(to, maps[1], [at, col.cast_signed(), product_b], full);
                    } else {
                        for panel in 0..bn / PANEL {
                            let col = (col + panel * PANEL).cast_signed();
                            let to = to.add(panel * (BK * PANEL));
                            tma::load(to, maps[1], [col, at, product_b], full);
                        }
                    }
                }
                state = state.next::<STAGES>();
            }
            tile += thread::grid_dim_x();
        }
        return;
    }

    if Storage::<SUMS, WARPGROUPS, STAGES>::MOVES_REGISTERS {
        // SAFETY: each of the other warpgroups, with less than that; together they want no more than the
        // block was launched with.
        unsafe { thread::warpgroup_reg_alloc::<CONSUMER_REGISTERS>() };
    }
    let a_mine = a_smem.add(warpgroup * (WM * BK));
    let lane = warp::lane_id();
    // SAFETY: the barriers are initialised; one thread of each warp arrives, since a warp that waits
    // for a group knows of its own part in it.
    let release = |stage: u32| unsafe {
        if lane == 0 {
            empty.add(stage).arrive();
        }
    };
    if warpgroup == 1 && steps > STAGGER && thread::block_idx_x() < tiles {
        // SAFETY: its first phase, which lasts until this warpgroup has read the stage, too.
        unsafe { full.add(STAGGER).wait_parity(0) };
    }
    let mut state = StageState::FIRST;
    let mut tile = thread::block_idx_x();
    while tile < tiles {
        let mut acc = [0.0f32; SUMS];
        let mut before = state.stage;
        let mut step = 0;
        loop {
            let a = a_mine.add(state.stage * stage_a);
            let b = b_smem.add(state.stage * stage_b);
            // SAFETY: whole warpgroups come here: the conditions of both loops are the same for their
            // threads, and those that leave a wait or a release earlier are waited for by `wgmma`
            // itself (`.sync`). The stage is full, lies as the maps copy it, and stays until it is
            // released, when its group is done. Nothing touches the sums before the wait.
            unsafe {
                full.add(state.stage).wait_parity(state.parity);
                match (TRANS_A, TRANS_B) {
                    (false, false) => multiply::<SUMS, F16, _, _>(
                        &mut acc,
                        Tile::k_major(a),
                        Tile::mn_major(b),
                        step > 0,
                    ),
                    (true, false) => multiply::<SUMS, F16, _, _>(
                        &mut acc,
                        Tile::mn_major(a),
                        Tile::mn_major(b),
                        step > 0,
                    ),
                    (false, true) => multiply::<SUMS, F16, _, _>(
                        &mut acc,
                        Tile::k_major(a),
                        Tile::k_major(b),
                        step > 0,
                    ),
                    (true, true) => multiply::<SUMS, F16, _, _>(
                        &mut acc,
                        Tile::mn_major(a),
                        Tile::k_major(b),
                        step > 0,
                    ),
                }
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

        let (product, row, col) = place(tile);
        let warp = black_box(tid) / 32;
        let row = row + warp * 16;
        let staging = staging.add(warp * STAGING);
        let c = c.of_product(product, batch.stride_c);
        // SAFETY: whole warps, each with its own memory and sums, of elements that are nobody else's.
        unsafe { c.store_fragments(row, col, staging, &acc) };
        tile += thread::grid_dim_x();
    }
}

/// One step along K.
///
/// # Safety
/// As for [`Accumulator::multiply_bf16`].
#[inline(always)]
pub(crate) unsafe fn multiply<const SUMS: usize, const F16: bool, const A: bool, const B: bool>(
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
