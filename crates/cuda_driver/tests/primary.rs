//! `cust::quick_init` and the primary context, in a process of its own: the
//! primary context is shared by every thread.

use cust::context::{Context, ContextFlags, CurrentContext};
use cust::device::Device;
use cust::error::CudaError;
use cust::launch;
use cust::memory::DeviceBuffer;
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};

#[test]
fn the_primary_context_lives_as_long_as_it_is_retained() {
    assert_eq!(Device::num_devices(), Err(CudaError::NotInitialized));
    assert_eq!(CurrentContext::synchronize(), Err(CudaError::NotInitialized));
    let first = if cuda_driver::gpu_count().is_err() {
        cust::quick_init().unwrap()
    } else {
        cust::init(cust::CudaFlags::empty()).unwrap();
        Context::new(Device::get_device(cuda_driver::soft_ordinal()).unwrap()).unwrap()
    };
    first.set_flags(ContextFlags::SCHED_BLOCKING_SYNC).unwrap();
    assert_eq!(CurrentContext::get_flags().unwrap(), ContextFlags::SCHED_BLOCKING_SYNC);
    let second = first.clone();
    assert_eq!(first.as_raw(), second.as_raw());

    let buffer = DeviceBuffer::from_slice(&[1_u32, 2, 3]).unwrap();
    drop(first);
    assert_eq!(buffer.as_host_vec().unwrap(), [1, 2, 3], "retained once more");

    // A fault ends with the last release of the context, or with its reset.
    let device = CurrentContext::get_device().unwrap();
    fault();
    // SAFETY: what lived in the context is not used again.
    unsafe { Context::reset(&device) }.unwrap();
    CurrentContext::synchronize().unwrap();
    assert_eq!(buffer.as_host_vec().map(|_| ()), Err(CudaError::InvalidValue), "freed");
    fault();
    drop(second);
    assert_eq!(CurrentContext::synchronize(), Err(CudaError::ContextIsDestroyed));

    let _third = Context::new(device).unwrap();
    CurrentContext::synchronize().unwrap();
    assert_eq!(DeviceBuffer::from_slice(&[5_u8]).unwrap().as_host_vec().unwrap(), [5]);
}

fn fault() {
    let module = Module::from_ptx(include_str!("kernels.ptx"), &[]).unwrap();
    let stream = Stream::new(StreamFlags::DEFAULT, None).unwrap();
    // SAFETY: the software device catches the store to null.
    unsafe { launch!(module.store_one<<<1, 1, 0, stream>>>(0_u64)) }.unwrap();
    assert_eq!(stream.synchronize(), Err(CudaError::IllegalAddress));
    assert!(cuda_driver::soft::last_fault().unwrap().contains("store_one"));
}
