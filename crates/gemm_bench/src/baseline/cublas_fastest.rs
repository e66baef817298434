//! The fastest of cuBLAS for a product.
//!
//! This is the baseline for tensor cores, and for epilogues of cublasLt.
//!
//! It is chosen once, on the matrices of the first call. The candidates are:
//!
//! - `cublasGemmEx`, followed by a pass over C for an epilogue;
//! - `cublasLtMatmul` with every algorithm that `cublasLtMatmulAlgoGetHeuristic` returns for
//!   matrices of these alignments.
//!
//! All compute with the product's types, and with f32 for the sums, alpha and beta
//! (`CUBLAS_COMPUTE_32F`, or `CUBLAS_COMPUTE_32F_FAST_TF32` for TF32). Every launch of the choice
//! uses the same matrices, so that L2 is warm. If products are then measured with a cold L2,
//! another candidate may be slightly faster.

use std::cell::OnceCell;
use std::ffi::{c_int, c_longlong, c_void};

use cuda_gemm::{
    Compute, DeviceMatrix, Element, Extras, Gemm, OperandMut, OperandRef, Timer, expect_planned,
};

use super::cublas_lt::{Layout, LtProduct, R_32F, alignment, compute_type, epilogue};
use crate::cublas::{Cublas, OP_N, OP_T, Started, check};
use crate::cublas_product::{EpiloguePass, require_plain};
use crate::error::Error;

/// `CUDA_R_16F` and `CUDA_R_16BF`.
const R_16F: c_int = 2;
const R_16BF: c_int = 14;
/// `CUBLAS_GEMM_DEFAULT`: cuBLAS chooses the algorithm.
const DEFAULT_ALGORITHM: c_int = -1;

/// The milliseconds for which each candidate is timed, and the most launches.
const TIMED_MS: f64 = 1.0;
const MAX_LAUNCHES: f64 = 40.0;

/// A checked product for cuBLAS; only the matrices are missing.
pub struct CublasFastest {
    cublas: Cublas,
    gemm: Gemm,
    /// The pass after `cublasGemmEx`, if there is an epilogue that it can apply.
    pass: Option<EpiloguePass>,
    chosen: OnceCell<Chosen>,
}

/// The fastest candidate.
struct Chosen {
    /// The algorithm of cublasLt; `None` for `cublasGemmEx`.
    algorithm: Option<usize>,
    /// The product in cublasLt, or the reason why there is none.
    lt: Result<LtProduct, Error>,
}

impl Chosen {
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

/// Whether a pass over C after `cublasGemmEx` can apply the epilogue.
///
/// Its kernel needs a C in f32.
///
/// # Errors
///
/// [`cuda_gemm::Error::Unsuited`] and [`Error::CublasUnsuited`] for a product that no function of
/// cuBLAS computes.
fn has_pass(gemm: &Gemm) -> Result<bool, Error> {
    require_plain(gemm)?;
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
}

impl CublasFastest {
    /// Whether this is the baseline of a product, rather than `cublasSgemm`.
    pub(crate) fn is_for(gemm: &Gemm) -> bool {
        let is_plain = gemm.epilogue.is_none();
        let is_f32 = matches!(gemm.compute, Compute::F32 | Compute::Tf32x3);
        !is_f32 || !is_plain && epilogue(gemm).is_some()
    }

    /// Checks a product, once for any number of calls.
    ///
    /// # Errors
    ///
    /// The errors of [`Gemm::validate`], and [`cuda_gemm::Error::Unsuited`] or
    /// [`Error::CublasUnsuited`] for a product that cuBLAS lacks.
    pub fn new(cublas: &Cublas, gemm: Gemm) -> Result<Self, Error> {
        gemm.validate()?;
        let pass = match has_pass(&gemm)? {
            true => Some(EpiloguePass::new(cublas.0.stream.device(), &gemm)?),
            false => None,
        };
        Ok(Self { cublas: cublas.clone(), gemm, pass, chosen: OnceCell::new() })
    }

    /// The product.
    pub fn gemm(&self) -> &Gemm {
        &self.gemm
    }

    /// Describes the fastest candidate; `None` before the first call.
    pub fn chosen(&self) -> Option<String> {
        self.chosen.get().map(Chosen::describe)
    }

    /// Enqueues the product on the device's stream, and returns at once.
    ///
    /// The first call times all candidates before it returns.
    ///
    /// # Errors
    ///
    /// [`Error::Gemm`] if a matrix differs from the plan, or [`Error::Cublas`] if the call fails.
    pub fn enqueue_with<'m>(
        &self,
        a: impl Into<OperandRef<'m>>,
        b: impl Into<OperandRef<'m>>,
        c: impl Into<OperandMut<'m>>,
        extras: Extras<'m>,
    ) -> Result<(), Error> {
        let (a, b, c) = (a.into(), b.into(), c.into());
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
        let chosen = match self.chosen.get() {
            Some(chosen) => chosen,
            None => {
                let chosen = self.choose(operands, bias, extras)?;
                self.chosen.get_or_init(|| chosen)
            }
        };
        // SAFETY: the matrices are on the handle's device, with these layouts. C is borrowed
        // mutably, so it is neither A nor B. All stay allocated until the work is done, because
        // freeing device memory waits for it.
        unsafe { self.enqueue_by(chosen.algorithm, chosen.lt.as_ref().ok(), operands, bias)? };
        match (&self.pass, chosen.algorithm) {
            (Some(pass), None) => pass.enqueue(c, extras),
            _ => Ok(()),
        }
    }

    /// Times all candidates on A and B, and on a temporary C.
    fn choose(
        &self,
        [a, b, c]: [Matrix; 3],
        bias: Option<u64>,
        extras: Extras<'_>,
    ) -> Result<Chosen, Error> {
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
            let mut launch = |times: u32| -> Result<f64, Error> {
                timer.milliseconds(|| {
                    for _ in 0..times {
                        // SAFETY: as in `enqueue_with`; C is this function's own.
                        unsafe { self.enqueue_by(algorithm, lt.as_ref().ok(), operands, bias)? };
                        if let (Some(pass), None) = (&self.pass, algorithm) {
                            let c = scratch.submatrix_mut(0..all_rows, 0..cols)?;
                            pass.enqueue(c.batch(self.gemm.batch)?.into(), extras)?;
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
            (Some((algorithm, _)), lt) => Ok(Chosen { algorithm, lt }),
            (None, Err(error)) => Err(error),
            (None, Ok(_)) => {
                let reason = "none of its algorithms ran".to_owned();
                Err(Error::CublasUnsuited { reason })
            }
        }
    }

    /// Enqueues the product with one candidate.
    ///
    /// # Safety
    ///
    /// The contract of [`LtProduct::enqueue`].
    unsafe fn enqueue_by(
        &self,
        algorithm: Option<usize>,
        lt: Option<&LtProduct>,
        [a, b, c]: [Matrix; 3],
        bias: Option<u64>,
    ) -> Result<(), Error> {
        let Started { stream, functions, handle, .. } = &*self.cublas.0;
        let Gemm { m, n, trans_a, trans_b, alpha, beta, batch, .. } = self.gemm;
        if let (Some(algorithm), Some(lt)) = (algorithm, lt) {
            let on = (*handle, stream.as_raw().0);
            let addresses = [a.address, b.address, c.address];
            // SAFETY: the caller's contract.
            return unsafe { lt.enqueue(algorithm, on, [alpha, beta], addresses, bias) };
        }
        // All fit: `Gemm::validate` accepted them. For cuBLAS, a leading dimension is at least 1.
        let size = |value: usize| value as c_int;
        let op = |trans| if trans { OP_T } else { OP_N };
        let [lda, ldb, ldc] = [a, b, c].map(|matrix| size(matrix.layout.ld.max(1)));
        let [stride_a, stride_b, stride_c] =
            [a, b, c].map(|matrix| matrix.layout.stride as c_longlong);
        let [kind_a, kind_b, kind_c] = [a, b, c].map(|matrix| matrix.layout.kind);
        let [a, b, c] = [a, b, c].map(|matrix| matrix.address as *mut c_void);
        let (alpha, beta) = ((&raw const alpha).cast(), (&raw const beta).cast());
        // cuBLAS is column-major, so it computes C^T = op(B)^T op(A)^T.
        let [m, n, k] = [size(m), size(n), size(self.gemm.depth())];
        // SAFETY: the caller's contract. The factors are read during the call.
        let status = unsafe {
            if batch == 1 {
                let status = (functions.gemm_ex)(
                    *handle,
                    op(trans_b),
                    op(trans_a),
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
                    compute_type(&self.gemm),
                    DEFAULT_ALGORITHM,
                );
                return check("cublasGemmEx", status);
            }
            (functions.gemm_strided_batched_ex)(
                *handle,
                op(trans_b),
                op(trans_a),
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
                size(batch),
                compute_type(&self.gemm),
                DEFAULT_ALGORITHM,
            )
        };
        check("cublasGemmStridedBatchedEx", status)
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
        let chosen = Chosen { algorithm: None, lt: Err(Error::CublasUnsuited { reason }) };
        let words = chosen.describe();
        assert!(words.starts_with("cublasGemmEx, without") && words.contains("no such file"));
    }
}
