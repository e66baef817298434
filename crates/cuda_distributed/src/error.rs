//! The error type of the library.

use std::fmt;
use std::time::Duration;

use cuda_gemm::npy::NpyFileError;

/// The errors of a world of ranks.
///
/// After [`Error::Lost`] and [`Error::Nccl`] the world is over on every rank. An error that
/// only one rank has after all agreed on a call also ends it. After any other error the world goes
/// on.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank is gone, or did not answer within the timeout.
    #[error("{0}; start all ranks again")]
    Lost(Failure),

    /// Ranks called one operation with different arguments.
    #[error(
        "{operation}: rank 0 calls it with {first} and rank {rank} with {other}; make the same \
         call on every rank"
    )]
    Mismatch {
        /// The operation.
        operation: String,
        /// The first rank that differs from rank 0.
        rank: usize,
        /// The arguments of rank 0.
        first: String,
        /// The arguments of that rank.
        other: String,
    },

    /// Another rank refused an operation, so that no rank began it.
    #[error("{operation}: rank {rank} cannot take part: {reason}")]
    Refused {
        /// The operation.
        operation: String,
        /// The rank.
        rank: usize,
        /// Its error.
        reason: String,
    },

    /// NCCL is missing, or too old.
    #[error("{reason}; install NCCL 2.22 or newer, or use another transport")]
    NoNccl {
        /// What was found.
        reason: String,
    },

    /// A call of NCCL failed.
    #[error("NCCL failed in {call}: {reason}; set NCCL_DEBUG=INFO for details")]
    Nccl {
        /// The function.
        call: &'static str,
        /// NCCL's text.
        reason: String,
    },

    /// An environment variable that says no rank or size.
    #[error("the environment variable {variable} {reason}")]
    Environment {
        /// Its name.
        variable: &'static str,
        /// What is wrong, and what to do.
        reason: String,
    },

    /// The ranks did not find each other.
    #[error("the rendezvous {place} failed: {reason}")]
    Rendezvous {
        /// The address or file.
        place: String,
        /// What is wrong, and what to do.
        reason: String,
    },

    /// A matrix, a distribution or a device that does not fit the call.
    #[error("{what}: {reason}")]
    Unfit {
        /// The matrix or argument.
        what: &'static str,
        /// What is wrong, and what would fit.
        reason: String,
    },

    /// A `.npy` file that this rank cannot use.
    #[error(transparent)]
    Npy(#[from] NpyFileError),

    /// An error of this rank's device or product.
    #[error(transparent)]
    Gemm(#[from] cuda_gemm::Error),
}

impl fmt::Debug for Error {
    /// The sentence: `unwrap` and a `main` that returns the error show this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a world is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The operation that did not end.
    pub operation: String,
    /// The rank that is the likely cause.
    pub suspect: usize,
    /// What the rank did, as in `ended without leaving the world`.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: rank {} {}", self.operation, self.suspect, self.reason)
    }
}

impl Failure {
    /// A rank that others waited for in vain.
    pub(crate) fn late(operation: &str, suspect: usize, timeout: Duration) -> Self {
        let reason = format!("did not take part within {} s", timeout.as_secs_f32());
        Self { operation: operation.to_owned(), suspect, reason }
    }

    /// A rank that left in good order, but too early.
    pub(crate) fn left(operation: &str, suspect: usize) -> Self {
        let reason = "has left the world".to_owned();
        Self { operation: operation.to_owned(), suspect, reason }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::Lost(failure)
    }
}
