//! Whether `cuInit` has been called.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::codes::Answer;
use crate::types::CUresult;

static INITIALISED: AtomicBool = AtomicBool::new(false);

/// The driver itself starts on first use: a program that only asks for a version
/// does not pay for it.
pub(crate) fn init(flags: c_uint) -> Answer {
    if flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    INITIALISED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Fails before `cuInit`.
pub(crate) fn initialised() -> Answer {
    if INITIALISED.load(Ordering::Relaxed) {
        Ok(())
    } else {
        Err(CUresult::CUDA_ERROR_NOT_INITIALIZED)
    }
}
