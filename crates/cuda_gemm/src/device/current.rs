//! The context that is current in the calling thread.

use std::marker::PhantomData;

use cuda_driver::sys::{self, CUcontext, CUdevice, CUresult};
use cust::device::Device as CudaDevice;

/// The retained primary context of a device.
pub(super) struct PrimaryContext {
    context: CUcontext,
    device: CUdevice,
}

/// A device's context, current in the calling thread until this is dropped.
///
/// The drop restores the context that was current before. See
/// [`Device::enter`](crate::Device::enter).
#[must_use = "the context is current until this is dropped"]
#[derive(Debug)]
pub struct Entered<'d> {
    /// Whether another context was current.
    is_pushed: bool,
    /// Keeps this in its thread, and shorter-lived than the context.
    of: PhantomData<(&'d (), *const ())>,
}

/// A failed call of the driver, and its code.
pub(super) type Failed = (&'static str, CUresult);

fn check(call: &'static str, code: CUresult) -> Result<(), Failed> {
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err((call, code)) }
}

impl PrimaryContext {
    pub(super) fn retain(device: CudaDevice) -> Result<Self, Failed> {
        let device = CUdevice(device.as_raw());
        let mut context = CUcontext::NULL;
        // SAFETY: `context` is valid for the write.
        let code = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device) };
        check("cuDevicePrimaryCtxRetain", code)?;
        Ok(Self { context, device })
    }

    pub(super) fn raw(&self) -> CUcontext {
        self.context
    }

    /// Makes the context current.
    pub(super) fn enter(&self) -> Result<Entered<'_>, Failed> {
        let mut current = CUcontext::NULL;
        // SAFETY: `current` is valid for the write.
        check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&raw mut current) })?;
        let is_pushed = current != self.context;
        if is_pushed {
            // SAFETY: the context is retained.
            check("cuCtxPushCurrent", unsafe { sys::cuCtxPushCurrent_v2(self.context) })?;
        }
        Ok(Entered { is_pushed, of: PhantomData })
    }
}

impl Drop for PrimaryContext {
    fn drop(&mut self) {
        // SAFETY: it was retained once, and is not used again.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

// SAFETY: a handle that the driver lets any thread use.
unsafe impl Send for PrimaryContext {}
// SAFETY: as above.
unsafe impl Sync for PrimaryContext {}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.is_pushed {
            // SAFETY: nothing is written. The top of the thread's stack is this context, or one
            // that somebody set instead.
            let _ = unsafe { sys::cuCtxPopCurrent_v2(std::ptr::null_mut()) };
        }
    }
}
