//! What the card itself can do: multiply-adds per second, and bytes copied per second.
//!
//! These are not rungs. They are the two roofs that a GEMM stands under, measured in the
//! same run as the rungs, because clocks float: arithmetic without memory, and memory
//! without arithmetic.
//!
//! # Multiply-adds
//!
//! A multiply-add reads three registers, and the register file has two banks with two ports
//! each: three operands from one bank take two cycles. Operands that are used again at once
//! come from a small cache in front of the ports. So which registers the assembler picks
//! decides what a loop reaches, and there are two loops here: one that asks for as little as
//! possible, and one that asks for what a GEMM does. The faster one is the roof.
//!
//! Nothing can be left out: every accumulator starts with another value, and all of them
//! are added up and stored.

use cuda_std::prelude::*;
use cuda_std::vec;

/// Threads per block of [`roof_ffma_shared`] and [`roof_ffma_outer`].
pub const FFMA_THREADS: u32 = 256;
/// Blocks per multiprocessor for which both have registers: 16 warps, four per scheduler.
pub const FFMA_BLOCKS: u32 = 2;
/// Multiply-adds per thread and round of [`roof_ffma_shared`] and [`roof_ffma_outer`].
pub const FFMA_PER_ROUND: u32 = 512;

/// Threads per block of [`roof_copy`].
pub const COPY_THREADS: u32 = 256;
/// 128-bit loads that a thread of [`roof_copy`] has under way.
const COPY_LOADS: usize = 4;
/// Elements (f32) that a block of [`roof_copy`] copies.
pub const COPY_PER_BLOCK: u32 = COPY_THREADS * COPY_LOADS as u32 * 4;

/// Accumulators of [`roof_ffma_shared`].
const SHARED_ACC: usize = 32;
/// Rows and columns of accumulators of [`roof_ffma_outer`].
const OUTER: usize = 8;

const _: () = assert!(FFMA_PER_ROUND.is_multiple_of(SHARED_ACC as u32), "whole turns");
const _: () = assert!(FFMA_PER_ROUND.is_multiple_of((OUTER * OUTER) as u32), "whole turns");

/// 32 independent sums, and the same two operands for all of them: a multiply-add needs
/// one register that is not in the reuse cache.
///
/// Each of the sums, which start at 0, 1, 2 and so on, becomes `sum * x + y`,
/// `rounds * FFMA_PER_ROUND / 32` times. `out` gets the total of every thread.
///
/// # Safety
/// - A block has [`FFMA_THREADS`] threads.
/// - `out` has an element for each thread, and nothing else touches it during the launch.
#[kernel(block = FFMA_THREADS, min_blocks = FFMA_BLOCKS)]
pub unsafe fn roof_ffma_shared(rounds: u32, x: f32, y: f32, out: *mut f32) {
    let mut acc = [0.0f32; SHARED_ACC];
    for i in 0..SHARED_ACC {
        acc[i] = i as f32;
    }
    for _ in 0..rounds {
        for _ in 0..FFMA_PER_ROUND as usize / SHARED_ACC {
            for i in 0..SHARED_ACC {
                acc[i] = fma(acc[i], x, y);
            }
        }
    }
    let mut total = 0.0;
    for i in 0..SHARED_ACC {
        total += acc[i];
    }
    // SAFETY: this thread's own element.
    unsafe { *out.add(thread::index_1d() as usize) = total };
}

/// The outer product of a GEMM: 8 x 8 sums, each of which takes one operand out of eight
/// and another out of eight.
///
/// Sum (i, j), which starts at 0, becomes `sum + (x + i) * (y + j)`,
/// `rounds * FFMA_PER_ROUND / 64` times. `out` gets the total of every thread.
///
/// # Safety
/// As for [`roof_ffma_shared`].
#[kernel(block = FFMA_THREADS, min_blocks = FFMA_BLOCKS)]
pub unsafe fn roof_ffma_outer(rounds: u32, x: f32, y: f32, out: *mut f32) {
    let (mut xs, mut ys) = ([0.0f32; OUTER], [0.0f32; OUTER]);
    for i in 0..OUTER {
        xs[i] = x + i as f32;
        ys[i] = y + i as f32;
    }
    let mut acc = [[0.0f32; OUTER]; OUTER];
    for _ in 0..rounds {
        for _ in 0..FFMA_PER_ROUND as usize / (OUTER * OUTER) {
            // Down a column and up the next, so that neighbours share an operand.
            for j in 0..OUTER {
                for step in 0..OUTER {
                    let i = if j % 2 == 0 { step } else { OUTER - 1 - step };
                    acc[i][j] = fma(xs[i], ys[j], acc[i][j]);
                }
            }
        }
    }
    let mut total = 0.0;
    for i in 0..OUTER {
        for j in 0..OUTER {
            total += acc[i][j];
        }
    }
    // SAFETY: this thread's own element.
    unsafe { *out.add(thread::index_1d() as usize) = total };
}

/// Copies [`COPY_PER_BLOCK`] elements per block, 128 bits at a time.
///
/// # Safety
/// - A block has [`COPY_THREADS`] threads, and the grid is one-dimensional.
/// - `from` and `to` are multiples of 16 and have [`COPY_PER_BLOCK`] elements per block,
///   which do not overlap, and which nothing else writes, or in `to` reads, during the launch.
#[kernel(block = COPY_THREADS)]
pub unsafe fn roof_copy(from: *const f32, to: *mut f32) {
    let first = thread::block_idx_x() as usize * COPY_PER_BLOCK as usize
        + thread::thread_idx_x() as usize * 4;
    let mut values = [[0.0f32; 4]; COPY_LOADS];
    for i in 0..COPY_LOADS {
        // SAFETY: inside this block's elements, and a multiple of four.
        values[i] = unsafe { vec::load4(from.add(first + i * COPY_THREADS as usize * 4)) };
    }
    for i in 0..COPY_LOADS {
        // SAFETY: likewise, and this thread's own.
        unsafe { vec::store4(to.add(first + i * COPY_THREADS as usize * 4), values[i]) };
    }
}
