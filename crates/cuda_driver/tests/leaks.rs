//! Allocations that are not freed before their context ends, with checks of memory.

use cuda_driver::soft::{self, Leak};
use cuda_driver::soft_cuda::{Checks, Config};
use cust::context::Context;
use cust::device::Device;
use cust::memory::{DeviceBuffer, cuda_free, cuda_malloc};

#[test]
fn leaks_are_named() {
    let checks = Checks { memory: true, ..Checks::NONE };
    soft::configure(Config { checks, ..soft::default_config() }).unwrap();
    cust::init(cust::CudaFlags::empty()).unwrap();
    let device = Device::get_device(cuda_driver::soft_ordinal()).unwrap();
    let context = Context::new(device).unwrap();
    let freed = DeviceBuffer::<u32>::zeroed(5).unwrap();
    drop(freed);
    // SAFETY: nothing reads the memory.
    let (kept, twice) = unsafe { (cuda_malloc::<u32>(25), cuda_malloc::<u8>(7)) };
    // SAFETY: it was allocated above, and is not used.
    unsafe { cuda_free(twice.unwrap()) }.unwrap();
    let kept = Leak { address: kept.unwrap().as_raw(), bytes: 100 };
    assert_eq!(soft::leaks(), []);
    drop(context);
    assert_eq!(soft::leaks(), [kept]);
}
