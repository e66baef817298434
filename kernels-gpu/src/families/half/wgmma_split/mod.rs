//! Tensor cores, `wgmma_split`: few tiles, whose sums the blocks of a cluster share.
//!
//! # The idea
//!
//! A product with 16 rows uses each element of B only 16 times. Device memory's bandwidth is the
//! limit, and full bandwidth needs every multiprocessor. But C has fewer tiles than there are
//! multiprocessors. So the blocks of a cluster share a tile:
//!
//! 1. Each block sums over its own part of K (*split-K*) and leaves the partial sums in its shared
//!    memory.
//! 2. Each block adds up its share of the tile from the shared memory of all blocks (*distributed
//!    shared memory*), and stores it.
//!
//! The order of each addition is fixed, so every run gives the same bits.
//!
//! ```text
//!            K --->
//!   rank 0   | tile, part 0 |  -- partial sums in shared memory --+--> rank 0 adds and stores 1/3 of the tile
//!   rank 1   | tile, part 1 |  -- partial sums in shared memory --+--> rank 1 ...
//!   rank 2   | tile, part 2 |  -- partial sums in shared memory --+--> rank 2 ...
//! ```
//!
//! A cluster has at most eight blocks, and the number of tiles seldom fills the multiprocessors
//! evenly. So the launch may let any number of clusters share the steps of all tiles (*stream-K*,
//! `device/schedule/cluster.rs`). Clusters that share a tile add it up in device memory
//! (`device/reduce/cluster.rs`). Without that, a block that is alone takes one whole tile after
//! another.
//!
//! # What changed
//!
//! Against [`wgmma_persistent`](crate::ladder::tensor::sm_90a::wgmma_persistent):
//!
//! - A block computes partial sums of one tile or several. The launch chooses the size of a
//!   cluster. A block that is alone with whole tiles works as there.
//! - `wgmma` multiplies 64 rows at a time, but as few as 16 columns. If C has few rows, or if a
//!   row-major B would not allow the width that is wanted, the launch computes the transpose,
//!   `C^T = B^T A^T`: the operands change places, which selects another entry point, and C is stored
//!   transposed.
//! - Registers move from the producers to the consumers where a block has several warpgroups and its
//!   multiprocessor to itself.
//! - The launch may make tiles narrower, so that they fill the multiprocessors: it says how many
//!   columns they have and how many stages fit. Each width has `wgmma` of its own.
//! - Bulk copies fetch only rows that exist, since rows out of bounds take longer. The tiles that
//!   share a dimension get equal parts of it, and so do the panels of 64 rows within them. `wgmma`
//!   multiplies the rest of a stage too, but nobody stores it.
//! - Most of shared memory is stages, so that enough bytes are in flight. With smaller tiles,
//!   two or three blocks share a multiprocessor: one loads while another adds up.
//! - Kernels whose names end in `_align1` accept an A with misaligned rows, which bulk copies
//!   cannot read. A warpgroup loads the elements instead (`device/operand/unaligned.rs`).
//! - The next kernel may begin once every block has asked for its last tiles. If there is room,
//!   that kernel prefetches its first tiles of A to L2 while this one adds up its sums.

mod main_loop;
mod producer;
mod storage;

use core::array;

use cuda_std::hint::black_box;
use cuda_std::mbarrier::{self, Mbarrier};
use cuda_std::mem::dynamic_smem_size;
use cuda_std::prelude::*;
use cuda_std::shared;
use cuda_std::sm_90a::wgmma::{Accumulator, Tile};
use cuda_std::tma::{self, TensorMap};
use cuda_std::{cluster, dependent_launch, vec};

use self::main_loop::MainLoop;
use self::producer::Pipeline;
use self::storage::Storage;
use crate::abi::epilogue::Parameters;
use crate::abi::tensor_core::options::{
    BROADCAST_A, BROADCAST_B, TRANSPOSED_C, tile_columns, tile_stages,
};
use crate::abi::tensor_core::{
    BK, MAX_STAGES, PANEL, RESERVED_SHARED_MEMORY_PER_BLOCK, SHARED_MEMORY_PER_MULTIPROCESSOR,
    even_part, variants,
};
use crate::abi::{Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target};
use crate::device::multiply::warpgroup::{ByWidth, by_width};
use crate::device::operand::unaligned::Unaligned;
use crate::device::output::matrix::Output;
use crate::device::output::places::NoColumnBias;
use crate::device::output::staging::{STAGED_SUMS, STAGING, sums_of_part};
use crate::device::output::tensor::{AT_ONCE, TensorOutput};
use crate::device::pipeline::roles::{
    WARPGROUP, WM, give_registers, moves_registers, take_registers,
};
use crate::device::pipeline::state::PipelineState;
use crate::device::pipeline::tile_load::zero_lines;
use crate::device::reduce::cluster::{Fixup, QUAD, QUAD_COLS, Share};
use crate::device::schedule::cluster::{Entry, Sequence};

/// Threads of a warp.
const WARP: u32 = 32;

/// Declares a kernel for each element type and layout, and its [`KernelDescriptor`].
macro_rules! kernels {
    ($(
        $(#[$doc:meta])*
        $descriptor:ident = $name:ident: $summary:literal,
        [f32; $sums:literal] x $warpgroups:literal, $blocks:literal per multiprocessor,
        $producers:literal producers;
    )*) => {$(
        $(#[$doc])*
        pub const $descriptor: KernelDescriptor = KernelDescriptor {
            name: stringify!($name),
            summary: $summary,
            origin: None,
            tile: crate::abi::Tile::of_fragments([$warpgroups * WM, <[f32; $sums] as Accumulator>::COLS], $warpgroups * WARPGROUP),
            block: [threads($warpgroups, $blocks, $producers), 1],
            grid: GridOrder::Linear,
            shared: Shared::Stages {
                blocks: $blocks,
                bytes: [
                    Storage::<$sums, $warpgroups, $blocks>::bytes($blocks, most_stages($producers)),
                    Storage::<$sums, $warpgroups, $blocks>::bytes(1, most_stages($producers)),
                ],
                front: match copies($producers) {
                    true => None,
                    false => Some(Storage::<$sums, $warpgroups, $blocks>::FRONT),
                },
            },
            unaligned: None,
            abi: KernelAbi::WgmmaClusters,
            arithmetic: Arithmetic::Bits16,
            target: Target::Sm90a,
            source: include_str!("mod.rs"),
            variants: variants!($name, layouts),
            reads_anywhere: [copies($producers), false],
            compensates: false,
        };
        const _: () = assert!(
            $blocks * (Storage::<$sums, $warpgroups, $blocks>::bytes($blocks, most_stages($producers))
                + RESERVED_SHARED_MEMORY_PER_BLOCK)
                <= SHARED_MEMORY_PER_MULTIPROCESSOR,
            "a multiprocessor has memory for its blocks"
        );
        const _: () = assert!($descriptor.warps_with_sums() == 4 * $warpgroups, "each has its counter");

        /// Computes `C = epilogue(alpha * op(A) * op(B) + beta * C)` for each product of a batch.
        ///
        /// # Safety
        /// - The parameters, the grid and the clusters are as [`KernelDescriptor`] says. The
        ///   launch may begin early.
        /// - Nothing else writes A or B, or touches C, during the launch.
        #[kernel(
            block = threads($warpgroups, $blocks, $producers),
            min_blocks = $blocks,
            variants(
                MN_A = false as _ | true as ta,
                MN_B = true as _ | false as tb,
                F16 = false as _ | true as f16,
            )
        )]
        pub unsafe fn $name<const MN_A: bool, const MN_B: bool, const F16: bool>(
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
            partials: *mut f32,
            counters: *mut u32,
            a: *const u16,
            lda: u32,
            stride_a: u64,
        ) {
            let output = |options: u32, ends: [u32; 2]| {
                let [rows, cols] = in_c(options, ends);
                // SAFETY: the caller keeps the contract, and there is no other output.
                unsafe {
                    let c = Output::new(c, ldc, rows, cols, alpha, beta);
                    TensorOutput::<F16>::new(c, options, epilogue)
                }
            };
            let products = Products {
                count: batch,
                stride_c,
                step_a: u32::from(options & BROADCAST_A == 0),
                step_b: u32::from(options & BROADCAST_B == 0),
                options,
            };
            let operands = Operands {
                maps: [map_a, map_b],
                unaligned: Unaligned::new(a, lda, stride_a, [k, m]),
            };
            // SAFETY: the block is as large as these numbers say.
            unsafe {
                gemm::<$sums, $warpgroups, $blocks, $producers, F16, MN_A, MN_B>(
                    [m, n, k], products, operands, output, Fixup { partials, counters },
                );
            }
        }
    )*};
}

kernels! {
    /// For products with up to 16 rows or columns.
    TILE_64X16 = wgmma_split_64x16: "split-K in clusters: 64 x 16 outputs per block, for few rows or columns",
        [f32; 8] x 1, 3 per multiprocessor, 32 producers;
    /// For up to 32 rows or columns.
    TILE_128X32 = wgmma_split_128x32: "wgmma_split_64x16 with 128 x 32 outputs per block",
        [f32; 16] x 2, 2 per multiprocessor, 32 producers;
    /// For up to 64 rows or columns.
    TILE_64X64 = wgmma_split_64x64: "wgmma_split_64x16 with 64 x 64 outputs per block",
        [f32; 32] x 1, 3 per multiprocessor, 32 producers;
    /// For up to 128 rows or columns, and few of the other.
    TILE_64X128 = wgmma_split_64x128: "wgmma_split_64x16 with 64 x 128 outputs per block",
        [f32; 64] x 1, 2 per multiprocessor, 32 producers;
    /// For up to 192 rows or columns, and few of the other.
    TILE_64X192 = wgmma_split_64x192: "wgmma_split_64x16 with 64 x 192 outputs per block",
        [f32; 96] x 1, 1 per multiprocessor, 32 producers;
    /// For up to 256 rows or columns.
    TILE_128X256 = wgmma_split_128x256: "wgmma_split_64x16 with 128 x 256 outputs per block",
        [f32; 128] x 2, 1 per multiprocessor, 32 producers;
    /// For larger squares.
    TILE_192X192 = wgmma_split_192x192: "wgmma_split_64x16 with 192 x 192 outputs per block",
        [f32; 96] x 3, 1 per multiprocessor, 32 producers;
    /// For an A with misaligned rows, with up to 16 rows or columns.
    TILE_64X16_ALIGN1 = wgmma_split_64x16_align1: "split-K in clusters, of an A whose rows need not begin on 16 bytes: 64 x 16 outputs per block",
        [f32; 8] x 1, 2 per multiprocessor, 128 producers;
    /// For an A with misaligned rows, with up to 32 rows or columns.
    TILE_64X32_ALIGN1 = wgmma_split_64x32_align1: "wgmma_split_64x16_align1 with 64 x 32 outputs per block",
        [f32; 16] x 1, 2 per multiprocessor, 128 producers;
    /// For an A with misaligned rows, with up to 64 rows or columns.
    TILE_64X64_ALIGN1 = wgmma_split_64x64_align1: "wgmma_split_64x16_align1 with 64 x 64 outputs per block",
        [f32; 32] x 1, 2 per multiprocessor, 128 producers;
}

/// The products of a launch.
#[derive(Clone, Copy)]
struct Products {
    count: u32,
    /// Elements from one C to the next.
    stride_c: u64,
    /// Step of A from one product to the next, in its map's third dimension: 0 if all share one A.
    step_a: u32,
    step_b: u32,
    /// See [`options`](crate::abi::tensor_core::options).
    options: u32,
}

/// A pair of a row and a column of the product, in the order in which C has them.
#[inline(always)]
const fn in_c(options: u32, [row, col]: [u32; 2]) -> [u32; 2] {
    if options & TRANSPOSED_C != 0 { [col, row] } else { [row, col] }
}

/// A and B: both from bulk copies, or A from the producers' own loads.
#[derive(Clone, Copy)]
struct Operands<'a, const MN_A: bool> {
    maps: [&'a TensorMap; 2],
    unaligned: Unaligned<MN_A>,
}

/// Whether the producers copy A themselves: then they are a whole warpgroup.
const fn copies(producers: u32) -> bool {
    producers == WARPGROUP
}

/// Whether registers move from the producers to the consumers: otherwise those are short.
const fn moves(warpgroups: u32, blocks: u32) -> bool {
    blocks == 1 && moves_registers(warpgroups)
}

/// Threads of a block. Registers move between whole warpgroups.
const fn threads(warpgroups: u32, blocks: u32, producers: u32) -> u32 {
    warpgroups * WARPGROUP + if moves(warpgroups, blocks) { WARPGROUP } else { producers }
}

/// The most stages of a block with this number of producers.
///
/// Producers that copy A hold it in registers until a stage is free. They want the rest of the
/// memory as L1 cache, since several threads load parts of one line.
const fn most_stages(producers: u32) -> u32 {
    if copies(producers) { 3 } else { MAX_STAGES }
}

/// The kernel: `WARPGROUPS` consumer warpgroups and `PRODUCERS` producing threads per block.
///
/// Each warpgroup has 64 rows of a tile of C, in `SUMS` accumulators per thread. `BLOCKS` blocks
/// share a multiprocessor.
///
/// # Safety
/// As for [`wgmma_split_64x16()`]. The block is `WARPGROUPS` warpgroups and `PRODUCERS` threads
/// more.
#[inline(always)]
unsafe fn gemm<
    const SUMS: usize,
    const WARPGROUPS: u32,
    const BLOCKS: u32,
    const PRODUCERS: u32,
    const F16: bool,
    const MN_A: bool,
    const MN_B: bool,
>(
    [m, n, k]: [u32; 3],
    products: Products,
    operands: Operands<MN_A>,
    output: impl Fn(u32, [u32; 2]) -> TensorOutput<F16>,
    fixup: Fixup,
) where
    [f32; SUMS]: Accumulator,
{
    let bm = Storage::<SUMS, WARPGROUPS, BLOCKS>::BM;
    let most_cols = Storage::<SUMS, WARPGROUPS, BLOCKS>::BN;
    let stage_a = Storage::<SUMS, WARPGROUPS, BLOCKS>::STAGE_A;
    let tid = thread::thread_idx_x();
    let (rank, splits) = (cluster::cluster_ctarank(), cluster::cluster_nctarank().max(1));
    let index = thread::block_idx_x() / splits;
    // Columns that `wgmma` multiplies, and those of them that are copied.
    let bn = if copies(PRODUCERS) { most_cols } else { tile_columns(products.options) };
    let cols = if MN_B { bn } else { even_part(n, bn) };
    // Recomputed at each use, so that it occupies no registers in between.
    let sequence = || {
        let (m, count) = (black_box(m), black_box(products.count));
        Sequence::new([m, n, k], [bm, bn], count, splits, !fixup.partials.is_null())
    };
    if k == 0 {
        dependent_launch::wait();
        // A path of its own: a second path to the accumulators would make `ptxas` serialise all
        // `wgmma`.
        let threads = threads(WARPGROUPS, BLOCKS, PRODUCERS) as usize;
        let mut tile = index;
        while tile < sequence().tiles() {
            for at in (tid..bm / AT_ONCE as u32 * bn).step_by(threads) {
                // Recomputed for each vector instead of kept in registers.
                let [product, y, x] = sequence().place(black_box(tile));
                let options = black_box(products.options);
                let c = output(options, [black_box(m), n]).of_product(product, products.stride_c);
                let (row, col) = (y * bm + at / bn * AT_ONCE as u32, x * bn + at % bn);
                // SAFETY: elements of the cluster's tile, this thread's alone, or those of blocks
                // that store the same.
                unsafe { c.store_empty(|i| in_c(options, [row + i as u32, col]).into()) };
            }
            tile += thread::grid_dim_x() / splits;
        }
        return;
    }
    let memory = shared::dynamic_shared_mem::<u8>();
    // From a parameter, so that it is in a uniform register, and so is all that follows from it.
    let stages = match copies(PRODUCERS) {
        true => Storage::<SUMS, WARPGROUPS, BLOCKS>::stages(dynamic_smem_size()),
        false => tile_stages(products.options),
    };
    let stages_at = Storage::<SUMS, WARPGROUPS, BLOCKS>::stages_at(memory.address());
    let smem = memory.add(stages_at).cast::<u16>();
    let stage_elements = stage_a + bn * BK;
    let full = Mbarrier::at(memory.cast());
    let empty = Mbarrier::at(memory.add(Storage::<SUMS, WARPGROUPS, BLOCKS>::EMPTY_AT).cast());
    let read = Mbarrier::at(memory.add(Storage::<SUMS, WARPGROUPS, BLOCKS>::READ_AT).cast());
    let said = memory.add(Storage::<SUMS, WARPGROUPS, BLOCKS>::SAID_AT).cast();
    let staging = memory.add(Storage::<SUMS, WARPGROUPS, BLOCKS>::STAGING_AT).cast();
    let entries = Entry(memory.add(Storage::<SUMS, WARPGROUPS, BLOCKS>::ENTRIES_AT).cast());
    // Boxes of K-major operands have only the rows that are there: out-of-bounds rows take longer
    // to copy. `wgmma` also reads the other lines of a stage. They are zero at first, and may hold
    // old sums later; nobody stores what comes of them.
    let rows = if MN_A || copies(PRODUCERS) { WM } else { even_part(m, WM) };
    let threads = threads(WARPGROUPS, BLOCKS, PRODUCERS);
    for stage in 0..stages {
        let stage = smem.add(stage * stage_elements);
        // SAFETY: in the stages, which nobody reads or writes before the block's barrier.
        unsafe {
            zero_lines(stage, WARPGROUPS, [rows, WM], threads);
            zero_lines(stage.add(stage_a), 1, [cols, bn], threads);
        }
    }
    tma::fence_proxy_async();
    if tid == 0 {
        // SAFETY: one thread, once, before the block's barrier; both are grid constants.
        unsafe {
            // Behind `black_box`, so that the loop is not unrolled completely.
            for stage in 0..black_box(stages) {
                // The leading producer arrives for the bytes that it asks for; so does each warp that
                // copies A.
                full.add(stage).init(if copies(PRODUCERS) { 1 + PRODUCERS / WARP } else { 1 });
                // A thread of each warp with sums.
                empty.add(stage).init(4 * WARPGROUPS);
            }
            for entry in 0..2 {
                read.add(entry).init(4 * WARPGROUPS);
            }
            if !copies(PRODUCERS) {
                tma::prefetch(operands.maps[0]);
            }
            tma::prefetch(operands.maps[1]);
        }
        mbarrier::fence_init();
    }
    thread::sync_threads();

    // SAFETY: whole warps.
    if unsafe { uniform(tid / WARPGROUP) } == WARPGROUPS {
        if const { moves(WARPGROUPS, BLOCKS) } {
            // SAFETY: a whole warpgroup, the block's last. The others take what it gives.
            unsafe { give_registers::<WARPGROUPS>() };
        }
        let thread = tid % WARPGROUP;
        // SAFETY: whole warps.
        let is_first_warp = unsafe { uniform(thread / WARP) } == 0;
        if is_first_warp || copies(PRODUCERS) {
            // Elected, and not `thread == 0`: so `ptxas` knows that one thread asks for copies, and
            // puts no loop over lanes around them.
            // SAFETY: whole warps.
            let leads = is_first_warp && unsafe { warp::elect_sync(u32::MAX) };
            let pipeline = Pipeline { stages, smem, bn, full, empty, read, entries, leads };
            // SAFETY: the first producing warp, or all producers if they copy, behind the block's
            // barrier. A and B are as the launch promises.
            unsafe {
                pipeline.fill::<SUMS, WARPGROUPS, BLOCKS, PRODUCERS, MN_A, MN_B>(
                    sequence,
                    [index, rank, splits],
                    products,
                    operands,
                    [m, rows, cols],
                    thread,
                );
            }
            if leads {
                // Late, so that the next kernel's prefetches take no bandwidth from the loads of
                // this one.
                dependent_launch::launch_dependents();
            }
        }
        // The cluster's barriers do not wait for threads that have returned.
        return;
    }

    if const { moves(WARPGROUPS, BLOCKS) } {
        // SAFETY: each of the other warpgroups, once.
        unsafe { take_registers::<WARPGROUPS>() };
    }
    dependent_launch::wait();
    let lane = warp::lane_id();
    let (mut state, mut number) = (PipelineState::FIRST, 0);
    loop {
        let mut acc = [0.0f32; SUMS];
        let entry = entries.of(number);
        // SAFETY: the producer writes the entry before it fills the tile's first stage, and lets
        // it be. Whole warps come here.
        let (steps, panel) = unsafe {
            full.add(state.stage).wait_parity(state.parity);
            // Rows that do not exist are not copied; a warpgroup without any repeats the last.
            let panel = match WARPGROUPS {
                1 => 0,
                _ => (tid / WARPGROUP).min(entry.last_panel()),
            };
            (uniform(entry.steps()), uniform(panel))
        };
        let (a, b) = (smem.add(panel * (WM * BK)), smem.add(stage_a));
        let sum_up = MainLoop::<F16, MN_A, MN_B> {
            first: (
                Tile::at(a),
                Tile::with_lines(
                    b,
                    if MN_B { Storage::<SUMS, WARPGROUPS, BLOCKS>::PANEL } else { PANEL },
                ),
            ),
            stage_elements,
            stages,
            full,
            empty,
            state: &mut state,
            steps,
        };
        // SAFETY: whole warpgroups come here, with a tile's first stage.
        unsafe {
            match copies(PRODUCERS) {
                true => sum_up.on(&mut acc),
                // Panels of a row-major B are copied whole.
                false if MN_B => by_width::<SUMS, PANEL>(&mut acc, bn, sum_up),
                false => by_width::<SUMS, 16>(&mut acc, bn, sum_up),
            }
        }
        // Behind `black_box`, so that the loop along K keeps none of it in registers.
        let (options, warp, lane) =
            (black_box(products.options), black_box(tid) / WARP, black_box(lane));
        let cols = match copies(PRODUCERS) {
            // Computed again, since registers are short.
            true if !MN_B => even_part(black_box(n), bn),
            true => bn,
            // SAFETY: the entry has been written. It stays until all warps have arrived at `read`,
            // or until the producer has passed the next tile's second barrier.
            false => unsafe { uniform(entry.cols()) },
        };
        let share = || Share::new([black_box(warp), black_box(lane)], cols, [rank, splits]);
        let sums = smem.cast::<f32>();
        if splits > 1 {
            let own = share();
            // SAFETY:
            // - All consumers, and nobody else, meet: all copies arrived and were read.
            // - Each thread stores its own sums, on 16 bytes. Nobody still reads those of an
            //   earlier tile, since all have waited for the cluster.
            // - All blocks of the cluster have stored their sums when they are added up, and
            //   none leaves, or stores others, before the barrier below.
            unsafe {
                consumers_meet::<WARPGROUPS>();
                own.store_own(&acc, |at, quad| sums.store_vec(at, quad));
                cluster::sync();
                own.add_up_cluster::<SUMS>(sums, [rank, splits]);
                if entry.is_last() {
                    // Others wait only until this thread has read their sums.
                    cluster::arrive();
                }
            }
            // The sums are in shared memory now. Zeros free their registers.
            acc = [0.0; SUMS];
        }
        let mut is_last_part = true;
        // SAFETY: as above.
        if let Some(part) = unsafe { entry.part() } {
            // SAFETY:
            // - Each thread stores its own sums, or its share of the cluster's, on 16 bytes.
            // - Whole warps arrive. Each cluster has a counter for each warp of each of its blocks.
            // - The last warp to arrive adds up the parts. Each lane reads what the same lanes of
            //   other clusters have stored.
            unsafe {
                let (share, to) = (share(), fixup.part(bm * bn, part));
                let store = |at: u32, quad| vec::store4(to.wrapping_add(at as usize), quad);
                match splits {
                    1 => share.store_own(&acc, store),
                    _ => share.store_total(sums, store),
                }
                let clusters @ [first, last] = entry.clusters();
                let counter = (first * splits + rank) * (4 * WARPGROUPS) + warp;
                is_last_part = fixup.arrive(counter, last - first, said.add(uniform(warp)));
                if is_last_part && splits == 1 {
                    acc = share.add_up_own(fixup, bm * bn, clusters);
                } else if is_last_part {
                    share.add_up_parts(fixup, bm * bn, clusters, sums);
                }
            }
        }
        // SAFETY: as above.
        let (product, [row, col]) = unsafe { entry.place() };
        let c = || {
            let panel_row = row + black_box(warp) / 4 * rows;
            let ends = [black_box(m).min(panel_row + rows), black_box(n).min(col + cols)];
            output(black_box(options), ends).of_product(black_box(product), products.stride_c)
        };
        let (down, strip) = (row + warp / 4 * rows + warp % 4 * 16, staging.add(warp * STAGING));
        let transposed = options & TRANSPOSED_C != 0;
        if is_last_part && splits == 1 && c().is_simple::<NoColumnBias>(transposed) {
            let (at, acc) = ([down, col], array::from_ref(&acc));
            // SAFETY: whole warps, each with its own memory and sums. Nobody else stores these
            // elements.
            unsafe {
                c().store_simple::<WM, true, false, _, _, _>(
                    transposed,
                    at,
                    lane,
                    strip,
                    NoColumnBias,
                    acc,
                );
            }
        } else if is_last_part {
            // The quads of 32 columns at a time.
            let each = if SUMS < STAGED_SUMS { SUMS } else { STAGED_SUMS } as u32 / QUAD;
            let Share { begin, end, .. } = share();
            let mut quad = begin;
            while quad < end {
                // Addresses are recomputed for each part instead of kept in registers.
                let (share, lane, down) = (share(), black_box(lane), black_box(down));
                let options = black_box(options);
                let mut part = [0.0; STAGED_SUMS];
                // SAFETY: the quads are this thread's own, on 16 bytes. No other warp stores these
                // elements.
                unsafe {
                    if splits == 1 {
                        let sums =
                            sums_of_part(array::from_ref(&acc), each as usize * 4, quad / each);
                        part = array::from_fn(|i| sums[i]);
                    } else {
                        for i in 0..each {
                            if quad + i < share.end {
                                let quad: [f32; 4] = sums.load_vec(share.at(quad + i));
                                for j in 0..4 {
                                    part[i as usize * 4 + j] = quad[j];
                                }
                            }
                        }
                    }
                    let ends = [u32::MAX, col + end * QUAD_COLS];
                    let place = [down, col + quad * QUAD_COLS];
                    let transposed = options & TRANSPOSED_C != 0;
                    let c = c().cut(in_c(options, ends));
                    if c.is_simple::<NoColumnBias>(transposed) {
                        let (bias, part) = (NoColumnBias, &[part]);
                        c.store_simple::<WM, true, false, _, _, _>(
                            transposed, place, lane, strip, bias, part,
                        );
                    } else {
                        c.store_part(transposed, place, lane, strip, part);
                    }
                }
                quad += each;
            }
        }
        if splits > 1 {
            // No block leaves, or stores its next sums, before the others have read these. The
            // producer may then write the other entry, and the stages over the sums; it writes this
            // entry only behind the second barrier of the next tile.
            // SAFETY: each thread arrives once, here or above, and waits once.
            unsafe {
                if !entry.is_last() {
                    cluster::arrive();
                }
                cluster::wait();
            }
        }
        // SAFETY: as above; whole warps.
        if unsafe { uniform(entry.is_last().into()) } != 0 {
            break;
        }
        if splits == 1 {
            // SAFETY: whole warps; one thread of each arrives.
            unsafe {
                warp::sync_warp(u32::MAX);
                if lane == 0 {
                    read.add(number % 2).arrive();
                }
            }
        }
        number += 1;
    }
}

/// A value that is the same in all lanes, in a uniform register.
///
/// A value of a thread may differ between lanes, as far as the compiler knows, and then a loop that
/// depends on it has no uniform registers (`NOTES.md`, "Uniform registers").
///
/// # Safety
/// Whole warps come here.
#[inline(always)]
unsafe fn uniform(value: u32) -> u32 {
    let value = if warp::lane_id() == 0 { value } else { 0 };
    // SAFETY: the caller's contract.
    unsafe { warp::warp_reduce(u32::MAX, value, warp::WarpReductionOp::Or) }
}

/// A barrier of the consumer warpgroups.
///
/// # Safety
/// All consumer threads come to it, and nobody else.
#[inline(always)]
unsafe fn consumers_meet<const WARPGROUPS: u32>() {
    // SAFETY: the caller's contract.
    unsafe {
        match WARPGROUPS {
            1 => thread::named_barrier_sync::<1, { WARPGROUP }>(),
            2 => thread::named_barrier_sync::<1, { 2 * WARPGROUP }>(),
            _ => thread::named_barrier_sync::<1, { 3 * WARPGROUP }>(),
        }
    }
}
