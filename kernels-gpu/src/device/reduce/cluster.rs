//! Adding up the partial sums of a cluster's blocks, and of several clusters.
//!
//! Partial sums lie as `wgmma` leaves them, in quads of a lane: eight columns of a warp's 16 rows are
//! one quad of each lane. So they are stored and loaded in vectors, and what is added up goes to C
//! as a block's own sums do.
//!
//! Each block of a cluster adds up its share of each warp's columns, from the shared memory of all
//! blocks. It begins with its own, so that not all blocks read from the same one at the same time.
//!
//! If the cluster has only a part of the tile's K, it stores its sums in device memory. The last
//! cluster to arrive adds up all parts, in the order of K (*fix-up*). So no block waits, and the
//! bits are always the same.

use cuda_std::prelude::*;
use cuda_std::shared::SharedPtr;
use cuda_std::{atomic, cluster, vec, warp};

use crate::abi::tensor_core::MAX_CLUSTER_SIZE;

/// Sums of a quad.
pub const QUAD: u32 = 4;
/// Columns of a quad of each lane.
pub const QUAD_COLS: u32 = 8;

/// The quads of a lane that its block adds up and stores.
#[derive(Clone, Copy)]
pub struct Share {
    /// The number of the warp, and of its lane.
    warp: u32,
    lane: u32,
    /// Quads of the warp.
    quads: u32,
    /// The first quad, and the one behind the last.
    pub begin: u32,
    pub end: u32,
}

/// Device memory for the blocks' parts of tiles.
#[derive(Clone, Copy)]
pub struct Fixup {
    /// Two tiles for each cluster: for the end of a tile, and for the beginning of one.
    pub partials: *mut f32,
    /// One per warp with sums, of each block; zero before the launch, and after it.
    pub counters: *mut u32,
}

impl Share {
    /// The share of block `rank` of `splits`, of warp `warp`, whose sums have `cols` columns.
    #[inline(always)]
    pub fn new([warp, lane]: [u32; 2], cols: u32, [rank, splits]: [u32; 2]) -> Self {
        let quads = cols.div_ceil(QUAD_COLS);
        let each = quads.div_ceil(splits.max(1));
        let begin = (rank * each).min(quads);
        Self { warp, lane, quads, begin, end: quads.min(begin + each) }
    }

    /// Where a quad of the lane begins in the tile's sums.
    #[inline(always)]
    pub fn at(self, quad: u32) -> u32 {
        ((self.warp * self.quads + quad) * 32 + self.lane) * QUAD
    }

    /// Stores a thread's own sums: all its quads.
    #[inline(always)]
    pub fn store_own<const SUMS: usize>(self, acc: &[f32; SUMS], store: impl Fn(u32, F32x4)) {
        for quad in 0..SUMS / QUAD as usize {
            if (quad as u32) < self.quads {
                let sums = [0, 1, 2, 3].map(|i| acc[quad * QUAD as usize + i]);
                store(self.at(quad as u32), sums);
            }
        }
    }

    /// Stores the share of the cluster's sums.
    ///
    /// # Safety
    /// It lies in shared memory, on 16 bytes, and nobody writes it.
    #[inline(always)]
    pub unsafe fn store_total(self, sums: SharedPtr<f32>, store: impl Fn(u32, F32x4)) {
        let mut quad = self.begin;
        while quad < self.end {
            let at = self.at(quad);
            // SAFETY: the caller's contract.
            store(at, unsafe { sums.load_vec(at) });
            quad += 1;
        }
    }

    /// Adds sources to the sums of `QUADS` quads of the share, from quad `quad` and source `first`
    /// on: `LOADS` of them, or what there is.
    ///
    /// Loads have no conditions: where there is nothing to add, another source is loaded and not
    /// added. Behind conditions, they would cost the loop along K its uniform registers.
    #[inline(always)]
    fn add<const QUADS: usize, const LOADS: usize>(
        self,
        sums: &mut [[f32; 4]; QUADS],
        quad: u32,
        [first, sources]: [u32; 2],
        load: impl Fn(u32, u32) -> F32x4,
    ) {
        let mut parts = [[[0.0f32; 4]; QUADS]; LOADS];
        for j in 0..LOADS {
            for i in 0..QUADS {
                let source = first + j as u32;
                let source = if source < sources { source } else { 0 };
                parts[j][i] = load(source, self.at((quad + i as u32).min(self.end - 1)));
            }
        }
        for j in 0..LOADS {
            for i in 0..QUADS {
                for k in 0..4 {
                    let part = if first + (j as u32) < sources { parts[j][i][k] } else { 0.0 };
                    sums[i][k] += part;
                }
            }
        }
    }

    /// Stores the sums of quads of the share, from quad `quad` on.
    #[inline(always)]
    fn store<const QUADS: usize>(
        self,
        sums: [[f32; 4]; QUADS],
        quad: u32,
        store: impl Fn(u32, F32x4),
    ) {
        for i in 0..QUADS {
            if quad + (i as u32) < self.end {
                store(self.at(quad + i as u32), sums[i]);
            }
        }
    }

    /// Adds up the share of block `rank` of the cluster, from the memory of all its blocks. The
    /// result lies where the block's own sums were. A thread has up to `SUMS` sums of a tile.
    ///
    /// # Safety
    /// Each block of the cluster is there, and has its sums at the same place, on 16 bytes. Nobody
    /// else reads this block's share of its sums, and nobody writes the other blocks'.
    #[inline(always)]
    pub unsafe fn add_up_cluster<const SUMS: usize>(self, sums: SharedPtr<f32>, place: [u32; 2]) {
        // SAFETY: the caller's contract.
        unsafe {
            // A wide tile has many quads, and otherwise several blocks' parts are in flight.
            match SUMS >= 64 {
                true => self.add_up_blocks::<4, 2>(sums, place),
                false => self.add_up_blocks::<2, 4>(sums, place),
            }
        }
    }

    /// [`add_up_cluster`](Self::add_up_cluster), some quads and blocks at a time.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn add_up_blocks<const QUADS: usize, const LOADS: usize>(
        self,
        sums: SharedPtr<f32>,
        [rank, splits]: [u32; 2],
    ) {
        let load = |source: u32, at: u32| {
            let from = rank + source;
            let from = if from < splits { from } else { from - splits };
            // SAFETY: the caller's contract.
            unsafe { cluster::mapa(sums, from).load_vec(at) }
        };
        let mut quad = self.begin;
        while quad < self.end {
            let mut total = [[0.0; 4]; QUADS];
            for first in (0..MAX_CLUSTER_SIZE).step_by(LOADS) {
                if first < splits {
                    self.add::<QUADS, LOADS>(&mut total, quad, [first, splits], load);
                }
            }
            // SAFETY: as above.
            self.store(total, quad, |at, quad| unsafe { sums.store_vec(at, quad) });
            quad += QUADS as u32;
        }
    }

    /// Adds up the share from the parts of several clusters, the `first` one and those up to the
    /// `last`. The result lies in shared memory. A tile has `size` sums.
    ///
    /// # Safety
    /// The same lanes of these clusters have stored their parts, before their warps arrived. Nobody
    /// else reads or writes the share in shared memory.
    #[inline(always)]
    pub unsafe fn add_up_parts(
        self,
        fixup: Fixup,
        size: u32,
        clusters: [u32; 2],
        sums: SharedPtr<f32>,
    ) {
        let sources = clusters[1] - clusters[0] + 1;
        // SAFETY: the caller's contract; on 16 bytes.
        let load =
            |source, at| unsafe { vec::load4_cg(fixup.of_clusters(size, clusters, source, at)) };
        let mut quad = self.begin;
        while quad < self.end {
            let (mut total, mut source) = ([[0.0; 4]; 4], 0);
            while source < sources {
                self.add::<4, 2>(&mut total, quad, [source, sources], load);
                source += 2;
            }
            // SAFETY: as above.
            self.store(total, quad, |at, quad| unsafe { sums.store_vec(at, quad) });
            quad += 4;
        }
    }

    /// [`add_up_parts`](Self::add_up_parts) of all the thread's quads, in registers.
    ///
    /// Loads have no conditions, as in `add`.
    ///
    /// # Safety
    /// The same lanes of these clusters have stored their parts, before their warps arrived.
    #[inline(always)]
    pub unsafe fn add_up_own<const SUMS: usize>(
        self,
        fixup: Fixup,
        size: u32,
        clusters: [u32; 2],
    ) -> [f32; SUMS] {
        let (mut acc, mut source) = ([0.0; SUMS], 0);
        while source <= clusters[1] - clusters[0] {
            for quad in 0..SUMS / QUAD as usize {
                let at = self.at((quad as u32).min(self.quads - 1));
                // SAFETY: the caller's contract; on 16 bytes.
                let part = unsafe { vec::load4_cg(fixup.of_clusters(size, clusters, source, at)) };
                for i in 0..4 {
                    acc[quad * QUAD as usize + i] += part[i];
                }
            }
            source += 1;
        }
        acc
    }
}

impl Fixup {
    /// Counts a warp's part of a tile, and says whether it is the last to come.
    ///
    /// `others` more clusters have a part of the tile. The count comes after the warp's stores, and
    /// before its loads. One lane tells it to the others through shared memory: from a shuffle,
    /// `ptxas` does not see that it is the same for all, and a loop around this would have no
    /// uniform registers.
    ///
    /// # Safety
    /// The counter and the word are there, and the latter is the warp's own. A whole warp calls
    /// this together.
    #[inline(always)]
    pub unsafe fn arrive(self, counter: u32, others: u32, word: SharedPtr<u32>) -> bool {
        // SAFETY: the caller's contract.
        unsafe {
            warp::sync_warp(u32::MAX);
            if warp::lane_id() == 0 {
                let counter = self.counters.add(counter as usize);
                word.store(0, atomic::atomic_inc_acq_rel_u32_device(counter, others));
            }
            warp::sync_warp(u32::MAX);
            word.load(0) == others
        }
    }

    /// Where a part begins, if a tile has `size` sums.
    #[inline(always)]
    pub fn part(self, size: u32, part: u32) -> *mut f32 {
        self.partials.wrapping_add(part as usize * size as usize)
    }

    /// Where an element of a cluster's part lies, by the cluster's number among those of a tile.
    #[inline(always)]
    fn of_clusters(self, size: u32, [first, _]: [u32; 2], number: u32, at: u32) -> *mut f32 {
        let part = 2 * (first + number) + u32::from(number == 0);
        self.part(size, part).wrapping_add(at as usize)
    }
}
