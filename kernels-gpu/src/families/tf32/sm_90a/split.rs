//! TF32 by bulk copies, with K split: for few rows, or few columns.
//!
//! # The idea
//!
//! A product of 16 rows reads each element of B for 16 operations: how fast device memory is read is what limits it, and for that
//! all multiprocessors must read at once. There are too few tiles of C for all of them, so that several blocks share each, every
//! one with its part of K (*split-K*).
//!
//! # What changed
//!
//! Against [`tma`](super::tma), which computes `C^T = B^T * A^T` likewise, with 64 columns of C for each warpgroup:
//!
//! - A tile has as few rows of C as 16, and a block computes one of them, or with split-K a part of
//!   its sum. The last block of a tile to finish, by an atomic counter, adds up the parts, always in the same order.
//! - Two blocks share a multiprocessor, but for the largest tile: one loads while the other one stores, or adds up.
//! - C may lie as its transpose: the launch has A and B change places where C has few columns.
//! - Of A no more rows are copied than there are: rows outside of a matrix take the copy engine longer than others.
//! - The first tiles of B are brought to the L2 cache while the launch in front ends.
//!
//! # What should get better, and what comes next
//!
//! A step along K is a bulk copy of 16 KB of B, of which a multiprocessor has ten in flight. An A that lies as its transpose is
//! copied first, which takes little where it has few rows.

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
use crate::device::schedule::raster::swizzle;
use crate::device::schedule::split_k::Params;

/// Columns of C of a warpgroup, which `wgmma` sets, and of a block.
const WN: u32 = 64;
const BN: u32 = WARPGROUPS * WN;
/// Consumer warpgroups; one more warp produces.
const WARPGROUPS: u32 = 2;
const CONSUMERS: u32 = WARPGROUPS * WARPGROUP;
const WARP: u32 = 32;
const THREADS: u32 = CONSUMERS + WARP;
/// Sums that are stored at once.
const PART: usize = 8;
/// Steps of B that a block has brought to the L2 cache before the launch in front has ended: all blocks together about what
/// device memory delivers meanwhile.
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
        };

        const _: () = assert!(
            $blocks * (Storage::<$sums, $stages>::END + RESERVED_SHARED_MEMORY_PER_BLOCK) <= SHARED_MEMORY_PER_MULTIPROCESSOR,
            "a multiprocessor has memory for its blocks"
        );

        /// `C = epilogue(alpha * A * op(B) + beta * C)`, of each product of a batch.
        ///
        /// # Safety
        /// - The parameters and the grid are as [`KernelAbi::Tf32SplitK`] says. The launch may begin early.
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
    /// With up to 128 rows, or columns.
    TILE_128X128, tf32_split_128x128:
        "TF32 tensor cores with split-K, rounded by bulk copies: 128 x 128 per block",
        [f32; 64], 6 stages, 1 per multiprocessor;
    /// With up to 64, or a long K.
    TILE_64X128, tf32_split_64x128: "tf32_split_128x128 with 64 x 128 outputs per block",
        [f32; 32], 4 stages, 2 per multiprocessor;
    /// With up to 32.
    TILE_32X128, tf32_split_32x128: "tf32_split_128x128 with 32 x 128 outputs per block",
        [f32; 16], 5 stages, 2 per multiprocessor;
    /// With up to 16.
    TILE_16X128, tf32_split_16x128: "tf32_split_128x128 with 16 x 128 outputs per block",
        [f32; 8], 5 stages, 2 per multiprocessor;
}

/// A kernel with `SUMS` sums per thread, and what lies in shared memory: the stages of A, those of B, and two
/// barriers for each stage.
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
    /// Bytes of all of it, wherever it begins: PTX promises a multiple of 128.
    const END: u32 = Self::BARRIERS_AT * 4 + 2 * STAGES * 8 + (ALIGNMENT - 128);

    const CONSISTENT: () =
        assert!((Self::STAGE_A * 4).is_multiple_of(ALIGNMENT), "each stage begins a swizzle");

    /// Where the block's tile begins, worked out where it is needed: so it takes no registers before.
    #[inline(always)]
    fn block() -> (u32, u32) {
        let (width, height) = (thread::grid_dim_x(), thread::grid_dim_y());
        let (y, x) = swizzle(black_box(tile_number()), width, height);
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
        // What is not copied belongs to rows that are not stored, but is read, and so must have some value.
        let copied_a = Self::BM.min(params.m) * BK;
        if copied_a < Self::STAGE_A {
            for at in (tid..STAGES * Self::STAGE_A / 4).step_by(THREADS as usize) {
                // SAFETY: in the stages of A, of which nobody reads or writes anything before the block's barrier.
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
                // One product has no splits in its parameters.
                let is_alone = [BROADCAST_A, BROADCAST_B]
                    .map(|shared| params.splits == 0 || options & shared == 0);
                let (m, n) = (params.m, params.n);
                // Of a narrow C the tiles are as narrow, as far as there is anything in them.
                let tile = [Self::BM, n.min(BN)];
                let read_once = read_once(tile, [m.div_ceil(Self::BM), n.div_ceil(BN)], is_alone);
                // SAFETY: the one thread, behind the block's barrier; the maps are as the launch promises.
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
                // What the next kernel brings to L2 does not take device memory's time from what this one still asks for.
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
        // SAFETY: a whole warpgroup; the barriers are initialised, and the producer fills as many stages.
        unsafe {
            stages.multiply::<SUMS, TRANS_B>(PipelineState::FIRST, steps, fragment, lane, &mut acc);
        }

        // SAFETY: as the launch promises; all consumers come here, and to their barrier.
        unsafe {
            let meet = || thread::named_barrier_sync::<1, { CONSUMERS }>();
            // No stage is used any more.
            let flag = a_smem.cast();
            let is_last = |counters: *mut u32| is_last_of_part(split.count, counters, flag, meet);
            if split.count > 1 && !reduce_sums(params, split, Self::BM * BN, &mut acc, is_last) {
                return;
            }
            Self::store::<TRANS_B>(params, &acc);
        }
    }

    /// Fills the stages, from `at` on: along K, and the row and the column of the tile.
    ///
    /// # Safety
    /// One thread calls this, once, when the barriers are initialised. The maps are as the launch promises.
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
            // SAFETY: a grid constant, which describes B; a later copy sees what is in L2 then.
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

    /// Stores what becomes of sums of nothing.
    ///
    /// # Safety
    /// As for the entry points; all threads of the block call this.
    #[inline(always)]
    unsafe fn store_empty(params: Params, tid: u32) {
        // Rows of the tile that a thread takes at once.
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
        // What follows is not kept in registers during the loop along K.
        let (tid, lane) = (black_box(thread::thread_idx_x()), black_box(warp::lane_id()));
        let (warp, (row, col)) = (tid / WARP % 4, Self::block());
        let col = col + tid / WARPGROUP * WN;
        // SAFETY: as the launch promises.
        let (c, transposed) = unsafe { params.output_or_transpose() };
        // Pairs of neighbours in a row of C: of the tile's rows where C is transposed, and else of its columns, for which
        // threads exchange their sums.
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
        // Not known to the compiler, so that the loop is not unrolled.
        for part in 0..black_box((SUMS / PART) as u32) {
            let mut values = [0.0; PART];
            for i in 0..SUMS / PART {
                // Registers have no addresses: each part has moves of its own, behind a branch, since what
                // is in it cannot be computed ahead.
                if i as u32 == black_box(part) {
                    values = array::from_fn(|j| acc[i * PART + j]);
                    values[0] = f32::from_bits(black_box(values[0].to_bits()));
                }
            }
            // Nor are addresses kept in registers from one part to the next.
            let lane = black_box(lane);
            let at = |i: usize| place(lane, part * PART as u32 + i as u32);
            if !transposed {
                // SAFETY: the warp is together.
                values = unsafe { exchange(lane, values) };
            }
            if epilogue.is_some() || c.beta != 0.0 {
                // SAFETY: as the launch promises; C can be read as well.
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
                // SAFETY: inside, this thread's own, and where there are two, on 8 bytes: columns of pairs are even.
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

/// Of the sums of blocks of eight rows, two rows in two columns of each, those of two neighbours in two rows:
/// four lanes exchange them, so that those which store together have whole sectors.
///
/// # Safety
/// The warp is together.
#[inline(always)]
unsafe fn exchange<const PART: usize>(lane: u32, sums: [f32; PART]) -> [f32; PART] {
    // What this lane has of `[near, far]` and what the other one sends, in the order of the lanes.
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
        // Of each column two rows become one row of two neighbours.
        let first = trade([sums[block], sums[block + 1]], 4);
        let last = trade([sums[block + 2], sums[block + 3]], 4);
        // Of two such pairs, eight or four columns apart, one, and the other lane's of two rows further.
        for i in 0..2 {
            [values[block + i], values[block + 2 + i]] = trade([first[i], last[i]], 1);
        }
    }
    values
}
