//! The operands of a product on the host, and its f64 reference.

use std::ops::Range;

use cuda_gemm::{Axis, Compute, Element, Error as GemmError, Gemm, Matrix};
use gemm_verify::{Arithmetic, Bound, Check, Epilogue, Method, Problem, Reference, nearest_tf32};

use crate::error::Error;
use crate::groups::Groups;

/// A, B and the old C of a product, as they are stored.
///
/// Those of a batch lie one below the other, or all products share one. There is a C only if it is
/// read. Operands and reference are rounded to the product's types. For TF32 they stay f32, and
/// kernels round them.
///
/// ```
/// use cuda_gemm::{Gemm, Matrix};
/// use gemm_bench::Operands;
/// use gemm_verify::Bound;
///
/// # fn main() -> Result<(), gemm_bench::Error> {
/// // Two products with the transpose of A.
/// let gemm = Gemm::new(2, 1, 3).transposed(true, false).stacked(2);
/// let a = Matrix::from_fn(2 * 3, 2, |row, col| (row / 3 + col) as f32);
/// let b = Matrix::from_fn(2 * 3, 1, |_, _| 1.0);
/// let operands = Operands::new(gemm, a, b, None)?;
/// let reference = operands.reference(Bound::WorstCase, 42)?;
/// let check = reference.check(&Matrix::from_vec(4, 1, vec![0.0, 3.0, 3.0, 6.0]))?;
/// assert!(check.passed() && check.elements == 4);
/// let check = reference.check(&Matrix::from_vec(4, 1, vec![0.0, 3.0, 3.0, 7.0]))?;
/// assert_eq!(check.worst.map(|worst| worst.row), Some(3));
/// # Ok(())
/// # }
/// ```
pub struct Operands {
    gemm: Gemm,
    groups: Groups,
    a: Matrix,
    b: Matrix,
    c: Option<Matrix>,
    /// The epilogue's inputs: vectors for all products, and the residual of each.
    scale: Option<Matrix>,
    bias: Option<Matrix>,
    residual: Option<Matrix>,
    /// The operands of each product, unless they are A, B and C themselves.
    products: Vec<Product>,
    /// The operands with A and B rounded to the nearest TF32, for products in TF32.
    in_tf32: Vec<Product>,
    /// Elements of A, B and C that are finite, but not after rounding.
    overflowed: [usize; 3],
}

/// One product's A and B, and its old C and residual if they exist.
type Product = (Matrix, Matrix, Option<Matrix>, Option<Matrix>);

/// Rows and columns of A, B and C on the host; a batch lies one below the other.
///
/// ```
/// use cuda_gemm::Gemm;
/// use gemm_bench::operands::shapes;
///
/// let gemm = Gemm::new(2, 3, 4);
/// assert_eq!(shapes(&gemm.stacked(5)), [[10, 4], [20, 3], [10, 3]]);
/// assert_eq!(shapes(&gemm.batched(5, [8, 0, 6]))[1], [4, 3]);
/// ```
pub fn shapes(gemm: &Gemm) -> [[usize; 2]; 3] {
    let (shapes, counts, strides) = (gemm.shapes(), gemm.matrices(), gemm.strides());
    std::array::from_fn(|i| {
        let ([rows, cols], count) = (shapes[i], counts[i]);
        // Empty matrices also have a stride of 0, without being shared.
        let is_shared = count > 1 && strides[i] == 0 && rows > 0 && cols > 0;
        [if is_shared { rows } else { rows.saturating_mul(count) }, cols]
    })
}

/// The types of A, B and C.
pub fn elements(gemm: &Gemm) -> [Element; 3] {
    [gemm.compute.element(), gemm.compute.element(), gemm.output]
}

/// Rounds all elements to the nearest TF32 numbers.
fn rounded_to_tf32(matrix: &Matrix) -> Matrix {
    Matrix::from_fn(matrix.rows(), matrix.cols(), |row, col| nearest_tf32(matrix.at(row, col)))
}

/// Bytes of A, B and C, including the gaps of their leading dimensions.
pub fn stored_bytes(gemm: &Gemm) -> u128 {
    let lds = [gemm.lda, gemm.ldb, gemm.ldc];
    let matrices = shapes(gemm).into_iter().zip(lds).zip(elements(gemm));
    let bytes = |(([rows, cols], ld), element): (([usize; 2], usize), Element)| {
        element.bytes() as u128 * rows as u128 * cols.max(ld) as u128
    };
    matrices.map(bytes).sum()
}

/// Bytes of A, B and C on the host, where all are f32.
pub fn host_bytes(gemm: &Gemm) -> u128 {
    gemm.computed_in(Compute::F32).stored_as(Element::F32).bytes()
}

/// Bytes of the results of all products on the host.
pub fn result_bytes(gemm: &Gemm) -> u128 {
    let [rows, cols] = shapes(gemm)[2];
    4 * (rows as u128 * cols as u128)
}

/// The part of the reference that is computed: see [`Method::choose`].
pub fn method(gemm: &Gemm) -> Method {
    Method::choose(shapes(gemm)[2][0], gemm.n, gemm.depth())
}

/// The least overhead of a product in a batch, in bytes.
const PER_PRODUCT: u128 = 512;

/// Bytes on the host beside the operands and results.
///
/// They are those of the reference, and of each product's operands if these are copies.
pub fn reference_bytes(gemm: &Gemm) -> u128 {
    let copies = if is_plain(gemm) { 0 } else { host_bytes(gemm) };
    let in_tf32 = if gemm.compute == Compute::Tf32 { 1 } else { 0 };
    let one = method(gemm).bytes(shapes(gemm)[2][0], gemm.n, gemm.depth());
    one.saturating_add(copies)
        .saturating_add(in_tf32 * one.saturating_add(host_bytes(gemm)))
        .saturating_add(PER_PRODUCT * gemm.batch as u128)
}

/// The rows of C of each product.
fn rows_of_products(gemm: &Gemm, groups: &Groups) -> Vec<Range<usize>> {
    match gemm.is_grouped() {
        true => groups.ranges().collect(),
        false => (0..gemm.batch).map(|product| product * gemm.m..(product + 1) * gemm.m).collect(),
    }
}

/// A copy of some rows.
fn part(matrix: &Matrix, rows: &Range<usize>) -> Matrix {
    let (count, cols) = (rows.len(), matrix.cols());
    let elements = matrix.as_slice()[rows.start * cols..][..count * cols].to_vec();
    Matrix::from_vec(count, cols, elements)
}

fn is_plain(gemm: &Gemm) -> bool {
    !gemm.trans_a && !gemm.trans_b && gemm.batch == 1
}

/// 2^-103, below which an element's second TF32 part loses bits.
const TF32X3_SMALLEST: f32 = f32::from_bits((127 - 103) << 23);

impl Operands {
    /// Uses matrices with the product's [`shapes`], and a C if it is read. The epilogue reads
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`cuda_gemm::Error::Shape`], or [`cuda_gemm::Error::Extras`].
    pub fn new(gemm: Gemm, a: Matrix, b: Matrix, c: Option<Matrix>) -> Result<Self, Error> {
        let [shape_a, shape_b, shape_c] = shapes(&gemm);
        let given =
            [("A", Some(&a), shape_a), ("B", Some(&b), shape_b), ("C", c.as_ref(), shape_c)];
        for (what, matrix, shape) in given {
            if let Some(matrix) = matrix {
                GemmError::expect_shape(what, [matrix.rows(), matrix.cols()], shape)?;
            }
        }
        if gemm.epilogue.reads() {
            let what = "what the epilogue reads";
            return Err(GemmError::Extras { what, is_missing: true }.into());
        }
        Ok(Self::of((gemm, Groups::default()), a, b, c, [None, None, None]))
    }

    /// Makes random matrices, including C and the epilogue's inputs if they are read.
    pub fn random(gemm: &Gemm, seed: u64) -> Self {
        let [a, b, c] = shapes(gemm);
        let random = |[rows, cols]: [usize; 2], stream| Matrix::random(rows, cols, seed, stream);
        let vector = |axis: Option<Axis>, stream| {
            axis.map(|axis| random([1, axis.len(gemm.m, gemm.n)], stream))
        };
        let extras = [
            vector(gemm.epilogue.scale, 4),
            vector(gemm.epilogue.bias, 5),
            gemm.epilogue.residual.then(|| random(c, 6)),
        ];
        let c = (gemm.beta != 0.0).then(|| random(c, 3));
        Self::of((*gemm, Groups::default()), random(a, 1), random(b, 2), c, extras)
    }

    /// Rounds the bias to the type of C: cublasLt reads a bias of that type.
    #[must_use]
    pub fn with_bias_of_c(self) -> Self {
        let output = self.gemm.output;
        Self { bias: self.bias.map(|bias| bias.rounded(output)), ..self }
    }

    /// Sets the groups of a grouped product, which has no reference without them.
    ///
    /// ```
    /// use cuda_gemm::{Compute, Gemm, Matrix};
    /// use gemm_bench::{Groups, Operands};
    /// use gemm_verify::Bound;
    ///
    /// let groups: Groups = "1,0,2".parse().unwrap();
    /// let gemm = groups.of(Gemm::new(3, 1, 1).computed_in(Compute::Bf16))?;
    /// let numbers = || Matrix::from_vec(3, 1, vec![2.0, 3.0, 5.0]);
    /// let operands = Operands::new(gemm, numbers(), numbers(), None)?.in_groups(groups)?;
    /// let reference = operands.reference(Bound::WorstCase, 42)?;
    /// assert!(reference.check(&Matrix::from_vec(3, 1, vec![4.0, 15.0, 25.0]))?.passed());
    /// assert!(!reference.check(&Matrix::from_vec(3, 1, vec![4.0, 9.0, 25.0]))?.passed());
    /// # Ok::<(), gemm_bench::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Groups`], or [`cuda_gemm::Error::GroupCount`].
    pub fn in_groups(self, groups: Groups) -> Result<Self, Error> {
        groups.expect(&self.gemm)?;
        if groups.is_empty() {
            return Ok(self);
        }
        let Self { gemm, a, b, c, scale, bias, residual, overflowed, .. } = self;
        let divided = Self::of((gemm, groups), a, b, c, [scale, bias, residual]);
        Ok(Self { overflowed, ..divided })
    }

    /// Makes operands of matrices that have the right shapes.
    fn of(
        (gemm, groups): (Gemm, Groups),
        a: Matrix,
        b: Matrix,
        c: Option<Matrix>,
        [scale, bias, residual]: [Option<Matrix>; 3],
    ) -> Self {
        let finite = |matrix: &Matrix| {
            matrix.as_slice().iter().filter(|element| element.is_finite()).count()
        };
        let before = [&a, &b].map(finite);
        let [a, b] = [a, b].map(|matrix| matrix.rounded(gemm.compute.element()));
        let after = match gemm.compute {
            Compute::Tf32 => [&a, &b].map(|matrix| finite(&rounded_to_tf32(matrix))),
            _ => [&a, &b].map(finite),
        };
        let of_c = c.as_ref().map_or(0, finite);
        let c = c.map(|c| c.rounded(gemm.output));
        let of_c = of_c - c.as_ref().map_or(0, finite);
        let overflowed = [before[0] - after[0], before[1] - after[1], of_c];
        let [[rows_a, _], [rows_b, _], _] = gemm.shapes();
        let is_empty = gemm.m == 0 || gemm.n == 0;
        let each = |a: &Matrix, b: &Matrix| {
            let one = |(product, rows): (usize, Range<usize>)| {
                let part = |matrix: &Matrix, rows: Range<usize>, trans| {
                    let part = part(matrix, &rows);
                    if trans { part.transposed() } else { part }
                };
                // All products may share one.
                let stacked = |matrix: &Matrix, rows| {
                    let first = if matrix.rows() == rows { 0 } else { product * rows };
                    first..first + rows
                };
                let of_a = if gemm.is_grouped() { rows.clone() } else { stacked(a, rows_a) };
                let [c, residual] = [&c, &residual]
                    .map(|all| all.as_ref().map(|all| part(all, rows.clone(), false)));
                let a = part(a, of_a, gemm.trans_a);
                (a, part(b, stacked(b, rows_b), gemm.trans_b), c, residual)
            };
            rows_of_products(&gemm, &groups).into_iter().enumerate().map(one).collect::<Vec<_>>()
        };
        let products = if is_plain(&gemm) || is_empty { Vec::new() } else { each(&a, &b) };
        let in_tf32 = match gemm.compute {
            Compute::Tf32 if !is_empty => each(&rounded_to_tf32(&a), &rounded_to_tf32(&b)),
            _ => Vec::new(),
        };
        Self { gemm, groups, a, b, c, scale, bias, residual, products, in_tf32, overflowed }
    }

    /// Counts elements of A, B and the old C that are finite, but overflow in the product's type.
    pub fn overflowed(&self) -> [usize; 3] {
        self.overflowed
    }

    /// Counts elements of A and B that are too small for [`Compute::Tf32x3`] to be as accurate as
    /// f32.
    ///
    /// They are not 0, and below 2^-103. For other types the counts are 0.
    pub fn too_small(&self) -> [usize; 2] {
        let is_too_small = |element: &&f32| **element != 0.0 && element.abs() < TF32X3_SMALLEST;
        match self.gemm.compute {
            Compute::Tf32x3 => [&self.a, &self.b]
                .map(|matrix| matrix.as_slice().iter().filter(is_too_small).count()),
            _ => [0; 2],
        }
    }

    /// The product.
    pub fn gemm(&self) -> &Gemm {
        &self.gemm
    }

    /// The groups of a grouped product.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The matrix A.
    pub fn a(&self) -> &Matrix {
        &self.a
    }

    /// The matrix B.
    pub fn b(&self) -> &Matrix {
        &self.b
    }

    /// The old C; `None` if it is not read.
    pub fn c(&self) -> Option<&Matrix> {
        self.c.as_ref()
    }

    /// The epilogue's inputs, if there are any: scale and bias, a row each, and the residual.
    pub fn extras(&self) -> [Option<&Matrix>; 3] {
        [&self.scale, &self.bias, &self.residual].map(Option::as_ref)
    }

    /// Computes the product in f64, by the [`method`] for its size.
    ///
    /// # Errors
    ///
    /// See [`Reference::compute`] and [`Operands::in_groups`].
    pub fn reference(&self, bound: Bound, seed: u64) -> Result<Products<'_>, Error> {
        self.reference_by(method(&self.gemm), bound, seed)
    }

    /// Computes the product in f64, by this method: see [`Operands::reference`].
    ///
    /// # Errors
    ///
    /// See [`Operands::reference`].
    pub fn reference_by(
        &self,
        method: Method,
        bound: Bound,
        seed: u64,
    ) -> Result<Products<'_>, Error> {
        self.groups.expect(&self.gemm)?;
        let how = (method, bound, seed);
        let input = self.gemm.compute.element();
        let by = |products| Arithmetic { input, products };
        let stored = by(match self.gemm.compute {
            Compute::F32 => gemm_verify::Products::Fma,
            Compute::Tf32x3 => gemm_verify::Products::Tf32x3,
            Compute::Tf32 => gemm_verify::Products::Tf32,
            Compute::Bf16 | Compute::F16 => gemm_verify::Products::TensorCore,
        });
        let references = match is_plain(&self.gemm) {
            true => {
                let (c, residual) = (self.c.as_ref(), self.residual.as_ref());
                vec![self.of_product(
                    (&self.a, &self.b, c, residual),
                    0..self.gemm.m,
                    stored,
                    how,
                )?]
            }
            false => self.of_products(&self.products, stored, how)?,
        };
        let nearest = by(gemm_verify::Products::TensorCore);
        let in_tf32 = self.of_products(&self.in_tf32, nearest, how)?;
        Ok(Products { operands: self, method, bound, references, in_tf32 })
    }

    fn of_products<'s>(
        &'s self,
        products: &'s [Product],
        by: Arithmetic,
        how: (Method, Bound, u64),
    ) -> Result<Vec<Reference<'s>>, gemm_verify::Error> {
        let one = |((a, b, c, residual), rows): (&'s Product, Range<usize>)| {
            // A vector has an element for each row of a product, or of all groups.
            let rows = if self.gemm.is_grouped() { rows } else { 0..self.gemm.m };
            self.of_product((a, b, c.as_ref(), residual.as_ref()), rows, by, how)
        };
        products.iter().zip(rows_of_products(&self.gemm, &self.groups)).map(one).collect()
    }

    fn of_product<'s>(
        &'s self,
        (a, b, c, residual): (&'s Matrix, &'s Matrix, Option<&'s Matrix>, Option<&'s Matrix>),
        rows: Range<usize>,
        by: Arithmetic,
        (method, bound, seed): (Method, Bound, u64),
    ) -> Result<Reference<'s>, gemm_verify::Error> {
        let Gemm { alpha, beta, epilogue, output, .. } = self.gemm;
        let problem = Problem { a, b, c, alpha, beta, bound };
        let epilogue = Epilogue {
            scale: axis_and_part(epilogue.scale, &self.scale, &rows),
            bias: axis_and_part(epilogue.bias, &self.bias, &rows),
            activation: epilogue.activation,
            residual,
        };
        let reference =
            Reference::compute(problem, method, seed)?.then(epilogue)?.stored_as(output);
        Ok(match by.products {
            gemm_verify::Products::Fma => reference,
            _ => reference.computed_by(by),
        })
    }
}

/// A vector for these rows or for all columns, and its axis, if there is one.
fn axis_and_part<'v>(
    axis: Option<Axis>,
    vector: &'v Option<Matrix>,
    rows: &Range<usize>,
) -> Option<(Axis, &'v [f32])> {
    let (axis, all) = (axis?, vector.as_ref()?.row(0));
    Some((axis, if axis == Axis::Row { &all[rows.clone()] } else { all }))
}

/// The f64 products of a batch, or the only one, from [`Operands::reference`].
pub struct Products<'a> {
    operands: &'a Operands,
    method: Method,
    bound: Bound,
    references: Vec<Reference<'a>>,
    /// References for A and B rounded to TF32, for products in TF32.
    in_tf32: Vec<Reference<'a>>,
}

impl Products<'_> {
    /// The operands.
    pub fn operands(&self) -> &Operands {
        self.operands
    }

    /// Compares a result of this library's kernels, whose C lie one below the other.
    ///
    /// In TF32 the reference is the product of A and B rounded to the nearest.
    ///
    /// # Errors
    ///
    /// See [`Reference::check`].
    pub fn check(&self, result: &Matrix) -> Result<Check, Error> {
        self.check_in(self.operands.gemm().compute, result)
    }

    /// Compares a result of this precision: f32 FMAs for a product in TF32 must be as accurate as
    /// f32.
    ///
    /// # Errors
    ///
    /// See [`Products::check`].
    pub fn check_in(&self, compute: Compute, result: &Matrix) -> Result<Check, Error> {
        let asked = self.operands.gemm().compute;
        if compute == Compute::F32 && asked != Compute::F32 {
            let fma = Arithmetic { input: asked.element(), products: gemm_verify::Products::Fma };
            let references = self.references.iter().map(|one| one.clone().computed_by(fma));
            return self.compare(result, &references.collect::<Vec<_>>());
        }
        match &self.in_tf32[..] {
            [] => self.compare(result, &self.references),
            in_tf32 => self.compare(result, in_tf32),
        }
    }

    /// Compares a result with the product of unrounded A and B, also in TF32.
    ///
    /// This is the accuracy of a result. It also checks other libraries, which may convert A and B
    /// to TF32 in any way, and may round a product to the type of C before they add the old C.
    ///
    /// # Errors
    ///
    /// See [`Reference::check`].
    pub fn check_unrounded(&self, result: &Matrix) -> Result<Check, Error> {
        let references = self.references.iter().cloned().map(Reference::with_rounded_products);
        self.compare(result, &references.collect::<Vec<_>>())
    }

    fn compare(&self, result: &Matrix, references: &[Reference<'_>]) -> Result<Check, Error> {
        let (Operands { gemm, groups, .. }, cols) = (self.operands, result.cols());
        if let [reference] = references {
            return Ok(reference.check(result)?);
        }
        let [need_rows, _] = shapes(gemm)[2];
        GemmError::expect_shape("the result", [result.rows(), cols], [need_rows, cols])?;
        let mut all = Check::new(self.method, self.bound);
        for (rows, reference) in rows_of_products(gemm, groups).into_iter().zip(references) {
            let check = reference.check(&part(result, &rows))?;
            all = all.merge(check.below(rows.start));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tf32_is_rounded_by_kernels_and_to_nearest() {
        let gemm = Gemm::new(1, 1, 1).computed_in(Compute::Tf32);
        // A number between 1 and the next TF32 number, nearer to the latter.
        let (x, next) = (1.0 + 3.0 / 4096.0, 1.0 + 1.0 / 1024.0);
        let [a, b] = [x, 1.0].map(|element| Matrix::from_vec(1, 1, vec![element]));
        for (gemm, count) in [(gemm, 1), (gemm.stacked(2), 2)] {
            let all = |one: &Matrix| Matrix::from_fn(count, 1, |_, _| one.at(0, 0));
            let operands = Operands::new(gemm, all(&a), all(&b), None).unwrap();
            assert_eq!(operands.a().at(0, 0), x);
            let reference = operands.reference(Bound::WorstCase, 0).unwrap();
            let result = |element| Matrix::from_vec(count, 1, vec![element; count]);
            let check = reference.check(&result(next)).unwrap();
            assert!(check.passed());
            // The printed error is the deciding one. The accuracy of the result is separate.
            let largest = check.largest.unwrap();
            assert!(largest.error == 0.0 && largest.tolerance < 1e-5, "{largest:?}");
            let unrounded = reference.check_unrounded(&result(next)).unwrap().largest.unwrap();
            assert_eq!(unrounded.error, f64::from(next - x));
            // Truncated, and so wrong.
            assert!(!reference.check(&result(1.0)).unwrap().passed());
            assert!(reference.check_unrounded(&result(1.0)).unwrap().passed());
            assert!(!reference.check_unrounded(&result(1.01)).unwrap().passed());
        }
    }
}
