//! A linear layer with a bias and ReLU in one kernel, and the same product through the BLAS face.
//! `cargo run --example linear_layer`.

use cuda_gemm::blas::{self, Op};
use cuda_gemm::{
    Activation, Axis, Device, DeviceChoice, DeviceMatrix, Epilogue, Error, Extras, Gemm, Matrix,
};

const TOKENS: usize = 32;
const INPUTS: usize = 64;
const OUTPUTS: usize = 48;

fn main() -> Result<(), Error> {
    let device = Device::open(DeviceChoice::Auto)?;
    let auto = device.auto()?;
    // Weights lie as frameworks have them, one row for each output.
    let linear = Gemm::new(TOKENS, OUTPUTS, INPUTS).transposed(false, true);
    let epilogue = Epilogue::new().bias(Axis::Column).activation(Activation::Relu);
    auto.warm_up(&[linear.then(epilogue)])?;
    let layer = auto.prepare(linear.then(epilogue))?;

    let number = |row: usize, col: usize| ((row * 7 + col * 3) % 11) as f32 - 5.0;
    let on_device =
        |rows, cols| DeviceMatrix::from_host(&device, &Matrix::from_fn(rows, cols, number));
    let (input, weights) = (on_device(TOKENS, INPUTS)?, on_device(OUTPUTS, INPUTS)?);
    let bias = on_device(1, OUTPUTS)?;
    let mut output = DeviceMatrix::zeros(&device, TOKENS, OUTPUTS)?;
    layer.enqueue_with(&input, &weights, &mut output, Extras::new().bias(&bias))?;

    // Column-major, these are the transposes: the product alone, as cuBLAS has it.
    let mut handle = blas::Handle::new(&device)?;
    let plain = DeviceMatrix::zeros(&device, TOKENS, OUTPUTS)?;
    let [w, x, y] = [&weights, &input, &plain].map(DeviceMatrix::as_device_ptr);
    let (m, n, k) = (OUTPUTS, TOKENS, INPUTS);
    // SAFETY: the matrices have these sizes, and nothing else uses them meanwhile.
    unsafe {
        blas::sgemm(&mut handle, Op::Transpose, Op::None, m, n, k, 1.0, w, k, x, k, 0.0, y, m)?;
    }
    let (plain, output, bias) = (plain.download()?, output.download()?, bias.download()?);
    let expected = Matrix::from_fn(TOKENS, OUTPUTS, |row, col| {
        (plain.at(row, col) + bias.at(0, col)).max(0.0)
    });
    // These sums are exact.
    println!("relu(sgemm + bias) is the layer's output: {}", expected == output);
    Ok(())
}
