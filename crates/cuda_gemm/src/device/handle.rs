//! A GPU or the software device, opened for work.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use cuda_driver::sys::{self, CUresult};
use cust::device::Device as CudaDevice;
use cust::error::CudaError;
use cust::module::Module;
use cust::stream::{Stream as CudaStream, StreamFlags};

use super::current::{Entered, Failed, PrimaryContext};
use super::info::{DeviceInfo, DeviceKind, check_capability, device_info};
use super::queue::Queue;
use crate::error::{Error, no_gpu};
use crate::ptx::{self, Kernels};

/// The choice of a device to open.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, Error};
///
/// match Device::open(DeviceChoice::GpuOrdinal(1)) {
///     Ok(gpu) => println!("the second GPU is {}", gpu.info().name),
///     Err(Error::NoGpu { reason }) => println!("{reason}"),
///     Err(error) => return Err(error),
/// }
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first GPU if there is one, else the software device.
    #[default]
    Auto,
    /// The first GPU.
    Gpu,
    /// The GPU with this number, in the driver's order, from 0.
    GpuOrdinal(u32),
    /// The software device, even if there is a GPU.
    Soft,
    /// The software device with compute capability 9.0, which runs Hopper's PTX.
    SoftSm90,
    /// The software device with this number, from 0 to 63.
    SoftOrdinal(u32),
    /// The software device with compute capability 9.0 and this number, from 0 to 63.
    SoftSm90Ordinal(u32),
}

/// A device with a context, a stream of its own and, on demand, kernels.
///
/// This is a handle: clones are the same device. The device stays open while anything made on it
/// exists.
///
/// Opening a device twice gives two devices, whose matrices and kernels do not go together. Both
/// share the kernels that the driver has compiled.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let same = device.clone();
/// std::thread::spawn(move || println!("{}", same.info().name)).join().unwrap();
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone)]
pub struct Device {
    shared: Arc<Shared>,
    /// Values kept while any of the user's handles exists: see [`Device::kept`].
    kept: Option<Arc<OnceLock<Kept>>>,
}

/// A value whose type this module does not know.
type Kept = Box<dyn Any + Send + Sync>;

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(self.info()).finish()
    }
}

/// The state that all handles of a device share.
struct Shared {
    info: DeviceInfo,
    stream: ManuallyDrop<Arc<CudaStream>>,
    queue: Arc<Queue>,
    /// A value that all handles share: see [`Device::shared_value`].
    value: OnceLock<Kept>,
    context: Arc<LoadedContext>,
}

/// A context and its loaded modules, shared by all devices open with this ordinal.
struct LoadedContext {
    modules: Mutex<HashMap<&'static str, Loaded>>,
    context: PrimaryContext,
}

/// The module of an entry point, and whether its launches may start before earlier work ends.
pub(super) struct Loaded {
    pub(super) module: Box<Module>,
    pub(super) starts_early: bool,
}

/// The contexts that are in use, by ordinal.
static CONTEXTS: Mutex<Vec<(u32, Weak<LoadedContext>)>> = Mutex::new(Vec::new());

impl LoadedContext {
    /// The context of a device, made unless one is in use.
    fn of(ordinal: u32, device: CudaDevice) -> Result<Arc<Self>, Failed> {
        // A panicking thread leaves no half-done change.
        let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        contexts.retain(|(_, context)| context.strong_count() > 0);
        let open = contexts.iter().find(|(other, _)| *other == ordinal);
        if let Some(context) = open.and_then(|(_, context)| context.upgrade()) {
            return Ok(context);
        }
        let context = PrimaryContext::retain(device)?;
        let context = Arc::new(Self { modules: Mutex::default(), context });
        contexts.push((ordinal, Arc::downgrade(&context)));
        Ok(context)
    }
}

impl Device {
    /// Opens a device.
    ///
    /// # Errors
    ///
    /// - [`Error::NoGpu`] if a GPU is asked for and there is none.
    /// - [`Error::GpuTooOld`] if the GPU is older than the kernels. This includes
    ///   [`DeviceChoice::Auto`], which never skips a GPU silently.
    /// - [`Error::TooLarge`] if there is no software device with this number.
    /// - [`Error::Driver`] if the driver fails.
    pub fn open(choice: DeviceChoice) -> Result<Self, Error> {
        let soft = |ordinal| Self::open_ordinal(ordinal, DeviceKind::Soft);
        let numbered = |number: u32, model: usize| {
            let what = "the number of a software device";
            let ordinals = cuda_driver::soft_ordinals(number);
            let too_large = Error::TooLarge { what, value: number as usize, max: 63 };
            soft(ordinals.ok_or(too_large)?[model])
        };
        match choice {
            DeviceChoice::Soft => soft(cuda_driver::soft_ordinal()),
            DeviceChoice::SoftSm90 => soft(cuda_driver::soft_sm90_ordinal()),
            DeviceChoice::SoftOrdinal(number) => numbered(number, 0),
            DeviceChoice::SoftSm90Ordinal(number) => numbered(number, 1),
            DeviceChoice::Gpu => Self::open_gpu(0),
            DeviceChoice::GpuOrdinal(ordinal) => Self::open_gpu(ordinal),
            DeviceChoice::Auto if cuda_driver::gpu_count().is_ok() => Self::open_gpu(0),
            DeviceChoice::Auto => soft(cuda_driver::soft_ordinal()),
        }
    }

    fn open_gpu(ordinal: u32) -> Result<Self, Error> {
        let count =
            cuda_driver::gpu_count().map_err(|reason| Error::NoGpu { reason: no_gpu(&reason) })?;
        if ordinal >= count {
            let reason = format!("there is no GPU {ordinal}: this machine has {count}");
            return Err(Error::NoGpu { reason });
        }
        Self::open_ordinal(ordinal, DeviceKind::Gpu)
    }

    fn open_ordinal(ordinal: u32, kind: DeviceKind) -> Result<Self, Error> {
        let unnamed = match kind {
            DeviceKind::Gpu => "the GPU",
            DeviceKind::Soft => "the software device",
        };
        let fail = |call| move |error| driver_error(call, unnamed, code(error));
        cust::init(cust::CudaFlags::empty()).map_err(fail("cuInit"))?;
        let device = CudaDevice::get_device(ordinal).map_err(fail("cuDeviceGet"))?;
        let info = device_info(device, kind).map_err(fail("reading the device's attributes"))?;
        check_capability(&info)?;
        let failed = |(call, code): Failed| driver_error(call, unnamed, code);
        let context = LoadedContext::of(ordinal, device).map_err(failed)?;
        let stream = {
            let _current = context.context.enter().map_err(failed)?;
            CudaStream::new(StreamFlags::DEFAULT, None).map_err(fail("creating a stream"))?
        };
        let (stream, queue) = (ManuallyDrop::new(Arc::new(stream)), Arc::default());
        let shared = Arc::new(Shared { info, stream, queue, value: OnceLock::new(), context });
        Ok(Self { shared, kept: Some(Arc::default()) })
    }

    /// Changes the description of this newly opened device.
    pub(crate) fn described(mut self, describe: impl FnOnce(&mut DeviceInfo)) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            describe(&mut shared.info);
        }
        self
    }

    /// Properties of the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    /// Whether this is the software device.
    pub fn is_soft(&self) -> bool {
        self.info().kind == DeviceKind::Soft
    }

    /// Whether both are handles of one device.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// A value of this type that the device keeps, made on the first call.
    ///
    /// It is dropped with the last handle. So the value itself holds [detached](Device::detached)
    /// handles, which keep nothing.
    pub(crate) fn kept<T: Any + Send + Sync + Default>(&self) -> Option<&T> {
        self.kept.as_ref()?.get_or_init(|| Box::<T>::default()).downcast_ref()
    }

    /// A value of this type that the device has as long as any handle exists, made on the first
    /// call.
    ///
    /// The value holds no handle of the device. All callers name one type.
    pub(crate) fn shared_value<T: Any + Send + Sync + Default>(&self) -> &T {
        let value = self.shared.value.get_or_init(|| Box::<T>::default());
        value.downcast_ref().expect("one type is shared")
    }

    /// A handle of this device that does not keep the kept values alive.
    pub(crate) fn detached(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), kept: None }
    }

    pub(crate) fn own_stream(&self) -> (Arc<CudaStream>, Arc<Queue>) {
        (Arc::clone(&self.shared.stream), Arc::clone(&self.shared.queue))
    }

    /// Bytes of free device memory.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn free_memory(&self) -> Result<u64, Error> {
        let _current = self.enter()?;
        let (free, _) = cust::memory::mem_get_info().map_err(|e| self.error("cuMemGetInfo", e))?;
        Ok(free as u64)
    }

    /// Returns the bytes of free device memory, or refuses if `needed` are more.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceMemory`] or [`Error::Driver`].
    pub fn require_memory(&self, needed: u128) -> Result<u64, Error> {
        let available = self.free_memory()?;
        if needed > u128::from(available) {
            let device = self.info().name.clone();
            return Err(Error::DeviceMemory { device, needed, available });
        }
        Ok(available)
    }

    /// Replaces the calling thread's current context with this device's.
    ///
    /// Use it for driver calls that do not go through this library. See also [`Device::enter`].
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn make_current(&self) -> Result<(), Error> {
        // SAFETY: the context is retained.
        let set = unsafe { sys::cuCtxSetCurrent(self.shared.context.context.raw()) };
        self.check("cuCtxSetCurrent", set)
    }

    /// Makes this device's context current until the returned guard is dropped.
    ///
    /// Every function of this library does so itself, and restores the caller's context afterwards.
    /// So several devices can be used side by side.
    ///
    /// Drop guards in reverse order. Entering once around many calls saves each of them a push and
    /// a pop.
    ///
    /// ```
    /// use cuda_gemm::{Device, DeviceChoice};
    /// use cust::context::legacy::CurrentContext;
    /// use cust::memory::DeviceBuffer;
    ///
    /// let device = Device::open(DeviceChoice::Soft)?;
    /// let buffer = {
    ///     let _current = device.enter()?;
    ///     DeviceBuffer::from_slice(&[1.0f32, 2.0]).unwrap()
    /// };
    /// assert!(CurrentContext::get_device().is_err(), "there was no context before");
    /// # let _current = device.enter()?;
    /// # drop(buffer);
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn enter(&self) -> Result<Entered<'_>, Error> {
        self.shared.context.context.enter().map_err(|(call, code)| self.code_error(call, code))
    }

    /// The kernels that match this device's compute capability.
    pub fn ptx(&self) -> &'static Kernels {
        ptx::for_capability(self.info().capability)
    }

    /// The loaded modules, by entry point. None is ever removed.
    pub(super) fn modules(&self) -> MutexGuard<'_, HashMap<&'static str, Loaded>> {
        // A panicking thread leaves no half-done change.
        self.shared.context.modules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Converts an error of `cust`: [`Error::KernelFault`] if a kernel stopped, else
    /// [`Error::Driver`].
    pub fn error(&self, call: &'static str, error: CudaError) -> Error {
        self.code_error(call, code(error))
    }

    /// Converts the result code of a driver call made without `cust`.
    ///
    /// # Errors
    ///
    /// See [`Device::error`].
    pub fn check(&self, call: &'static str, code: CUresult) -> Result<(), Error> {
        match code {
            CUresult::CUDA_SUCCESS => Ok(()),
            _ => Err(self.code_error(call, code)),
        }
    }

    fn code_error(&self, call: &'static str, code: CUresult) -> Error {
        let info = self.info();
        if is_fault(code) {
            // The fault is that of the current context.
            let _current = self.shared.context.context.enter();
            let detail = match info.kind {
                DeviceKind::Gpu => None,
                DeviceKind::Soft => cuda_driver::soft::last_fault(),
            };
            let reason = detail.unwrap_or_else(|| describe(code));
            return Error::KernelFault { device: info.name.clone(), code, reason };
        }
        driver_error(call, &info.name, code)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The stream is destroyed in the current context. If this context cannot be made current,
        // nothing is left to destroy.
        let _current = self.context.context.enter();
        // SAFETY: not used again.
        unsafe { ManuallyDrop::drop(&mut self.stream) };
    }
}

impl Drop for LoadedContext {
    fn drop(&mut self) {
        // Modules are unloaded in the current context.
        let _current = self.context.enter();
        self.modules.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Whether the code means that a kernel stopped, not that a call was refused.
fn is_fault(code: CUresult) -> bool {
    const FAULTS: [CudaError; 9] = [
        CudaError::IllegalAddress,
        CudaError::LaunchTimeout,
        CudaError::AssertError,
        CudaError::HardwareStackError,
        CudaError::IllegalInstruction,
        CudaError::MisalignedAddress,
        CudaError::InvalidAddressSpace,
        CudaError::InvalidProgramCounter,
        CudaError::LaunchFailed,
    ];
    FAULTS.into_iter().any(|fault| self::code(fault) == code)
}

/// The driver's code for an error of `cust`, which numbers them alike.
pub(super) fn code(error: CudaError) -> CUresult {
    CUresult(error as u32)
}

/// The name and the meaning of a driver error.
pub(super) fn describe(code: CUresult) -> String {
    let (name, text) = cuda_driver::error_text(code);
    format!("{name}, {text}")
}

fn driver_error(call: &'static str, device: &str, code: CUresult) -> Error {
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
    fn errors_carry_the_driver_s_code() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let code = |error| match error {
            Error::Driver { code, .. } => code,
            other => panic!("{other}"),
        };
        let Err(error) = crate::DeviceMatrix::<f32>::zeros(&device, [1 << 20, 1 << 21]) else {
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
}
