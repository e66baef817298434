//! Counts values by size, by atomic additions in shared memory.
//!
//! ```console
//! $ cargo run -p histogram     # on a GPU: bytes per second, beside a copy's
//! $ cargo test -p histogram
//! ```
//!
//! On an [H200](../../../runs/h200/examples/README.md): 4045 GB/s, 96 % of what a copy moves in the
//! same run.

use std::error::Error;

use cuda_driver as _; // The driver API: NVIDIA's driver, or the software device without one.
use cuda_std::launch::LaunchConfig;
use cust::prelude::*;
use histogram_kernels::{BINS, histogram};

const PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));

fn main() -> Result<(), Box<dyn Error>> {
    let values = random(bandwidth::elements());
    let counts = count(&values, 0.0, 1.0, true)?;
    let (least, most) = (counts.iter().min(), counts.iter().max());
    println!("{} values: {} to {} in a bin", values.len(), least.unwrap(), most.unwrap());
    Ok(())
}

/// Evenly distributed from 0 to 1, by a linear congruential generator.
fn random(n: usize) -> Vec<f32> {
    let mut state = 1u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..n).map(|_| next()).collect()
}

/// How many values are in each bin; `timed` prints how fast that was on a GPU.
fn count(values: &[f32], low: f32, high: f32, timed: bool) -> Result<Vec<u32>, Box<dyn Error>> {
    let _context = cust::quick_init()?;
    let module = Module::from_ptx(PTX, &[])?;
    let stream = Stream::new(StreamFlags::DEFAULT, None)?;
    // SAFETY: the module was built from this kernel.
    let kernel = unsafe { histogram::load(&module) }?;

    let config = LaunchConfig::per_multiprocessor(4, 256)?;
    let values = values.as_dbuf()?;
    let mut counts = DeviceBuffer::<u32>::zeroed(BINS)?;
    kernel.run(&stream, config.clone(), &values, low, high, &mut counts)?;
    let result = counts.as_host_vec()?;
    if timed {
        bandwidth::report(size_of::<f32>() * values.len(), &stream, || {
            // SAFETY: the buffers live until `report` has waited for the launches.
            unsafe { kernel.launch(&stream, config.clone(), &values, low, high, &mut counts) }
        })?;
    }
    Ok(result)
}

#[test]
fn counts_are_those_of_the_cpu() {
    let mut values = random(20_001);
    values.extend([f32::NAN, -1.0, 0.25, 0.75, 2.0, f32::INFINITY]);
    let mut expected = vec![0; BINS];
    for value in &values {
        if (0.25..=0.75).contains(value) {
            expected[(((value - 0.25) * 512.0) as usize).min(BINS - 1)] += 1;
        }
    }
    assert_eq!(count(&values, 0.25, 0.75, false).unwrap(), expected);
    assert_eq!(count(&values[..3], 2.0, 3.0, false).unwrap(), [0; BINS]);
}
