//! Attention scores of four heads in bf16: a batch of Q K^T, scaled, stored as bf16, and the same in f32.
//! `cargo run --example mixed_precision`. Without a GPU it takes the software device.

use cuda_gemm::{
    Compute, Device, DeviceChoice, DeviceHalfMatrix, DeviceMatrix, Element, Error, Gemm, InputType,
    Matrix,
};

const HEADS: usize = 4;
const TOKENS: usize = 80;
const DEPTH: usize = 64;

fn main() -> Result<(), Error> {
    let device = Device::open(DeviceChoice::Auto)?;
    let auto = device.auto()?;
    // 1 / sqrt(DEPTH) is a power of two.
    let scores = Gemm::new(TOKENS, TOKENS, DEPTH).transposed(false, true).scaled(0.125, 0.0);
    let scores = scores.stacked(HEADS);
    let in_bf16 = scores.computed_in(Compute::Bf16).stored_as(Element::Bf16);

    // Small integers, of which every sum is exact in f32.
    let number = |row: usize, col: usize| ((row * 5 + col * 3) % 7) as f32 - 3.0;
    let (q, k) = (
        Matrix::from_fn(HEADS * TOKENS, DEPTH, number),
        Matrix::from_fn(HEADS * TOKENS, DEPTH, |row, col| number(col, row)),
    );
    let half = |matrix| DeviceHalfMatrix::from_host(&device, InputType::Bf16, matrix);
    let (q_bf16, k_bf16) = (half(&q)?, half(&k)?);
    let mut c_bf16 = DeviceHalfMatrix::zeros(&device, InputType::Bf16, HEADS * TOKENS, TOKENS)?;
    let product = auto.product(in_bf16)?.prepare()?;
    product.enqueue(
        q_bf16.view().split_rows(HEADS)?,
        k_bf16.view().split_rows(HEADS)?,
        c_bf16.view_mut().split_rows(HEADS)?,
    )?;

    let (q, k) = (DeviceMatrix::from_host(&device, &q)?, DeviceMatrix::from_host(&device, &k)?);
    let mut c = DeviceMatrix::zeros(&device, HEADS * TOKENS, TOKENS)?;
    let product = auto.product(scores)?.prepare()?;
    product.enqueue(
        q.view().split_rows(HEADS)?,
        k.view().split_rows(HEADS)?,
        c.view_mut().split_rows(HEADS)?,
    )?;
    let rounded = c.download()?.rounded(Element::Bf16);
    println!("bf16 scores are the f32 ones, rounded once: {}", rounded == c_bf16.download()?);
    Ok(())
}
