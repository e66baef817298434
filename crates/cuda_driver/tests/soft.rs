//! The software device through `cust`, each test in a context of its own.

#[path = "soft/contexts.rs"]
mod contexts;
#[path = "soft/launches.rs"]
mod launches;
#[path = "soft/limits.rs"]
mod limits;
#[path = "soft/memory.rs"]
mod memory;
#[path = "soft/modules.rs"]
mod modules;

use std::ffi::{CString, c_int, c_uint, c_void};
use std::mem::size_of;

use cuda_driver::sys::{self, CUdeviceptr, CUfunction, CUresult};
use cust::context::legacy::{Context, ContextFlags, ContextStack, CurrentContext, ResourceLimit};
use cust::device::{Device, DeviceAttribute};
use cust::error::CudaError;
use cust::event::{Event, EventFlags, EventStatus};
use cust::function::{BlockSize, Function, FunctionAttribute};
use cust::launch;
use cust::memory::{
    AsyncCopyDestination, CopyDestination, DeviceBox, DeviceBuffer, LockedBuffer, UnifiedBuffer,
};
use cust::module::{Module, ModuleJitOption};
use cust::stream::{Stream, StreamFlags};

const KERNELS: &str = include_str!("kernels.ptx");

/// The software device and a fresh context on it, current on this thread.
fn soft() -> (Device, Context) {
    cust::init(cust::CudaFlags::empty()).unwrap();
    let device = Device::get_device(cuda_driver::soft_ordinal()).unwrap();
    (device, Context::create_and_push(ContextFlags::SCHED_AUTO, device).unwrap())
}

fn stream() -> Stream {
    Stream::new(StreamFlags::NON_BLOCKING, None).unwrap()
}

fn raw(function: &Function) -> CUfunction {
    CUfunction::from(function.to_raw())
}

#[test]
fn the_last_two_ordinals_are_the_software_device() {
    let (device, _context) = soft();
    let count = Device::num_devices().unwrap();
    assert_eq!(count, cuda_driver::soft_sm90_ordinal() + 1);
    assert_eq!(count, cuda_driver::gpu_count().unwrap_or(0) + 2);
    assert_eq!(Device::get_device(count).unwrap_err(), CudaError::InvalidDevice);
    assert_eq!(device.name().unwrap(), "Software CUDA device");
    assert!(device.total_memory().unwrap() > 0);
    assert_eq!(CurrentContext::get_device().unwrap(), device);
}

#[test]
fn attributes() {
    let (device, _context) = soft();
    let attribute = |attribute| device.get_attribute(attribute).unwrap();
    assert_eq!(attribute(DeviceAttribute::ComputeCapabilityMajor), 8);
    assert_eq!(attribute(DeviceAttribute::ComputeCapabilityMinor), 0);
    assert_eq!(attribute(DeviceAttribute::MaxThreadsPerBlock), 1024);
    assert_eq!(attribute(DeviceAttribute::MaxSharedMemoryPerBlock), 49_152);
    assert_eq!(attribute(DeviceAttribute::WarpSize), 32);
    assert_eq!(attribute(DeviceAttribute::ManagedMemory), 0);
    let sms = cuda_driver::soft::device().config().sm_count;
    assert_eq!(attribute(DeviceAttribute::MultiprocessorCount), sms as i32);

    let raw_device = sys::CUdevice(device.as_raw());
    assert_eq!(raw_device.0, cuda_driver::soft_ordinal() as i32);
    assert_eq!(Device::get_device(u32::MAX >> 1).map(|_| ()), Err(CudaError::InvalidDevice));
    let mut value = 0;
    let mut query =
        // SAFETY: `value` outlives the call.
        |attribute| unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, raw_device) }
            .ok()
            .map(|()| value);
    assert_eq!(query(sys::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), Ok(232_448));
    // MEMORY_POOLS_SUPPORTED: there is no function for them.
    assert_eq!(query(115), Ok(0));
    assert_eq!(query(0), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    assert_eq!(query(100_000), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
}

#[test]
fn a_short_buffer_cuts_the_name() {
    let (device, _context) = soft();
    let mut name = [b'?' as _; 10];
    let raw_device = sys::CUdevice(device.as_raw());
    // SAFETY: 9 bytes are inside the buffer.
    unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), 9, raw_device) }.ok().unwrap();
    assert_eq!(name.map(|byte| byte as u8), *b"Software\0?");
}

#[test]
fn versions_and_texts() {
    let (_device, context) = soft();
    if cuda_driver::gpu_count().is_err() {
        assert_eq!(cust::CudaApiVersion::get().unwrap().major(), 13);
    }
    assert_eq!(context.get_api_version().unwrap().major(), 13);
    assert!(CudaError::InvalidPtx.to_string().contains("PTX"));
    let (name, description) = cuda_driver::error_text(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(name, "CUDA_ERROR_ILLEGAL_ADDRESS");
    assert!(description.contains("illegal"));
    assert_eq!(cuda_driver::error_text(CUresult(12_345)).0, "CUDA_ERROR_UNKNOWN");
}

#[test]
fn what_is_missing_says_so() {
    let (_device, _context) = soft();
    let managed = UnifiedBuffer::<u32>::new(&0, 4).map(|_| ());
    assert_eq!(managed, Err(CudaError::NotSupported));
    assert!(cuda_driver::last_error().unwrap().contains("cuMemAllocManaged"));
    assert_eq!(cust::link::Linker::new().map(|_| ()), Err(CudaError::NotSupported));
}
