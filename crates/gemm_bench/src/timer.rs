//! The one timer: what lies between two CUDA events on a device's own stream.

use cuda_gemm::{Device, DeviceKind, Error};
use cust::error::CudaError;
use cust::event::{Event, EventFlags, EventStatus};

/// What a time measured: see [`Timer::clock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Time on the GPU, between two CUDA events around the launches.
    GpuEvents,
    /// Time the CPU took to interpret the kernel on the software device. It says
    /// nothing about a GPU.
    CpuSimulation,
}

/// Two events, for one span of time after the other.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm, find_kernel};
/// use gemm_bench::Timer;
///
/// # fn main() -> Result<(), gemm_bench::Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// let product = device.kernel(find_kernel("tile2d")?)?.prepare(Gemm::new(20, 30, 10))?;
/// let (a, b) = (DeviceMatrix::zeros(&device, 20, 10)?, DeviceMatrix::zeros(&device, 10, 30)?);
/// let mut c = DeviceMatrix::zeros(&device, 20, 30)?;
///
/// let timer = Timer::new(&device)?;
/// let ms = timer.milliseconds(|| product.enqueue(&a, &b, &mut c))?;
/// assert!(ms > 0.0);
/// # Ok(())
/// # }
/// ```
pub struct Timer {
    device: Device,
    start: Event,
    stop: Event,
}

impl Timer {
    /// A timer for work on the device's own stream.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if there are no more events.
    pub fn new(device: &Device) -> Result<Self, Error> {
        let _current = device.enter()?;
        let event = || Event::new(EventFlags::DEFAULT).map_err(|error| fail(device, error));
        Ok(Self { device: device.clone(), start: event()?, stop: event()? })
    }

    /// What its times measure.
    pub fn clock(&self) -> Clock {
        match self.device.info().kind {
            DeviceKind::Gpu => Clock::GpuEvents,
            DeviceKind::Soft => Clock::CpuSimulation,
        }
    }

    /// Milliseconds that the device takes for what `enqueue` enqueues on its own stream; waits for
    /// the end.
    ///
    /// # Errors
    ///
    /// That of `enqueue`, a fault of a kernel, or [`Error::Driver`].
    pub fn milliseconds<E: From<Error>>(
        &self,
        enqueue: impl FnOnce() -> Result<(), E>,
    ) -> Result<f64, E> {
        let (ms, ()) = self.time(|_| enqueue(), |()| ())?;
        Ok(ms)
    }

    /// As [`Timer::milliseconds`], with what `enqueue` has found out; `meanwhile` may add to that
    /// before this waits.
    ///
    /// # Errors
    ///
    /// As for [`Timer::milliseconds`].
    pub fn time<T, E: From<Error>>(
        &self,
        enqueue: impl FnOnce(&Self) -> Result<T, E>,
        meanwhile: impl FnOnce(&mut T),
    ) -> Result<(f64, T), E> {
        let _current = self.device.enter()?;
        self.record(&self.start)?;
        let mut found = enqueue(self)?;
        self.record(&self.stop)?;
        meanwhile(&mut found);
        // Through the device, which knows what a fault is.
        self.device.synchronize()?;
        let elapsed = self.stop.elapsed_time_f32(&self.start);
        let ms = elapsed.map_err(|error| fail(&self.device, error))?;
        Ok((f64::from(ms), found))
    }

    /// Whether the device has reached the beginning of what is timed now.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn has_started(&self) -> Result<bool, Error> {
        let status = self.start.query().map_err(|error| fail(&self.device, error))?;
        Ok(status == EventStatus::Ready)
    }

    fn record(&self, event: &Event) -> Result<(), Error> {
        let stream = self.device.stream();
        let stream = stream.as_cust().expect("a device makes its own stream through cust");
        event.record(stream).map_err(|error| fail(&self.device, error))
    }
}

fn fail(device: &Device, error: CudaError) -> Error {
    device.error("timing with CUDA events", error)
}
