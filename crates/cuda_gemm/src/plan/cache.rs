//! Plans kept for later calls.

use std::collections::HashMap;
use std::sync::Arc;

use gemm_matrix::Element;

use super::builder::PlanBuilder;
use super::planned::{Core, Plan};
use crate::error::Error;
use crate::problem::{Batching, Compute, Epilogue, Gemm};

/// The most plans that are kept.
pub(crate) const MAX_PLANS: usize = 1024;

/// Plans by their products. All are dropped if there are too many, or if memory runs short.
#[derive(Default)]
pub(crate) struct PlanCache(HashMap<Key, Arc<Core>>);

/// The properties that calls of one plan share: its variant, sizes and flags, precision, type of C
/// and epilogue.
type Key = (Variant, [usize; 10], [bool; 5], Batching, Compute, Element, Epilogue);

/// What tells plans of one product apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Variant {
    /// The stream, by its address in the driver.
    pub(crate) stream: usize,
    /// Whether A and B begin on 16 bytes.
    pub(crate) is_aligned: bool,
    /// Whether the product was to be measured.
    pub(crate) is_measured: bool,
    /// Rows and columns of the C that the kernel is chosen for, if not the product's own.
    pub(crate) whole: Option<[usize; 2]>,
}

/// The key of a product. Alpha and beta matter only in being 0 or not.
fn key(gemm: &Gemm, variant: Variant) -> Key {
    let Gemm { m, n, k, lda, ldb, ldc, batch, compute, output, epilogue, .. } = *gemm;
    let Gemm { trans_a, trans_b, batching, factors_on_device, alpha, beta, .. } = *gemm;
    let [stride_a, stride_b, stride_c] = gemm.strides();
    let sizes = [m, n, k, lda, ldb, ldc, batch, stride_a, stride_b, stride_c];
    let flags = [trans_a, trans_b, factors_on_device, alpha == 0.0, beta == 0.0];
    (variant, sizes, flags, batching, compute, output, epilogue)
}

/// The product with nonzero factors set to 1, as the key of its plan.
pub(crate) fn of_any_factors(gemm: Gemm) -> Gemm {
    let one = |factor: f32| if factor == 0.0 { 0.0 } else { 1.0 };
    if gemm.factors_on_device { gemm } else { gemm.scaled(one(gemm.alpha), one(gemm.beta)) }
}

impl PlanCache {
    /// The number of plans.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The plan of a product, if it exists.
    pub(crate) fn find(&self, gemm: &Gemm, variant: Variant) -> Option<Arc<Core>> {
        self.0.get(&key(gemm, variant)).cloned()
    }

    /// Prepares a plan and keeps it.
    pub(crate) fn prepare(
        &mut self,
        gemm: &Gemm,
        variant: Variant,
        builder: PlanBuilder,
    ) -> Result<Arc<Core>, Error> {
        let builder = if variant.is_aligned { builder } else { builder.any_alignment() };
        let Plan { core, .. } = match builder.clone().prepare() {
            // The other plans' memory may no longer be needed.
            Err(Error::DeviceMemory { .. }) if !self.0.is_empty() => {
                self.0.clear();
                builder.prepare()?
            }
            prepared => prepared?,
        };
        if self.0.len() == MAX_PLANS {
            self.0.clear();
        }
        self.0.insert(key(gemm, variant), Arc::clone(&core));
        Ok(core)
    }
}
