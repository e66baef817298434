//! Matrices and views whose element type is a value, and what plans accept.

use super::any_element::AnyElement;
use super::owned::DeviceMatrix;
use super::view::DeviceMatrixRef;
use super::view_mut::DeviceMatrixMut;

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
