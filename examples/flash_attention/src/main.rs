//! Attention without the matrix of scores, in f32.
//!
//! ```console
//! $ cargo run -p flash_attention
//! $ cargo test -p flash_attention
//! ```

use std::error::Error;

use cuda_driver as _; // The driver API: NVIDIA's driver, or the software device without one.
use cuda_std::vec::Aligned;
use cust::prelude::*;
use flash_attention_kernels::{QUERIES, Row, flash_attention};

const PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));

fn main() -> Result<(), Box<dyn Error>> {
    let [q, k, v] = [1, 2, 3].map(|seed| random(2 * 128, seed));
    let out = attend(128, &q, &k, &v)?;
    println!("two heads of 128: the first output begins with {:?}", out[0][0].0);
    Ok(())
}

/// Rows of numbers from -1 to 1, by a linear congruential generator.
fn random(rows: usize, seed: u64) -> Vec<Row> {
    let mut state = seed;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    let mut quad = || Aligned(std::array::from_fn(|_| next()));
    (0..rows).map(|_| std::array::from_fn(|_| quad())).collect()
}

/// The attention of each head of `len` queries, keys and values.
fn attend(len: u32, q: &[Row], k: &[Row], v: &[Row]) -> Result<Vec<Row>, Box<dyn Error>> {
    assert!(len.is_multiple_of(QUERIES as u32) && q.len().is_multiple_of(len as usize));
    let _context = cust::quick_init()?;
    let module = Module::from_ptx(PTX, &[])?;
    let stream = Stream::new(StreamFlags::DEFAULT, None)?;
    // SAFETY: the module was built from this kernel.
    let kernel = unsafe { flash_attention::load(&module) }?;

    let blocks = (q.len() / QUERIES) as u32;
    let (q, k, v) = (q.as_dbuf()?, k.as_dbuf()?, v.as_dbuf()?);
    let mut out = DeviceBuffer::<Row>::zeroed(q.len())?;
    kernel.run(&stream, (blocks, QUERIES as u32), len, &q, &k, &v, &mut out)?;
    Ok(out.as_host_vec()?)
}

#[cfg(test)]
fn numbers(row: &Row) -> impl Iterator<Item = f64> {
    row.iter().flat_map(|quad| quad.0).map(f64::from)
}

#[test]
fn outputs_are_those_of_f64_within_rounding() {
    use flash_attention_kernels::DIM;
    let len = 128;
    let [mut q, k, v] = [1, 2, 3].map(|seed| random(2 * len, seed));
    // Scores far apart, so that the largest so far counts.
    for Aligned(q) in q.iter_mut().step_by(3).flatten() {
        *q = q.map(|q| 8.0 * q);
    }
    let found = attend(len as u32, &q, &k, &v).unwrap();
    for (i, (q, found)) in q.iter().zip(found).enumerate() {
        let head = i / len * len..i / len * len + len;
        let dot = |a: &Row, b: &Row, of: fn(f64) -> f64| {
            numbers(a).zip(numbers(b)).map(|(a, b)| of(a * b)).sum::<f64>()
        };
        let scores: Vec<f64> = k[head.clone()].iter().map(|k| dot(q, k, |x| x) / 8.0).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
        let sum: f64 = weights.iter().sum();
        // A score is a sum of `DIM` products, and its error is the exponential's relative one.
        let magnitude = k[head.clone()].iter().map(|k| dot(q, k, f64::abs) / 8.0);
        let of_score = (DIM + 2) as f64 * 2f64.powi(-24) * magnitude.fold(0.0, f64::max);
        for (column, found) in numbers(&found).enumerate() {
            let values = v[head.clone()].iter().map(|v| f64::from(v[column / 4].0[column % 4]));
            let expected = weights.iter().zip(values).map(|(w, v)| w * v).sum::<f64>() / sum;
            // All values are at most 1; each step scales, adds, and takes two exponentials.
            let bound = 2.0 * of_score + 3.0 * len as f64 * 2f64.powi(-22);
            let error = (found - expected).abs();
            assert!(error <= bound, "{i} {column}: {found}, {expected}, bound {bound}");
        }
    }
}
