//! Kernels on a device.

use std::fmt;

use kernels_gpu::abi::{KernelDescriptor, Target};

use crate::device::{Device, DeviceInfo};
use crate::error::Error;

impl Device {
    /// A kernel on this device. The first plan loads its entry points.
    ///
    /// # Errors
    ///
    /// [`Error::NeedsHopper`] or [`Error::NeedsTensorMaps`] if the device or its driver lacks a
    /// feature that the kernel needs.
    pub fn kernel(&self, descriptor: &'static KernelDescriptor) -> Result<Kernel, Error> {
        expect_runs(descriptor, self.info())?;
        Ok(Kernel { device: self.clone(), descriptor })
    }
}

/// Checks that a device has the features that a kernel needs.
fn expect_runs(kernel: &'static KernelDescriptor, info: &DeviceInfo) -> Result<(), Error> {
    let (name, device) = (kernel.name(), || info.name.clone());
    let has_maps = kernel.abi().has_tensor_maps();
    let capability = info.capability;
    if (has_maps || kernel.target() == Target::Sm90a) && capability != (9, 0) {
        return Err(Error::NeedsHopper { kernel: name, device: device(), capability });
    }
    if has_maps && !info.tensor_maps {
        return Err(Error::NeedsTensorMaps { kernel: name, device: device() });
    }
    Ok(())
}

/// Whether a device runs Hopper's kernels, including those with tensor maps.
pub(crate) fn has_hopper(info: &DeviceInfo) -> bool {
    info.capability == (9, 0) && info.tensor_maps
}

/// A kernel on a device; clones are the same kernel.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, Gemm, find_kernel};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let kernel = device.kernel(find_kernel("tile2d")?)?;
/// assert!(kernel.device().is_same(&device) && kernel.descriptor().name() == "tile2d");
/// let product = kernel.prepare(Gemm::new(100, 100, 100))?;
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone)]
pub struct Kernel {
    device: Device,
    descriptor: &'static KernelDescriptor,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` on {}", self.descriptor.name(), self.device.info().name)
    }
}

impl Kernel {
    /// The kernel's device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The kernel's description.
    pub fn descriptor(&self) -> &'static KernelDescriptor {
        self.descriptor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceChoice;
    use crate::plan::find_kernel;

    #[test]
    fn only_hopper_with_a_new_driver_will_do() {
        let mut info = Device::open(DeviceChoice::SoftSm90).unwrap().info().clone();
        let persistent = find_kernel("persistent").unwrap();
        expect_runs(persistent, &info).unwrap();
        info.tensor_maps = false;
        let error = expect_runs(persistent, &info).unwrap_err().to_string();
        assert!(error.contains("cuTensorMapEncodeTiled") && error.contains(&info.name), "{error}");
        for capability in [(8, 0), (8, 9), (10, 0), (12, 0)] {
            let info = DeviceInfo { capability, name: "A100".to_owned(), ..info.clone() };
            let error = expect_runs(persistent, &info).unwrap_err().to_string();
            let (major, minor) = capability;
            assert!(
                error.contains("`persistent` needs compute capability 9.0 (sm_90a)")
                    && error.contains(&format!("A100 has {major}.{minor}")),
                "{error}"
            );
        }
    }
}
