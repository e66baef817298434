//! Operand staging: copies of matrices whose rows 128-bit and bulk copies cannot reach.
//!
//! A tensor map wants rows that begin on 16 bytes, and the [`tiles`](crate::tiles) a B whose rows
//! are whole quads. Where the caller's matrices are not so, [`stage_operands()`] copies them once to
//! a workspace with an aligned leading dimension, before the product runs: one read and one write,
//! as fast as memory allows. It takes A and B at once, because a launch costs as much as a copy of
//! some megabytes.
//!
//! Each thread copies quads, four neighbours, which it loads one by one and stores at once.
//! Neighbouring threads have neighbouring quads, along a row and on to the next one, so that a
//! warp reads and writes whole lines whatever the shape.

use cuda_std::prelude::*;
use cuda_std::vec;

/// Threads per block of [`stage_operands()`].
pub const THREADS: u32 = 256;
/// Blocks per multiprocessor for which it has registers.
pub const BLOCKS: u32 = 4;
/// Quads that a thread has in flight.
pub const QUADS: u32 = 4;

/// Copies two matrices: the first `a_blocks` blocks of the grid copy A, the others B.
///
/// Of A, `a_rows` x `a_cols` elements at `a`, with the leading dimension `lda`, go to `to_a`, with
/// `ld_to_a`; of B likewise. What is left of a row there gets zeros.
///
/// # Safety
/// - A block has [`THREADS`] threads, and the grid is one-dimensional, with less than 2^20
///   blocks, `a_blocks` of them or more.
/// - For A if `a_blocks` is not 0, and for B if there are more: `rows` and `cols` are not 0. No
///   dimension is 2^31 or more, `ld >= cols`, and `ld_to` is `cols`, rounded up to a multiple of
///   four. The first pointer points to the elements, and the second, a multiple of 16, to room
///   for `rows * ld_to`, both in global memory. Nothing writes the former or touches the latter
///   during the launch.
#[kernel(block = THREADS, min_blocks = BLOCKS)]
pub unsafe fn stage_operands(
    a: *const f32,
    lda: u32,
    to_a: *mut f32,
    ld_to_a: u32,
    a_rows: u32,
    a_cols: u32,
    b: *const f32,
    ldb: u32,
    to_b: *mut f32,
    ld_to_b: u32,
    b_rows: u32,
    b_cols: u32,
    a_blocks: u32,
) {
    let block = thread::block_idx_x();
    let is_a = block < a_blocks;
    let (from, ld_from, to, ld_to) =
        if is_a { (a, lda, to_a, ld_to_a) } else { (b, ldb, to_b, ld_to_b) };
    let (rows, cols) = if is_a { (a_rows, a_cols) } else { (b_rows, b_cols) };
    let (block, blocks) =
        if is_a { (block, a_blocks) } else { (block - a_blocks, thread::grid_dim_x() - a_blocks) };
    // As rows and quads, so that there is one division, and all numbers fit 32 bits.
    let per_row = (ld_to / 4).max(1);
    let threads = blocks * THREADS;
    let first = block * THREADS + thread::thread_idx_x();
    let (mut row, mut quad) = (first / per_row, first % per_row);
    let (row_step, quad_step) = (threads / per_row, threads % per_row);
    while row < rows {
        let mut places = [(0, 0); QUADS as usize];
        let mut values = [[0.0f32; 4]; QUADS as usize];
        for i in 0..QUADS as usize {
            places[i] = (row, quad);
            // Without a branch, so that all loads are in flight at once: past the end of the row
            // its last element is loaded for nothing, and past the last row that row.
            let start = row.min(rows - 1) as usize * ld_from as usize;
            for j in 0..4 {
                let col = (quad * 4 + j).min(cols - 1);
                // SAFETY: inside.
                let value = unsafe { *from.add(start + col as usize) };
                values[i][j as usize] = if quad * 4 + j < cols { value } else { 0.0 };
            }
            row += row_step;
            quad += quad_step;
            if quad >= per_row {
                quad -= per_row;
                row += 1;
            }
        }
        for i in 0..QUADS as usize {
            let (row, quad) = places[i];
            if row < rows {
                let at = row as usize * ld_to as usize + quad as usize * 4;
                // SAFETY: inside, a multiple of four, and this thread's own.
                unsafe { vec::store4(to.add(at), values[i]) };
            }
        }
    }
}
