//! The alignment of rows for 128-bit accesses.

use kernels_gpu::abi::{KernelDescriptor, Reads};
use kernels_gpu::utility::staging;

use super::form::KernelForm;
use crate::problem::Gemm;

/// Whether a kernel's first entry point accepts matrices at these addresses.
///
/// An operand with a copy counts as aligned.
pub(crate) fn is_aligned(
    descriptor: &KernelDescriptor,
    form: &KernelForm,
    addresses: [u64; 3],
    has_copy: [bool; 2],
) -> bool {
    let wide = wide_rows(&form.gemm, addresses);
    let reads = form.reads(descriptor);
    let operands = (0..2).all(|i| match reads[i] {
        _ if has_copy[i] => true,
        Reads::Aligned => wide[i],
        Reads::Unaligned => false,
        Reads::Anywhere | Reads::Copied => true,
    });
    let stores_wide = descriptor.unaligned().is_some_and(|unaligned| unaligned.vectorized[2]);
    operands && (wide[2] || !stores_wide)
}

/// Whether all rows of A, B and C are aligned for 128-bit accesses.
pub(crate) fn wide_rows(gemm: &Gemm, addresses: [u64; 3]) -> [bool; 3] {
    let [[_, cols_a], [_, cols_b], [_, cols_c]] = Gemm { k: gemm.depth(), ..*gemm }.shapes();
    let rows = [(gemm.lda, cols_a), (gemm.ldb, cols_b), (gemm.ldc, cols_c)];
    core::array::from_fn(|i| {
        let (ld, cols) = rows[i];
        let are_wide = [ld, cols, gemm.strides()[i]].iter().all(|count| count.is_multiple_of(4));
        // The host does not know the addresses in a batch of pointers.
        !gemm.has_pointers() && addresses[i].is_multiple_of(16) && are_wide
    })
}

/// Bytes of a vector of 128 bits, and of a cache line.
const VECTOR_BYTES: u64 = 16;
const LINE: u64 = 128;

/// Copies of transposes fill whole tiles.
const _: () = assert!((4 * staging::TRANSPOSE_TILE as u64).is_multiple_of(LINE));

/// Bytes of a row from which copies align rows to cache lines.
///
/// Padding to the end of a line then costs less than rows that begin within a line. Bulk copies of
/// 4096 x 4100 f32 elements took 5 % longer than of 4096 x 4128 (H200).
const LONG_ROW: u64 = 16 * LINE;

/// The leading dimension of a copy with rows of `cols` elements.
///
/// Rows begin on 16 bytes, and long rows on cache lines. `bytes` is the size of an element.
pub(crate) fn copy_ld(cols: u64, bytes: u64) -> u64 {
    let unit = if cols * bytes < LONG_ROW { VECTOR_BYTES } else { LINE };
    cols.next_multiple_of(unit / bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::find_kernel;

    #[test]
    fn rows_of_copies_begin_on_vectors_and_long_ones_on_lines() {
        for (cols, bytes, ld) in [
            (1, 4, 4),
            (8, 4, 8),
            (511, 4, 512),
            (513, 4, 544),
            (4097, 4, 4128),
            (4128, 4, 4128),
            (i32::MAX as u64, 4, 1 << 31),
            (9, 2, 16),
            (1025, 2, 1088),
        ] {
            assert_eq!(copy_ld(cols, bytes), ld, "{cols} of {bytes} bytes");
        }
    }

    #[test]
    fn alignment_is_of_everything() {
        let gemm = Gemm::new(5, 8, 12);
        assert_eq!(wide_rows(&gemm, [16, 256, 0]), [true; 3]);
        for i in 0..3 {
            let mut addresses = [0; 3];
            addresses[i] = 8;
            let mut expected = [true; 3];
            expected[i] = false;
            assert_eq!(wide_rows(&gemm, addresses), expected);
        }
        for (gemm, expected) in [
            (Gemm::new(5, 9, 12), [true, false, false]),
            (Gemm::new(5, 8, 13), [false, true, true]),
            (gemm.leading_dimensions(14, 8, 8), [false, true, true]),
            (gemm.transposed(true, true), [false, true, true]),
            (gemm.batched(2, [60, 98, 40]), [true, false, true]),
            (gemm.batched_pointers(2), [false; 3]),
            // Nothing is summed, so rows of A are not read and may have any length.
            (Gemm::new(5, 8, 13).scaled(0.0, 1.0).leading_dimensions(16, 8, 8), [true; 3]),
        ] {
            assert_eq!(wide_rows(&gemm, [0; 3]), expected, "{gemm:?}");
        }
    }

    #[test]
    fn alignment_is_of_what_is_wide() {
        let serves = |name, gemm: Gemm, has_copy| {
            let descriptor = find_kernel(name).unwrap();
            is_aligned(descriptor, &KernelForm::new(&gemm, descriptor), [0; 3], has_copy)
        };
        let neither = [false; 2];
        // The first entry point accepts any plain A, an aligned transposed A, and no transposed B.
        assert!(serves("tile_64x64", Gemm::new(5, 8, 13), neither));
        assert!(!serves("tile_64x64", Gemm::new(5, 7, 12), neither));
        assert!(serves("tile_64x64", Gemm::new(5, 7, 12), [false, true]));
        assert!(serves("tile_64x64", Gemm::new(8, 8, 13).transposed(true, false), neither));
        assert!(!serves("tile_64x64", Gemm::new(9, 8, 12).transposed(true, false), neither));
        assert!(!serves("tile_64x64", Gemm::new(8, 8, 8).transposed(false, true), neither));
        assert!(serves("tile_64x64", Gemm::new(8, 8, 8).transposed(false, true), [false, true]));
        // A has one row: B as stored is A of the transposed product.
        assert!(serves("skinny_n_32x1", Gemm::new(1, 9, 12).transposed(false, true), neither));
        assert!(!serves("skinny_n_32x1", Gemm::new(1, 8, 13).transposed(false, true), neither));
        assert!(!serves("warptile", Gemm::new(8, 8, 13), neither));
        assert!(!serves("warptile", Gemm::new(8, 9, 16).transposed(true, true), neither));
        assert!(serves("outer_32x64", Gemm::new(5, 7, 11).transposed(true, false), neither));
    }
}
