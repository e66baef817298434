//! Device ordinals: first the GPUs, then the models of the software device.

use std::ffi::c_int;

use crate::arg::{Out, SOFT_DEVICES};
use crate::codes::Answer;
use crate::gpu::{self, GpuUnavailable, forward};
use crate::init::initialised;
use crate::types::{CUdevice, CUresult};

/// The number of GPUs, or why there are none.
///
/// # Errors
///
/// [`GpuUnavailable`] when there is no usable driver or no visible GPU.
pub fn gpu_count() -> Result<u32, GpuUnavailable> {
    gpu::driver().map(gpu::Driver::device_count).map_err(Clone::clone)
}

/// The device ordinal of the software device of compute capability 8.0: one past the
/// last GPU.
pub fn soft_ordinal() -> u32 {
    gpu::driver().map_or(0, gpu::Driver::device_count)
}

/// The device ordinal of the software device of compute capability 9.0: the last one.
pub fn soft_sm90_ordinal() -> u32 {
    soft_ordinal() + 1
}

pub(crate) fn device_count(out: Out<c_int>) -> Answer {
    initialised()?;
    out.set(first_soft_ordinal() + SOFT_DEVICES.len() as c_int)
}

pub(crate) fn device(out: Out<CUdevice>, ordinal: c_int) -> Answer {
    initialised()?;
    let after_gpus = ordinal.saturating_sub(first_soft_ordinal());
    if let Ok(after_gpus) = usize::try_from(after_gpus) {
        let device = SOFT_DEVICES.get(after_gpus).ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)?;
        return out.set(*device);
    }
    if ordinal < 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
    }
    let device = out.as_ptr();
    // SAFETY: `device` is the caller's place for the handle.
    unsafe { forward!(cuDeviceGet(device: *mut CUdevice, ordinal: c_int)) }
}

fn first_soft_ordinal() -> c_int {
    const LAST: c_int = c_int::MAX - SOFT_DEVICES.len() as c_int;
    c_int::try_from(soft_ordinal()).map_or(LAST, |ordinal| ordinal.min(LAST))
}
