//! Persistent blocks: each computes one work tile after another, in raster order.

use cuda_std::prelude::*;

use crate::abi::tensor_core::options::{BROADCAST_A, BROADCAST_B};
use crate::abi::tensor_core::{equal_part, even_part};
use crate::device::output::tensor::{AT_ONCE, TensorOutput};
use crate::device::pipeline::tile_load::read_once;
use crate::device::schedule::groups::{Groups, Part, Place};
use crate::device::schedule::raster::rasterize_wide;

/// The tiles of the products of a launch, or if `GROUPED`, of its groups of rows.
#[derive(Clone, Copy)]
pub struct Tiles<const GROUPED: bool> {
    /// Tiles of each product; those of all groups are below each other.
    width: u32,
    height: u32,
    products: u32,
    groups: Groups,
    /// Elements from one C to the next.
    stride_c: u64,
    /// Step of A from one product to the next, in its map's third dimension: 0 if all share one A.
    pub step_a: u32,
    pub step_b: u32,
    /// Rows and columns of a tile.
    pub rows: u32,
    pub cols: u32,
}

/// Rows and columns of the tiles of m x n elements, of at most `rows` x `cols`.
///
/// Tiles have equal parts of C, and copies no lines out of bounds, which take longer. Panels of an
/// operand that does not lie along K are copied whole, and so are the rows of groups.
#[inline(always)]
pub fn parts<const GROUPED: bool, const TRANS_A: bool, const TRANS_B: bool>(
    [m, n]: [u32; 2],
    [rows, cols]: [u32; 2],
) -> [u32; 2] {
    [
        if TRANS_A || GROUPED { rows } else { equal_part(m, rows) },
        if TRANS_B { even_part(n, cols) } else { cols },
    ]
}

impl<const GROUPED: bool> Tiles<GROUPED> {
    /// The tiles of `products` of m x n elements, or of groups;
    /// [`options`](crate::abi::tensor_core::options) say what they share.
    #[inline(always)]
    pub fn new(
        [m, n]: [u32; 2],
        products: u32,
        stride_c: u64,
        options: u32,
        groups: Groups,
        tile: [u32; 2],
    ) -> Self {
        let [rows, cols] = tile.map(|lines| lines.max(1));
        Self {
            width: n.div_ceil(cols),
            height: m.div_ceil(rows),
            products,
            groups,
            stride_c,
            step_a: u32::from(options & BROADCAST_A == 0),
            step_b: u32::from(options & BROADCAST_B == 0),
            rows,
            cols,
        }
    }

    /// The tiles, as they are known behind the wait for the kernel in front.
    #[inline(always)]
    pub fn counted(self) -> Self {
        match GROUPED {
            true => Self { height: self.groups.count(), products: 1, ..self },
            false => self,
        }
    }

    /// The number of tiles, if they are [`counted`](Self::counted).
    #[inline(always)]
    pub fn count(self) -> u32 {
        self.width * self.height * self.products
    }

    /// Where a tile is.
    #[inline(always)]
    pub fn place(self, tile: u32) -> Place {
        let Self { width, height, rows, cols, .. } = self;
        let part = if GROUPED {
            self.groups.of_rows(tile, width, rows)
        } else {
            let product = tile / (width * height).max(1);
            Part::of_product(product, tile - product * (width * height), [width, height])
        };
        part.place(rasterize_wide(part.tile, part.width, part.height), [rows, cols])
    }

    /// Whether the L2 cache is to evict A first, and whether B.
    #[inline(always)]
    pub fn read_once(self) -> [bool; 2] {
        let is_alone = [self.step_a, self.step_b].map(|step| step != 0 || self.products == 1);
        read_once([self.rows, self.cols], [self.height, self.width], is_alone)
    }

    /// C of a tile's product, which ends where the tile ends.
    #[inline(always)]
    pub fn output<const F16: bool>(self, c: TensorOutput<F16>, place: Place) -> TensorOutput<F16> {
        c.of_product(place.product, self.stride_c).cut(place.ends)
    }

    /// Stores all tiles if K is 0, with blocks of `threads`.
    ///
    /// # Safety
    /// All threads of all blocks call this, and nothing else stores C.
    #[inline(always)]
    pub unsafe fn store_empty<const F16: bool>(self, c: TensorOutput<F16>, threads: u32) {
        let mut tile = thread::block_idx_x();
        while tile < self.count() {
            let place = self.place(tile);
            let (c, Place { row, col, .. }) = (self.output(c, place), place);
            // Each thread has one column of the tile, a few rows at a time.
            let parts = self.rows.div_ceil(AT_ONCE as u32) * self.cols;
            for at in (thread::thread_idx_x()..parts).step_by(threads as usize) {
                let (row, col) = (row + at / self.cols * AT_ONCE as u32, col + at % self.cols);
                // SAFETY: elements of the block's tile, this thread's alone.
                unsafe { c.store_empty(|i| (row + i as u32, col)) };
            }
            tile += thread::grid_dim_x();
        }
    }
}
