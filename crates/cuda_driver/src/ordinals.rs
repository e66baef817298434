//! Device ordinals: first the GPUs, then the models of the software device.

use std::ffi::c_int;

use crate::arg::Out;
use crate::codes::Answer;
use crate::gpu::{self, GpuUnavailable, forward};
use crate::init::initialised;
use crate::types::{CUdevice, CUresult};

/// Models of the software device.
pub(crate) const SOFT_DEVICES: c_int = 2;

/// The number of GPUs, or why there are none.
///
/// # Errors
///
/// [`GpuUnavailable`] when there is no usable driver or no visible GPU.
pub fn gpu_count() -> Result<u32, GpuUnavailable> {
    gpu::driver().map(|_| soft_ordinal()).map_err(Clone::clone)
}

/// The device ordinal of the software device of compute capability 8.0: one past the
/// last GPU.
pub fn soft_ordinal() -> u32 {
    gpu::device_count().unsigned_abs()
}

/// The device ordinal of the software device of compute capability 9.0: the last one.
pub fn soft_sm90_ordinal() -> u32 {
    soft_ordinal() + 1
}

pub(crate) fn device_count(out: Out<c_int>) -> Answer {
    initialised()?;
    out.set(gpu::device_count() + SOFT_DEVICES)
}

pub(crate) fn device(out: Out<CUdevice>, ordinal: c_int) -> Answer {
    initialised()?;
    let gpus = gpu::device_count();
    if (gpus..gpus + SOFT_DEVICES).contains(&ordinal) {
        return out.set(CUdevice(ordinal));
    }
    if !(0..gpus).contains(&ordinal) {
        return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
    }
    let device = out.as_ptr();
    // SAFETY: `device` is the caller's place for the handle.
    unsafe { forward!(cuDeviceGet(device: *mut CUdevice, ordinal: c_int)) }
}
