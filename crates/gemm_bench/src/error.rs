//! The errors of a measurement.

use std::path::PathBuf;

use host_system::format::compared;
use host_system::memory;

/// The errors between a request and a figure.
///
/// A wrong product is not an error: it is a [`Check`](gemm_verify::Check) that did not pass.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice};
/// use gemm_bench::{Cublas, Error};
///
/// # fn main() -> Result<(), Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// match Cublas::open(&device) {
///     Err(error @ Error::CublasNeedsGpu) => println!("nothing is compared: {error}"),
///     other => drop(other?),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library or the device refuses the request.
    #[error(transparent)]
    Gemm(#[from] cuda_gemm::Error),

    /// A result cannot be compared with a reference.
    #[error(transparent)]
    Verify(#[from] gemm_verify::Error),

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
        /// Whether `needed` includes the software device's memory.
        soft: bool,
    },

    /// Shapes of products that cannot be parsed.
    #[error(
        "{place}: {reason}; name a file with one shape per line, as in `512 1024 256`, `512x1024x256` or `512x1024x256:TN`"
    )]
    Shapes {
        /// The file, and the line if there is one.
        place: String,
        /// The problem.
        reason: String,
    },

    /// Groups that a product cannot have.
    #[error("{reason}")]
    Groups {
        /// The problem, and what to do.
        reason: String,
    },

    /// A product that cannot have a record of its measurement.
    #[error(
        "{shape} cannot have a record: it needs dense matrices, or rows at equal offsets from 16 bytes, \
         an alpha other than 0, and a batch that shares neither A nor B"
    )]
    NoRecord {
        /// The product's shape.
        shape: String,
    },

    /// None of the requested products could be measured.
    #[error("none of the {count} product(s) could be measured")]
    NothingMeasured {
        /// The number of requested products.
        count: usize,
    },

    /// cuBLAS was requested on the software device.
    #[error("cuBLAS runs on a GPU, and this is the software device")]
    CublasNeedsGpu,

    /// No cuBLAS was found.
    #[error(
        "cuBLAS: not found; looked for {files} on the loader's path, in the toolkits that {variables} \
         name, and in the usual folders; install CUDA's libraries, or add their folder to \
         LD_LIBRARY_PATH (on Windows, PATH)"
    )]
    CublasNotFound {
        /// The names of the files.
        files: String,
        /// The environment variables that were used.
        variables: String,
    },

    /// A file that should be cuBLAS, but is not, or needs a missing file.
    #[error("cuBLAS: cannot load {}: {reason}; reinstall CUDA's libraries", .path.display())]
    CublasBroken {
        /// The file.
        path: PathBuf,
        /// The reason, in the loader's words.
        reason: String,
    },

    /// The environment lowers cuBLAS's precision for f32 products.
    #[error(
        "cuBLAS: {variable}={value} makes it compute below the precision of f32, so that it cannot be compared; \
         unset {variable}"
    )]
    CublasPrecision {
        /// The environment variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },

    /// A product that cuBLAS lacks, or has only in another form.
    #[error("cuBLAS: {reason}")]
    CublasUnsuited {
        /// The reason.
        reason: String,
    },

    /// A call of cuBLAS that failed.
    #[error("cuBLAS: {call} failed with {name} ({status}); check that it fits the driver")]
    Cublas {
        /// The function.
        call: &'static str,
        /// The name of the status.
        name: &'static str,
        /// The status.
        status: i32,
    },
}

impl Error {
    /// Whether the error concerns one product, so that others may still run. After a fault nothing
    /// runs.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::HostMemory { .. }
                | Self::Cublas { .. }
                | Self::CublasUnsuited { .. }
                | Self::Gemm(
                    cuda_gemm::Error::DeviceMemory { .. }
                        | cuda_gemm::Error::SharedMemory { .. }
                        | cuda_gemm::Error::Driver { .. },
                )
        )
    }

    /// Whether the error concerns cuBLAS.
    pub fn is_of_cublas(&self) -> bool {
        matches!(
            self,
            Self::CublasNeedsGpu
                | Self::CublasNotFound { .. }
                | Self::CublasBroken { .. }
                | Self::CublasPrecision { .. }
                | Self::CublasUnsuited { .. }
                | Self::Cublas { .. }
        )
    }
}

/// Refuses work that exceeds the host's memory, before it is allocated.
///
/// `needed` is in bytes. `soft` says, for the message, whether it includes the software device's
/// memory.
///
/// # Errors
///
/// [`Error::HostMemory`].
///
/// ```
/// assert!(gemm_bench::require_memory(1 << 20, false).is_ok());
/// ```
pub fn require_memory(needed: u128, soft: bool) -> Result<(), Error> {
    match memory::available(rayon::current_num_threads()) {
        Some(available) if needed > u128::from(available) => {
            Err(Error::HostMemory { needed, available, soft })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_ends_everything() {
        let full =
            cuda_gemm::Error::DeviceMemory { device: "a GPU".into(), needed: 1, available: 0 };
        assert!(Error::from(full).is_refusal());
        let (device, reason) = ("a GPU".into(), "misaligned".into());
        let code = cuda_gemm::CUresult::CUDA_ERROR_MISALIGNED_ADDRESS;
        let fault = cuda_gemm::Error::KernelFault { device, code, reason };
        assert!(!Error::from(fault).is_refusal());
    }
}
