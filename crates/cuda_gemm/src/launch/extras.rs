//! What a call takes beside A, B and C.

use cust::memory::DevicePointer;
use gemm_matrix::Axis;
use kernels_gpu::abi::epilogue::{Parameters, operations};

use crate::error::Error;
use crate::gemm::Gemm;
use crate::matrix::{DeviceBatchRef, DeviceMatrixRef};
use crate::stream::Stream;

/// What a call takes beside A, B and C: what the [`Epilogue`](crate::Epilogue) reads, and alpha and
/// beta if they are in device memory. All of it is on the plan's stream, and of a batch it is one for
/// each product, or one for all.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Epilogue, Extras, Gemm, Matrix};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let one = DeviceMatrix::from_host(&device, &Matrix::from_vec(1, 1, vec![1.0]))?;
/// let factors = DeviceMatrix::from_host(&device, &Matrix::from_vec(1, 2, vec![5.0, 0.5]))?;
/// let [alpha, beta] = [factors.submatrix(0..1, 0..1)?, factors.submatrix(0..1, 1..2)?];
/// let mut c = DeviceMatrix::from_host(&device, &Matrix::from_vec(1, 1, vec![2.0]))?;
/// let gemm = Gemm::new(1, 1, 1).device_factors().then(Epilogue::new().residual());
/// let product = device.auto()?.prepare(gemm)?;
/// let extras = Extras::new().factors(alpha, beta).residual(&one);
/// product.enqueue_with(&one, &one, &mut c, extras)?;
/// assert_eq!(c.download()?.at(0, 0), 5.0 * 1.0 * 1.0 + 0.5 * 2.0 + 1.0);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras<'m> {
    scale: Option<DeviceBatchRef<'m>>,
    bias: Option<DeviceBatchRef<'m>>,
    residual: Option<DeviceBatchRef<'m>>,
    factors: Option<[DeviceMatrixRef<'m>; 2]>,
}

impl<'m> Extras<'m> {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A factor for each row or column of C: a row, or a column without gaps.
    #[must_use]
    pub fn scale(self, scale: impl Into<DeviceBatchRef<'m>>) -> Self {
        Self { scale: Some(scale.into()), ..self }
    }

    /// What is added to each row or column of C, likewise.
    #[must_use]
    pub fn bias(self, bias: impl Into<DeviceBatchRef<'m>>) -> Self {
        Self { bias: Some(bias.into()), ..self }
    }

    /// A matrix of C's shape that is added in the end, with any leading dimension.
    #[must_use]
    pub fn residual(self, residual: impl Into<DeviceBatchRef<'m>>) -> Self {
        Self { residual: Some(residual.into()), ..self }
    }

    /// Alpha and beta, matrices of one element.
    #[must_use]
    pub fn factors(self, alpha: DeviceMatrixRef<'m>, beta: DeviceMatrixRef<'m>) -> Self {
        Self { factors: Some([alpha, beta]), ..self }
    }

    /// Where the bias is, if there is one.
    pub fn bias_pointer(&self) -> Option<DevicePointer<f32>> {
        self.bias.map(|bias| bias.first().as_device_ptr())
    }

    /// Checks that this is what a product was prepared for, and returns its addresses.
    pub(super) fn checked(&self, stream: &Stream, gemm: &Gemm) -> Result<RawExtras, Error> {
        let vector = |what, given, axis: Option<Axis>| {
            let shape = axis.map(|axis| [1, axis.len(gemm.m, gemm.n)]);
            address(what, stream, gemm, given, shape)
        };
        let epilogue = &gemm.epilogue;
        let residual = epilogue.residual.then_some([gemm.m, gemm.n]);
        let factors = match (self.factors, gemm.factors_on_device) {
            (Some(factors), true) => {
                let one = |factor: DeviceMatrixRef<'m>| {
                    address("a factor", stream, gemm, Some(factor.into()), Some([1, 1]))
                };
                [one(factors[0])?.address, one(factors[1])?.address]
            }
            (None, false) => [DevicePointer::null(); 2],
            (given, _) => {
                return Err(Error::Extras { what: "the factors", is_missing: given.is_none() });
            }
        };
        Ok(RawExtras {
            scale: vector("the scale", self.scale, epilogue.scale)?,
            bias: vector("the bias", self.bias, epilogue.bias)?,
            residual: address("the residual", stream, gemm, self.residual, residual)?,
            alpha: factors[0],
            beta: factors[1],
        })
    }
}

/// Checks one of them against the shape that it should have, if it should be there.
fn address(
    what: &'static str,
    stream: &Stream,
    gemm: &Gemm,
    given: Option<DeviceBatchRef<'_>>,
    shape: Option<[usize; 2]>,
) -> Result<RawExtra, Error> {
    let (given, [need_rows, need_cols]) = match (given, shape) {
        (Some(given), Some(shape)) => (given, shape),
        (None, None) => return Ok(RawExtra::default()),
        (given, _) => return Err(Error::Extras { what, is_missing: given.is_none() }),
    };
    let matrix = given.first();
    stream.expect(what, matrix.stream())?;
    let (rows, cols) = (matrix.rows(), matrix.cols());
    // A column without gaps is a row.
    let is_column = need_rows == 1 && [rows, cols] == [need_cols, 1] && matrix.ld() == 1;
    if [rows, cols] != [need_rows, need_cols] && !is_column {
        return Err(Error::Shape { what, rows, cols, need_rows, need_cols });
    }
    if need_rows > 1 && matrix.ld() > crate::gemm::MAX_DIMENSION {
        let max = crate::gemm::MAX_DIMENSION;
        return Err(Error::TooLarge { what: "the residual's ld", value: matrix.ld(), max });
    }
    let (count, stride) = (given.count(), given.stride());
    if count != 1 && count != gemm.batch {
        let (planned_count, planned_stride) = (gemm.batch, stride);
        return Err(Error::PlannedBatch { what, count, stride, planned_count, planned_stride });
    }
    let stride = if count == 1 { 0 } else { stride };
    Ok(RawExtra { address: matrix.as_device_ptr(), ld: matrix.ld(), stride })
}

/// As [`Extras`], by bare addresses: for [`Plan::enqueue_raw_with`](super::Plan::enqueue_raw_with).
/// What the plan does not need is not looked at.
#[derive(Clone, Copy, Debug)]
pub struct RawExtras {
    /// A factor for each row or column of C.
    pub scale: RawExtra,
    /// What is added to each row or column.
    pub bias: RawExtra,
    /// A matrix of C's shape.
    pub residual: RawExtra,
    /// Alpha.
    pub alpha: DevicePointer<f32>,
    /// Beta.
    pub beta: DevicePointer<f32>,
}

/// One of the [`RawExtras`].
#[derive(Clone, Copy, Debug)]
pub struct RawExtra {
    /// The first element.
    pub address: DevicePointer<f32>,
    /// The leading dimension of a matrix.
    pub ld: usize,
    /// Elements from one product's to the next one's; 0 if all have the same.
    pub stride: usize,
}

impl Default for RawExtra {
    fn default() -> Self {
        Self { address: DevicePointer::null(), ld: 0, stride: 0 }
    }
}

impl Default for RawExtras {
    fn default() -> Self {
        let (none, null) = (RawExtra::default(), DevicePointer::null());
        Self { scale: none, bias: none, residual: none, alpha: null, beta: null }
    }
}

impl RawExtras {
    /// As a kernel takes them for a launch, whose first element of C and first product these are.
    pub(super) fn parameters(
        &self,
        gemm: &Gemm,
        [row, col]: [usize; 2],
        product: usize,
    ) -> Parameters {
        let factors = match (gemm.factors_on_device, gemm.depth()) {
            (false, _) => 0,
            (true, 0) => operations::DEVICE_FACTORS | operations::NO_SUM,
            (true, _) => operations::DEVICE_FACTORS,
        };
        let at = |extra: RawExtra, offset: usize| {
            let offset = extra.stride.wrapping_mul(product).wrapping_add(offset);
            // What is not there is not read.
            (extra.address.as_raw().wrapping_add(4 * offset as u64)) as *const f32
        };
        let vector = |extra: RawExtra, axis: Option<Axis>| {
            at(extra, axis.map_or(0, |axis| axis.len(row, col)))
        };
        let Self { scale, bias, residual, alpha, beta } = *self;
        Parameters {
            operations: gemm.epilogue.operations() | factors,
            // It fits: it was checked, or the caller vouches for it.
            ld_residual: residual.ld as u32,
            alpha: alpha.as_ptr(),
            beta: beta.as_ptr(),
            scale: vector(scale, gemm.epilogue.scale),
            bias: vector(bias, gemm.epilogue.bias),
            residual: at(residual, row.wrapping_mul(residual.ld).wrapping_add(col)),
            stride_scale: scale.stride as u64,
            stride_bias: bias.stride as u64,
            stride_residual: residual.stride as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, DeviceChoice, DeviceMatrix, Epilogue};

    const BIAS: Epilogue = Epilogue::new().bias(Axis::Column);
    const SCALE: Epilogue = Epilogue::new().scale(Axis::Row);
    const RESIDUAL: Epilogue = Epilogue::new().residual();

    #[test]
    fn a_batch_is_one_for_each_product_or_one_for_all() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let stream = device.stream();
        let gemm = Gemm::new(2, 3, 4).stacked(3);
        let biases = DeviceMatrix::zeros(&device, 6, 3).unwrap();
        for (epilogue, rows) in [(BIAS, 1), (RESIDUAL, 2)] {
            let check = |count: usize| {
                let part = biases.submatrix(0..count * rows, 0..3).unwrap();
                let part = part.split_rows(count).unwrap();
                let extras = match epilogue.residual {
                    true => Extras::new().residual(part),
                    false => Extras::new().bias(part),
                };
                extras.checked(&stream, &gemm.then(epilogue))
            };
            check(1).unwrap();
            check(3).unwrap();
            let refused = check(2).unwrap_err();
            let is_right =
                matches!(refused, Error::PlannedBatch { count: 2, planned_count: 3, .. });
            assert!(is_right, "{refused}");
        }
    }

    #[test]
    fn all_are_on_the_stream() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let (stream, other) = (device.stream(), Stream::new(&device).unwrap());
        let gemm = Gemm::new(2, 3, 4);
        let [here, there] = [&stream, &other].map(|on| DeviceMatrix::zeros(on, 2, 3).unwrap());
        let [row, there_row] = [&here, &there].map(|of| of.submatrix(0..1, 0..3).unwrap());
        let [one, there_one] = [&here, &there].map(|of| of.submatrix(0..1, 0..1).unwrap());

        let check = |gemm: Gemm, extras: Extras<'_>| extras.checked(&stream, &gemm);
        check(gemm.then(BIAS), Extras::new().bias(row)).unwrap();
        check(gemm.then(RESIDUAL), Extras::new().residual(&here)).unwrap();
        check(gemm.device_factors(), Extras::new().factors(one, one)).unwrap();
        for (gemm, extras, wrong) in [
            (gemm.then(BIAS), Extras::new().bias(there_row), "the bias"),
            (gemm.then(RESIDUAL), Extras::new().residual(&there), "the residual"),
            (gemm.device_factors(), Extras::new().factors(there_one, one), "a factor"),
            (gemm.device_factors(), Extras::new().factors(one, there_one), "a factor"),
        ] {
            let refused = check(gemm, extras).unwrap_err();
            assert!(matches!(refused, Error::WrongStream { what } if what == wrong), "{refused}");
        }
    }

    #[test]
    fn a_column_has_no_gaps() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let stream = device.stream();
        for (epilogue, len) in [(BIAS, 3), (SCALE, 2)] {
            let gemm = Gemm::new(2, 3, 4).then(epilogue);
            let check = |cols| {
                let matrix = DeviceMatrix::zeros(&device, len, cols).unwrap();
                let column = matrix.submatrix(0..len, 0..1).unwrap();
                let extras = match epilogue.bias {
                    Some(_) => Extras::new().bias(column),
                    None => Extras::new().scale(column),
                };
                extras.checked(&stream, &gemm)
            };
            check(1).unwrap();
            let refused = check(2).unwrap_err();
            assert!(matches!(refused, Error::Shape { cols: 1, .. }), "{refused}");
        }
    }
}
