//! The timer: the time between two CUDA events on a stream.

use cuda_driver::sys;

use super::event::Event;
use super::handle::Device;
use super::stream::Stream;
use crate::error::Error;

/// Two events, reused for one time span after the other.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Error, Gemm, Timer, find_kernel};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let product = device.kernel(find_kernel("tile2d")?)?.prepare(Gemm::new(20, 30, 10))?;
/// let zeros = |shape| DeviceMatrix::<f32>::zeros(&device, shape);
/// let (a, b, mut c) = (zeros([20, 10])?, zeros([10, 30])?, zeros([20, 30])?);
///
/// let timer = Timer::new(&device)?;
/// let ms = timer.milliseconds(|| product.run(&a, &b, &mut c))?;
/// assert!(ms > 0.0);
/// # Ok::<(), Error>(())
/// ```
pub struct Timer {
    stream: Stream,
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
        Self::on(&device.stream())
    }

    /// Creates a timer for work on a stream.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if events run out.
    pub fn on(stream: &Stream) -> Result<Self, Error> {
        let event = || Event::timed(stream.device());
        Ok(Self { stream: stream.clone(), start: event()?, stop: event()? })
    }

    /// Milliseconds of the device for the work that `enqueue` enqueues on the timer's stream.
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
        // No other thread's capture gets the events, and no other thread's work is timed.
        let _exclusive = self.stream.exclusive();
        let _current = self.stream.device().enter()?;
        self.start.record(&self.stream)?;
        let mut found = enqueue(self)?;
        self.stop.record(&self.stream)?;
        meanwhile(&mut found);
        // Through the stream, which recognises faults.
        self.stream.synchronize()?;
        let mut ms = 0.0;
        // SAFETY: both events exist and were recorded, and `ms` is valid for the write.
        let elapsed = unsafe {
            sys::cuEventElapsedTime(&raw mut ms, self.start.as_raw(), self.stop.as_raw())
        };
        self.stream.device().check("cuEventElapsedTime", elapsed)?;
        Ok((f64::from(ms), found))
    }

    /// Whether the device has reached the start of the current time span.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn has_started(&self) -> Result<bool, Error> {
        self.start.is_done()
    }
}
