//! A GPU or the software device, opened for work.

use std::ffi::{CString, c_int, c_void};
use std::fmt;

use cuda_driver::sys::{self, CUresult};
use cust::context::{Context, CurrentContext};
use cust::device::{Device as CudaDevice, DeviceAttribute};
use cust::error::CudaError;
use cust::function::Function;
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};
use elsa::FrozenMap;

use crate::error::{Error, no_gpu};
use crate::limits::Limits;
use crate::ptx;

/// The oldest compute capability the kernels are built for.
const OLDEST: (u32, u32) = (8, 0);

/// Which device to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first GPU if there is one, else the software device.
    #[default]
    Auto,
    /// The first GPU.
    Gpu,
    /// The software device, even if there is a GPU.
    Soft,
    /// The software device as one of compute capability 9.0, which runs the PTX of
    /// Hopper.
    SoftSm90,
}

/// What runs the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// An NVIDIA GPU.
    Gpu,
    /// The software device: the kernels' PTX, interpreted on the CPU.
    Soft,
}

/// The f32 peak of a GPU: every lane retires one FMA per cycle.
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

/// What is known about a device once it is open.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// GPU or software.
    pub kind: DeviceKind,
    /// The name the driver gives it.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Bytes of memory in all.
    pub total_memory: u64,
    /// What launches may be.
    pub limits: Limits,
    /// Whether the device and its driver have tensor maps.
    pub tensor_maps: bool,
    /// The f32 peak; none for the software device, which is not a GPU's equal in time.
    pub peak: Option<Peak>,
    /// Bytes of shared memory of a multiprocessor, for all the blocks it holds at once.
    pub shared_per_multiprocessor: u32,
    /// Threads that a multiprocessor holds at once.
    pub threads_per_multiprocessor: u32,
    /// Bytes of the L2 cache.
    pub l2_bytes: u64,
    /// What the memory can do at best, in GB/s (10^9); none for the software device.
    pub memory_gbytes: Option<f64>,
    /// Where the GPU is on the PCI bus, as in `00000000:3B:00.0`; none for the software
    /// device.
    pub pci_bus_id: Option<String>,
}

/// A device with a context, a stream and, once a kernel is asked for, the kernels.
///
/// All work of a device goes through one stream, in order. Copies are synchronous
/// and wait for that stream, so that no result is read before it is complete.
pub struct Device {
    info: DeviceInfo,
    // Dropped in this order: what lives in a context goes before it.
    modules: FrozenMap<&'static str, Box<Module>>,
    stream: Stream,
    context: Context,
}

impl Device {
    /// Opens a device.
    ///
    /// # Errors
    ///
    /// [`Error::NoGpu`] if a GPU is asked for and there is none, [`Error::GpuTooOld`]
    /// if the GPU is older than the kernels (also for [`DeviceChoice::Auto`]: a GPU is
    /// never passed over in silence), [`Error::Driver`] if the driver fails.
    pub fn open(choice: DeviceChoice) -> Result<Self, Error> {
        match choice {
            DeviceChoice::Soft => Self::open_soft(),
            DeviceChoice::SoftSm90 => {
                Self::open_ordinal(cuda_driver::soft_sm90_ordinal(), DeviceKind::Soft)
            }
            DeviceChoice::Gpu => Self::open_gpu(),
            DeviceChoice::Auto if cuda_driver::gpu_count().is_ok() => Self::open_gpu(),
            DeviceChoice::Auto => Self::open_soft(),
        }
    }

    fn open_gpu() -> Result<Self, Error> {
        cuda_driver::gpu_count().map_err(|reason| Error::NoGpu { reason: no_gpu(&reason) })?;
        Self::open_ordinal(0, DeviceKind::Gpu)
    }

    fn open_soft() -> Result<Self, Error> {
        Self::open_ordinal(cuda_driver::soft_ordinal(), DeviceKind::Soft)
    }

    fn open_ordinal(ordinal: u32, kind: DeviceKind) -> Result<Self, Error> {
        let unnamed = match kind {
            DeviceKind::Gpu => "the GPU",
            DeviceKind::Soft => "the software device",
        };
        let fail = |call| move |error| driver_error(call, unnamed, error);
        cust::init(cust::CudaFlags::empty()).map_err(fail("cuInit"))?;
        let device = CudaDevice::get_device(ordinal).map_err(fail("cuDeviceGet"))?;
        let info = device_info(device, kind).map_err(fail("reading the device's attributes"))?;
        check_capability(&info)?;
        let context = Context::new(device).map_err(fail("creating a context"))?;
        let stream = Stream::new(StreamFlags::DEFAULT, None).map_err(fail("creating a stream"))?;
        Ok(Self { info, modules: FrozenMap::new(), stream, context })
    }

    /// What is known about the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Whether this is the software device.
    pub fn is_soft(&self) -> bool {
        self.info.kind == DeviceKind::Soft
    }

    /// Bytes of device memory that are free now.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn free_memory(&self) -> Result<u64, Error> {
        self.make_current()?;
        let (free, _) = cust::memory::mem_get_info().map_err(|e| self.error("cuMemGetInfo", e))?;
        Ok(free as u64)
    }

    /// Waits until everything enqueued so far is done.
    ///
    /// # Errors
    ///
    /// [`Error::KernelFault`] if a kernel stopped with a fault since the last call.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.make_current()?;
        self.stream.synchronize().map_err(|e| self.error("cuStreamSynchronize", e))
    }

    /// The stream all work goes through.
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Makes this device's context the calling thread's; every call into the driver
    /// starts with this, so that several devices can be used side by side.
    pub(crate) fn make_current(&self) -> Result<(), Error> {
        CurrentContext::set_current(&self.context).map_err(|e| self.error("cuCtxSetCurrent", e))
    }

    /// The PTX that this device loads.
    pub fn ptx(&self) -> &'static str {
        ptx::for_capability(self.info.capability)
    }

    /// An entry point of the PTX, as a module of its own that the first call loads: so
    /// nobody waits for the driver to compile kernels that are not used.
    pub(crate) fn entry_point(&self, name: &'static str) -> Result<Function<'_>, Error> {
        let module = match self.modules.get(name) {
            Some(module) => module,
            None => {
                self.make_current()?;
                let text = ptx_syntax::extract(self.ptx(), name).ok_or_else(|| {
                    Error::NotInPtx { kernel: name, device: self.info.name.clone() }
                })?;
                self.modules.insert(name, Box::new(load(&text, &self.info.name)?))
            }
        };
        module.get_function(name).map_err(|error| self.error("cuModuleGetFunction", error))
    }

    /// Puts a failed call into words.
    pub(crate) fn error(&self, call: &'static str, error: CudaError) -> Error {
        if is_fault(error) {
            let detail = match self.info.kind {
                DeviceKind::Gpu => None,
                DeviceKind::Soft => cuda_driver::soft::last_fault(),
            };
            let reason = detail.unwrap_or_else(|| describe(code(error)));
            return Error::KernelFault { device: self.info.name.clone(), reason };
        }
        driver_error(call, &self.info.name, error)
    }

    /// Whether a call that does not go through `cust` succeeded.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if it did not.
    pub(crate) fn check(&self, call: &'static str, code: CUresult) -> Result<(), Error> {
        match code {
            CUresult::CUDA_SUCCESS => Ok(()),
            _ => {
                let device = self.info.name.clone();
                Err(Error::Driver { call, device, code, reason: describe(code) })
            }
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // The module and the stream are destroyed in the current context. If it
        // cannot be made current there is nothing left to destroy them in.
        let _ = self.make_current();
    }
}

/// Loads PTX, and fetches the compiler's log where that fails.
fn load(text: &str, device: &str) -> Result<Module, Error> {
    let image = CString::new(text).expect("PTX is text without NUL");
    Module::from_ptx_cstr(&image, &[]).map_err(|error| Error::Jit {
        device: device.to_owned(),
        reason: describe(code(error)),
        log: jit_log(&image),
    })
}

/// The log of the driver's compiler. `cust` cannot ask for one, so the PTX that
/// failed is loaded again through the raw call.
fn jit_log(image: &CString) -> String {
    let mut log = vec![0u8; 16 << 10];
    let mut options = [sys::CU_JIT_ERROR_LOG_BUFFER, sys::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    // By the driver's convention a size is passed in place of a pointer.
    let mut values = [log.as_mut_ptr().cast::<c_void>(), log.len() as *mut c_void];
    let mut module = sys::CUmodule::NULL;
    // SAFETY: the image is NUL-terminated, there are two options with two values, and
    // the log buffer is as long as the second one says and outlives the call.
    let result = unsafe {
        sys::cuModuleLoadDataEx(
            &raw mut module,
            image.as_ptr().cast(),
            2,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    if result == CUresult::CUDA_SUCCESS {
        // SAFETY: just loaded, and nothing of it is in use.
        let _ = unsafe { sys::cuModuleUnload(module) };
        return "nothing: the second attempt to load them succeeded".to_owned();
    }
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(&log[..end]).trim().to_owned();
    match (text.is_empty(), cuda_driver::last_error()) {
        (false, _) => text,
        (true, Some(text)) => text,
        (true, None) => "nothing".to_owned(),
    }
}

fn device_info(device: CudaDevice, kind: DeviceKind) -> Result<DeviceInfo, CudaError> {
    // The attributes are counts, never negative.
    let get = |attribute| device.get_attribute(attribute).map(i32::cast_unsigned);
    let capability = (
        get(DeviceAttribute::ComputeCapabilityMajor)?,
        get(DeviceAttribute::ComputeCapabilityMinor)?,
    );
    let shared_default = get(DeviceAttribute::MaxSharedMemoryPerBlock)?;
    let peak = match kind {
        DeviceKind::Soft => None,
        DeviceKind::Gpu => Some(Peak {
            clock_khz: get(DeviceAttribute::ClockRate)?,
            multiprocessors: get(DeviceAttribute::MultiprocessorCount)?,
            lanes: fp32_lanes(capability),
        }),
    };
    let memory_gbytes = match kind {
        DeviceKind::Soft => None,
        // Both edges of the clock, which is in kHz, and a bus counted in bits.
        DeviceKind::Gpu => Some(
            2e-6 * f64::from(get(DeviceAttribute::MemoryClockRate)?)
                * f64::from(get(DeviceAttribute::GlobalMemoryBusWidth)?)
                / 8.0,
        ),
    };
    Ok(DeviceInfo {
        kind,
        name: device.name()?,
        capability,
        total_memory: device.total_memory()? as u64,
        limits: Limits {
            grid: [get(DeviceAttribute::MaxGridDimX)?, get(DeviceAttribute::MaxGridDimY)?],
            shared_default,
            shared_optin: raw_attribute(
                device,
                sys::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            )
            .unwrap_or(0)
            .max(shared_default),
            multiprocessors: get(DeviceAttribute::MultiprocessorCount)?,
        },
        // A driver from before CUDA 12 knows neither the attribute nor the maps.
        tensor_maps: raw_attribute(device, sys::CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED)
            .is_some_and(|supported| supported != 0),
        peak,
        shared_per_multiprocessor: get(DeviceAttribute::MaxSharedMemoryPerMultiprocessor)?,
        threads_per_multiprocessor: get(DeviceAttribute::MaxThreadsPerMultiprocessor)?,
        l2_bytes: u64::from(get(DeviceAttribute::L2CacheSize)?),
        memory_gbytes,
        pci_bus_id: match kind {
            DeviceKind::Soft => None,
            DeviceKind::Gpu => Some(format!(
                "{:08X}:{:02X}:{:02X}.0",
                get(DeviceAttribute::PciDomainId)?,
                get(DeviceAttribute::PciBusId)?,
                get(DeviceAttribute::PciDeviceId)?
            )),
        },
    })
}

/// An attribute that `cust` does not know; none if the driver does not either.
fn raw_attribute(device: CudaDevice, attribute: c_int) -> Option<u32> {
    let mut value = 0;
    // SAFETY: `value` is valid for the write, and the handle comes from the driver.
    let result = unsafe {
        sys::cuDeviceGetAttribute(&raw mut value, attribute, sys::CUdevice(device.as_raw()))
    };
    (result == CUresult::CUDA_SUCCESS).then_some(value.cast_unsigned())
}

fn check_capability(info: &DeviceInfo) -> Result<(), Error> {
    if info.capability < OLDEST {
        let (major, minor) = info.capability;
        return Err(Error::GpuTooOld { name: info.name.clone(), major, minor });
    }
    Ok(())
}

/// Whether this error means that a kernel stopped, as opposed to a refused call.
fn is_fault(error: CudaError) -> bool {
    matches!(
        error,
        CudaError::IllegalAddress
            | CudaError::LaunchTimeout
            | CudaError::AssertError
            | CudaError::HardwareStackError
            | CudaError::IllegalInstruction
            | CudaError::MisalignedAddress
            | CudaError::InvalidAddressSpace
            | CudaError::InvalidProgramCounter
            | CudaError::LaunchFailed
    )
}

/// The driver's code, by which `cust` numbers its errors.
fn code(error: CudaError) -> CUresult {
    CUresult(error as u32)
}

/// The name and the meaning of a driver error.
fn describe(code: CUresult) -> String {
    let (name, text) = cuda_driver::error_text(code);
    format!("{name}, {text}")
}

fn driver_error(call: &'static str, device: &str, error: CudaError) -> Error {
    let code = code(error);
    let mut reason = describe(code);
    if let Some(detail) = cuda_driver::last_error() {
        reason = format!("{reason}: {detail}");
    }
    Error::Driver { call, device: device.to_owned(), code, reason }
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

    #[test]
    fn errors_carry_the_driver_s_code() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let code = |error| match error {
            Error::Driver { code, .. } => code,
            other => panic!("{other}"),
        };
        let Err(error) = crate::DeviceMatrix::zeros(&device, 1 << 20, 1 << 21) else {
            panic!("8 TB are there")
        };
        assert_eq!(code(error), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        device.check("cuInit", CUresult::CUDA_SUCCESS).unwrap();
        let error = device.check("cuInit", CUresult::CUDA_ERROR_INVALID_VALUE).unwrap_err();
        assert!(error.to_string().contains("CUDA_ERROR_INVALID_VALUE, a parameter"), "{error}");
        assert_eq!(code(error), CUresult::CUDA_ERROR_INVALID_VALUE);
    }

    #[test]
    fn an_old_gpu_is_refused() {
        let mut info = Device::open(DeviceChoice::Soft).unwrap().info().clone();
        info.name = "Tesla T4".to_owned();
        info.capability = (7, 5);
        let error = check_capability(&info).unwrap_err().to_string();
        assert!(error.contains("Tesla T4 has compute capability 7.5"), "{error}");
        for capability in [(8, 0), (8, 6), (9, 0), (10, 0), (12, 1)] {
            info.capability = capability;
            assert!(check_capability(&info).is_ok());
        }
    }

    #[test]
    fn broken_ptx_comes_back_with_the_log() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        device.make_current().unwrap();
        let text = ".version 7.0\n.target sm_80\n.address_size 64\n\
            .visible .entry broken()\n{\n    no.such.opcode;\n    ret;\n}\n";
        let Err(error) = load(text, "a device") else { panic!("must not load") };
        let error = error.to_string();
        assert!(
            error.contains("a device cannot load") && error.contains("no.such.opcode"),
            "{error}"
        );
    }
}
