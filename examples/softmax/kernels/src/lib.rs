//! What runs on the GPU.

#![no_std]

use cuda_std::fast;
use cuda_std::prelude::*;
use cuda_std::vec::Aligned;
use cuda_std::warp::warp_reduce_by;

/// What one access moves.
pub type Quad = Aligned<[f32; 4]>;
/// The elements of a row.
pub const COLUMNS: usize = 1024;
/// The quads of a row.
const QUADS: usize = COLUMNS / 4;
/// Threads of a block, and those of them that share a row.
pub const THREADS: u32 = 128;
const LANES: usize = 32;

/// The softmax of each row of a matrix: `exp(x - max) / sum of exp(x - max)`.
///
/// A warp has a row, which stays in registers between the one load and the one store: a lane has
/// every 32nd quad. Lanes find the maximum and the sum by shuffles, so that no warp waits for
/// another.
#[kernel(block = THREADS)]
pub fn softmax(x: &[Quad], mut out: DisjointSlice<Quad>) {
    let lane = warp::lane_id() as usize % LANES;
    let first = thread::index() as usize / LANES * QUADS;
    if first >= x.len() {
        return;
    }
    let row = &x[first..first + QUADS];

    let mut own = [[0.0; 4]; QUADS / LANES];
    for j in 0..QUADS / LANES {
        own[j] = row[j * LANES + lane].0;
    }
    let max = own.as_flattened().iter().copied().fold(f32::NEG_INFINITY, f32::max);
    // SAFETY: the whole warp is here: it has one row, and returns or not together.
    let max = unsafe { warp_reduce_by(max, f32::max) };
    for x in own.as_flattened_mut() {
        *x = fast::exp(*x - max);
    }
    // SAFETY: as above.
    let sum = unsafe { warp_reduce_by(own.as_flattened().iter().sum(), |a: f32, b| a + b) };

    assert!(first + QUADS <= out.len());
    for (j, quad) in own.iter().enumerate() {
        let quad = Aligned(quad.map(|x| x * (1.0 / sum)));
        // SAFETY: in bounds, and of this warp's row, of which this lane alone has it.
        unsafe { *out.as_mut_ptr().add(first + j * LANES + lane) = quad };
    }
}
