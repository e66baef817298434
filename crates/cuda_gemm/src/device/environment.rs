//! The software that a measurement depends on: installed versions.

use std::fs;

use cust::CudaApiVersion;

use super::handle::Device;
use super::info::DeviceKind;
use crate::error::Error;

/// Versions of the software under a device; `None` where one does not apply.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, Environment};
///
/// let environment = Environment::of(&Device::open(DeviceChoice::Soft)?)?;
/// assert_eq!((environment.ptx_arch, environment.driver_version), ("sm_80", None));
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The version of this library.
    pub host_version: &'static str,
    /// The architecture of the PTX that the device loads, as in `sm_80`.
    pub ptx_arch: &'static str,
    /// The NVIDIA driver's version, if the system reports it.
    pub driver_version: Option<String>,
    /// The newest CUDA version that the driver supports, as in `12.8`.
    pub cuda_version: Option<String>,
}

impl Environment {
    /// Finds the versions under a device.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn of(device: &Device) -> Result<Self, Error> {
        let (driver_version, cuda_version) = match device.info().kind {
            DeviceKind::Soft => (None, None),
            DeviceKind::Gpu => {
                let _current = device.enter()?;
                let version =
                    CudaApiVersion::get().map_err(|e| device.error("cuDriverGetVersion", e))?;
                (driver_version(), Some(format!("{}.{}", version.major(), version.minor())))
            }
        };
        Ok(Self {
            host_version: env!("CARGO_PKG_VERSION"),
            ptx_arch: device.ptx().target(),
            driver_version,
            cuda_version,
        })
    }
}

/// The NVIDIA driver's version from Linux: the driver API does not report it.
fn driver_version() -> Option<String> {
    if let Ok(text) = fs::read_to_string("/sys/module/nvidia/version") {
        return Some(text.trim().to_owned());
    }
    module_version(&fs::read_to_string("/proc/driver/nvidia/version").ok()?)
}

/// The version in `NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu ...`.
fn module_version(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    let is_version =
        |word: &&str| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok());
    line.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceChoice;

    #[test]
    fn versions_of_drivers() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n\
            GCC version:  gcc version 12.3.0\n";
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release\n";
        assert_eq!(module_version(closed).as_deref(), Some("535.183.01"));
        assert_eq!(module_version(open).as_deref(), Some("570.86.15"));
        assert_eq!(module_version("GCC version: 12.3.0\n"), None);
    }

    #[test]
    fn the_software_device_has_no_driver() {
        let environment = Environment::of(&Device::open(DeviceChoice::Soft).unwrap()).unwrap();
        assert_eq!(environment.ptx_arch, "sm_80");
        assert_eq!((environment.driver_version, environment.cuda_version), (None, None));
    }
}
