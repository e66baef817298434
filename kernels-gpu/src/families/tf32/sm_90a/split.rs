//! TF32 by bulk copies, with K split: for few rows, or few columns.
//!
//! # The idea
//!
//! A product with 16 rows uses each element of B only 16 times. Device memory's bandwidth is the
//! limit, and full bandwidth needs every multiprocessor. But C has fewer tiles than there are
//! multiprocessors. So several blocks share a tile, each with its own part of K (*split-K*).
//!
//! # What changed
//!
//! Against [`tma`](super::tma), which also computes `C^T = B^T * A^T`, with 64 columns of C per
//! warpgroup:
//!
//! - A tile has as few as 16 rows of C. A block computes one tile, or with split-K a part of its
//!   sum. An atomic counter tells which block of a tile finishes last: that block adds up the
//!   parts, always in the same order.
//! - Two blocks share a multiprocessor, except with the largest tile: one loads while the other
//!   stores or adds up.
//! - C may be stored transposed: if C has few columns, the launch exchanges A and B.
//! - Only the rows that A has are copied: the copy engine takes longer for out-of-bounds rows.
//! - The first tiles of B are prefetched to L2 while the launch in front ends.
//!
//! # What should get better, and what comes next
//!
//! A step along K copies 16 KB of B, and a multiprocessor has ten such copies in flight. A
//! transposed A is copied first, which costs little if it has few rows.

use core::array;

use cuda_std::hint::black_box;
use cuda_std::mbarrier::{self, Mbarrier};
use cuda_std::prelude::*;
use cuda_std::shared;
use cuda_std::sm_90a::wgmma::Accumulator;
use cuda_std::tma::{self, TensorMap, fence_proxy_async};
use cuda_std::{dependent_launch, vec};

use super::BK;
use super::fragment::{FragmentB, PANEL, column};
use super::main_loop::Stages;
use crate::abi::epilogue::Parameters;
use crate::abi::layout::TRANSPOSED_B;
use crate::abi::tensor_core::options::{BROADCAST_A, BROADCAST_B};
use crate::abi::tensor_core::{
    ALIGNMENT, RESERVED_SHARED_MEMORY_PER_BLOCK, SHARED_MEMORY_PER_MULTIPROCESSOR,
};
use crate::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target};
use crate::device::output::source::SourceOf;
use crate::device::pipeline::roles::WARPGROUP;
use crate::device::pipeline::state::PipelineState;
use crate::device::pipeline::tile_load::{load_tile, read_once};
use crate::device::reduce::split_k::{is_last_of_part, reduce_sums, tile_number};
use crate::device::schedule::raster::rasterize;
use crate::device::schedule::split_k::Params;

/// Columns of C per warpgroup, which `wgmma` fixes, and per block.
const WN: u32 = 64;
const BN: u32 = WARPGROUPS * WN;
/// Consumer warpgroups; one more warp produces.
const WARPGROUPS: u32 = 2;
const CONSUMERS: u32 = WARPGROUPS * WARPGROUP;
const WARP: u32 = 32;
const THREADS: u32 = CONSUMERS + WARP;
/// Sums that a thread stores at once.
const PART: usize = 8;
/// Steps of B that a block prefetches to L2 before the launch in front has ended. All blocks
/// together ask for about what device memory delivers meanwhile.
const PREFETCHED: u32 = 2;

/// Declares a kernel, and its [`KernelDescriptor`].
macro_rules! kernels {
    ($(
        $(#[$doc:meta])*
        $descriptor:ident, $name:ident: $summary:literal, [f32; $sums:literal], $stages:literal stages,
        $blocks:literal per multiprocessor;
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
            grid: GridOrder::ColumnsAlongX,
            shared: Shared::Dynamic(|_| Storage::<$sums, $stages>::END as u64),
            unaligned: None,
            abi: KernelAbi::Tf32SplitK,
            arithmetic: Arithmetic::Tf32,
            target: Target::Sm90a,
            source: include_str!("split.rs"),
            variants: &[],
            reads_anywhere: [false; 2],
            compensates: false,
        };

        const _: () = assert!(
            $blocks * (Storage::<$sums, $stages>::END + RESERVED_SHARED_MEMORY_PER_BLOCK) <= SHARED_MEMORY_PER_MULTIPROCESSOR,
            "a multiprocessor has memory for its blocks"
        );

        /// Computes `C = epilogue(alpha * A * op(B) + beta * C)` for each product of a batch.
        ///
        /// # Safety
        /// - The parameters and the grid are as [`KernelAbi::Tf32SplitK`] says. The launch may
        ///   begin early.
        /// - Nothing else writes A or B, or touches C, during the launch.
        #[kernel(block = THREADS, min_blocks = $blocks)]
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
            depth: u32,
            partials: *mut f32,
            counters: *mut u32,
            splits: u32,
            stride_c: u64,
            options: u32,
            layout: u32,
            epilogue: Parameters,
        ) {
            let params = Params {
                m,
                n,
                k,
                alpha,
                a: core::ptr::null(),
                lda: 0,
                b: core::ptr::null(),
                ldb: 0,
                beta,
                c,
                ldc,
                depth,
                partials,
                counters,
                splits,
                stride_a: 0,
                stride_b: 0,
                stride_c,
                layout,
                epilogue,
            };
            let maps = [map_a, map_b];
            // SAFETY: the caller keeps the contract, and the block is as large as this says.
            unsafe {
                match layout & TRANSPOSED_B {
                    0 => Storage::<$sums, $stages>::gemm::<false>(params, options, maps),
                    _ => Storage::<$sums, $stages>::gemm::<true>(params, options, maps),
                }
            }
        }
    )*};
}

kernels! {
    /// For up to 128 rows or columns.
    TILE_128X128, tf32_split_128x128:
        "TF32 tensor cores with split-K, rounded by bulk copies: 128 x 128 per block",
        [f32; 64], 6 stages, 1 per multiprocessor;
    /// For up to 64 rows or columns, or a long K.
    TILE_64X128, tf32_split_64x128: "tf32_split_128x128 with 64 x 128 outputs per block",
        [f32; 32], 4 stages, 2 per multiprocessor;
    /// For up to 32 rows or columns.
    TILE_32X128, tf32_split_32x128: "tf32_split_128x128 with 32 x 128 outputs per block",
        [f32; 16], 5 stages, 2 per multiprocessor;
    /// For up to 16 rows or columns.
    TILE_16X128, tf32_split_16x128: "tf32_split_128x128 with 16 x 128 outputs per block",
        [f32; 8], 5 stages, 2 per multiprocessor;
}

/// A kernel with `SUMS` sums per thread, and the layout of its shared memory.
///
/// In order: the stages of A, those of B, and two barriers for each stage.
struct Storage<const SUMS: usize, const STAGES: u32>;

impl<const SUMS: usize, const STAGES: u32> Storage<SUMS, STAGES> {
    /// Rows of C per block: each thread of a warpgroup has `SUMS` of its sums.
    const BM: u32 = SUMS as u32 * WARPGROUP / WN;
    /// Elements of a stage.
    const STAGE_A: u32 = Self::BM * BK;
    const STAGE_B: u32 = BN * BK;
    /// Offsets in elements.
    const B_AT: u32 = STAGES * Self::STAGE_A;
    const BARRIERS_AT: u32 = Self::B_AT + STAGES * Self::STAGE_B;
    /// Bytes in all, in the worst case: PTX promises that memory begins on a multiple of 128.
    const END: u32 = Self::BARRIERS_AT * 4 + 2 * STAGES * 8 + (ALIGNMENT - 128);

    const CONSISTENT: () =
        assert!((Self::STAGE_A * 4).is_multiple_of(ALIGNMENT), "each stage begins a swizzle");

    /// Where the block's tile begins. Recomputed at each use, so that it occupies no registers
    /// before.
    #[inline(always)]
    fn block() -> (u32, u32) {
        let (width, height) = (thread::grid_dim_x(), thread::grid_dim_y());
        let (y, x) = rasterize(black_box(tile_number()), width, height);
        (y * Self::BM, x * BN)
    }

    /// # Safety
    /// As for the entry points.
    #[inline(always)]
    unsafe fn gemm<const TRANS_B: bool>(params: Params, options: u32, maps: [&TensorMap; 2])
    where
        [f32; SUMS]: Accumulator,
    {
        const { Self::CONSISTENT };
        let tid = thread::thread_idx_x();
        // SAFETY: as the launch promises; there are no addresses of A and B.
        let (params, split) = unsafe { params.of_block() };
        let (begin, end) = params.range(split);
        if begin >= end {
            // SAFETY: as the launch promises.
            unsafe { Self::store_empty(params, tid) };
            return;
        }
        let steps = (end - begin).div_ceil(BK);

        let memory = shared::dynamic_shared_mem::<f32>();
        let a_smem = memory.add(memory.address().wrapping_neg() % ALIGNMENT / 4);
        let b_smem = a_smem.add(Self::B_AT);
        let full = Mbarrier::at(a_smem.add(Self::BARRIERS_AT).cast());
        let empty = full.add(STAGES);
        // `wgmma` also reads rows that are not copied, so they need some value. Their sums are not
        // stored.
        let copied_a = Self::BM.min(params.m) * BK;
        if copied_a < Self::STAGE_A {
            for at in (tid..STAGES * Self::STAGE_A / 4).step_by(THREADS as usize) {
                // SAFETY: in the stages of A, which nobody reads or writes before the block's
                // barrier.
                unsafe { a_smem.add(at * 4).store4(0, [0.0; 4]) };
            }
            fence_proxy_async();
        }
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

        if tid >= CONSUMERS {
            if tid == CONSUMERS {
                let product = params.product();
                let step = |shared: u32| if options & shared == 0 { product } else { 0 };
                let (row, col) = Self::block();
                // The parameters of a single product have no splits.
                let is_alone = [BROADCAST_A, BROADCAST_B]
                    .map(|shared| params.splits == 0 || options & shared == 0);
                let (m, n) = (params.m, params.n);
                // The tiles of a narrow C count only the columns that exist.
                let tile = [Self::BM, n.min(BN)];
                let read_once = read_once(tile, [m.div_ceil(Self::BM), n.div_ceil(BN)], is_alone);
                // SAFETY: the one thread, behind the block's barrier; the maps are as the launch
                // promises.
                unsafe {
                    let products = [step(BROADCAST_A), step(BROADCAST_B)].map(u32::cast_signed);
                    let at = [begin, row, col].map(u32::cast_signed);
                    Self::produce::<TRANS_B>(
                        a_smem,
                        [full, empty],
                        maps,
                        at,
                        products,
                        steps,
                        copied_a,
                        read_once,
                    );
                }
                // Late, so that the next kernel's prefetches take no bandwidth from the loads of
                // this one.
                dependent_launch::launch_dependents();
            }
            return;
        }

        dependent_launch::wait();
        let (warpgroup, warp, lane) = (tid / WARPGROUP, tid / WARP % 4, warp::lane_id());
        let b_mine = b_smem.add(warpgroup * (WN * BK));
        let fragment = FragmentB::new(warp, lane);
        let elements = [Self::STAGE_A, Self::STAGE_B];
        let stages = Stages::<STAGES> { a: a_smem, b: b_mine, elements, full, empty };
        let mut acc = [0.0f32; SUMS];
        // SAFETY: a whole warpgroup; the barriers are initialised, and the producer fills `steps`
        // stages.
        unsafe {
            stages.multiply::<SUMS, TRANS_B>(PipelineState::FIRST, steps, fragment, lane, &mut acc);
        }

        // SAFETY: as the launch promises; all consumers come here, and to their barrier.
        unsafe {
            let meet = || thread::named_barrier_sync::<1, { CONSUMERS }>();
            // The stages are no longer in use.
            let flag = a_smem.cast();
            let is_last = |counters: *mut u32| is_last_of_part(split.count, counters, flag, meet);
            if split.count > 1 && !reduce_sums(params, split, Self::BM * BN, &mut acc, is_last) {
                return;
            }
            Self::store::<TRANS_B>(params, &acc);
        }
    }

    /// Fills the stages, from `begin` along K, for the tile at (`row`, `col`).
    ///
    /// # Safety
    /// - One thread calls this, once, when the barriers are initialised.
    /// - The maps are as the launch promises.
    #[inline(always)]
    unsafe fn produce<const TRANS_B: bool>(
        a_smem: shared::SharedPtr<f32>,
        [full, empty]: [Mbarrier; 2],
        maps: [&TensorMap; 2],
        [begin, row, col]: [i32; 3],
        [product_a, product_b]: [i32; 2],
        steps: u32,
        copied_a: u32,
        [once_a, once_b]: [bool; 2],
    ) {
        let along = |step: u32| begin + (step * BK).cast_signed();
        let panel = |panel: u32| col + (panel * PANEL).cast_signed();
        for step in 0..steps.min(PREFETCHED) {
            let at = along(step);
            // SAFETY: a grid constant, which describes B. A later copy sees what L2 then has.
            unsafe {
                if TRANS_B {
                    tma::prefetch_tile(maps[1], [at, col, product_b]);
                } else {
                    for i in 0..BN / PANEL {
                        tma::prefetch_tile(maps[1], [panel(i), at, product_b]);
                    }
                }
            }
        }
        dependent_launch::wait();
        let mut state = PipelineState::FIRST;
        for step in 0..steps {
            let full = full.add(state.stage);
            let at = along(step);
            let to_a = a_smem.add(state.stage * Self::STAGE_A);
            let to_b = a_smem.add(Self::B_AT + state.stage * Self::STAGE_B);
            // SAFETY: both warpgroups have said that they are done with the stage, and nobody else
            // reads or writes it.
            unsafe {
                empty.add(state.stage).wait_parity(state.parity ^ 1);
                full.arrive_expect_tx(4 * (copied_a + Self::STAGE_B));
                load_tile(to_a, maps[0], [at, row, product_a], full, once_a);
                if TRANS_B {
                    load_tile(to_b, maps[1], [at, col, product_b], full, once_b);
                } else {
                    for i in 0..BN / PANEL {
                        let to = to_b.add(i * (BK * PANEL));
                        let at = [panel(i), at, product_b];
                        load_tile(to, maps[1], at, full, once_b);
                    }
                }
            }
            state = state.next::<STAGES>();
        }
    }

    /// Stores the block's tile when its sums are empty.
    ///
    /// # Safety
    /// As for the entry points; all threads of the block call this.
    #[inline(always)]
    unsafe fn store_empty(params: Params, tid: u32) {
        // Rows of the tile per thread and turn.
        const AT_ONCE: usize = 8;
        dependent_launch::wait();
        let (row, col) = Self::block();
        // SAFETY: as the launch promises.
        let (c, transposed) = unsafe { params.output_or_transpose() };
        for at in (tid..Self::BM / AT_ONCE as u32 * BN).step_by(THREADS as usize) {
            let (row, col) = (row + at / BN * AT_ONCE as u32, col + at % BN);
            let at = |i: usize| {
                let row = row + i as u32;
                if transposed { (col, row) } else { (row, col) }
            };
            // SAFETY: elements of the block's tile, this thread's alone.
            unsafe { c.store_epilogue(params.epilogue(), false, AT_ONCE, at, [0.0; AT_ONCE]) };
        }
    }

    /// Stores a thread's sums.
    ///
    /// # Safety
    /// Whole warps call this together, and no other thread stores these elements.
    #[inline(always)]
    unsafe fn store<const TRANS_B: bool>(params: Params, acc: &[f32; SUMS]) {
        // Behind `black_box`, so that the loop along K keeps none of it in registers.
        let (tid, lane) = (black_box(thread::thread_idx_x()), black_box(warp::lane_id()));
        let (warp, (row, col)) = (tid / WARP % 4, Self::block());
        let col = col + tid / WARPGROUP * WN;
        // SAFETY: as the launch promises.
        let (c, transposed) = unsafe { params.output_or_transpose() };
        // Pairs of neighbours in a row of C. If C is transposed, these are two rows of the tile,
        // which a thread has. Otherwise they are two columns of it, for which threads exchange
        // their sums.
        let place = |lane: u32, i: u32| {
            if transposed {
                let row = row + i / 4 * 8 + lane % 4 * 2 + i % 2;
                return (col + column::<TRANS_B>(warp, lane, i / 2 % 2), row);
            }
            let row = row + i / 4 * 8 + lane / 2 % 2 * 4 + i / 2 % 2 * 2 + lane / 4 % 2;
            (row, col + column::<TRANS_B>(warp, lane & !4, lane % 2) + i % 2)
        };
        let epilogue = params.epilogue();
        let is_paired = (c.pointer as usize).is_multiple_of(8) && c.ld.is_multiple_of(2);
        // Behind `black_box`, so that the loop is not unrolled.
        for part in 0..black_box((SUMS / PART) as u32) {
            let mut values = [0.0; PART];
            for i in 0..SUMS / PART {
                // Registers have no addresses. So each part has its own moves behind a branch,
                // whose values cannot be computed ahead.
                if i as u32 == black_box(part) {
                    values = array::from_fn(|j| acc[i * PART + j]);
                    values[0] = f32::from_bits(black_box(values[0].to_bits()));
                }
            }
            // Addresses are recomputed for each part instead of kept in registers.
            let lane = black_box(lane);
            let at = |i: usize| place(lane, part * PART as u32 + i as u32);
            if !transposed {
                // SAFETY: the warp is together.
                values = unsafe { exchange(lane, values) };
            }
            if epilogue.is_some() || c.beta != 0.0 {
                // SAFETY: as the launch promises; C can also be read.
                unsafe { c.apply_epilogue(epilogue, PART, at, SourceOf::<f32>::NEW, &mut values) };
            } else {
                values = values.map(|value| c.alpha * value);
            }
            for i in (0..PART).step_by(2) {
                let (row, col) = at(i);
                let to = c.pointer.wrapping_add(row as usize * c.ld as usize + col as usize);
                if row >= c.rows {
                    continue;
                }
                // SAFETY: inside, and this thread's own. A pair is on 8 bytes, because its column
                // is even.
                unsafe {
                    if is_paired && col + 2 <= c.cols {
                        vec::store(to, [values[i], values[i + 1]]);
                        continue;
                    }
                    if col < c.cols {
                        *to = values[i];
                    }
                    if col + 1 < c.cols {
                        *to.wrapping_add(1) = values[i + 1];
                    }
                }
            }
        }
    }
}

/// Exchanges sums between four lanes, so that lanes that store together fill whole sectors.
///
/// In each block of eight rows a thread has two rows of each of two columns. Afterwards it has two
/// neighbours in each of two rows.
///
/// # Safety
/// The warp is together.
#[inline(always)]
unsafe fn exchange<const PART: usize>(lane: u32, sums: [f32; PART]) -> [f32; PART] {
    // Keeps one of `[near, far]`, sends the other, and returns both in the order of the lanes.
    let trade = |[near, far]: [f32; 2], mask: u32| {
        let is_far = lane & mask != 0;
        let (keep, send) = if is_far { (far, near) } else { (near, far) };
        // SAFETY: the caller's contract.
        let (bits, _) = unsafe { warp::warp_shuffle_xor(u32::MAX, send.to_bits(), mask, 32) };
        let got = f32::from_bits(bits);
        if is_far { [got, keep] } else { [keep, got] }
    };
    let mut values = [0.0; PART];
    for block in (0..PART).step_by(4) {
        // In each column, two rows become one row of two neighbours.
        let first = trade([sums[block], sums[block + 1]], 4);
        let last = trade([sums[block + 2], sums[block + 3]], 4);
        // Of two such pairs, eight or four columns apart, keep one. The other lane sends its pair
        // of two rows further.
        for i in 0..2 {
            [values[block + i], values[block + 2 + i]] = trade([first[i], last[i]], 1);
        }
    }
    values
}
