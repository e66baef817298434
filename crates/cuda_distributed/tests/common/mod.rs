//! What the tests share.
#![allow(dead_code, reason = "each test uses some")]

use std::env;
use std::sync::LazyLock;

use cuda_distributed::{Error, Settings, Transport, World};
use cuda_gemm::{Device, DeviceChoice, Matrix};

/// The first `count` software devices. They stay open, so that kernels are loaded once.
pub fn devices(count: usize) -> Vec<Device> {
    static DEVICES: LazyLock<Vec<Device>> = LazyLock::new(|| {
        (0..6).map(|i| Device::open(DeviceChoice::SoftOrdinal(i)).unwrap()).collect()
    });
    DEVICES[..count].to_vec()
}

/// The GPUs, and how they exchange, if `CUDA_DISTRIBUTED_TEST` is `copies` or `nccl`.
pub fn gpus() -> Option<(Vec<Device>, Transport)> {
    static GPUS: LazyLock<Vec<Device>> = LazyLock::new(|| {
        (0..).map_while(|i| Device::open(DeviceChoice::GpuOrdinal(i)).ok()).collect()
    });
    let transport = match env::var("CUDA_DISTRIBUTED_TEST").as_deref() {
        Ok("copies") => Transport::Copies,
        Ok("nccl") => Transport::Nccl,
        _ => return None,
    };
    assert!(!GPUS.is_empty(), "CUDA_DISTRIBUTED_TEST needs a GPU");
    Some((GPUS.clone(), transport))
}

/// A matrix of integers from -2 to 2, whose sums of products are exact.
pub fn integers(rows: usize, cols: usize, seed: usize) -> Matrix {
    Matrix::from_fn(rows, cols, |row, col| {
        ((row * 7 + col * 13 + row * col * 5 + seed * 11) % 5) as f32 - 2.0
    })
}

/// [`World::run`] with the library's errors.
pub fn on_every_rank<T: Send>(
    devices: &[Device],
    settings: &Settings,
    work: impl Fn(World) -> Result<T, Error> + Sync,
) -> Vec<Result<T, Error>> {
    World::run(devices, settings, work)
}
