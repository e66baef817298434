//! The form in which a kernel computes a product.

use kernels_gpu::abi::{KernelAbi, KernelDescriptor, Reads};

use super::operation::Gemm;

/// Elements of 16 bytes, on which rows begin that bulk copies reach.
const QUAD: usize = 4;

/// A product as a kernel computes it: `C = A * B`, or `C^T = B^T * A^T` for a kernel that stores C as its
/// transpose, where that saves copies of operands, or tiles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelForm {
    /// The product, with A and B as the kernel takes them. C has this one's leading dimension and
    /// stride.
    pub(crate) gemm: Gemm,
    /// Whether A and B have changed places, and C lies as the transpose of what is computed.
    pub(crate) transposes_c: bool,
}

impl KernelForm {
    pub(crate) fn new(gemm: &Gemm, descriptor: &KernelDescriptor) -> Self {
        let gemm = with_rows(gemm.canonical(), descriptor);
        let direct = Self { gemm, transposes_c: false };
        if !descriptor.transposes_c() {
            return direct;
        }
        let other = Gemm {
            m: gemm.n,
            n: gemm.m,
            trans_a: !gemm.trans_b,
            trans_b: !gemm.trans_a,
            lda: gemm.ldb,
            ldb: gemm.lda,
            stride_a: gemm.stride_b,
            stride_b: gemm.stride_a,
            ..gemm
        };
        let other = match descriptor.abi().has_tensor_maps() {
            true => with_rows(other.with_plain_vectors(), descriptor),
            false => other,
        };
        let other = Self { gemm: other, transposes_c: true };
        let cost = |form: &Self| {
            let copied = form.reads(descriptor).map(|reads| reads == Reads::Copied);
            let [rows, cols] =
                [descriptor.tile().bm, descriptor.tile().bn].map(|size| size as usize);
            // Sizes fit 31 bits, or are refused.
            let tiles = form.gemm.m.div_ceil(rows) as u128 * form.gemm.n.div_ceil(cols) as u128;
            match descriptor.abi() {
                // The operand of few rows takes little to copy; of as many tiles, the form that copies less.
                KernelAbi::Tf32SplitK => {
                    let sizes = [form.gemm.m, form.gemm.n].into_iter().zip(copied);
                    let sizes = sizes.filter(|(_, is_copied)| *is_copied);
                    (tiles, sizes.map(|(size, _)| size as u128).sum())
                }
                _ => (copied.map(u128::from).into_iter().sum(), tiles),
            }
        };
        if cost(&other) < cost(&direct) { other } else { direct }
    }

    /// How the kernel reads A and B.
    pub(crate) fn reads(&self, descriptor: &KernelDescriptor) -> [Reads; 2] {
        let Gemm { trans_a, trans_b, .. } = self.gemm;
        [descriptor.reads(false, trans_a), descriptor.reads(true, trans_b)]
    }

    /// Whether A and B have one column, which the kernel reads as a row of the transpose.
    pub(crate) fn are_columns(&self, descriptor: &KernelDescriptor) -> [bool; 2] {
        let has_one_column = [self.gemm.k == 1, self.gemm.n == 1];
        [0, 1].map(|i| has_one_column[i] && takes_columns_as_rows(descriptor, i == 1))
    }

    /// What belongs to A and B, in the order in which the kernel takes these.
    pub(crate) fn order<T>(&self, [a, b]: [T; 2]) -> [T; 2] {
        if self.transposes_c { [b, a] } else { [a, b] }
    }
}

/// Whether a kernel's bulk copies reach A, or B, if it lies as its transpose.
fn takes_columns_as_rows(descriptor: &KernelDescriptor, is_b: bool) -> bool {
    descriptor.abi().has_tensor_maps() && descriptor.reads(is_b, true) == Reads::Aligned
}

/// The same product with rows that bulk copies reach, if the kernel makes such: a column without gaps is a row of
/// its transpose, and of one row no other is reached by the leading dimension.
fn with_rows(gemm: Gemm, descriptor: &KernelDescriptor) -> Gemm {
    let Gemm { mut trans_a, mut trans_b, mut lda, mut ldb, .. } = gemm;
    if !descriptor.abi().has_tensor_maps() {
        return gemm;
    }
    trans_a |= gemm.k == 1 && lda == 1 && takes_columns_as_rows(descriptor, false);
    trans_b |= gemm.n == 1 && ldb == 1 && takes_columns_as_rows(descriptor, true);
    let [[rows_a, cols_a], [rows_b, cols_b], _] = Gemm { trans_a, trans_b, ..gemm }.shapes();
    if rows_a == 1 {
        lda = cols_a.next_multiple_of(QUAD);
    }
    if rows_b == 1 {
        ldb = cols_b.next_multiple_of(QUAD);
    }
    Gemm { trans_a, trans_b, lda, ldb, ..gemm }
}
