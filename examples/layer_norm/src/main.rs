//! Normalises each row of a matrix: a kernel that is `unsafe`, because a block writes its own row,
//! and a launch with too many blocks would write beyond the last.
//!
//! ```console
//! $ cargo run -p layer_norm
//! $ cargo test -p layer_norm
//! ```

use std::error::Error;

use cuda_driver as _; // The driver API: NVIDIA's driver, or the software device without one.
use cust::prelude::*;
use layer_norm_kernels::layer_norm;

const PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));

fn main() -> Result<(), Box<dyn Error>> {
    let x = [1.0, 2.0, 3.0, 4.0, 10.0, 10.0, 30.0, 30.0];
    let out = normalise(&x, &[1.0; 4], &[0.0; 4], 1e-5)?;
    println!("{:?} and {:?}", &out[..4], &out[4..]);
    Ok(())
}

fn normalise(
    x: &[f32],
    gamma: &[f32],
    beta: &[f32],
    epsilon: f32,
) -> Result<Vec<f32>, Box<dyn Error>> {
    assert!(gamma.len() == beta.len() && x.len().is_multiple_of(gamma.len()), "whole rows");
    let _context = cust::quick_init()?;
    let module = Module::from_ptx(PTX, &[])?;
    let stream = Stream::new(StreamFlags::DEFAULT, None)?;
    // SAFETY: the module was built from this kernel.
    let kernel = unsafe { layer_norm::load(&module) }?;

    let rows = (x.len() / gamma.len()) as u32;
    let (x, gamma, beta) = (x.as_dbuf()?, gamma.as_dbuf()?, beta.as_dbuf()?);
    let mut out = DeviceBuffer::<f32>::zeroed(x.len())?;
    // SAFETY: a block for each row, and `out` is as large as `x`; the buffers live until the
    // stream was waited for.
    unsafe { kernel.launch(&stream, (rows, 128), &x, &gamma, &beta, epsilon, &mut out) }?;
    stream.synchronize()?;
    Ok(out.as_host_vec()?)
}

#[test]
fn rows_are_those_of_f64_within_rounding() {
    const EPSILON: f32 = 1e-5;
    for columns in [1, 100, 128, 1000] {
        // A mean that is large beside the deviation.
        let x: Vec<f32> = (0..5 * columns).map(|i| 50.0 + ((i * 37) % 101) as f32 * 0.01).collect();
        let gamma: Vec<f32> = (0..columns).map(|i| 0.5 + i as f32 / columns as f32).collect();
        let beta: Vec<f32> = (0..columns).map(|i| i as f32 * 0.01).collect();
        let found = normalise(&x, &gamma, &beta, EPSILON).unwrap();
        for (x, found) in x.chunks_exact(columns).zip(found.chunks_exact(columns)) {
            let mean_of = |value: &dyn Fn(f64) -> f64| {
                x.iter().map(|x| value((*x).into())).sum::<f64>() / columns as f64
            };
            let mean = mean_of(&|x| x);
            let variance = mean_of(&|x| (x - mean) * (x - mean));
            let scale = 1.0 / (variance + f64::from(EPSILON)).sqrt();
            // The mean is a sum of f32, and its error is scaled, too.
            let of_mean = (columns as f64 / 128.0 + 12.0) * f64::from(f32::EPSILON) * mean * scale;
            for (i, (x, found)) in x.iter().zip(found).enumerate() {
                let (gamma, beta) = (f64::from(gamma[i]), f64::from(beta[i]));
                let expected = (f64::from(*x) - mean) * scale * gamma + beta;
                let bound = of_mean * gamma + 1e-5 * (expected - beta).abs() + 1e-6 * beta + 1e-6;
                assert!((f64::from(*found) - expected).abs() <= bound, "{i}: {found}, {expected}");
            }
        }
    }
}
