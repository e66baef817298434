//! The kernels of `api/` on a device: on the GPU if there is one, else on the software device.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_builder::{CudaArch, CudaBuilder};
use cust::context::Context;
use cust::device::Device;
use cust::memory::{CopyDestination, DeviceBuffer, DeviceCopy};
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};

use super::common;

/// The primary context is shared by all tests.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The kernels, loaded.
pub struct Api {
    pub module: Module,
    pub stream: Stream,
    _context: Context,
    _one: MutexGuard<'static, ()>,
}

impl Api {
    /// Builds for an architecture, and loads; none where it cannot be built.
    #[allow(dead_code, reason = "each test takes what it needs")]
    pub fn of(builder: CudaBuilder, arch: CudaArch) -> Option<Self> {
        Some(Self::load(&common::ptx("api", builder, arch)?, arch))
    }

    /// Loads PTX that is for an architecture.
    pub fn load(text: &str, arch: CudaArch) -> Self {
        let one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        cust::init(cust::CudaFlags::empty()).unwrap();
        let has_gpu = cuda_driver::gpu_count().is_ok_and(|count| count > 0);
        let ordinal = match arch {
            _ if has_gpu => 0,
            CudaArch::Sm80 => cuda_driver::soft_ordinal(),
            _ => cuda_driver::soft_sm90_ordinal(),
        };
        let device = Device::get_device(ordinal).unwrap();
        let context = Context::new(device).unwrap();
        let module = Module::from_ptx(text, &[]).unwrap();
        let stream = Stream::new(StreamFlags::DEFAULT, None).unwrap();
        Api { module, stream, _context: context, _one: one }
    }

    /// Waits for the launches, and reads.
    pub fn read<T: DeviceCopy + Default>(&self, buffer: &DeviceBuffer<T>) -> Vec<T> {
        self.stream.synchronize().unwrap();
        let mut values = vec![T::default(); buffer.len()];
        buffer.copy_to(&mut values).unwrap();
        values
    }
}

pub fn buffer<T: DeviceCopy>(values: &[T]) -> DeviceBuffer<T> {
    DeviceBuffer::from_slice(values).unwrap()
}
