//! Streams: the order in which a device does its work.

use std::fmt;
use std::mem;
use std::sync::Arc;

use cuda_driver::sys::{self, CUstream};
use cust::stream::{Stream as CudaStream, StreamFlags};

use crate::device::Device;
use crate::error::Error;
use crate::queue::{Exclusive, Queue};

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;

/// A stream of a device. What is enqueued on it is done in order.
///
/// It is a handle: clones are the same stream. A matrix and a plan belong to one stream each, and
/// go together if it is the same one; [`DeviceMatrix::move_to`](crate::DeviceMatrix::move_to)
/// moves a matrix to another. A device's own stream is [`Device::stream`]; where a function takes
/// `impl Into<Stream>`, `&device` stands for it.
///
/// Any thread may use it, and several at once: each call enqueues all it has to, and then the next
/// one does. While a thread [captures](Stream::capture), the others wait.
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
    /// Creates another stream of a device.
    ///
    /// ```
    /// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Stream};
    ///
    /// let device = Device::open(DeviceChoice::Soft)?;
    /// let stream = Stream::new(&device)?;
    /// let matrix = DeviceMatrix::zeros(&stream, 2, 3)?;
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

    /// The caller's stream, made through `cust`.
    ///
    /// # Safety
    ///
    /// It was made in the primary context of this device's GPU, or of the same model of the
    /// software device. While it captures, only the thread that began the capture enqueues on it,
    /// also through other handles: those that are not clones of this one do not know of each other.
    pub unsafe fn from_cust(device: &Device, stream: Arc<CudaStream>) -> Self {
        Self::shared(device, stream, Arc::default())
    }

    /// The caller's stream, as the driver knows it.
    ///
    /// # Safety
    ///
    /// As for [`Stream::from_cust`]; and the stream is not destroyed before the last clone of
    /// this handle, and of what was made on it, is dropped. It is not the per-thread default
    /// stream, which is another one in each thread.
    pub unsafe fn from_raw(device: &Device, stream: CUstream) -> Self {
        Self { handle: Handle::Raw(stream), queue: Arc::default(), device: device.clone() }
    }

    fn shared(device: &Device, stream: Arc<CudaStream>, queue: Arc<Queue>) -> Self {
        Self { handle: Handle::Cust(stream), queue, device: device.clone() }
    }

    /// Refuses what is on another stream than this.
    pub(crate) fn expect(&self, what: &'static str, on: &Self) -> Result<(), Error> {
        match () {
            () if on.is_same(self) => Ok(()),
            () if on.device().is_same(self.device()) => Err(Error::WrongStream { what }),
            () => Err(Error::WrongDevice { what }),
        }
    }

    /// Waits until no other thread enqueues on the stream or captures it, and keeps them from it
    /// until what is returned is dropped: for calls of the driver that belong together, or that do
    /// not go through this library. What does go through it takes this right itself.
    ///
    /// ```
    /// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm};
    ///
    /// let device = Device::open(DeviceChoice::Soft)?;
    /// let stream = device.stream();
    /// let product = device.auto()?.prepare(Gemm::new(2, 2, 2))?;
    /// let [a, mut b, mut c] =
    ///     [(); 3].map(|()| DeviceMatrix::zeros(&device, 2, 2)).map(Result::unwrap);
    /// // No other thread's work comes in between.
    /// let exclusive = stream.exclusive();
    /// product.enqueue(&a, &b, &mut c)?;
    /// product.enqueue(&a, &c, &mut b)?;
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

    /// The stream as the driver knows it; it stays valid as long as there is a handle.
    pub fn as_raw(&self) -> CUstream {
        match &self.handle {
            Handle::Cust(stream) => stream.as_inner().into(),
            Handle::Raw(stream) => *stream,
        }
    }

    /// The stream as `cust` knows it, unless it came from [`Stream::from_raw`].
    pub fn as_cust(&self) -> Option<&CudaStream> {
        match &self.handle {
            Handle::Cust(stream) => Some(stream),
            Handle::Raw(_) => None,
        }
    }

    /// Waits until everything enqueued so far is done.
    ///
    /// # Errors
    ///
    /// [`Error::KernelFault`] if a kernel stopped with a fault since the last call.
    pub fn synchronize(&self) -> Result<(), Error> {
        let _current = self.device.enter()?;
        // What another thread is enqueueing is enqueued first; it must not wait for the device.
        drop(self.exclusive());
        // SAFETY: the stream is there as long as its handle.
        let result = unsafe { sys::cuStreamSynchronize(self.as_raw()) };
        self.device.check("cuStreamSynchronize", result)
    }

    /// Makes what is enqueued from now on wait for what another stream of the same device has
    /// been given so far.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn wait_for(&self, other: &Self) -> Result<(), Error> {
        if self.is_same(other) {
            return Ok(());
        }
        let _current = self.device.enter()?;
        let mut event = sys::CUevent::NULL;
        // SAFETY: `event` is valid for the write.
        let created = unsafe { sys::cuEventCreate(&raw mut event, DISABLE_TIMING) };
        self.device.check("cuEventCreate", created)?;
        // One after the other, lest two threads wait for each other.
        let recorded = {
            let _exclusive = other.exclusive();
            // SAFETY: the event and the stream are there.
            unsafe { sys::cuEventRecord(event, other.as_raw()) }
        };
        let waits = {
            let _exclusive = self.exclusive();
            // SAFETY: as above.
            unsafe { sys::cuStreamWaitEvent(self.as_raw(), event, 0) }
        };
        // SAFETY: not used again; the driver keeps an event for as long as it is waited for.
        let destroyed = unsafe { sys::cuEventDestroy_v2(event) };
        let results = [
            ("cuEventRecord", recorded),
            ("cuStreamWaitEvent", waits),
            ("cuEventDestroy", destroyed),
        ];
        results.into_iter().try_for_each(|(call, result)| self.device.check(call, result))
    }
}

impl Device {
    /// The device's own stream, on which work goes unless another one is named.
    pub fn stream(&self) -> Stream {
        let (stream, queue) = self.own_stream();
        Stream::shared(self, stream, queue)
    }

    /// Waits until everything enqueued so far on the device's own stream is done.
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
        // The stream is destroyed with its last handle, in the current context.
        let _current = self.device.enter();
        drop(mem::replace(&mut self.handle, Handle::Raw(CUstream::NULL)));
    }
}

// SAFETY: a raw stream is a handle that the driver lets any thread use; `CudaStream` is
// both already.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}
