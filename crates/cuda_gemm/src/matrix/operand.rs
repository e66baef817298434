//! Borrowed matrices and batches whose element type is a value.
//!
//! Typed views wrap them, and plans accept them.

use std::marker::PhantomData;
use std::ops::Range;

use gemm_matrix::{Element, Matrix, MatrixMut, MatrixRef, span};

use super::memory::{copy_from_host, copy_to_host};
use crate::device::Stream;
use crate::error::Error;

/// The place of equally shaped matrices in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Placement {
    pub(crate) address: u64,
    pub(crate) element: Element,
    /// Stored rows and columns.
    pub(crate) shape: [usize; 2],
    pub(crate) ld: usize,
    /// The number of matrices, and elements from one to the next; 0 if all are the same.
    pub(crate) count: usize,
    pub(crate) stride: usize,
}

impl Placement {
    /// The address `elements` elements after the first.
    fn offset(&self, elements: usize) -> u64 {
        let bytes = (self.element.bytes() as u64).wrapping_mul(elements as u64);
        // The address of an empty matrix is not used.
        self.address.wrapping_add(bytes)
    }
}

/// A borrowed device matrix, or a batch of matrices of one shape.
///
/// The element type is a value, [`Element`]; [`DeviceMatrixRef`](crate::DeviceMatrixRef) has a type
/// parameter and the same methods. Views are cheap: they carry an address, sizes, a leading
/// dimension, a transposition and a batch, and copy nothing.
#[derive(Clone, Copy, Debug)]
pub struct OperandRef<'m> {
    stream: &'m Stream,
    placement: Placement,
    transposed: bool,
}

/// A mutably borrowed device matrix or batch, whose element type is a value.
#[derive(Debug)]
pub struct OperandMut<'m> {
    view: OperandRef<'m>,
    exclusive: PhantomData<&'m mut [u8]>,
}

impl<'m> OperandRef<'m> {
    /// Borrows one matrix.
    pub(crate) fn new(
        stream: &'m Stream,
        element: Element,
        address: u64,
        shape: [usize; 2],
        ld: usize,
    ) -> Self {
        let placement = Placement { address, element, shape, ld, count: 1, stride: 0 };
        Self { stream, placement, transposed: false }
    }

    pub(crate) fn placement(&self) -> Placement {
        self.placement
    }

    /// The element type.
    pub fn element(&self) -> Element {
        self.placement.element
    }

    /// Rows of each matrix.
    pub fn rows(&self) -> usize {
        self.placement.shape[usize::from(self.transposed)]
    }

    /// Columns of each matrix.
    pub fn cols(&self) -> usize {
        self.placement.shape[usize::from(!self.transposed)]
    }

    /// The leading dimension, in elements.
    pub fn ld(&self) -> usize {
        self.placement.ld
    }

    /// Whether memory holds the transpose, row by row.
    pub fn is_transposed(&self) -> bool {
        self.transposed
    }

    /// The number of matrices.
    pub fn count(&self) -> usize {
        self.placement.count
    }

    /// Elements from one matrix of a batch to the next; 0 if all are the same.
    pub fn stride(&self) -> usize {
        self.placement.stride
    }

    /// The stream that uses the matrices.
    pub fn stream(&self) -> &'m Stream {
        self.stream
    }

    /// The address of the first element.
    pub fn address(&self) -> u64 {
        self.placement.address
    }

    /// The transpose of each matrix, in the same memory.
    #[must_use]
    pub fn t(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }

    /// A part of each matrix, with the same leading dimension.
    ///
    /// # Errors
    ///
    /// [`Error::Submatrix`] if the part is out of bounds.
    pub fn submatrix(self, rows: Range<usize>, cols: Range<usize>) -> Result<Self, Error> {
        let is_within = |range: &Range<usize>, len| range.start <= range.end && range.end <= len;
        if !is_within(&rows, self.rows()) || !is_within(&cols, self.cols()) {
            let (of_rows, of_cols) = (self.rows(), self.cols());
            return Err(Error::Submatrix { rows, cols, of_rows, of_cols });
        }
        let [down, along] = if self.transposed { [cols, rows] } else { [rows, cols] };
        let first = down.start.wrapping_mul(self.ld()).wrapping_add(along.start);
        let address = self.placement.offset(first);
        let shape = [down.len(), along.len()];
        Ok(Self { placement: Placement { address, shape, ..self.placement }, ..self })
    }

    /// Splits the matrix into a batch of `count` equally shaped matrices, one below the other.
    ///
    /// # Errors
    ///
    /// [`Error::Split`] if `count` does not divide the rows, or is 0; [`Error::NestedBatch`] if
    /// this is a batch.
    pub fn batch(self, count: usize) -> Result<Self, Error> {
        self.split("rows", usize::from(self.transposed), count)
    }

    /// Splits the matrix into a batch of `count` equally shaped matrices, side by side.
    ///
    /// # Errors
    ///
    /// [`Error::Split`] if `count` does not divide the columns, or is 0; [`Error::NestedBatch`] if
    /// this is a batch.
    pub fn batch_cols(self, count: usize) -> Result<Self, Error> {
        self.split("columns", usize::from(!self.transposed), count)
    }

    /// Splits a dimension of the stored matrix.
    fn split(self, what: &'static str, dimension: usize, count: usize) -> Result<Self, Error> {
        self.expect_one()?;
        let mut shape = self.placement.shape;
        let all = shape[dimension];
        if all.checked_rem(count) != Some(0) {
            return Err(Error::Split { what, all, count });
        }
        shape[dimension] = all / count;
        let stride = shape[dimension].wrapping_mul([self.ld(), 1][dimension]);
        Ok(Self { placement: Placement { shape, count, stride, ..self.placement }, ..self })
    }

    /// Turns each row into a matrix of this shape and leading dimension.
    ///
    /// A matrix whose leading dimension is the stride thus describes a batch with any stride.
    ///
    /// # Errors
    ///
    /// - [`Error::LeadingDimension`] if `ld` is less than the columns.
    /// - [`Error::BufferTooShort`] if a row has no room for such a matrix.
    /// - [`Error::NestedBatch`] or [`Error::Transposed`] if this is a batch or a transpose.
    pub fn rows_as_matrices(self, shape: [usize; 2], ld: usize) -> Result<Self, Error> {
        self.expect_one()?;
        if self.transposed {
            return Err(Error::Transposed);
        }
        let placement = self.placement;
        expect_room(placement.shape[1], shape, ld)?;
        let [count, _] = placement.shape;
        let placement = Placement { shape, ld, count, stride: placement.ld, ..placement };
        Ok(Self { placement, ..self })
    }

    /// Repeats one matrix for `count` products.
    ///
    /// # Errors
    ///
    /// [`Error::NestedBatch`] if this is a batch.
    pub fn broadcast(self, count: usize) -> Result<Self, Error> {
        self.expect_one()?;
        Ok(Self { placement: Placement { count, stride: 0, ..self.placement }, ..self })
    }

    fn expect_one(&self) -> Result<(), Error> {
        match self.count() {
            1 => Ok(()),
            count => Err(Error::NestedBatch { count }),
        }
    }

    /// Copies the matrix to the host, after the stream's earlier work.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`], [`Error::KernelFault`] if an earlier kernel failed, or
    /// [`Error::NestedBatch`] for a batch.
    pub fn download(&self) -> Result<Matrix, Error> {
        let [rows, cols] = self.placement.shape;
        let mut matrix = Matrix::zeros(rows, cols);
        Self { transposed: false, ..*self }.download_to(&mut matrix)?;
        Ok(if self.transposed { matrix.transposed() } else { matrix })
    }

    /// Copies the matrix into an existing host matrix.
    ///
    /// # Errors
    ///
    /// The errors of [`OperandRef::download`], and [`Error::Shape`].
    pub fn download_to<'h>(&self, matrix: impl Into<MatrixMut<'h>>) -> Result<(), Error> {
        let mut matrix = matrix.into();
        self.expect_one()?;
        self.expect_shape(matrix.rows(), matrix.cols())?;
        if self.transposed {
            let transposed = self.download()?;
            for (i, (_, row)) in matrix.runs_mut(self.rows() + self.cols()).enumerate() {
                row.copy_from_slice(&transposed.as_slice()[i * row.len()..][..row.len()]);
            }
            return Ok(());
        }
        let (stream, element) = (self.stream, self.element());
        let _exclusive = stream.exclusive();
        if element == Element::F32 {
            let copied = matrix.runs_mut(self.ld()).try_for_each(|(offset, run)| {
                // SAFETY: the matrix has these elements, initialised when it was made or by its
                // maker's contract. Nobody reads the copy before the next line.
                unsafe { copy_to_host(stream, self.placement.offset(offset), run) }
            });
            return stream.synchronize().and(copied);
        }
        let mut runs = Vec::new();
        let copied = matrix.runs_mut(self.ld()).try_for_each(|(offset, run)| {
            let mut bytes = vec![0; run.len() * element.bytes()];
            // SAFETY: as above; the bytes stay where they are.
            let copied = unsafe { copy_to_host(stream, self.placement.offset(offset), &mut bytes) };
            runs.push((run, bytes));
            copied
        });
        stream.synchronize().and(copied)?;
        for (run, bytes) in runs {
            run.copy_from_slice(&element.decode(&bytes));
        }
        Ok(())
    }

    fn expect_shape(&self, rows: usize, cols: usize) -> Result<(), Error> {
        let [need_rows, need_cols] = [self.rows(), self.cols()];
        if [rows, cols] == [need_rows, need_cols] {
            return Ok(());
        }
        Err(Error::Shape { what: "the host's matrix", rows, cols, need_rows, need_cols })
    }
}

impl<'m> OperandMut<'m> {
    /// Borrows a view's matrices mutably.
    pub(super) fn new(view: OperandRef<'m>) -> Self {
        Self { view, exclusive: PhantomData }
    }

    /// A part of each matrix: see [`OperandRef::submatrix`].
    ///
    /// # Errors
    ///
    /// See [`OperandRef::submatrix`].
    pub fn submatrix(self, rows: Range<usize>, cols: Range<usize>) -> Result<Self, Error> {
        Ok(Self::new(self.view.submatrix(rows, cols)?))
    }

    /// Splits the matrix into the rows above `row` and the rest.
    ///
    /// # Errors
    ///
    /// [`Error::Submatrix`] if `row` exceeds the rows.
    pub fn split_at_row(self, row: usize) -> Result<(Self, Self), Error> {
        let (view, [rows, cols]) = (self.view, [self.view.rows(), self.view.cols()]);
        let [above, below] = [0..row, row..rows].map(|rows| view.submatrix(rows, 0..cols));
        Ok((Self::new(above?), Self::new(below?)))
    }

    /// Splits the matrix into a batch, one below the other: see [`OperandRef::batch`].
    ///
    /// # Errors
    ///
    /// See [`OperandRef::batch`].
    pub fn batch(self, count: usize) -> Result<Self, Error> {
        Ok(Self::new(self.view.batch(count)?))
    }

    /// Splits the matrix into a batch, side by side: see [`OperandRef::batch_cols`].
    ///
    /// # Errors
    ///
    /// See [`OperandRef::batch_cols`].
    pub fn batch_cols(self, count: usize) -> Result<Self, Error> {
        Ok(Self::new(self.view.batch_cols(count)?))
    }

    /// Turns each row into a matrix: see [`OperandRef::rows_as_matrices`].
    ///
    /// # Errors
    ///
    /// See [`OperandRef::rows_as_matrices`].
    pub fn rows_as_matrices(self, shape: [usize; 2], ld: usize) -> Result<Self, Error> {
        Ok(Self::new(self.view.rows_as_matrices(shape, ld)?))
    }

    /// Copies a host matrix of this shape into this one, and waits.
    ///
    /// The copy follows the stream's earlier work. Elements are rounded to the nearest, ties to
    /// even. Gaps between rows stay unchanged.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`], [`Error::Driver`], or [`Error::NestedBatch`] for a batch.
    pub fn upload<'h>(&mut self, matrix: impl Into<MatrixRef<'h>>) -> Result<(), Error> {
        let (view, matrix) = (&self.view, matrix.into());
        view.expect_one()?;
        view.expect_shape(matrix.rows(), matrix.cols())?;
        let (stream, element) = (view.stream, view.element());
        let _exclusive = stream.exclusive();
        // Kept until the copies are done.
        let mut encoded = Vec::new();
        let copied = matrix.runs(view.ld()).try_for_each(|(offset, run)| {
            let address = view.placement.offset(offset);
            if element == Element::F32 {
                // SAFETY: the matrix has these elements, and the copy is waited for below.
                return unsafe { copy_from_host(stream, address, run) };
            }
            encoded.push(element.encode(run));
            let bytes = encoded.last().map_or(&[][..], |bytes| bytes);
            // SAFETY: as above; the vector that moves does not move the bytes.
            unsafe { copy_from_host(stream, address, bytes) }
        });
        stream.synchronize().and(copied)
    }

    /// The matrices, for reading.
    pub fn view(&self) -> OperandRef<'_> {
        self.view
    }

    /// The matrices, reborrowed for a shorter time.
    pub fn view_mut(&mut self) -> OperandMut<'_> {
        OperandMut::new(self.view)
    }

    /// The matrices, for reading during the whole borrow; nothing else may write them then.
    pub(super) fn into_view(self) -> OperandRef<'m> {
        self.view
    }
}

/// Whether a buffer of `len` elements has room for a matrix.
pub(super) fn expect_room(len: usize, [rows, cols]: [usize; 2], ld: usize) -> Result<(), Error> {
    if ld < cols {
        return Err(Error::LeadingDimension { what: "ld", ld, cols });
    }
    let needed = span(rows, cols, ld);
    if needed > len as u128 {
        return Err(Error::BufferTooShort { needed, len });
    }
    Ok(())
}
