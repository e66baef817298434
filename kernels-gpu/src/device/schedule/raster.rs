//! Raster order: which tile of C a block computes.

use cuda_std::prelude::*;

/// Rows of tiles that the rasterisation goes down before it moves to the next column.
const GROUP: u32 = 8;

/// The tile (row, column) of this block, rasterised for the L2 cache.
#[inline(always)]
pub fn rasterized_tile() -> (u32, u32) {
    let (width, height) = (thread::grid_dim_x(), thread::grid_dim_y());
    rasterize(thread::block_idx_y() * width + thread::block_idx_x(), width, height)
}

/// The tile (row, column) with this number, of a C of `width` x `height` tiles.
///
/// Blocks start in the order of their numbers, so neighbours run at the same time. In plain
/// row-major order, the running blocks share a row of tiles of A but need nearly all of B. Here
/// they go down GROUP rows of tiles before they move on to the next column. So they need a few rows
/// of A and a few columns of B:
///
/// ```text
///   0  4  8        plain:  0  1  2
///   1  5  9                3  4  5
///   2  6 10                6  7  8
///   3  7 11  ...           ...
/// ```
#[inline(always)]
pub fn rasterize(number: u32, width: u32, height: u32) -> (u32, u32) {
    rasterize_by::<GROUP>(number, width, height)
}

/// [`rasterize`] down 16 rows, for tiles that are wider than high.
#[inline(always)]
pub fn rasterize_wide(number: u32, width: u32, height: u32) -> (u32, u32) {
    rasterize_by::<16>(number, width, height)
}

#[inline(always)]
fn rasterize_by<const GROUP: u32>(number: u32, width: u32, height: u32) -> (u32, u32) {
    let first = number / (width * GROUP).max(1) * GROUP;
    // The last group may have fewer rows.
    let rows = (height - first).clamp(1, GROUP);
    let within = number - first * width;
    (first + within % rows, within / rows)
}
