//! The operation: GEMM, as in BLAS.

use gemm_matrix::{Element, span};
use kernels_gpu::abi::{KernelAbi, KernelDescriptor};

use super::compute::Compute;
use super::epilogue::Epilogue;
use crate::error::Error;

/// The largest m, n, k or leading dimension.
///
/// Kernels have `u32` parameters for them, and indices of rows and columns must fit an `i32` on
/// every device.
pub const MAX_DIMENSION: usize = i32::MAX as usize;

/// The most elements that a batch spans: any device has less memory.
const MAX_REACH: usize = 1 << 48;

/// The product `C = alpha * op(A) * op(B) + beta * C` of row-major matrices.
///
/// op(A) is m x k, op(B) is k x n, and C is m x n. A is op(A), or with `trans_a` its transpose, k x
/// m. `trans_b` does this for B. Leading dimensions are in elements.
///
/// A column-major matrix is the transpose of a row-major one with the same leading dimension.
///
/// A batch has `batch` such products. In a strided batch, the matrices follow each other at strides
/// in memory. In a batch of pointers, their addresses are arbitrary. The products of a grouped one
/// differ in m.
///
/// An [`Epilogue`] changes each element before it is stored. A [`Compute`] is the precision, f32 by
/// default.
///
/// BLAS rules:
///
/// - With `beta == 0` C is not read.
/// - With `alpha == 0` or `k == 0` neither A nor B is read, and C becomes `beta * C`, or 0,
///   whatever the sign of alpha.
///
/// ```
/// use cuda_gemm::Gemm;
///
/// // A is 2 x 4; B is 4 x 3, with 8 elements from one row to the next; C is 2 x 3, and added to.
/// let gemm = Gemm::new(2, 3, 4).scaled(0.5, 1.0).leading_dimensions(4, 8, 3);
/// gemm.validate()?;
/// assert_eq!((gemm.depth(), gemm.flops()), (4, 2.0 * 2.0 * 3.0 * 4.0));
/// assert_eq!(gemm.bytes(), 4 * (2 * 4 + 4 * 3 + 2 * 3));
/// assert!(Gemm { ldb: 2, ..gemm }.validate().is_err());
///
/// // B as its transpose, 3 x 4.
/// let gemm = Gemm::new(2, 3, 4).transposed(false, true);
/// assert_eq!(gemm.shapes(), [[2, 4], [3, 4], [2, 3]]);
/// assert_eq!((gemm.lda, gemm.ldb, gemm.ldc), (4, 4, 3));
///
/// // Ten of these, one matrix after the other, and the same B for all.
/// let gemm = gemm.batched(10, [2 * 4, 0, 2 * 3]);
/// gemm.validate()?;
/// assert_eq!(gemm.flops(), 10.0 * 48.0);
/// assert!(gemm.batched(10, [8, 0, 5]).validate().is_err(), "one C overlaps the next");
/// assert_eq!(gemm.stacked(10).strides(), [8, 12, 6]);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gemm {
    /// Rows of op(A) and C.
    pub m: usize,
    /// Columns of op(B) and C.
    pub n: usize,
    /// Columns of op(A) and rows of op(B).
    pub k: usize,
    /// Whether A is the transpose of op(A), k x m.
    pub trans_a: bool,
    /// Whether B is the transpose of op(B), n x k.
    pub trans_b: bool,
    /// The factor of the product.
    pub alpha: f32,
    /// The factor of the old C.
    pub beta: f32,
    /// Leading dimension of A, at least its columns.
    pub lda: usize,
    /// Leading dimension of B, at least its columns.
    pub ldb: usize,
    /// Leading dimension of C, at least n.
    pub ldc: usize,
    /// The number of products.
    pub batch: usize,
    /// Elements from one product's A to the next; 0 if all share one.
    pub stride_a: usize,
    /// Elements from one product's B to the next; 0 if all share one.
    pub stride_b: usize,
    /// Elements from one product's C to the next; no two may overlap.
    pub stride_c: usize,
    /// Where the matrices of a batch are.
    pub batching: Batching,
    /// Whether alpha and beta are in device memory: see [`Gemm::device_factors`].
    pub factors_on_device: bool,
    /// The operations on an element before it is stored.
    pub epilogue: Epilogue,
    /// The precision of the product.
    pub compute: Compute,
    /// The element type of C: f32, or that of A and B.
    pub output: Element,
}

/// Where the matrices of a batch are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Batching {
    /// At strides.
    #[default]
    Strided,
    /// At arbitrary addresses, which are in arrays: see [`Gemm::batched_pointers`].
    Pointers,
    /// Groups of consecutive rows of A and C, of any number each: see [`Gemm::grouped`].
    Groups,
}

impl Gemm {
    /// `C = A * B` for dense matrices.
    pub const fn new(m: usize, n: usize, k: usize) -> Self {
        Self {
            m,
            n,
            k,
            trans_a: false,
            trans_b: false,
            alpha: 1.0,
            beta: 0.0,
            lda: k,
            ldb: n,
            ldc: n,
            batch: 1,
            stride_a: 0,
            stride_b: 0,
            stride_c: 0,
            batching: Batching::Strided,
            factors_on_device: false,
            epilogue: Epilogue::new(),
            compute: Compute::F32,
            output: Element::F32,
        }
    }

    /// Sets the precision.
    #[must_use]
    pub const fn computed_in(self, compute: Compute) -> Self {
        Self { compute, ..self }
    }

    /// Sets the element type of C, rounded to the nearest, ties to even.
    #[must_use]
    pub const fn stored_as(self, output: Element) -> Self {
        Self { output, ..self }
    }

    /// Sets the operations on each element before it is stored.
    #[must_use]
    pub const fn then(self, epilogue: Epilogue) -> Self {
        Self { epilogue, ..self }
    }

    /// Reads alpha and beta from device memory when the product runs.
    ///
    /// A kernel of the same stream may have computed them:
    /// [`Extras::factors`](crate::Extras::factors). The BLAS rules apply to their values there,
    /// with one exception: A and B must be readable memory whatever alpha is.
    #[must_use]
    pub const fn device_factors(self) -> Self {
        Self { factors_on_device: true, alpha: 1.0, beta: 1.0, ..self }
    }

    /// Makes a batch of matrices at arbitrary addresses: see [`PointerBatch`](crate::PointerBatch).
    ///
    /// In 16 bits, each call copies A and B first.
    #[must_use]
    pub const fn batched_pointers(self, batch: usize) -> Self {
        Self { batching: Batching::Pointers, ..self.batched(batch, [0; 3]) }
    }

    /// Makes a grouped product: the rows of A and C belong to groups, each with a B of its own.
    ///
    /// The groups follow each other, and have any number of rows, also none. Their sizes are read
    /// from device memory when the product runs: see [`GroupEnds`](crate::GroupEnds). `stride` is
    /// the number of elements from one group's B to the next. This is the product of a layer of
    /// experts, whose tokens are sorted by expert.
    ///
    /// `m` is the number of all rows. Those of C behind the last group stay unchanged. A and B are
    /// in 16 bits, and A is not transposed. (A group of cuBLAS is another thing: some products of
    /// equal sizes.)
    ///
    /// ```
    /// use cuda_gemm::{Compute, Gemm};
    ///
    /// // 1000 tokens of 8 experts, whose weights are 4096 x 512.
    /// let gemm = Gemm::new(1000, 512, 4096).grouped(8, 4096 * 512);
    /// gemm.computed_in(Compute::Bf16).validate()?;
    /// assert_eq!(gemm.matrices(), [1, 8, 1]);
    /// assert_eq!(gemm.flops(), Gemm::new(1000, 512, 4096).flops());
    /// # Ok::<(), cuda_gemm::Error>(())
    /// ```
    #[must_use]
    pub const fn grouped(self, groups: usize, stride: usize) -> Self {
        Self { batching: Batching::Groups, ..self.batched(groups, [0, stride, 0]) }
    }

    /// Whether the product is [grouped](Self::grouped).
    pub const fn is_grouped(&self) -> bool {
        matches!(self.batching, Batching::Groups)
    }

    /// The number of matrices A, B and C. The products of a batch may share A or B.
    pub const fn matrices(&self) -> [usize; 3] {
        let Self { batch, .. } = *self;
        if self.is_grouped() { [1, batch, 1] } else { [batch; 3] }
    }

    /// The batch of products of equal size that a grouped product is like, on average.
    pub(crate) const fn ungrouped(self) -> Self {
        let Self { m, batch, lda, ldc, stride_b, .. } = self;
        if !self.is_grouped() || batch == 0 {
            return self;
        }
        let m = m.div_ceil(batch);
        let strides = [m.saturating_mul(lda), stride_b, m.saturating_mul(ldc)];
        Self { m, ..self.batched(batch, strides) }
    }

    /// Whether a kernel has the features that this product needs.
    ///
    /// The features are epilogues, factors in device memory, batches of pointers and groups. For
    /// 16-bit operands they also include transposes, batches and a 16-bit C, which rungs lack.
    pub fn suits(&self, descriptor: &KernelDescriptor) -> bool {
        self.unsuited(descriptor).is_none()
    }

    /// The first such feature that a kernel lacks.
    pub(crate) fn unsuited(&self, descriptor: &KernelDescriptor) -> Option<&'static str> {
        let abi = descriptor.abi();
        let is_plain = abi == KernelAbi::Wgmma;
        [
            (!self.epilogue.is_none() && !abi.has_epilogue(), "epilogue"),
            (self.factors_on_device && !abi.has_epilogue(), "alpha and beta in device memory"),
            (self.has_pointers() && !abi.has_pointer_batches(), "batches of pointers"),
            (self.is_grouped() && !descriptor.has_groups(), "groups"),
            (is_plain && (self.trans_a || self.trans_b), "transposes"),
            (is_plain && self.batch != 1, "batches"),
            (is_plain && self.output != Element::F32, "C in 16 bits"),
        ]
        .into_iter()
        .find_map(|(is_asked, what)| is_asked.then_some(what))
    }

    /// Whether arrays hold the addresses of the matrices.
    pub(crate) const fn has_pointers(&self) -> bool {
        matches!(self.batching, Batching::Pointers)
    }

    /// Makes a strided batch, with the strides of A, B and C in elements.
    #[must_use]
    pub const fn batched(self, batch: usize, strides: [usize; 3]) -> Self {
        let [stride_a, stride_b, stride_c] = strides;
        let batching = Batching::Strided;
        Self { batch, stride_a, stride_b, stride_c, batching, ..self }
    }

    /// Sets whether A and B are transposed.
    ///
    /// Dense leading dimensions stay dense; others stay unchanged.
    #[must_use]
    pub const fn transposed(self, trans_a: bool, trans_b: bool) -> Self {
        let Self { m, n, k, .. } = self;
        let [[_, cols_a], [_, cols_b], _] = self.shapes();
        let lda = if self.lda == cols_a { if trans_a { m } else { k } } else { self.lda };
        let ldb = if self.ldb == cols_b { if trans_b { k } else { n } } else { self.ldb };
        Self { trans_a, trans_b, lda, ldb, ..self }
    }

    /// Sets the factors, as numbers.
    #[must_use]
    pub const fn scaled(self, alpha: f32, beta: f32) -> Self {
        Self { alpha, beta, factors_on_device: false, ..self }
    }

    /// Sets the leading dimensions, in elements.
    #[must_use]
    pub const fn leading_dimensions(self, lda: usize, ldb: usize, ldc: usize) -> Self {
        Self { lda, ldb, ldc, ..self }
    }

    /// Makes a batch whose matrices lie one below the other, with the present leading dimensions.
    #[must_use]
    pub const fn stacked(self, batch: usize) -> Self {
        let [[rows_a, _], [rows_b, _], [rows_c, _]] = self.shapes();
        let stride_a = rows_a.saturating_mul(self.lda);
        let stride_b = rows_b.saturating_mul(self.ldb);
        self.batched(batch, [stride_a, stride_b, rows_c.saturating_mul(self.ldc)])
    }

    /// Rows and columns of A, B and C as stored.
    pub const fn shapes(&self) -> [[usize; 2]; 3] {
        let Self { m, n, k, .. } = *self;
        let a = if self.trans_a { [k, m] } else { [m, k] };
        let b = if self.trans_b { [n, k] } else { [k, n] };
        [a, b, [m, n]]
    }

    /// The equivalent product that kernels compute best.
    ///
    /// A vector without gaps is not transposed. Products that share B, with contiguous A and C,
    /// become one.
    pub(crate) const fn canonical(self) -> Self {
        let mut gemm = self.with_plain_vectors();
        let Self { m, batch, stride_a, stride_b, stride_c, lda, ldc, .. } = gemm;
        let follow =
            !gemm.trans_a && stride_a == m.saturating_mul(lda) && stride_c == m.saturating_mul(ldc);
        // The epilogue's inputs may lie anywhere.
        let is_strided = matches!(gemm.batching, Batching::Strided);
        let follow = follow && is_strided && !gemm.epilogue.reads();
        if batch > 1 && stride_b == 0 && follow && m.saturating_mul(batch) <= MAX_DIMENSION {
            gemm.m *= batch;
            (gemm.batch, gemm.stride_a, gemm.stride_c) = (1, 0, 0);
        }
        gemm
    }

    /// The product in which no vector without gaps is transposed.
    pub(crate) const fn with_plain_vectors(self) -> Self {
        let mut gemm = self;
        if gemm.trans_a && gemm.k == 1 {
            (gemm.trans_a, gemm.lda) = (false, 1);
        } else if gemm.trans_a && gemm.m == 1 && gemm.lda == 1 {
            (gemm.trans_a, gemm.lda) = (false, gemm.k);
        }
        if gemm.trans_b && gemm.n == 1 {
            (gemm.trans_b, gemm.ldb) = (false, 1);
        } else if gemm.trans_b && gemm.k == 1 && gemm.ldb == 1 {
            (gemm.trans_b, gemm.ldb) = (false, gemm.n);
        }
        gemm
    }

    /// The inner dimension that is summed over; 0 if alpha is 0.
    pub fn depth(&self) -> usize {
        if self.alpha == 0.0 && !self.factors_on_device { 0 } else { self.k }
    }

    /// The factors for the kernel; `None` if C stays unchanged.
    ///
    /// Kernels compute `alpha * sum + beta * C`, or `alpha * sum` if beta is 0. If nothing is
    /// summed, the sum is 0, and adding it must change nothing. With alpha = -0 the kernel adds -0,
    /// which leaves every number unchanged, also -0. Kernels handle factors in device memory
    /// themselves.
    pub(crate) fn kernel_factors(&self, [alpha, beta]: [f32; 2]) -> Option<[f32; 2]> {
        let sums = self.depth() > 0;
        match (self.factors_on_device, sums) {
            (true, _) => Some([1.0, 1.0]),
            (false, true) => Some([alpha, beta]),
            (false, false) if beta == 0.0 => Some([0.0, beta]),
            (false, false) if beta == 1.0 && self.epilogue.is_none() => None,
            (false, false) => Some([-0.0, beta]),
        }
    }

    /// Floating-point operations: `2 * m * n * k` per product, or for all groups; 0 if alpha is 0.
    pub fn flops(&self) -> f64 {
        let [_, _, products] = self.matrices().map(|count| count as f64);
        2.0 * self.m as f64 * self.n as f64 * self.depth() as f64 * products
    }

    /// The strides of A, B and C between products, in elements.
    pub const fn strides(&self) -> [usize; 3] {
        [self.stride_a, self.stride_b, self.stride_c]
    }

    /// Whether all rows of A, B and C begin on 16 bytes if the first does.
    pub fn rows_begin_on_16_bytes(&self) -> [bool; 3] {
        let (input, strides) = (self.compute.element().bytes(), self.strides());
        let rows = [(self.lda, input), (self.ldb, input), (self.ldc, self.output.bytes())];
        core::array::from_fn(|i| {
            let ((ld, bytes), stride) = (rows[i], strides[i]);
            let begins = |elements: usize| elements.is_multiple_of(16 / bytes);
            begins(ld) && (self.batch == 1 || begins(stride))
        })
    }

    /// Checks everything that does not depend on a kernel or a device.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`], [`Error::LeadingDimension`], [`Error::NotFinite`],
    /// [`Error::StrideTooLarge`], [`Error::Overlap`], [`Error::GroupedTranspose`],
    /// [`Error::GroupedStrides`] or [`Error::Compute`].
    pub fn validate(&self) -> Result<(), Error> {
        self.compute.expect_output(self.output)?;
        let sizes = [
            ("m", self.m),
            ("n", self.n),
            ("k", self.k),
            ("lda", self.lda),
            ("ldb", self.ldb),
            ("ldc", self.ldc),
            ("batch", self.batch),
        ];
        for (what, value) in sizes {
            if value > MAX_DIMENSION {
                return Err(Error::TooLarge { what, value, max: MAX_DIMENSION });
            }
        }
        let lds = [("lda", self.lda), ("ldb", self.ldb), ("ldc", self.ldc)];
        for ((what, ld), [_, cols]) in lds.into_iter().zip(self.shapes()) {
            if ld < cols {
                return Err(Error::LeadingDimension { what, ld, cols });
            }
        }
        expect_finite([self.alpha, self.beta])?;
        if self.is_grouped() && self.trans_a {
            return Err(Error::GroupedTranspose);
        }
        if self.is_grouped() && (self.stride_a, self.stride_c) != (0, 0) {
            return Err(Error::GroupedStrides);
        }
        self.validate_batch()
    }

    /// Checks the batch.
    fn validate_batch(&self) -> Result<(), Error> {
        let Self { m, n, ldc, batch, stride_c, .. } = *self;
        if batch < 2 || self.has_pointers() {
            return Ok(());
        }
        for (what, stride) in ["stride_a", "stride_b", "stride_c"].into_iter().zip(self.strides()) {
            if stride.checked_mul(batch).is_none_or(|last| last > MAX_REACH) {
                return Err(Error::StrideTooLarge { what, stride, batch, max: MAX_REACH });
            }
        }
        if self.is_grouped() {
            return Ok(());
        }
        // One C after the other, or all side by side in a wider matrix.
        let is_after = stride_c as u128 >= span(m, n, ldc);
        let is_beside = stride_c >= n && (batch - 1) * stride_c + n <= ldc;
        if m > 0 && n > 0 && !is_after && !is_beside {
            return Err(Error::Overlap { stride: stride_c, m, n, ldc });
        }
        Ok(())
    }

    /// The product with another C's rows and columns. Rows of its matrices are long enough, and
    /// aligned as before.
    pub(crate) fn in_shape(self, [m, n]: [usize; 2]) -> Self {
        let mut gemm = Self { m, n, ..self };
        let shapes = gemm.shapes();
        for (ld, [_, cols]) in [&mut gemm.lda, &mut gemm.ldb, &mut gemm.ldc].into_iter().zip(shapes)
        {
            *ld = ld.saturating_mul(cols.div_ceil((*ld).max(1)).max(1));
        }
        gemm
    }

    /// Bytes of dense matrices A, B and C, where a shared matrix counts once.
    ///
    /// The result saturates.
    pub fn bytes(&self) -> u128 {
        let [m, n, k] = [self.m as u128, self.n as u128, self.k as u128];
        let count = |stride: usize| match (self.batch, stride) {
            (0, _) => 0,
            (_, 0) if !self.has_pointers() => 1,
            (batch, _) => batch as u128,
        };
        // Each product of two `usize` fits; others may not.
        let [input, output] = [self.compute.element(), self.output].map(Element::bytes);
        let matrices = [
            (m * k, self.stride_a, input),
            (k * n, self.stride_b, input),
            (m * n, self.stride_c, output),
        ];
        let bytes = matrices.map(|(elements, stride, bytes)| {
            elements.saturating_mul(count(stride)).saturating_mul(bytes as u128)
        });
        bytes.into_iter().fold(0, u128::saturating_add)
    }
}

/// Whether alpha and beta are finite numbers.
pub(crate) fn expect_finite(factors: [f32; 2]) -> Result<(), Error> {
    for (what, value) in ["alpha", "beta"].into_iter().zip(factors) {
        if !value.is_finite() {
            return Err(Error::NotFinite { what, value });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use gemm_matrix::Axis;

    use super::*;

    #[test]
    fn alpha_zero_sums_over_nothing() {
        assert_eq!(Gemm::new(2, 3, 4).scaled(0.0, 1.0).depth(), 0);
        assert_eq!(Gemm::new(2, 3, 4).scaled(-0.0, 1.0).flops(), 0.0);
        assert_eq!(Gemm::new(2, 3, 4).flops(), 48.0);
    }

    #[test]
    fn a_vector_without_gaps_is_its_own_transpose() {
        // A: m x 1 from a row, 1 x k from a column. B: k x 1 from a row, 1 x n from a column.
        let both = |m, n, k| Gemm::new(m, n, k).transposed(true, true);
        assert_eq!(both(5, 1, 1).canonical(), Gemm::new(5, 1, 1));
        assert_eq!(both(1, 7, 4).canonical(), Gemm::new(1, 7, 4).transposed(false, true));
        assert_eq!(both(3, 1, 4).canonical(), Gemm::new(3, 1, 4).transposed(true, false));
        assert_eq!(both(3, 7, 1).canonical(), Gemm::new(3, 7, 1));
        // Gaps between rows do not matter for one row; gaps within a column do.
        assert_eq!(both(3, 7, 1).leading_dimensions(9, 1, 7).canonical(), Gemm::new(3, 7, 1));
        for gapped in
            [both(1, 7, 4).leading_dimensions(2, 4, 7), both(3, 7, 1).leading_dimensions(3, 2, 7)]
        {
            let canonical = gapped.canonical();
            assert!(canonical.trans_a && gapped.m == 1 || canonical.trans_b && gapped.k == 1);
        }
        assert_eq!(both(2, 3, 4).canonical(), both(2, 3, 4));
    }

    #[test]
    fn a_batch_with_one_b_is_a_tall_product() {
        let gemm = Gemm::new(2, 3, 4).leading_dimensions(5, 3, 6);
        assert_eq!(gemm.batched(7, [10, 0, 12]).canonical(), Gemm { m: 14, ..gemm });
        let others =
            [[10, 12, 12], [8, 0, 12], [10, 0, 13]].map(|strides| gemm.batched(7, strides));
        let long = gemm.batched(MAX_DIMENSION / 2 + 1, [10, 0, 12]);
        let transposed = gemm.transposed(true, false).batched(7, [4, 0, 12]);
        for other in others.into_iter().chain([long, transposed]) {
            assert_eq!(other.canonical(), other);
        }
    }

    #[test]
    fn batches_are_checked() {
        let gemm = Gemm::new(2, 3, 4);
        let batched = |strides| gemm.leading_dimensions(4, 3, 9).batched(3, strides).validate();
        // One C after the other, with a gap, side by side; the last need not be a whole row.
        for stride_c in [18, 20, 3, 12] {
            assert!(batched([0, 0, stride_c]).is_ok(), "{stride_c}");
        }
        for stride_c in [0, 1, 4, 9, 11] {
            assert!(matches!(batched([0, 0, stride_c]), Err(Error::Overlap { .. })), "{stride_c}");
        }
        let far = batched([0, usize::MAX, 18]);
        assert!(matches!(far, Err(Error::StrideTooLarge { what: "stride_b", .. })));
        let many = gemm.batched(MAX_DIMENSION + 1, [0, 0, 6]).validate();
        assert!(matches!(many, Err(Error::TooLarge { what: "batch", .. })));
        assert!(gemm.batched(1, [0, 0, 0]).validate().is_ok());
        assert!(gemm.batched(0, [0, 0, 0]).validate().is_ok());
        assert_eq!(gemm.batched(5, [8, 0, 6]).bytes(), 4 * (5 * 8 + 12 + 5 * 6));
    }

    #[test]
    fn what_an_epilogue_reads_is_of_each_product() {
        let gemm = Gemm::new(2, 3, 4).batched(7, [8, 0, 6]);
        assert_eq!(gemm.canonical().batch, 1);
        for axis in [Axis::Row, Axis::Column] {
            for epilogue in [Epilogue::new().bias(axis), Epilogue::new().scale(axis)] {
                assert_eq!(gemm.then(epilogue).canonical(), gemm.then(epilogue));
            }
        }
        let residual = gemm.then(Epilogue::new().residual());
        assert_eq!(residual.canonical(), residual);
    }
}
