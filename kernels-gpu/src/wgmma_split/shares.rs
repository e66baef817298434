//! How the blocks of a cluster add up their partial sums of a tile, and store it.

use cuda_std::half::{bf16x2, f16x2};
use cuda_std::hint::black_box;
use cuda_std::shared::SharedPtr;
use cuda_std::{cluster, vec};

use super::WARP;
use crate::epilogue::MOST;
use crate::tensor_output::{Accumulate, TensorOutput};

/// Neighbours in a column of the tile that a thread adds up at once, and how many of these.
pub const QUAD: u32 = 4;
const QUADS: usize = MOST / QUAD as usize;

/// Which part of a tile's sums a warp adds up: every so many groups of [`QUAD`]s.
#[derive(Clone, Copy)]
pub struct Shares {
    pub rank: u32,
    pub splits: u32,
    pub warp: u32,
    pub warps: u32,
    pub lane: u32,
}

impl Shares {
    /// Where a lane's quad of a group begins in a tile of `bm` x `bn`, so that the warp stores what lies together: along
    /// columns of the tile if C is transposed, or else eight columns of 16 rows.
    #[inline(always)]
    fn place(self, [bm, bn]: [u32; 2], group: u32, transposed: bool) -> (u32, u32) {
        if transposed {
            let quad = group * WARP + self.lane;
            return (quad % (bm / QUAD) * QUAD, quad / (bm / QUAD));
        }
        let (down, right) = (group / (bn / 8), group % (bn / 8));
        (down * 16 + self.lane / 8 * QUAD, right * 8 + self.lane % 8)
    }

    /// Adds up and stores this warp's part of the tile that begins at (row, col).
    ///
    /// # Safety
    /// The partial sums of all blocks of the cluster are there, and stay; whoever has the same share is the same warp.
    #[inline(always)]
    pub unsafe fn add_up<const F16: bool>(
        self,
        tile: [u32; 2],
        sums: SharedPtr<f32>,
        pitch: u32,
        transposed: bool,
        [row, col]: [u32; 2],
        c: TensorOutput<F16>,
    ) {
        let groups = tile[0] * tile[1] / (WARP * QUAD);
        let step = self.splits * self.warps;
        let mut first = self.warp * self.splits + self.rank;
        while first < groups {
            let mut from = [sums; QUADS];
            // Groups that are not there lie outside of C.
            let mut places = [(u32::MAX - QUAD, 0); QUADS];
            for i in 0..QUADS {
                let group = first + i as u32 * step;
                if group < groups {
                    let (down, right) = self.place(tile, group, transposed);
                    from[i] = sums.add(right * pitch + down);
                    places[i] = (row + down, col + right);
                }
            }
            let mut values = [0.0f32; MOST];
            for rank in 0..black_box(self.splits) {
                for i in 0..QUADS {
                    // SAFETY: in the tile's sums of this block, or of a rank of the cluster, whose block is there; on
                    // 16 bytes.
                    let part = unsafe {
                        match rank == self.rank {
                            true => from[i].load4(0),
                            false => cluster::mapa(from[i], rank).load_vec::<4>(0),
                        }
                    };
                    for j in 0..4 {
                        values[i * 4 + j] += part[j];
                    }
                }
            }
            // SAFETY: this thread's own.
            unsafe { store_quads(c, transposed, places, values) };
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
    mut values: [f32; MOST],
) {
    let place = |i: usize| {
        let (row, col) = places[i / 4];
        let row = row + i as u32 % 4;
        if transposed { (col, row) } else { (row, col) }
    };
    let TensorOutput { c: output, is_half, epilogue } = c;
    if epilogue.is_some() || output.beta != 0.0 {
        let old = |beta| Accumulate { c, beta };
        // SAFETY: as the launch promises; C can be read as well.
        unsafe { output.apply_epilogue(epilogue, MOST, place, old, &mut values) };
    } else {
        values = values.map(|value| output.alpha * value);
    }
    let is_wide = transposed
        && output.ld.is_multiple_of(4)
        && (output.pointer as usize).is_multiple_of(if is_half { 8 } else { 16 });
    for i in (0..MOST).step_by(4) {
        let (row, col) = place(i);
        let quad = [values[i], values[i + 1], values[i + 2], values[i + 3]];
        // SAFETY: inside, and on as many bytes, or else checked; this thread's own.
        unsafe {
            if is_wide && row < output.rows && col + 4 <= output.cols {
                let offset = c.offset(row, col);
                if is_half {
                    let [one, other] = [[quad[0], quad[1]], [quad[2], quad[3]]];
                    let pairs = match F16 {
                        true => [f16x2::narrow(one).to_bits(), f16x2::narrow(other).to_bits()],
                        false => [bf16x2::narrow(one).to_bits(), bf16x2::narrow(other).to_bits()],
                    };
                    vec::store(output.pointer.cast::<u16>().add(offset).cast(), pairs);
                } else {
                    vec::store4(output.pointer.add(offset), quad);
                }
                continue;
            }
            for j in 0..4 {
                let (row, col) = place(i + j);
                c.store(row, col, quad[j]);
            }
        }
    }
}
