//! The one error type of the library: each variant is a sentence that says what
//! is wrong and what to do about it.

use std::ops::Range;

use cuda_driver::GpuUnavailable;
use cuda_driver::sys::CUresult;
use gemm_matrix::ViewError;
use host_system::format::{alternatives, compared, excerpt};

/// What can go wrong between a request and its result.
///
/// ```
/// use cuda_gemm::{CUresult, Device, DeviceChoice, DeviceMatrix, Error};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// // 16 TiB.
/// match DeviceMatrix::zeros(&device, 1 << 21, 1 << 21).map(drop) {
///     Err(Error::Driver { code: CUresult::CUDA_ERROR_OUT_OF_MEMORY, .. }) => println!("too large"),
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No kernel has this name.
    #[error("there is no kernel `{}`; the nearest are {}", excerpt(.name), alternatives(.nearest))]
    UnknownKernel {
        /// The name asked for.
        name: String,
        /// The three kernels whose names are most like it.
        nearest: Vec<&'static str>,
        /// Every kernel, in order.
        known: Vec<&'static str>,
    },

    /// A GPU was asked for and there is none to be had.
    #[error("{reason}")]
    NoGpu {
        /// Why, in the words of the driver layer.
        reason: String,
    },

    /// The GPU cannot run the PTX this program carries.
    #[error(
        "{name} has compute capability {major}.{minor} and the kernels need 8.0 or newer; \
         use a newer GPU"
    )]
    GpuTooOld {
        /// The GPU's name.
        name: String,
        /// Compute capability, major part.
        major: u32,
        /// Compute capability, minor part.
        minor: u32,
    },

    /// A dimension or a leading dimension that the kernels' 32-bit sizes cannot hold.
    #[error("{what} is {value}, and the largest possible is {max}; use a smaller one")]
    TooLarge {
        /// The parameter's name, `m`, `lda`, ..., or what else is counted.
        what: &'static str,
        /// Its value.
        value: usize,
        /// The largest value accepted.
        max: usize,
    },

    /// A matrix whose bytes cannot be counted.
    #[error(
        "a matrix of {rows} x {cols} takes a buffer of {elements} elements, and the longest \
         possible has {max}; use a smaller one"
    )]
    MatrixTooLarge {
        /// Rows.
        rows: usize,
        /// Columns.
        cols: usize,
        /// Elements of its buffer, with what lies around and between the rows.
        elements: u128,
        /// The most elements.
        max: usize,
    },

    /// A leading dimension shorter than the rows it separates.
    #[error("{what} is {ld} and each row holds {cols} elements; {what} must be at least {cols}")]
    LeadingDimension {
        /// The parameter's name: `lda`, `ldb` or `ldc`.
        what: &'static str,
        /// Its value, in elements.
        ld: usize,
        /// The row's length, in elements.
        cols: usize,
    },

    /// The strides of a batch go further than any memory.
    #[error("{what} times batch is {stride} times {batch}; it must be at most {max} elements")]
    StrideTooLarge {
        /// The parameter's name: `stride_a`, `stride_b` or `stride_c`.
        what: &'static str,
        /// Its value, in elements.
        stride: usize,
        /// How many products there are.
        batch: usize,
        /// The most elements.
        max: usize,
    },

    /// Two C of a batch overlap.
    #[error(
        "stride_c is {stride}, and matrices of {m} x {n} elements with the leading dimension {ldc} \
         overlap; they must lie one after the other, or side by side in one leading dimension"
    )]
    Overlap {
        /// From one C to the next, in elements.
        stride: usize,
        /// Rows of each.
        m: usize,
        /// Columns of each.
        n: usize,
        /// Their leading dimension.
        ldc: usize,
    },

    /// A [`Compute`](crate::Compute) that there is not, or that does not go with the rest.
    #[error("compute type {}: {reason}", excerpt(.compute))]
    Compute {
        /// Its name.
        compute: String,
        /// What is wrong with it, and what to do.
        reason: String,
    },

    /// A kernel without splits was asked for some.
    #[error("{kernel} does not split K")]
    CannotSplit {
        /// The kernel.
        kernel: &'static str,
    },

    /// A kernel that computes plain products was asked for more: see [`Gemm::suits`](crate::Gemm::suits).
    #[error("{kernel} takes no {what}; use `auto`, or a kernel such as tile_64x64")]
    Unsuited {
        /// The kernel.
        kernel: &'static str,
        /// What: `epilogue`, `alpha and beta in device memory` or `batches of pointers`.
        what: &'static str,
    },

    /// Something that a call must be given is not there, or was not prepared for.
    #[error(
        "{what} is {}; pass with each call what the product was prepared for, and nothing else",
        if *.is_missing { "missing" } else { "given, and the product was prepared without it" }
    )]
    Extras {
        /// What: `the scale`, `the bias`, `the residual` or `the factors`.
        what: &'static str,
        /// Whether it is missing.
        is_missing: bool,
    },

    /// A leading dimension that BLAS refuses.
    #[error("{routine}: {what}, parameter {parameter}, is {value}; it must be {least} at least")]
    BlasArgument {
        /// The routine.
        routine: &'static str,
        /// The parameter's name.
        what: &'static str,
        /// Its number, as BLAS counts: from 1, without the handle.
        parameter: u32,
        /// Its value.
        value: usize,
        /// The least that it may be.
        least: usize,
    },

    /// Alpha is a number and beta in device memory, or the other way.
    #[error("alpha and beta must both be numbers, or both be in device memory")]
    MixedFactors,

    /// A batch of pointers to nothing.
    #[error("a batch of pointers needs a matrix at least")]
    NoMatrices,

    /// alpha or beta is NaN or infinite.
    #[error("{what} is {value}, and must be a finite number")]
    NotFinite {
        /// The parameter's name: `alpha` or `beta`.
        what: &'static str,
        /// Its value.
        value: f32,
    },

    /// A matrix that does not have the shape the product needs.
    #[error(
        "{what} is {rows} x {cols}, and this product needs {need_rows} x {need_cols}; \
         pass a matrix of that shape"
    )]
    Shape {
        /// Which matrix: `A`, `B` or `C`.
        what: &'static str,
        /// Rows it has.
        rows: usize,
        /// Columns it has.
        cols: usize,
        /// Rows it should have.
        need_rows: usize,
        /// Columns it should have.
        need_cols: usize,
    },

    /// A device matrix whose leading dimension is not the one that was planned for.
    #[error(
        "{what} has leading dimension {ld}, and the call was prepared for {planned}; say so with \
         `Gemm::leading_dimensions` and prepare it again"
    )]
    PlannedLd {
        /// Which matrix: `A`, `B` or `C`.
        what: &'static str,
        /// Its leading dimension, in elements.
        ld: usize,
        /// The planned one, in elements.
        planned: usize,
    },

    /// A batch that is not the one that a call was prepared for.
    #[error(
        "{what} has {count} matrices at a stride of {stride}, and the call was prepared for \
         {planned_count} at {planned_stride}; prepare it again"
    )]
    PlannedBatch {
        /// Which operand: `A`, `B` or `C`.
        what: &'static str,
        /// How many matrices it has.
        count: usize,
        /// From one to the next, in elements.
        stride: usize,
        /// How many were planned.
        planned_count: usize,
        /// The planned stride.
        planned_stride: usize,
    },

    /// A matrix that cannot be cut into so many equal parts.
    #[error("{all} {what} cannot be split into {count} equal parts")]
    Split {
        /// `rows` or `columns`.
        what: &'static str,
        /// How many there are.
        all: usize,
        /// The parts.
        count: usize,
    },

    /// A device matrix, or a stream, of another device than what it is used with.
    #[error("{what} belongs to another device; make it on the device that it is used on")]
    WrongDevice {
        /// What: `A`, `B`, `C`, `the matrix` or `the stream`.
        what: &'static str,
    },

    /// A device matrix that lives on another stream than the plan.
    #[error(
        "{what} is on another stream than the plan; prepare the product on that stream, or move \
         the matrix with `DeviceMatrix::move_to`"
    )]
    WrongStream {
        /// Which matrix: `A`, `B` or `C`.
        what: &'static str,
    },

    /// An operand at an address for which the plan has no memory to copy it to.
    #[error(
        "{what} does not begin on 16 bytes, and the product was prepared for matrices that do; \
         prepare it with `any_alignment`"
    )]
    PlannedAlignment {
        /// Which matrix: `A` or `B`.
        what: &'static str,
    },

    /// A part of a matrix that is not within it.
    #[error(
        "rows {rows:?} and columns {cols:?} are not within a matrix of {of_rows} x {of_cols}; \
         take a part that is"
    )]
    Submatrix {
        /// The rows asked for.
        rows: Range<usize>,
        /// The columns asked for.
        cols: Range<usize>,
        /// Rows of the matrix.
        of_rows: usize,
        /// Columns of the matrix.
        of_cols: usize,
    },

    /// A buffer in which a matrix has no room.
    #[error("the matrix needs {needed} elements, and the buffer has {len}; use a larger one")]
    BufferTooShort {
        /// Elements from the first to the last of the matrix.
        needed: u128,
        /// Elements of the buffer.
        len: usize,
    },

    /// Memory of the host that cannot be seen as a row-major matrix.
    #[error(transparent)]
    View(#[from] ViewError),

    /// The matrices do not fit into the device's memory.
    #[error(
        "this needs {} of device memory and {device} has {} available; use smaller matrices",
        compared(*.needed, *.available)[0], compared(*.needed, *.available)[1]
    )]
    DeviceMemory {
        /// The device's name.
        device: String,
        /// Bytes the matrices take.
        needed: u128,
        /// Bytes the device has free.
        available: u64,
    },

    /// A kernel that needs more shared memory per block than the device has.
    #[error(
        "`{kernel}` needs {needed} bytes of shared memory per block at k = {k} and {device} allows \
         {limit}; use a smaller k or another kernel"
    )]
    SharedMemory {
        /// The kernel's name.
        kernel: &'static str,
        /// The device's name.
        device: String,
        /// The product's inner dimension.
        k: usize,
        /// Bytes the kernel needs at this k.
        needed: u64,
        /// Bytes the device allows, opt-in included.
        limit: u32,
    },

    /// The driver refused the PTX.
    #[error("{device} cannot load the kernels ({reason}); the driver says: {log}")]
    Jit {
        /// The device's name.
        device: String,
        /// The driver's code.
        code: CUresult,
        /// The code in words.
        reason: String,
        /// The driver's compiler log.
        log: String,
    },

    /// The PTX for this device has no such kernel.
    #[error("`{kernel}` is not in the PTX for {device}; choose another kernel")]
    NotInPtx {
        /// The kernel's name.
        kernel: &'static str,
        /// The device's name.
        device: String,
    },

    /// A kernel that only Hopper runs, on another device.
    #[error(
        "`{kernel}` needs compute capability 9.0 (sm_90a), and {device} has {major}.{minor}; choose \
         another kernel"
    )]
    NeedsHopper {
        /// The kernel's name.
        kernel: &'static str,
        /// The device's name.
        device: String,
        /// Compute capability, major part.
        major: u32,
        /// Compute capability, minor part.
        minor: u32,
    },

    /// A kernel that needs tensor maps, with a driver from before CUDA 12.
    #[error(
        "`{kernel}` needs tensor maps (cuTensorMapEncodeTiled), and the driver of {device} has none; \
         update the driver to one for CUDA 12 or newer, or choose another kernel"
    )]
    NeedsTensorMaps {
        /// The kernel's name.
        kernel: &'static str,
        /// The device's name.
        device: String,
    },

    /// A product that the kernels for tensor cores do not compute.
    #[error("`{kernel}` takes no {what}; {hint}")]
    TensorCoreShape {
        /// The kernel's name.
        kernel: &'static str,
        /// What it does not take.
        what: &'static str,
        /// What to do.
        hint: &'static str,
    },

    /// A matrix whose elements are not of the type that was prepared for.
    #[error(
        "{what} is of {found}, and the product was prepared for {planned}; pass matrices of that type, or prepare it for this one"
    )]
    PlannedType {
        /// Which matrix: `A` or `B`.
        what: &'static str,
        /// The type of its elements.
        found: &'static str,
        /// The planned one.
        planned: &'static str,
    },

    /// A kernel that stopped with a fault.
    #[error(
        "a kernel failed on {device}: {reason}; the kernel is at fault, or a limit that it was given"
    )]
    KernelFault {
        /// The device's name.
        device: String,
        /// The driver's code, for one that of a timeout or of an illegal address.
        code: CUresult,
        /// The code in words; on the software device, what happened and where.
        reason: String,
    },

    /// A table of `auto` that cannot be used.
    #[error("{place}: {reason}")]
    Table {
        /// The file, and the line if it is about one.
        place: String,
        /// What is wrong.
        reason: String,
    },

    /// Any other call into the driver that failed.
    #[error("{call} failed on {device}: {reason}")]
    Driver {
        /// What was being done.
        call: &'static str,
        /// The device's name.
        device: String,
        /// The driver's code, for one [`CUresult::CUDA_ERROR_OUT_OF_MEMORY`].
        code: CUresult,
        /// The code in words, with what else is known.
        reason: String,
    },
}

impl Error {
    /// Whether there is too little device memory: found before it was asked for
    /// ([`Error::DeviceMemory`]), or by the driver ([`CUresult::CUDA_ERROR_OUT_OF_MEMORY`]).
    ///
    /// ```
    /// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Gemm, find_kernel};
    ///
    /// let device = Device::open(DeviceChoice::Soft)?;
    /// let error = DeviceMatrix::zeros(&device, 1 << 21, 1 << 21).unwrap_err();
    /// assert!(error.is_out_of_memory());
    /// // A workspace of 64 TiB.
    /// let plan = device.kernel(find_kernel("tile_64x64")?)?.plan(Gemm::new(1 << 21, 1 << 21, 4096));
    /// assert!(plan.splits(4).prepare().unwrap_err().is_out_of_memory());
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::DeviceMemory { .. })
            || self.code() == Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// The driver's code, of an error that comes from the driver.
    pub fn code(&self) -> Option<CUresult> {
        match self {
            Self::Driver { code, .. } | Self::KernelFault { code, .. } | Self::Jit { code, .. } => {
                Some(*code)
            }
            _ => None,
        }
    }
}

/// Why there is no GPU, for a message that says itself what there is without one.
pub fn no_gpu(reason: &GpuUnavailable) -> String {
    match reason {
        GpuUnavailable::LibraryNotFound { library, reason } => format!(
            "there is no NVIDIA driver: {library} could not be loaded ({reason}); to use a GPU, \
             install the driver"
        ),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
