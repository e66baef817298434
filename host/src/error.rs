//! The error type of the program, with advice.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use cuda_gemm::Error as GemmError;
use gemm_bench::baseline::NotCompared;
use gemm_bench::{Error as BenchError, Shape};
use gemm_matrix::npy::NpyFileError;

/// The errors between a command line and its results.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Options that contradict each other.
    #[error("{message}")]
    Usage {
        /// The command that they are for; empty for the plain flags.
        command: &'static str,
        /// What is wrong, and what to do.
        message: String,
    },

    /// An error of the library or the device.
    #[error("{}", advised(.0))]
    Bench(#[from] BenchError),

    /// Saved runs that cannot be read or compared.
    #[error(transparent)]
    Report(#[from] gemm_report::Error),

    /// No runs are named, and there is no folder `runs`.
    #[error(
        "there is no folder `runs` here: name files that `--save` wrote, or folders of them, after \
         `report`"
    )]
    NoRuns,

    /// A `.npy` file that cannot be used.
    #[error(transparent)]
    Npy(#[from] NpyFileError),

    /// The name to explain is no kernel.
    #[error("`{name}` is no kernel; {instead}")]
    NoKernel {
        /// What was asked for.
        name: String,
        /// What it is, and what to ask for instead.
        instead: &'static str,
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
         speed; use a machine with an NVIDIA GPU, or check results here with \
         `rungs run NAME N --device soft`"
    )]
    BenchNeedsGpu {
        /// Why there is none, in the words of the driver layer.
        reason: String,
    },

    /// An error of several devices.
    #[error(transparent)]
    Distributed(cuda_distributed::Error),

    /// The system starts no threads.
    #[error("starting threads failed on the host: {reason}")]
    Threads {
        /// Why not, and what to do.
        reason: String,
    },
}

impl From<GemmError> for Error {
    fn from(error: GemmError) -> Self {
        Self::Bench(error.into())
    }
}

impl From<cuda_distributed::Error> for Error {
    fn from(error: cuda_distributed::Error) -> Self {
        match error {
            // With the advice that one device gets.
            cuda_distributed::Error::Gemm(error) => error.into(),
            error => Self::Distributed(error),
        }
    }
}

impl From<gemm_verify::Error> for Error {
    fn from(error: gemm_verify::Error) -> Self {
        Self::Bench(error.into())
    }
}

impl Error {
    /// An [`Error::Usage`] of the plain flags.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::usage_of("", message)
    }

    /// An [`Error::Usage`] of a command.
    pub fn usage_of(command: &'static str, message: impl Into<String>) -> Self {
        Self::Usage { command, message: message.into() }
    }

    /// An [`Error::Output`] for what failed while the file was written.
    pub fn not_written(path: &Path, error: &io::Error) -> Self {
        let limit = match error.kind() {
            ErrorKind::FileTooLarge => ": more than `ulimit -f` or the file system allows",
            _ => "",
        };
        Self::Output { path: path.to_owned(), reason: format!("{error}{limit}") }
    }
}

/// A library's error with advice.
pub fn advised(error: &BenchError) -> String {
    format!("{error}{}", advice(error).unwrap_or_default())
}

/// The warning that nothing is compared with cuBLAS.
pub fn no_baseline(error: &BenchError) -> String {
    format!("warning: nothing is compared with cuBLAS: {}", advised(error))
}

/// The warning that a shape is not compared with cuBLAS.
pub fn not_compared(reason: &NotCompared) -> String {
    let reason = match reason {
        NotCompared::Refused(error) => advised(error),
        NotCompared::Wrong => "cuBLAS: its result exceeds the bounds".to_owned(),
    };
    format!("warning: this shape is not compared: {reason}")
}

/// The warning that the L2 cache is not quite cold.
pub fn few_sets(shape: Shape, count: usize, wanted: usize) -> String {
    format!(
        "warning: {shape}: memory for {count} of {wanted} sets of matrices, so the L2 cache is not \
         quite cold; --l2 warm needs one"
    )
}

/// The advice that follows a library's error on this command line.
fn advice(error: &BenchError) -> Option<&'static str> {
    Some(match error {
        BenchError::Gemm(GemmError::NoGpu { .. }) => "; `--device soft` needs no GPU",
        BenchError::Gemm(GemmError::UnknownKernel { .. }) => "; `rungs list` shows all",
        BenchError::Gemm(GemmError::GpuTooOld { .. }) => {
            ", or `--device soft` for the software device"
        }
        BenchError::Gemm(GemmError::CannotSplit { .. }) => {
            "; leave out `--splits`, or choose a tile, or a kernel of tf32_split, tf32 without bulk \
             copies, or wgmma_split (`--list`)"
        }
        BenchError::Gemm(GemmError::NotInPtx { .. } | GemmError::NeedsTensorMaps { .. }) => {
            " with `--list`"
        }
        BenchError::Gemm(GemmError::NeedsHopper { .. }) => {
            " with `--list`, or `--device soft-sm90`"
        }
        BenchError::Gemm(GemmError::Compute { .. }) => {
            "; `--compute` says what to compute in, and `--output` what C is stored as"
        }
        BenchError::Gemm(GemmError::Table { .. }) => {
            "; make a table with `rungs tune`, without --sizes and --shapes"
        }
        BenchError::NothingMeasured { .. } => "; the rows above say why",
        BenchError::CublasNeedsGpu => "; use `--device gpu`",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_goes_on_where_the_error_ends() {
        let device = || "soft".to_owned();
        let table = GemmError::Table { place: "t.json".into(), reason: "it is empty".into() };
        let hopper = GemmError::NeedsHopper { kernel: "tma", device: device(), capability: (8, 0) };
        for (error, says) in [
            (
                table.into(),
                "t.json: it is empty; make a table with `rungs tune`, without --sizes and --shapes",
            ),
            (
                hopper.into(),
                "`tma` needs compute capability 9.0 (sm_90a), and soft has 8.0; choose another \
                 kernel with `--list`, or `--device soft-sm90`",
            ),
            (
                BenchError::CublasNeedsGpu,
                "cuBLAS runs on a GPU, and this is the software device; use `--device gpu`",
            ),
        ] {
            assert_eq!(Error::from(error).to_string(), says);
        }
    }
}
