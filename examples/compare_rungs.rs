//! Checks and times two kernels of the ladder: `cargo run --example compare_rungs naive tile2d`.

use std::error::Error;

use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm, Matrix, find_kernel};
use gemm_bench::time::measure_interleaved;
use gemm_verify::{Bound, Method, Problem, Reference};

fn main() -> Result<(), Box<dyn Error>> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let [first, second] = &names[..] else {
        return Err("usage: cargo run --example compare_rungs naive tile2d".into());
    };
    let device = Device::open(DeviceChoice::Auto)?;
    let size = if device.is_soft() { 128 } else { 4096 };
    let gemm = Gemm::new(size, size, size);
    let (a, b) = (Matrix::random(size, size, 42, 1), Matrix::random(size, size, 42, 2));
    let bound = Bound::Probabilistic;
    let problem = Problem { a: &a, b: &b, c: None, alpha: 1.0, beta: 0.0, bound };
    let reference = Reference::compute(problem, Method::choose(size, size, size), 42)?;

    let device_a = DeviceMatrix::<f32>::from_host(&device, &a)?;
    let device_b = DeviceMatrix::<f32>::from_host(&device, &b)?;
    let mut device_c = DeviceMatrix::<f32>::zeros(&device, [size, size])?;
    let mut products = Vec::new();
    for name in [first, second] {
        let product = device.kernel(find_kernel(name)?)?.prepare(gemm)?;
        product.run(&device_a, &device_b, &mut device_c)?;
        let check = reference.check(&device_c.download()?)?;
        let result = if check.passed() { "PASS" } else { "FAIL" };
        println!("{name}: {result}, RMS error {:.1e}", check.rms_error().unwrap_or_default());
        products.push(product);
    }

    // In turn, so that whatever changes the GPU's clocks does so for both.
    let run = |i: usize| products[i].run(&device_a, &device_b, &mut device_c);
    let samples = measure_interleaved(&device, 2, 1, 5, || Ok(()), run)?;
    let ratio = samples[0].median() / samples[1].median();
    let simulated = if device.is_soft() { " (simulated: not a GPU's times)" } else { "" };
    let name = &device.info().name;
    println!("{first} takes {ratio:.2} times as long as {second} on {name}{simulated}");
    Ok(())
}
