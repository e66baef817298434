//! Adding up the partial sums of a cluster's blocks, and of several clusters, and storing the tile.
//!
//! Each block has its share of the tile. It reads the partial sums of its share from the shared
//! memory of all blocks of its cluster that have this tile. It begins with its own, so that not all
//! blocks read from the same one at the same time.
//!
//! If the cluster has only a part of the tile's K, it stores its sums in device memory. The last
//! cluster to arrive adds up all parts, in the order of K (*fix-up*). So no block waits, and the
//! bits are always the same.

use cuda_std::hint::black_box;
use cuda_std::shared::SharedPtr;
use cuda_std::{atomic, cluster, vec, warp};

use crate::device::output::places::OUTPUTS_AT_ONCE;
use crate::device::output::tensor::TensorOutput;
use crate::device::pipeline::roles::WM;
use crate::device::schedule::cluster::{Entry, Member, Pass};

/// Threads of a warp.
const WARP: u32 = 32;
/// Neighbours in a column of the tile that a thread adds up at once, and the number of such quads.
pub const QUAD: u32 = 4;
const QUADS: usize = 2;
/// Partial sums of each quad that are loaded before the first is added.
const LOADS: usize = 4;

/// A warp's part of a tile's sums: every `splits * warps`-th group of [`QUAD`]s.
#[derive(Clone, Copy)]
pub struct Shares {
    pub member: Member,
    pub warp: u32,
    pub warps: u32,
    pub lane: u32,
}

/// A tile's partial sums in shared memory, one column after another.
#[derive(Clone, Copy)]
pub struct Sums {
    /// Rows and columns.
    pub size: [u32; 2],
    /// Rows of each [`WM`] that belong to C.
    pub rows: u32,
    pub at: SharedPtr<f32>,
    /// Elements from one column to the next.
    pub pitch: u32,
}

/// Device memory for the blocks' parts of tiles.
#[derive(Clone, Copy)]
pub struct Fixup {
    /// Two tiles for each tile of a cluster: for the end of a tile, and for the beginning of one.
    pub partials: *mut f32,
    /// One per warp with sums, of each block; zero before the launch, and after it.
    pub counters: *mut u32,
}

impl Sums {
    /// Stores all sums times alpha; C [is plain](TensorOutput::is_plain).
    ///
    /// `thread` is one of four warps for each [`WM`] of rows. The first sum's place is `place`.
    ///
    /// # Safety
    /// The sums are there. Nobody else stores these elements of C.
    #[inline(always)]
    pub unsafe fn store<const F16: bool>(
        self,
        transposed: bool,
        c: TensorOutput<F16>,
        [row, col]: [u32; 2],
        thread: u32,
    ) {
        let Self { size: [bm, _], rows, at: sums, pitch } = self;
        let alpha = c.c.alpha;
        let [all_rows, all_cols] = match transposed {
            true => [c.c.cols, c.c.rows],
            false => [c.c.rows, c.c.cols],
        };
        // Each thread has the same four rows of several columns: neighbours in a row of a
        // transposed C. Otherwise it has four columns at once, and warps have whole sectors.
        let (down, first) = match transposed {
            true => (thread % (bm / QUAD) * QUAD, thread / (bm / QUAD)),
            false => {
                let (warp, lane) = (thread / WARP, thread % WARP);
                let warps_down = bm / WARP;
                let first = warp / warps_down * 16 + lane / 8 * QUAD;
                (warp % warps_down * WARP + lane % 8 * QUAD, first)
            }
        };
        let row = row + down / WM * rows + down % WM;
        let rows = (rows.saturating_sub(down % WM)).min(all_rows.saturating_sub(row)).min(QUAD);
        let apart = if transposed { 8 } else { 1 };
        let mut right = first;
        while col + right < all_cols && rows > 0 {
            let mut values = [[0.0f32; 4]; 4];
            for i in 0..4 {
                let right = right + i as u32 * apart;
                if col + right < all_cols {
                    // SAFETY: the caller's contract; on 16 bytes.
                    values[i] =
                        unsafe { sums.add(right * pitch + down).load4(0) }.map(|v| alpha * v);
                }
            }
            if !transposed {
                let lines = values;
                for i in 0..4 {
                    values[i] = [0, 1, 2, 3].map(|j| lines[j][i]);
                }
            }
            for i in 0..4 {
                let (row, col, there) = match transposed {
                    true => {
                        let col = col + right + i as u32 * 8;
                        (col, row, if col < all_cols { rows } else { 0 })
                    }
                    false => {
                        let cols = (all_cols - (col + right)).min(QUAD);
                        (row + i as u32, col + right, if (i as u32) < rows { cols } else { 0 })
                    }
                };
                // SAFETY: inside, and this thread's own; vectors are aligned, since C is plain.
                unsafe {
                    if there == QUAD {
                        c.store_quad(c.offset(row, col), values[i]);
                    } else {
                        for j in 0..4 {
                            if (j as u32) < there {
                                c.store(row, col + j as u32, values[i][j]);
                            }
                        }
                    }
                }
            }
            right += 32;
        }
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

    /// Where a part has this lane's quad of a group.
    #[inline(always)]
    fn quad(self, [bm, bn]: [u32; 2], part: u32, group: u32, lane: u32) -> *mut f32 {
        let at = part as usize * (bm * bn) as usize + ((group * WARP + lane) * QUAD) as usize;
        self.partials.wrapping_add(at)
    }
}

impl Shares {
    /// Where a lane's quad of a group begins in a tile of `bm` x `bn`.
    ///
    /// The warp stores neighbours: along columns of the tile if C is transposed, otherwise up to 32
    /// columns of a few rows.
    #[inline(always)]
    fn place(self, [bm, bn]: [u32; 2], group: u32, transposed: bool) -> (u32, u32) {
        if transposed {
            let quad = group * WARP + self.lane;
            return (quad % (bm / QUAD) * QUAD, quad / (bm / QUAD));
        }
        // Whole warps of columns, or 16.
        let cols = if bn < WARP { 16 } else { WARP };
        let across = (bn / WARP).max(1);
        let (down, right) = (group / across, group % across);
        (down * (WARP / cols * QUAD) + self.lane / cols * QUAD, right * cols + self.lane % cols)
    }

    /// Adds up and stores this warp's part of the tile that the entry names.
    ///
    /// `c` gives a product's C. It is called for each group, so that C takes no registers in
    /// between.
    ///
    /// # Safety
    /// - The entry has been written, and stays, and so do the sums that are added up.
    /// - In every cluster that has a part of the tile, the same warp has the same share.
    /// - The memory of the fix-up is as it says, for all clusters.
    #[inline(always)]
    pub unsafe fn add_up<const F16: bool>(
        self,
        Sums { size, rows, at: sums, pitch }: Sums,
        transposed: bool,
        c: impl Fn(u32) -> TensorOutput<F16>,
        entry: Entry,
        fixup: Fixup,
        pass: Pass,
    ) {
        let Member { part: own, splits, tile, tiles } = self.member;
        let groups = size[0] * size[1] / (WARP * QUAD);
        let step = splits * self.warps;
        let mut first = self.warp * splits + own;
        while first < groups {
            let group = |i: usize| first + i as u32 * step;
            let mut from = [sums; QUADS];
            for i in 0..QUADS {
                if group(i) < groups {
                    let (down, right) = self.place(size, group(i), transposed);
                    from[i] = sums.add(right * pitch + down);
                }
            }
            let mut values = [0.0f32; OUTPUTS_AT_ONCE];
            let mut add = |part: [[f32; 4]; QUADS]| {
                for i in 0..QUADS * 4 {
                    values[i] += part[i / 4][i % 4];
                }
            };
            if pass == Pass::FIXUP {
                // SAFETY: the caller's contract.
                let [first_cluster, last] = unsafe { entry.clusters() };
                let mut cluster = first_cluster;
                while cluster <= last {
                    let mut parts = [[[0.0f32; 4]; QUADS]; LOADS];
                    for j in 0..LOADS {
                        let cluster = cluster + j as u32;
                        let part = 2 * cluster + u32::from(cluster == first_cluster);
                        let part = part * tiles + tile;
                        for i in 0..QUADS {
                            if cluster <= last && group(i) < groups {
                                let at = fixup.quad(size, part, group(i), self.lane);
                                // SAFETY: stored by the same lane of that cluster, before its warp
                                // arrived; on 16 bytes.
                                parts[j][i] = unsafe { vec::load4_cg(at) };
                            }
                        }
                    }
                    for j in 0..LOADS {
                        add(parts[j]);
                    }
                    cluster += LOADS as u32;
                }
            } else if splits == 1 {
                // SAFETY: in the tile's sums of this block, on 16 bytes.
                add(from.map(|from| unsafe { from.load4(0) }));
            } else {
                let mut number = 0;
                while number < splits {
                    let mut parts = [[[0.0f32; 4]; QUADS]; LOADS];
                    for j in 0..LOADS {
                        let number = number + j as u32;
                        let part = own + number;
                        let part = if part < splits { part } else { part - splits };
                        let rank = self.member.rank_of(tile, part);
                        for i in 0..QUADS {
                            // SAFETY: in the tile's sums of this block, or of a rank of the
                            // cluster, whose block is there. On 16 bytes.
                            unsafe {
                                if number == 0 {
                                    parts[j][i] = from[i].load4(0);
                                } else if number < splits {
                                    parts[j][i] = cluster::mapa(from[i], rank).load_vec::<4>(0);
                                }
                            }
                        }
                    }
                    for j in 0..LOADS {
                        add(parts[j]);
                    }
                    number += LOADS as u32;
                }
            }
            // Places are recomputed instead of kept in registers.
            let at = black_box(first);
            let group = |i: usize| at + i as u32 * step;
            if let Some(part) = pass.part() {
                for i in 0..QUADS {
                    if group(i) < groups {
                        let quad = [0, 1, 2, 3].map(|j| values[i * 4 + j]);
                        let at = fixup.quad(size, part * tiles + tile, group(i), self.lane);
                        // SAFETY: this thread's own, on 16 bytes.
                        unsafe { vec::store4(at, quad) };
                    }
                }
            } else {
                // SAFETY: the caller's contract.
                let (product, [row, col]) = unsafe { entry.place() };
                // Missing groups and rows get out-of-bounds coordinates.
                let mut places = [(u32::MAX - QUAD, 0); QUADS];
                for i in 0..QUADS {
                    if group(i) < groups {
                        let (down, right) = self.place(size, group(i), transposed);
                        if down % WM < rows {
                            places[i] = (row + down / WM * rows + down % WM, col + right);
                        }
                    }
                }
                // SAFETY: this thread's own.
                unsafe { store_quads(c(product), transposed, places, values) };
            }
            first += QUADS as u32 * step;
        }
    }
}

/// Applies the epilogue to [`QUADS`] times four sums, and stores them.
///
/// Four sums lie below each other from their place on, or side by side in a transposed C.
///
/// # Safety
/// No other thread stores these elements.
#[inline(always)]
unsafe fn store_quads<const F16: bool>(
    c: TensorOutput<F16>,
    transposed: bool,
    places: [(u32, u32); QUADS],
    mut values: [f32; OUTPUTS_AT_ONCE],
) {
    let place = |i: usize| {
        let (row, col) = places[i / 4];
        let row = row + i as u32 % 4;
        if transposed { (col, row) } else { (row, col) }
    };
    let TensorOutput { c: output, is_half, epilogue } = c;
    if epilogue.is_some() || output.beta != 0.0 {
        // SAFETY: as the launch promises; C can also be read.
        unsafe { output.apply_epilogue(epilogue, QUADS * 4, place, c, &mut values) };
    } else {
        values = values.map(|value| output.alpha * value);
    }
    let is_wide = transposed
        && output.ld.is_multiple_of(4)
        && (output.pointer as usize).is_multiple_of(if is_half { 8 } else { 16 });
    for i in (0..QUADS * 4).step_by(4) {
        let (row, col) = place(i);
        let quad = [values[i], values[i + 1], values[i + 2], values[i + 3]];
        // SAFETY: inside and aligned, or else checked; this thread's own.
        unsafe {
            if is_wide && row < output.rows && col + 4 <= output.cols {
                c.store_quad(c.offset(row, col), quad);
                continue;
            }
            for j in 0..4 {
                let (row, col) = place(i + j);
                c.store(row, col, quad[j]);
            }
        }
    }
}
