//! Launches the kernels: on a GPU, or on the software device where there is none.

use std::error::Error;

use cuda_std::launch::LaunchConfig;
use cust::prelude::*;

/// The kernels, as `build.rs` has compiled them.
const KERNELS: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));

/// Adds two vectors.
pub fn add(a: &[f32], b: &[f32]) -> Result<Vec<f32>, Box<dyn Error>> {
    let _context = cust::quick_init().map_err(explained)?;
    let module = Module::from_ptx(KERNELS, &[])?;
    let stream = Stream::new(StreamFlags::DEFAULT, None)?;
    // SAFETY: the module was built from these kernels.
    let kernel = unsafe { kernels::add::load(&module) }?;

    let (a, b) = (DeviceBuffer::from_slice(a)?, DeviceBuffer::from_slice(b)?);
    let mut out = DeviceBuffer::<f32>::zeroed(a.len())?;
    let config = LaunchConfig::for_num_elems(a.len() as u32, 256);
    kernel.run(&stream, config, &a, &b, &mut out).map_err(explained)?;
    Ok(out.as_host_vec()?)
}

/// An error with details beyond the driver's code.
///
/// The software device names the kernel, its line, the thread and the fault.
fn explained(error: impl Error) -> String {
    let known = cuda_driver::soft::last_fault().or_else(cuda_driver::last_error);
    known.unwrap_or_else(|| error.to_string())
}
