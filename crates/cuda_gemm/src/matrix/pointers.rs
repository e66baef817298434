//! Batches of matrices at arbitrary addresses: arrays of addresses in device memory.

use std::marker::PhantomData;

use gemm_matrix::Scalar;

use super::memory::{Memory, copy_from_host};
use super::operand::OperandRef;
use super::view::DeviceMatrixRef;
use super::view_mut::DeviceMatrixMut;
use crate::device::Stream;
use crate::error::Error;

/// Borrowed device matrices of one shape, at arbitrary addresses.
///
/// A [batch of pointers](crate::Gemm::batched_pointers) accepts it. Its addresses are in an array
/// on the device, which any number of calls can use.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Extras, Gemm, PointerBatch, PointerBatchMut};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let number = |x: f32| DeviceMatrix::from_slice(&device, [1, 1], &[x]);
/// let (two, three) = (number(2.0)?, number(3.0)?);
/// let [mut x, mut y] = [number(0.0)?, number(0.0)?];
/// // x = 2 * 3 and y = 3 * 3.
/// let a = PointerBatch::new(&[two.view(), three.view()])?;
/// let b = PointerBatch::new(&[three.view(), three.view()])?;
/// let mut c = PointerBatchMut::new(vec![x.view_mut(), y.view_mut()])?;
/// let plan = device.auto()?.prepare(Gemm::new(1, 1, 1).batched_pointers(2))?;
/// plan.run_pointers(&a, &b, &mut c, Extras::new())?;
/// drop(c);
/// assert_eq!([x.to_vec()?[0], y.to_vec()?[0]], [6.0, 9.0]);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
pub struct PointerBatch<'m, T> {
    addresses: Memory,
    shape: [usize; 3],
    count: usize,
    matrices: PhantomData<&'m [T]>,
}

/// A [`PointerBatch`] whose matrices are borrowed for writing.
pub struct PointerBatchMut<'m, T> {
    batch: PointerBatch<'m, T>,
    exclusive: PhantomData<&'m mut [T]>,
}

impl<'m, T: Scalar> PointerBatch<'m, T> {
    /// Makes a batch of matrices with the same shape, leading dimension and stream.
    ///
    /// A matrix may occur several times. The array is copied to the device here.
    ///
    /// # Errors
    ///
    /// - [`Error::NoMatrices`] for an empty batch.
    /// - [`Error::Shape`], [`Error::PlannedLd`], [`Error::WrongDevice`] or [`Error::WrongStream`]
    ///   if a matrix differs from the first.
    /// - [`Error::NestedBatch`] or [`Error::Transposed`] for such a view.
    /// - [`Error::Driver`].
    pub fn new(matrices: &[DeviceMatrixRef<'m, T>]) -> Result<Self, Error> {
        let Some(first) = matrices.first() else { return Err(Error::NoMatrices) };
        let what = "a matrix of the batch";
        let (shape, planned) = ([first.rows(), first.cols()], first.ld());
        let stream = first.stream();
        matrices.iter().try_for_each(DeviceMatrixRef::expect_one)?;
        if matrices.iter().any(|matrix| matrix.is_transposed()) {
            return Err(Error::Transposed);
        }
        let mut addresses = Vec::with_capacity(matrices.len());
        for matrix in matrices {
            Error::expect_shape(what, [matrix.rows(), matrix.cols()], shape)?;
            let ld = matrix.ld();
            if ld != planned {
                return Err(Error::PlannedLd { what, ld, planned });
            }
            stream.expect(what, matrix.stream())?;
            addresses.push(matrix.address());
        }
        // Two words per address.
        let memory = Memory::uninitialized(stream, 2 * addresses.len())?;
        let _exclusive = stream.exclusive();
        // SAFETY: the memory has room for them, and the copy is waited for.
        let copied = unsafe { copy_from_host(stream, memory.address(), &addresses) };
        stream.synchronize().and(copied)?;
        let shape = [shape[0], shape[1], planned];
        Ok(Self { addresses: memory, shape, count: matrices.len(), matrices: PhantomData })
    }

    /// The number of matrices.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Rows, columns and leading dimension of each matrix.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// The stream that uses the matrices.
    pub fn stream(&self) -> &Stream {
        self.addresses.stream()
    }

    /// The array in place of a batch of matrices, which lie so.
    pub(crate) fn operand(&self, transposed: bool) -> Result<OperandRef<'_>, Error> {
        let [rows, cols, ld] = self.shape;
        let one = OperandRef::new(self.stream(), T::ELEMENT, self.address(), [rows, cols], ld);
        let all = one.broadcast(self.count)?;
        Ok(if transposed { all.t() } else { all })
    }

    /// The address of the array.
    pub fn address(&self) -> u64 {
        self.addresses.address()
    }
}

impl<'m, T: Scalar> PointerBatchMut<'m, T> {
    /// Makes a batch for writing: see [`PointerBatch::new`].
    ///
    /// # Errors
    ///
    /// See [`PointerBatch::new`].
    pub fn new(matrices: Vec<DeviceMatrixMut<'m, T>>) -> Result<Self, Error> {
        let views: Vec<_> = matrices.into_iter().map(DeviceMatrixMut::into_view).collect();
        Ok(Self { batch: PointerBatch::new(&views)?, exclusive: PhantomData })
    }

    /// The batch, for reading.
    pub fn view(&self) -> &PointerBatch<'m, T> {
        &self.batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, DeviceChoice, DeviceMatrix};

    #[test]
    fn matrices_of_a_batch_are_alike() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let elsewhere = Device::open(DeviceChoice::Soft).unwrap();
        let other = Stream::new(&device).unwrap();
        let mut first = DeviceMatrix::<f32>::zeros(&device, [2, 3]).unwrap();
        let mut wide = DeviceMatrix::<f32>::zeros(&device, [2, 4]).unwrap();
        let mut on_other = DeviceMatrix::<f32>::zeros(&other, [2, 3]).unwrap();
        let far = DeviceMatrix::<f32>::zeros(&elsewhere, [2, 3]).unwrap();

        let view = first.view();
        assert_eq!(PointerBatch::new(&[view, view]).unwrap().shape(), [2, 3, 3]);
        let refused = |second| PointerBatch::new(&[view, second]).err().unwrap();
        let other_ld = refused(wide.submatrix(0..2, 0..3).unwrap());
        assert!(matches!(other_ld, Error::PlannedLd { ld: 4, planned: 3, .. }), "{other_ld}");
        let other_shape = refused(wide.view());
        assert!(matches!(other_shape, Error::Shape { cols: 4, need_cols: 3, .. }));
        assert!(matches!(refused(on_other.view()), Error::WrongStream { .. }));
        assert!(matches!(refused(far.view()), Error::WrongDevice { .. }));

        let part = wide.submatrix_mut(0..2, 0..3).unwrap();
        let other_ld = PointerBatchMut::new(vec![first.view_mut(), part]);
        assert!(matches!(other_ld, Err(Error::PlannedLd { ld: 4, planned: 3, .. })));
        let other_stream = PointerBatchMut::new(vec![first.view_mut(), on_other.view_mut()]);
        assert!(matches!(other_stream, Err(Error::WrongStream { .. })));
    }
}
