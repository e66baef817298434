//! Which rows 128-bit accesses reach.

use crate::gemm::Gemm;

/// Whether 128-bit accesses reach every row of those matrices, at these addresses, of which a
/// rung makes such: see `KernelDescriptor::unaligned`. Of a transposed operand it gets a copy, whose
/// rows they reach.
pub(crate) fn is_aligned(wide: [bool; 3], gemm: &Gemm, addresses: [u64; 3]) -> bool {
    let gemm = gemm.canonical();
    let rows = [(gemm.lda, gemm.depth()), (gemm.ldb, gemm.n), (gemm.ldc, gemm.n)];
    let is_copied = [gemm.trans_a, gemm.trans_b, false];
    (0..3).all(|i| {
        // Nobody on the host knows where a batch of pointers lies.
        let is_wide = !gemm.pointers
            && is_wide(addresses[i], rows[i].0, rows[i].1)
            && gemm.strides()[i].is_multiple_of(4);
        !wide[i] || is_copied[i] || is_wide
    })
}

/// Whether 128-bit accesses reach every row of `cols` elements, `ld` apart, if the first is at
/// this address.
pub(super) fn is_wide(address: u64, ld: usize, cols: usize) -> bool {
    address.is_multiple_of(16) && ld.is_multiple_of(4) && cols.is_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignment_is_of_everything() {
        let gemm = Gemm::new(5, 8, 12);
        let all = [true; 3];
        assert!(is_aligned(all, &gemm, [16, 256, 0]));
        for bad in [[4, 0, 0], [0, 8, 0], [0, 0, 12]] {
            assert!(!is_aligned(all, &gemm, bad));
        }
        for bad in [Gemm::new(5, 9, 12), Gemm::new(5, 8, 13), gemm.strided(14, 8, 8)] {
            assert!(!is_aligned(all, &bad, [0; 3]));
        }
        // Where nothing is summed, rows of A and B are not read, whatever their length.
        assert!(is_aligned(all, &Gemm::new(5, 8, 13).scaled(0.0, 1.0).strided(16, 8, 8), [0; 3]));
    }

    #[test]
    fn alignment_is_of_what_is_wide() {
        let b = [false, true, false];
        assert!(is_aligned(b, &Gemm::new(5, 8, 13).strided(13, 8, 9), [4, 16, 4]));
        assert!(!is_aligned(b, &Gemm::new(5, 8, 13), [0, 4, 0]));
        assert!(!is_aligned(b, &Gemm::new(5, 7, 12).strided(12, 8, 8), [0; 3]));
        assert!(is_aligned([false; 3], &Gemm::new(5, 7, 11), [4; 3]));
        let all = [true; 3];
        let batch = |stride| Gemm::new(5, 8, 12).batched(2, [0, stride, 40]);
        assert!(is_aligned(all, &batch(96), [0; 3]) && !is_aligned(all, &batch(98), [0; 3]));
        assert!(is_aligned(all, &Gemm::new(5, 8, 13).transposed(true, false), [4, 16, 16]));
        assert!(!is_aligned(all, &Gemm::new(5, 8, 13).transposed(false, true), [16; 3]));
    }
}
