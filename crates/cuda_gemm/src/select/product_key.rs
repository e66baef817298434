//! Which products share a measurement.

use gemm_matrix::Element;

use crate::plan::wide_rows;
use crate::problem::{Batching, Compute, Gemm};

/// The properties of products that take equally long.
///
/// Alpha and beta do not matter, with two exceptions: alpha is not 0, and 16-bit kernels
/// distinguish a beta of 0. Leading dimensions matter only for the reach of 16-byte vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ProductKey {
    compute: Compute,
    sizes: [usize; 3],
    transposed: [bool; 2],
    batch: usize,
    store: Stored,
}

/// How C is stored. Only kernels for 16 bits depend on it. Others always have the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Stored {
    /// The type of C.
    pub(super) output: Element,
    /// Whether an old C is read.
    pub(super) reads_c: bool,
    /// Whether there is an epilogue.
    pub(super) has_epilogue: bool,
}

impl Stored {
    /// How a product stores C.
    pub(super) fn of(gemm: &Gemm) -> Self {
        match gemm.compute.is_16_bits() {
            false => Self::default(),
            true => Self {
                output: gemm.output,
                reads_c: gemm.factors_on_device || gemm.beta != 0.0,
                has_epilogue: !gemm.epilogue.is_none(),
            },
        }
    }
}

impl ProductKey {
    /// The key of a product. `None` if it is not like one of dense matrices.
    pub(super) fn of(gemm: &Gemm) -> Option<Self> {
        let store = Stored::of(gemm);
        let gemm = as_launched(gemm);
        let Gemm { m, n, k, trans_a, trans_b, batch, compute, .. } = gemm;
        let dense = dense([m, n, k], [trans_a, trans_b], batch, compute);
        // A vector with gaps may lie transposed, and one without does not.
        let is_itself = as_launched(&dense) == dense;
        let is_shared = |gemm: &Gemm| gemm.strides().map(|stride| gemm.batch > 1 && stride == 0);
        let is_alike = is_itself
            && gemm.depth() == k
            && gemm.batching == Batching::Strided
            && is_shared(&gemm) == is_shared(&dense)
            && vectors(&gemm) == vectors(&dense);
        let (sizes, transposed) = ([m, n, k], [trans_a, trans_b]);
        is_alike.then_some(Self { compute, sizes, transposed, batch, store })
    }

    /// The precision of the products.
    pub(super) fn compute(&self) -> Compute {
        self.compute
    }

    /// Replaces how C is stored.
    pub(super) fn stored(self, store: Stored) -> Self {
        Self { store, ..self }
    }
}

/// A product of dense matrices. A batch's matrices lie one below the other.
pub(super) fn dense(
    [m, n, k]: [usize; 3],
    [trans_a, trans_b]: [bool; 2],
    batch: usize,
    compute: Compute,
) -> Gemm {
    let gemm = Gemm::new(m, n, k).transposed(trans_a, trans_b).computed_in(compute);
    if batch == 1 { gemm } else { gemm.stacked(batch) }
}

/// The product as it is launched. Kernels for f32 matrices compute some products as others.
pub(super) fn as_launched(gemm: &Gemm) -> Gemm {
    if gemm.compute.is_16_bits() { *gemm } else { gemm.canonical() }
}

/// Which rows 16-byte vectors reach. The first row begins on 16 bytes.
///
/// - In f32: whether rows of A and B begin on 16 bytes, and whether vectors cover A, B and C.
/// - In 16 bits: whether rows of A, B and C begin on 16 bytes.
fn vectors(gemm: &Gemm) -> [bool; 5] {
    let [a, b, c] = gemm.rows_begin_on_16_bytes();
    match gemm.compute.is_16_bits() {
        false => {
            let [whole_a, whole_b, whole_c] = wide_rows(gemm, [0; 3]);
            [a, b, whole_a, whole_b, whole_c]
        }
        true => [a, b, false, false, c],
    }
}

#[cfg(test)]
mod tests {
    use gemm_matrix::Activation;

    use super::*;
    use crate::problem::Epilogue;

    #[test]
    fn products_are_alike_whose_rows_begin_alike() {
        let key = |gemm: Gemm| ProductKey::of(&gemm);
        for compute in [Compute::F32, Compute::Tf32, Compute::Bf16] {
            let gemm = Gemm::new(64, 40, 32).computed_in(compute).transposed(false, true);
            let own = key(gemm);
            assert!(own.is_some());
            assert_eq!(own, key(gemm.scaled(2.0, 0.0)));
            assert_eq!(own, key(gemm.leading_dimensions(48, 40, 56)));
            for other in [
                gemm.transposed(false, false),
                gemm.stacked(2),
                Gemm::new(64, 40, 24).transposed(false, true).computed_in(compute),
                gemm.computed_in(Compute::F16),
            ] {
                assert!(key(other).is_some() && key(other) != own, "{other:?}");
            }
            // Nothing like these was measured.
            for other in [
                gemm.leading_dimensions(33, 40, 40),
                gemm.leading_dimensions(32, 33, 40),
                gemm.leading_dimensions(32, 32, 41),
                gemm.scaled(0.0, 1.0),
                gemm.batched(2, [64 * 32, 0, 64 * 41]),
                gemm.batched_pointers(2),
            ] {
                assert_eq!(key(other), None, "{other:?}");
            }
            // Dense rows that begin anywhere, and padded rows that begin on 16 bytes.
            let odd = Gemm::new(64, 40, 33).computed_in(compute).transposed(false, true);
            assert!(key(odd).is_some());
            assert_eq!(key(odd.leading_dimensions(40, 40, 40)), None);
            // Only 16-bit kernels distinguish how C is stored.
            let is_of_16_bits = compute.is_16_bits();
            let epilogue = Epilogue::new().activation(Activation::Relu);
            for other in [gemm.scaled(1.0, 1.0), gemm.then(epilogue)] {
                assert_eq!(key(other) != own, is_of_16_bits, "{other:?}");
            }
            assert!(!is_of_16_bits || key(gemm.stored_as(compute.element())) != own);
            // Kernels for f32 compute these as one product, or as one that is not transposed.
            let rows = Gemm::new(64, 40, 32).computed_in(compute);
            let shared = Gemm::new(8, 40, 32).computed_in(compute);
            let shared = shared.batched(8, [8 * 32, 0, 8 * 40]);
            assert_eq!(key(shared).is_none(), is_of_16_bits);
            assert!(is_of_16_bits || key(shared) == key(rows));
            let column = Gemm::new(5, 1, 8).computed_in(compute);
            assert_eq!(key(column) != key(column.transposed(false, true)), is_of_16_bits);
            // A transposed row with gaps is not a row of a dense matrix.
            let gapped = Gemm::new(1, 40, 32).computed_in(compute).transposed(true, false);
            assert_eq!(key(gapped.leading_dimensions(8, 40, 40)), None);
        }
    }
}
