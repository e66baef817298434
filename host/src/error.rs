//! The one error type of the program: what its libraries refuse, and what it refuses itself.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use gemm_matrix::npy::NpyFileError;
use host_system::format::compared;
use host_system::memory;

/// What can go wrong between a request and a checked result.
///
/// A wrong product is not an error: it is a [`Check`](crate::verify::Check) that
/// did not pass.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What the kernels' library refuses, or the device.
    #[error(transparent)]
    Gemm(#[from] cuda_gemm::Error),

    /// What cannot be compared with a reference.
    #[error(transparent)]
    Verify(#[from] gemm_verify::Error),

    /// What the baseline refuses.
    #[error(transparent)]
    Bench(gemm_bench::Error),

    /// A `.npy` file that cannot be used.
    #[error(transparent)]
    Npy(#[from] NpyFileError),

    /// What is to be explained is there, and has no place in the ladder.
    #[error("`{name}` is no rung of the ladder; {instead}")]
    NoRung {
        /// What was asked for.
        name: String,
        /// What to ask for instead.
        instead: String,
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

    /// A result that cannot be stored where it was asked for.
    #[error("cannot write {}: {reason}; choose another output file", .path.display())]
    Output {
        /// The output file.
        path: PathBuf,
        /// Why not.
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

    /// Nothing that was asked for could be measured.
    #[error("none of the {count} product(s) could be measured; the rows above say why")]
    NothingMeasured {
        /// How many were asked for.
        count: usize,
    },

    /// The system starts no threads.
    #[error("starting threads failed on the host: {reason}")]
    Threads {
        /// Why not, and what to do.
        reason: String,
    },
}

impl From<gemm_bench::Error> for Error {
    fn from(error: gemm_bench::Error) -> Self {
        match error {
            gemm_bench::Error::Gemm(error) => Self::Gemm(error),
            other => Self::Bench(other),
        }
    }
}

/// Refuses what does not fit into the host's memory, before it is allocated. `soft` says whether
/// the software device's memory is part of `needed`, for the message.
///
/// # Errors
///
/// [`Error::HostMemory`].
pub fn require_memory(needed: u128, soft: bool) -> Result<(), Error> {
    match memory::available() {
        Some(available) if needed > u128::from(available) => {
            Err(Error::HostMemory { needed, available, soft })
        }
        _ => Ok(()),
    }
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
