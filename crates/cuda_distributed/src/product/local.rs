//! The products of one rank, of parts in its own memory.

use std::ops::Range;

use cuda_gemm::{
    DeviceMatrix, DeviceMatrixMut, DeviceMatrixRef, Epilogue, OutputOf, Scalar, Stream, gemm,
};

use super::{Call, Multiply, Product};
use crate::distribution::within;
use crate::error::Error;

/// A dense matrix in a buffer of this rank.
///
/// # Safety
///
/// The buffer has the elements from this address on, on this stream. If the view is written, no
/// other one is used meanwhile.
pub(super) unsafe fn dense<T: Scalar>(
    stream: &Stream,
    address: u64,
    [rows, cols]: [usize; 2],
) -> Result<DeviceMatrixMut<'_, T>, Error> {
    // SAFETY: the caller's contract.
    Ok(unsafe { DeviceMatrixMut::from_address(stream, address, [rows, cols], cols) }?)
}

/// A product of nothing, to which an epilogue adds matrices.
fn nothing<'m, T: Scalar>(
    stream: &'m Stream,
    [rows, cols]: [usize; 2],
) -> Result<cuda_gemm::Product<'m, 'm, T>, Error> {
    // SAFETY: the matrices have no element. The address is aligned.
    let [a, b] = [[rows, 0], [0, cols]].map(|shape| unsafe {
        DeviceMatrixRef::<T>::from_address(stream, 256, shape, shape[1].max(1))
    });
    Ok(gemm(a?, b?))
}

/// Adds `summand` to `sum`.
pub(super) fn add(
    summand: DeviceMatrixRef<'_, f32>,
    sum: DeviceMatrixMut<'_, f32>,
) -> Result<(), Error> {
    let shape = [summand.rows(), summand.cols()];
    Ok(nothing::<f32>(summand.stream(), shape)?.beta(1.0).residual(summand).run(sum)?)
}

/// How a product of this rank ends.
pub(super) enum End<'v> {
    /// The sum is stored.
    Stored,
    /// The whole epilogue follows.
    Epilogue,
    /// The bias follows, and then a sum of other ranks.
    Summand(DeviceMatrixRef<'v, f32>),
}

impl<T: Multiply> Product<'_, T> {
    /// Whether the epilogue adds only, so that it commutes with another rank's summand.
    pub(super) fn adds_only(&self) -> bool {
        let Epilogue { scale, activation, residual, .. } = self.epilogue;
        scale.is_none() && activation.is_none() && !residual
    }
}

impl<T: Multiply> Call<'_, '_, T> {
    /// Enqueues `alpha * a * b + beta * c` of a part of C, on the stream of `c`.
    pub(super) fn multiply<U: Multiply + OutputOf<T>>(
        &self,
        [a, b]: [DeviceMatrixRef<'_, T>; 2],
        c: DeviceMatrixMut<'_, U>,
        beta: f32,
        place: [&Range<usize>; 2],
        end: End<'_>,
    ) -> Result<(), Error> {
        let stream = c.stream();
        // SAFETY: each step of the second stream waits for blocks that arrive (`Call::gather`), and
        // these wait for the stream of the matrices. In the end that stream waits for the second one
        // (`Call::run`).
        let [a, b] = [a, b].map(|operand| unsafe { operand.on(stream) });
        let mut product = T::with_precision(gemm(a, b), self.product.precision);
        if self.side.is_some() {
            // Parts fill the multiprocessors together.
            let world = self.product.a.matrix.world();
            let region = &self.regions[world.rank()];
            product = product.part_of(region.each_ref().map(|range| range.len()));
        }
        let product = product.alpha(self.product.alpha).beta(beta);
        Ok(self.ended(product, stream, place, end)?.run(c)?)
    }

    /// Adds the end to a product of a part of C, on this stream.
    fn ended<'v, V: Multiply>(
        &'v self,
        mut product: cuda_gemm::Product<'v, 'v, V>,
        stream: &'v Stream,
        place: [&Range<usize>; 2],
        end: End<'v>,
    ) -> Result<cuda_gemm::Product<'v, 'v, V>, Error> {
        if matches!(end, End::Stored) {
            return Ok(product);
        }
        let epilogue = self.product.epilogue;
        let slice = |vector: &'v DeviceMatrix<f32>, axis: cuda_gemm::Axis| {
            let [rows, cols] = place;
            let [start, end] = [[rows.start, cols.start], [rows.end, cols.end]]
                .map(|[row, col]| axis.len(row, col));
            // SAFETY: as in `multiply`.
            vector.submatrix(0..1, start..end).map(|slice| unsafe { slice.on(stream) })
        };
        if let (Some(bias), Some(axis)) = (self.product.bias, epilogue.bias) {
            product = product.bias_along(axis, slice(bias, axis)?);
        }
        if let End::Summand(summand) = end {
            return Ok(product.residual(summand));
        }
        if let (Some(scale), Some(axis)) = (self.product.scale, epilogue.scale) {
            product = product.scale(axis, slice(scale, axis)?);
        }
        if let Some(activation) = epilogue.activation {
            product = product.activation(activation);
        }
        if let Some(residual) = self.product.residual {
            let [rows, cols] = residual.part();
            let rows = within(place[0], rows.start);
            let cols = within(place[1], cols.start);
            let residual = residual.local().submatrix(rows, cols)?;
            // SAFETY: as in `multiply`.
            product = product.residual(unsafe { residual.on(stream) });
        }
        Ok(product)
    }

    /// Makes a part of C of its complete sum, which is used up. `one` is that of the buffers.
    pub(super) fn finish<U>(
        &self,
        stream: &Stream,
        mut sum: DeviceMatrixMut<'_, f32>,
        mut c: DeviceMatrixMut<'_, U>,
        place: [&Range<usize>; 2],
        one: u64,
    ) -> Result<(), Error>
    where
        U: Multiply,
        f32: OutputOf<U>,
    {
        let shape = [sum.view().rows(), sum.view().cols()];
        if shape.contains(&0) {
            return Ok(());
        }
        let beta = self.product.beta;
        if self.product.adds_only() {
            let last = nothing::<U>(stream, shape)?.beta(beta);
            return Ok(self.ended(last, stream, place, End::Summand(sum.view()))?.run(c)?);
        }
        if beta != 0.0 {
            // Each row of C as a matrix of one column, times 1.
            // SAFETY: the buffer has the element, which is only read.
            let one = unsafe { DeviceMatrixRef::<U>::from_address(stream, one, [1, 1], 1) }?;
            let column = [shape[1], 1];
            let old = c.view().rows_as_matrices(column, 1)?;
            gemm(old, one)
                .alpha(beta)
                .beta(1.0)
                .run(sum.view_mut().rows_as_matrices(column, 1)?)?;
        }
        let whole = nothing::<f32>(stream, shape)?.beta(1.0);
        self.ended(whole, stream, place, End::Epilogue)?.run(sum.view_mut())?;
        Ok(nothing::<U>(stream, shape)?.residual(sum.view()).run(c.view_mut())?)
    }
}
