//! Two CUDA events on a device's own stream, and the time between them.

use cuda_gemm::{Device, Error};
use cust::error::CudaError;
use cust::event::{Event, EventFlags, EventStatus};

/// Two events, for one span of time after the other.
pub(crate) struct Events<'d> {
    device: &'d Device,
    start: Event,
    stop: Event,
}

impl<'d> Events<'d> {
    pub(crate) fn new(device: &'d Device) -> Result<Self, Error> {
        device.make_current()?;
        let event = || Event::new(EventFlags::DEFAULT).map_err(|error| fail(device, error));
        Ok(Self { device, start: event()?, stop: event()? })
    }

    /// Enqueues the beginning.
    pub(crate) fn start(&self) -> Result<(), Error> {
        self.record(&self.start)
    }

    /// Enqueues the end.
    pub(crate) fn stop(&self) -> Result<(), Error> {
        self.record(&self.stop)
    }

    fn record(&self, event: &Event) -> Result<(), Error> {
        let stream = self.device.stream();
        let stream = stream.as_cust().expect("a device makes its own stream through cust");
        event.record(stream).map_err(|error| fail(self.device, error))
    }

    /// Whether the device has reached the beginning.
    pub(crate) fn has_started(&self) -> Result<bool, Error> {
        let status = self.start.query().map_err(|error| fail(self.device, error))?;
        Ok(status == EventStatus::Ready)
    }

    /// Milliseconds between the two, which both have been reached.
    pub(crate) fn elapsed_ms(&self) -> Result<f64, Error> {
        let elapsed = self.stop.elapsed_time_f32(&self.start);
        Ok(f64::from(elapsed.map_err(|error| fail(self.device, error))?))
    }
}

fn fail(device: &Device, error: CudaError) -> Error {
    device.error("timing with CUDA events", error)
}
