//! A software device with a configuration of its own, which is per process.

use cuda_driver::soft::{self, AlreadyInUse};
use cuda_driver::soft_cuda::Config;
use cust::context::Context;
use cust::device::{Device, DeviceAttribute};
use cust::error::CudaError;
use cust::launch;
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};

#[test]
fn the_first_configuration_stands() {
    let default = soft::default_config();
    assert!(default.total_memory > 0 && default.total_memory <= Config::default().total_memory);
    let config =
        Config { sm_count: 3, total_memory: 1 << 24, instruction_budget: Some(100_000), ..default };
    soft::configure(config).unwrap();
    assert_eq!(soft::configure(Config::default()), Err(AlreadyInUse));

    cust::init(cust::CudaFlags::empty()).unwrap();
    let device = Device::get_device(cuda_driver::soft_ordinal()).unwrap();
    let _context = Context::new(device).unwrap();
    assert_eq!(device.get_attribute(DeviceAttribute::MultiprocessorCount), Ok(3));
    assert_eq!(device.total_memory(), Ok(1 << 24));

    let module = Module::from_ptx(include_str!("kernels.ptx"), &[]).unwrap();
    let stream = Stream::new(StreamFlags::DEFAULT, None).unwrap();
    // SAFETY: the kernel touches no memory.
    unsafe { launch!(module.never_ends<<<1, 32, 0, stream>>>()) }.unwrap();
    assert_eq!(stream.synchronize(), Err(CudaError::LaunchTimeout));
    assert!(soft::last_fault().unwrap().contains("never_ends"));
}
