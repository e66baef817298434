//! The inputs of a call beside A, B and C.

use gemm_matrix::Axis;
use kernels_gpu::abi::epilogue::{Parameters, operations};

use crate::device::Stream;
use crate::error::Error;
use crate::matrix::{DeviceMatrixRef, GroupEnds};
use crate::problem::{Gemm, MAX_DIMENSION};

/// The inputs of a call beside A, B and C.
///
/// These are the inputs of the [`Epilogue`](crate::Epilogue), and alpha and beta if they are in
/// device memory. All are on the plan's stream. A batch has one of each per product, or one for
/// all.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Epilogue, Extras, Gemm};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let one = DeviceMatrix::from_slice(&device, [1, 1], &[1f32])?;
/// let factors = DeviceMatrix::from_slice(&device, [1, 2], &[5f32, 0.5])?;
/// let [alpha, beta] = [factors.submatrix(0..1, 0..1)?, factors.submatrix(0..1, 1..2)?];
/// let mut c = DeviceMatrix::from_slice(&device, [1, 1], &[2f32])?;
/// let gemm = Gemm::new(1, 1, 1).device_factors().then(Epilogue::new().residual());
/// let product = device.auto()?.prepare(gemm)?;
/// let extras = Extras::new().factors(alpha, beta).residual(&one);
/// product.run_with(&one, &one, &mut c, extras)?;
/// assert_eq!(c.to_vec()?, [5.0 * 1.0 * 1.0 + 0.5 * 2.0 + 1.0]);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras<'m> {
    scale: Option<DeviceMatrixRef<'m, f32>>,
    bias: Option<DeviceMatrixRef<'m, f32>>,
    residual: Option<DeviceMatrixRef<'m, f32>>,
    factors: Option<[DeviceMatrixRef<'m, f32>; 2]>,
    ends: Option<&'m GroupEnds>,
}

impl<'m> Extras<'m> {
    /// No inputs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a factor for each row or column of C: a row, or a column without gaps.
    #[must_use]
    pub fn scale(self, scale: impl Into<DeviceMatrixRef<'m, f32>>) -> Self {
        Self { scale: Some(scale.into()), ..self }
    }

    /// Sets a summand for each row or column of C: a row, or a column without gaps.
    #[must_use]
    pub fn bias(self, bias: impl Into<DeviceMatrixRef<'m, f32>>) -> Self {
        Self { bias: Some(bias.into()), ..self }
    }

    /// Sets a matrix of C's shape, added last, with any leading dimension.
    #[must_use]
    pub fn residual(self, residual: impl Into<DeviceMatrixRef<'m, f32>>) -> Self {
        Self { residual: Some(residual.into()), ..self }
    }

    /// Sets alpha and beta, matrices of one element.
    #[must_use]
    pub fn factors(self, alpha: DeviceMatrixRef<'m, f32>, beta: DeviceMatrixRef<'m, f32>) -> Self {
        Self { factors: Some([alpha, beta]), ..self }
    }

    /// Sets where the groups of a [grouped product](Gemm::grouped) end.
    #[must_use]
    pub fn groups(self, ends: &'m GroupEnds) -> Self {
        Self { ends: Some(ends), ..self }
    }

    /// The address of the bias, if there is one.
    pub fn bias_address(&self) -> Option<u64> {
        self.bias.map(|bias| bias.address())
    }

    /// Checks the inputs against the prepared product, and returns their addresses.
    pub(crate) fn checked(&self, stream: &Stream, gemm: &Gemm) -> Result<RawExtras, Error> {
        let vector = |what, given, axis: Option<Axis>| {
            let shape = axis.map(|axis| [1, axis.len(gemm.m, gemm.n)]);
            address(what, stream, gemm, given, shape)
        };
        let epilogue = &gemm.epilogue;
        let residual = epilogue.residual.then_some([gemm.m, gemm.n]);
        let factors = match (self.factors, gemm.factors_on_device) {
            (Some(factors), true) => {
                let one = |factor: DeviceMatrixRef<'m, f32>| {
                    address("a factor", stream, gemm, Some(factor), Some([1, 1]))
                };
                [one(factors[0])?.address, one(factors[1])?.address]
            }
            (None, false) => [0; 2],
            (given, _) => {
                return Err(Error::Extras { what: "the factors", is_missing: given.is_none() });
            }
        };
        Ok(RawExtras {
            ends: self.checked_ends(stream, gemm)?,
            scale: vector("the scale", self.scale, epilogue.scale)?,
            bias: vector("the bias", self.bias, epilogue.bias)?,
            residual: address("the residual", stream, gemm, self.residual, residual)?,
            alpha: factors[0],
            beta: factors[1],
        })
    }

    /// The address of the ends, which are there exactly if the product is grouped.
    fn checked_ends(&self, stream: &Stream, gemm: &Gemm) -> Result<u64, Error> {
        let what = "the ends of groups";
        match (self.ends, gemm.is_grouped()) {
            (None, false) => Ok(0),
            (Some(ends), true) => {
                stream.expect(what, ends.stream())?;
                if ends.count() != gemm.batch {
                    return Err(Error::GroupCount { count: ends.count(), groups: gemm.batch });
                }
                Ok(ends.address())
            }
            (given, _) => Err(Error::Extras { what, is_missing: given.is_none() }),
        }
    }
}

/// Checks that an input is present exactly if it is needed, and has the right shape.
fn address(
    what: &'static str,
    stream: &Stream,
    gemm: &Gemm,
    given: Option<DeviceMatrixRef<'_, f32>>,
    shape: Option<[usize; 2]>,
) -> Result<RawExtra, Error> {
    let (given, [need_rows, need_cols]) = match (given, shape) {
        (Some(given), Some(shape)) => (given, shape),
        (None, None) => return Ok(RawExtra::default()),
        (given, _) => return Err(Error::Extras { what, is_missing: given.is_none() }),
    };
    stream.expect(what, given.stream())?;
    let (rows, cols) = (given.rows(), given.cols());
    if given.is_transposed() {
        return Err(Error::Transposed);
    }
    // A column without gaps is a row.
    let is_column = need_rows == 1 && [rows, cols] == [need_cols, 1] && given.ld() == 1;
    if !is_column {
        Error::expect_shape(what, [rows, cols], [need_rows, need_cols])?;
    }
    if need_rows > 1 && given.ld() > MAX_DIMENSION {
        let (value, max) = (given.ld(), MAX_DIMENSION);
        return Err(Error::TooLarge { what: "the residual's ld", value, max });
    }
    let (count, stride) = (given.count(), given.stride());
    if count != 1 && count != gemm.batch {
        let (planned_count, planned_stride) = (gemm.batch, stride);
        return Err(Error::PlannedBatch { what, count, stride, planned_count, planned_stride });
    }
    let stride = if count == 1 { 0 } else { stride };
    Ok(RawExtra { address: given.address(), ld: given.ld(), stride })
}

/// The addresses of [`Extras`], for [`Plan::run_raw`](super::Plan::run_raw).
///
/// Inputs that the plan does not need are ignored.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawExtras {
    /// A factor for each row or column of C.
    pub scale: RawExtra,
    /// A summand for each row or column of C.
    pub bias: RawExtra,
    /// A matrix of C's shape.
    pub residual: RawExtra,
    /// The address of alpha.
    pub alpha: u64,
    /// The address of beta.
    pub beta: u64,
    /// The address of the ends of groups, as many `u32` as there are groups.
    pub ends: u64,
}

/// One of the [`RawExtras`].
#[derive(Clone, Copy, Debug, Default)]
pub struct RawExtra {
    /// The address of the first element.
    pub address: u64,
    /// The leading dimension of a matrix.
    pub ld: usize,
    /// Elements from one product's input to the next; 0 if all share one.
    pub stride: usize,
}

impl RawExtras {
    /// Checks that every needed input has an address.
    pub(super) fn expect(&self, gemm: &Gemm) -> Result<(), Error> {
        let (epilogue, on_device) = (&gemm.epilogue, gemm.factors_on_device);
        let missing = [
            ("the scale", epilogue.scale.is_some(), self.scale.address),
            ("the bias", epilogue.bias.is_some(), self.bias.address),
            ("the residual", epilogue.residual, self.residual.address),
            ("the factors", on_device, self.alpha.min(self.beta)),
            ("the ends of groups", gemm.is_grouped(), self.ends),
        ]
        .into_iter()
        .find(|(_, is_needed, address)| *is_needed && *address == 0);
        // Nothing is read for an empty C.
        let is_empty = gemm.m == 0 || gemm.n == 0 || gemm.batch == 0;
        match missing.filter(|_| !is_empty) {
            Some((what, ..)) => Err(Error::Extras { what, is_missing: true }),
            None => Ok(()),
        }
    }

    /// The kernel parameters of a launch that begins at this element of C and this product.
    pub(crate) fn parameters(
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
            // An absent input is not read.
            extra.address.wrapping_add(4 * offset as u64) as *const f32
        };
        let vector = |extra: RawExtra, axis: Option<Axis>| {
            at(extra, axis.map_or(0, |axis| axis.len(row, col)))
        };
        let Self { scale, bias, residual, alpha, beta, .. } = *self;
        Parameters {
            operations: gemm.epilogue.operations() | factors,
            // Fits: it was checked, or the caller vouches for it.
            ld_residual: residual.ld as u32,
            alpha: alpha as *const f32,
            beta: beta as *const f32,
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
        let biases = DeviceMatrix::<f32>::zeros(&device, [6, 3]).unwrap();
        for (epilogue, rows) in [(BIAS, 1), (RESIDUAL, 2)] {
            let check = |count: usize| {
                let part = biases.submatrix(0..count * rows, 0..3).unwrap();
                let part = part.batch(count).unwrap();
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
        let [here, there] =
            [&stream, &other].map(|on| DeviceMatrix::<f32>::zeros(on, [2, 3]).unwrap());
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
                let matrix = DeviceMatrix::<f32>::zeros(&device, [len, cols]).unwrap();
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
