//! A linear layer with a bias and ReLU in one kernel, and its product through the BLAS face.
//! `cargo run --example linear_layer`.

use cuda_gemm::blas::{self, Op};
use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Error, Matrix, gemm};

const TOKENS: usize = 32;
const INPUTS: usize = 64;
const OUTPUTS: usize = 48;

fn main() -> Result<(), Error> {
    let device = Device::open(DeviceChoice::Auto)?;
    let number = |row: usize, col: usize| ((row * 7 + col * 3) % 11) as f32 - 5.0;
    let on_device =
        |rows, cols| DeviceMatrix::<f32>::from_host(&device, &Matrix::from_fn(rows, cols, number));
    // Weights lie as frameworks have them, one row for each output.
    let (x, w, bias) =
        (on_device(TOKENS, INPUTS)?, on_device(OUTPUTS, INPUTS)?, on_device(1, OUTPUTS)?);
    let mut y = DeviceMatrix::<f32>::zeros(&device, [TOKENS, OUTPUTS])?;
    gemm(&x, w.t()).bias(&bias).relu().run(&mut y)?;

    // Column-major, these are the transposes: the product alone, as cuBLAS has it.
    let mut handle = blas::Handle::new(&device)?;
    let plain = DeviceMatrix::<f32>::zeros(&device, [TOKENS, OUTPUTS])?;
    let [a, b, c] = [&w, &x, &plain].map(DeviceMatrix::as_device_ptr);
    let (m, n, k) = (OUTPUTS, TOKENS, INPUTS);
    // SAFETY: the matrices have these sizes, and nothing else uses them meanwhile.
    unsafe {
        blas::sgemm(&mut handle, Op::Transpose, Op::None, m, n, k, 1.0, a, k, b, k, 0.0, c, m)?;
    }
    let (plain, bias) = (plain.download()?, bias.download()?);
    let expected = Matrix::from_fn(TOKENS, OUTPUTS, |row, col| {
        (plain.at(row, col) + bias.at(0, col)).max(0.0)
    });
    // These sums are exact.
    println!("relu(sgemm + bias) is the layer's output: {}", expected == y.download()?);
    Ok(())
}
