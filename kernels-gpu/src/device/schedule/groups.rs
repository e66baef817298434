//! The tiles of a grouped product: where each lies, from [the table](crate::abi::groups).

use cuda_std::hint::black_box;
use cuda_std::prelude::*;
use cuda_std::vec;

use crate::abi::groups::GroupTile;

/// Where a tile of C is: its product or group, its first row and column, and those at which it
/// ends, at most. A C that ends earlier ends the tile.
#[derive(Clone, Copy)]
pub struct Place {
    pub product: u32,
    pub row: u32,
    pub col: u32,
    pub ends: [u32; 2],
}

/// A part of C that is cut into tiles: a product, or the rows of a group.
#[derive(Clone, Copy)]
pub struct Part {
    pub product: u32,
    /// A tile's number in the part, which has `width` x `height` tiles.
    pub tile: u32,
    pub width: u32,
    pub height: u32,
    /// The first row, and the one behind the last, at most.
    begin: u32,
    end: u32,
}

/// The table of a launch, if its product is grouped.
#[derive(Clone, Copy)]
pub struct Groups(*const GroupTile);

impl Part {
    /// All of a product.
    #[inline(always)]
    pub fn of_product(product: u32, tile: u32, [width, height]: [u32; 2]) -> Self {
        Self { product, tile, width, height, begin: 0, end: u32::MAX }
    }

    /// The place of the tile of `rows` x `cols` in row `y` of the part's tiles, and column `x`.
    #[inline(always)]
    pub fn place(self, (y, x): (u32, u32), [rows, cols]: [u32; 2]) -> Place {
        let (row, col) = (self.begin + y * rows, x * cols);
        Place { product: self.product, row, col, ends: [self.end.min(row + rows), col + cols] }
    }
}

impl Groups {
    /// No groups.
    pub const NONE: Self = Self(core::ptr::null());

    /// The table at an address, or none at 0.
    ///
    /// # Safety
    /// It is the table for this launch's tiles. It is read only behind the wait for the kernel in
    /// front, which wrote it.
    #[inline(always)]
    pub unsafe fn new(table: *const GroupTile) -> Self {
        Self(table)
    }

    /// Whether the product is grouped.
    #[inline(always)]
    pub fn is_some(self) -> bool {
        !self.0.is_null()
    }

    #[inline(always)]
    fn entry(self, number: u32) -> GroupTile {
        // SAFETY: there are as many, on 16 bytes: see `new`.
        let [group, first, begin, end] =
            unsafe { vec::load(self.0.wrapping_add(number as usize).cast::<u32>()) };
        GroupTile { group, first, begin, end }
    }

    /// The tiles of all groups that lie below each other.
    #[inline(always)]
    pub fn count(self) -> u32 {
        self.entry(0).first
    }

    /// The group of a tile of `size` rows; `width` tiles lie side by side.
    #[inline(always)]
    pub fn of_rows(self, tile: u32, width: u32, size: u32) -> Part {
        let GroupTile { group, first, begin, end } = self.entry(1 + tile / width.max(1));
        Part {
            product: group,
            tile: tile - first * width,
            width,
            height: (end - begin).div_ceil(size.max(1)),
            begin,
            end,
        }
    }

    /// Whether the calling block has a tile: a product that is not grouped has no more blocks.
    #[inline(always)]
    pub fn has_tile(self, width: u32) -> bool {
        !self.is_some() || thread::block_idx_x() < self.count() * width
    }

    /// The tile of the calling block, which has one.
    ///
    /// Blocks walk the tiles of all groups along the grid's x axis; or those of a product, and the
    /// products along y. The parts of C are walked in an order like
    /// [`rasterize`](crate::device::schedule::raster::rasterize). A product has `width` x `height`
    /// tiles.
    #[inline(always)]
    pub fn of_block(
        self,
        [width, height]: [u32; 2],
        size: [u32; 2],
        order: impl Fn(u32, u32, u32) -> (u32, u32),
    ) -> Place {
        let (tile, product) = (black_box(thread::block_idx_x()), black_box(thread::block_idx_y()));
        let part = match self.is_some() {
            true => self.of_rows(tile, width, size[0]),
            false => Part::of_product(product, tile, [width, height]),
        };
        part.place(order(part.tile, part.width, part.height), size)
    }
}
