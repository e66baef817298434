//! Batches whose matrices lie anywhere: arrays of addresses in device memory.

use std::marker::PhantomData;

use cust::memory::DevicePointer;

use super::memory::{Memory, copy_from_host};
use super::view::{DeviceMatrixMut, DeviceMatrixRef};
use crate::error::Error;
use crate::stream::Stream;

/// Matrices of one shape that lie anywhere in a device's memory, borrowed: what a
/// [batch of pointers](crate::Gemm::batched_pointers) takes. It has their addresses in an array on the
/// device, and can be used for any number of calls.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Extras, Gemm, Matrix, PointerBatch, PointerBatchMut};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let number = |x| DeviceMatrix::from_host(&device, &Matrix::from_vec(1, 1, vec![x]));
/// let (two, three) = (number(2.0)?, number(3.0)?);
/// let [mut x, mut y] = [number(0.0)?, number(0.0)?];
/// // x = 2 * 3 and y = 3 * 3.
/// let a = PointerBatch::new(&[two.view(), three.view()])?;
/// let b = PointerBatch::new(&[three.view(), three.view()])?;
/// let mut c = PointerBatchMut::new(vec![x.view_mut(), y.view_mut()])?;
/// let plan = device.auto()?.prepare(Gemm::new(1, 1, 1).batched_pointers(2))?;
/// plan.enqueue_pointers(&a, &b, &mut c, Extras::new())?;
/// drop(c);
/// assert_eq!([x.download()?.at(0, 0), y.download()?.at(0, 0)], [6.0, 9.0]);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
pub struct PointerBatch<'m> {
    addresses: Memory,
    shape: [usize; 3],
    count: usize,
    matrices: PhantomData<&'m [f32]>,
}

/// Matrices of one shape that lie anywhere in a device's memory, borrowed to be written: see
/// [`PointerBatch`].
pub struct PointerBatchMut<'m> {
    batch: PointerBatch<'m>,
    exclusive: PhantomData<&'m mut [f32]>,
}

impl<'m> PointerBatch<'m> {
    /// Of matrices that have one shape, one leading dimension and one stream; a matrix may be there
    /// several times. The array is copied to the device here.
    ///
    /// # Errors
    ///
    /// [`Error::NoMatrices`]; [`Error::Shape`], [`Error::PlannedLd`], [`Error::WrongDevice`] or
    /// [`Error::WrongStream`] if one is unlike the first; [`Error::Driver`].
    pub fn new(matrices: &[DeviceMatrixRef<'m>]) -> Result<Self, Error> {
        let Some(first) = matrices.first() else { return Err(Error::NoMatrices) };
        let what = "a matrix of the batch";
        let [need_rows, need_cols, planned] = [first.rows(), first.cols(), first.ld()];
        let stream = first.stream();
        let mut addresses = Vec::with_capacity(matrices.len());
        for matrix in matrices {
            let [rows, cols, ld] = [matrix.rows(), matrix.cols(), matrix.ld()];
            if [rows, cols] != [need_rows, need_cols] {
                return Err(Error::Shape { what, rows, cols, need_rows, need_cols });
            }
            if ld != planned {
                return Err(Error::PlannedLd { what, ld, planned });
            }
            stream.expect(what, matrix.stream())?;
            addresses.push(matrix.as_device_ptr().as_raw());
        }
        // Two words for each.
        let memory = Memory::uninitialized(stream, 2 * addresses.len())?;
        let _exclusive = stream.exclusive();
        // SAFETY: the memory has room for them, and the copy is waited for.
        let copied = unsafe { copy_from_host(stream, memory.address(), &addresses) };
        stream.synchronize().and(copied)?;
        let shape = [need_rows, need_cols, planned];
        Ok(Self { addresses: memory, shape, count: matrices.len(), matrices: PhantomData })
    }

    /// How many matrices there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Rows, columns and the leading dimension of each.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// The stream that uses them.
    pub fn stream(&self) -> &Stream {
        self.addresses.stream()
    }

    /// The address of the array.
    pub fn as_device_ptr(&self) -> DevicePointer<f32> {
        DevicePointer::from_raw(self.addresses.address())
    }
}

impl<'m> PointerBatchMut<'m> {
    /// As [`PointerBatch::new`], to be written.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn new(matrices: Vec<DeviceMatrixMut<'m>>) -> Result<Self, Error> {
        let views: Vec<_> = matrices.into_iter().map(DeviceMatrixMut::into_view).collect();
        Ok(Self { batch: PointerBatch::new(&views)?, exclusive: PhantomData })
    }

    /// The same batch, to be read.
    pub fn view(&self) -> &PointerBatch<'m> {
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
        let mut first = DeviceMatrix::zeros(&device, 2, 3).unwrap();
        let mut wide = DeviceMatrix::zeros(&device, 2, 4).unwrap();
        let mut on_other = DeviceMatrix::zeros(&other, 2, 3).unwrap();
        let far = DeviceMatrix::zeros(&elsewhere, 2, 3).unwrap();

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
