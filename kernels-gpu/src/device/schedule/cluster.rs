//! The tiles that a cluster computes, and its parts of their K.
//!
//! Each cluster takes whole tiles, one after another, or there is *stream-K* (Osama et al., 2023).
//! Stream-K numbers the steps along K of all tiles as one sequence, and gives every cluster an equal
//! share of it. So all multiprocessors end at the same time:
//!
//! ```text
//!   cluster 0   | tile 0         | tile 1 ..
//!   cluster 1   |.. tile 1   | tile 2     ..
//!   cluster 2   |.. tile 2 | tile 3         |
//! ```
//!
//! If the number of clusters is a multiple of the tiles, each tile has its own clusters, which share
//! it alone. The blocks of a cluster share its part of the tile's K.

use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;

use crate::abi::tensor_core::BK;
use crate::device::pipeline::tile_load::read_once;
use crate::device::schedule::raster::rasterize_wide;

/// The launch's tiles, and the clusters that share them.
#[derive(Clone, Copy)]
pub struct Sequence {
    /// Tiles in a row and in a column of C, and products.
    width: u32,
    height: u32,
    products: u32,
    /// Steps along K.
    steps: u32,
    clusters: u32,
    /// Blocks of a cluster: its parts of K, no more than there are steps, but at least one.
    splits: u32,
    /// Whether clusters share tiles.
    shares_tiles: bool,
}

/// A tile, or a part of its K, that a cluster computes.
///
/// A *unit* of K is enough steps for each block of the cluster to have at least one.
#[derive(Clone, Copy)]
pub struct Work {
    pub tile: u32,
    /// Units of the tile: those in front of the cluster's, the cluster's own, and all.
    first: u32,
    count: u32,
    units: u32,
    steps: u32,
    splits: u32,
    /// Whether this is the cluster's last work.
    pub is_last: bool,
}

/// The producer's message to the consumers about a block's work, in shared memory.
#[derive(Clone, Copy)]
pub struct Entry(pub SharedPtr<u32>);

/// Where part number `part` begins, if `all` is divided evenly and the first parts have one more.
///
/// A quotient of 64 bits would be a call, and around a call there are no uniform registers.
#[inline(always)]
fn even(all: u32, parts: u32, part: u32) -> u32 {
    let parts = parts.max(1);
    part * (all / parts) + part.min(all % parts)
}

impl Sequence {
    /// The sequence of a launch, for tiles of `bm` x `bn`, and clusters of `splits` blocks.
    #[inline(always)]
    pub fn new(
        [m, n, k]: [u32; 3],
        [bm, bn]: [u32; 2],
        products: u32,
        splits: u32,
        shares_tiles: bool,
    ) -> Self {
        let (width, height) = (n.div_ceil(bn), m.div_ceil(bm));
        let clusters = thread::grid_dim_x() / splits.max(1);
        Self { width, height, products, steps: k.div_ceil(BK), clusters, splits, shares_tiles }
    }

    /// The product of a tile, and its row and column there, in tiles.
    #[inline(always)]
    pub fn place(self, tile: u32) -> [u32; 3] {
        let tiles = self.width * self.height;
        let product = tile / tiles.max(1);
        let (y, x) = rasterize_wide(tile - product * tiles, self.width, self.height);
        [product, y, x]
    }

    /// Whether the L2 cache is to evict A first, and whether B. A `steps` of 0 means that all
    /// products share the operand.
    #[inline(always)]
    pub fn read_once(self, tile: [u32; 2], steps: [u32; 2]) -> [bool; 2] {
        let is_alone = steps.map(|step| step != 0 || self.products == 1);
        read_once(tile, [self.height, self.width], is_alone)
    }

    /// Units of a tile that has steps.
    #[inline(always)]
    fn units(self) -> u32 {
        self.steps / self.splits.max(1)
    }

    /// Units of each cluster, and the number of first clusters that have one more.
    #[inline(always)]
    fn shares(self) -> [u32; 2] {
        let all = self.tiles() * self.units();
        [all / self.clusters.max(1), all % self.clusters.max(1)]
    }

    /// All tiles, of all products.
    #[inline(always)]
    pub fn tiles(self) -> u32 {
        self.width * self.height * self.products
    }

    /// Clusters of each tile, if their number is a multiple of that of the tiles, or else 0.
    #[inline(always)]
    fn parts(self) -> u32 {
        let tiles = self.tiles().max(1);
        let parts = self.clusters / tiles;
        if parts * tiles == self.clusters { parts } else { 0 }
    }

    /// Work number `number` of a cluster.
    #[inline(always)]
    pub fn work(self, cluster: u32, number: u32) -> Work {
        let Self { steps, splits, clusters, .. } = self;
        let units = self.units().max(1);
        let whole = |tile: u32, is_last| Work {
            tile,
            first: 0,
            count: units,
            units,
            steps,
            splits,
            is_last,
        };
        if !self.shares_tiles {
            let tile = cluster + number * clusters;
            return whole(tile, tile + clusters >= self.tiles());
        }
        let parts = self.parts();
        if let Some(tile) = cluster.checked_div(parts) {
            let part = cluster - tile * parts;
            let unit = |part: u32| even(units, parts, part);
            let first = unit(part);
            return Work { first, count: unit(part + 1) - first, ..whole(tile, true) };
        }
        let [share, more] = self.shares();
        let start = cluster * share + cluster.min(more);
        let end = start + share + u32::from(cluster < more);
        let tile = start / units + number;
        let first = if number == 0 { start % units } else { 0 };
        let left = end - (tile * units + first);
        let count = left.min(units - first);
        Work { first, count, ..whole(tile, count == left) }
    }

    /// The first and the last cluster that share a tile.
    #[inline(always)]
    pub fn clusters_of(self, tile: u32) -> [u32; 2] {
        let parts = self.parts();
        if parts > 0 {
            return [tile * parts, tile * parts + parts - 1];
        }
        let [share, more] = self.shares();
        let large = more * (share + 1);
        [tile * self.units(), (tile + 1) * self.units() - 1].map(|unit| match unit < large {
            true => unit / (share + 1).max(1),
            false => more + (unit - large) / share.max(1),
        })
    }
}

impl Work {
    /// Whether the cluster has all of the tile.
    #[inline(always)]
    pub fn is_whole(self) -> bool {
        self.count == self.units
    }

    /// The steps of a block of the cluster: the first, and the one behind the last.
    #[inline(always)]
    pub fn part(self, rank: u32) -> [u32; 2] {
        let step = |unit: u32| even(self.steps, self.units, unit);
        let (begin, end) = (step(self.first), step(self.first + self.count));
        [rank, rank + 1].map(|rank| begin + (end - begin) * rank / self.splits.max(1))
    }
}

impl Entry {
    /// Words of shared memory per entry.
    pub const WORDS: u32 = 10;

    /// The entry for the block's tile number `number`; `self` is the first of two.
    #[inline(always)]
    pub fn of(self, number: u32) -> Self {
        Self(self.0.add(number % 2 * Self::WORDS))
    }

    /// Writes a cluster's work: `steps` of the block, for its tile at (row, col) of a product.
    /// `last_panel` is the last of the tile's panels of 64 rows that exists; the tile has `cols`.
    ///
    /// # Safety
    /// The entry lies in shared memory, and nobody else reads or writes it at this time.
    #[inline(always)]
    pub unsafe fn write(
        self,
        sequence: Sequence,
        cluster: u32,
        work: Work,
        steps: u32,
        place: [u32; 3],
        [last_panel, cols]: [u32; 2],
    ) {
        let (part, [first, last]) = match work.is_whole() {
            true => (u32::MAX, [0; 2]),
            false => (2 * cluster + u32::from(work.first == 0), sequence.clusters_of(work.tile)),
        };
        let [product, row, col] = place;
        // SAFETY: the caller's contract.
        unsafe {
            self.0.store(0, steps);
            self.0.store(1, product);
            self.0.store(2, row);
            self.0.store(3, col);
            self.0.store(4, part);
            self.0.store(5, first);
            self.0.store(6, last);
            self.0.store(7, work.is_last.into());
            self.0.store(8, last_panel);
            self.0.store(9, cols);
        }
    }

    /// The block's steps along K.
    ///
    /// # Safety
    /// The entry has been written, and nobody writes it at this time.
    #[inline(always)]
    pub unsafe fn steps(self) -> u32 {
        // SAFETY: the caller's contract.
        unsafe { self.0.load(0) }
    }

    /// The last of the tile's panels of 64 rows that exists.
    ///
    /// # Safety
    /// As for [`Entry::steps`].
    #[inline(always)]
    pub unsafe fn last_panel(self) -> u32 {
        // SAFETY: the caller's contract.
        unsafe { self.0.load(8) }
    }

    /// Columns of the tile; some may be out of C.
    ///
    /// # Safety
    /// As for [`Entry::steps`].
    #[inline(always)]
    pub unsafe fn cols(self) -> u32 {
        // SAFETY: the caller's contract.
        unsafe { self.0.load(9) }
    }

    /// The tile's product, and its first row and column there.
    ///
    /// # Safety
    /// As for [`Entry::steps`].
    #[inline(always)]
    pub unsafe fn place(self) -> (u32, [u32; 2]) {
        // SAFETY: the caller's contract.
        unsafe { (self.0.load(1), [self.0.load(2), self.0.load(3)]) }
    }

    /// The number of the cluster's part of the tile, unless it has all of it.
    ///
    /// # Safety
    /// As for [`Entry::steps`].
    #[inline(always)]
    pub unsafe fn part(self) -> Option<u32> {
        // SAFETY: the caller's contract.
        let part = unsafe { self.0.load(4) };
        if part == u32::MAX { None } else { Some(part) }
    }

    /// The first and the last cluster that share the tile.
    ///
    /// # Safety
    /// As for [`Entry::steps`].
    #[inline(always)]
    pub unsafe fn clusters(self) -> [u32; 2] {
        // SAFETY: the caller's contract.
        unsafe { [self.0.load(5), self.0.load(6)] }
    }

    /// Whether this is the cluster's last work.
    ///
    /// # Safety
    /// As for [`Entry::steps`].
    #[inline(always)]
    pub unsafe fn is_last(self) -> bool {
        // SAFETY: the caller's contract.
        unsafe { self.0.load(7) != 0 }
    }
}
