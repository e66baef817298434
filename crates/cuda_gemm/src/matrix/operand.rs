//! Operands of any type that a product may have.

use gemm_matrix::Element;
use kernels_gpu::abi::tensor_core::InputType;

use super::batch::{DeviceBatchMut, DeviceBatchRef};
use super::half::DeviceHalfMatrix;
use super::half_view::{DeviceHalfMut, DeviceHalfRef};
use super::owned::DeviceMatrix;
use super::view::{DeviceMatrixMut, DeviceMatrixRef};
use crate::error::Error;
use crate::stream::Stream;

/// A or B, in f32 or in 16 bits: [`Product::enqueue`](crate::Product::enqueue) takes what becomes one.
#[derive(Clone, Copy, Debug)]
pub enum OperandRef<'m> {
    /// Of f32.
    F32(DeviceBatchRef<'m>),
    /// Of 16-bit floats.
    Half(DeviceHalfRef<'m>),
}

/// C, in f32 or in 16 bits.
#[derive(Debug)]
pub enum OperandMut<'m> {
    /// Of f32.
    F32(DeviceBatchMut<'m>),
    /// Of 16-bit floats.
    Half(DeviceHalfMut<'m>),
}

impl<'m> OperandMut<'m> {
    /// The matrices of f32, for a product that is planned for such.
    ///
    /// # Errors
    ///
    /// [`Error::PlannedType`] for others, which calls them `what`.
    pub fn f32(self, what: &'static str) -> Result<DeviceBatchMut<'m>, Error> {
        match self {
            Self::F32(batch) => Ok(batch),
            Self::Half(half) => Err(not_f32(what, half.view().input())),
        }
    }

    /// So many matrices, which lie one below the other in this one; of a batch, in the first.
    ///
    /// # Errors
    ///
    /// [`Error::Split`] if it does not have rows for so many.
    pub fn split_rows(self, count: usize) -> Result<Self, Error> {
        Ok(match self {
            Self::F32(one) => Self::F32(one.split_rows(count)?),
            Self::Half(one) => Self::Half(one.split_rows(count)?),
        })
    }

    /// The same, to be read.
    pub fn view(&self) -> OperandRef<'_> {
        match self {
            Self::F32(batch) => OperandRef::F32(batch.view()),
            Self::Half(half) => OperandRef::Half(half.view()),
        }
    }
}

/// How matrices lie in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Layout {
    pub(crate) address: u64,
    pub(crate) element: Element,
    pub(crate) shape: [usize; 2],
    pub(crate) ld: usize,
    pub(crate) count: usize,
    pub(crate) stride: usize,
}

impl Layout {
    /// From a product of the batch on.
    pub(crate) fn of_product(self, product: usize) -> Self {
        let bytes = (self.element.bytes() as u64).wrapping_mul(self.stride as u64);
        let address = self.address.wrapping_add(bytes.wrapping_mul(product as u64));
        Self { address, count: self.count - product.min(self.count), ..self }
    }
}

/// The error of matrices in 16 bits for a product in f32.
fn not_f32(what: &'static str, found: InputType) -> Error {
    Error::PlannedType { what, found: found.name(), planned: Element::F32.name() }
}

impl<'m> OperandRef<'m> {
    /// The matrices of f32, for a product that is planned for such.
    ///
    /// # Errors
    ///
    /// [`Error::PlannedType`] for others, which calls them `what`.
    pub fn f32(self, what: &'static str) -> Result<DeviceBatchRef<'m>, Error> {
        match self {
            Self::F32(batch) => Ok(batch),
            Self::Half(half) => Err(not_f32(what, half.input())),
        }
    }

    /// So many matrices, which lie one below the other in this one; of a batch, in the first.
    ///
    /// # Errors
    ///
    /// [`Error::Split`] if it does not have rows for so many.
    pub fn split_rows(self, count: usize) -> Result<Self, Error> {
        Ok(match self {
            Self::F32(one) => Self::F32(one.first().split_rows(count)?),
            Self::Half(one) => Self::Half(one.split_rows(count)?),
        })
    }

    /// This matrix for so many products; of a batch, the first.
    #[must_use]
    pub fn broadcast(self, count: usize) -> Self {
        match self {
            Self::F32(one) => Self::F32(one.first().broadcast(count)),
            Self::Half(one) => Self::Half(one.broadcast(count)),
        }
    }

    /// Rows of each matrix.
    pub fn rows(&self) -> usize {
        self.layout().shape[0]
    }

    /// The stream that uses the matrices.
    pub fn stream(&self) -> &'m Stream {
        match self {
            Self::F32(batch) => batch.first().stream(),
            Self::Half(half) => half.stream(),
        }
    }

    pub(crate) fn layout(&self) -> Layout {
        match self {
            Self::F32(batch) => {
                let first = batch.first();
                Layout {
                    address: first.as_device_ptr().as_raw(),
                    element: Element::F32,
                    shape: [first.rows(), first.cols()],
                    ld: first.ld(),
                    count: batch.count(),
                    stride: batch.stride(),
                }
            }
            Self::Half(half) => Layout {
                address: half.address(),
                element: DeviceHalfMatrix::element(half.input()),
                shape: [half.rows(), half.cols()],
                ld: half.ld(),
                count: half.count(),
                stride: half.stride(),
            },
        }
    }
}

macro_rules! from {
    ($($operand:ident::$variant:ident: $($from:ty),+;)+) => {$($(
        impl<'m> From<$from> for $operand<'m> {
            fn from(matrix: $from) -> Self {
                Self::$variant(matrix.into())
            }
        }
    )+)+};
}

from! {
    OperandRef::F32: DeviceBatchRef<'m>, DeviceMatrixRef<'m>, &'m DeviceMatrix;
    OperandRef::Half: DeviceHalfRef<'m>, &'m DeviceHalfMatrix;
    OperandMut::F32: DeviceBatchMut<'m>, DeviceMatrixMut<'m>, &'m mut DeviceMatrix;
    OperandMut::Half: DeviceHalfMut<'m>, &'m mut DeviceHalfMatrix;
}
