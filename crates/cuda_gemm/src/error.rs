//! The error type of the library.
//!
//! Each variant is a sentence that says what is wrong and how to fix it.

mod kind;

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use cuda_driver::sys::CUresult;
use gemm_matrix::ViewError;
use host_system::format::{alternatives, compared, excerpt};

/// The errors between a request and its result.
///
/// ```
/// use cuda_gemm::{CUresult, Device, DeviceChoice, DeviceMatrix, Error};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let error = DeviceMatrix::<f32>::zeros(&device, [1 << 21, 1 << 21]).unwrap_err(); // 16 TiB
/// assert!(matches!(error, Error::Driver { code: CUresult::CUDA_ERROR_OUT_OF_MEMORY, .. }));
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No kernel has this name.
    #[error("there is no kernel `{}`; the nearest are {}", excerpt(.name), alternatives(.nearest))]
    UnknownKernel {
        /// The name asked for.
        name: String,
        /// The three kernels with the most similar names.
        nearest: Vec<&'static str>,
        /// Every kernel, in order.
        known: Vec<&'static str>,
    },

    /// A GPU was requested, and there is none.
    #[error("{reason}")]
    NoGpu {
        /// The reason, in the words of the driver layer.
        reason: String,
    },

    /// The GPU cannot run this program's PTX.
    #[error(
        "{name} has compute capability {}.{} and the kernels need 8.0 or newer; use a newer GPU",
        .capability.0, .capability.1
    )]
    GpuTooOld {
        /// The GPU's name.
        name: String,
        /// Its compute capability.
        capability: (u32, u32),
    },

    /// A dimension or leading dimension that exceeds the kernels' 32-bit sizes.
    #[error("{what} is {value}, and the largest possible is {max}; use a smaller one")]
    TooLarge {
        /// The parameter's name, as in `m` or `lda`, or another counted thing.
        what: &'static str,
        /// Its value.
        value: usize,
        /// The largest value accepted.
        max: usize,
    },

    /// A matrix whose bytes overflow the counter.
    #[error(
        "a matrix of {rows} x {cols} needs a buffer of {elements} elements, and the longest \
         possible has {max}; use a smaller one"
    )]
    MatrixTooLarge {
        /// Rows.
        rows: usize,
        /// Columns.
        cols: usize,
        /// Elements of its buffer, including those around and between the rows.
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

    /// Strides of a batch that exceed any memory.
    #[error("{what} times batch is {stride} times {batch}; it must be at most {max} elements")]
    StrideTooLarge {
        /// The parameter's name: `stride_a`, `stride_b` or `stride_c`.
        what: &'static str,
        /// Its value, in elements.
        stride: usize,
        /// The number of products.
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
        /// Elements from one C to the next.
        stride: usize,
        /// Rows of each.
        m: usize,
        /// Columns of each.
        n: usize,
        /// Their leading dimension.
        ldc: usize,
    },

    /// An unknown [`Compute`](crate::Compute), or one that does not fit the product.
    #[error("compute type {}: {reason}", excerpt(.compute))]
    Compute {
        /// Its name.
        compute: String,
        /// The problem, and how to fix it.
        reason: String,
    },

    /// Splits were requested of a kernel without them.
    #[error("{kernel} does not split K; choose a split kernel, or no splits")]
    CannotSplit {
        /// The kernel.
        kernel: &'static str,
    },

    /// The kernel lacks a feature that the product needs: see [`Gemm::suits`](crate::Gemm::suits).
    #[error("{kernel} takes no {what}; use `auto`, or a kernel that does")]
    Unsuited {
        /// The kernel.
        kernel: &'static str,
        /// The feature, as in `epilogue`, `batches of pointers` or `transposes`.
        what: &'static str,
    },

    /// An input of a call is missing, or was not planned.
    #[error(
        "{what} is {}; pass exactly the inputs that the product was prepared for",
        if *.is_missing { "missing" } else { "given, and the product was prepared without it" }
    )]
    Extras {
        /// The input: `the scale`, `the bias`, `the residual` or `the factors`.
        what: &'static str,
        /// Whether it is missing.
        is_missing: bool,
    },

    /// A leading dimension that is too small, as BLAS reports it.
    #[error("{routine}: {what}, parameter {parameter}, is {value}; it must be at least {least}")]
    BlasArgument {
        /// The routine.
        routine: &'static str,
        /// The parameter's name.
        what: &'static str,
        /// Its number as BLAS counts: from 1, without the handle.
        parameter: u32,
        /// Its value.
        value: usize,
        /// The smallest value accepted.
        least: usize,
    },

    /// One of alpha and beta is a number, and the other is in device memory.
    #[error("alpha and beta must both be numbers, or both be in device memory")]
    MixedFactors,

    /// Operands whose batches have different sizes.
    #[error("{what} is a batch of {count}, and the product one of {batch}; pass {batch} matrices")]
    BatchCount {
        /// The operand: `A`, `B` or `C`.
        what: &'static str,
        /// The number of matrices.
        count: usize,
        /// The number of products.
        batch: usize,
    },

    /// A grouped product of a transposed A.
    #[error("A of a grouped product is not transposed: each of its rows belongs to a group")]
    GroupedTranspose,

    /// A grouped product with a stride of A or C.
    #[error("A and C of a grouped product are one matrix each; make it with strides of 0")]
    GroupedStrides,

    /// Another number of ends than the product has groups.
    #[error("there are {count} ends, and {groups} groups; pass an end for each group")]
    GroupCount {
        /// The number of ends.
        count: usize,
        /// The number of groups.
        groups: usize,
    },

    /// The end of a group in front of the end of another group that comes before it.
    #[error("group {group} ends at {end}, in front of the group before, which ends at {before}")]
    GroupEnds {
        /// The group, from 0.
        group: usize,
        /// Its end.
        end: u32,
        /// The end of the group before.
        before: u32,
    },

    /// A view of one matrix was requested of a batch.
    #[error("this is a batch of {count} matrices already; make the view of a single matrix")]
    NestedBatch {
        /// The number of matrices.
        count: usize,
    },

    /// A transposed view, where only stored matrices are accepted.
    #[error("a transposed view is not accepted here; pass the stored matrix")]
    Transposed,

    /// An operand whose transposition differs from the plan.
    #[error(
        "{what} is {}, and the call was prepared for {}; pass a view with or without `t()`",
        if *.planned { "not transposed" } else { "transposed" },
        if *.planned { "its transpose" } else { "the stored matrix" }
    )]
    PlannedTranspose {
        /// The matrix: `A` or `B`.
        what: &'static str,
        /// Whether the plan has the transpose.
        planned: bool,
    },

    /// A batch of pointers without matrices.
    #[error("a batch of pointers needs at least one matrix")]
    NoMatrices,

    /// alpha or beta is NaN or infinite.
    #[error("{what} is {value}, and must be a finite number")]
    NotFinite {
        /// The parameter's name: `alpha` or `beta`.
        what: &'static str,
        /// Its value.
        value: f32,
    },

    /// A matrix whose shape does not fit the product.
    #[error(
        "{what} is {rows} x {cols}, and this product needs {need_rows} x {need_cols}; \
         pass a matrix of that shape"
    )]
    Shape {
        /// The matrix: `A`, `B` or `C`.
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

    /// A device matrix whose leading dimension differs from the plan.
    #[error(
        "{what} has leading dimension {ld}, and the call was prepared for {planned}; set it with \
         `Gemm::leading_dimensions` and prepare it again"
    )]
    PlannedLd {
        /// The matrix: `A`, `B` or `C`.
        what: &'static str,
        /// Its leading dimension, in elements.
        ld: usize,
        /// The planned one, in elements.
        planned: usize,
    },

    /// A batch that differs from the plan.
    #[error(
        "{what} has {count} matrices at a stride of {stride}, and the call was prepared for \
         {planned_count} at {planned_stride}; prepare it again"
    )]
    PlannedBatch {
        /// The operand: `A`, `B` or `C`.
        what: &'static str,
        /// The number of matrices.
        count: usize,
        /// Elements from one matrix to the next.
        stride: usize,
        /// The planned number.
        planned_count: usize,
        /// The planned stride.
        planned_stride: usize,
    },

    /// A matrix that cannot be divided into this many equal parts.
    #[error("{all} {what} cannot be split into {count} equal parts")]
    Split {
        /// `rows` or `columns`.
        what: &'static str,
        /// The number of rows or columns.
        all: usize,
        /// The number of parts.
        count: usize,
    },

    /// A device matrix or stream that belongs to another device.
    #[error("{what} belongs to another device; create it on the device of the call")]
    WrongDevice {
        /// The object: `A`, `B`, `C`, `the matrix` or `the stream`.
        what: &'static str,
    },

    /// A device matrix on another stream than the plan.
    #[error(
        "{what}: on another stream than the plan; prepare the product on that stream, or move a \
         matrix with `DeviceMatrix::move_to`"
    )]
    WrongStream {
        /// The matrix: `A`, `B` or `C`.
        what: &'static str,
    },

    /// An operand whose address requires a copy, for which the plan has no memory.
    #[error(
        "{what} is misaligned: the product was prepared for addresses that are multiples of 16; \
         prepare it with `any_alignment`"
    )]
    PlannedAlignment {
        /// The matrix: `A` or `B`.
        what: &'static str,
    },

    /// A part that is out of bounds of its matrix.
    #[error(
        "rows {rows:?} and columns {cols:?} are out of bounds of a matrix of {of_rows} x {of_cols}; \
         choose a part within it"
    )]
    Submatrix {
        /// The requested rows.
        rows: Range<usize>,
        /// The requested columns.
        cols: Range<usize>,
        /// Rows of the matrix.
        of_rows: usize,
        /// Columns of the matrix.
        of_cols: usize,
    },

    /// A buffer without room for the matrix.
    #[error("the matrix needs {needed} elements, and the buffer has {len}; use a larger one")]
    BufferTooShort {
        /// Elements from the first to the last of the matrix.
        needed: u128,
        /// Elements of the buffer.
        len: usize,
    },

    /// Host memory that cannot be viewed as a row-major matrix.
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
        /// Bytes of the matrices.
        needed: u128,
        /// Bytes that are free on the device.
        available: u64,
    },

    /// A kernel that needs more shared memory per block than the device allows.
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
        /// The code's meaning.
        reason: String,
        /// The driver's compiler log.
        log: String,
    },

    /// The PTX for this device lacks the kernel.
    #[error("`{kernel}` is not in the PTX for {device}; choose another kernel")]
    NotInPtx {
        /// The kernel's name.
        kernel: &'static str,
        /// The device's name.
        device: String,
    },

    /// A kernel that runs only on Hopper, on another device.
    #[error(
        "`{kernel}` needs compute capability 9.0 (sm_90a), and {device} has {}.{}; choose another \
         kernel",
        .capability.0, .capability.1
    )]
    NeedsHopper {
        /// The kernel's name.
        kernel: &'static str,
        /// The device's name.
        device: String,
        /// Its compute capability.
        capability: (u32, u32),
    },

    /// A kernel that needs tensor maps, with a driver older than CUDA 12.
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

    /// A matrix whose element type differs from the plan.
    #[error(
        "{what} holds {found}, and the product was prepared for {planned}; pass matrices of {planned}, \
         or prepare the product for {found}"
    )]
    PlannedType {
        /// The matrix: `A` or `B`.
        what: &'static str,
        /// The type of its elements.
        found: &'static str,
        /// The planned type.
        planned: &'static str,
    },

    /// A kernel that stopped with a fault.
    #[error(
        "a kernel failed on {device}: {reason}; correct the kernel, or raise the limit that it exceeded"
    )]
    KernelFault {
        /// The device's name.
        device: String,
        /// The driver's code, for example that of a timeout or of an illegal address.
        code: CUresult,
        /// The code's meaning; on the software device, what happened and where.
        reason: String,
    },

    /// A table of `auto` that is unusable.
    #[error("{place}: {reason}")]
    Table {
        /// The file, and the line if there is one.
        place: String,
        /// The problem.
        reason: String,
    },

    /// A file of measured products that cannot be read or written.
    #[error("the measured products in {}: {reason}", .path.display())]
    ProductFile {
        /// The file.
        path: PathBuf,
        /// The problem, and how to fix it.
        reason: String,
    },

    /// Kernels that compute different results, one of which is wrong.
    #[error(
        "kernels disagree about {product}: {reason}; nothing is kept, since either may be wrong; \
         please report this, and choose a kernel by name until it is fixed"
    )]
    Disagreement {
        /// The product.
        product: String,
        /// The kernels that were dropped, and how their results differ.
        reason: String,
    },

    /// Any other failed call of the driver.
    #[error("{call} failed on {device}: {reason}")]
    Driver {
        /// The action that failed.
        call: &'static str,
        /// The device's name.
        device: String,
        /// The driver's code, for example [`CUresult::CUDA_ERROR_OUT_OF_MEMORY`].
        code: CUresult,
        /// The code's meaning, and further details.
        reason: String,
    },
}

impl fmt::Debug for Error {
    /// The sentence: `unwrap` and a `main` that returns the error show this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

pub use kind::{ErrorKind, no_gpu};

#[cfg(test)]
mod tests;
