//! A product on two GPUs, or on two software devices where there are none.

use cuda_distributed::{DistributedMatrix, Distribution, Error, Settings, World, gemm};
use cuda_gemm::{Device, DeviceChoice, Matrix};

fn main() -> Result<(), Error> {
    let gpus = [0, 1].map(|i| Device::open(DeviceChoice::GpuOrdinal(i)));
    let devices = match gpus {
        [Ok(first), Ok(second)] => vec![first, second],
        _ => vec![
            Device::open(DeviceChoice::SoftOrdinal(0))?,
            Device::open(DeviceChoice::SoftOrdinal(1))?,
        ],
    };
    let a = Matrix::from_fn(300, 200, |row, col| ((row + col) % 7) as f32);
    let b = Matrix::from_fn(200, 100, |row, col| ((row * col) % 5) as f32);

    // The closure runs twice, in one thread per device. Both make the same calls.
    let results = World::run(&devices, &Settings::default(), |world| {
        let rows = Distribution::Rows;
        let a = DistributedMatrix::<f32>::from_host(world.clone(), &a, rows)?;
        let b = DistributedMatrix::<f32>::from_host(world.clone(), &b, Distribution::Columns)?;
        let mut c = DistributedMatrix::<f32>::zeros(world.clone(), [300, 100], rows)?;
        // B travels while each device multiplies its own part of it.
        gemm(&a, &b).run(&mut c)?;
        println!("{world:?} has rows {:?}, by {}", c.part()[0], world.transport());
        c.to_host()
    });

    for c in results {
        let exact: f32 = (0..200).map(|i| a.at(299, i) * b.at(i, 99)).sum();
        assert_eq!(c?.at(299, 99), exact);
    }
    println!("both have the same product");
    Ok(())
}
