//! Device ordinals: first the GPUs, then the software devices, model by model in turn.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::arg::Out;
use crate::codes::Answer;
use crate::gpu::{self, GpuUnavailable, forward};
use crate::init::initialised;
use crate::types::{CUdevice, CUresult};

/// Models of the software device.
const MODELS: u32 = 2;

/// The most software devices of one model.
const MAX_PER_MODEL: u32 = 64;

/// The most software devices.
pub(crate) const MAX_SOFT_DEVICES: usize = (MODELS * MAX_PER_MODEL) as usize;

/// The variable with the number of software devices of each model.
const VARIABLE: &str = "SOFT_CUDA_DEVICES";

/// Software devices of each model that [`soft_ordinals`] was asked for.
static ASKED_FOR: AtomicU32 = AtomicU32::new(1);

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

/// The device ordinal of the software device of compute capability 9.0: the next one.
pub fn soft_sm90_ordinal() -> u32 {
    soft_ordinal() + 1
}

/// The ordinals of the software devices with this number, from 0: of compute capability 8.0, and
/// of 9.0.
///
/// Both exist from then on. `None` for numbers of 64 and more.
///
/// ```
/// let first = [cuda_driver::soft_ordinal(), cuda_driver::soft_sm90_ordinal()];
/// assert_eq!(cuda_driver::soft_ordinals(0), Some(first));
/// assert_eq!(cuda_driver::soft_ordinals(3), Some(first.map(|ordinal| ordinal + 6)));
/// assert_eq!(cuda_driver::soft_ordinals(64), None);
/// ```
pub fn soft_ordinals(number: u32) -> Option<[u32; 2]> {
    if number >= MAX_PER_MODEL {
        return None;
    }
    ASKED_FOR.fetch_max(number + 1, Ordering::Relaxed);
    let first = soft_ordinal() + MODELS * number;
    Some([first, first + 1])
}

/// The number of software devices, of both models together.
pub(crate) fn soft_count() -> u32 {
    static FROM_ENVIRONMENT: OnceLock<u32> = OnceLock::new();
    // `cuInit` reports an invalid variable.
    let from_environment = FROM_ENVIRONMENT.get_or_init(|| per_model().unwrap_or(1));
    MODELS * ASKED_FOR.load(Ordering::Relaxed).max(*from_environment)
}

/// Software devices of each model that the environment asks for, or what is wrong with it.
pub(crate) fn per_model() -> Result<u32, String> {
    let text = std::env::var_os(VARIABLE).filter(|text| !text.is_empty());
    text.map_or(Ok(1), |text| parse(&text.to_string_lossy()))
}

/// The number that [`VARIABLE`] says.
fn parse(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=MAX_PER_MODEL).contains(number));
    number.ok_or_else(|| {
        format!(
            "the environment variable {VARIABLE} should be a number of software devices of each \
             model from 1 to {MAX_PER_MODEL}, or unset for 1: `{text}` is no such number"
        )
    })
}

pub(crate) fn device_count(out: Out<c_int>) -> Answer {
    initialised()?;
    out.set(gpu::device_count() + soft_count().cast_signed())
}

pub(crate) fn device(out: Out<CUdevice>, ordinal: c_int) -> Answer {
    initialised()?;
    let gpus = gpu::device_count();
    if (gpus..gpus + soft_count().cast_signed()).contains(&ordinal) {
        return out.set(CUdevice(ordinal));
    }
    if !(0..gpus).contains(&ordinal) {
        return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
    }
    let device = out.as_ptr();
    // SAFETY: `device` is the caller's place for the handle.
    unsafe { forward!(cuDeviceGet(device: *mut CUdevice, ordinal: c_int)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_a_number_of_devices() {
        assert_eq!([parse("1"), parse("64")], [Ok(1), Ok(64)]);
        for text in ["0", "65", "-1", "two"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("SOFT_CUDA_DEVICES") && error.contains(text), "{error}");
        }
    }
}
