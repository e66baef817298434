//! What all routines take: operations, factors, sizes and leading dimensions.

use cust::memory::DevicePointer;

use crate::error::Error;
use crate::gemm::{Gemm, MAX_DIMENSION};

/// `op(X)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// X as it is: `CUBLAS_OP_N`.
    None,
    /// Its transpose: `CUBLAS_OP_T`, and `CUBLAS_OP_C`, which is the same for real numbers.
    Transpose,
}

/// Alpha or beta.
#[derive(Clone, Copy, Debug)]
pub enum Factor {
    /// A number.
    Host(f32),
    /// Where it is in device memory when the kernel runs.
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

/// An error about a batch of row-major matrices, as the caller of a routine knows them: there A and B are exchanged, and so
/// are rows and columns.
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

/// The product of row-major matrices that is a product of column-major ones, once the leading dimensions
/// are checked, which are the parameters with these numbers.
pub(super) fn row_major(
    routine: &'static str,
    [transa, transb]: [Op; 2],
    [m, n, k]: [usize; 3],
    lds: [(usize, u32); 3],
) -> Result<Gemm, Error> {
    // By the names that the caller knows: what is planned is the transpose.
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
