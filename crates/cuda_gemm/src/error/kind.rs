//! What a program can do about an error.

use cuda_driver::GpuUnavailable;
use cuda_driver::sys::CUresult;

use super::Error;

/// The kind of an [`Error`], for a program that acts on it.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, ErrorKind, Gemm, find_kernel, gemm};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let error = DeviceMatrix::<f32>::zeros(&device, [1 << 21, 1 << 21]).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::OutOfMemory);
/// let a = DeviceMatrix::<f32>::zeros(&device, [2, 3])?;
/// let mut c = DeviceMatrix::<f32>::zeros(&device, [2, 2])?;
/// assert_eq!(gemm(&a, &a).run(&mut c).unwrap_err().kind(), ErrorKind::Argument);
/// let mma = device.kernel(find_kernel("wgmma_persistent")?).unwrap_err();
/// assert_eq!(mma.kind(), ErrorKind::Unsupported);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Device memory is too short. Free some, or compute the product in parts.
    OutOfMemory,
    /// A shape, a view, a device, a stream or a number that does not fit the call.
    Argument,
    /// The device or the kernel lacks what is asked for. Another kernel may have it: see
    /// [`Auto`](crate::Auto).
    Unsupported,
    /// There is no GPU. The software device computes everything.
    NoDevice,
    /// A kernel failed, or computed something wrong. After a fault, the device's context is lost.
    Fault,
    /// A table or a file of products cannot be used.
    File,
    /// A call of the driver failed.
    Driver,
}

impl Error {
    /// The driver's code, if the error comes from the driver.
    pub fn code(&self) -> Option<CUresult> {
        match self {
            Self::Driver { code, .. } | Self::KernelFault { code, .. } | Self::Jit { code, .. } => {
                Some(*code)
            }
            _ => None,
        }
    }

    /// Compares the shape of a matrix with the shape that it must have.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`].
    pub fn expect_shape(
        what: &'static str,
        [rows, cols]: [usize; 2],
        [need_rows, need_cols]: [usize; 2],
    ) -> Result<(), Self> {
        match [rows, cols] == [need_rows, need_cols] {
            true => Ok(()),
            false => Err(Self::Shape { what, rows, cols, need_rows, need_cols }),
        }
    }

    /// What a program can do about the error.
    pub fn kind(&self) -> ErrorKind {
        if self.code() == Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY) {
            return ErrorKind::OutOfMemory;
        }
        match self {
            Self::DeviceMemory { .. } => ErrorKind::OutOfMemory,
            Self::NoGpu { .. } => ErrorKind::NoDevice,
            Self::UnknownKernel { .. }
            | Self::GpuTooOld { .. }
            | Self::Compute { .. }
            | Self::CannotSplit { .. }
            | Self::Unsuited { .. }
            | Self::SharedMemory { .. }
            | Self::NotInPtx { .. }
            | Self::NeedsHopper { .. }
            | Self::NeedsTensorMaps { .. } => ErrorKind::Unsupported,
            Self::KernelFault { .. } | Self::Disagreement { .. } => ErrorKind::Fault,
            Self::Table { .. } | Self::ProductFile { .. } => ErrorKind::File,
            Self::Jit { .. } | Self::Driver { .. } => ErrorKind::Driver,
            _ => ErrorKind::Argument,
        }
    }
}

/// The reason why there is no GPU, for a message that says what works without one.
pub fn no_gpu(reason: &GpuUnavailable) -> String {
    match reason {
        GpuUnavailable::LibraryNotFound { library, reason } => format!(
            "there is no NVIDIA driver: {library} could not be loaded ({reason}); to use a GPU, \
             install the driver"
        ),
        other => other.to_string(),
    }
}
