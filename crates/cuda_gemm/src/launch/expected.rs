//! Whether matrices are what a call was prepared for.

use crate::error::Error;
use crate::gemm::Gemm;
use crate::matrix::DeviceBatchRef;
use crate::stream::Stream;

/// Whether A, B and C are on this stream, and have the shapes, the leading dimensions and the strides
/// that a call was prepared for.
///
/// ```
/// use cuda_gemm::launch::expect_planned;
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Error, Gemm};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let matrix = DeviceMatrix::zeros(&device, 2, 2)?;
/// let operands = [matrix.view().into(); 3];
/// expect_planned(&device.stream(), &Gemm::new(2, 2, 2), operands)?;
/// let refused = expect_planned(&device.stream(), &Gemm::new(2, 3, 2), operands);
/// assert!(matches!(refused, Err(Error::Shape { what: "B", .. })));
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::WrongDevice`], [`Error::WrongStream`], [`Error::Shape`], [`Error::PlannedLd`] or
/// [`Error::PlannedBatch`].
pub fn expect_planned(
    stream: &Stream,
    gemm: &Gemm,
    operands: [DeviceBatchRef<'_>; 3],
) -> Result<(), Error> {
    let lds = [gemm.lda, gemm.ldb, gemm.ldc];
    for (i, (what, batch)) in ["A", "B", "C"].into_iter().zip(operands).enumerate() {
        let matrix = batch.first();
        let shape = [matrix.rows(), matrix.cols(), matrix.ld()];
        expect_matrix(what, stream, matrix.stream(), shape, gemm.shapes()[i], lds[i])?;
        let (count, stride) = (batch.count(), batch.stride());
        let (planned_count, planned_stride) = (gemm.batch, gemm.strides()[i]);
        if count != planned_count || count > 1 && stride != planned_stride {
            let planned_batch =
                Error::PlannedBatch { what, count, stride, planned_count, planned_stride };
            return Err(planned_batch);
        }
    }
    Ok(())
}

/// Whether a matrix with these rows, columns and leading dimension is on this stream, and as planned.
pub(super) fn expect_matrix(
    what: &'static str,
    stream: &Stream,
    on: &Stream,
    [rows, cols, ld]: [usize; 3],
    [need_rows, need_cols]: [usize; 2],
    planned: usize,
) -> Result<(), Error> {
    stream.expect(what, on)?;
    if (rows, cols) != (need_rows, need_cols) {
        return Err(Error::Shape { what, rows, cols, need_rows, need_cols });
    }
    if ld != planned {
        return Err(Error::PlannedLd { what, ld, planned });
    }
    Ok(())
}
