//! Streams: the order of a device's work.

use std::fmt;
use std::mem;
use std::sync::Arc;

use cuda_driver::sys::{self, CUstream};
use cust::stream::{Stream as CudaStream, StreamFlags};

use super::handle::Device;
use super::queue::{Exclusive, Queue};
use crate::error::Error;

/// A stream of a device, which runs its work in order.
///
/// This is a handle: clones are the same stream. A matrix and a plan belong to one stream each, and
/// must belong to the same one. [`DeviceMatrix::move_to`](crate::DeviceMatrix::move_to) moves a
/// matrix. A device's own stream is [`Device::stream`]; as `impl Into<Stream>`, `&device` stands
/// for it.
///
/// Any thread may use a stream, also several at once: the work of one call is enqueued before that
/// of the next. While one thread [captures](Stream::capture), the others wait.
///
/// ```
/// use std::sync::Arc;
///
/// use cuda_gemm::{Device, DeviceChoice, Stream};
/// use cust::stream::StreamFlags;
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let current = device.enter()?;
/// let own = Arc::new(cust::stream::Stream::new(StreamFlags::DEFAULT, None).unwrap());
/// drop(current);
/// // SAFETY: it was just made in the device's context, and nobody else captures on it.
/// let stream = unsafe { Stream::from_cust(&device, own) };
/// stream.wait_for(&device.stream())?;
/// stream.synchronize()?;
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone)]
pub struct Stream {
    handle: Handle,
    queue: Arc<Queue>,
    device: Device,
}

#[derive(Clone)]
enum Handle {
    Cust(Arc<CudaStream>),
    Raw(CUstream),
}

impl Stream {
    /// Creates a new stream of a device.
    ///
    /// ```
    /// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Stream};
    ///
    /// let device = Device::open(DeviceChoice::Soft)?;
    /// let stream = Stream::new(&device)?;
    /// let matrix = DeviceMatrix::<f32>::zeros(&stream, [2, 3])?;
    /// assert!(matrix.stream().is_same(&stream) && !stream.is_same(&device.stream()));
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn new(device: &Device) -> Result<Self, Error> {
        let _current = device.enter()?;
        let stream = CudaStream::new(StreamFlags::DEFAULT, None)
            .map_err(|error| device.error("cuStreamCreate", error))?;
        Ok(Self::shared(device, Arc::new(stream), Arc::default()))
    }

    /// Wraps the caller's stream, made with `cust`.
    ///
    /// # Safety
    ///
    /// - The stream was made in the primary context of this device's GPU, or of the same model of
    ///   the software device.
    /// - While it captures, only the thread that began the capture enqueues on it, also through
    ///   other handles. Handles that are not clones of this one do not know of each other.
    pub unsafe fn from_cust(device: &Device, stream: Arc<CudaStream>) -> Self {
        Self::shared(device, stream, Arc::default())
    }

    /// Wraps the caller's raw stream.
    ///
    /// # Safety
    ///
    /// - The contract of [`Stream::from_cust`].
    /// - The stream is not destroyed before the last clone of this handle, and of everything made
    ///   on it, is dropped.
    /// - It is not the per-thread default stream, which is a different one in each thread.
    pub unsafe fn from_raw(device: &Device, stream: CUstream) -> Self {
        Self { handle: Handle::Raw(stream), queue: Arc::default(), device: device.clone() }
    }

    fn shared(device: &Device, stream: Arc<CudaStream>, queue: Arc<Queue>) -> Self {
        Self { handle: Handle::Cust(stream), queue, device: device.clone() }
    }

    /// A handle of this stream that keeps nothing of the device: see [`Device::detached`].
    pub(crate) fn detached(&self) -> Self {
        let (handle, queue) = (self.handle.clone(), Arc::clone(&self.queue));
        Self { handle, queue, device: self.device.detached() }
    }

    /// Refuses an object that is on another stream.
    pub(crate) fn expect(&self, what: &'static str, on: &Self) -> Result<(), Error> {
        match () {
            () if on.is_same(self) => Ok(()),
            () if on.device().is_same(self.device()) => Err(Error::WrongStream { what }),
            () => Err(Error::WrongDevice { what }),
        }
    }

    /// Waits for other threads' enqueueing and captures, then keeps them out until the guard is
    /// dropped.
    ///
    /// Use it for driver calls that belong together or do not go through this library. Calls
    /// through the library acquire this right themselves.
    ///
    /// ```
    /// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm};
    ///
    /// let device = Device::open(DeviceChoice::Soft)?;
    /// let stream = device.stream();
    /// let product = device.auto()?.prepare(Gemm::new(2, 2, 2))?;
    /// let [a, mut b, mut c] =
    ///     [(); 3].map(|()| DeviceMatrix::<f32>::zeros(&device, [2, 2])).map(Result::unwrap);
    /// // No other thread's work comes in between.
    /// let exclusive = stream.exclusive();
    /// product.run(&a, &b, &mut c)?;
    /// product.run(&a, &c, &mut b)?;
    /// drop(exclusive);
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    pub fn exclusive(&self) -> Exclusive<'_> {
        self.queue.exclusive()
    }

    /// The stream's device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Whether both are handles of one stream.
    pub fn is_same(&self, other: &Self) -> bool {
        self.device.is_same(&other.device) && self.as_raw() == other.as_raw()
    }

    /// The raw stream, valid as long as a handle exists.
    pub fn as_raw(&self) -> CUstream {
        match &self.handle {
            Handle::Cust(stream) => stream.as_inner().into(),
            Handle::Raw(stream) => *stream,
        }
    }

    /// The `cust` stream, unless this came from [`Stream::from_raw`].
    pub fn as_cust(&self) -> Option<&CudaStream> {
        match &self.handle {
            Handle::Cust(stream) => Some(stream),
            Handle::Raw(_) => None,
        }
    }

    /// Waits for all work enqueued so far.
    ///
    /// # Errors
    ///
    /// [`Error::KernelFault`] if a kernel stopped with a fault since the last call.
    pub fn synchronize(&self) -> Result<(), Error> {
        let _current = self.device.enter()?;
        // Lets another thread finish enqueueing; the lock must not be held during the wait for the
        // device.
        drop(self.exclusive());
        // SAFETY: the stream exists as long as its handle.
        let result = unsafe { sys::cuStreamSynchronize(self.as_raw()) };
        self.device.check("cuStreamSynchronize", result)
    }

    /// Makes later work wait for the work enqueued so far on another stream of the same device.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn wait_for(&self, other: &Self) -> Result<(), Error> {
        if self.is_same(other) {
            return Ok(());
        }
        // One lock after the other, so that two threads cannot deadlock.
        let event = other.record()?;
        self.wait_for_event(&event)
    }
}

impl Device {
    /// The device's own stream, used unless another is named.
    pub fn stream(&self) -> Stream {
        let (stream, queue) = self.own_stream();
        Stream::shared(self, stream, queue)
    }

    /// Waits for all work enqueued so far on the device's own stream.
    ///
    /// # Errors
    ///
    /// [`Error::KernelFault`] if a kernel stopped with a fault since the last call.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.stream().synchronize()
    }
}

impl From<&Device> for Stream {
    fn from(device: &Device) -> Self {
        device.stream()
    }
}

impl From<&Stream> for Stream {
    fn from(stream: &Stream) -> Self {
        stream.clone()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a stream of {}", self.device.info().name)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // The last handle destroys the stream, in the current context.
        let _current = self.device.enter();
        drop(mem::replace(&mut self.handle, Handle::Raw(CUstream::NULL)));
    }
}

// SAFETY: a raw stream is a handle that the driver lets any thread use; `CudaStream` is both
// already.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}
