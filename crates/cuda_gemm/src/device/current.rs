//! Which context is current in the calling thread.

use std::marker::PhantomData;

use cuda_driver::sys::{self, CUcontext, CUdevice, CUresult};
use cust::device::Device as CudaDevice;

/// The primary context of a device, which is there as long as somebody has it.
pub(super) struct PrimaryContext {
    context: CUcontext,
    device: CUdevice,
}

/// A device's context, current in the calling thread until this is dropped: then what was current
/// before is current again. See [`Device::enter`](crate::Device::enter).
#[must_use = "the context is current until this is dropped"]
#[derive(Debug)]
pub struct Entered<'d> {
    /// Whether another one was current.
    is_pushed: bool,
    /// It stays in its thread, and ends before the context.
    of: PhantomData<(&'d (), *const ())>,
}

/// A call of the driver that failed, and its code.
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
            // SAFETY: nothing is written. The thread's stack has the context on top, or whatever
            // somebody has set in its place.
            let _ = unsafe { sys::cuCtxPopCurrent_v2(std::ptr::null_mut()) };
        }
    }
}
