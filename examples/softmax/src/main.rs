//! The softmax of each row of a matrix, read once and written once.
//!
//! ```console
//! $ cargo run -p softmax     # on a GPU: bytes per second, beside a copy's
//! $ cargo test -p softmax
//! ```
//!
//! On an [H200](../../../runs/h200/examples/README.md): 4154 GB/s, 98 % of what a copy moves in the
//! same run.

use std::error::Error;

use cuda_driver as _; // The driver API: NVIDIA's driver, or the software device without one.
use cuda_std::launch::LaunchConfig;
use cuda_std::vec::Aligned;
use cust::prelude::*;
use softmax_kernels::{COLUMNS, Quad, THREADS, softmax};

const PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));

fn main() -> Result<(), Box<dyn Error>> {
    let x: Vec<f32> = (0..bandwidth::elements()).map(|i| ((i * 37) % 101) as f32 * 0.1).collect();
    let out = rows(&x, true)?;
    println!("the first row begins with {:?}", &out[..4]);
    Ok(())
}

/// The softmax of each row of [`COLUMNS`]; `timed` prints how fast it was on a GPU.
fn rows(x: &[f32], timed: bool) -> Result<Vec<f32>, Box<dyn Error>> {
    let _context = cust::quick_init()?;
    let module = Module::from_ptx(PTX, &[])?;
    let stream = Stream::new(StreamFlags::DEFAULT, None)?;
    // SAFETY: the module was built from this kernel.
    let kernel = unsafe { softmax::load(&module) }?;

    assert!(x.len().is_multiple_of(COLUMNS), "whole rows");
    let config = LaunchConfig::for_num_elems((x.len() / COLUMNS * 32) as u32, THREADS);
    let quads: Vec<Quad> = x.as_chunks().0.iter().copied().map(Aligned).collect();
    let quads = quads.as_slice().as_dbuf()?;
    let mut out = DeviceBuffer::<Quad>::zeroed(quads.len())?;
    kernel.run(&stream, config.clone(), &quads, &mut out)?;
    if timed {
        bandwidth::report(2 * size_of_val(x), &stream, || {
            // SAFETY: the buffers live until `report` has waited for the launches.
            unsafe { kernel.launch(&stream, config.clone(), &quads, &mut out) }
        })?;
    }
    Ok(out.as_host_vec()?.into_iter().flat_map(|Aligned(quad)| quad).collect())
}

#[test]
fn rows_are_those_of_f64_within_rounding() {
    let x: Vec<f32> = (0..3 * COLUMNS).map(|i| ((i * 37) % 1013) as f32 * 0.02 - 5.0).collect();
    let found = rows(&x, false).unwrap();
    for (x, found) in x.chunks_exact(COLUMNS).zip(found.chunks_exact(COLUMNS)) {
        let max = x.iter().fold(f64::NEG_INFINITY, |max, x| max.max((*x).into()));
        let exp: Vec<f64> = x.iter().map(|x| (f64::from(*x) - max).exp()).collect();
        let sum: f64 = exp.iter().sum();
        for ((x, exp), found) in x.iter().zip(exp).zip(found) {
            let expected = exp / sum;
            // Of the difference, which `exp` multiplies, of `exp2` twice, and of the sum.
            let relative = 2f64.powi(-23) * 2.0 * (max - f64::from(*x)) + 2f64.powi(-20);
            let error = (f64::from(*found) - expected).abs();
            assert!(error <= relative * expected, "{x}: {found}, {expected}");
        }
    }
}
