//! CUDA graphs: work that is recorded once and then launched as a whole.

use std::fmt;

use cuda_driver::sys::{self, CUgraph, CUgraphExec};

use crate::error::Error;
use crate::stream::Stream;

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: other threads may do what capturing forbids.
const THREAD_LOCAL: u32 = 1;

/// Work that was captured on a stream, ready to be launched any number of times:
/// [`Stream::capture`] has an example.
pub struct Graph {
    exec: CUgraphExec,
    stream: Stream,
}

// SAFETY: a handle that the driver lets any thread use, one at a time: `launch` sees to that.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Sync for Graph {}

impl Stream {
    /// Captures what `enqueue` enqueues on this stream, instead of doing it: to launch a graph
    /// costs the host less than to launch each kernel.
    ///
    /// While it captures, nothing may wait for the stream, copy to or from its matrices, or
    /// allocate: [`Plan::enqueue`](crate::Plan::enqueue) does none of this. What other
    /// threads enqueue on the stream meanwhile is not captured, but waits until the capture is
    /// over; so `enqueue` must not wait for them.
    ///
    /// ```
    /// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm};
    ///
    /// let device = Device::open(DeviceChoice::Soft)?;
    /// let product = device.auto()?.prepare(Gemm { beta: 1.0, ..Gemm::new(4, 4, 4) })?;
    /// let one = DeviceMatrix::from_host(&device, &cuda_gemm::Matrix::from_fn(4, 4, |_, _| 1.0))?;
    /// let mut c = DeviceMatrix::zeros(&device, 4, 4)?;
    /// let graph = device.stream().capture(|| product.enqueue(&one, &one, &mut c))?;
    /// for _ in 0..3 {
    ///     // SAFETY: the product and its matrices are there until the download is done.
    ///     unsafe { graph.launch() }?;
    /// }
    /// assert_eq!(c.download()?.at(0, 0), 12.0);
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of `enqueue`, and [`Error::Driver`], for one if something was done that cannot be
    /// captured.
    pub fn capture(&self, enqueue: impl FnOnce() -> Result<(), Error>) -> Result<Graph, Error> {
        let device = self.device();
        let _exclusive = self.exclusive();
        let capturing = Capturing::begin(self)?;
        // If it fails, `capturing` is dropped. The caller's context is current in it.
        enqueue()?;
        let _current = device.enter()?;
        let graph = capturing.end()?;
        let mut exec = CUgraphExec::NULL;
        // SAFETY: `exec` is valid for the write. The captured graph is not used again.
        let (made, destroyed) = unsafe {
            let made = sys::cuGraphInstantiateWithFlags(&raw mut exec, graph, 0);
            (made, sys::cuGraphDestroy(graph))
        };
        device.check("cuGraphInstantiate", made)?;
        let graph = Graph { exec, stream: self.clone() };
        device.check("cuGraphDestroy", destroyed)?;
        Ok(graph)
    }
}

/// A stream that captures, and stops when this is dropped, also by a panic.
struct Capturing<'s> {
    stream: &'s Stream,
}

impl<'s> Capturing<'s> {
    fn begin(stream: &'s Stream) -> Result<Self, Error> {
        let _current = stream.device().enter()?;
        // SAFETY: the stream is there.
        let begun = unsafe { sys::cuStreamBeginCapture_v2(stream.as_raw(), THREAD_LOCAL) };
        stream.device().check("cuStreamBeginCapture", begun)?;
        Ok(Self { stream })
    }

    fn end(self) -> Result<CUgraph, Error> {
        let stream = self.stream;
        std::mem::forget(self);
        let mut graph = CUgraph::NULL;
        let _current = stream.device().enter()?;
        // SAFETY: the stream captures, and `graph` is valid for the write.
        let ended = unsafe { sys::cuStreamEndCapture(stream.as_raw(), &raw mut graph) };
        stream.device().check("cuStreamEndCapture", ended)?;
        Ok(graph)
    }
}

impl Drop for Capturing<'_> {
    fn drop(&mut self) {
        let _current = self.stream.device().enter();
        if let Ok(graph) = (Capturing { stream: self.stream }).end() {
            // SAFETY: just made, and not used.
            let _ = unsafe { sys::cuGraphDestroy(graph) };
        }
    }
}

impl Graph {
    /// The stream that the graph was captured on, and is launched on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Enqueues the captured work.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    ///
    /// # Safety
    ///
    /// Until the work is done, the plans, matrices and whatever else the captured work uses are
    /// there, and are used by nothing but what is enqueued on the same stream.
    pub unsafe fn launch(&self) -> Result<(), Error> {
        let device = self.stream.device();
        let _current = device.enter()?;
        let _exclusive = self.stream.exclusive();
        // SAFETY: the graph was made in this context; the rest is the caller's contract.
        let launched = unsafe { sys::cuGraphLaunch(self.exec, self.stream.as_raw()) };
        device.check("cuGraphLaunch", launched)
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Ok(_current) = self.stream.device().enter() {
            // SAFETY: not used again; the driver waits for a launch that is under way.
            let _ = unsafe { sys::cuGraphExecDestroy(self.exec) };
        }
    }
}
