//! What runs on the GPU.

#![no_std]

use cuda_std::prelude::*;

/// One step of the heat equation on a grid of `nx * ny * nz` points, x the fastest: each point goes
/// towards the mean of its six neighbours by `rate`, and those on the surface stay as they are.
///
/// A thread has points all over the grid, and neighbouring threads have neighbouring ones: what
/// they load twice comes from a cache.
#[kernel]
pub fn diffuse(nx: u32, ny: u32, nz: u32, rate: f32, old: &[f32], mut new: DisjointSlice<f32>) {
    let (row, plane) = (nx as usize, nx as usize * ny as usize);
    for (i, new) in new.iter_mut() {
        let (x, y, z) = (i as u32 % nx, i as u32 / nx % ny, i as u32 / (nx * ny));
        let inside = |at: u32, n: u32| at > 0 && at + 1 < n;
        *new = old[i];
        if inside(x, nx) && inside(y, ny) && inside(z, nz) {
            let neighbours = old[i - 1]
                + old[i + 1]
                + old[i - row]
                + old[i + row]
                + old[i - plane]
                + old[i + plane];
            *new += rate * (neighbours / 6.0 - old[i]);
        }
    }
}
