//! Roofline peaks: FMAs per second, and bytes copied per second.
//!
//! These are not rungs. They are the two peaks of the roofline: arithmetic without memory, and
//! memory without arithmetic. They are measured in the same run as the rungs, because clocks float.
//!
//! # FMAs
//!
//! An FMA reads three registers. The register file has two banks, and each gives one register per
//! cycle. A small cache in front of them keeps operands that are used again at once. So the speed
//! of a loop depends on the registers that the assembler picks. An outer product, 8 x 8, reached 77
//! % of this loop, which needs as few reads as possible. `NOTES.md` has the arithmetic.
//!
//! The compiler can leave nothing out: every sum starts with another value, and all sums are added
//! up and stored.

use cuda_std::prelude::*;
use cuda_std::vec;

/// Threads per block of [`peak_ffma()`].
pub const FFMA_THREADS: u32 = 256;
/// Blocks per multiprocessor: 16 warps, four per scheduler.
pub const FFMA_BLOCKS: u32 = 2;
/// FMAs per thread and round of [`peak_ffma()`].
pub const FFMA_PER_ROUND: u32 = 512;

/// Threads per block of [`peak_copy()`].
pub const COPY_THREADS: u32 = 256;
/// 128-bit loads that a thread of [`peak_copy()`] has in flight.
const COPY_LOADS: usize = 4;
/// Elements (f32) that a block of [`peak_copy()`] copies.
pub const COPY_PER_BLOCK: u32 = COPY_THREADS * COPY_LOADS as u32 * 4;

/// Sums of [`peak_ffma()`].
const SUMS: usize = 32;

const _: () = assert!(FFMA_PER_ROUND.is_multiple_of(SUMS as u32), "whole rounds");

/// The peak of FMAs: 32 independent sums, with the same two operands for all of them.
///
/// So an FMA needs one register that is not in the reuse cache. The sums start at 0, 1, 2 and so
/// on. Each becomes `sum * x + y`, `rounds * FFMA_PER_ROUND / 32` times. `out` gets the total of
/// every thread.
///
/// # Safety
/// - A block has [`FFMA_THREADS`] threads.
/// - `out` has an element for each thread, and nothing else touches it during the launch.
#[kernel(block = FFMA_THREADS, min_blocks = FFMA_BLOCKS)]
pub unsafe fn peak_ffma(rounds: u32, x: f32, y: f32, out: *mut f32) {
    let mut sums = [0.0f32; SUMS];
    for i in 0..SUMS {
        sums[i] = i as f32;
    }
    for _ in 0..rounds {
        for _ in 0..FFMA_PER_ROUND as usize / SUMS {
            for i in 0..SUMS {
                sums[i] = fma(sums[i], x, y);
            }
        }
    }
    let mut total = 0.0;
    for i in 0..SUMS {
        total += sums[i];
    }
    // SAFETY: this thread's own element.
    unsafe { *out.add(thread::index_1d() as usize) = total };
}

/// Copies [`COPY_PER_BLOCK`] elements per block, 128 bits at a time.
///
/// # Safety
/// - A block has [`COPY_THREADS`] threads, and the grid is one-dimensional.
/// - `from` and `to` are multiples of 16 and have [`COPY_PER_BLOCK`] elements per block, which do
///   not overlap.
/// - During the launch nothing else writes any of these elements, or reads those of `to`.
#[kernel(block = COPY_THREADS)]
pub unsafe fn peak_copy(from: *const f32, to: *mut f32) {
    let first = thread::block_idx_x() as usize * COPY_PER_BLOCK as usize
        + thread::thread_idx_x() as usize * 4;
    let mut values = [[0.0f32; 4]; COPY_LOADS];
    for i in 0..COPY_LOADS {
        // SAFETY: inside this block's elements, and a multiple of four.
        values[i] = unsafe { vec::load4(from.add(first + i * COPY_THREADS as usize * 4)) };
    }
    for i in 0..COPY_LOADS {
        // SAFETY: as above, and this thread's own.
        unsafe { vec::store4(to.add(first + i * COPY_THREADS as usize * 4), values[i]) };
    }
}
