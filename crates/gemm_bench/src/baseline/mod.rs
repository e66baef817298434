//! cuBLAS, the baseline for kernels.

pub mod cublas;
mod cublas_lt;
pub mod cublas_product;
mod epilogue_pass;

use std::sync::Arc;

use cuda_gemm::Device;
use gemm_verify::Check;

use crate::buffers::RotatingBuffers;
use crate::candidate::{Loaded, Selection};
use crate::error::Error;
use crate::job::{Candidate, Job};
use crate::operands::Products;

/// Loads cuBLAS, or returns the reason why this machine has none.
///
/// # Errors
///
/// The errors of [`Cublas::open`](crate::Cublas::open) that are not about its place: an environment
/// that lowers the precision below f32, or a failed call.
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice};
///
/// # fn main() -> Result<(), gemm_bench::Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// let missing = gemm_bench::baseline::load(&device)?.err().expect("it runs on GPUs");
/// assert!(missing.is_of_cublas());
/// # Ok(())
/// # }
/// ```
pub fn load(device: &Device) -> Result<Result<Loaded, Error>, Error> {
    match Selection::Cublas.load(device, None) {
        Ok(loaded) => Ok(Ok(loaded.into_iter().next().expect("one was asked for"))),
        Err(
            missing @ (Error::CublasNotFound { .. }
            | Error::CublasBroken { .. }
            | Error::CublasNeedsGpu),
        ) => Ok(Err(missing)),
        Err(error) => Err(error),
    }
}

/// The baseline's result for one product, and its error.
///
/// Any candidate can be the baseline. This example uses a kernel of the ladder:
///
/// ```
/// use cuda_gemm::{Device, DeviceChoice, Gemm};
/// use gemm_bench::{Baseline, KernelOptions, Operands, RotatingBuffers, Selection};
/// use gemm_verify::Bound;
///
/// # fn main() -> Result<(), gemm_bench::Error> {
/// let device = Device::open(DeviceChoice::Soft)?;
/// let gemm = Gemm::new(20, 30, 10);
/// let operands = Operands::random(&gemm, 1);
/// let reference = operands.reference(Bound::Probabilistic, 1)?;
/// let mut buffers = RotatingBuffers::new(&device, &operands, 1)?;
///
/// let loaded = Selection::parse("tile2d")?.load(&device, None)?;
/// let all = Selection::All(gemm.compute);
/// let candidate = loaded[0].prepare(gemm, KernelOptions::default(), all)?;
/// let Ok(baseline) = Baseline::new(&candidate, &mut buffers, &reference)? else { panic!() };
/// assert!(baseline.check.rms_error().is_some_and(|error| error < 1e-6));
/// # Ok(())
/// # }
/// ```
pub struct Baseline<'e> {
    /// The job of the baseline.
    pub job: &'e Job,
    /// Its result, compared with the product in f64.
    pub check: Check,
}

/// The reason of [`Baseline::new`] for comparing nothing.
#[derive(Clone, Debug)]
pub enum NotCompared {
    /// cuBLAS cannot run the product.
    Refused(Arc<Error>),
    /// The result of cuBLAS is wrong.
    Wrong,
}

impl<'e> Baseline<'e> {
    /// Runs and checks cuBLAS, or returns the reason why there is nothing to compare with.
    ///
    /// # Errors
    ///
    /// A fault of the kernel, after which nothing runs.
    pub fn new(
        candidate: &'e Candidate,
        buffers: &mut RotatingBuffers,
        reference: &Products<'_>,
    ) -> Result<Result<Self, NotCompared>, Error> {
        let job = match &candidate.job {
            Ok(job) => job,
            Err(reason) => return Ok(Err(NotCompared::Refused(Arc::clone(reason)))),
        };
        let result = match buffers.result(job, reference.operands().c()) {
            Ok(result) => result,
            Err(error) if error.is_refusal() => {
                return Ok(Err(NotCompared::Refused(Arc::new(error))));
            }
            Err(error) => return Err(error),
        };
        let check = reference.check_unrounded(&result)?;
        Ok(if check.passed() { Ok(Self { job, check }) } else { Err(NotCompared::Wrong) })
    }
}
