//! A software CUDA device.
mod device;
mod error;
mod exec;
mod lower;
mod memory;
mod ptx;

pub use device::{
    Config, Device, Isa, Kernel, LaunchConfig, LaunchReport, MAX_BLOCK, MAX_GRID, MAX_SHARED,
    MAX_STATIC_SHARED, MAX_THREADS_PER_BLOCK, Module, Param, Progress,
};
pub use error::{
    Access, AddressSpace, Fault, FaultKind, InvalidLaunch, LaunchError, LoadError, MemoryError,
    Place, Waiting,
};
