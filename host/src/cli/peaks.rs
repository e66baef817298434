//! What measures the roofline peaks of a device.

use host::roofline::Peaks;
use host::{Device, Error};

/// Bytes that the copy reads, and an eighth of the free memory if that is less.
const COPY_BYTES: u64 = 512 << 20;

/// Loads the kernels that measure. On the software device the copy has nothing to read: its rate
/// says nothing.
pub fn load(device: &Device) -> Result<Peaks, Error> {
    let copy_bytes = match device.is_soft() {
        true => 0,
        false => COPY_BYTES.min(device.free_memory()? / 8),
    };
    let multiprocessors = device.info().peak.map_or(1, |peak| peak.multiprocessors);
    Ok(Peaks::new(device, multiprocessors, copy_bytes)?)
}
