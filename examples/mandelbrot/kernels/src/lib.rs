//! What runs on the GPU.

#![no_std]

use cuda_std::prelude::*;

/// Red, green, blue.
pub type Rgb = [u8; 3];

/// The colour of a pixel, by the number of steps that `z = z^2 + c` takes to leave the circle of
/// radius 2. An ordinary function: the host calls it, too.
#[must_use]
pub fn colour(x: u32, y: u32, width: u32, height: u32) -> Rgb {
    const STEPS: u32 = 255;
    let scale = 3.0 / width as f32;
    let c = [x as f32 * scale - 2.25, (y as f32 - height as f32 / 2.0) * scale];
    let mut z = [0.0; 2];
    let mut steps = 0;
    while steps < STEPS && z[0] * z[0] + z[1] * z[1] <= 4.0 {
        z = [z[0] * z[0] - z[1] * z[1] + c[0], 2.0 * z[0] * z[1] + c[1]];
        steps += 1;
    }
    match steps {
        STEPS => [0, 0, 0],
        _ => [(steps * 9) as u8, (steps * 5) as u8, (64 + steps * 3).min(255) as u8],
    }
}

/// Draws the Mandelbrot set.
#[kernel]
pub fn mandelbrot(width: u32, height: u32, mut image: DisjointSlice<Rgb>) {
    for (i, pixel) in image.iter_mut() {
        let i = i as u32;
        *pixel = colour(i % width, i / width, width, height);
    }
}
