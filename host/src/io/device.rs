//! The option `--device`.

use clap::ValueEnum;
use cuda_gemm::error::no_gpu;
use host::{Device, DeviceChoice};

use super::{stdio, threads};
use crate::error::Error;

/// The values of `--device`.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum DeviceArg {
    /// A GPU if there is one, else soft; soft-sm90 for kernels of Hopper and for all.
    #[default]
    Auto,
    /// The first GPU.
    Gpu,
    /// The software device of compute capability 8.0: runs PTX for sm_80 on the CPU.
    Soft,
    /// The software device of compute capability 9.0: runs PTX for sm_90a too.
    SoftSm90,
}

impl DeviceArg {
    pub fn choice(self) -> DeviceChoice {
        match self {
            Self::Auto => DeviceChoice::Auto,
            Self::Gpu => DeviceChoice::Gpu,
            Self::Soft => DeviceChoice::Soft,
            Self::SoftSm90 => DeviceChoice::SoftSm90,
        }
    }
}

/// Opens the device that a call works on, and starts the threads that do.
pub fn open(choice: DeviceChoice) -> Result<Device, Error> {
    open_for(choice, false)
}

/// As [`open`]: without a GPU, `auto` is the software device that runs what `is_for_hopper`.
pub fn open_for(choice: DeviceChoice, is_for_hopper: bool) -> Result<Device, Error> {
    threads::start()?;
    let mut choice = choice;
    if choice == DeviceChoice::Auto
        && let Err(reason) = cuda_driver::gpu_count()
    {
        let reason = no_gpu(&reason);
        stdio::note(format_args!("running on the software device, because {reason}"));
        if is_for_hopper {
            choice = DeviceChoice::SoftSm90;
        }
    }
    Ok(Device::open(choice)?)
}
