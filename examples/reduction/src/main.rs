//! Sums up a vector: within a thread, a warp, a block, and then the blocks, each in a fixed order.
//!
//! ```console
//! $ cargo run -p reduction     # on a GPU: bytes per second, beside a copy's
//! $ cargo test -p reduction
//! ```
//!
//! On an [H200](../../../runs/h200/examples/README.md): 4062 GB/s, 96 % of what a copy moves in the
//! same run.

use std::error::Error;

use cuda_driver as _; // The driver API: NVIDIA's driver, or the software device without one.
use cuda_std::launch::LaunchConfig;
use cust::prelude::*;
use reduction_kernels::sum;

const PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));

fn main() -> Result<(), Box<dyn Error>> {
    let x: Vec<f32> = (0..bandwidth::elements()).map(|i| (i % 100) as f32 * 0.01).collect();
    println!("the sum of {} numbers is {}", x.len(), reduce(&x, true)?);
    Ok(())
}

/// The sum of `x`; `timed` prints how fast it was on a GPU.
fn reduce(x: &[f32], timed: bool) -> Result<f32, Box<dyn Error>> {
    let _context = cust::quick_init()?;
    let module = Module::from_ptx(PTX, &[])?;
    let stream = Stream::new(StreamFlags::DEFAULT, None)?;
    // SAFETY: the module was built from this kernel.
    let kernel = unsafe { sum::load(&module) }?;

    let config = LaunchConfig::per_multiprocessor(4, 256)?;
    let x = x.as_dbuf()?;
    let mut partial = DeviceBuffer::<f32>::zeroed(config.grid.x as usize)?;
    let mut total = DeviceBuffer::<f32>::zeroed(1)?;
    let mut launch = || {
        // SAFETY: the buffers live on, and the second launch follows the first in the stream.
        unsafe {
            kernel.launch(&stream, config.clone(), &x, &mut partial)?;
            kernel.launch(&stream, (1, 256), &partial, &mut total)
        }
    };
    launch()?;
    if timed {
        bandwidth::report(size_of::<f32>() * x.len(), &stream, launch)?;
    }
    stream.synchronize()?;
    Ok(total.as_host_vec()?[0])
}

#[test]
fn sums_are_those_of_f64_within_rounding() {
    for n in [1, 2, 255, 1000, 40_003] {
        let x: Vec<f32> = (0..n).map(|i| ((i * 37) % 101) as f32 / 7.0).collect();
        let expected: f64 = x.iter().map(|x| f64::from(*x)).sum();
        let found = f64::from(reduce(&x, false).unwrap());
        // Each element goes through at most so many additions: of a thread, a warp, a block, twice.
        let additions = n as f64 / 1024.0 + 60.0;
        let error = (found - expected).abs();
        assert!(error <= additions * f64::from(f32::EPSILON) / 2.0 * expected, "{n}: {error}");
    }
}
