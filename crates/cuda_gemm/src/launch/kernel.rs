//! Kernels, loaded on a device.

use std::fmt;
use std::sync::Arc;

use kernels_gpu::abi::{KernelDescriptor, Target};

use super::tensor_map;
use crate::device::{Device, EntryPoint};
use crate::error::Error;

impl Device {
    /// A rung's kernel on this device. The first call loads it.
    ///
    /// # Errors
    ///
    /// [`Error::Jit`] if the driver refuses the PTX, [`Error::NotInPtx`] if the PTX for
    /// this device lacks the kernel, [`Error::NeedsHopper`] or [`Error::NeedsTensorMaps`] if
    /// the kernel needs what the device or its driver lacks, [`Error::Driver`].
    pub fn kernel(&self, descriptor: &'static KernelDescriptor) -> Result<Kernel, Error> {
        if descriptor.abi().has_tensor_maps() {
            tensor_map::require_maps(descriptor.name(), self.info())?;
        } else if descriptor.target() == Target::Sm90a {
            tensor_map::require_hopper(descriptor.name(), self.info())?;
        }
        let function = self.entry_point(descriptor.name())?;
        let unaligned =
            descriptor.unaligned().map(|other| self.entry_point(other.name)).transpose()?;
        let entry_points = Arc::new(EntryPoints { function, unaligned });
        Ok(Kernel { device: self.clone(), descriptor, entry_points })
    }
}

/// A rung's kernel, loaded on a device; clones are the same kernel.
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
    entry_points: Arc<EntryPoints>,
}

/// What is launched for a kernel.
pub(super) struct EntryPoints {
    pub(super) function: EntryPoint,
    /// For matrices that 128-bit accesses cannot reach, if `function` makes such.
    pub(super) unaligned: Option<EntryPoint>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` on {}", self.descriptor.name(), self.device.info().name)
    }
}

impl Kernel {
    /// Where it is loaded.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The rung.
    pub fn descriptor(&self) -> &'static KernelDescriptor {
        self.descriptor
    }

    pub(super) fn entry_points(&self) -> &EntryPoints {
        &self.entry_points
    }
}
