//! What runs on the GPU.

#![no_std]

use cuda_std::fast;
use cuda_std::prelude::*;
use cuda_std::vec::Aligned;

/// Threads of a block, and bodies that it has in shared memory at a time.
pub const TILE: usize = 128;

/// The position of a body, and its mass; or its velocity.
pub type Body = Aligned<[f32; 4]>;

/// Moves all bodies by their mutual attraction for the time `dt`: `velocities`, and `moved` from
/// `bodies`. `softening` is a distance below which the attraction no longer grows.
///
/// A block looks at a tile of the bodies at a time. Each of its threads loads one of them to shared
/// memory, from where all of them read it.
#[kernel(block = TILE as u32)]
pub fn step(
    bodies: &[Body],
    mut velocities: DisjointSlice<Body>,
    mut moved: DisjointSlice<Body>,
    dt: f32,
    softening: f32,
) {
    let tile = shared_array![Body; TILE];
    let own = bodies.get(thread::index() as usize).copied().unwrap_or_default().0;
    let mut acceleration = [0.0; 3];
    for first in (0..bodies.len()).step_by(TILE) {
        let lane = thread::thread_idx_x();
        // Beyond the last there are bodies without mass.
        let body = bodies.get(first + lane as usize).copied().unwrap_or_default();
        // SAFETY: each thread has one of the 128 elements, and a barrier lies between this and
        // what others load of it.
        unsafe { tile.write(lane, body) };
        thread::sync_threads();
        for j in 0..TILE as u32 {
            // SAFETY: written before the barrier.
            let Aligned([x, y, z, mass]) = unsafe { tile.read(j) };
            let d = [x - own[0], y - own[1], z - own[2]];
            let square = fma(d[0], d[0], fma(d[1], d[1], fma(d[2], d[2], softening * softening)));
            let inverse = fast::rsqrt(square);
            let factor = mass * inverse * inverse * inverse;
            for (a, d) in acceleration.iter_mut().zip(d) {
                *a = fma(factor, d, *a);
            }
        }
        thread::sync_threads();
    }
    if let (Some(velocity), Some(moved)) = (velocities.get_mut(), moved.get_mut()) {
        moved.0 = own;
        for (i, a) in acceleration.into_iter().enumerate() {
            velocity.0[i] = fma(a, dt, velocity.0[i]);
            moved.0[i] = fma(velocity.0[i], dt, own[i]);
        }
    }
}
