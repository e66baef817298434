//! Rung 16, `tma`: warps that only move, and warps that only compute.
//!
//! # The idea
//!
//! On Hopper one thread asks for a whole tile with one instruction (`cp.async.bulk.tensor`); the
//! copy engine finds the addresses, fills up with zeros at the edges, and counts the bytes at a
//! barrier in shared memory (`mbarrier`). So moving becomes the work of a few warps that do
//! nothing else, and what the others spend on it falls to a wait and an arrival per tile:
//!
//! ```text
//!   copy engine    B ----------------> full[slot] --.
//!                  A as it lies --> raw[slot] --.   |
//!   4 warps        turn A around <--------------'   |
//!                       '-----------> full[slot] ---+--> 8 warps compute
//!                  wait <------------ empty[slot] <-----------'
//! ```
//!
//! B arrives as it is needed. A cannot be transposed by the engine, so it arrives as it lies, 64
//! bytes per row, and the moving warps turn it around, 4 x 4 elements per thread. The engine
//! swizzles the rows (the 16-byte groups of rows 2 and 3 change places in pairs, those of 4 and
//! 5 by two, and so on), so that neighbouring lanes read different banks. The rows of a
//! transposed tile are in an order of their own: lane `l` takes the rows `l`, `l + 32`, `l + 64`
//! and `l + 96` and stores them as neighbours, with one 128-bit store per step of K.
//!
//! # What changed
//!
//! Against `async_copy`, everything but the arithmetic, so that this rung starts afresh:
//!
//! - 8 warps compute 64 x 64 outputs each, 8 x 16 per thread, and take the registers that the
//!   moving warps give back (`setmaxnreg`): 224 against 56.
//! - One block per multiprocessor stays and goes from tile to tile; while it stores one, the next
//!   is on its way. Tiles that would not come out even are cut up along K: see `stream_k`.
//! - The loop body is half a tile, 8 steps, 17 KB of instructions. Whole tiles are twice that and
//!   do not fit the instruction cache: that alone cost 3 %.
//! - The first fragments of a tile are loaded during the last step of the tile before.
//! - The partial sums of stream-K, and the way out through shared memory, take accumulators in
//!   pairs that are swapped. The register file has two banks: those of even numbers, and those of
//!   odd numbers. The fragments arrive in quads, and so `b[j]` is in bank `j % 2`; the swapped
//!   pairs suggest to the assembler to keep each sum in the other bank.
//!
//! # What should get better, and what comes next
//!
//! cuBLAS is left behind: `NOTES.md` has the way there, and `runs/` the measurements. What is left
//! is the register file: a multiply-add can read one register of each bank per cycle, and where
//! neither factor is in the reuse cache it waits; and the loads of fragments, 24 registers for 128
//! multiply-adds.

use cuda_std::mbarrier::{self, Mbarrier};
use cuda_std::prelude::*;
use cuda_std::tma::{self, TensorMap};

use crate::fragment::{fragment, fragment16};
use crate::grouped::place;
use crate::matrix::Output;
use crate::spec::{Arguments, GridOrder, Shared, Spec, Tile};
use crate::stream_k::{Meeting, Shares, swapped};

/// Rows of C per block.
const BM: u32 = 128;
/// Columns of C per block.
const BN: u32 = 256;
/// Step along K.
const BK: u32 = 16;
/// Rows and columns of C per warp that computes.
const WM: u32 = 64;
const WN: u32 = 64;
/// Rows of C per thread, in two groups of four.
const TM: u32 = 8;
/// Columns of C per thread, in four groups of four.
const TN: u32 = 16;
/// Tiles in shared memory that are ready to compute with, or nearly; and tiles of A as they came,
/// to be transposed.
const SLOTS: u32 = 4;
/// Steps along K that the loop spells out.
const PART: u32 = 8;

/// Threads that compute, and threads that move.
const WARPS_N: u32 = BN / WN;
const LANES_N: u32 = WN / TN;
const COMPUTING: u32 = BM / WM * WARPS_N * 32;
const MOVING: u32 = 128;

/// Elements from one slot to the next.
const SLOT_A: u32 = BK * BM;
const SLOT_B: u32 = BK * BN;
/// Places in shared memory, in elements from its beginning.
const B_AT: u32 = SLOTS * SLOT_A;
const RAW_AT: u32 = B_AT + SLOTS * SLOT_B;
const BARRIERS_AT: u32 = RAW_AT + SLOTS * SLOT_A;
const WORD_AT: u32 = BARRIERS_AT + 2 * 3 * SLOTS;
const OUT_AT: u32 = (WORD_AT + 1).next_multiple_of(4);
/// A row of each thread of a warp on its way out, and elements from one to the next: so that
/// eight lanes store their quads in different banks.
const LD_OUT: u32 = WN + 16;
const SLOT_OUT: u32 = 32 / LANES_N * LD_OUT;

const _: () = assert!(BM == MOVING, "each moving thread transposes one row");
const _: () = assert!(BK.is_multiple_of(PART) && PART.is_multiple_of(2), "whole parts");
const _: () = assert!(BK == 16, "a row of A as it came is 64 bytes, four groups of four");

/// What the host needs to launch [`tma()`].
pub const SPEC: Spec = Spec {
    name: "tma",
    summary: "bulk tensor copies, warps that only move, stream-K",
    seed: "none, beyond them",
    tile: Tile { bm: BM, bn: BN, bk: BK, tm: TM, tn: TN },
    block: [COMPUTING + MOVING, 1],
    grid: GridOrder::ColumnsAlongX,
    shared: Shared::Dynamic(|_| (OUT_AT + COMPUTING / 32 * SLOT_OUT) as u64 * 4),
    unaligned: None,
    arguments: Arguments::Tensor,
    source: include_str!("tma.rs"),
};

/// `C = alpha * A * B + beta * C`.
///
/// # Safety
/// - The parameters and the grid are as [`Arguments::Tensor`] says.
/// - Nothing else writes A or B, or touches C and the workspace, during the launch.
#[kernel(block = COMPUTING + MOVING, min_blocks = 1)]
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
    streamed: u32,
    chain: u32,
    partials: *mut f32,
    counters: *mut u32,
) {
    let tid = thread::thread_idx_x();
    let (warp, lane) = (tid / 32, warp::lane_id());
    let (width, height) = (n.div_ceil(BN), m.div_ceil(BM));
    let shares = Shares { tiles: width * height, steps: k.div_ceil(BK), streamed, chain };

    let a_smem = shared::dynamic_shared_mem::<f32>(); // (SLOTS, BK, BM)
    let b_smem = a_smem.add(B_AT); // (SLOTS, BK, BN)
    let raw_smem = a_smem.add(RAW_AT); // (SLOTS, BM, BK)
    let full = Mbarrier::at(a_smem.add(BARRIERS_AT).cast());
    let empty = full.add(SLOTS);
    let raw = empty.add(SLOTS);
    if tid == 0 {
        // SAFETY: nobody uses them before the barrier.
        unsafe {
            for slot in 0..SLOTS {
                // One for B's bytes, and one for each warp that transposes A.
                full.add(slot).init(1 + MOVING / 32);
                empty.add(slot).init(COMPUTING / 32);
                raw.add(slot).init(1);
            }
        }
        mbarrier::fence_init();
    }
    thread::sync_threads();
    let mut pieces = shares.pieces();

    if warp >= COMPUTING / 32 {
        thread::lower_registers::<56>();
        let mover = warp - COMPUTING / 32;
        // A travels SLOTS tiles ahead of B.
        let mut ahead = pieces;
        let (mut a_row, mut a_col, mut a_left) = (0, 0, 0);
        let mut a_slot = 0;
        let mut due = SLOTS;
        let mut ring = Ring { slot: 0, parity: 1 };
        let source = raw_smem.add(lane * BK + (mover ^ (lane / 2 % 4)) * 4);
        let target = a_smem.add(mover * 4 * BM + lane * 4);
        while let Some(piece) = pieces.next() {
            let b_col = place(piece.tile, width, height).1 * BN;
            let mut b_row = piece.first * BK;
            let mut left = piece.steps;
            while left > 0 {
                while due > 0 && tid == COMPUTING {
                    due -= 1;
                    if a_left == 0
                        && let Some(piece) = ahead.next()
                    {
                        a_row = place(piece.tile, width, height).0 * BM;
                        a_col = piece.first * BK;
                        a_left = piece.steps;
                    }
                    if a_left > 0 {
                        // SAFETY: all have read what was in the slot, and the barrier expects
                        // what the copy brings.
                        unsafe {
                            let barrier = raw.add(a_slot);
                            barrier.arrive_expect_tx(SLOT_A * 4);
                            tma::load_2d(
                                raw_smem.add(a_slot * SLOT_A),
                                map_a,
                                a_col,
                                a_row,
                                barrier,
                            );
                        }
                        a_col += BK;
                        a_left -= 1;
                        a_slot = if a_slot + 1 == SLOTS { 0 } else { a_slot + 1 };
                    }
                }
                // SAFETY: the slots are written when they are empty and read when they are full,
                // each thread its own part of them.
                unsafe {
                    let barrier = full.add(ring.slot);
                    empty.add(ring.slot).wait_parity(ring.parity);
                    if tid == COMPUTING + 32 {
                        barrier.arrive_expect_tx(SLOT_B * 4);
                        tma::load_2d(b_smem.add(ring.slot * SLOT_B), map_b, b_col, b_row, barrier);
                    }
                    raw.add(ring.slot).wait_parity(ring.parity ^ 1);
                    let source = source.add(ring.slot * SLOT_A);
                    let rows: [F32x4; 4] =
                        core::array::from_fn(|i| source.load4(i as u32 * 32 * BK));
                    let target = target.add(ring.slot * SLOT_A);
                    for k in 0..4 {
                        target.store4(k * BM, rows.map(|row| row[k as usize]));
                    }
                    warp::sync_warp(u32::MAX);
                    if lane == 0 {
                        barrier.arrive();
                    }
                }
                // All have read the tile as it came.
                tma::fence_shared();
                thread::sync_some_threads::<2, MOVING>();
                due = 1;
                ring.step();
                b_row += BK;
                left -= 1;
            }
        }
        return;
    }

    thread::raise_registers::<224>();
    // The same number, but the compiler knows nothing of it: it would spell out the stores at the
    // edges, 4000 instructions, and the loop's registers would get worse for it.
    let tid = warp * 32 + lane;
    let (warp_row, warp_col) = (warp / WARPS_N * WM, warp % WARPS_N * WN);
    let (lane_row, lane_col) = (lane / LANES_N * 4, lane % LANES_N * 4);
    // SAFETY: the caller keeps the contract, and there is no other output.
    let c = unsafe { Output::new(c, ldc, m, n, alpha, beta) };
    let out_smem = a_smem.add(OUT_AT + warp * SLOT_OUT);
    let meeting = Meeting { partials, counters, word: a_smem.add(WORD_AT).cast() };
    let mut ring = Ring { slot: 0, parity: 0 };
    while let Some(piece) = pieces.next() {
        let (y, x) = place(piece.tile, width, height);
        let (tile_row, tile_col) = (y * BM, x * BN);
        if piece.steps == 0 {
            // An empty sum; apart, because a second way into the stores makes the loop slower.
            for at in (tid..BM * BN).step_by(COMPUTING as usize) {
                // SAFETY: one element of C, this thread's alone.
                unsafe { c.put(tile_row + at / BN, tile_col + at % BN, 0.0) };
            }
            continue;
        }
        let mut acc = [[0.0f32; TN as usize]; TM as usize];
        let tile = |slot: u32| {
            (a_smem.add(slot * SLOT_A + warp_row), b_smem.add(slot * SLOT_B + warp_col))
        };
        let mut frag_a = [[0.0f32; TM as usize]; 2];
        let mut frag_b = [[0.0f32; TN as usize]; 2];
        // SAFETY: initialised before the block's barrier.
        unsafe { full.add(ring.slot).wait_parity(ring.parity) };
        let (mut a_tile, mut b_tile) = tile(ring.slot);
        // SAFETY: a tile that is full stays until this warp has said that it is empty.
        unsafe {
            frag_a[0] = fragment::<WM>(a_tile, lane_row);
            frag_b[0] = fragment16::<WN>(b_tile, lane_col);
        }
        let mut parts = piece.steps * (BK / PART);
        loop {
            for kk in 0..PART - 1 {
                let (this, next) = (kk as usize % 2, (kk as usize + 1) % 2);
                // SAFETY: as above.
                unsafe {
                    frag_a[next] = fragment::<WM>(a_tile.add((kk + 1) * BM), lane_row);
                    frag_b[next] = fragment16::<WN>(b_tile.add((kk + 1) * BN), lane_col);
                }
                multiply_add(&frag_a[this], &frag_b[this], &mut acc);
            }
            parts -= 1;
            if parts.is_multiple_of(BK / PART) {
                // The copy engine may only overwrite the tile when this warp has read all of
                // it: a copy does not queue up behind loads, as a store would.
                tma::fence_shared();
                warp::sync_warp(u32::MAX);
                if lane == 0 {
                    // SAFETY: one arrival per warp.
                    unsafe { empty.add(ring.slot).arrive() };
                }
                ring.step();
                if parts == 0 {
                    break;
                }
                // SAFETY: as above.
                unsafe { full.add(ring.slot).wait_parity(ring.parity) };
                (a_tile, b_tile) = tile(ring.slot);
            } else {
                (a_tile, b_tile) = (a_tile.add(PART * BM), b_tile.add(PART * BN));
            }
            // SAFETY: as above.
            unsafe {
                frag_a[0] = fragment::<WM>(a_tile, lane_row);
                frag_b[0] = fragment16::<WN>(b_tile, lane_col);
            }
            multiply_add(&frag_a[1], &frag_b[1], &mut acc);
        }
        multiply_add(&frag_a[1], &frag_b[1], &mut acc);
        // SAFETY: the computing threads, all of them; the host's memory is as the contract says.
        if unsafe {
            !meeting.join::<1, COMPUTING, { TM as usize }, { TN as usize }>(
                shares, piece, tid, &mut acc,
            )
        } {
            continue;
        }
        let (row, col) = (tile_row + warp_row / 4, tile_col + warp_col);
        // The row of C that is this thread's row `i`, or that of a lane below it.
        let row = |i: u32, below: u32| row + i / 4 * (WM / 8) + i % 4 * 32 + below;
        if c.takes_quads(tile_row, tile_col, BM, BN) {
            for i in 0..TM {
                for j in (0..TN).step_by(4) {
                    let four = core::array::from_fn(|e| acc[i as usize][j as usize + e]);
                    // SAFETY: inside, and this thread's own.
                    unsafe {
                        c.set4(row(i, lane / LANES_N), col + lane_col + j / 4 * (WN / 4), four)
                    };
                }
            }
            continue;
        }
        // Through shared memory, a row of each thread at a time: so the warp writes whole lines.
        for i in 0..TM {
            for j in (0..TN).step_by(4) {
                let at = lane / LANES_N * LD_OUT + lane_col + j / 4 * (WN / 4);
                // SAFETY: inside the warp's own part.
                unsafe { out_smem.add(at).store4(0, swapped(acc[i as usize], j as usize)) };
            }
            warp::sync_warp(u32::MAX);
            for r in 0..32 / LANES_N {
                for j in (lane..WN).step_by(32) {
                    // SAFETY: stored before the warp's barrier.
                    let value = unsafe { out_smem.load(r * LD_OUT + (j ^ 1)) };
                    // SAFETY: one element of C, this thread's alone.
                    unsafe { c.put(row(i, r), col + j, value) };
                }
            }
            warp::sync_warp(u32::MAX);
        }
    }
}

/// Slots used in turn, and the parity of the phase that is waited for.
#[derive(Clone, Copy)]
struct Ring {
    slot: u32,
    parity: u32,
}

impl Ring {
    #[inline(always)]
    fn step(&mut self) {
        self.slot += 1;
        if self.slot == SLOTS {
            self.slot = 0;
            self.parity ^= 1;
        }
    }
}

/// `acc += a * b`, an outer product. Down a column and up the next: each column's element of B
/// stays in the reuse cache, and at the turns that of A. Of 96 orders this was the fastest.
#[inline(always)]
fn multiply_add(
    a: &[f32; TM as usize],
    b: &[f32; TN as usize],
    acc: &mut [[f32; TN as usize]; TM as usize],
) {
    for j in 0..TN as usize {
        for step in 0..TM as usize {
            let i = if j % 2 == 0 { step } else { TM as usize - 1 - step };
            acc[i][j] = fma(a[i], b[j], acc[i][j]);
        }
    }
}
