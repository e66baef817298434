//! Rung 18, `persistent`: blocks that stay, and share what does not come out even.
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
//! bytes per row, and the moving warps turn it around, 4 x 4 elements per thread, while the copies
//! for the next tile are on their way. The engine swizzles the rows (the 16-byte groups of rows 2
//! and 3 change places in pairs, those of 4 and 5 by two, and so on), so that neighbouring lanes
//! read different banks.
//!
//! # What changed
//!
//! Against `async_copy`, everything but the arithmetic, so that this rung starts afresh:
//!
//! - 8 warps compute 64 x 64 outputs each, 8 x 16 per thread, and take the registers that the
//!   moving warps give back (`setmaxnreg`): 224 against 56.
//! - One block per multiprocessor stays and goes from tile to tile; while it stores one, the next
//!   is on its way. Tiles that would not come out even are cut up along K: see `stream_k`. The
//!   moving warps do that arithmetic, and leave a ticket for each piece.
//! - The loop body is half a tile, 8 steps, 17 KB of instructions. Whole tiles are twice that and
//!   do not fit the instruction cache: that alone cost 3 %.
//! - The first fragments of a tile are loaded during the last step of the tile before.
//! - Nothing but the loop's own values stays in registers during the loop. The assembler makes of
//!   it what the registers left to it allow: with 40 values more, waiting for the end of the tile,
//!   it was a matter of luck whether fragments came late, or sums lay in the wrong bank.
//! - The register file has two banks: registers of even numbers, and those of odd numbers. The
//!   fragments arrive in quads, so that `a[i]` is in bank `i % 2`. The partial sums of stream-K
//!   take accumulators of a column in pairs that are swapped, which suggests to the assembler to
//!   keep each sum in the bank where its `a[i]` is not.
//!
//! # What should get better, and what comes next
//!
//! cuBLAS is left behind: `NOTES.md` has the way there, and `runs/` the measurements. What is left
//! is the register file: a multiply-add can read one register of each bank per cycle, and needs
//! three where the reuse cache has neither factor, as when the other warp of the scheduler has had
//! its turn; and the loads of fragments, 24 registers for 128 multiply-adds.

use cuda_std::hint::black_box;
use cuda_std::mbarrier::{self, Mbarrier};
use cuda_std::prelude::*;
use cuda_std::tma::{self, TensorMap};

use crate::descriptor::{GridOrder, KernelAbi, KernelDescriptor, Shared, Tile};
use crate::fragment::{fragment, fragment16};
use crate::matrix::Output;
use crate::stream_k::{Meeting, Shares, Ticket};
use crate::swizzle::swizzle;

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
const STAGES: u32 = 4;
const RAW_STAGES: u32 = 2;
/// Steps along K that the loop spells out, and how often it does for a tile.
const PART: u32 = 8;
const PARTS: u32 = BK / PART;
/// Tickets that are out at a time, at most: each is for a tile or more, and the warps that move are
/// at most STAGES tiles ahead.
const TICKETS: u32 = 8;

/// Threads that compute, and threads that move.
const WARPS_N: u32 = BN / WN;
const LANES_N: u32 = WN / TN;
const COMPUTING: u32 = BM / WM * WARPS_N * 32;
const MOVING: u32 = 128;

/// Arrivals of a computing thread, counted from its last load of a tile, until the copy engine may
/// overwrite the tile: one for the tile itself, and those for the next one.
///
/// PTX orders the loads before the copy by `fence.proxy.async` alone, which costs 1 % here. Without
/// it this rests on the machine: a warp issues its instructions in order, and one that uses a
/// loaded value waits for the load. So the values must be used before the last of these arrivals.
/// In the source they are; that the assembler leaves it so, `cargo xtask build-ptx` checks in its
/// disassembly wherever there are ptxas and cuobjdump, as in CI. Nobody checks the driver's own
/// assembler.
pub const ARRIVALS_TO_RELEASE: u32 = 1 + PARTS;

/// Elements from one slot to the next.
const STAGE_A: u32 = BK * BM;
const STAGE_B: u32 = BK * BN;
/// Places in shared memory, in elements from its beginning.
const B_AT: u32 = STAGES * STAGE_A;
const RAW_AT: u32 = B_AT + STAGES * STAGE_B;
const BARRIERS_AT: u32 = RAW_AT + RAW_STAGES * STAGE_A;
const WORD_AT: u32 = BARRIERS_AT + 2 * (2 * STAGES + RAW_STAGES);
const TICKETS_AT: u32 = WORD_AT + 1;
const OUT_AT: u32 = (TICKETS_AT + TICKETS * Ticket::WORDS).next_multiple_of(4);
/// A row of each thread of a warp on its way out, and elements from one to the next: so that
/// eight lanes store their quads in different banks.
const LD_OUT: u32 = WN + 16;
const STAGE_OUT: u32 = 32 / LANES_N * LD_OUT;

const _: () = assert!(BM == MOVING, "each moving thread transposes one row");
const _: () = assert!(BK.is_multiple_of(PART) && PART.is_multiple_of(2), "whole parts");
const _: () = assert!(BK == 16, "a row of A as it came is 64 bytes, four groups of four");
const _: () = assert!((STAGES * PARTS).is_power_of_two(), "counted in 32 bits, round and round");
const _: () = assert!(TICKETS > STAGES, "none is replaced before its piece is stored");

/// What the host needs to launch [`persistent`].
pub const DESCRIPTOR: KernelDescriptor = KernelDescriptor {
    name: "persistent",
    summary: "bulk tensor copies, warps that only move, stream-K",
    seed: "none, beyond them",
    tile: Tile { bm: BM, bn: BN, bk: BK, tm: TM, tn: TN },
    block: [COMPUTING + MOVING, 1],
    grid: GridOrder::ColumnsAlongX,
    shared: Shared::Dynamic(|_| (OUT_AT + COMPUTING / 32 * STAGE_OUT) as u64 * 4),
    unaligned: None,
    abi: KernelAbi::StreamK,
    source: include_str!("persistent.rs"),
};

/// `C = alpha * A * B + beta * C`.
///
/// # Safety
/// - The parameters and the grid are as [`KernelAbi::StreamK`] says.
/// - Nothing else writes A or B, or touches C and the workspace, during the launch.
#[kernel(block = COMPUTING + MOVING, min_blocks = 1)]
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
    streamed: u32,
    chain: u32,
    partials: *mut f32,
    counters: *mut u32,
) {
    let tid = thread::thread_idx_x();
    let (warp, lane) = (tid / 32, warp::lane_id());
    let (width, height) = (n.div_ceil(BN), m.div_ceil(BM));
    let shares = Shares { tiles: width * height, steps: k.div_ceil(BK), streamed, chain };

    let a_smem = shared::dynamic_shared_mem::<f32>(); // (STAGES, BK, BM)
    let b_smem = a_smem.add(B_AT); // (STAGES, BK, BN)
    let raw_smem = a_smem.add(RAW_AT); // (RAW_STAGES, BM, BK)
    let full = Mbarrier::at(a_smem.add(BARRIERS_AT).cast());
    let empty = full.add(STAGES);
    let raw = empty.add(STAGES);
    let word = a_smem.add(WORD_AT).cast();
    let tickets = a_smem.add(TICKETS_AT).cast();
    if tid == 0 {
        // SAFETY: nobody uses them before the barrier.
        unsafe {
            for slot in 0..STAGES {
                // Who asks for B, and all who transpose A.
                full.add(slot).init(1 + MOVING);
                empty.add(slot).init(COMPUTING * PARTS);
            }
            for slot in 0..RAW_STAGES {
                raw.add(slot).init(1);
            }
        }
        mbarrier::fence_init();
    }
    thread::sync_threads();
    let mut pieces = shares.pieces();

    if warp >= COMPUTING / 32 {
        // SAFETY: four whole warps, the block's last group; the others take what it gives.
        unsafe { thread::warpgroup_reg_dealloc::<56>() };
        let mover = warp - COMPUTING / 32;
        let source = raw_smem.add(lane * BK + (mover ^ (lane / 2 % 4)) * 4);
        let target = a_smem.add(mover * 4 * BM + lane);
        // One turn behind what is asked for: there has been a tile's time for it to come.
        let transpose = |turn: Turn| {
            // SAFETY: the slots are written when they are empty and read when they are full, each
            // thread its own part of them.
            unsafe {
                raw.add(turn.raw_slot()).wait_parity(turn.raw_parity());
                let source = source.add(turn.raw_slot() * STAGE_A);
                let rows: [F32x4; 4] = core::array::from_fn(|i| source.load4(i as u32 * 32 * BK));
                let target = target.add(turn.slot() * STAGE_A);
                for k in 0..4 {
                    for (i, row) in rows.iter().enumerate() {
                        target.store(k * BM + i as u32 * 32, row[k as usize]);
                    }
                }
                full.add(turn.slot()).arrive();
            }
        };
        let mut turn = Turn(0);
        let mut ticket = 0;
        while let Some(piece) = pieces.next()
            && piece.steps > 0
        {
            if tid == COMPUTING {
                // SAFETY: those who read it wait for the piece's first tile.
                unsafe { Ticket::at(tickets, ticket).write(piece) };
            }
            ticket = (ticket + 1) % TICKETS;
            let (y, x) = swizzle(piece.tile, width, height);
            let mut at = piece.first * BK;
            let end = (piece.first + piece.steps) * BK;
            while at < end {
                // SAFETY: all have used what they read of the slots: of A and B as it is told at
                // ARRIVALS_TO_RELEASE, of A as it came by storing it before the barrier of these
                // warps. And the barriers expect what the copies bring.
                unsafe {
                    turn.wait_until_empty(empty);
                    if tid == COMPUTING {
                        let (raw, full) = (raw.add(turn.raw_slot()), full.add(turn.slot()));
                        raw.arrive_expect_tx(STAGE_A * 4);
                        let to = raw_smem.add(turn.raw_slot() * STAGE_A);
                        tma::load_2d(to, map_a, at, y * BM, raw);
                        full.arrive_expect_tx(STAGE_B * 4);
                        let to = b_smem.add(turn.slot() * STAGE_B);
                        tma::load_2d(to, map_b, x * BN, at, full);
                    }
                }
                if turn.0 > 0 {
                    transpose(turn.before());
                }
                // All have read the tile as it came, and stored it, so that it is read for sure.
                // SAFETY: the moving threads, all of them; nobody else uses this barrier.
                unsafe { thread::named_barrier_sync::<2, MOVING>() };
                turn = turn.next();
                at += BK;
            }
        }
        if turn.0 > 0 {
            transpose(turn.before());
        }
        // A tile of nothing, and a ticket that says so.
        // SAFETY: as above.
        unsafe {
            turn.wait_until_empty(empty);
            if tid == COMPUTING {
                Ticket::at(tickets, ticket).write_end();
                full.add(turn.slot()).arrive();
            }
            full.add(turn.slot()).arrive();
        }
        return;
    }

    // SAFETY: the block's first two groups; 56 + 2 * 224 is what the launch gave to the three.
    unsafe { thread::warpgroup_reg_alloc::<224>() };
    if k == 0 {
        // Empty sums; apart, because a second way into the stores makes the loop slower.
        // SAFETY: the caller keeps the contract, and there is no other output.
        let c = unsafe { Output::new(c, ldc, m, n, alpha, beta) };
        while let Some(piece) = pieces.next() {
            let (y, x) = swizzle(piece.tile, width, height);
            for at in (tid..BM * BN).step_by(COMPUTING as usize) {
                // SAFETY: one element of C, this thread's alone.
                unsafe { c.put(y * BM + at / BN, x * BN + at % BN, 0.0) };
            }
        }
        return;
    }
    let (warp_row, warp_col) = (warp / WARPS_N * WM, warp % WARPS_N * WN);
    let (lane_row, lane_col) = (lane / LANES_N * 4, lane % LANES_N * 4);
    let (a_mine, b_mine) = (a_smem.add(warp_row + lane_row), b_smem.add(warp_col + lane_col));
    let mut part = 0;
    let mut ticket = 0;
    loop {
        let turn = Turn(part / PARTS);
        // SAFETY: initialised before the block's barrier, and the ticket was written before what
        // this thread waits for.
        let steps = unsafe {
            full.add(turn.slot()).wait_parity(turn.parity());
            Ticket::at(tickets, ticket).steps()
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
        let mut frag_a = [[0.0f32; TM as usize]; 2];
        let mut frag_b = [[0.0f32; TN as usize]; 2];
        let (mut a_part, mut b_part) = tile(part);
        // SAFETY: a tile that is full stays until this thread has said that it is empty.
        unsafe {
            frag_b[0] = fragment16::<WN>(b_part, 0);
            frag_a[0] = fragment::<WM>(a_part, 0);
        }
        loop {
            for kk in 0..PART - 1 {
                let (this, next) = (kk as usize % 2, (kk as usize + 1) % 2);
                multiply_add(&frag_a[this], &frag_b[this], &mut acc);
                // SAFETY: as above.
                unsafe {
                    frag_b[next] = fragment16::<WN>(b_part.add((kk + 1) * BN), 0);
                    frag_a[next] = fragment::<WM>(a_part.add((kk + 1) * BM), 0);
                }
            }
            // The copy engine may only overwrite a tile when this thread has read all of it: a
            // copy does not queue up behind loads, as a store would. Here that is so of the tile
            // before this one, since it has been multiplied: see ARRIVALS_TO_RELEASE.
            // SAFETY: as many arrivals as parts.
            unsafe { empty.add(Turn(part / PARTS).slot()).arrive() };
            part += 1;
            if part == end {
                break;
            }
            let turn = Turn(part / PARTS);
            // SAFETY: as above.
            unsafe { full.add(turn.slot()).wait_parity(turn.parity()) };
            (a_part, b_part) = tile(part);
            // SAFETY: as above.
            unsafe {
                frag_b[0] = fragment16::<WN>(b_part, 0);
                frag_a[0] = fragment::<WM>(a_part, 0);
            }
            multiply_add(&frag_a[1], &frag_b[1], &mut acc);
        }
        multiply_add(&frag_a[1], &frag_b[1], &mut acc);
        // What follows is not kept in registers during the loop.
        let tid = black_box(tid);
        let (warp, lane) = (tid / 32, tid % 32);
        let (warp_row, warp_col) = (warp / WARPS_N * WM, warp % WARPS_N * WN);
        let lane_col = lane % LANES_N * 4;
        // SAFETY: written before the tile that was waited for, and kept until the next tiles are
        // read.
        let (number, role) = unsafe { Ticket::at(tickets, ticket).tile() };
        ticket = (ticket + 1) % TICKETS;
        let meeting = Meeting { partials, counters, word };
        // SAFETY: the computing threads, all of them; the host's memory is as the contract says.
        if unsafe {
            !meeting.join::<1, COMPUTING, { TM as usize }, { TN as usize }>(
                shares, number, role, tid, &mut acc,
            )
        } {
            continue;
        }
        let (y, x) = swizzle(number, width, height);
        let (tile_row, tile_col) = (y * BM, x * BN);
        let (row, col) = (tile_row + warp_row, tile_col + warp_col);
        // The row of C that is row `i` of the threads at this height of the warp.
        let row = |i: u32, height: u32| row + height * 4 + i / 4 * (WM / 2) + i % 4;
        // SAFETY: the caller keeps the contract, and there is no other output.
        let c = unsafe { Output::new(c, ldc, m, n, alpha, beta) };
        if c.is_vectorizable(tile_row, tile_col, BM, BN) {
            for i in 0..TM {
                for j in (0..TN).step_by(4) {
                    let (row, col) = (row(i, lane / LANES_N), col + lane_col + j / 4 * (WN / 4));
                    // SAFETY: inside, and this thread's own.
                    unsafe { c.set4(row, col, quad(&acc, i, j)) };
                }
            }
            continue;
        }
        let out_smem = a_smem.add(OUT_AT + warp * STAGE_OUT);
        // Through shared memory, a row of each thread at a time: so the warp writes whole lines.
        for i in 0..TM {
            for j in (0..TN).step_by(4) {
                let at = lane / LANES_N * LD_OUT + lane_col + j / 4 * (WN / 4);
                // SAFETY: inside the warp's own part.
                unsafe { out_smem.add(at).store4(0, quad(&acc, i, j)) };
            }
            // SAFETY: whole warps come here, and nothing above depends on the lane.
            unsafe { warp::sync_warp(warp::FULL_MASK) };
            for r in 0..32 / LANES_N {
                for j in (lane..WN).step_by(32) {
                    // SAFETY: stored before the warp's barrier.
                    let value = unsafe { out_smem.load(r * LD_OUT + j) };
                    // SAFETY: one element of C, this thread's alone.
                    unsafe { c.put(row(i, r), col + j, value) };
                }
            }
            // SAFETY: as above.
            unsafe { warp::sync_warp(warp::FULL_MASK) };
        }
    }
}

/// Four sums of row `i`, from column `j` on.
#[inline(always)]
fn quad(acc: &[[f32; TN as usize]; TM as usize], i: u32, j: u32) -> F32x4 {
    core::array::from_fn(|e| acc[i as usize][j as usize + e])
}

/// The tiles of a block, counted: they use the slots in turn.
#[derive(Clone, Copy)]
struct Turn(u32);

impl Turn {
    #[inline(always)]
    fn next(self) -> Self {
        Turn(self.0.wrapping_add(1))
    }

    #[inline(always)]
    fn before(self) -> Self {
        Turn(self.0.wrapping_sub(1))
    }

    #[inline(always)]
    fn slot(self) -> u32 {
        self.0 % STAGES
    }

    /// Of the phase of `full[slot]` that this tile completes.
    #[inline(always)]
    fn parity(self) -> u32 {
        self.0 / STAGES % 2
    }

    #[inline(always)]
    fn raw_slot(self) -> u32 {
        self.0 % RAW_STAGES
    }

    /// Of the phase of `raw[raw_slot]` that this tile completes.
    #[inline(always)]
    fn raw_parity(self) -> u32 {
        self.0 / RAW_STAGES % 2
    }

    /// Waits until this tile's slot may be filled: until the tile that had it, STAGES before, has
    /// been multiplied. That is said during the tile after that one, at the barrier of its slot.
    #[inline(always)]
    unsafe fn wait_until_empty(self, empty: Mbarrier) {
        let said = self.next();
        // SAFETY: the caller's contract.
        unsafe { empty.add(said.slot()).wait_parity(said.parity() ^ 1) };
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
