//! The form in which a kernel computes a product.

use kernels_gpu::abi::groups::most_tiles;
use kernels_gpu::abi::{Arithmetic, KernelAbi, KernelDescriptor, Reads, Tile};

use super::configuration::Configuration;
use crate::problem::Gemm;

/// A product as a kernel computes it: `C = A * B` or `C^T = B^T * A^T`.
///
/// The second form is for kernels that store C transposed. A configuration chooses it, or else it
/// must save copies or tiles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelForm {
    /// The product, with A and B in the kernel's order. C has its leading dimension and stride.
    pub(crate) gemm: Gemm,
    /// Whether A and B are exchanged, and C is stored as the transpose of the result.
    pub(crate) transposes_c: bool,
}

impl KernelForm {
    /// The form that saves copies or tiles.
    pub(crate) fn new(gemm: &Gemm, descriptor: &KernelDescriptor) -> Self {
        Self::oriented(gemm, descriptor, None)
    }

    /// The form of a configuration: see [`Configuration::transposes_c`].
    pub(crate) fn of(gemm: &Gemm, configuration: &Configuration) -> Self {
        Self::oriented(gemm, configuration.kernel, configuration.transposes_c)
    }

    /// Both forms for a kernel of clusters, the one that saves tiles first. Otherwise the only one.
    pub(crate) fn both(gemm: &Gemm, descriptor: &KernelDescriptor) -> Vec<Self> {
        let first = Self::new(gemm, descriptor);
        let mut forms = vec![first];
        if descriptor.abi() == KernelAbi::WgmmaClusters {
            forms.push(Self::oriented(gemm, descriptor, Some(!first.transposes_c)));
        }
        forms
    }

    fn oriented(gemm: &Gemm, descriptor: &KernelDescriptor, transposes_c: Option<bool>) -> Self {
        if descriptor.arithmetic() == Arithmetic::Bits16 {
            return Self::of_16_bits(gemm, descriptor, transposes_c);
        }
        let gemm = with_rows(gemm.canonical(), descriptor);
        let direct = Self { gemm, transposes_c: false };
        if !descriptor.transposes_c() {
            return direct;
        }
        let other = swapped(&gemm);
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
                // A copy of few rows is cheap. At equal tiles, the form that copies less wins.
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

    /// The form for a kernel of 16-bit operands, which has an entry point for each storage layout.
    fn of_16_bits(gemm: &Gemm, descriptor: &KernelDescriptor, transposes_c: Option<bool>) -> Self {
        let tiles = |gemm: &Gemm| tiles(gemm, descriptor.tile());
        let other = swapped(gemm);
        let transposes_c = descriptor.transposes_c()
            && transposes_c.unwrap_or_else(|| tiles(&other) < tiles(gemm));
        let mut gemm = if transposes_c { other } else { *gemm };
        if descriptor.takes_transposes() {
            let [a, b, _] = gemm.shapes();
            // Entry points for groups take no transposed A.
            if !gemm.is_grouped() {
                (gemm.trans_a, gemm.lda) = as_row(gemm.trans_a, a, gemm.lda);
            }
            (gemm.trans_b, gemm.ldb) = as_row(gemm.trans_b, b, gemm.ldb);
        }
        Self { gemm, transposes_c }
    }

    /// What [`Configuration::transposes_c`] says of this form of a product.
    pub(crate) fn orientation(&self, gemm: &Gemm, descriptor: &KernelDescriptor) -> Option<bool> {
        let usual = Self::new(gemm, descriptor).transposes_c;
        (self.transposes_c != usual).then_some(self.transposes_c)
    }

    /// The kernel's accesses to A and B.
    pub(crate) fn reads(&self, descriptor: &KernelDescriptor) -> [Reads; 2] {
        let Gemm { trans_a, trans_b, .. } = self.gemm;
        [descriptor.reads(false, trans_a), descriptor.reads(true, trans_b)]
    }

    /// Whether A and B have one column, which the kernel reads as a row of the transpose.
    pub(crate) fn are_columns(&self, descriptor: &KernelDescriptor) -> [bool; 2] {
        let has_one_column = [self.gemm.k == 1, self.gemm.n == 1];
        [0, 1].map(|i| has_one_column[i] && takes_columns_as_rows(descriptor, i == 1))
    }

    /// Puts the values for A and B in the kernel's order.
    pub(crate) fn order<T>(&self, [a, b]: [T; 2]) -> [T; 2] {
        if self.transposes_c { [b, a] } else { [a, b] }
    }
}

/// The product of the transposes: `C^T = B^T * A^T`.
fn swapped(gemm: &Gemm) -> Gemm {
    Gemm {
        m: gemm.n,
        n: gemm.m,
        trans_a: !gemm.trans_b,
        trans_b: !gemm.trans_a,
        lda: gemm.ldb,
        ldb: gemm.lda,
        stride_a: gemm.stride_b,
        stride_b: gemm.stride_a,
        ..*gemm
    }
}

/// The tiles of C in the form of the launches.
///
/// Groups have at most as many.
pub(crate) fn tiles(gemm: &Gemm, Tile { bm, bn, .. }: Tile) -> u64 {
    let along = |size: usize, tile: u32| (size as u64).div_ceil(tile.into());
    let rows = match gemm.is_grouped() {
        true => most_tiles(gemm.m as u64, gemm.batch as u64, bm.into()),
        false => along(gemm.m, bm),
    };
    rows.saturating_mul(along(gemm.n, bn))
}

/// The transposition and leading dimension with which bulk copies can read a 16-bit operand.
///
/// A column without gaps is a row of the transpose. A single row does not use its leading
/// dimension.
fn as_row(transposed: bool, [rows, cols]: [usize; 2], ld: usize) -> (bool, usize) {
    match [rows, cols] {
        [1, _] => (transposed, cols.next_multiple_of(8)),
        [_, 1] if ld == 1 => (!transposed, rows.next_multiple_of(8)),
        _ => (transposed, ld),
    }
}

/// Whether a kernel's bulk copies can read a transposed A or B.
fn takes_columns_as_rows(descriptor: &KernelDescriptor, is_b: bool) -> bool {
    descriptor.abi().has_tensor_maps() && descriptor.reads(is_b, true) == Reads::Aligned
}

/// The product with rows that bulk copies can read, if the kernel uses them.
///
/// A column without gaps is a row of the transpose. A single row does not use its leading
/// dimension.
fn with_rows(gemm: Gemm, descriptor: &KernelDescriptor) -> Gemm {
    let Gemm { mut trans_a, mut trans_b, mut lda, mut ldb, .. } = gemm;
    if !descriptor.abi().has_tensor_maps() {
        return gemm;
    }
    trans_a |= gemm.k == 1 && lda == 1 && takes_columns_as_rows(descriptor, false);
    trans_b |= gemm.n == 1 && ldb == 1 && takes_columns_as_rows(descriptor, true);
    let [[rows_a, cols_a], [rows_b, cols_b], _] = Gemm { trans_a, trans_b, ..gemm }.shapes();
    if rows_a == 1 {
        lda = cols_a.next_multiple_of(4);
    }
    if rows_b == 1 {
        ldb = cols_b.next_multiple_of(4);
    }
    Gemm { trans_a, trans_b, lda, ldb, ..gemm }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels_gpu::{f32_kernels, kernels};

    /// The place of an element of op(A) or op(B) in memory.
    fn place(transposed: bool, ld: usize, row: usize, col: usize) -> usize {
        if transposed { col * ld + row } else { row * ld + col }
    }

    fn places(gemm: &Gemm) -> [Vec<usize>; 2] {
        let Gemm { m, n, k, trans_a, trans_b, lda, ldb, .. } = *gemm;
        let all = |rows: usize, cols: usize, transposed: bool, ld: usize| {
            let place = move |i: usize| place(transposed, ld, i / cols, i % cols);
            (0..rows * cols).map(place).collect()
        };
        [all(m, k, trans_a, lda), all(k, n, trans_b, ldb)]
    }

    fn products() -> impl Iterator<Item = Gemm> {
        let sizes = [1, 2, 5];
        let shapes = sizes.into_iter().flat_map(move |m| {
            sizes.into_iter().flat_map(move |n| sizes.into_iter().map(move |k| Gemm::new(m, n, k)))
        });
        let layouts = shapes.flat_map(|gemm| {
            let layouts = [[false, false], [true, false], [false, true], [true, true]];
            layouts.into_iter().map(move |[a, b]| gemm.transposed(a, b))
        });
        layouts.flat_map(|gemm| {
            [0, 3].map(|gap| gemm.leading_dimensions(gemm.lda + gap, gemm.ldb + gap, gemm.ldc))
        })
    }

    /// A vector may be read as a row or as a column, with another leading dimension.
    #[test]
    fn every_element_stays_where_it_lies() {
        for gemm in products() {
            for kernel in kernels() {
                let form = KernelForm::new(&gemm, kernel);
                let given = if form.transposes_c { swapped(&gemm) } else { gemm };
                assert_eq!(places(&form.gemm), places(&given), "{}: {gemm:?}", kernel.name());
            }
        }
    }

    /// Else it would be copied first: bulk copies read no column of single elements.
    #[test]
    fn a_column_without_gaps_is_read_as_a_row() {
        for gemm in products() {
            for kernel in f32_kernels() {
                let form = KernelForm::new(&gemm, kernel);
                let Gemm { trans_a, trans_b, lda, ldb, .. } = form.gemm;
                let lies = [(trans_a, lda), (trans_b, ldb)].into_iter();
                for ((is_row, ld), is_column) in lies.zip(form.are_columns(kernel)) {
                    assert!(!is_column || is_row || ld > 1, "{}: {gemm:?}", kernel.name());
                }
            }
        }
    }
}
