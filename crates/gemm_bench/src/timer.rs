//! The timer: the time between two CUDA events on a device's own stream.

use cuda_gemm::{Device, DeviceKind, Error};
use cust::error::CudaError;
use cust::event::{Event, EventFlags, EventStatus};

/// The clock of a time: see [`Timer::clock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Time on the GPU, between two CUDA events around the launches.
    GpuEvents,
    /// CPU time to interpret the kernel on the software device, which says nothing about a GPU.
    CpuSimulation,
}

/// Two events, reused for one time span after the other.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm, find_kernel};
/// use gemm_bench::Timer;
///
/// # fn main() -> Result<(), gemm_bench::Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// let product = device.kernel(find_kernel("tile2d")?)?.prepare(Gemm::new(20, 30, 10))?;
/// let zeros = |shape| DeviceMatrix::<f32>::zeros(&device, shape);
/// let (a, b, mut c) = (zeros([20, 10])?, zeros([10, 30])?, zeros([20, 30])?);
///
/// let timer = Timer::new(&device)?;
/// let ms = timer.milliseconds(|| product.run(&a, &b, &mut c))?;
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
    /// Creates a timer for work on the device's own stream.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if events run out.
    pub fn new(device: &Device) -> Result<Self, Error> {
        let _current = device.enter()?;
        let event = || Event::new(EventFlags::DEFAULT).map_err(|error| fail(device, error));
        Ok(Self { device: device.clone(), start: event()?, stop: event()? })
    }

    /// The clock of its times.
    pub fn clock(&self) -> Clock {
        match self.device.info().kind {
            DeviceKind::Gpu => Clock::GpuEvents,
            DeviceKind::Soft => Clock::CpuSimulation,
        }
    }

    /// Milliseconds of the device for the work that `enqueue` enqueues on its own stream.
    ///
    /// Waits for the end of the work.
    ///
    /// # Errors
    ///
    /// The error of `enqueue`, a fault of a kernel, or [`Error::Driver`].
    pub fn milliseconds<E: From<Error>>(
        &self,
        enqueue: impl FnOnce() -> Result<(), E>,
    ) -> Result<f64, E> {
        let (ms, ()) = self.time(|_| enqueue(), |()| ())?;
        Ok(ms)
    }

    /// Times work like [`Timer::milliseconds`], and returns the value of `enqueue`.
    ///
    /// `meanwhile` may change this value before the wait.
    ///
    /// # Errors
    ///
    /// See [`Timer::milliseconds`].
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
        // Through the device, which recognises faults.
        self.device.synchronize()?;
        let elapsed = self.stop.elapsed_time_f32(&self.start);
        let ms = elapsed.map_err(|error| fail(&self.device, error))?;
        Ok((f64::from(ms), found))
    }

    /// Whether the device has reached the start of the current time span.
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
