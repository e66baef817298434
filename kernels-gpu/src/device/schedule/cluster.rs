//! The tiles that a cluster computes, and its parts of their K.
//!
//! There is a cluster for each tile, or *stream-K* (Osama et al., 2023). Stream-K numbers the steps
//! along K of all tiles as one sequence, and gives every cluster an equal share of it. So all
//! multiprocessors end at the same time:
//!
//! ```text
//!   cluster 0   | tile 0         | tile 1 ..
//!   cluster 1   |.. tile 1   | tile 2     ..
//!   cluster 2   |.. tile 2 | tile 3         |
//! ```
//!
//! If there are as many clusters for each tile, they share that tile alone.
//!
//! The blocks of a cluster share K, or the columns of B for several tiles below each other, or
//! both:
//!
//! ```text
//!                     part 0 of K   part 1
//!   tile 0 of rows    rank 0        rank 2
//!   tile 1            rank 1        rank 3      ranks 0 and 1 copy half of B each, to both
//! ```
//!
//! To the sequence, those tiles are one.

use cuda_std::prelude::*;
use cuda_std::{cluster, shared::SharedPtr};

use crate::abi::tensor_core::BK;
use crate::device::pipeline::tile_load::read_once;
use crate::device::schedule::raster::rasterize_wide;

/// A block's place in its cluster.
#[derive(Clone, Copy)]
pub struct Member {
    /// The block's part of K, and the number of parts: no more than steps, but at least one.
    pub part: u32,
    pub splits: u32,
    /// The block's tile, and the number of tiles below each other.
    pub tile: u32,
    pub tiles: u32,
}

/// The launch's tiles, and the clusters that share them.
///
/// Tiles here are those of a cluster's blocks, one below the other, together.
#[derive(Clone, Copy)]
pub struct Sequence {
    /// Tiles in a row and in a column of C, and products.
    width: u32,
    height: u32,
    products: u32,
    /// Steps along K.
    steps: u32,
    clusters: u32,
    member: Member,
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

/// What is added up of a tile, and where it goes, in one register.
///
/// Either the sums of the cluster's blocks go to C, or to one of the cluster's two parts. Or all
/// parts go to C.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Pass(u32);

impl Pass {
    /// The cluster has all of the tile.
    pub const WHOLE: Self = Self(u32::MAX);
    /// All parts have been stored.
    pub const FIXUP: Self = Self(u32::MAX - 1);

    /// The part that receives the cluster's sums.
    #[inline(always)]
    pub fn part(self) -> Option<u32> {
        if self.0 < Self::FIXUP.0 { Some(self.0) } else { None }
    }
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

impl Member {
    /// The calling block's place, in a cluster of `tiles` tiles.
    #[inline(always)]
    pub fn of_block(tiles: u32) -> Self {
        let (rank, blocks) = (cluster::cluster_ctarank(), cluster::cluster_nctarank().max(1));
        let (part, splits) = (rank / tiles, blocks / tiles);
        Self { part, splits, tile: rank - part * tiles, tiles }
    }

    /// Blocks of the cluster.
    #[inline(always)]
    pub fn blocks(self) -> u32 {
        self.splits * self.tiles
    }

    /// The rank of the block with a tile and a part of K.
    #[inline(always)]
    pub fn rank_of(self, tile: u32, part: u32) -> u32 {
        part * self.tiles + tile
    }

    /// The block's own rank.
    #[inline(always)]
    pub fn rank(self) -> u32 {
        self.rank_of(self.tile, self.part)
    }
}

impl Sequence {
    /// The sequence of a launch, for blocks with tiles of `bm` x `bn`.
    #[inline(always)]
    pub fn new([m, n, k]: [u32; 3], [bm, bn]: [u32; 2], products: u32, member: Member) -> Self {
        let (width, height) = (n.div_ceil(bn), m.div_ceil(bm * member.tiles));
        let clusters = thread::grid_dim_x() / member.blocks().max(1);
        Self { width, height, products, steps: k.div_ceil(BK), clusters, member }
    }

    /// The product of a tile, and the row and column there of this block's tile, in tiles.
    ///
    /// The row may be out of bounds.
    #[inline(always)]
    pub fn place(self, tile: u32) -> [u32; 3] {
        let tiles = self.width * self.height;
        let product = tile / tiles.max(1);
        let (y, x) = rasterize_wide(tile - product * tiles, self.width, self.height);
        [product, y * self.member.tiles + self.member.tile, x]
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
        self.steps / self.member.splits.max(1)
    }

    /// Units of each cluster, and the number of first clusters that have one more.
    #[inline(always)]
    fn shares(self) -> [u32; 2] {
        let all = self.width * self.height * self.products * self.units();
        [all / self.clusters.max(1), all % self.clusters.max(1)]
    }

    /// Clusters of each tile, if their number is a multiple of that of the tiles, or else 0.
    #[inline(always)]
    fn parts(self) -> u32 {
        let tiles = (self.width * self.height * self.products).max(1);
        let parts = self.clusters / tiles;
        if parts * tiles == self.clusters { parts } else { 0 }
    }

    /// Work number `number` of a cluster.
    #[inline(always)]
    pub fn work(self, cluster: u32, number: u32) -> Work {
        let Self { steps, member: Member { splits, .. }, .. } = self;
        let units = self.units().max(1);
        let whole =
            Work { tile: cluster, first: 0, count: units, units, steps, splits, is_last: true };
        let parts = self.parts();
        if parts == 1 {
            return whole;
        }
        if parts > 1 {
            let (tile, part) = (cluster / parts, cluster % parts);
            let unit = |part: u32| even(units, parts, part);
            let first = unit(part);
            return Work { tile, first, count: unit(part + 1) - first, ..whole };
        }
        let [share, more] = self.shares();
        let start = cluster * share + cluster.min(more);
        let end = start + share + u32::from(cluster < more);
        let tile = start / units + number;
        let first = if number == 0 { start % units } else { 0 };
        let left = end - (tile * units + first);
        let count = left.min(units - first);
        Work { tile, first, count, is_last: count == left, ..whole }
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
    pub const WORDS: u32 = 14;

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
        let (Pass(pass), [first, last]) = match work.is_whole() {
            true => (Pass::WHOLE, [0; 2]),
            false => {
                let part = 2 * cluster + u32::from(work.first == 0);
                (Pass(part), sequence.clusters_of(work.tile))
            }
        };
        let [product, row, col] = place;
        // SAFETY: the caller's contract.
        unsafe {
            self.0.store(0, steps);
            self.0.store(1, product);
            self.0.store(2, row);
            self.0.store(3, col);
            self.0.store(4, pass);
            self.0.store(5, first);
            self.0.store(6, last);
            self.0.store(7, work.is_last.into());
            self.0.store(8, last_panel);
            let Member { part, splits, tile, tiles } = sequence.member;
            self.0.store(9, part);
            self.0.store(10, splits);
            self.0.store(11, tile);
            self.0.store(12, tiles);
            self.0.store(13, cols);
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

    /// Columns of the tile that exist, unless it reaches out of C.
    ///
    /// # Safety
    /// As for [`Entry::steps`].
    #[inline(always)]
    pub unsafe fn cols(self) -> u32 {
        // SAFETY: the caller's contract.
        unsafe { self.0.load(13) }
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

    /// Where the cluster's sums go.
    ///
    /// # Safety
    /// As for [`Entry::steps`].
    #[inline(always)]
    pub unsafe fn pass(self) -> Pass {
        // SAFETY: the caller's contract.
        Pass(unsafe { self.0.load(4) })
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

    /// The block's place in its cluster.
    ///
    /// # Safety
    /// As for [`Entry::steps`].
    #[inline(always)]
    pub unsafe fn member(self) -> Member {
        // SAFETY: the caller's contract.
        unsafe {
            Member {
                part: self.0.load(9),
                splits: self.0.load(10),
                tile: self.0.load(11),
                tiles: self.0.load(12),
            }
        }
    }
}
