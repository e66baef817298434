//! What a program can do about an error.

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
            Self::TooLarge { .. }
            | Self::MatrixTooLarge { .. }
            | Self::LeadingDimension { .. }
            | Self::StrideTooLarge { .. }
            | Self::Overlap { .. }
            | Self::Extras { .. }
            | Self::BlasArgument { .. }
            | Self::MixedFactors
            | Self::BatchCount { .. }
            | Self::NestedBatch { .. }
            | Self::Transposed
            | Self::PlannedTranspose { .. }
            | Self::NoMatrices
            | Self::NotFinite { .. }
            | Self::Shape { .. }
            | Self::PlannedLd { .. }
            | Self::PlannedBatch { .. }
            | Self::Split { .. }
            | Self::WrongDevice { .. }
            | Self::WrongStream { .. }
            | Self::PlannedAlignment { .. }
            | Self::Submatrix { .. }
            | Self::BufferTooShort { .. }
            | Self::View(_)
            | Self::PlannedType { .. } => ErrorKind::Argument,
        }
    }
}
