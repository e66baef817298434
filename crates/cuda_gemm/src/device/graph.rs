//! CUDA graphs: work that is recorded once and launched as a whole.

use std::fmt;

use cuda_driver::sys::{self, CUgraph, CUgraphExec, CUresult};

use super::stream::Stream;
use crate::error::Error;

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: other threads may make calls that capturing forbids.
const THREAD_LOCAL: u32 = 1;

/// Captured work, ready to be launched any number of times.
///
/// [`Stream::capture`] has an example.
pub struct Graph {
    exec: CUgraphExec,
    stream: Stream,
}

// SAFETY: a handle that the driver lets any thread use, one at a time: `launch` takes turns.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Sync for Graph {}

impl Stream {
    /// Captures the work that `enqueue` enqueues on this stream, without running it.
    ///
    /// Launching a graph costs the host less than launching each kernel.
    ///
    /// During the capture:
    ///
    /// - Nothing may wait for the stream, copy to or from its matrices, or allocate.
    ///   [`Plan::run`](crate::Plan::run) does none of these.
    /// - Other threads that enqueue on the stream wait for the capture to end, and their work is
    ///   not captured. So `enqueue` must not wait for them.
    ///
    /// ```
    /// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm};
    ///
    /// let device = Device::open(DeviceChoice::Soft)?;
    /// let product = device.auto()?.prepare(Gemm { beta: 1.0, ..Gemm::new(4, 4, 4) })?;
    /// let one = DeviceMatrix::<f32>::from_host(&device, &cuda_gemm::Matrix::from_fn(4, 4, |_, _| 1.0))?;
    /// let mut c = DeviceMatrix::<f32>::zeros(&device, [4, 4])?;
    /// let graph = device.stream().capture(|| product.run(&one, &one, &mut c))?;
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
    /// The errors of `enqueue`, and [`Error::Driver`], for example if `enqueue` made a call that
    /// cannot be captured.
    pub fn capture(&self, enqueue: impl FnOnce() -> Result<(), Error>) -> Result<Graph, Error> {
        let device = self.device();
        let _exclusive = self.exclusive();
        let capturing = Capturing::begin(self)?;
        // On an error `capturing` is dropped. `enqueue` runs with the caller's context current.
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

    /// Whether work on this stream is captured into a graph now.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn is_capturing(&self) -> Result<bool, Error> {
        let _current = self.device().enter()?;
        let mut status = 0;
        // SAFETY: the stream exists, and `status` is valid for the write.
        let asked = unsafe { sys::cuStreamIsCapturing(self.as_raw(), &raw mut status) };
        if asked == CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT {
            // The legacy stream, while another stream that waits for it captures.
            return Ok(true);
        }
        self.device().check("cuStreamIsCapturing", asked)?;
        Ok(status != 0)
    }
}

/// A capture of a stream, which ends when this is dropped, also in a panic.
struct Capturing<'s> {
    stream: &'s Stream,
}

impl<'s> Capturing<'s> {
    fn begin(stream: &'s Stream) -> Result<Self, Error> {
        let _current = stream.device().enter()?;
        // SAFETY: the stream exists.
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
    /// The stream on which the graph was captured and is launched.
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
    /// Until the work is done, the plans, the matrices and everything else that the captured work
    /// uses exist. Only work enqueued on the same stream uses them.
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
