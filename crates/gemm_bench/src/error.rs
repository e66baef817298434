//! What can go wrong in a measurement.

use std::path::PathBuf;

/// What can go wrong between a request and a figure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What the library refuses, or the device.
    #[error(transparent)]
    Gemm(#[from] cuda_gemm::Error),

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
}
