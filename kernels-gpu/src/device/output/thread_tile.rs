//! Storing a thread's 8 x 16 outputs, in the rungs with tensor maps.

use core::array;

use cuda_std::hint::black_box;
use cuda_std::prelude::*;

use crate::abi::epilogue;
use crate::device::multiply::thread_tile::{
    Accumulators, LANES_N, THREADS, TM, TN, ThreadTile, WM, WN,
};
use crate::device::output::matrix::Output;
use crate::device::output::places::QuadPlaces;
use crate::device::pipeline::f32_stages::{BM, BN};

/// Elements from one staged row to the next. A warp stages one row of each thread. The pitch puts
/// the quads that eight lanes store into different banks.
pub const LD_OUT: u32 = WN + 16;
/// Elements of shared memory that a warp needs to store its outputs.
pub const STAGE_OUT: u32 = 32 / LANES_N * LD_OUT;

/// Stores the outputs of a block, whose tile of C begins at (tile_row, tile_col).
///
/// It stores 128 bits at a time if C allows that. Otherwise the outputs go through shared memory,
/// so that a warp writes whole lines.
///
/// It is a macro, because a function is optimised before it is inlined. That changes the
/// assembler's code for the loop around it.
///
/// # Safety
/// - All [`THREADS`] threads come here, each with its [`ThreadTile`].
/// - At `out` are [`STAGE_OUT`] elements of shared memory for each of their warps, which nobody
///   else uses.
macro_rules! store_tile {
    ($c:expr, $tile_row:expr, $tile_col:expr, $outputs:expr, $acc:expr, $out:expr) => {{
        use crate::device::multiply::thread_tile::{LANES_N, TM, TN, WM, WN};
        use crate::device::output::thread_tile::{LD_OUT, STAGE_OUT, quad};
        use crate::device::pipeline::f32_stages::{BM, BN};
        let (c, outputs) = ($c, $outputs);
        let (tile_row, tile_col) = ($tile_row, $tile_col);
        let (row, col) = (tile_row + outputs.row, tile_col + outputs.col);
        // The row of C of row `i` of the threads at this height of the warp.
        let row = |i: u32, height: u32| row + height * 4 + i / 4 * (WM / 2) + i % 4;
        if c.is_vectorizable(tile_row, tile_col, BM, BN) {
            for i in 0..TM {
                for j in (0..TN).step_by(4) {
                    let (row, col) =
                        (row(i, outputs.lane / LANES_N), col + outputs.lane_col + j / 4 * (WN / 4));
                    // SAFETY: inside, and this thread's own.
                    unsafe { c.store4_unchecked(row, col, quad($acc, i, j)) };
                }
            }
        } else {
            let out = $out.add(outputs.warp * STAGE_OUT);
            // One row of each thread at a time.
            for i in 0..TM {
                for j in (0..TN).step_by(4) {
                    let at = outputs.lane / LANES_N * LD_OUT + outputs.lane_col + j / 4 * (WN / 4);
                    // SAFETY: inside the warp's own part.
                    unsafe { out.add(at).store4(0, quad($acc, i, j)) };
                }
                // SAFETY: whole warps come here, and nothing above depends on the lane.
                unsafe { warp::sync_warp(warp::FULL_MASK) };
                for r in 0..32 / LANES_N {
                    for j in (outputs.lane..WN).step_by(32) {
                        // SAFETY: stored before the warp's barrier.
                        let value = unsafe { out.load(r * LD_OUT + j) };
                        // SAFETY: one element of C, this thread's alone.
                        unsafe { c.store(row(i, r), col + j, value) };
                    }
                }
                // SAFETY: as above.
                unsafe { warp::sync_warp(warp::FULL_MASK) };
            }
        }
    }};
}
pub(crate) use store_tile;

/// [`store_tile`] with an epilogue.
///
/// A loop takes four rows of a quad of the thread's columns at a time. The four rows share what is
/// read per column, and all parts share one piece of code.
///
/// # Safety
/// The epilogue is as the launch promises, and no other thread stores these elements.
#[inline(always)]
pub unsafe fn store_epilogue(
    c: Output,
    epilogue: epilogue::Parameters,
    tile_row: u32,
    tile_col: u32,
    outputs: ThreadTile,
    acc: &Accumulators,
) {
    let (lane_row, lane_col) = (outputs.lane / LANES_N * 4, outputs.lane_col);
    let (row, col) = (tile_row + outputs.row + lane_row, tile_col + outputs.col + lane_col);
    let is_aligned = c.is_aligned();
    let col_of = |quad: u32| col + quad * (WN / QUADS);
    // All at once, so that they are waited for once.
    let bias: [F32x4; QUADS as usize] =
        // SAFETY: the caller's contract.
        array::from_fn(|quad| unsafe { epilogue.column_bias(col_of(quad as u32), c.cols) });
    let sums = |part: usize| {
        let (first, quad) = (part % 2 * 4, part / 2);
        let values: [f32; 16] = array::from_fn(|i| acc[first + i / 4][quad * 4 + i % 4]);
        (values, bias[quad])
    };
    let mut next = 0;
    while next < PARTS {
        // Behind `black_box`: otherwise there would be code for each part.
        let part = black_box(next);
        let (values, bias) = match part {
            0 => sums(0),
            1 => sums(1),
            2 => sums(2),
            3 => sums(3),
            4 => sums(4),
            5 => sums(5),
            6 => sums(6),
            _ => sums(7),
        };
        let (row, col) = (row + part % 2 * (WM / 2), col_of(part / 2));
        let at = |quad: u32| (row + quad, col);
        let places = QuadPlaces { at, first: 0, in_row: 1, column_bias: bias };
        // SAFETY: the caller's contract.
        unsafe { c.store_epilogue(epilogue, is_aligned, values.len(), places, values) };
        next = part + 1;
    }
}

/// Quads in a row of a thread, and parts of its outputs: four quads below each other each.
const QUADS: u32 = TN / 4;
const PARTS: u32 = 2 * QUADS;

/// Stores empty sums for a block's outputs, the first at (tile_row, tile_col).
///
/// # Safety
/// All [`THREADS`] threads come here, with the block's own outputs; `thread` numbers them.
#[inline(always)]
pub unsafe fn store_zeros(c: Output, tile_row: u32, tile_col: u32, thread: u32) {
    for at in (thread..BM * BN).step_by(THREADS as usize) {
        // SAFETY: one element of C, this thread's alone.
        unsafe { c.store(tile_row + at / BN, tile_col + at % BN, 0.0) };
    }
}

/// Four sums of row `i`, from column `j` on.
#[inline(always)]
pub fn quad(acc: &Accumulators, i: u32, j: u32) -> F32x4 {
    core::array::from_fn(|e| acc[i as usize][j as usize + e])
}

const _: () =
    assert!(TM == 8 && QUADS == 4, "two parts are below each other, and four side by side");
