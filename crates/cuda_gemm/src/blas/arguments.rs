//! Arguments of all routines: operations, factors, sizes and leading dimensions.

use cust::memory::DevicePointer;

use crate::error::Error;
use crate::problem::{Gemm, MAX_DIMENSION};

/// The operation in `op(X)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// X unchanged: `CUBLAS_OP_N`.
    None,
    /// The transpose of X: `CUBLAS_OP_T`, or `CUBLAS_OP_C`, which is equal for real numbers.
    Transpose,
}

/// The factor alpha or beta.
#[derive(Clone, Copy, Debug)]
pub enum Factor {
    /// A number on the host.
    Host(f32),
    /// An address in device memory, read when the kernel runs.
    Device(DevicePointer<f32>),
}

impl From<f32> for Factor {
    fn from(factor: f32) -> Self {
        Self::Host(factor)
    }
}

impl From<DevicePointer<f32>> for Factor {
    fn from(address: DevicePointer<f32>) -> Self {
        Self::Device(address)
    }
}

/// Renames the row-major matrices of an error to the caller's.
///
/// The row-major product exchanges A and B, and rows and columns.
pub(super) fn by_the_callers_names(error: Error) -> Error {
    match error {
        Error::StrideTooLarge { what, stride, batch, max } => {
            let what = match what {
                "stride_a" => "stride_b",
                "stride_b" => "stride_a",
                c => c,
            };
            Error::StrideTooLarge { what, stride, batch, max }
        }
        Error::Overlap { stride, m, n, ldc } => Error::Overlap { stride, m: n, n: m, ldc },
        other => other,
    }
}

/// Checks the leading dimensions, and returns the row-major product equal to this column-major one.
///
/// Each leading dimension comes with the number of its parameter, for errors.
pub(super) fn row_major(
    routine: &'static str,
    [transa, transb]: [Op; 2],
    [m, n, k]: [usize; 3],
    lds: [(usize, u32); 3],
) -> Result<Gemm, Error> {
    // Checked with the caller's names: the plan is for the transpose.
    let [(lda, _), (ldb, _), (ldc, _)] = lds;
    for (what, value) in [("m", m), ("n", n), ("k", k), ("lda", lda), ("ldb", ldb), ("ldc", ldc)] {
        if value > MAX_DIMENSION {
            return Err(Error::TooLarge { what, value, max: MAX_DIMENSION });
        }
    }
    let is_transposed = [transa, transb].map(|op| op == Op::Transpose);
    let rows = [if is_transposed[0] { k } else { m }, if is_transposed[1] { n } else { k }, m];
    for (i, what) in ["lda", "ldb", "ldc"].into_iter().enumerate() {
        let ((value, parameter), least) = (lds[i], rows[i].max(1));
        if value < least {
            return Err(Error::BlasArgument { routine, what, parameter, value, least });
        }
    }
    let gemm = Gemm::new(n, m, k).transposed(is_transposed[1], is_transposed[0]);
    Ok(gemm.leading_dimensions(ldb, lda, ldc))
}
