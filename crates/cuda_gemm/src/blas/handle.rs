//! The state that BLAS calls share.

use std::fmt;

use gemm_matrix::Element;

use super::arguments::{Factor, by_the_callers_names};
use crate::device::{Device, Stream};
use crate::error::Error;
use crate::plan::{self, PlanCache, RawExtras, Variant, of_any_factors};
use crate::problem::{Compute, Gemm, expect_finite};
use crate::select::Auto;

/// The most plans that a [`Handle`] keeps; one more first drops all of them.
pub const MAX_PLANS: usize = plan::MAX_PLANS;

/// The state that calls share: a stream, the choice of kernels, and plans.
///
/// ```
/// use cuda_gemm::blas::{Handle, Op, sgemm};
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let mut handle = Handle::new(&device)?;
/// // Columns of A: (1, 2), (3, 4), (5, 6); of B: (1, 0, 1), (0, 2, 0).
/// let numbers = |numbers: &[f32]| {
///     DeviceMatrix::from_slice(&device, [1, numbers.len()], numbers)
/// };
/// let a = numbers(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let b = numbers(&[1.0, 0.0, 1.0, 0.0, 2.0, 0.0])?;
/// let c = numbers(&[0.0; 4])?;
/// let (m, n, k) = (2, 2, 3);
/// let [pa, pb, pc] = [&a, &b, &c].map(DeviceMatrix::as_device_ptr);
/// // SAFETY: the matrices have these sizes, and nothing else uses them.
/// unsafe {
///     sgemm(&mut handle, Op::None, Op::None, m, n, k, 1.0, pa, m, pb, k, 0.0, pc, m)?;
/// }
/// assert_eq!(c.to_vec()?, [6.0, 8.0, 6.0, 8.0]);
/// // SAFETY: it is refused.
/// let refused = unsafe {
///     sgemm(&mut handle, Op::None, Op::None, m, n, k, 1.0, pa, 1, pb, k, 0.0, pc, m)
/// };
/// assert_eq!(refused.unwrap_err().to_string(), "sgemm: lda, parameter 8, is 1; it must be at least 2");
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
pub struct Handle {
    auto: Auto,
    stream: Stream,
    compute: Compute,
    plans: PlanCache,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Handle {
    /// Creates a handle for calls on the device's own stream.
    ///
    /// # Errors
    ///
    /// See [`Device::auto`].
    pub fn new(device: &Device) -> Result<Self, Error> {
        Self::on(&device.stream())
    }

    /// Creates a handle for calls on this stream.
    ///
    /// # Errors
    ///
    /// See [`Device::auto`].
    pub fn on(stream: &Stream) -> Result<Self, Error> {
        let auto = stream.device().auto()?;
        let compute = Compute::F32;
        Ok(Self { auto, stream: stream.clone(), compute, plans: PlanCache::default() })
    }

    /// The stream that calls enqueue on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Sets the precision of the `sgemm` routines from now on.
    ///
    /// [`Compute::F32`] is the default; the others are [`Compute::Tf32x3`] and [`Compute::Tf32`].
    ///
    /// # Errors
    ///
    /// [`Error::Compute`] if `compute` is for matrices of another type.
    pub fn compute_f32_in(&mut self, compute: Compute) -> Result<(), Error> {
        if compute.element() != Element::F32 {
            let reason = "`sgemm` multiplies f32 matrices; for 16 bits use `gemm_ex`".to_owned();
            return Err(compute.refused(reason));
        }
        self.compute = compute;
        Ok(())
    }

    /// The precision of the `sgemm` routines.
    pub(super) fn f32_compute(&self) -> Compute {
        self.compute
    }

    /// The number of cached plans.
    pub fn plans(&self) -> usize {
        self.plans.len()
    }

    /// Enqueues a product of row-major matrices at these addresses, with a cached or a new plan.
    ///
    /// # Safety
    ///
    /// The contract of [`Plan::run_raw`](crate::Plan::run_raw).
    pub(super) unsafe fn enqueue(
        &mut self,
        gemm: Gemm,
        [alpha, beta]: [Factor; 2],
        addresses: [u64; 3],
    ) -> Result<(), Error> {
        if gemm.batch == 0 {
            return Ok(());
        }
        let (gemm, factors, extras) = match (alpha, beta) {
            (Factor::Host(alpha), Factor::Host(beta)) => {
                expect_finite([alpha, beta])?;
                let no_sum = alpha == 0.0 || gemm.k == 0;
                if gemm.m == 0 || gemm.n == 0 || no_sum && beta == 1.0 {
                    return Ok(());
                }
                let gemm = of_any_factors(gemm.scaled(alpha, beta));
                (gemm, [alpha, beta], RawExtras::default())
            }
            (Factor::Device(alpha), Factor::Device(beta)) => (
                gemm.device_factors(),
                [1.0; 2],
                RawExtras { alpha: alpha.as_raw(), beta: beta.as_raw(), ..Default::default() },
            ),
            _ => return Err(Error::MixedFactors),
        };
        // A plan for misaligned operands may need memory for copies. The alignment of the matrices
        // in a batch of pointers is unknown.
        let is_aligned = gemm.has_pointers() || (addresses[0] | addresses[1]).is_multiple_of(16);
        let stream = self.stream.as_raw().0 as usize;
        let variant = Variant { stream, is_aligned, is_measured: false, whole: None };
        let core = match self.plans.find(&gemm, variant) {
            Some(core) => core,
            None => {
                let candidates = self.stream.device().measured_candidates();
                let builder = self.auto.plan_on(gemm, &self.stream, candidates);
                let builder = builder.map_err(by_the_callers_names)?;
                let prepared = self.plans.prepare(&gemm, variant, builder);
                prepared.map_err(by_the_callers_names)?
            }
        };
        // SAFETY: the caller's contract; factors are 0 where the plan's are.
        unsafe { core.enqueue(addresses, extras, factors) }
    }
}
