//! The one error type of the library: each variant is a sentence that says what
//! is wrong and what to do about it.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use cuda_driver::GpuUnavailable;
use cuda_driver::sys::CUresult;

use crate::format::{compared, excerpt};
use crate::npy::header::NpyError;

/// What can go wrong between a request and a checked result.
///
/// A wrong product is not an error: it is a [`Check`](crate::verify::Check) that
/// did not pass.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No kernel has this name.
    #[error("there is no kernel `{}`{}; the kernels are {}", excerpt(.name),
        .nearest.map(|n| format!(" (did you mean `{n}`?)")).unwrap_or_default(), .known.join(", "))]
    UnknownKernel {
        /// The name asked for.
        name: String,
        /// The kernel whose name looks most like it, if any does.
        nearest: Option<&'static str>,
        /// Every kernel, in order.
        known: Vec<&'static str>,
    },

    /// What is to be explained is there, and has no place in the ladder.
    #[error("`{name}` is no rung of the ladder; {instead}")]
    NoRung {
        /// What was asked for.
        name: String,
        /// What to ask for instead.
        instead: String,
    },

    /// A GPU was asked for and there is none to be had.
    #[error("{reason}; `--device soft` needs no GPU")]
    NoGpu {
        /// Why, in the words of the driver layer.
        reason: String,
    },

    /// The GPU cannot run the PTX this program carries.
    #[error(
        "{name} has compute capability {major}.{minor} and the kernels need 8.0 or newer; \
         use a newer GPU, or `--device soft` for the software device"
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
    #[error("{what} is {value}, and the largest possible is {max}; use a smaller {what}")]
    TooLarge {
        /// The parameter's name: `m`, `lda`, ...
        what: &'static str,
        /// Its value.
        value: usize,
        /// The largest value accepted.
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

    /// A kernel without splits was asked for some.
    #[error("{kernel} does not split K; leave out `--splits`, or take one of the tiles (`--list`)")]
    CannotSplit {
        /// The kernel.
        kernel: &'static str,
    },

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
        "{what} has leading dimension {ld}, and the call was prepared for {planned}; prepare it again"
    )]
    PlannedLd {
        /// Which matrix: `A`, `B` or `C`.
        what: &'static str,
        /// Its leading dimension, in elements.
        ld: usize,
        /// The planned one, in elements.
        planned: usize,
    },

    /// A device matrix that lives on another device than the kernel.
    #[error("{what} is on another device than the kernel; copy it to the kernel's device first")]
    WrongDevice {
        /// Which matrix: `A`, `B` or `C`.
        what: &'static str,
    },

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

    /// The matrices and the reference do not fit into the host's memory.
    #[error(
        "this needs {} of host memory (matrices, reference{}) and {} are available; \
         use smaller matrices",
        compared(*.needed, *.available)[0], if *.soft { ", software device" } else { "" },
        compared(*.needed, *.available)[1]
    )]
    HostMemory {
        /// Bytes needed.
        needed: u128,
        /// Bytes available without swapping.
        available: u64,
        /// Whether the software device's memory is part of what is needed.
        soft: bool,
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

    /// A `.npy` file that cannot be used.
    #[error("cannot use {}: {source}", .path.display())]
    Npy {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: NpyError,
    },

    /// A result that cannot be stored where it was asked for.
    #[error("cannot write {}: {reason}; choose another output file", .path.display())]
    Output {
        /// The output file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },

    /// The driver refused the PTX.
    #[error("{device} cannot load the kernels ({reason}); the driver says: {log}")]
    Jit {
        /// The device's name.
        device: String,
        /// The driver's error.
        reason: String,
        /// The driver's compiler log.
        log: String,
    },

    /// The PTX for this device has no such kernel.
    #[error("`{kernel}` is not in the PTX for {device}; choose another kernel with `--list`")]
    NotInPtx {
        /// The kernel's name.
        kernel: &'static str,
        /// The device's name.
        device: String,
    },

    /// A kernel that only Hopper runs, on another device.
    #[error(
        "`{kernel}` needs compute capability 9.0 (sm_90a), and {device} has {major}.{minor}; choose \
         another kernel with `--list`, or `--device soft-sm90`"
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
         update the driver to one for CUDA 12 or newer, or choose another kernel with `--list`"
    )]
    NeedsTensorMaps {
        /// The kernel's name.
        kernel: &'static str,
        /// The device's name.
        device: String,
    },

    /// A kernel that stopped with a fault.
    #[error("a kernel failed on {device}: {reason}; this is a bug in the kernel, not in the input")]
    KernelFault {
        /// The device's name.
        device: String,
        /// The driver's error and, on the software device, where it happened.
        reason: String,
    },

    /// A measurement was asked for where there is no GPU.
    #[error(
        "bench measures a GPU, and there is none ({reason}): simulated times say nothing about \
         speed; run it on a machine with an NVIDIA GPU, or check results here with \
         `host --kernel NAME --size N --device soft`"
    )]
    BenchNeedsGpu {
        /// Why there is none, in the words of the driver layer.
        reason: String,
    },

    /// Shapes of products that cannot be read.
    #[error("{place}: {reason}; write one shape per line, as in `512 1024 256` or `512x1024x256`")]
    Shapes {
        /// The file, and the line if it is about one.
        place: String,
        /// What is wrong.
        reason: String,
    },

    /// A table of `auto` that cannot be used.
    #[error("{place}: {reason}; make a table with `host tune`")]
    Table {
        /// The file, and the line if it is about one.
        place: String,
        /// What is wrong.
        reason: String,
    },

    /// Nothing that was asked for could be measured.
    #[error("none of the {count} product(s) could be measured; the rows above say why")]
    NothingMeasured {
        /// How many were asked for.
        count: usize,
    },

    /// cuBLAS was asked for on the software device.
    #[error("cuBLAS runs on a GPU, and this is the software device; use `--device gpu`")]
    CublasNeedsGpu,

    /// There is no cuBLAS to be loaded.
    #[error(
        "cuBLAS: not found; looked for {files} on the loader's path, in the toolkits that {variables} \
         name, and in the usual folders; install CUDA's libraries, or add their folder to \
         LD_LIBRARY_PATH (on Windows, PATH)"
    )]
    CublasNotFound {
        /// The files looked for.
        files: String,
        /// The environment variables looked at.
        variables: String,
    },

    /// There is a file that should be cuBLAS, and is not, or needs another that is missing.
    #[error("cuBLAS: cannot load {}: {reason}; reinstall CUDA's libraries", .path.display())]
    CublasBroken {
        /// The file.
        path: PathBuf,
        /// Why not, in the loader's words.
        reason: String,
    },

    /// The environment makes cuBLAS compute f32 products in less than f32.
    #[error(
        "cuBLAS: {variable}={value} makes it compute in less than f32, so that it cannot be compared; \
         unset {variable}"
    )]
    CublasPrecision {
        /// The environment variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },

    /// A call of cuBLAS that failed.
    #[error("cuBLAS: {call} failed with {name} ({status}); check that it fits the driver")]
    Cublas {
        /// The function.
        call: &'static str,
        /// The status in words.
        name: &'static str,
        /// The status.
        status: i32,
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

    /// The system starts no threads.
    #[error("starting threads failed on the host: {reason}")]
    Threads {
        /// Why not, and what to do.
        reason: String,
    },
}

impl Error {
    /// An [`Error::Output`] for what failed while the file was written.
    pub fn not_written(path: &Path, error: &io::Error) -> Self {
        let limit = match error.kind() {
            ErrorKind::FileTooLarge => ": more than `ulimit -f` or the file system allows",
            _ => "",
        };
        Self::Output { path: path.to_owned(), reason: format!("{error}{limit}") }
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
mod tests {
    use super::*;

    #[test]
    fn an_unknown_kernel_names_the_nearest_and_all() {
        let known = vec!["naive", "tile2d"];
        let error = Error::UnknownKernel { name: "tile".into(), nearest: Some("tile2d"), known };
        assert_eq!(
            error.to_string(),
            "there is no kernel `tile` (did you mean `tile2d`?); the kernels are naive, tile2d"
        );
    }
}
