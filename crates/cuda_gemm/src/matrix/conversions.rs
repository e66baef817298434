//! Conversions between matrices, views and operands.

use gemm_matrix::Scalar;

use super::operand::{OperandMut, OperandRef};
use super::owned::DeviceMatrix;
use super::view::{DeviceMatrixMut, DeviceMatrixRef};

macro_rules! from {
    ($($from:ty => $to:ty: $matrix:ident, $made:expr;)+) => {$(
        impl<'m, T: Scalar> From<$from> for $to {
            fn from($matrix: $from) -> Self {
                $made
            }
        }
    )+};
}

from! {
    &'m DeviceMatrix<T> => DeviceMatrixRef<'m, T>: matrix, matrix.view();
    &'m mut DeviceMatrix<T> => DeviceMatrixMut<'m, T>: matrix, matrix.view_mut();
    &'m mut DeviceMatrixMut<'_, T> => DeviceMatrixMut<'m, T>: matrix, matrix.view_mut();
    DeviceMatrixRef<'m, T> => OperandRef<'m>: matrix, matrix.operand;
    &'m DeviceMatrix<T> => OperandRef<'m>: matrix, matrix.view().operand;
    DeviceMatrixMut<'m, T> => OperandMut<'m>: matrix, matrix.operand;
    &'m mut DeviceMatrixMut<'_, T> => OperandMut<'m>: matrix, matrix.view_mut().operand;
    &'m mut DeviceMatrix<T> => OperandMut<'m>: matrix, matrix.view_mut().operand;
}
