//! The fastest that cuBLAS has for a product: the baseline of tensor cores, and of epilogues that
//! cublasLt has, too.
//!
//! It is chosen once, on the matrices of the first call, from `cublasGemmEx`, with a pass over C for an
//! epilogue, and from `cublasLtMatmul` by every algorithm that `cublasLtMatmulAlgoGetHeuristic` returns
//! for matrices of these alignments.
//! All compute with the types of the product, and f32 for the sums, alpha and beta
//! (`CUBLAS_COMPUTE_32F`, or `CUBLAS_COMPUTE_32F_FAST_TF32` for TF32). The matrices are the same in each
//! launch of the choice, so that L2 is warm; where products are then measured with a cold L2, another way
//! may be faster by what that makes a difference.

use std::cell::OnceCell;
use std::ffi::{c_int, c_longlong, c_void};

use cuda_gemm::{
    Compute, DeviceHalfMatrix, DeviceMatrix, Element, Error as GemmError, Extras, Gemm, OperandMut,
    OperandRef,
};

use crate::cublas::{Cublas, OP_N, OP_T, Started, check};
use crate::cublas_lt::{Layout, LtProduct, R_32F, alignment, compute_type, epilogue};
use crate::cublas_product::{EpiloguePass, require_plain};
use crate::error::Error;
use crate::operands::elements;
use crate::timer::Timer;

/// `CUDA_R_16F` and `CUDA_R_16BF`.
const R_16F: c_int = 2;
const R_16BF: c_int = 14;
/// `CUBLAS_GEMM_DEFAULT`: cuBLAS chooses the algorithm.
const DEFAULT_ALGORITHM: c_int = -1;

/// Milliseconds for which each way is timed, and the most launches.
const TIMED_MS: f64 = 1.0;
const MAX_LAUNCHES: f64 = 40.0;

/// A product that cuBLAS can compute: only the matrices are missing.
pub struct CublasFastest {
    cublas: Cublas,
    gemm: Gemm,
    /// What follows `cublasGemmEx`, if there is an epilogue; none if nothing can.
    pass: Option<EpiloguePass>,
    chosen: OnceCell<Chosen>,
}

/// What was fastest.
struct Chosen {
    /// The algorithm of cublasLt; none for `cublasGemmEx`.
    algorithm: Option<usize>,
    /// What there is of cublasLt, or why there is nothing.
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

/// Whether a product's epilogue can be a pass over C, which follows `cublasGemmEx`. Its kernel is for a C
/// in f32.
///
/// # Errors
///
/// [`GemmError::Unsuited`] and [`Error::CublasUnsuited`] for a product that nothing of cuBLAS computes.
fn has_pass(gemm: &Gemm) -> Result<bool, Error> {
    require_plain(gemm)?;
    let has_pass = !gemm.epilogue.is_none() && gemm.output == Element::F32;
    if !has_pass && epilogue(gemm).is_none() {
        let reason = match gemm.epilogue.bias {
            Some(_) => {
                "cublasLt reads a bias in the type of C, here 16 bits, and this one is f32; store C as f32"
            }
            None => "cublasLt has no such epilogue, and the pass over C takes f32; store C as f32",
        };
        return Err(Error::CublasUnsuited { reason: reason.to_owned() });
    }
    Ok(has_pass)
}

/// A matrix as it lies in device memory, and where.
#[derive(Clone, Copy)]
struct Matrix {
    address: u64,
    layout: Layout,
}

impl CublasFastest {
    /// Whether this is what a product is compared with, rather than `cublasSgemm`.
    pub(crate) fn is_for(gemm: &Gemm) -> bool {
        let is_plain = gemm.epilogue.is_none();
        let is_f32 = matches!(gemm.compute, Compute::F32 | Compute::Tf32x3);
        !is_f32 || !is_plain && epilogue(gemm).is_some()
    }

    /// Checks a product, once for any number of calls.
    ///
    /// # Errors
    ///
    /// What [`Gemm::validate`] finds; [`cuda_gemm::Error::Unsuited`] and [`Error::CublasUnsuited`] for
    /// what cuBLAS does not have.
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

    /// What was fastest, in words; none before the first call.
    pub fn chosen(&self) -> Option<String> {
        self.chosen.get().map(Chosen::describe)
    }

    /// Enqueues the product on the device's stream, and returns at once, but for the first call, which
    /// times all that there is.
    ///
    /// # Errors
    ///
    /// [`Error::Gemm`] if a matrix is not what was prepared for; [`Error::Cublas`] if the call fails.
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
        let operands =
            [self.matrix("A", a, 0)?, self.matrix("B", b, 1)?, self.matrix("C", c.view(), 2)?];
        if m == 0 || n == 0 || batch == 0 {
            return Ok(());
        }
        let bias = extras.bias_pointer().map(|pointer| pointer.as_raw());
        let _current = stream.device().enter()?;
        let _exclusive = stream.exclusive();
        let chosen = match self.chosen.get() {
            Some(chosen) => chosen,
            None => {
                let chosen = self.choose(operands, bias, extras)?;
                self.chosen.get_or_init(|| chosen)
            }
        };
        // SAFETY: the matrices are on the handle's device, and lie so. C is borrowed mutably, so it is
        // neither A nor B. All stay allocated until the work is done, because freeing device memory
        // waits for it.
        unsafe { self.enqueue_by(chosen.algorithm, chosen.lt.as_ref().ok(), operands, bias)? };
        match (&self.pass, chosen.algorithm, c) {
            (Some(pass), None, OperandMut::F32(c)) => pass.enqueue(c, extras),
            _ => Ok(()),
        }
    }

    /// A matrix as it lies, if it is what was prepared for.
    fn matrix(
        &self,
        what: &'static str,
        operand: OperandRef<'_>,
        i: usize,
    ) -> Result<Matrix, Error> {
        let (stream, gemm) = (&self.cublas.0.stream, &self.gemm);
        if !operand.stream().is_same(stream) {
            return Err(GemmError::WrongStream { what }.into());
        }
        let (address, element, shape, ld, count, stride) = match operand {
            OperandRef::F32(batch) => {
                let one = batch.first();
                let shape = [one.rows(), one.cols()];
                let address = one.as_device_ptr().as_raw();
                (address, Element::F32, shape, one.ld(), batch.count(), batch.stride())
            }
            OperandRef::Half(half) => {
                let shape = [half.rows(), half.cols()];
                let element = DeviceHalfMatrix::element(half.input());
                (half.address(), element, shape, half.ld(), half.count(), half.stride())
            }
        };
        let planned = elements(gemm)[i];
        if element != planned {
            let (found, planned) = (element.name(), planned.name());
            return Err(GemmError::PlannedType { what, found, planned }.into());
        }
        let ([rows, cols], [need_rows, need_cols]) = (shape, gemm.shapes()[i]);
        if shape != [need_rows, need_cols] {
            return Err(GemmError::Shape { what, rows, cols, need_rows, need_cols }.into());
        }
        if count != gemm.batch {
            let (planned_count, planned_stride) = (gemm.batch, gemm.strides()[i]);
            let error =
                GemmError::PlannedBatch { what, count, stride, planned_count, planned_stride };
            return Err(error.into());
        }
        let kind = match element {
            Element::F32 => R_32F,
            Element::F16 => R_16F,
            Element::Bf16 => R_16BF,
        };
        let layout = Layout { kind, shape, ld, stride, alignment: alignment(address) };
        Ok(Matrix { address, layout })
    }

    /// Times all ways on A and B, and a C that is thrown away.
    fn choose(
        &self,
        [a, b, c]: [Matrix; 3],
        bias: Option<u64>,
        extras: Extras<'_>,
    ) -> Result<Chosen, Error> {
        let Started { stream, handle, .. } = &*self.cublas.0;
        let device = stream.device();
        let Layout { shape: [rows, cols], ld, stride, .. } = c.layout;
        // As many elements as C has, and more than it needs if those are in 16 bits.
        let all_rows = rows + (stride * (self.gemm.batch - 1)).div_ceil(ld);
        device.require_memory(4 * all_rows as u128 * ld as u128)?;
        let mut scratch = DeviceMatrix::zeros(device, all_rows, ld)?;
        let c = Matrix { address: scratch.as_device_ptr().as_raw(), ..c };
        let operands = [a, b, c];
        // With the alignment of the C that it is chosen for.
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
                            pass.enqueue(c.split_rows(self.gemm.batch)?, extras)?;
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
        // An algorithm that fails is none to compare with.
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

    /// Enqueues the product one way.
    ///
    /// # Safety
    ///
    /// As for [`LtProduct::enqueue`].
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
        // All fit: `Gemm::validate` accepted them. A leading dimension is at least 1 for cuBLAS.
        let size = |value: usize| value as c_int;
        let op = |trans| if trans { OP_T } else { OP_N };
        let [lda, ldb, ldc] = [a, b, c].map(|matrix| size(matrix.layout.ld.max(1)));
        let [stride_a, stride_b, stride_c] =
            [a, b, c].map(|matrix| matrix.layout.stride as c_longlong);
        let [kind_a, kind_b, kind_c] = [a, b, c].map(|matrix| matrix.layout.kind);
        let [a, b, c] = [a, b, c].map(|matrix| matrix.address as *mut c_void);
        let (alpha, beta) = ((&raw const alpha).cast(), (&raw const beta).cast());
        // cuBLAS counts columns where we count rows: C^T = op(B)^T op(A)^T is computed.
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
        // By cublasLt, or by `cublasGemmEx` and a pass.
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
