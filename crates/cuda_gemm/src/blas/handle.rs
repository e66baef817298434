//! What calls share.

use std::collections::HashMap;
use std::fmt;

use gemm_matrix::Element;

use super::arguments::{Factor, by_the_callers_names};
use crate::auto::Auto;
use crate::device::Device;
use crate::error::Error;
use crate::gemm::{Compute, Gemm};
use crate::launch::{Product, RawExtras};
use crate::stream::Stream;

/// Plans that a [`Handle`] keeps; with one more it begins anew.
pub const MAX_PLANS: usize = 1024;

/// What calls share: a stream, the choice of kernels, and plans.
///
/// ```
/// use cuda_gemm::blas::{Handle, Op, sgemm};
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Matrix};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let mut handle = Handle::new(&device)?;
/// // Columns of A: (1, 2), (3, 4), (5, 6); of B: (1, 0, 1), (0, 2, 0).
/// let numbers = |numbers: &[f32]| {
///     DeviceMatrix::from_host(&device, &Matrix::from_vec(1, numbers.len(), numbers.to_vec()))
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
/// assert_eq!(c.download()?.as_slice(), [6.0, 8.0, 6.0, 8.0]);
/// // SAFETY: it is refused.
/// let refused = unsafe {
///     sgemm(&mut handle, Op::None, Op::None, m, n, k, 1.0, pa, 1, pb, k, 0.0, pc, m)
/// };
/// assert_eq!(refused.unwrap_err().to_string(), "sgemm: lda, parameter 8, is 1; it must be 2 at least");
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
pub struct Handle {
    auto: Auto,
    stream: Stream,
    compute: Compute,
    plans: HashMap<Key, Product>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("stream", &self.stream).finish_non_exhaustive()
    }
}

/// What plans differ by: all of a product but its factors, of which is told whether they are 0.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    sizes: [usize; 10],
    flags: [bool; 7],
    compute: Compute,
    output: Element,
}

impl Handle {
    /// For calls that go to the device's own stream.
    ///
    /// # Errors
    ///
    /// Those of [`Device::auto`].
    pub fn new(device: &Device) -> Result<Self, Error> {
        Self::on(&device.stream())
    }

    /// For calls that go to this stream.
    ///
    /// # Errors
    ///
    /// Those of [`Device::auto`].
    pub fn on(stream: &Stream) -> Result<Self, Error> {
        let auto = stream.device().auto()?;
        let compute = Compute::F32;
        Ok(Self { auto, stream: stream.clone(), compute, plans: HashMap::new() })
    }

    /// The stream.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// In which precision the `sgemm` routines compute from now on: [`Compute::F32`], as at first,
    /// [`Compute::Tf32x3`] or [`Compute::Tf32`].
    ///
    /// # Errors
    ///
    /// [`Error::Compute`] for a precision of other matrices.
    pub fn compute_f32_in(&mut self, compute: Compute) -> Result<(), Error> {
        if compute.element() != Element::F32 {
            let reason = "its matrices are in 16 bits: use `gemm_ex`".to_owned();
            return Err(compute.refused(reason));
        }
        self.compute = compute;
        Ok(())
    }

    /// How the `sgemm` routines compute.
    pub(super) fn f32_compute(&self) -> Compute {
        self.compute
    }

    /// How many plans there are now.
    pub fn plans(&self) -> usize {
        self.plans.len()
    }

    /// Enqueues a product of row-major matrices at these addresses, by a plan that is there or is made.
    ///
    /// # Safety
    ///
    /// As for [`Plan::enqueue_raw_with`](crate::Plan::enqueue_raw_with), or
    /// [`TensorCorePlan::enqueue_raw_with`](crate::TensorCorePlan::enqueue_raw_with).
    pub(super) unsafe fn enqueue(
        &mut self,
        gemm: Gemm,
        [alpha, beta]: [Factor; 2],
        addresses: [u64; 3],
    ) -> Result<(), Error> {
        let (gemm, factors, extras) = match (alpha, beta) {
            (Factor::Host(alpha), Factor::Host(beta)) => {
                for (what, value) in [("alpha", alpha), ("beta", beta)] {
                    if !value.is_finite() {
                        return Err(Error::NotFinite { what, value });
                    }
                }
                let no_sum = alpha == 0.0 || gemm.k == 0;
                if gemm.m == 0 || gemm.n == 0 || no_sum && beta == 1.0 {
                    return Ok(());
                }
                let one = |factor: f32| if factor == 0.0 { 0.0 } else { 1.0 };
                (gemm.scaled(one(alpha), one(beta)), [alpha, beta], RawExtras::default())
            }
            (Factor::Device(alpha), Factor::Device(beta)) => {
                (gemm.device_factors(), [1.0; 2], RawExtras { alpha, beta, ..Default::default() })
            }
            _ => return Err(Error::MixedFactors),
        };
        // A plan for operands that are not aligned may need memory for copies of them.
        let is_aligned = is_aligned(&gemm, addresses);
        let Gemm { m, n, k, lda, ldb, ldc, batch, compute, output, .. } = gemm;
        let [stride_a, stride_b, stride_c] = gemm.strides();
        let key = Key {
            sizes: [m, n, k, lda, ldb, ldc, batch, stride_a, stride_b, stride_c],
            flags: [
                gemm.trans_a,
                gemm.trans_b,
                gemm.pointers,
                gemm.factors_on_device,
                gemm.alpha == 0.0,
                gemm.beta == 0.0,
                is_aligned,
            ],
            compute,
            output,
        };
        let product = match self.plans.get(&key) {
            Some(product) => product,
            None => {
                let prepare = || {
                    let builder = self.auto.product(gemm)?.on(&self.stream);
                    if is_aligned { builder } else { builder.any_alignment() }.prepare()
                };
                let product = match prepare() {
                    // Other plans have memory that nobody may need any more.
                    Err(Error::DeviceMemory { .. }) if !self.plans.is_empty() => {
                        self.plans.clear();
                        prepare()?
                    }
                    prepared => prepared.map_err(by_the_callers_names)?,
                };
                if self.plans.len() == MAX_PLANS {
                    self.plans.clear();
                }
                self.plans.entry(key).or_insert(product)
            }
        };
        // SAFETY: the caller's contract; factors are 0 where the plan's are.
        unsafe { product.enqueue_scaled(addresses, extras, factors) }
    }
}

/// Whether A and B begin on 16 bytes, and all their rows where a plan in 16 bits does not copy them for less.
fn is_aligned(gemm: &Gemm, [a, b, _]: [u64; 3]) -> bool {
    let is_half = gemm.compute.element() != Element::F32;
    let has_whole_vectors = [gemm.lda, gemm.ldb, gemm.stride_a, gemm.stride_b]
        .into_iter()
        .all(|elements| elements.is_multiple_of(8));
    gemm.pointers || (a | b).is_multiple_of(16) && (!is_half || has_whole_vectors)
}
