//! Products with cuBLAS.
//!
//! `cublasSgemm` is the baseline of f32. For tensor cores, and for epilogues of cublasLt, it is the
//! fastest function of cuBLAS ([`CublasProduct::choose`]). The candidates are:
//!
//! - `cublasGemmEx`, followed by a pass over C for an epilogue;
//! - `cublasLtMatmul` with every algorithm that `cublasLtMatmulAlgoGetHeuristic` returns for
//!   matrices of these alignments.
//!
//! All compute with the product's types, and with f32 for the sums, alpha and beta
//! (`CUBLAS_COMPUTE_32F`, or `CUBLAS_COMPUTE_32F_FAST_TF32` for TF32). The choice is made by launches
//! on the matrices that are then measured, with an L2 cache that is as cold or warm.
//!
//! cublasLt reads a bias in the type of C. With a C of 16 bits it gets one of that type
//! ([`CublasProduct::set_bias`]).
//!
//! A grouped product is one `cublasGemmEx` for each group in turn.

use std::cell::{Cell, OnceCell};
use std::ffi::{c_int, c_longlong, c_void};

use cuda_gemm::{
    AnyMatrix, Batching, Compute, Element, Error as GemmError, Extras, Gemm, IntoOperand,
    IntoOperandMut, Layout as MatrixLayout, Matrix as HostMatrix, OperandRef, Timer,
    expect_planned,
};

use super::cublas_lt::{Layout, LtProduct, R_32F, alignment, compute_type, epilogue};
use super::epilogue_pass::EpiloguePass;
use crate::cublas::{Cublas, OP_N, OP_T, Started, check};
use crate::error::Error;
use crate::groups::Groups;

/// `CUDA_R_16F` and `CUDA_R_16BF`.
const R_16F: c_int = 2;
const R_16BF: c_int = 14;
/// `CUBLAS_GEMM_DEFAULT`: cuBLAS chooses the algorithm.
const DEFAULT_ALGORITHM: c_int = -1;

/// The milliseconds for which each candidate is timed, and the most launches.
const TIMED_MS: f64 = 1.0;
const MAX_LAUNCHES: f64 = 40.0;

impl Cublas {
    /// Checks a product, once for any number of calls.
    ///
    /// # Errors
    ///
    /// The errors of [`Gemm::validate`], [`cuda_gemm::Error::Unsuited`] or
    /// [`Error::CublasUnsuited`] for a product that cuBLAS lacks, and those of
    /// [`Kernel::prepare`](cuda_gemm::Kernel::prepare) for a product with an epilogue.
    pub fn prepare(&self, gemm: Gemm) -> Result<CublasProduct, Error> {
        self.prepare_groups(gemm, Groups::default())
    }

    /// Checks a product with its groups, if there are any: see [`Cublas::prepare`].
    ///
    /// # Errors
    ///
    /// Those of [`Cublas::prepare`], and [`Error::Groups`].
    pub fn prepare_groups(&self, gemm: Gemm, groups: Groups) -> Result<CublasProduct, Error> {
        gemm.validate()?;
        groups.expect(&gemm)?;
        require_plain(&gemm)?;
        let by_sgemm = is_for_sgemm(&gemm);
        let has_pass = if by_sgemm { !gemm.epilogue.is_none() } else { has_pass(&gemm)? };
        let device = self.0.stream.device();
        let pass = has_pass.then(|| EpiloguePass::new(device, &gemm)).transpose()?;
        let has_own = gemm.epilogue.is_none() || has_pass;
        let candidates = (!by_sgemm).then(|| Candidates::new(has_own));
        Ok(CublasProduct { cublas: self.clone(), gemm, groups, pass, candidates })
    }
}

/// Refuses products that are not compared: factors in device memory, batches of pointers, and groups
/// with an epilogue.
pub(crate) fn require_plain(gemm: &Gemm) -> Result<(), GemmError> {
    let what = match () {
        () if gemm.factors_on_device => "alpha and beta in device memory",
        () if gemm.batching == Batching::Pointers => "batches of pointers",
        () if gemm.is_grouped() && !gemm.epilogue.is_none() => "groups with an epilogue",
        () => return Ok(()),
    };
    Err(GemmError::Unsuited { kernel: "cublas", what })
}

/// Whether `cublasSgemm` is the baseline of a product.
fn is_for_sgemm(gemm: &Gemm) -> bool {
    let is_f32 = matches!(gemm.compute, Compute::F32 | Compute::Tf32x3);
    is_f32 && (gemm.epilogue.is_none() || epilogue(gemm).is_none())
}

/// Whether a pass over C after `cublasGemmEx` can apply the epilogue.
///
/// Its kernel needs a C in f32.
///
/// # Errors
///
/// [`Error::CublasUnsuited`] for a product that no function of cuBLAS computes.
fn has_pass(gemm: &Gemm) -> Result<bool, Error> {
    let has_pass = !gemm.epilogue.is_none() && gemm.output == Element::F32;
    if !has_pass && epilogue(gemm).is_none() {
        let reason = "cublasLt has no such epilogue, and the pass over C takes f32; store C as f32";
        return Err(Error::CublasUnsuited { reason: reason.to_owned() });
    }
    Ok(has_pass)
}

/// A checked product for cuBLAS, from [`Cublas::prepare`]; only the matrices are missing.
///
/// An epilogue that the function lacks is a pass over C behind it. The pass reads C, applies the
/// epilogue, and stores C, as fast as the memory allows.
pub struct CublasProduct {
    cublas: Cublas,
    gemm: Gemm,
    groups: Groups,
    pass: Option<EpiloguePass>,
    /// The candidates; none for `cublasSgemm`.
    candidates: Option<Candidates>,
}

/// `cublasGemmEx` and the algorithms of cublasLt.
struct Candidates {
    /// Whether `cublasGemmEx` is one of them.
    has_own: bool,
    /// The product in cublasLt, or the reason why there is none. It is made for the alignments of
    /// the first call's matrices.
    lt: OnceCell<Result<LtProduct, Error>>,
    /// The bias, and its copy in the type of C.
    bias: OnceCell<(HostMatrix, AnyMatrix)>,
    /// The next call's algorithm of cublasLt; `None` for `cublasGemmEx`.
    algorithm: Cell<Option<usize>>,
    is_chosen: Cell<bool>,
}

impl Candidates {
    fn new(has_own: bool) -> Self {
        let algorithm = Cell::new((!has_own).then_some(0));
        let (lt, bias) = (OnceCell::new(), OnceCell::new());
        Self { has_own, lt, bias, algorithm, is_chosen: Cell::new(false) }
    }

    /// All of them, as [`Candidates::algorithm`] has them.
    fn all(&self) -> impl Iterator<Item = Option<usize>> + use<> {
        let count = match self.lt.get() {
            Some(Ok(lt)) => lt.len(),
            _ => 0,
        };
        self.has_own.then_some(None).into_iter().chain((0..count).map(Some))
    }

    /// What was chosen.
    fn describe(&self) -> Option<String> {
        if !self.is_chosen.get() {
            return None;
        }
        Some(match (self.algorithm.get(), self.lt.get()?) {
            (Some(algorithm), Ok(lt)) => {
                format!("cublasLt's algorithm {} of {}", algorithm + 1, lt.len())
            }
            (_, Ok(lt)) => format!("cublasGemmEx, before {} algorithms of cublasLt", lt.len()),
            (_, Err(error)) => format!("cublasGemmEx, without cublasLt: {error}"),
        })
    }
}

/// The product in cublasLt and one of its algorithms; none for another function.
type ByLt<'a> = Option<(&'a LtProduct, usize)>;

/// A stored matrix and its address.
#[derive(Clone, Copy)]
struct Matrix {
    address: u64,
    layout: Layout,
}

impl Matrix {
    fn new(operand: OperandRef<'_>) -> Self {
        let kind = match operand.element() {
            Element::F32 => R_32F,
            Element::F16 => R_16F,
            Element::Bf16 => R_16BF,
        };
        let (rows, cols) = (operand.rows(), operand.cols());
        // The stored shape.
        let shape = if operand.is_transposed() { [cols, rows] } else { [rows, cols] };
        let (ld, stride, address) = (operand.ld(), operand.stride(), operand.address());
        let layout = Layout { kind, shape, ld, stride, alignment: alignment(address) };
        Self { address, layout }
    }

    /// The matrix that begins this many elements later.
    fn after(self, elements: usize) -> Self {
        let bytes = if self.layout.kind == R_32F { 4 } else { 2 };
        Self { address: self.address + bytes * elements as u64, ..self }
    }
}

impl CublasProduct {
    /// The product.
    pub fn gemm(&self) -> &Gemm {
        &self.gemm
    }

    /// Describes the chosen candidate; `None` before the choice, and for `cublasSgemm`.
    pub fn chosen(&self) -> Option<String> {
        if self.gemm.is_grouped() {
            return Some("cublasGemmEx for each group in turn".to_owned());
        }
        self.candidates.as_ref()?.describe()
    }

    /// Sets the bias that cublasLt reads if C has 16 bits: the elements of the bias of
    /// [`Extras`], in the type of C.
    ///
    /// Does nothing for other products.
    ///
    /// # Errors
    ///
    /// [`Error::CublasUnsuited`] if that type does not have all the elements, so that cublasLt would
    /// compute another product, or if another bias was set before; [`cuda_gemm::Error::Driver`].
    pub fn set_bias(&self, bias: &HostMatrix) -> Result<(), Error> {
        let Some(candidates) = self.candidates.as_ref().filter(|_| self.bias_has_16_bits()) else {
            return Ok(());
        };
        let unsuited = |reason: &str| Err(Error::CublasUnsuited { reason: reason.to_owned() });
        let bits =
            |matrix: &HostMatrix| matrix.as_slice().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let is_other = |other: &HostMatrix| bits(bias) != bits(other);
        if let Some((earlier, _)) = candidates.bias.get() {
            return match is_other(earlier) {
                true => unsuited("another bias was set before; prepare the product again"),
                false => Ok(()),
            };
        }
        let rounded = bias.clone().rounded(self.gemm.output);
        if is_other(&rounded) {
            return unsuited("cublasLt reads a bias in the type of C, which lacks its elements");
        }
        let layout = MatrixLayout { offset: 0, ld: bias.cols(), tail: 0 };
        let (device, shape) = (self.cublas.0.stream.device(), [bias.rows(), bias.cols()]);
        let mut copy = AnyMatrix::zeros_of(device, self.gemm.output, shape, layout)?;
        copy.upload(&rounded)?;
        candidates.bias.get_or_init(|| (rounded, copy));
        Ok(())
    }

    /// Whether cublasLt reads a bias in the type of C, and that type has 16 bits.
    fn bias_has_16_bits(&self) -> bool {
        self.gemm.epilogue.bias.is_some() && self.gemm.output != Element::F32
    }

    /// Whether nothing is left to choose: see [`CublasProduct::choose`].
    pub fn is_chosen(&self) -> bool {
        let is_grouped = self.gemm.is_grouped();
        self.candidates.as_ref().is_none_or(|one| is_grouped || one.is_chosen.get())
    }

    /// Chooses the fastest candidate, if that has not happened.
    ///
    /// `enqueue` enqueues this product once, as it will be measured: on the same matrices each time
    /// for a warm L2 cache, or on others for a cold one. Without a choice, the first candidate runs.
    /// A candidate that fails is not chosen.
    ///
    /// # Errors
    ///
    /// `enqueue` fails with every candidate: its last error.
    pub fn choose(&self, mut enqueue: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
        let open = self.candidates.as_ref().filter(|_| !self.is_chosen());
        let Some(candidates) = open else { return Ok(()) };
        let first = candidates.algorithm.get();
        // The first call finds the algorithms.
        let mut failed = enqueue();
        if candidates.lt.get().is_none() {
            return failed;
        }
        let timer = Timer::new(self.cublas.0.stream.device())?;
        let mut time = |algorithm: Option<usize>| {
            candidates.algorithm.set(algorithm);
            let mut launch =
                |times: u32| timer.milliseconds(|| (0..times).try_for_each(|_| enqueue()));
            launch(1)?;
            let once = launch(1)?.max(1e-3);
            let times = (TIMED_MS / once).clamp(1.0, MAX_LAUNCHES) as u32;
            Ok::<f64, Error>(launch(times)?.min(launch(times)?) / f64::from(times))
        };
        let mut fastest = None;
        for algorithm in candidates.all() {
            match time(algorithm) {
                Ok(ms) if fastest.is_none_or(|(least, _)| ms < least) => {
                    fastest = Some((ms, algorithm));
                }
                Ok(_) => {}
                Err(error) => failed = Err(error),
            }
        }
        candidates.algorithm.set(fastest.map_or(first, |(_, algorithm)| algorithm));
        candidates.is_chosen.set(fastest.is_some());
        if fastest.is_some() { Ok(()) } else { failed }
    }

    /// Enqueues the product on the device's stream, and returns at once.
    ///
    /// # Errors
    ///
    /// [`Error::Gemm`] if a matrix differs from the plan, as in
    /// [`Plan::run`](cuda_gemm::Plan::run), or [`Error::Cublas`] if the call fails.
    pub fn enqueue<'m>(
        &self,
        a: impl IntoOperand<'m>,
        b: impl IntoOperand<'m>,
        c: impl IntoOperandMut<'m>,
    ) -> Result<(), Error> {
        self.enqueue_with(a, b, c, Extras::new())
    }

    /// Enqueues the product with its epilogue's inputs: see [`CublasProduct::enqueue`].
    ///
    /// # Errors
    ///
    /// See [`CublasProduct::enqueue`].
    pub fn enqueue_with<'m>(
        &self,
        a: impl IntoOperand<'m>,
        b: impl IntoOperand<'m>,
        c: impl IntoOperandMut<'m>,
        extras: Extras<'m>,
    ) -> Result<(), Error> {
        let (a, b, c) = (a.into_operand(), b.into_operand(), c.into_operand_mut());
        let stream = &self.cublas.0.stream;
        let Gemm { m, n, batch, .. } = self.gemm;
        let operands = [a, b, c.view()];
        expect_planned(stream, &self.gemm, &operands)?;
        let operands = operands.map(Matrix::new);
        if m == 0 || n == 0 || batch == 0 {
            return Ok(());
        }
        let _current = stream.device().enter()?;
        let _exclusive = stream.exclusive();
        if self.gemm.is_grouped() {
            return self.enqueue_groups(operands);
        }
        let (by_lt, bias) = match &self.candidates {
            None => (None, None),
            Some(candidates) => self.next(candidates, operands.map(|one| one.layout), &extras)?,
        };
        // SAFETY: the matrices are on the handle's device, with these layouts. C is borrowed
        // mutably, so it is neither A nor B. All stay allocated until the work is done, because
        // freeing device memory waits for it.
        unsafe { self.enqueue_by(&self.gemm, by_lt, operands, bias)? };
        match (&self.pass, by_lt) {
            (Some(pass), None) => pass.enqueue(c, extras),
            _ => Ok(()),
        }
    }

    /// Enqueues `cublasGemmEx` for each group that has rows.
    fn enqueue_groups(&self, [a, b, c]: [Matrix; 3]) -> Result<(), Error> {
        for (group, rows) in self.groups.ranges().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let gemm = Gemm { m: rows.len(), ..self.gemm }.batched(1, [0; 3]);
            let [a, c] = [a, c].map(|matrix| matrix.after(rows.start * matrix.layout.ld));
            let b = b.after(group * b.layout.stride);
            // SAFETY: as in `enqueue_with`; these are rows of A and C, and a matrix of the batch B.
            unsafe { self.enqueue_by(&gemm, None, [a, b, c], None)? };
        }
        Ok(())
    }

    /// The next call's function, and the bias that it reads.
    fn next<'c>(
        &self,
        candidates: &'c Candidates,
        layouts: [Layout; 3],
        extras: &Extras<'_>,
    ) -> Result<(ByLt<'c>, Option<u64>), Error> {
        let Started { stream, handle, .. } = &*self.cublas.0;
        let lt = candidates.lt.get_or_init(|| {
            LtProduct::new(stream.device(), *handle, self.cublas.version(), &self.gemm, layouts)
        });
        let Some(algorithm) = candidates.algorithm.get() else { return Ok((None, None)) };
        let unsuited = |reason: &str| Error::CublasUnsuited { reason: reason.to_owned() };
        let lt = lt.as_ref().map_err(|error| unsuited(&error.to_string()))?;
        if algorithm >= lt.len() {
            return Err(unsuited("cublasLt has no algorithm"));
        }
        let bias = match self.bias_has_16_bits() {
            true => match candidates.bias.get() {
                Some((_, bias)) => Some(bias.address()),
                None => return Err(unsuited("cublasLt needs the bias in the type of C first")),
            },
            false => extras.bias_address(),
        };
        Ok((Some((lt, algorithm)), bias))
    }

    /// Enqueues the product, or a group's, with one candidate.
    ///
    /// # Safety
    ///
    /// The contract of [`LtProduct::enqueue`].
    unsafe fn enqueue_by(
        &self,
        gemm: &Gemm,
        by_lt: ByLt<'_>,
        [a, b, c]: [Matrix; 3],
        bias: Option<u64>,
    ) -> Result<(), Error> {
        let Started { stream, functions, handle, .. } = &*self.cublas.0;
        let (handle, compute) = (*handle, compute_type(gemm));
        let Gemm { m, n, trans_a, trans_b, alpha, beta, batch, .. } = *gemm;
        if let Some((lt, algorithm)) = by_lt {
            let on = (handle, stream.as_raw().0);
            let addresses = [a.address, b.address, c.address];
            // SAFETY: the caller's contract.
            return unsafe { lt.enqueue(algorithm, on, [alpha, beta], addresses, bias) };
        }
        // All fit: `Gemm::validate` accepted them. For cuBLAS, a leading dimension is at least 1,
        // even without rows.
        let size = |value: usize| value as c_int;
        let op = |trans| if trans { OP_T } else { OP_N };
        let [lda, ldb, ldc] = [a, b, c].map(|matrix| size(matrix.layout.ld.max(1)));
        let [stride_a, stride_b, stride_c] =
            [a, b, c].map(|matrix| matrix.layout.stride as c_longlong);
        let [kind_a, kind_b, kind_c] = [a, b, c].map(|matrix| matrix.layout.kind);
        let [a, b, c] = [a, b, c].map(|matrix| matrix.address as *mut c_void);
        let (alpha, beta) = (&raw const alpha, &raw const beta);
        // cuBLAS is column-major, so A, B and C are transposes there: it computes C^T = op(B)^T
        // op(A)^T.
        let (op_b, op_a) = (op(trans_b), op(trans_a));
        let [m, n, k, count] = [m, n, gemm.depth(), batch].map(size);
        // SAFETY: the caller's contract. The factors are read during the call: pointers to them are
        // host pointers by default.
        let (call, status) = unsafe {
            match (&self.candidates, batch) {
                (None, 1) => {
                    let [a, b, c] = [a, b, c].map(|address| address.cast());
                    let status = (functions.sgemm)(
                        handle, op_b, op_a, n, m, k, alpha, b, ldb, a, lda, beta, c, ldc,
                    );
                    ("cublasSgemm", status)
                }
                (None, _) => {
                    let [a, b, c] = [a, b, c].map(|address| address.cast());
                    let status = (functions.sgemm_strided_batched)(
                        handle, op_b, op_a, n, m, k, alpha, b, ldb, stride_b, a, lda, stride_a,
                        beta, c, ldc, stride_c, count,
                    );
                    ("cublasSgemmStridedBatched", status)
                }
                (Some(_), 1) => {
                    let (alpha, beta) = (alpha.cast(), beta.cast());
                    let status = (functions.gemm_ex)(
                        handle,
                        op_b,
                        op_a,
                        n,
                        m,
                        k,
                        alpha,
                        b,
                        kind_b,
                        ldb,
                        a,
                        kind_a,
                        lda,
                        beta,
                        c,
                        kind_c,
                        ldc,
                        compute,
                        DEFAULT_ALGORITHM,
                    );
                    ("cublasGemmEx", status)
                }
                (Some(_), _) => {
                    let (alpha, beta) = (alpha.cast(), beta.cast());
                    let status = (functions.gemm_strided_batched_ex)(
                        handle,
                        op_b,
                        op_a,
                        n,
                        m,
                        k,
                        alpha,
                        b,
                        kind_b,
                        ldb,
                        stride_b,
                        a,
                        kind_a,
                        lda,
                        stride_a,
                        beta,
                        c,
                        kind_c,
                        ldc,
                        stride_c,
                        count,
                        compute,
                        DEFAULT_ALGORITHM,
                    );
                    ("cublasGemmStridedBatchedEx", status)
                }
            }
        };
        check(call, status)
    }
}

#[cfg(test)]
mod tests {
    use cuda_gemm::{Activation, Axis, Epilogue};

    use super::*;

    #[test]
    fn what_cublas_lt_lacks_has_a_pass_or_no_baseline() {
        let in_bf16 = Gemm::new(64, 64, 64).computed_in(Compute::Bf16);
        let bias = Epilogue::new().bias(Axis::Column);
        let relu = Epilogue::new().activation(Activation::Relu);
        // With cublasLt, or with `cublasGemmEx` and a pass.
        assert!(has_pass(&in_bf16.then(bias)).is_ok_and(|has_pass| has_pass));
        assert_eq!(epilogue(&in_bf16.then(bias)), Some(4));

        let in_16_bits = in_bf16.stored_as(Element::Bf16);
        for (epilogue_of_c, number) in [
            (Epilogue::new(), 1),
            (relu, 2),
            (bias, 4),
            (bias.activation(Activation::Relu), 6),
            (bias.activation(Activation::GeluTanh), 36),
        ] {
            let gemm = in_16_bits.then(epilogue_of_c);
            assert!(has_pass(&gemm).is_ok_and(|has_pass| !has_pass));
            assert_eq!(epilogue(&gemm), Some(number));
        }
        for none in [Epilogue::new().residual(), Epilogue::new().bias(Axis::Row)] {
            let refused = has_pass(&in_16_bits.then(none)).unwrap_err();
            assert!(refused.is_of_cublas(), "{refused}");
            assert!(refused.to_string().contains("no such epilogue"), "{refused}");
        }
    }

    #[test]
    fn it_is_said_why_cublas_lt_is_absent() {
        let reason = "libcublasLt.so.13: no such file".to_owned();
        let candidates = Candidates::new(true);
        candidates.is_chosen.set(true);
        assert_eq!(candidates.describe(), None);
        let _ = candidates.lt.set(Err(Error::CublasUnsuited { reason }));
        let words = candidates.describe().unwrap();
        assert!(words.starts_with("cublasGemmEx, without") && words.contains("no such file"));
        assert!(candidates.all().eq([None]));
    }
}
