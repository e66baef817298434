//! Rung 18, `persistent`: one block per multiprocessor, each with an equal share of the work.
//!
//! # The idea
//!
//! A grid with a block per tile has two losses:
//!
//! - While a block stores its tile, nothing is copied or multiplied.
//! - In the last wave of blocks most multiprocessors may have nothing to do.
//!
//! So the grid has one block per multiprocessor, which computes one tile after the other (a
//! *persistent* block). The producers fill the pipeline with the next tile while the consumers
//! store the last one. The tiles of the last wave are cut up along K, so that all blocks end at the
//! same time (*stream-K*):
//!
//! ```text
//!   a block per tile                      persistent blocks, stream-K
//!   SM 0  | tile 0 |st| tile 3 |st|       SM 0  | tile 0    | tile 1 ..|
//!   SM 1  | tile 1 |st| tile 4 |st|       SM 1  |..1 | tile 2   | 3 .. |
//!   SM 2  | tile 2 |st|  idle             SM 2  |.. tile 3 | tile 4    |
//!
//!   producers  --> mailbox --> consumers: which tile, how many steps
//!              --> full[stage] ------->
//!              <-- empty[stage] <------
//! ```
//!
//! # What changed
//!
//! Against `warp_specialized`:
//!
//! - There is a loop over work tiles. The producers run the scheduler (see `stream_k`), and write
//!   each work tile to a mailbox in shared memory. Consumers that did that arithmetic had too few
//!   registers.
//! - Fix-up: blocks that share a tile add up their partial sums through global memory.
//! - After a number of steps a partial sum is stored and a new one begun, because the error grows
//!   with the length of a sum.
//! - A transposed A arrives as it is needed, and nobody transposes it.
//! - A stage is released half a tile later. So it needs no `fence.proxy.async`, whose cost is
//!   1 %: see ARRIVALS_TO_RELEASE.
//! - Only the loop's own values stay in registers during the loop. With 40 more that wait for the
//!   end of the tile, the assembler's result was luck: fragments came late, or sums lay in the
//!   wrong bank.
//! - The register file has two banks, for even and for odd registers. Fragments arrive in quads, so
//!   that `a[i]` is in bank `i % 2`. Stream-K's partial sums access the accumulators of a column in
//!   swapped pairs. That leads the assembler to keep each sum in the bank where its `a[i]` is not.
//!
//! # What should get better, and what comes next
//!
//! This rung is faster than cuBLAS: `NOTES.md` tells how it got there, `runs/` has the
//! measurements. Two limits are left:
//!
//! - The register file: an FMA can read one register of each bank per cycle. It needs three when
//!   the reuse cache has neither factor, for example after the scheduler issued from its other
//!   warp.
//! - The loads of fragments: 24 registers for 128 FMAs.

use cuda_std::hint::black_box;
use cuda_std::prelude::*;
use cuda_std::tma::TensorMap;

use crate::abi::layout::TRANSPOSED_A;
use crate::abi::{
    Arithmetic, GridOrder, KernelAbi, KernelDescriptor, Shared, Target, Tile, epilogue,
};
use crate::device::multiply::thread_tile::{Fragments, THREADS, TM, TN, ThreadTile};
use crate::device::output::matrix::Output;
use crate::device::output::thread_tile::{STAGE_OUT, store_epilogue, store_tile};
use crate::device::pipeline::dependent_launch;
use crate::device::pipeline::f32_stages::{
    BK, BM, BN, PIPELINE_END, STAGES, SharedStorage, TileNumber,
};
use crate::device::reduce::stream_k::Fixup;
use crate::device::schedule::raster::rasterize;
use crate::device::schedule::stream_k::{MailboxEntry, Scheduler, TilePlace};

/// Threads that compute, and threads that fill the pipeline.
const CONSUMERS: u32 = THREADS;
const PRODUCERS: u32 = 128;
/// Steps along K that the loop spells out, and how often it does so for a tile.
const PART: u32 = 8;
const PARTS: u32 = BK / PART;
/// Entries of the mailbox. Each is for a tile or more, and the producers are at most STAGES tiles
/// ahead.
const ENTRIES: u32 = 8;

/// Arrivals of a consumer thread that pass before the copy engine may overwrite a tile.
///
/// They are counted from the thread's last load of the tile: one for the tile itself, and those for
/// the next tile.
///
/// PTX orders the loads before the copy only by `fence.proxy.async`, which costs 1 % here. Without
/// the fence this rests on the machine. A warp issues its instructions in order, and an instruction
/// that uses a loaded value waits for the load. So the values must be used before the last of these
/// arrivals. In the source they are. `cargo xtask build-ptx` checks in the disassembly that the
/// assembler leaves it so, wherever there are ptxas and cuobjdump, as in CI. Nobody checks the
/// driver's own assembler.
pub const ARRIVALS_TO_RELEASE: u32 = 1 + PARTS;

/// Offsets in shared memory, in elements.
const WORD_AT: u32 = PIPELINE_END;
const MAILBOX_AT: u32 = WORD_AT + 1;
const OUT_AT: u32 = (MAILBOX_AT + ENTRIES * MailboxEntry::WORDS).next_multiple_of(4);

const _: () = assert!(BM == PRODUCERS, "each producer thread transposes four columns of four rows");
const _: () = assert!(BK.is_multiple_of(PART) && PART.is_multiple_of(2), "whole parts");
const _: () = assert!((STAGES * PARTS).is_power_of_two(), "counted in 32 bits, round and round");
const _: () = assert!(ENTRIES > STAGES, "none is replaced before its work tile is stored");

/// What the host needs to launch [`persistent()`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "persistent",
    summary: "a block per multiprocessor goes from tile to tile; stream-K with fix-up",
    origin: None,
    tile: Tile { bm: BM, bn: BN, bk: BK, tm: TM, tn: TN },
    block: [CONSUMERS + PRODUCERS, 1],
    grid: GridOrder::Persistent,
    shared: Shared::Dynamic(|_| (OUT_AT + CONSUMERS / 32 * STAGE_OUT) as u64 * 4),
    unaligned: None,
    abi: KernelAbi::StreamK,
    arithmetic: Arithmetic::Fma,
    target: Target::Sm90a,
    source: include_str!("persistent.rs"),
    variants: &[],
    reads_anywhere: [false; 2],
    compensates: false,
};

/// Computes `C = epilogue(alpha * A * B + beta * C)` for each product of a batch.
///
/// # Safety
/// - The parameters and the grid are as [`KernelAbi::StreamK`] says.
/// - Nothing else writes A, B or what the epilogue reads, or touches C and the workspace, during
///   the launch.
#[kernel(block = CONSUMERS + PRODUCERS, min_blocks = 1)]
pub unsafe fn persistent(
    m: u32,
    n: u32,
    k: u32,
    alpha: f32,
    #[grid_constant] map_a: &TensorMap,
    #[grid_constant] map_b: &TensorMap,
    beta: f32,
    c: *mut f32,
    ldc: u32,
    stream_k_tiles: u32,
    accumulation_steps: u32,
    partials: *mut f32,
    counters: *mut u32,
    layout: u32,
    batch: u32,
    step_a: u32,
    step_b: u32,
    stride_c: u64,
    epilogue: epilogue::Parameters,
) {
    let tid = thread::thread_idx_x();
    let (warp, lane) = (tid / 32, warp::lane_id());
    let (width, height) = (n.div_ceil(BN), m.div_ceil(BM));
    let place = |tile: u32| {
        let product = tile / (width * height).max(1);
        let (y, x) = rasterize(tile - product * (width * height), width, height);
        TilePlace { product, row: y * BM, col: x * BN }
    };
    let scheduler = Scheduler {
        tiles: width * height * batch,
        steps: k.div_ceil(BK),
        stream_k_tiles,
        accumulation_steps,
    };

    let storage = SharedStorage::new();
    let word = storage.a.add(WORD_AT).cast();
    let mailbox = storage.a.add(MAILBOX_AT).cast();
    if tid == 0 {
        // SAFETY: one thread, once, before the block's barrier.
        unsafe { storage.init(PRODUCERS, CONSUMERS * PARTS) };
    }
    thread::sync_threads();
    dependent_launch::begin();
    let mut work_tiles = scheduler.work_tiles();

    if warp >= CONSUMERS / 32 {
        // SAFETY: four whole warps, the block's last group; the others take what it gives.
        unsafe { thread::warpgroup_reg_dealloc::<56>() };
        let transposer = storage.transposer(warp - CONSUMERS / 32, lane);
        // One tile behind the copies, which have had a tile's time to arrive.
        let transpose = |tile: TileNumber| {
            // SAFETY: the producers waited until the stage was empty; each thread has its own part.
            unsafe { transposer.transpose::<4, false>(tile) };
        };
        let a_transposed = layout & TRANSPOSED_A != 0;
        let mut state = TileNumber(0);
        let mut entry = 0;
        while let Some(work) = work_tiles.next()
            && work.steps > 0
        {
            let place = place(work.tile);
            if tid == CONSUMERS {
                // SAFETY: those who read it wait for the work tile's first tile.
                unsafe { MailboxEntry::at(mailbox, entry).write(work, place) };
            }
            entry = (entry + 1) % ENTRIES;
            let TilePlace { product, row, col } = place;
            let [product_a, product_b] = [product * step_a, product * step_b];
            let mut at = work.first * BK;
            let end = (work.first + work.steps) * BK;
            while at < end {
                // SAFETY: all threads have used what they read of the stages. For A and B see
                // ARRIVALS_TO_RELEASE; they have stored raw A before the barrier of these warps.
                unsafe {
                    let (maps, at_b) = ([map_a, map_b], [col, at, product_b]);
                    wait_until_empty(storage, state);
                    if tid == CONSUMERS {
                        if a_transposed {
                            let at_a = [row, at, product_a];
                            storage.copy_transposed_tile(state, maps, [at_a, at_b]);
                        } else {
                            storage.copy_tile(state, maps, [[at, row, product_a], at_b]);
                        }
                    }
                }
                if a_transposed {
                    // Nothing is left to do for the tile.
                    // SAFETY: initialised before the block's barrier.
                    unsafe { storage.full(state).arrive() };
                } else if state.0 > 0 {
                    transpose(state.previous());
                }
                // All have read the raw tile. They have also stored it, so the reads are done.
                // SAFETY: the producer threads, all of them; nobody else uses this barrier.
                unsafe { thread::named_barrier_sync::<2, PRODUCERS>() };
                state = state.next();
                at += BK;
            }
        }
        if state.0 > 0 && !a_transposed {
            transpose(state.previous());
        }
        // An empty tile, and an entry that says so.
        // SAFETY: as above.
        unsafe {
            wait_until_empty(storage, state);
            if tid == CONSUMERS {
                MailboxEntry::at(mailbox, entry).write_end();
                storage.full(state).arrive();
            }
            storage.full(state).arrive();
        }
        return;
    }

    // SAFETY: the block's first two groups; 56 + 2 * 224 is what the launch gave to the three.
    unsafe { thread::warpgroup_reg_alloc::<224>() };
    if k == 0 {
        // A path of its own: a second path into the stores makes the loop slower.
        while let Some(work) = work_tiles.next() {
            let TilePlace { product, row, col } = place(work.tile);
            let c = c.wrapping_add(product as usize * stride_c as usize);
            let epilogue = epilogue.of_product(product);
            // SAFETY: the caller keeps the contract, and there is no other output.
            let c = unsafe { Output::new(c, ldc, m, n, alpha, beta) };
            let mut at = tid;
            while at < BM * BN {
                let place = (row + at / BN, col + at % BN);
                // SAFETY: the consumer threads, and this block's tile: each has its own elements.
                unsafe { c.store_each(epilogue, [0.0], |_| place) };
                // One piece of code for all elements: an epilogue is long.
                at = black_box(at + CONSUMERS);
            }
        }
        return;
    }
    let (a_mine, b_mine) = ThreadTile::new(warp, lane).operands(storage.a, storage.b);
    let mut part = 0;
    let mut entry = 0;
    loop {
        // SAFETY: initialised before the block's barrier, and the entry was written before what
        // this thread waits for.
        let steps = unsafe {
            storage.wait_until_full(TileNumber(part / PARTS));
            MailboxEntry::at(mailbox, entry).steps()
        };
        if steps == 0 {
            break;
        }
        let end = part + steps * PARTS;
        let mut acc = [[0.0f32; TN as usize]; TM as usize];
        let tile = |part: u32| {
            let place = part % (STAGES * PARTS);
            (a_mine.add(place * (PART * BM)), b_mine.add(place * (PART * BN)))
        };
        let mut fragments = Fragments::new();
        let (mut a_part, mut b_part) = tile(part);
        // SAFETY: a tile that is full stays until this thread has said that it is empty.
        unsafe { fragments.load(a_part, b_part, 0) };
        loop {
            for kk in 0..PART - 1 {
                fragments.multiply(&mut acc, kk);
                // SAFETY: as above.
                unsafe { fragments.load(a_part, b_part, kk + 1) };
            }
            // The copy engine may overwrite a tile only when this thread has read all of it: a copy
            // does not queue up behind loads, as a store would. Here that holds for the tile before
            // this one, which has been multiplied: see ARRIVALS_TO_RELEASE. SAFETY: there is one
            // arrival per part.
            unsafe { storage.empty(TileNumber(part / PARTS)).arrive() };
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
        // Behind `black_box`, so that the loop keeps none of it in registers.
        let tid = black_box(tid);
        let outputs = ThreadTile::new(tid / 32, tid % 32);
        // SAFETY: written before the tile that was waited for, and kept until the next tiles are
        // read.
        let (number, role) = unsafe { MailboxEntry::at(mailbox, entry).tile() };
        // SAFETY: as above.
        let place = unsafe { MailboxEntry::at(mailbox, entry).place() };
        entry = (entry + 1) % ENTRIES;
        let fixup = Fixup { partials, counters, word };
        // SAFETY: the consumer threads, all of them; the host's memory is as the contract says.
        if unsafe {
            !fixup.reduce::<1, CONSUMERS, { TM as usize }, { TN as usize }>(
                scheduler, number, role, tid, &mut acc,
            )
        } {
            continue;
        }
        let TilePlace { product, row, col } = place;
        let c = c.wrapping_add(product as usize * stride_c as usize);
        // SAFETY: the caller keeps the contract, and there is no other output.
        let c = unsafe { Output::new(c, ldc, m, n, alpha, beta) };
        // The epilogue's code also loads an old C, many elements at once.
        if epilogue.is_some() || beta != 0.0 {
            let epilogue = epilogue.of_product(product);
            // SAFETY: as above, and each thread stores its own outputs.
            unsafe { store_epilogue(c, epilogue, row, col, outputs, &acc) };
            continue;
        }
        let out = storage.a.add(OUT_AT);
        store_tile!(c, row, col, outputs, &acc, out);
    }
}

/// Waits until a tile's stage may be filled.
///
/// The tile that had it, STAGES before, must have been multiplied. The arrivals that say so come
/// during the tile after that one, at the barrier of that tile's stage.
///
/// # Safety
/// The barriers have been initialised, and the thread takes the tiles in turn.
#[inline(always)]
unsafe fn wait_until_empty(storage: SharedStorage, tile: TileNumber) {
    let said = tile.next();
    // SAFETY: the caller's contract.
    unsafe { storage.empty(said).wait_parity(said.phase::<STAGES>() ^ 1) };
}
