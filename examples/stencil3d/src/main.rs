//! Heat that spreads in three dimensions: a stencil, and two buffers that take turns.
//!
//! ```console
//! $ cargo run -p stencil3d
//! $ cargo test -p stencil3d
//! ```

use std::error::Error;

use cuda_driver as _; // The driver API: NVIDIA's driver, or the software device without one.
use cuda_std::launch::LaunchConfig;
use cust::prelude::*;
use stencil3d_kernels::diffuse;

const PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));

fn main() -> Result<(), Box<dyn Error>> {
    let size = [24; 3];
    let heat = spread(size, &hot_spot(size), 50)?;
    let middle: Vec<String> =
        heat[24 * 24 * 12 + 24 * 12..][..24].iter().map(|heat| format!("{heat:.2}")).collect();
    println!("through the middle: {}", middle.join(" "));
    Ok(())
}

/// A cold cube with a hot one inside.
fn hot_spot([nx, ny, nz]: [u32; 3]) -> Vec<f32> {
    let is_hot = |at: u32, n: u32| (n / 3..n - n / 3).contains(&at);
    let heat = |i: u32| {
        let (x, y, z) = (i % nx, i / nx % ny, i / (nx * ny));
        f32::from(u8::from(is_hot(x, nx) && is_hot(y, ny) && is_hot(z, nz)))
    };
    (0..nx * ny * nz).map(heat).collect()
}

/// The heat after so many steps.
fn spread([nx, ny, nz]: [u32; 3], start: &[f32], steps: usize) -> Result<Vec<f32>, Box<dyn Error>> {
    let _context = cust::quick_init()?;
    let module = Module::from_ptx(PTX, &[])?;
    let stream = Stream::new(StreamFlags::DEFAULT, None)?;
    // SAFETY: the module was built from this kernel.
    let kernel = unsafe { diffuse::load(&module) }?;

    let config = LaunchConfig::for_num_elems(nx * ny * nz, 256);
    let mut old = start.as_dbuf()?;
    let mut new = DeviceBuffer::<f32>::zeroed(start.len())?;
    for _ in 0..steps {
        kernel.run(&stream, config.clone(), nx, ny, nz, 0.5, &old, &mut new)?;
        std::mem::swap(&mut old, &mut new);
    }
    Ok(old.as_host_vec()?)
}

#[test]
fn steps_have_the_bits_of_the_cpu() {
    let size = [11, 13, 9];
    let [row, plane] = [11, 11 * 13];
    let mut expected = hot_spot(size);
    assert!(expected.contains(&1.0));
    for _ in 0..4 {
        let old = expected.clone();
        for (z, y, x) in
            (1..8).flat_map(|z| (1..12).flat_map(move |y| (1..10).map(move |x| (z, y, x))))
        {
            let i = z * plane + y * row + x;
            let near = old[i - 1]
                + old[i + 1]
                + old[i - row]
                + old[i + row]
                + old[i - plane]
                + old[i + plane];
            expected[i] += 0.5 * (near / 6.0 - old[i]);
        }
    }
    assert_eq!(spread(size, &hot_spot(size), 4).unwrap(), expected);
}
