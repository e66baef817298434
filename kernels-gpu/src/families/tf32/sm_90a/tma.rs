//! TF32 by bulk copies, which round: for large products.
//!
//! # The idea
//!
//! A tensor map can declare its elements as TF32. Then bulk copies round each f32 to the nearest
//! TF32 number, ties to even, on the way to shared memory. No thread takes part.
//!
//! One problem is left: `wgmma` reads TF32 tiles in shared memory only with K along the lines, and
//! a row-major B has N there. But one operand of `wgmma` may come from registers, which threads
//! load from anywhere. So the kernel computes `C^T = B^T * A^T`. What `wgmma` calls A is a tile of
//! B^T in registers; its B is the tile of A in shared memory.
//!
//! ```text
//!                     memory             shared memory             wgmma
//!   A                 M x K    TMA -->   K along the lines   -->   operand B
//!   B                 K x N    TMA -->   N along the lines   -->   ld.shared --> operand A
//!   B that lies as    N x K    TMA -->   K along the lines   -->   operand A
//!   its transpose
//! ```
//!
//! # What changed
//!
//! Against [`wgmma_persistent`](crate::ladder::tensor::sm_90a::wgmma_persistent):
//!
//! - A line of 128 bytes has 32 elements, so a step along K is 32.
//! - The threads load their elements of B for the next step while `wgmma` multiplies this one. They
//!   hand them over only after a wait: registers that `wgmma` reads must not change. Meanwhile the
//!   other warpgroup has the tensor cores.
//! - A warp's 16 columns of B are chosen so that its 32 simultaneous loads are in different banks:
//!   see `fragment.rs`.
//! - A thread has sums of two columns of C. They go through shared memory, so that a warp stores
//!   whole lines.
//!
//! # What should get better, and what comes next
//!
//! A and B are read in place, with no copy and no rounding instruction. Operands with misaligned
//! rows, and a transposed A, are copied first. If a product has too few tiles for the
//! multiprocessors, the kernels that split K compute it (`runs/h200/tf32`).

use core::array;

use cuda_std::hint::black_box;
use cuda_std::mbarrier::{self, Mbarrier};
use cuda_std::prelude::*;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::sm_90a::wgmma::Accumulator;
use cuda_std::tma::{self, TensorMap};
use cuda_std::vec;

use super::BK;
use super::fragment::{FragmentB, PANEL, column};
use super::main_loop::Stages;
use crate::abi::epilogue::Parameters;
use crate::abi::layout::TRANSPOSED_B;
use crate::abi::tensor_core::ALIGNMENT;
use crate::abi::tensor_core::options::{BROADCAST_A, BROADCAST_B};
use crate::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target};
use crate::device::output::matrix::Output;
use crate::device::output::places::OUTPUTS_AT_ONCE;
use crate::device::pipeline::dependent_launch;
use crate::device::pipeline::roles::{WARPGROUP, give_registers, moves_registers, take_registers};
use crate::device::pipeline::state::PipelineState;
use crate::device::schedule::raster::rasterize;

/// Columns of C per warpgroup, which `wgmma` fixes, and per block.
const WN: u32 = 64;
const BN: u32 = WARPGROUPS * WN;
/// Consumer warpgroups; one more warpgroup produces.
const WARPGROUPS: u32 = 2;
const THREADS: u32 = (WARPGROUPS + 1) * WARPGROUP;
/// Sums that a thread stages and stores at once. Below: a warpgroup's rows of C in these, and its
/// elements of staging memory.
const PART: usize = OUTPUTS_AT_ONCE;
const STAGED_ROWS: u32 = PART as u32 * WARPGROUP / WN;
const STAGING: u32 = STAGED_ROWS * WN;

const _: () = assert!(moves_registers(WARPGROUPS), "the sums of the largest tile need them");

/// Declares a kernel, and its [`KernelDescriptor`].
macro_rules! kernels {
    ($(
        $(#[$doc:meta])*
        $descriptor:ident, $name:ident: $summary:literal, [f32; $sums:literal], $stages:literal stages;
    )*) => {$(
        $(#[$doc])*
        pub const $descriptor: KernelDescriptor = KernelDescriptor {
            name: stringify!($name),
            summary: $summary,
            origin: None,
            tile: crate::abi::Tile {
                bm: Storage::<$sums, $stages>::BM,
                bn: BN,
                bk: BK,
                tm: $sums / 2,
                tn: 2,
            },
            block: [THREADS, 1],
            grid: GridOrder::Persistent,
            shared: Shared::Dynamic(|_| Storage::<$sums, $stages>::END as u64),
            unaligned: None,
            abi: KernelAbi::Tf32TensorMap,
            arithmetic: Arithmetic::Tf32,
            target: Target::Sm90a,
            source: include_str!("tma.rs"),
            variants: &[],
            reads_anywhere: [false; 2],
            compensates: false,
        };

        /// Computes `C = epilogue(alpha * A * op(B) + beta * C)` for each product of a batch.
        ///
        /// # Safety
        /// - The parameters and the grid are as [`KernelAbi::Tf32TensorMap`] says.
        /// - Nothing else writes A or B, or touches C, during the launch.
        #[kernel(block = THREADS, min_blocks = 1)]
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
            layout: u32,
            epilogue: Parameters,
        ) {
            let step = |shared: u32| u32::from(options & shared == 0);
            let (step_a, step_b) = (step(BROADCAST_A), step(BROADCAST_B));
            // SAFETY: the caller keeps the contract, and there is no other output.
            let c = unsafe { Output::new(c, ldc, m, n, alpha, beta) };
            let product = Product { shape: [m, n, k], batch, stride_c, step_a, step_b, c, epilogue };
            let maps = [map_a, map_b];
            // SAFETY: the caller keeps the contract, and the block is as large as this says.
            unsafe {
                match layout & TRANSPOSED_B {
                    0 => Storage::<$sums, $stages>::gemm::<false>(product, maps),
                    _ => Storage::<$sums, $stages>::gemm::<true>(product, maps),
                }
            }
        }
    )*};
}

kernels! {
    /// For large products.
    TILE_256X128, tf32_256x128:
        "TF32 tensor cores, rounded to nearest by bulk copies: 256 x 128 per block",
        [f32; 128], 4 stages;
    /// If its tiles leave fewer multiprocessors idle in the tail wave.
    TILE_192X128, tf32_192x128: "tf32_256x128 with 192 x 128 outputs per block",
        [f32; 96], 5 stages;
    /// For smaller products.
    TILE_128X128, tf32_128x128: "tf32_256x128 with 128 x 128 outputs per block",
        [f32; 64], 6 stages;
    /// For the smallest products.
    TILE_64X128, tf32_64x128: "tf32_256x128 with 64 x 128 outputs per block",
        [f32; 32], 8 stages;
}

/// The products of a launch.
#[derive(Clone, Copy)]
struct Product {
    shape: [u32; 3],
    batch: u32,
    /// Elements from one C to the next.
    stride_c: u64,
    /// Step of A from one product to the next, in its map's third dimension: 0 if all share one A.
    step_a: u32,
    step_b: u32,
    c: Output,
    epilogue: Parameters,
}

impl Product {
    /// C and the epilogue of one product.
    #[inline(always)]
    fn output(&self, product: u32) -> (Output, Parameters) {
        let offset = product as usize * self.stride_c as usize;
        let c = Output { pointer: self.c.pointer.wrapping_add(offset), ..self.c };
        (c, self.epilogue.of_product(product))
    }
}

/// A kernel with `SUMS` sums per thread, and the layout of its shared memory.
///
/// In order: the stages of A, those of B, each warpgroup's memory for staged sums, and two barriers
/// for each stage.
struct Storage<const SUMS: usize, const STAGES: u32>;

impl<const SUMS: usize, const STAGES: u32> Storage<SUMS, STAGES> {
    /// Rows of C per block: each thread of a warpgroup has `SUMS` of its sums.
    const BM: u32 = SUMS as u32 * WARPGROUP / WN;
    /// Elements of a stage.
    const STAGE_A: u32 = Self::BM * BK;
    const STAGE_B: u32 = BN * BK;
    /// Offsets in elements.
    const B_AT: u32 = STAGES * Self::STAGE_A;
    const STAGING_AT: u32 = Self::B_AT + STAGES * Self::STAGE_B;
    const BARRIERS_AT: u32 = Self::STAGING_AT + WARPGROUPS * STAGING;
    /// Bytes in all, in the worst case: PTX promises that memory begins on a multiple of 128.
    const END: u32 = Self::BARRIERS_AT * 4 + 2 * STAGES * 8 + (ALIGNMENT - 128);

    /// # Safety
    /// As for the entry points.
    #[inline(always)]
    unsafe fn gemm<const TRANS_B: bool>(of: Product, maps: [&TensorMap; 2])
    where
        [f32; SUMS]: Accumulator,
    {
        let [m, n, k] = of.shape;
        let tid = thread::thread_idx_x();
        let warpgroup = tid / WARPGROUP;
        let (width, height) = (n.div_ceil(BN), m.div_ceil(Self::BM));
        let (tiles, steps) = (width * height * of.batch, k.div_ceil(BK));
        // The product of a tile, and the tile's first row and column in it.
        let place = |tile: u32| {
            let product = tile / (width * height).max(1);
            let (y, x) = rasterize(tile - product * (width * height), width, height);
            (product, y * Self::BM, x * BN)
        };

        if steps == 0 {
            dependent_launch::begin();
            // A path of its own: a second path to the accumulators would make `ptxas` serialise all
            // `wgmma`.
            let mut tile = thread::block_idx_x();
            while tile < tiles {
                let (product, row, col) = place(tile);
                let (c, epilogue) = of.output(product);
                // Each thread has one column of the tile, a few rows at a time.
                for at in (tid..Self::BM / PART as u32 * BN).step_by(THREADS as usize) {
                    let (row, col) = (row + at / BN * PART as u32, col + at % BN);
                    let at = |i: usize| (row + i as u32, col);
                    // SAFETY: elements of the block's tile, this thread's alone.
                    unsafe { c.store_epilogue(epilogue, false, PART, at, [0.0; PART]) };
                }
                tile += thread::grid_dim_x();
            }
            return;
        }

        let memory = shared::dynamic_shared_mem::<f32>();
        let a_smem = memory.add(memory.address().wrapping_neg() % ALIGNMENT / 4);
        let b_smem = a_smem.add(Self::B_AT);
        let full = Mbarrier::at(a_smem.add(Self::BARRIERS_AT).cast());
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
        dependent_launch::begin();

        if warpgroup == WARPGROUPS {
            // SAFETY: a whole warpgroup, the block's last. The others take what it gives.
            unsafe { give_registers::<WARPGROUPS>() };
            if tid != WARPGROUPS * WARPGROUP {
                return;
            }
            let mut state = PipelineState::FIRST;
            let mut tile = thread::block_idx_x();
            while tile < tiles {
                let (product, row, col) = place(tile);
                let [product_a, product_b] =
                    [product * of.step_a, product * of.step_b].map(u32::cast_signed);
                let (row, col) = (row.cast_signed(), col.cast_signed());
                for step in 0..steps {
                    let full = full.add(state.stage);
                    let at = (step * BK).cast_signed();
                    let to_a = a_smem.add(state.stage * Self::STAGE_A);
                    let to_b = b_smem.add(state.stage * Self::STAGE_B);
                    // SAFETY: both warpgroups have said that they are done with the stage, and
                    // nobody else reads or writes it.
                    unsafe {
                        empty.add(state.stage).wait_parity(state.parity ^ 1);
                        full.arrive_expect_tx(4 * (Self::STAGE_A + Self::STAGE_B));
                        tma::load(to_a, maps[0], [at, row, product_a], full);
                        if TRANS_B {
                            tma::load(to_b, maps[1], [at, col, product_b], full);
                        } else {
                            for panel in 0..BN / PANEL {
                                let col = col + (panel * PANEL).cast_signed();
                                let to = to_b.add(panel * (BK * PANEL));
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

        // SAFETY: each of the other warpgroups, once.
        unsafe { take_registers::<WARPGROUPS>() };
        let (warp, lane) = (tid / 32 % 4, warp::lane_id());
        let b_mine = b_smem.add(warpgroup * (WN * BK));
        let staging = a_smem.add(Self::STAGING_AT + warpgroup * STAGING);
        let fragment = FragmentB::new(warp, lane);
        let elements = [Self::STAGE_A, Self::STAGE_B];
        let stages = Stages::<STAGES> { a: a_smem, b: b_mine, elements, full, empty };
        let mut state = PipelineState::FIRST;
        let mut tile = thread::block_idx_x();
        while tile < tiles {
            let mut acc = [0.0f32; SUMS];
            // SAFETY: a whole warpgroup; the barriers are initialised, and the producer fills
            // `steps` stages.
            unsafe {
                state = stages.multiply::<SUMS, TRANS_B>(state, steps, fragment, lane, &mut acc);
            }

            let (product, row, col) = place(black_box(tile));
            let (c, epilogue) = of.output(product);
            // SAFETY: whole warpgroups, each with its own memory. Nobody else touches these
            // elements.
            unsafe {
                let col = col + warpgroup * WN;
                Self::store::<TRANS_B>(c, epilogue, row, col, warpgroup, staging, &acc);
            }
            tile += thread::grid_dim_x();
        }
    }

    /// Stores a thread's sums; those of its warpgroup begin at (row, col).
    ///
    /// A few rows at a time go through shared memory, so that a warp stores runs of 128 bytes,
    /// wherever rows begin.
    ///
    /// # Safety
    /// - Whole warpgroups call this together.
    /// - Each has a number of its own, and its own memory for [`STAGING`] elements.
    /// - No other thread stores these elements.
    #[inline(always)]
    unsafe fn store<const TRANS_B: bool>(
        c: Output,
        epilogue: Parameters,
        row: u32,
        col: u32,
        warpgroup: u32,
        staging: SharedPtr<f32>,
        acc: &[f32; SUMS],
    ) {
        // Behind `black_box`, so that the loop along K keeps none of it in registers.
        let lane = black_box(warp::lane_id());
        let warp = black_box(thread::thread_idx_x()) / 32 % 4;
        // Swizzled: lanes that differ in `lane % 4` have rows two apart, and store to different
        // banks.
        let exchanged =
            |row: u32, col: u32| row * WN + (col ^ (row / 2 % 4 * if TRANS_B { 8 } else { 4 }));
        let stage = |lane: u32, sums: [f32; PART]| {
            for i in 0..PART {
                let row = i as u32 / 4 * 8 + lane % 4 * 2 + i as u32 % 2;
                let col = column::<TRANS_B>(warp, lane, i as u32 / 2 % 2);
                // SAFETY: in the warpgroup's own memory.
                unsafe { staging.store(exchanged(row, col), sums[i]) };
            }
        };
        let begins_aligned = c.begins_aligned();
        let is_wide = col + WN <= c.cols;
        let is_whole = is_wide && row + Self::BM <= c.rows;
        if begins_aligned && is_whole && !epilogue.is_some() && c.beta == 0.0 {
            let (down, right) = (warp * 8 + lane / 16, lane % 16 * 4);
            let first = (row + down) as usize * c.ld as usize + (col + right) as usize;
            for part in 0..SUMS / PART {
                stage(lane, array::from_fn(|i| c.alpha * acc[part * PART + i]));
                // SAFETY: all threads come to the barriers, and the sums were stored before the
                // first. The places are inside of C, on 16 bytes, and nobody else's.
                unsafe {
                    meet(warpgroup);
                    let quads = [0, 2, 4, 6].map(|i| staging.load4(exchanged(down + i, right)));
                    for i in 0..4 {
                        let row = part * STAGED_ROWS as usize + i * 2;
                        vec::store4(c.pointer.wrapping_add(first + row * c.ld as usize), quads[i]);
                    }
                    meet(warpgroup);
                }
            }
            return;
        }
        let is_aligned = begins_aligned && (is_wide || c.cols.is_multiple_of(4));
        // Behind `black_box`, so that the loop is not unrolled.
        for part in 0..black_box((SUMS / PART) as u32) {
            let row = row + part * STAGED_ROWS;
            if row >= c.rows || col >= c.cols {
                break;
            }
            let mut sums = [0.0; PART];
            for i in 0..SUMS / PART {
                // Registers have no addresses. So each part has its own moves behind a branch,
                // whose values cannot be computed ahead.
                if i as u32 == black_box(part) {
                    sums = array::from_fn(|j| acc[i * PART + j]);
                    sums[0] = f32::from_bits(black_box(sums[0].to_bits()));
                }
            }
            // Addresses are recomputed for each part instead of kept in registers.
            let lane = black_box(lane);
            stage(lane, sums);
            // SAFETY: all threads of the warpgroup come to its barrier.
            unsafe { meet(warpgroup) };
            // If aligned, four neighbours in each of four rows. Otherwise two elements, 32 columns
            // apart, in each of eight rows.
            let place = |i: u32| match is_aligned {
                true => (warp * 8 + i / 4 * 2 + lane / 16, lane % 16 * 4 + i % 4),
                false => (warp * 8 + i / 2, lane + i % 2 * 32),
            };
            let mut values = [0.0; PART];
            // SAFETY: stored before the barrier; each four are on 16 bytes.
            unsafe {
                if is_aligned {
                    for i in (0..PART).step_by(4) {
                        let (row, col) = place(i as u32);
                        [values[i], values[i + 1], values[i + 2], values[i + 3]] =
                            staging.load4(exchanged(row, col));
                    }
                } else {
                    for i in 0..PART {
                        let (row, col) = place(i as u32);
                        values[i] = staging.load(exchanged(row, col));
                    }
                }
            }
            let at = |i: usize| {
                let (down, right) = place(i as u32);
                (row + down, col + right)
            };
            // SAFETY: elements that nobody else touches. Then all threads of the warpgroup come to
            // its barrier.
            unsafe {
                c.store_epilogue(epilogue, is_aligned, PART, at, values);
                meet(warpgroup);
            }
        }
    }
}

/// The barrier of a consumer warpgroup.
///
/// # Safety
/// All threads of the warpgroup come to it, and nobody else.
#[inline(always)]
unsafe fn meet(warpgroup: u32) {
    // SAFETY: the caller's contract.
    unsafe {
        match warpgroup {
            0 => thread::named_barrier_sync::<1, { WARPGROUP }>(),
            _ => thread::named_barrier_sync::<2, { WARPGROUP }>(),
        }
    }
}
