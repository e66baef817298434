//! A pair of layers as in a transformer, on all GPUs: the first by columns, the second by rows.
//!
//! ```text
//! x by rows --gather--> gelu(x W1 + b1) by columns --no traffic--> h W2 --sum--> y by rows
//! ```
//!
//! Each rank has some tokens of x and y, some columns of W1, and the same rows of W2. So only x
//! and the sums of y travel, each while the product beside it runs.

use cuda_distributed::{DistributedMatrix, Distribution, Error, Schedule, Settings, World, gemm};
use cuda_gemm::{Activation, Device, DeviceChoice, DeviceMatrix, Matrix, bf16};

const TOKENS: usize = 64;
const WIDTH: usize = 32;
const HIDDEN: usize = 128;

fn pair(world: &World) -> Result<Matrix, Error> {
    let number = |i: usize| ((i * 2_654_435_761) >> 7 & 15) as f32 / 16.0 - 0.5;
    let matrix = |rows: usize, cols: usize, distribution| {
        let whole = Matrix::from_fn(rows, cols, |row, col| number(row * cols + col));
        DistributedMatrix::<bf16>::from_host(world.clone(), &whole, distribution)
    };
    let x = matrix(TOKENS, WIDTH, Distribution::Rows)?;
    let w1 = matrix(WIDTH, HIDDEN, Distribution::Columns)?;
    let w2 = matrix(HIDDEN, WIDTH, Distribution::Rows)?;
    let b1: Vec<_> = (0..HIDDEN).map(number).collect();
    let b1 = DeviceMatrix::from_slice(world.device(), [1, HIDDEN], &b1)?;

    let mut h = DistributedMatrix::zeros(world.clone(), [TOKENS, HIDDEN], Distribution::Columns)?;
    let mut y =
        DistributedMatrix::<bf16>::zeros(world.clone(), [TOKENS, WIDTH], Distribution::Rows)?;
    gemm(&x, &w1).bias(&b1).activation(Activation::Gelu).run(&mut h)?;
    gemm(&h, &w2).schedule(Schedule::Reduce).run(&mut y)?;
    y.to_host()
}

fn main() -> Result<(), Error> {
    let choice = match Device::open(DeviceChoice::Gpu) {
        Ok(_) => DeviceChoice::GpuOrdinal,
        Err(_) => DeviceChoice::SoftOrdinal,
    };
    let devices: Vec<_> = (0..2).map_while(|i| Device::open(choice(i)).ok()).collect();
    let on_all = World::run(&devices, &Settings::default(), |world| pair(&world));
    let on_one = World::run(&devices[..1], &Settings::default(), |world| pair(&world));
    let one = on_one.into_iter().collect::<Result<Vec<_>, _>>()?.remove(0);
    for all in on_all {
        let all = all?;
        let differences = all.as_slice().iter().zip(one.as_slice()).map(|(a, b)| (a - b).abs());
        let largest = differences.fold(0f32, f32::max);
        // The sums have another order, and are rounded to eight bits.
        let magnitude = one.as_slice().iter().fold(0f32, |most, x| most.max(x.abs()));
        assert!(largest <= magnitude / 128.0, "{largest} of {magnitude}");
        println!("{} devices differ from one by {largest} of {magnitude}", devices.len());
    }
    Ok(())
}
