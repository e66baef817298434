//! The baseline, with which kernels are compared: cuBLAS.

use gemm_bench::Error as BenchError;
use host::verify::{Check, Reference};
use host::{Device, Error};

use super::buffers::RotatingBuffers;
use super::candidate::{Candidate, Job, KernelArg, Loaded, is_refusal};
use super::stdio;

/// cuBLAS, unless this machine has none, which is said.
pub fn load(device: &Device) -> Result<Option<Loaded>, Error> {
    match KernelArg::Cublas.load(device, None) {
        Ok(loaded) => Ok(loaded.into_iter().next()),
        Err(
            error @ Error::Bench(
                BenchError::CublasNotFound { .. }
                | BenchError::CublasBroken { .. }
                | BenchError::CublasNeedsGpu,
            ),
        ) => {
            stdio::say(format_args!("warning: nothing is compared with cuBLAS: {error}"));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// cuBLAS for one shape: what it computes, and how far off that is.
pub struct Baseline<'e> {
    pub job: &'e Job,
    pub check: Check,
}

impl<'e> Baseline<'e> {
    /// What cuBLAS computes, checked; says why not if there is nothing to compare with.
    pub fn new(
        candidate: &'e Candidate,
        buffers: &mut RotatingBuffers,
        reference: &Reference<'_>,
    ) -> Result<Option<Self>, Error> {
        let reason = match &candidate.job {
            Ok(job) => match buffers.result(job) {
                Ok(result) => {
                    let check = reference.check(&result)?;
                    if check.passed() {
                        return Ok(Some(Self { job, check }));
                    }
                    "cuBLAS: the result is wrong".to_owned()
                }
                Err(error) if is_refusal(&error) => error.to_string(),
                Err(error) => return Err(error),
            },
            Err(reason) => reason.clone(),
        };
        stdio::say(format_args!("warning: this shape is not compared: {reason}"));
        Ok(None)
    }
}
