//! Properties of a device.

use std::ffi::c_int;
use std::fmt;

use cuda_driver::sys::{self, CUresult};
use cust::device::{Device as CudaDevice, DeviceAttribute};
use cust::error::CudaError;

use super::limits::Limits;
use crate::error::Error;

/// The oldest compute capability the kernels are built for.
const OLDEST: (u32, u32) = (8, 0);

/// The kind of device: GPU or software.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// An NVIDIA GPU.
    Gpu,
    /// The software device: the kernels' PTX, interpreted on the CPU.
    Soft,
}

/// The f32 peak of a GPU, with one FMA per lane and cycle.
///
/// ```
/// use cuda_gemm::Peak;
///
/// // An H100 SXM.
/// let peak = Peak { clock_khz: 1_980_000, multiprocessors: 132, lanes: 128 };
/// assert_eq!(peak.gflops().round(), 66_908.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// The highest clock the GPU reports, in kHz.
    pub clock_khz: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// FP32 lanes per multiprocessor.
    pub lanes: u32,
}

impl Peak {
    /// `2 * clock * lanes`, in GFLOP/s.
    pub fn gflops(&self) -> f64 {
        2.0 * f64::from(self.clock_khz)
            * 1e-6
            * f64::from(self.multiprocessors)
            * f64::from(self.lanes)
    }
}

impl fmt::Display for Peak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "2 FLOP x {:.3} GHz x {} SMs x {} FP32 lanes = {:.0} GFLOP/s",
            f64::from(self.clock_khz) * 1e-6,
            self.multiprocessors,
            self.lanes,
            self.gflops()
        )
    }
}

/// FP32 lanes per multiprocessor, from NVIDIA's table of throughput per compute
/// capability: 64 on 8.0 (A100), 128 on 8.6, 8.7, 8.9, 9.0 and everything since.
const fn fp32_lanes(capability: (u32, u32)) -> u32 {
    match capability {
        (8, 0) => 64,
        _ => 128,
    }
}

/// Properties of an open device.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceKind};
///
/// let device = Device::open(DeviceChoice::SoftSm90)?;
/// let info = device.info();
/// assert_eq!((info.kind, info.capability), (DeviceKind::Soft, (9, 0)));
/// assert!(info.tensor_maps && info.peak.is_none());
/// assert!(device.free_memory()? <= info.total_memory);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// GPU or software.
    pub kind: DeviceKind,
    /// The driver's name for the device.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Bytes of memory in all.
    pub total_memory: u64,
    /// Limits of a launch.
    pub limits: Limits,
    /// Whether the device and its driver support tensor maps.
    pub tensor_maps: bool,
    /// The f32 peak; `None` for the software device, whose time says nothing about a GPU.
    pub peak: Option<Peak>,
    /// Bytes of shared memory per multiprocessor, for all resident blocks together.
    pub shared_per_multiprocessor: u32,
    /// Resident threads per multiprocessor, at most.
    pub threads_per_multiprocessor: u32,
    /// Bytes of the L2 cache.
    pub l2_bytes: u64,
    /// Peak memory bandwidth in GB/s (10^9); `None` for the software device.
    pub memory_gbytes: Option<f64>,
    /// The GPU's address on the PCI bus, as in `00000000:3B:00.0`; `None` for the software device.
    pub pci_bus_id: Option<String>,
}

pub(super) fn device_info(device: CudaDevice, kind: DeviceKind) -> Result<DeviceInfo, CudaError> {
    // Attributes are counts, never negative.
    let get = |attribute| device.get_attribute(attribute).map(i32::cast_unsigned);
    let capability = (
        get(DeviceAttribute::ComputeCapabilityMajor)?,
        get(DeviceAttribute::ComputeCapabilityMinor)?,
    );
    let shared_default = get(DeviceAttribute::MaxSharedMemoryPerBlock)?;
    let multiprocessors = get(DeviceAttribute::MultiprocessorCount)?;
    let (mut peak, mut memory_gbytes, mut pci_bus_id) = (None, None, None);
    // The software device has none of these.
    if kind == DeviceKind::Gpu {
        let (clock_khz, lanes) = (get(DeviceAttribute::ClockRate)?, fp32_lanes(capability));
        peak = Some(Peak { clock_khz, multiprocessors, lanes });
        // Both clock edges transfer data; the clock is in kHz and the bus width in bits.
        let clock = f64::from(get(DeviceAttribute::MemoryClockRate)?);
        let width = f64::from(get(DeviceAttribute::GlobalMemoryBusWidth)?);
        memory_gbytes = Some(2e-6 * clock * width / 8.0);
        pci_bus_id = Some(format!(
            "{:08X}:{:02X}:{:02X}.0",
            get(DeviceAttribute::PciDomainId)?,
            get(DeviceAttribute::PciBusId)?,
            get(DeviceAttribute::PciDeviceId)?
        ));
    }
    Ok(DeviceInfo {
        kind,
        name: device.name()?,
        capability,
        total_memory: device.total_memory()? as u64,
        limits: Limits {
            grid: [
                get(DeviceAttribute::MaxGridDimX)?,
                get(DeviceAttribute::MaxGridDimY)?,
                get(DeviceAttribute::MaxGridDimZ)?,
            ],
            shared_default,
            shared_optin: raw_attribute(
                device,
                sys::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            )
            .unwrap_or(0)
            .max(shared_default),
            multiprocessors,
        },
        // A driver older than CUDA 12 knows neither the attribute nor tensor maps.
        tensor_maps: raw_attribute(device, sys::CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED)
            .is_some_and(|supported| supported != 0),
        peak,
        shared_per_multiprocessor: get(DeviceAttribute::MaxSharedMemoryPerMultiprocessor)?,
        threads_per_multiprocessor: get(DeviceAttribute::MaxThreadsPerMultiprocessor)?,
        l2_bytes: u64::from(get(DeviceAttribute::L2CacheSize)?),
        memory_gbytes,
        pci_bus_id,
    })
}

/// An attribute that `cust` does not know; `None` if the driver does not know it either.
fn raw_attribute(device: CudaDevice, attribute: c_int) -> Option<u32> {
    let mut value = 0;
    // SAFETY: `value` is valid for the write, and the handle comes from the driver.
    let result = unsafe {
        sys::cuDeviceGetAttribute(&raw mut value, attribute, sys::CUdevice(device.as_raw()))
    };
    (result == CUresult::CUDA_SUCCESS).then_some(value.cast_unsigned())
}

pub(super) fn check_capability(info: &DeviceInfo) -> Result<(), Error> {
    if info.capability < OLDEST {
        return Err(Error::GpuTooOld { name: info.name.clone(), capability: info.capability });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_the_published_one() {
        // NVIDIA's data sheets: H100 SXM 66.9 TFLOP/s, A100 19.5, RTX 4090 82.6.
        let peak = |clock_khz, multiprocessors, capability| Peak {
            clock_khz,
            multiprocessors,
            lanes: fp32_lanes(capability),
        };
        assert_eq!(peak(1_980_000, 132, (9, 0)).gflops().round(), 66_908.0);
        assert_eq!(peak(1_410_000, 108, (8, 0)).gflops().round(), 19_492.0);
        assert_eq!(peak(2_520_000, 128, (8, 9)).gflops().round(), 82_575.0);
        assert_eq!(
            peak(1_980_000, 132, (9, 0)).to_string(),
            "2 FLOP x 1.980 GHz x 132 SMs x 128 FP32 lanes = 66908 GFLOP/s"
        );
    }
}
