//! Checks matrices against a prepared call.

use gemm_matrix::Element;

use crate::device::Stream;
use crate::error::Error;
use crate::matrix::OperandRef;
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
    let transposed = [gemm.trans_a, gemm.trans_b, false];
    for (i, what) in ["A", "B", "C"].into_iter().enumerate() {
        let placement = operands[i].placement();
        let (element, shape, ld) = (placement.element, placement.shape, placement.ld);
        expect_matrix(i, stream, gemm, operands[i].stream(), element, shape, ld)?;
        if operands[i].is_transposed() != transposed[i] {
            return Err(Error::PlannedTranspose { what, planned: transposed[i] });
        }
        let (count, stride) = (placement.count, placement.stride);
        let (planned_count, planned_stride) = (gemm.batch, gemm.strides()[i]);
        if count != planned_count || count > 1 && stride != planned_stride {
            let planned_batch =
                Error::PlannedBatch { what, count, stride, planned_count, planned_stride };
            return Err(planned_batch);
        }
    }
    Ok(())
}

/// Checks the stream and placement of one operand against the plan.
pub(super) fn expect_matrix(
    i: usize,
    stream: &Stream,
    gemm: &Gemm,
    on: &Stream,
    element: Element,
    [rows, cols]: [usize; 2],
    ld: usize,
) -> Result<(), Error> {
    let what = ["A", "B", "C"][i];
    stream.expect(what, on)?;
    let input = gemm.compute.element();
    let planned = [input, input, gemm.output][i];
    if element != planned {
        return Err(Error::PlannedType { what, found: element.name(), planned: planned.name() });
    }
    let [need_rows, need_cols] = gemm.shapes()[i];
    if [rows, cols] != [need_rows, need_cols] {
        return Err(Error::Shape { what, rows, cols, need_rows, need_cols });
    }
    let planned = [gemm.lda, gemm.ldb, gemm.ldc][i];
    if ld != planned {
        return Err(Error::PlannedLd { what, ld, planned });
    }
    Ok(())
}
