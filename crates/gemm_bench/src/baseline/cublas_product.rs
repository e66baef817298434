//! Products with cuBLAS.
//!
//! `cublasSgemm` is the baseline of f32. For tensor cores, and for epilogues of cublasLt, it is the
//! fastest function of cuBLAS, chosen once, on the matrices of the first call. The candidates are:
//!
//! - `cublasGemmEx`, followed by a pass over C for an epilogue;
//! - `cublasLtMatmul` with every algorithm that `cublasLtMatmulAlgoGetHeuristic` returns for
//!   matrices of these alignments.
//!
//! All compute with the product's types, and with f32 for the sums, alpha and beta
//! (`CUBLAS_COMPUTE_32F`, or `CUBLAS_COMPUTE_32F_FAST_TF32` for TF32). Every launch of the choice
//! uses the same matrices, so that L2 is warm. If products are then measured with a cold L2,
//! another candidate may be slightly faster.
//!
//! A grouped product is one `cublasGemmEx` for each group in turn.

use std::cell::OnceCell;
use std::ffi::{c_int, c_longlong, c_void};

use cuda_gemm::{
    Batching, Compute, DeviceMatrix, Element, Error as GemmError, Extras, Gemm, IntoOperand,
    IntoOperandMut, OperandRef, Timer, expect_planned,
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
        let fastest = (!by_sgemm).then(OnceCell::new);
        Ok(CublasProduct { cublas: self.clone(), gemm, groups, pass, fastest })
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
        let reason = match gemm.epilogue.bias {
            Some(_) => {
                "cublasLt reads a bias in the type of C, which has 16 bits, and this bias is f32; store C as f32"
            }
            None => "cublasLt has no such epilogue, and the pass over C takes f32; store C as f32",
        };
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
    /// The fastest candidate, after the first call; none for `cublasSgemm`.
    fastest: Option<OnceCell<Fastest>>,
}

/// The fastest candidate.
struct Fastest {
    /// The algorithm of cublasLt; `None` for `cublasGemmEx`.
    algorithm: Option<usize>,
    /// The product in cublasLt, or the reason why there is none.
    lt: Result<LtProduct, Error>,
}

impl Fastest {
    fn by_lt(&self) -> ByLt<'_> {
        Some((self.lt.as_ref().ok()?, self.algorithm?))
    }

    fn describe(&self) -> String {
        match (self.algorithm, &self.lt) {
            (Some(algorithm), Ok(lt)) => {
                format!("cublasLt's algorithm {} of {}", algorithm + 1, lt.len())
            }
            (_, Ok(lt)) => format!("cublasGemmEx, before {} algorithms of cublasLt", lt.len()),
            (_, Err(error)) => format!("cublasGemmEx, without cublasLt: {error}"),
        }
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

    /// Describes the fastest candidate; `None` before the first call, and for `cublasSgemm`.
    pub fn chosen(&self) -> Option<String> {
        if self.gemm.is_grouped() {
            return Some("cublasGemmEx for each group in turn".to_owned());
        }
        self.fastest.as_ref()?.get().map(Fastest::describe)
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
    /// The first call times all candidates, if there are several, before it returns.
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
        let bias = extras.bias_address();
        let _current = stream.device().enter()?;
        let _exclusive = stream.exclusive();
        if self.gemm.is_grouped() {
            return self.enqueue_groups(operands);
        }
        let by_lt = match &self.fastest {
            None => None,
            Some(fastest) => {
                if fastest.get().is_none() {
                    let chosen = self.choose(operands, bias, extras)?;
                    fastest.get_or_init(|| chosen);
                }
                fastest.get().and_then(Fastest::by_lt)
            }
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

    /// Times all candidates on A and B, and on a temporary C.
    fn choose(
        &self,
        [a, b, c]: [Matrix; 3],
        bias: Option<u64>,
        extras: Extras<'_>,
    ) -> Result<Fastest, Error> {
        let Started { stream, handle, .. } = &*self.cublas.0;
        let device = stream.device();
        let Layout { shape: [rows, cols], ld, stride, .. } = c.layout;
        // C's number of elements, in f32, which is more than a 16-bit C needs.
        let all_rows = rows + (stride * (self.gemm.batch - 1)).div_ceil(ld);
        device.require_memory(4 * all_rows as u128 * ld as u128)?;
        let mut scratch = DeviceMatrix::<f32>::zeros(device, [all_rows, ld])?;
        let c = Matrix { address: scratch.address(), ..c };
        let operands = [a, b, c];
        // With the alignment of the real C.
        let layouts = operands.map(|matrix| matrix.layout);
        let lt = LtProduct::new(device, *handle, self.cublas.version(), &self.gemm, layouts);
        let timer = Timer::new(device)?;
        let mut time = |algorithm: Option<usize>| {
            let by_lt = algorithm.and_then(|algorithm| Some((lt.as_ref().ok()?, algorithm)));
            let mut launch = |times: u32| -> Result<f64, Error> {
                timer.milliseconds(|| {
                    for _ in 0..times {
                        // SAFETY: as in `enqueue_with`; C is this function's own.
                        unsafe { self.enqueue_by(&self.gemm, by_lt, operands, bias)? };
                        if let (Some(pass), None) = (&self.pass, by_lt) {
                            let c = scratch.submatrix_mut(0..all_rows, 0..cols)?;
                            pass.enqueue(c.batch(self.gemm.batch)?.into_operand_mut(), extras)?;
                        }
                    }
                    Ok(())
                })
            };
            launch(1)?;
            let once = launch(1)?.max(1e-3);
            let times = (TIMED_MS / once).clamp(1.0, MAX_LAUNCHES) as u32;
            Ok::<f64, Error>(launch(times)?.min(launch(times)?) / f64::from(times))
        };
        let own = (self.gemm.epilogue.is_none() || self.pass.is_some()).then_some(None);
        let count = lt.as_ref().map_or(0, LtProduct::len);
        let ways = own.into_iter().chain((0..count).map(Some));
        // An algorithm that fails is not a candidate.
        let timed = ways.filter_map(|way| Some((way, time(way).ok()?)));
        let fastest = timed.min_by(|one, other| one.1.total_cmp(&other.1));
        match (fastest, lt) {
            (Some((algorithm, _)), lt) => Ok(Fastest { algorithm, lt }),
            (None, Err(error)) => Err(error),
            (None, Ok(_)) => {
                let reason = "none of its algorithms ran".to_owned();
                Err(Error::CublasUnsuited { reason })
            }
        }
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
            match (&self.fastest, batch) {
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
    fn a_bias_in_f32_is_not_read_as_16_bits() {
        let in_bf16 = Gemm::new(64, 64, 64).computed_in(Compute::Bf16);
        let bias = Epilogue::new().bias(Axis::Column);
        let relu = Epilogue::new().activation(Activation::Relu);
        // With cublasLt, or with `cublasGemmEx` and a pass.
        assert!(has_pass(&in_bf16.then(bias)).is_ok_and(|has_pass| has_pass));
        assert_eq!(epilogue(&in_bf16.then(bias)), Some(4));

        let in_16_bits = in_bf16.stored_as(Element::Bf16);
        assert!(has_pass(&in_16_bits).is_ok_and(|has_pass| !has_pass));
        assert!(has_pass(&in_16_bits.then(relu)).is_ok_and(|has_pass| !has_pass));
        for (epilogue_of_c, why) in [
            (bias, "reads a bias in the type of C"),
            (bias.activation(Activation::Relu), "reads a bias in the type of C"),
            (Epilogue::new().residual(), "no such epilogue"),
        ] {
            let gemm = in_16_bits.then(epilogue_of_c);
            assert_eq!(epilogue(&gemm), None);
            let refused = has_pass(&gemm).unwrap_err();
            assert!(refused.is_of_cublas() && refused.to_string().contains(why), "{refused}");
        }
    }

    #[test]
    fn it_is_said_why_cublas_lt_is_absent() {
        let reason = "libcublasLt.so.13: no such file".to_owned();
        let chosen = Fastest { algorithm: None, lt: Err(Error::CublasUnsuited { reason }) };
        let words = chosen.describe();
        assert!(words.starts_with("cublasGemmEx, without") && words.contains("no such file"));
    }
}
