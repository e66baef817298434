//! Bodies that attract each other, through a tile of them in shared memory.
//!
//! ```console
//! $ cargo run -p nbody
//! $ cargo test -p nbody
//! ```

use std::error::Error;

use cuda_driver as _; // The driver API: NVIDIA's driver, or the software device without one.
use cuda_std::launch::LaunchConfig;
use cuda_std::vec::Aligned;
use cust::prelude::*;
use nbody_kernels::{Body, TILE, step};

const PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));
const SOFTENING: f32 = 0.05;

fn main() -> Result<(), Box<dyn Error>> {
    let bodies = cloud(500);
    let (moved, velocities) = simulate(&bodies, 20, 1e-3)?;
    println!("energy: {:.6} before", energy(&bodies, &vec![Body::default(); bodies.len()]));
    println!("        {:.6} after 20 steps", energy(&moved, &velocities));
    Ok(())
}

/// `n` bodies in a ball, of a mass of 1 together.
fn cloud(n: usize) -> Vec<Body> {
    let body = |i: usize| {
        let (height, angle) = (2.0 * (i as f32 + 0.5) / n as f32 - 1.0, i as f32 * 2.4);
        let (radius, ring) = (0.2 + (i % 7) as f32 * 0.1, (1.0 - height * height).sqrt());
        let place = [ring * angle.cos(), ring * angle.sin(), height].map(|x| x * radius);
        Aligned([place[0], place[1], place[2], 1.0 / n as f32])
    };
    (0..n).map(body).collect()
}

/// The bodies, which were at rest, after so many steps of the time `dt`, and their velocities.
fn simulate(
    bodies: &[Body],
    steps: usize,
    dt: f32,
) -> Result<(Vec<Body>, Vec<Body>), Box<dyn Error>> {
    let _context = cust::quick_init()?;
    let module = Module::from_ptx(PTX, &[])?;
    let stream = Stream::new(StreamFlags::DEFAULT, None)?;
    // SAFETY: the module was built from this kernel.
    let kernel = unsafe { step::load(&module) }?;

    let config = LaunchConfig::for_num_elems(bodies.len() as u32, TILE as u32);
    let mut now = bodies.as_dbuf()?;
    let mut next = DeviceBuffer::<Body>::zeroed(bodies.len())?;
    let mut velocities = DeviceBuffer::<Body>::zeroed(bodies.len())?;
    for _ in 0..steps {
        kernel.run(&stream, config.clone(), &now, &mut velocities, &mut next, dt, SOFTENING)?;
        std::mem::swap(&mut now, &mut next);
    }
    Ok((now.as_host_vec()?, velocities.as_host_vec()?))
}

/// The attraction of all `bodies` on one at `place`, and its potential, in f64.
fn field(bodies: &[Body], place: [f32; 4]) -> ([f64; 3], f64) {
    let (mut acceleration, mut potential) = ([0.0; 3], 0.0);
    for Aligned(other) in bodies {
        let d: [f64; 3] = std::array::from_fn(|i| f64::from(other[i]) - f64::from(place[i]));
        let square = d.iter().map(|d| d * d).sum::<f64>() + f64::from(SOFTENING * SOFTENING);
        let mass = f64::from(other[3]);
        potential -= mass / square.sqrt();
        for (a, d) in acceleration.iter_mut().zip(d) {
            *a += mass * d / (square * square.sqrt());
        }
    }
    (acceleration, potential)
}

/// Kinetic and potential energy together.
fn energy(bodies: &[Body], velocities: &[Body]) -> f64 {
    let of = |(Aligned(body), Aligned(velocity)): (&Body, &Body)| {
        let square: f64 = velocity[..3].iter().map(|v| f64::from(v * v)).sum();
        0.5 * f64::from(body[3]) * (square + field(bodies, *body).1)
    };
    bodies.iter().zip(velocities).map(of).sum()
}

#[test]
fn a_step_is_that_of_f64_within_rounding() {
    let bodies = cloud(300);
    let (moved, velocities) = simulate(&bodies, 1, 0.5).unwrap();
    for (i, Aligned(body)) in bodies.iter().enumerate() {
        let (acceleration, _) = field(&bodies, *body);
        let magnitude = acceleration.iter().map(|a| a * a).sum::<f64>().sqrt();
        for (axis, a) in acceleration.into_iter().enumerate() {
            let (v, x) = (velocities[i].0[axis], moved[i].0[axis]);
            assert!((f64::from(v) - 0.5 * a).abs() <= 1e-4 * magnitude + 1e-5, "{i}: {v}, {a}");
            assert!((x - (body[axis] + 0.5 * v)).abs() <= 1e-6, "{i}: {x}");
        }
    }
}

#[test]
fn energy_is_kept() {
    let bodies = cloud(130);
    let (moved, velocities) = simulate(&bodies, 10, 1e-3).unwrap();
    let before = energy(&bodies, &vec![Body::default(); bodies.len()]);
    let after = energy(&moved, &velocities);
    assert!((after - before).abs() <= 1e-3 * before.abs(), "{before}, {after}");
    assert!(velocities.iter().any(|v| v.0[0] != 0.0));
}
