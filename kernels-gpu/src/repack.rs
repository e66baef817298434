//! A copy of a matrix whose rows bulk copies can reach.
//!
//! A tensor map wants rows that begin on 16 bytes. Where the caller's do not, [`repack`] copies
//! the matrix once to a place where they do, before [`tma`](crate::tma) runs: one read and one
//! write of it, as fast as memory allows.
//!
//! Each thread copies groups of four neighbours, which it loads one by one and stores at once.
//! Neighbouring threads have neighbouring groups, along a row and on to the next one, so that a
//! warp reads and writes whole lines whatever the shape.

use cuda_std::prelude::*;
use cuda_std::vec;

/// Threads per block of [`repack`].
pub const THREADS: u32 = 256;
/// Blocks per multiprocessor for which it has registers.
pub const BLOCKS: u32 = 4;
/// Groups of four elements that a thread has under way.
pub const GROUPS: u32 = 4;

/// Copies `rows` x `cols` elements at `from`, whose rows are `ld_from` apart, to `to`, where
/// they are `ld_to` apart. What is left of a row there gets copies of its last element.
///
/// # Safety
/// - A block has [`THREADS`] threads, and the grid is one-dimensional, with less than 2^20
///   blocks.
/// - `rows` and `cols` are not 0. No dimension is 2^31 or more, `ld_from >= cols`, and `ld_to` is
///   `cols`, rounded up to a multiple of four.
/// - `from` points to the elements, and `to`, a multiple of 16, to room for `rows * ld_to`, both
///   in global memory. Nothing writes the former or touches the latter during the launch.
#[kernel(block = THREADS, min_blocks = BLOCKS)]
pub unsafe fn repack(
    from: *const f32,
    ld_from: u32,
    to: *mut f32,
    ld_to: u32,
    rows: u32,
    cols: u32,
) {
    // As rows and groups, so that there is one division, and all numbers fit 32 bits.
    let per_row = (ld_to / 4).max(1);
    let threads = thread::grid_dim_x() * THREADS;
    let first = thread::block_idx_x() * THREADS + thread::thread_idx_x();
    let (mut row, mut group) = (first / per_row, first % per_row);
    let (row_step, group_step) = (threads / per_row, threads % per_row);
    while row < rows {
        let mut places = [(0, 0); GROUPS as usize];
        let mut values = [[0.0f32; 4]; GROUPS as usize];
        for i in 0..GROUPS as usize {
            places[i] = (row, group);
            // Without a branch, so that all loads are under way at once: past the end of the row
            // its last element is loaded, and past the last row that row.
            let start = row.min(rows - 1) as usize * ld_from as usize;
            for j in 0..4 {
                let col = (group * 4 + j).min(cols - 1);
                // SAFETY: inside.
                values[i][j as usize] = unsafe { *from.add(start + col as usize) };
            }
            row += row_step;
            group += group_step;
            if group >= per_row {
                group -= per_row;
                row += 1;
            }
        }
        for i in 0..GROUPS as usize {
            let (row, group) = places[i];
            if row < rows {
                let at = row as usize * ld_to as usize + group as usize * 4;
                // SAFETY: inside, a multiple of four, and this thread's own.
                unsafe { vec::store4(to.add(at), values[i]) };
            }
        }
    }
}
