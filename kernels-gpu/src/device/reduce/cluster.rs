//! How the blocks of a cluster add up their partial sums of a tile, and those of several clusters, and who stores it.
//!
//! Each block has its share of the tile, whose partial sums it reads from the shared memory of all blocks of its cluster,
//! from its own on, so that they do not all read from the same one at the same time. Where the cluster has only a part of
//! the tile's K, it stores these sums in device memory, and the last cluster to arrive adds up all parts, in the order of
//! K, whichever it is (*fix-up*): so no block waits, and the bits are always the same.

use cuda_std::hint::black_box;
use cuda_std::shared::SharedPtr;
use cuda_std::{atomic, cluster, vec, warp};

use crate::device::output::places::OUTPUTS_AT_ONCE;
use crate::device::output::tensor::TensorOutput;
use crate::device::schedule::cluster::{Entry, Pass};

/// Threads of a warp.
const WARP: u32 = 32;
/// Neighbours in a column of the tile that a thread adds up at once, and how many of these.
pub const QUAD: u32 = 4;
const QUADS: usize = 2;
/// Partial sums of each of these quads that are loaded before the first is added.
const LOADS: usize = 4;

/// Which part of a tile's sums a warp adds up: of the groups of [`QUAD`]s one in `splits * warps`.
#[derive(Clone, Copy)]
pub struct Shares {
    pub rank: u32,
    pub splits: u32,
    pub warp: u32,
    pub warps: u32,
    pub lane: u32,
}

/// A tile's partial sums in shared memory, one column after the other.
#[derive(Clone, Copy)]
pub struct Sums {
    /// Rows and columns.
    pub size: [u32; 2],
    pub at: SharedPtr<f32>,
    /// From one column to the next.
    pub pitch: u32,
}

/// Device memory in which clusters leave their parts of tiles.
#[derive(Clone, Copy)]
pub struct Fixup {
    /// Two tiles for each cluster: for the end of a tile, and for the beginning of one.
    pub partials: *mut f32,
    /// One for each warp with sums of each block; zero before the launch, and after it.
    pub counters: *mut u32,
}

impl Fixup {
    /// Counts a warp's part of a tile that `others` more clusters have a part of, after what the warp has stored, and before what it
    /// loads: whether it is the last to come.
    ///
    /// # Safety
    /// The counter is there. A whole warp calls this together.
    #[inline(always)]
    pub unsafe fn arrive(self, counter: u32, others: u32) -> bool {
        // SAFETY: the caller's contract.
        unsafe {
            warp::sync_warp(u32::MAX);
            let mut arrived = 0;
            if warp::lane_id() == 0 {
                let counter = self.counters.add(counter as usize);
                arrived = atomic::atomic_inc_acq_rel_u32_device(counter, others);
            }
            warp::sync_warp(u32::MAX);
            warp::warp_shuffle_idx(u32::MAX, arrived, 0, 32).0 == others
        }
    }

    /// Where a part has a group's quad of this lane.
    #[inline(always)]
    fn quad(self, [bm, bn]: [u32; 2], part: u32, group: u32, lane: u32) -> *mut f32 {
        let at = part as usize * (bm * bn) as usize + ((group * WARP + lane) * QUAD) as usize;
        self.partials.wrapping_add(at)
    }
}

impl Shares {
    /// Where a lane's quad of a group begins in a tile of `bm` x `bn`, so that the warp stores what lies together: along
    /// columns of the tile if C is transposed, or else up to 32 columns of a few rows.
    #[inline(always)]
    fn place(self, [bm, bn]: [u32; 2], group: u32, transposed: bool) -> (u32, u32) {
        if transposed {
            let quad = group * WARP + self.lane;
            return (quad % (bm / QUAD) * QUAD, quad / (bm / QUAD));
        }
        let cols = bn.min(WARP);
        let (down, right) = (group / (bn / cols), group % (bn / cols));
        (down * (WARP / cols * QUAD) + self.lane / cols * QUAD, right * cols + self.lane % cols)
    }

    /// Adds up and stores this warp's part of the tile that the entry names. `c`, which gives a product's C, is called each
    /// time, so that it is in no registers meanwhile.
    ///
    /// # Safety
    /// The entry has been written, and stays, as does what is added up; whoever has the same share is the same warp, in every cluster
    /// that has a part of the tile. The memory of the fix-up is as it says, for as many clusters as there are.
    #[inline(always)]
    pub unsafe fn add_up<const F16: bool>(
        self,
        Sums { size, at: sums, pitch }: Sums,
        transposed: bool,
        c: impl Fn(u32) -> TensorOutput<F16>,
        entry: Entry,
        fixup: Fixup,
        pass: Pass,
    ) {
        let groups = size[0] * size[1] / (WARP * QUAD);
        let step = self.splits * self.warps;
        let mut first = self.warp * self.splits + self.rank;
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
                        for i in 0..QUADS {
                            if cluster <= last && group(i) < groups {
                                let at = fixup.quad(size, part, group(i), self.lane);
                                // SAFETY: stored by this lane's like in that cluster, before its warp arrived; on 16 bytes.
                                parts[j][i] = unsafe { vec::load4_cg(at) };
                            }
                        }
                    }
                    for j in 0..LOADS {
                        add(parts[j]);
                    }
                    cluster += LOADS as u32;
                }
            } else if self.splits == 1 {
                // SAFETY: in the tile's sums of this block, on 16 bytes.
                add(from.map(|from| unsafe { from.load4(0) }));
            } else {
                let mut number = 0;
                while number < self.splits {
                    let mut parts = [[[0.0f32; 4]; QUADS]; LOADS];
                    for j in 0..LOADS {
                        let number = number + j as u32;
                        let rank = self.rank + number;
                        let rank = if rank < self.splits { rank } else { rank - self.splits };
                        for i in 0..QUADS {
                            // SAFETY: in the tile's sums of this block, or of a rank of the cluster, whose block is there; on
                            // 16 bytes.
                            unsafe {
                                if number == 0 {
                                    parts[j][i] = from[i].load4(0);
                                } else if number < self.splits {
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
            // Places are not kept in registers meanwhile.
            let at = black_box(first);
            let group = |i: usize| at + i as u32 * step;
            if let Some(part) = pass.part() {
                for i in 0..QUADS {
                    if group(i) < groups {
                        let quad = [0, 1, 2, 3].map(|j| values[i * 4 + j]);
                        // SAFETY: this thread's own, on 16 bytes.
                        unsafe { vec::store4(fixup.quad(size, part, group(i), self.lane), quad) };
                    }
                }
            } else {
                // SAFETY: the caller's contract.
                let (product, [row, col]) = unsafe { entry.place() };
                // Groups that are not there lie outside of C.
                let mut places = [(u32::MAX - QUAD, 0); QUADS];
                for i in 0..QUADS {
                    if group(i) < groups {
                        let (down, right) = self.place(size, group(i), transposed);
                        places[i] = (row + down, col + right);
                    }
                }
                // SAFETY: this thread's own.
                unsafe { store_quads(c(product), transposed, places, values) };
            }
            first += QUADS as u32 * step;
        }
    }
}

/// Stores what becomes of [`QUADS`] times four sums, below each other from their places on, or side by side in a C that
/// is transposed.
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
        // SAFETY: as the launch promises; C can be read as well.
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
        // SAFETY: inside, and on as many bytes, or else checked; this thread's own.
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
