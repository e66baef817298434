//! Calls of the driver that the library of products has no function for.

use std::ffi::c_void;
use std::sync::Arc;

use cuda_driver::sys::{self, CUcontext, CUdeviceptr, CUevent};
use cuda_gemm::{Device, Error, Event, Stream};
use cust::context::legacy::CurrentContext;
use cust::stream::{Stream as CudaStream, StreamFlags};

/// The handle, for other ranks of this process while this event exists.
pub(crate) fn bits(event: &Event) -> u64 {
    event.as_raw().0.expose_provenance() as u64
}

/// Makes later work of a stream wait for an event of this process that exists.
pub(crate) fn make_wait(stream: &Stream, event: u64) -> Result<(), Error> {
    let device = stream.device();
    let _current = device.enter()?;
    let event = CUevent(std::ptr::with_exposed_provenance_mut(event as usize));
    let _exclusive = stream.exclusive();
    // SAFETY: both exist.
    let code = unsafe { sys::cuStreamWaitEvent(stream.as_raw(), event, 0) };
    device.check("cuStreamWaitEvent", code)
}

/// A stream whose kernels start before those of the device's own stream.
pub(crate) fn urgent_stream(device: &Device) -> Result<Stream, Error> {
    let _current = device.enter()?;
    let fail = |error| device.error("creating a stream", error);
    let priorities = CurrentContext::get_stream_priority_range().map_err(fail)?;
    let stream = CudaStream::new(StreamFlags::DEFAULT, Some(priorities.greatest)).map_err(fail)?;
    // SAFETY: it was just made in the device's context, and nobody captures on it.
    Ok(unsafe { Stream::from_cust(device, Arc::new(stream)) })
}

/// The device's context.
pub(crate) fn context(device: &Device) -> Result<u64, Error> {
    let _current = device.enter()?;
    let mut context = CUcontext::NULL;
    // SAFETY: `context` is valid for the write.
    let code = unsafe { sys::cuCtxGetCurrent(&raw mut context) };
    device.check("cuCtxGetCurrent", code)?;
    Ok(context.0.expose_provenance() as u64)
}

fn as_context(context: u64) -> CUcontext {
    CUcontext(std::ptr::with_exposed_provenance_mut(context as usize))
}

/// Lets the device read the memory of a context directly, where the hardware can.
pub(crate) fn enable_peer(device: &Device, context: u64) {
    let Ok(_current) = device.enter() else { return };
    // Without it, copies go through the host. It may be on already, or be the device's own context.
    // SAFETY: the context is one of this process, and exists.
    _ = unsafe { sys::cuCtxEnablePeerAccess(as_context(context), 0) };
}

/// Enqueues a copy from another device of this process.
///
/// # Safety
///
/// Both addresses have this many bytes in memory of their context, until the copy is done, and
/// nobody else writes them meanwhile.
pub(crate) unsafe fn copy_from_peer(
    stream: &Stream,
    [to, to_context]: [u64; 2],
    [from, from_context]: [u64; 2],
    bytes: usize,
) -> Result<(), Error> {
    let device = stream.device();
    let _current = device.enter()?;
    let [to, from] = [to, from].map(CUdeviceptr);
    let [to_context, from_context] = [to_context, from_context].map(as_context);
    let _exclusive = stream.exclusive();
    // SAFETY: the caller's contract.
    let code = unsafe {
        sys::cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, stream.as_raw())
    };
    device.check("cuMemcpyPeerAsync", code)
}

/// Copies device memory to the host, after the stream's earlier work.
///
/// # Safety
///
/// The address has this many initialised bytes.
pub(crate) unsafe fn read(stream: &Stream, address: u64, bytes: usize) -> Result<Vec<u8>, Error> {
    let mut copy = vec![0; bytes];
    let device = stream.device();
    let _current = device.enter()?;
    let _exclusive = stream.exclusive();
    let to = copy.as_mut_ptr().cast::<c_void>();
    // SAFETY: both have this many bytes, and the copy is waited for.
    let code =
        unsafe { sys::cuMemcpyDtoHAsync_v2(to, CUdeviceptr(address), bytes, stream.as_raw()) };
    stream.synchronize().and(device.check("copying from the device", code))?;
    Ok(copy)
}

/// Copies host memory to the device, after the stream's earlier work.
///
/// # Safety
///
/// The address has room for the bytes, and nobody else uses them.
pub(crate) unsafe fn write(stream: &Stream, address: u64, bytes: &[u8]) -> Result<(), Error> {
    let device = stream.device();
    let _current = device.enter()?;
    let _exclusive = stream.exclusive();
    let (from, len) = (bytes.as_ptr().cast::<c_void>(), bytes.len());
    // SAFETY: both have this many bytes, and the copy is waited for.
    let code =
        unsafe { sys::cuMemcpyHtoDAsync_v2(CUdeviceptr(address), from, len, stream.as_raw()) };
    stream.synchronize().and(device.check("copying to the device", code))
}
