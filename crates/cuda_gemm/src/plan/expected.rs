//! Checks matrices against a prepared call.

use crate::device::Stream;
use crate::error::Error;
use crate::matrix::{OperandRef, Placement};
use crate::problem::Gemm;

/// Checks A, B and C against a prepared call.
///
/// The stream, types, shapes, transpositions, leading dimensions and strides must match.
///
/// # Errors
///
/// [`Error::WrongDevice`], [`Error::WrongStream`], [`Error::PlannedType`], [`Error::Shape`],
/// [`Error::PlannedTranspose`], [`Error::PlannedLd`] or [`Error::PlannedBatch`].
pub fn expect_planned(
    stream: &Stream,
    gemm: &Gemm,
    operands: &[OperandRef<'_>; 3],
) -> Result<(), Error> {
    let input = gemm.compute.element();
    let elements = [input, input, gemm.output];
    let transposed = [gemm.trans_a, gemm.trans_b, false];
    let lds = [gemm.lda, gemm.ldb, gemm.ldc];
    for (i, what) in ["A", "B", "C"].into_iter().enumerate() {
        let Placement { element, shape, ld, count, stride, .. } = operands[i].placement();
        stream.expect(what, operands[i].stream())?;
        if element != elements[i] {
            let (found, planned) = (element.name(), elements[i].name());
            return Err(Error::PlannedType { what, found, planned });
        }
        Error::expect_shape(what, shape, gemm.shapes()[i])?;
        if ld != lds[i] {
            return Err(Error::PlannedLd { what, ld, planned: lds[i] });
        }
        if operands[i].is_transposed() != transposed[i] {
            return Err(Error::PlannedTranspose { what, planned: transposed[i] });
        }
        let (planned_count, planned_stride) = (gemm.matrices()[i], gemm.strides()[i]);
        let has_stride = count > 1 && !gemm.has_pointers();
        if count != planned_count || has_stride && stride != planned_stride {
            let planned_batch =
                Error::PlannedBatch { what, count, stride, planned_count, planned_stride };
            return Err(planned_batch);
        }
    }
    Ok(())
}
