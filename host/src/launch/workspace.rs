//! Device memory that launches share: partial sums and counters.

use cust::memory::DeviceBuffer;

use crate::device::Device;
use crate::error::Error;
use crate::gemm::Workspace;

/// A [`Workspace`] on a device. Work on the device's one stream uses it one launch after the
/// other, and leaves zeros in the counters each time.
pub(super) struct Buffers<'d> {
    device: &'d Device,
    partials: DeviceBuffer<f32>,
    counters: DeviceBuffer<u32>,
}

impl<'d> Buffers<'d> {
    /// Allocates a workspace; none if nothing is needed.
    pub(super) fn new(device: &'d Device, workspace: Workspace) -> Result<Option<Self>, Error> {
        let needed = workspace.bytes();
        if needed == 0 {
            return Ok(None);
        }
        require_memory(device, needed)?;
        let failed = |e| device.error("allocating device memory", e);
        // Both counts fit, since the bytes are no more than the device has.
        let [partials, counters] =
            [workspace.partials, workspace.counters].map(|count| count as usize);
        // SAFETY: the kernels store every partial sum before they load it.
        let partials = unsafe { DeviceBuffer::uninitialized(partials) }.map_err(failed)?;
        let counters = DeviceBuffer::zeroed(counters).map_err(failed)?;
        Ok(Some(Self { device, partials, counters }))
    }

    /// Addresses of the partial sums and the counters.
    pub(super) fn addresses(&self) -> [u64; 2] {
        [self.partials.as_device_ptr().as_raw(), self.counters.as_device_ptr().as_raw()]
    }
}

/// Refuses what does not fit into the device's free memory.
pub(super) fn require_memory(device: &Device, needed: u128) -> Result<(), Error> {
    let available = device.free_memory()?;
    if needed > u128::from(available) {
        let device = device.info().name.clone();
        return Err(Error::DeviceMemory { device, needed, available });
    }
    Ok(())
}

impl Drop for Buffers<'_> {
    fn drop(&mut self) {
        // The buffers are freed in the current context; see `Device::drop`.
        let _ = self.device.make_current();
    }
}
