//! Matrices and views whose element type is a value, and what plans accept.

use gemm_matrix::{Element, span};

use super::owned::DeviceMatrix;
use super::view::DeviceMatrixRef;
use super::view_mut::DeviceMatrixMut;
use crate::error::Error;

/// In place of a type of elements: the type is a value, [`Element`].
///
/// For programs that learn it at run time.
///
/// ```
/// use cuda_gemm::{AnyMatrix, Device, DeviceChoice, Element, Layout, Matrix};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// for element in Element::ALL {
///     let mut matrix = AnyMatrix::zeros_of(&device, element, [1, 2], Layout::dense(2))?;
///     matrix.upload(&Matrix::from_vec(1, 2, vec![0.5, 257.0]))?;
///     assert_eq!(matrix.download()?.at(0, 1), element.round(257.0));
/// }
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Debug)]
pub enum AnyElement {}

/// A row-major matrix in a device's memory whose element type is a value.
pub type AnyMatrix = DeviceMatrix<AnyElement>;

/// A borrowed device matrix, or a batch of matrices of one shape, whose element type is a value.
pub type OperandRef<'m> = DeviceMatrixRef<'m, AnyElement>;

/// A mutably borrowed device matrix or batch, whose element type is a value.
pub type OperandMut<'m> = DeviceMatrixMut<'m, AnyElement>;

/// A or B of a product: a view of any type of elements, or a matrix.
pub trait IntoOperand<'m> {
    /// The matrices, with their element type as a value.
    fn into_operand(self) -> OperandRef<'m>;
}

/// C of a product: a view of any type of elements, or a matrix.
pub trait IntoOperandMut<'m> {
    /// The matrices, with their element type as a value.
    fn into_operand_mut(self) -> OperandMut<'m>;
}

impl<'m, T> IntoOperand<'m> for DeviceMatrixRef<'m, T> {
    fn into_operand(self) -> OperandRef<'m> {
        self.of_any()
    }
}

impl<'m, T> IntoOperand<'m> for &'m DeviceMatrix<T> {
    fn into_operand(self) -> OperandRef<'m> {
        self.view().of_any()
    }
}

impl<'m, T> IntoOperandMut<'m> for DeviceMatrixMut<'m, T> {
    fn into_operand_mut(self) -> OperandMut<'m> {
        OperandMut::new(self.into_view().of_any())
    }
}

impl<'m, T> IntoOperandMut<'m> for &'m mut DeviceMatrixMut<'_, T> {
    fn into_operand_mut(self) -> OperandMut<'m> {
        self.view_mut().into_operand_mut()
    }
}

impl<'m, T> IntoOperandMut<'m> for &'m mut DeviceMatrix<T> {
    fn into_operand_mut(self) -> OperandMut<'m> {
        self.view_mut().into_operand_mut()
    }
}

impl<'m, T> From<&'m DeviceMatrix<T>> for DeviceMatrixRef<'m, T> {
    fn from(matrix: &'m DeviceMatrix<T>) -> Self {
        matrix.view()
    }
}

impl<'m, T> From<&'m mut DeviceMatrix<T>> for DeviceMatrixMut<'m, T> {
    fn from(matrix: &'m mut DeviceMatrix<T>) -> Self {
        matrix.view_mut()
    }
}

impl<'m, T> From<&'m mut DeviceMatrixMut<'_, T>> for DeviceMatrixMut<'m, T> {
    fn from(matrix: &'m mut DeviceMatrixMut<'_, T>) -> Self {
        matrix.view_mut()
    }
}

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
    pub(super) fn offset(&self, elements: usize) -> u64 {
        let bytes = (self.element.bytes() as u64).wrapping_mul(elements as u64);
        // The address of an empty matrix is not used.
        self.address.wrapping_add(bytes)
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
