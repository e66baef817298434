//! Device memory, and a stream's operations on it.

use std::ffi::c_void;
use std::mem::ManuallyDrop;

use cuda_driver::sys;
use cust::memory::DeviceBuffer;

use crate::device::Stream;
use crate::error::Error;

/// Words of device memory that one stream uses.
pub(crate) struct Memory {
    buffer: ManuallyDrop<DeviceBuffer<u32>>,
    stream: Stream,
}

// SAFETY: the buffer is an address on a device, and the driver lets any thread use it.
unsafe impl Send for Memory {}
// SAFETY: as above; shared access is to numbers that do not change.
unsafe impl Sync for Memory {}

impl Memory {
    /// Allocates words with unknown values.
    pub(crate) fn uninitialized(stream: &Stream, words: usize) -> Result<Self, Error> {
        let device = stream.device();
        let _current = device.enter()?;
        // SAFETY: every caller writes the memory before it is read.
        let buffer = unsafe { DeviceBuffer::uninitialized(words) }
            .map_err(|e| device.error("allocating device memory", e))?;
        Ok(Self { buffer: ManuallyDrop::new(buffer), stream: stream.clone() })
    }

    /// Allocates words of zeros.
    pub(crate) fn zeroed(stream: &Stream, words: usize) -> Result<Self, Error> {
        let mut memory = Self::uninitialized(stream, words)?;
        memory.fill(0)?;
        Ok(memory)
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The number of words.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// The address of the first word; meaningless if there is none.
    pub(crate) fn address(&self) -> u64 {
        self.buffer.as_device_ptr().as_raw()
    }

    /// Enqueues a fill of every word with these bits.
    pub(crate) fn fill(&mut self, bits: u32) -> Result<(), Error> {
        if self.len() == 0 {
            return Ok(());
        }
        let device = self.stream.device();
        let _current = device.enter()?;
        let (address, stream) = (sys::CUdeviceptr(self.address()), self.stream.as_raw());
        let _exclusive = self.stream.exclusive();
        // SAFETY: the memory has this many words, and is freed after all work.
        let result = unsafe { sys::cuMemsetD32Async(address, bits, self.len(), stream) };
        device.check("filling device memory", result)
    }

    /// Fills the memory with repetitions of a pattern, and waits for the end.
    pub(crate) fn repeat(&mut self, pattern: &[u32]) -> Result<(), Error> {
        if pattern.is_empty() {
            return self.fill(0);
        }
        let device = self.stream.device();
        let _current = device.enter()?;
        // Until the copies are done, nobody captures on the stream.
        let _exclusive = self.stream.exclusive();
        let first = &pattern[..pattern.len().min(self.len())];
        // SAFETY: the memory has room for the words, which stay until the stream is waited for.
        let mut copied = unsafe { copy_from_host(&self.stream, self.address(), first) };
        let mut done = first.len();
        while copied.is_ok() && done < self.len() {
            let more = done.min(self.len() - done);
            let [to, from] =
                [done, 0].map(|words| sys::CUdeviceptr(self.address() + 4 * words as u64));
            // SAFETY: the source is the first `more <= done` words, which earlier work wrote. The
            // destination is the `more` words after the first `done`, and within the memory.
            let code =
                unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, 4 * more, self.stream.as_raw()) };
            copied = device.check("copying on the device", code);
            done += more;
        }
        self.stream.synchronize().and(copied)
    }

    /// Moves the memory to another stream, whose work waits for the work enqueued so far.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`], which names the memory `what`, or [`Error::Driver`].
    pub(crate) fn move_to(&mut self, stream: &Stream, what: &'static str) -> Result<(), Error> {
        if !stream.device().is_same(self.stream.device()) {
            return Err(Error::WrongDevice { what });
        }
        stream.wait_for(&self.stream)?;
        self.stream = stream.clone();
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // The memory is freed in the current context, after all work with it.
        let _current = self.stream.device().enter();
        // SAFETY: not used again.
        unsafe { ManuallyDrop::drop(&mut self.buffer) };
    }
}

/// Enqueues a copy from the host.
///
/// # Safety
///
/// - The address has room for the elements, and only this stream uses that memory.
/// - The elements stay unchanged until the stream has been waited for.
/// - Until then the caller has the [exclusive](Stream::exclusive) right to enqueue, so that no
///   capture begins, in which waiting fails.
pub(super) unsafe fn copy_from_host<T: Copy>(
    stream: &Stream,
    address: u64,
    from: &[T],
) -> Result<(), Error> {
    let device = stream.device();
    let _current = device.enter()?;
    let to = sys::CUdeviceptr(address);
    // SAFETY: both have this many bytes; the rest is the caller's contract.
    let result = unsafe {
        sys::cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), size_of_val(from), stream.as_raw())
    };
    device.check("copying to the device", result)
}

/// Enqueues a copy to the host.
///
/// # Safety
///
/// - The address has `to.len()` initialised elements, and only this stream uses them.
/// - Nobody accesses `to` until the stream has been waited for.
/// - Until then the caller has the exclusive right, as for [`copy_from_host`].
pub(super) unsafe fn copy_to_host<T: Copy>(
    stream: &Stream,
    address: u64,
    to: &mut [T],
) -> Result<(), Error> {
    let device = stream.device();
    let _current = device.enter()?;
    let (bytes, place) = (size_of_val(to), to.as_mut_ptr().cast::<c_void>());
    // SAFETY: both have this many bytes; the rest is the caller's contract.
    let result = unsafe {
        sys::cuMemcpyDtoHAsync_v2(place, sys::CUdeviceptr(address), bytes, stream.as_raw())
    };
    device.check("copying from the device", result)
}
