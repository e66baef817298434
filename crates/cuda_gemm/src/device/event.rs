//! Events: points in the order of a stream's work.

use std::fmt;

use cuda_driver::sys::{self, CUevent, CUresult};

use super::handle::Device;
use super::stream::Stream;
use crate::error::Error;

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;

/// A point in the order of a stream's work, from [`Stream::record`].
pub struct Event {
    raw: CUevent,
    device: Device,
}

// SAFETY: an event is a handle that the driver lets any thread use.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    fn new(device: &Device, flags: u32) -> Result<Self, Error> {
        let _current = device.enter()?;
        let mut raw = CUevent::NULL;
        // SAFETY: `raw` is valid for the write.
        let created = unsafe { sys::cuEventCreate(&raw mut raw, flags) };
        device.check("cuEventCreate", created)?;
        Ok(Self { raw, device: device.clone() })
    }

    /// Makes an event that records times.
    pub(super) fn timed(device: &Device) -> Result<Self, Error> {
        Self::new(device, 0)
    }

    /// Enqueues the event on a stream of its device. The caller has made the device current, and
    /// has the right to enqueue.
    pub(super) fn record(&self, stream: &Stream) -> Result<(), Error> {
        // SAFETY: the event and the stream exist, on one device.
        let recorded = unsafe { sys::cuEventRecord(self.raw, stream.as_raw()) };
        self.device.check("cuEventRecord", recorded)
    }

    /// The raw event, valid as long as this exists.
    pub fn as_raw(&self) -> CUevent {
        self.raw
    }

    /// Whether the work before the event is done.
    ///
    /// # Errors
    ///
    /// [`Error::KernelFault`] or [`Error::Driver`].
    pub fn is_done(&self) -> Result<bool, Error> {
        let _current = self.device.enter()?;
        // SAFETY: the event exists.
        match unsafe { sys::cuEventQuery(self.raw) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => self.device.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Waits until the work before the event is done.
    ///
    /// # Errors
    ///
    /// [`Error::KernelFault`] or [`Error::Driver`].
    pub fn synchronize(&self) -> Result<(), Error> {
        let _current = self.device.enter()?;
        // SAFETY: the event exists.
        let result = unsafe { sys::cuEventSynchronize(self.raw) };
        self.device.check("cuEventSynchronize", result)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an event of {}", self.device.info().name)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _current = self.device.enter();
        // SAFETY: not used again; the driver keeps an event while work waits for it.
        let _ = unsafe { sys::cuEventDestroy_v2(self.raw) };
    }
}

impl Stream {
    /// Records an event behind the work enqueued so far.
    ///
    /// ```
    /// use cuda_gemm::{Device, DeviceChoice, Stream};
    ///
    /// let device = Device::open(DeviceChoice::Soft)?;
    /// let event = device.stream().record()?;
    /// Stream::new(&device)?.wait_for_event(&event)?;
    /// event.synchronize()?;
    /// assert!(event.is_done()?);
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn record(&self) -> Result<Event, Error> {
        let _current = self.device().enter()?;
        let event = Event::new(self.device(), DISABLE_TIMING)?;
        let _exclusive = self.exclusive();
        event.record(self)?;
        Ok(event)
    }

    /// Makes later work wait for an event, which may be of another device.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn wait_for_event(&self, event: &Event) -> Result<(), Error> {
        let _current = self.device().enter()?;
        let _exclusive = self.exclusive();
        // SAFETY: the event and the stream exist.
        let waits = unsafe { sys::cuStreamWaitEvent(self.as_raw(), event.raw, 0) };
        self.device().check("cuStreamWaitEvent", waits)
    }
}
