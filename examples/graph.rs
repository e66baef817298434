//! Captures two products in a CUDA graph, and launches them together: to launch a graph costs the
//! host less than to launch each kernel. `cargo run --example graph`.

use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Error, Gemm, Matrix};

const SIZE: usize = 64;

fn main() -> Result<(), Error> {
    let device = Device::open(DeviceChoice::Auto)?;
    let stream = device.stream();
    // Rotations by one row: so the products are exact.
    let rotation = Matrix::from_fn(SIZE, SIZE, |row, col| match (row + 1) % SIZE == col {
        true => 1.0,
        false => 0.0,
    });
    let rotation = DeviceMatrix::from_host(&device, &rotation)?;
    let numbers = Matrix::from_fn(SIZE, SIZE, |row, _| row as f32);
    let mut numbers = DeviceMatrix::from_host(&device, &numbers)?;
    let mut rotated = DeviceMatrix::zeros(&device, SIZE, SIZE)?;
    let product = device.auto()?.prepare(Gemm::new(SIZE, SIZE, SIZE))?;

    // There and back: the second product takes what the first one made.
    let graph = stream.capture(|| {
        product.enqueue(&rotation, &numbers, &mut rotated)?;
        product.enqueue(&rotation, &rotated, &mut numbers)
    })?;
    for _ in 0..10 {
        // SAFETY: the plan and the matrices outlive the download below, which waits for the
        // graph; only this stream uses them.
        unsafe { graph.launch() }?;
    }
    println!("20 rotations: row 0 was row {}", numbers.download()?.at(0, 0));
    Ok(())
}
