//! A shared library that uses `cust`, which its tests load.

use cuda_driver as _;

/// How many devices there are; -1 if that cannot be told.
#[unsafe(no_mangle)]
pub extern "C" fn devices() -> i32 {
    let count = || {
        cust::init(cust::CudaFlags::empty())?;
        cust::device::Device::num_devices()
    };
    count().map_or(-1, |count| count as i32)
}
