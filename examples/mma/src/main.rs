//! Multiplies matrices of bf16 on tensor cores, with sums in f32.
//!
//! ```console
//! $ cargo run -p mma
//! $ cargo test -p mma
//! ```
//!
//! It is there to be read. The rung [`mma`](../../../docs/tensor-cores/mma.md) is one that is fast.

use std::error::Error;

use cuda_driver as _; // The driver API: NVIDIA's driver, or the software device without one.
use cust::prelude::*;
use half::bf16;
use mma_kernels::{LANES, M, N, matmul};

const PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));

fn main() -> Result<(), Box<dyn Error>> {
    let (m, n, k) = (100, 70, 200);
    let (a, b) = (random(m * k, 1), random(k * n, 2));
    let c = product(m, n, k, &a, &b)?;
    let (expected, _) = element_in_f64(n, k, &a, &b, 0);
    println!("C of {m} x {n} begins with {}, in f64 with {expected}", c[0]);
    Ok(())
}

/// Numbers from -1 to 1, by a linear congruential generator.
fn random(len: usize, seed: u64) -> Vec<bf16> {
    let mut state = seed;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bf16::from_f32((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
    };
    (0..len).map(|_| next()).collect()
}

/// The product of `a`, m x k, and `b`, k x n, both row-major.
fn product(
    m: usize,
    n: usize,
    k: usize,
    a: &[bf16],
    b: &[bf16],
) -> Result<Vec<f32>, Box<dyn Error>> {
    let _context = cust::quick_init()?;
    let module = Module::from_ptx(PTX, &[])?;
    let stream = Stream::new(StreamFlags::DEFAULT, None)?;
    // SAFETY: the module was built from this kernel.
    let kernel = unsafe { matmul::load(&module) }?;

    let (a, b) = (a.as_dbuf()?, b.as_dbuf()?);
    // What the kernel forgets to store shows.
    let mut c = vec![f32::NAN; m * n].as_slice().as_dbuf()?;
    let blocks = (m.div_ceil(M) * n.div_ceil(N)) as u32;
    let [m, n, k] = [m, n, k].map(|size| size as u32);
    kernel.run(&stream, (blocks, LANES as u32), m, n, k, &a, &b, &mut c)?;
    Ok(c.as_host_vec()?)
}

/// Element `i` of the product, and of that of the magnitudes, in f64.
fn element_in_f64(n: usize, k: usize, a: &[bf16], b: &[bf16], i: usize) -> (f64, f64) {
    let products = || (0..k).map(|j| a[i / n * k + j].to_f64() * b[j * n + i % n].to_f64());
    (products().sum(), products().map(f64::abs).sum())
}

#[test]
fn products_are_those_of_f64_within_rounding() {
    for (m, n, k) in [(16, 8, 16), (33, 17, 50), (1, 1, 1), (5, 3, 0), (16, 24, 40), (40, 1, 300)] {
        let (a, b) = (random(m * k, 1), random(k * n, 2));
        for (i, found) in product(m, n, k, &a, &b).unwrap().into_iter().enumerate() {
            let (expected, magnitude) = element_in_f64(n, k, &a, &b, i);
            // Products of bf16 are exact in f32. Tensor cores add up to 16 of them and the sum
            // before at once. Of these 17 each is cut off below 2^-25 of the largest, and their sum
            // below 2^-23: together (17 / 2 + 2) 2^-24. Those that add fewer of them at once do so
            // more often: of 4, that is (5 / 2 + 2) 2^-24 for 4 steps along K, which is the most.
            let bound = (9.0 / 8.0 * k as f64 + 4.0) * 2f64.powi(-24) * magnitude;
            let error = (f64::from(found) - expected).abs();
            assert!(error <= bound, "{m} x {n} x {k}, {i}: {found}, {expected}, bound {bound}");
        }
    }
}
