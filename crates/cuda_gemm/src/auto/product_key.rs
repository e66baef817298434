//! Which products are alike, so that what was measured of one holds for the other.

use crate::gemm::{Compute, Gemm};
use crate::launch::wide_rows;

/// What products have in common that take as long as each other: whatever alpha, beta, the epilogue, the type of C and the leading
/// dimensions are, as long as rows begin on 16 bytes where those of dense matrices do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ProductKey {
    compute: Compute,
    sizes: [usize; 3],
    transposed: [bool; 2],
    batch: usize,
}

impl ProductKey {
    /// That of a product, if it is like one of dense matrices; batches share neither A nor B.
    pub(super) fn of(gemm: &Gemm) -> Option<Self> {
        let gemm = gemm.canonical();
        let Gemm { m, n, k, trans_a, trans_b, batch, compute, .. } = gemm;
        let dense = Gemm::new(m, n, k).transposed(trans_a, trans_b).computed_in(compute);
        let dense = if batch == 1 { dense } else { dense.stacked(batch) };
        let is_shared = |gemm: &Gemm| gemm.strides().map(|stride| gemm.batch > 1 && stride == 0);
        let is_alike = gemm.depth() == k
            && !gemm.pointers
            && is_shared(&gemm) == is_shared(&dense)
            && has_vectors(&gemm) == has_vectors(&dense);
        is_alike.then_some(Self {
            compute,
            sizes: [m, n, k],
            transposed: [trans_a, trans_b],
            batch,
        })
    }
}

/// Which of A, B and C, of f32, have rows of whole vectors of 16 bytes, if the first one begins on one; and in 16 bits, of which of A and B
/// all rows begin on one, as bulk copies need it.
fn has_vectors(gemm: &Gemm) -> [bool; 3] {
    if gemm.compute.input().is_none() {
        return wide_rows(gemm, [0; 3]);
    }
    let [stride_a, stride_b, _] = gemm.strides();
    let begin = |ld: usize, stride: usize| {
        ld.is_multiple_of(8) && (gemm.batch == 1 || stride.is_multiple_of(8))
    };
    [begin(gemm.lda, stride_a), begin(gemm.ldb, stride_b), true]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_alike_whose_rows_begin_alike() {
        let key = |gemm: Gemm| ProductKey::of(&gemm);
        for compute in [Compute::F32, Compute::Tf32, Compute::Bf16] {
            let gemm = Gemm::new(64, 40, 32).computed_in(compute).transposed(false, true);
            let own = key(gemm);
            assert!(own.is_some());
            assert_eq!(own, key(gemm.scaled(2.0, 1.0)));
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
                gemm.scaled(0.0, 1.0),
                gemm.batched(2, [64 * 32, 0, 64 * 41]),
                gemm.batched_pointers(2),
            ] {
                assert_eq!(key(other), None, "{other:?}");
            }
            // Rows of dense matrices that begin anywhere; in 16 bits the same matrices may have rows that do not.
            let odd = Gemm::new(64, 40, 33).computed_in(compute).transposed(false, true);
            assert!(key(odd).is_some());
            let padded = key(odd.leading_dimensions(40, 40, 40));
            assert_eq!(padded.is_none(), compute == Compute::Bf16);
        }
        // Products that share B and follow each other are one.
        let rows = Gemm::new(64, 40, 32);
        assert_eq!(key(rows), key(Gemm::new(8, 40, 32).batched(8, [8 * 32, 0, 8 * 40])));
        // A vector has no other transpose.
        let column = Gemm::new(5, 1, 8);
        assert_eq!(key(column), key(column.transposed(false, true)));
    }
}
