//! GEMM as BLAS and cuBLAS have it: column-major matrices at device addresses, argument by argument.
//!
//! For programs that call cuBLAS: the arguments and their order are cuBLAS's, and so are the rules for
//! what is not read. What is different:
//!
//! - A [`Handle`] has a stream from the beginning, and is borrowed mutably by a call.
//! - alpha and beta are numbers, or addresses in device memory ([`Factor`]), instead of host or device
//!   pointers by the handle's mode.
//! - A wrong argument is an [`Error`] that names it, and a call that is refused enqueues nothing.
//! - The first call of a shape chooses a kernel, loads it and allocates what it needs; calls alike find
//!   it in the handle, as long as no more than [`MOST_PLANS`] shapes are in use: one more, and the
//!   handle begins anew. During the capture of a graph, only calls alike work, and the graph uses
//!   what the handle has allocated: launch it only while the handle has had no other shapes.
//!
//! | cuBLAS | here |
//! |---|---|
//! | `cublasCreate`, `cublasSetStream` | [`Handle::new`], [`Handle::on`] |
//! | `cublasSgemm` | [`sgemm`] |
//! | `cublasSgemmStridedBatched` | [`sgemm_strided_batched`] |
//! | `cublasSgemmBatched` | [`sgemm_batched`] |
//! | `CUBLAS_POINTER_MODE_DEVICE` | [`Factor::Device`] |
//! | `cublasLtMatmul` with an epilogue | [`Plan::enqueue_with`] |
//!
//! A column-major matrix is the transpose of a row-major one, so that what is computed is
//! `C^T = op(B)^T op(A)^T` of row-major matrices: nothing is copied.

#![expect(clippy::too_many_arguments, reason = "they are those of BLAS")]

use std::collections::HashMap;
use std::fmt;

use cust::memory::DevicePointer;

use crate::auto::Auto;
use crate::device::Device;
use crate::error::Error;
use crate::gemm::{Gemm, MAX_DIMENSION};
use crate::launch::{Plan, RawExtras};
use crate::stream::Stream;

/// Plans that a [`Handle`] keeps; with one more it begins anew.
pub const MOST_PLANS: usize = 1024;

/// `op(X)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// X as it is: `CUBLAS_OP_N`.
    None,
    /// Its transpose: `CUBLAS_OP_T`, and `CUBLAS_OP_C`, which is the same for real numbers.
    Transpose,
}

/// Alpha or beta.
#[derive(Clone, Copy, Debug)]
pub enum Factor {
    /// A number.
    Host(f32),
    /// Where it is in device memory when the kernel runs.
    Device(DevicePointer<f32>),
}

impl From<f32> for Factor {
    fn from(factor: f32) -> Self {
        Self::Host(factor)
    }
}

impl From<DevicePointer<f32>> for Factor {
    fn from(address: DevicePointer<f32>) -> Self {
        Self::Device(address)
    }
}

/// What calls share: a stream, the choice of kernels, and plans.
///
/// ```
/// use cuda_gemm::blas::{Handle, Op, sgemm};
/// use cuda_gemm::{Device, DeviceChoice, DeviceMatrix, Matrix};
///
/// let device = Device::open(DeviceChoice::Soft)?;
/// let mut handle = Handle::new(&device)?;
/// // Columns of A: (1, 2), (3, 4), (5, 6); of B: (1, 0, 1), (0, 2, 0).
/// let numbers = |numbers: &[f32]| {
///     DeviceMatrix::from_host(&device, &Matrix::from_vec(1, numbers.len(), numbers.to_vec()))
/// };
/// let a = numbers(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let b = numbers(&[1.0, 0.0, 1.0, 0.0, 2.0, 0.0])?;
/// let c = numbers(&[0.0; 4])?;
/// let (m, n, k) = (2, 2, 3);
/// let [pa, pb, pc] = [&a, &b, &c].map(DeviceMatrix::as_device_ptr);
/// // SAFETY: the matrices have these sizes, and nothing else uses them.
/// unsafe {
///     sgemm(&mut handle, Op::None, Op::None, m, n, k, 1.0, pa, m, pb, k, 0.0, pc, m)?;
/// }
/// assert_eq!(c.download()?.as_slice(), [6.0, 8.0, 6.0, 8.0]);
/// // SAFETY: it is refused.
/// let refused = unsafe {
///     sgemm(&mut handle, Op::None, Op::None, m, n, k, 1.0, pa, 1, pb, k, 0.0, pc, m)
/// };
/// assert_eq!(refused.unwrap_err().to_string(), "sgemm: lda, parameter 8, is 1; it must be 2 at least");
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
pub struct Handle {
    auto: Auto,
    stream: Stream,
    plans: HashMap<Key, Plan>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("stream", &self.stream).finish_non_exhaustive()
    }
}

/// What plans differ by: all of a product but its factors, of which is told whether they are 0.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    sizes: [usize; 10],
    flags: [bool; 7],
}

impl Handle {
    /// For calls that go to the device's own stream.
    ///
    /// # Errors
    ///
    /// Those of [`Device::auto`].
    pub fn new(device: &Device) -> Result<Self, Error> {
        Self::on(&device.stream())
    }

    /// For calls that go to this stream.
    ///
    /// # Errors
    ///
    /// Those of [`Device::auto`].
    pub fn on(stream: &Stream) -> Result<Self, Error> {
        let auto = stream.device().auto()?;
        Ok(Self { auto, stream: stream.clone(), plans: HashMap::new() })
    }

    /// The stream.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// How many plans there are now.
    pub fn plans(&self) -> usize {
        self.plans.len()
    }

    /// Enqueues a product of row-major matrices, by a plan that is there or is made.
    ///
    /// # Safety
    ///
    /// As for [`Plan::enqueue_raw_with`].
    unsafe fn enqueue(
        &mut self,
        gemm: Gemm,
        [alpha, beta]: [Factor; 2],
        [a, b, c]: [DevicePointer<f32>; 3],
    ) -> Result<(), Error> {
        let (gemm, factors, extras) = match (alpha, beta) {
            (Factor::Host(alpha), Factor::Host(beta)) => {
                for (what, value) in [("alpha", alpha), ("beta", beta)] {
                    if !value.is_finite() {
                        return Err(Error::NotFinite { what, value });
                    }
                }
                let no_sum = alpha == 0.0 || gemm.k == 0;
                if gemm.m == 0 || gemm.n == 0 || no_sum && beta == 1.0 {
                    return Ok(());
                }
                let one = |factor: f32| if factor == 0.0 { 0.0 } else { 1.0 };
                (gemm.scaled(one(alpha), one(beta)), [alpha, beta], RawExtras::default())
            }
            (Factor::Device(alpha), Factor::Device(beta)) => {
                (gemm.device_factors(), [1.0; 2], RawExtras { alpha, beta, ..Default::default() })
            }
            _ => return Err(Error::MixedFactors),
        };
        // A plan for operands that do not begin on 16 bytes may need memory for copies of them.
        let is_aligned = gemm.pointers || (a.as_raw() | b.as_raw()).is_multiple_of(16);
        let Gemm { m, n, k, lda, ldb, ldc, batch, .. } = gemm;
        let [stride_a, stride_b, stride_c] = gemm.strides();
        let key = Key {
            sizes: [m, n, k, lda, ldb, ldc, batch, stride_a, stride_b, stride_c],
            flags: [
                gemm.trans_a,
                gemm.trans_b,
                gemm.pointers,
                gemm.factors_on_device,
                gemm.alpha == 0.0,
                gemm.beta == 0.0,
                is_aligned,
            ],
        };
        let plan = match self.plans.get(&key) {
            Some(plan) => plan,
            None => {
                let plan = self.auto.plan(gemm)?.on(&self.stream);
                let plan = if is_aligned { plan } else { plan.any_alignment() }.prepare()?;
                if self.plans.len() == MOST_PLANS {
                    self.plans.clear();
                }
                self.plans.entry(key).or_insert(plan)
            }
        };
        // SAFETY: the caller's contract; factors are 0 where the plan's are.
        unsafe { plan.enqueue_scaled(a, b, c, extras, factors) }
    }
}

/// The product of row-major matrices that is a product of column-major ones, once the leading dimensions
/// are checked, which are the parameters with these numbers.
fn row_major(
    routine: &'static str,
    [transa, transb]: [Op; 2],
    [m, n, k]: [usize; 3],
    lds: [(usize, u32); 3],
) -> Result<Gemm, Error> {
    // By the names that the caller knows: what is planned is the transpose.
    let [(lda, _), (ldb, _), (ldc, _)] = lds;
    for (what, value) in [("m", m), ("n", n), ("k", k), ("lda", lda), ("ldb", ldb), ("ldc", ldc)] {
        if value > MAX_DIMENSION {
            return Err(Error::TooLarge { what, value, max: MAX_DIMENSION });
        }
    }
    let is_transposed = [transa, transb].map(|op| op == Op::Transpose);
    let rows = [if is_transposed[0] { k } else { m }, if is_transposed[1] { n } else { k }, m];
    for (i, what) in ["lda", "ldb", "ldc"].into_iter().enumerate() {
        let ((value, parameter), least) = (lds[i], rows[i].max(1));
        if value < least {
            return Err(Error::BlasArgument { routine, what, parameter, value, least });
        }
    }
    let gemm = Gemm::new(n, m, k).transposed(is_transposed[1], is_transposed[0]);
    Ok(gemm.strided(ldb, lda, ldc))
}

/// `C = alpha * op(A) * op(B) + beta * C`, column-major: op(A) is m x k, op(B) is k x n, C is m x n.
/// As `cublasSgemm`; [`Handle`] has an example.
///
/// # Errors
///
/// [`Error::BlasArgument`], [`Error::MixedFactors`], [`Error::NotFinite`], [`Error::TooLarge`]; those of
/// [`Auto::plan`] and [`PlanBuilder::prepare`](crate::PlanBuilder::prepare) with the first call of
/// a shape; [`Error::Driver`].
///
/// # Safety
///
/// - Unless alpha or k is 0, `a` and `b` point to A and B, all initialised, in the memory of the
///   handle's device; `c` to C, initialised unless beta is 0; factors in device memory likewise.
/// - All are aligned to 4 bytes, C overlaps nothing else, and until the work is done nothing frees
///   them, writes A, B or factors, or touches C, but what is enqueued on the handle's stream.
pub unsafe fn sgemm(
    handle: &mut Handle,
    transa: Op,
    transb: Op,
    m: usize,
    n: usize,
    k: usize,
    alpha: impl Into<Factor>,
    a: DevicePointer<f32>,
    lda: usize,
    b: DevicePointer<f32>,
    ldb: usize,
    beta: impl Into<Factor>,
    c: DevicePointer<f32>,
    ldc: usize,
) -> Result<(), Error> {
    // Numbers of parameters, by BLAS's own counting, which does not count the handle.
    let lds = [(lda, 8), (ldb, 10), (ldc, 13)];
    let gemm = row_major("sgemm", [transa, transb], [m, n, k], lds)?;
    // SAFETY: the caller's contract.
    unsafe { handle.enqueue(gemm, [alpha.into(), beta.into()], [b, a, c]) }
}

/// A batch of such products, whose matrices follow each other at strides, in elements; 0 for an A or B
/// that all share. As `cublasSgemmStridedBatched`.
///
/// # Errors
///
/// As for [`sgemm`], and [`Error::Overlap`] if two C overlap.
///
/// # Safety
///
/// As for [`sgemm`], of all products.
pub unsafe fn sgemm_strided_batched(
    handle: &mut Handle,
    transa: Op,
    transb: Op,
    m: usize,
    n: usize,
    k: usize,
    alpha: impl Into<Factor>,
    a: DevicePointer<f32>,
    lda: usize,
    stride_a: usize,
    b: DevicePointer<f32>,
    ldb: usize,
    stride_b: usize,
    beta: impl Into<Factor>,
    c: DevicePointer<f32>,
    ldc: usize,
    stride_c: usize,
    batch_count: usize,
) -> Result<(), Error> {
    let lds = [(lda, 8), (ldb, 11), (ldc, 15)];
    let gemm = row_major("sgemm_strided_batched", [transa, transb], [m, n, k], lds)?;
    let gemm = gemm.batched(batch_count, [stride_b, stride_a, stride_c]);
    if batch_count == 0 {
        return Ok(());
    }
    // SAFETY: the caller's contract.
    unsafe { handle.enqueue(gemm, [alpha.into(), beta.into()], [b, a, c]) }
}

/// A batch of such products, whose matrices lie anywhere: `a`, `b` and `c` are arrays of as many
/// addresses as there are products, in device memory. As `cublasSgemmBatched`.
///
/// # Errors
///
/// As for [`sgemm`].
///
/// # Safety
///
/// As for [`sgemm`], of all products; the arrays are there, aligned to 8 bytes, and stay as they are
/// until the work is done. No two C overlap.
pub unsafe fn sgemm_batched(
    handle: &mut Handle,
    transa: Op,
    transb: Op,
    m: usize,
    n: usize,
    k: usize,
    alpha: impl Into<Factor>,
    a: DevicePointer<u64>,
    lda: usize,
    b: DevicePointer<u64>,
    ldb: usize,
    beta: impl Into<Factor>,
    c: DevicePointer<u64>,
    ldc: usize,
    batch_count: usize,
) -> Result<(), Error> {
    let lds = [(lda, 8), (ldb, 10), (ldc, 13)];
    let gemm = row_major("sgemm_batched", [transa, transb], [m, n, k], lds)?;
    if batch_count == 0 {
        return Ok(());
    }
    let gemm = gemm.batched_pointers(batch_count);
    // SAFETY: the caller's contract.
    unsafe { handle.enqueue(gemm, [alpha.into(), beta.into()], [b.cast(), a.cast(), c.cast()]) }
}

#[cfg(test)]
mod tests {
    use gemm_matrix::Matrix;

    use super::*;
    use crate::device::DeviceChoice;
    use crate::matrix::{DeviceMatrix, PointerBatch};

    const OPS: [Op; 2] = [Op::None, Op::Transpose];
    /// Columns that lie behind each other, with gaps.
    const PAD: usize = 3;

    /// Small whole numbers, whose products are exact.
    fn numbers(len: usize, step: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * step) % 7) as f32 - 3.0).collect()
    }

    /// `alpha op(A) op(B) + beta C`, column-major, by three loops.
    fn expected(
        [transa, transb]: [Op; 2],
        [m, n, k]: [usize; 3],
        [alpha, beta]: [f32; 2],
        (a, lda): (&[f32], usize),
        (b, ldb): (&[f32], usize),
        (c, ldc): (&[f32], usize),
    ) -> Vec<f32> {
        let at = |x: &[f32], ld, op, row: usize, col: usize| match op {
            Op::None => x[col * ld + row],
            Op::Transpose => x[row * ld + col],
        };
        let mut out = c.to_vec();
        for i in 0..m {
            for j in 0..n {
                let sum: f32 =
                    (0..k).map(|l| at(a, lda, transa, i, l) * at(b, ldb, transb, l, j)).sum();
                out[j * ldc + i] = alpha * sum + beta * c[j * ldc + i];
            }
        }
        out
    }

    fn upload(device: &Device, numbers: &[f32]) -> DeviceMatrix {
        let row = Matrix::from_vec(1, numbers.len(), numbers.to_vec());
        DeviceMatrix::from_host(device, &row).unwrap()
    }

    #[test]
    fn all_three_agree_with_three_loops() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let mut handle = Handle::new(&device).unwrap();
        let (sizes, count) = ([5, 9, 6], 3);
        let [m, n, k] = sizes;
        for ops in OPS.map(|a| OPS.map(|b| [a, b])).as_flattened() {
            let rows =
                [if ops[0] == Op::None { m } else { k }, if ops[1] == Op::None { k } else { n }, m];
            let cols = [m * k / rows[0], k * n / rows[1], n];
            let lds = rows.map(|rows| rows + PAD);
            let strides = [0, 1, 2].map(|i| lds[i] * cols[i]);
            let [a, b, c] = [0, 1, 2].map(|i| numbers(strides[i] * count, i + 2));
            let all = [[1.0, 0.0], [2.0, -1.0], [0.0, 1.0], [0.0, 3.0], [1.0, 1.0], [2.0, 1.0]];
            for factors in all {
                let [alpha, beta] = factors;
                let right = |i: usize| {
                    let part = |x: usize| i * strides[x]..(i + 1) * strides[x];
                    let [a, b, c] = [&a[part(0)], &b[part(1)], &c[part(2)]];
                    expected(*ops, sizes, factors, (a, lds[0]), (b, lds[1]), (c, lds[2]))
                };
                let right: Vec<_> = (0..count).flat_map(right).collect();
                let ([transa, transb], [lda, ldb, ldc]) = (*ops, lds);
                let (on_a, on_b) = (upload(&device, &a), upload(&device, &b));
                let (pa, pb) = (on_a.as_device_ptr(), on_b.as_device_ptr());
                let on_c = upload(&device, &c);
                let pc = on_c.as_device_ptr();
                // SAFETY: the buffers have room for matrices of these sizes.
                unsafe {
                    sgemm(
                        &mut handle,
                        transa,
                        transb,
                        m,
                        n,
                        k,
                        alpha,
                        pa,
                        lda,
                        pb,
                        ldb,
                        beta,
                        pc,
                        ldc,
                    )
                }
                .unwrap();
                let result = on_c.download().unwrap();
                assert_eq!(result.as_slice()[..strides[2]], right[..strides[2]], "{ops:?}");
                assert_eq!(result.as_slice()[strides[2]..], c[strides[2]..]);

                let on_c = upload(&device, &c);
                let [sa, sb, sc] = strides;
                // SAFETY: as above, of all.
                unsafe {
                    sgemm_strided_batched(
                        &mut handle,
                        transa,
                        transb,
                        m,
                        n,
                        k,
                        alpha,
                        pa,
                        lda,
                        sa,
                        pb,
                        ldb,
                        sb,
                        beta,
                        on_c.as_device_ptr(),
                        ldc,
                        sc,
                        count,
                    )
                }
                .unwrap();
                assert_eq!(on_c.download().unwrap().as_slice(), right, "{ops:?}");

                let on_c = upload(&device, &c);
                let in_memory = upload(&device, &factors);
                let one = |i| in_memory.submatrix(0..1, i..i + 1).unwrap().as_device_ptr();
                let views = [&on_a, &on_b, &on_c].map(|all| {
                    let len = all.cols() / count;
                    let part = |i: usize| all.submatrix(0..1, i * len..(i + 1) * len).unwrap();
                    PointerBatch::new(&[0, 1, 2].map(part)).unwrap()
                });
                let [pa, pb, pc] = views.each_ref().map(|parts| parts.as_device_ptr().cast());
                // SAFETY: as above; the arrays and the factors stay until the result was downloaded.
                unsafe {
                    sgemm_batched(
                        &mut handle,
                        transa,
                        transb,
                        m,
                        n,
                        k,
                        one(0),
                        pa,
                        lda,
                        pb,
                        ldb,
                        one(1),
                        pc,
                        ldc,
                        count,
                    )
                }
                .unwrap();
                assert_eq!(on_c.download().unwrap().as_slice(), right, "{ops:?}");
            }
        }
        // One for each set of transposes, and for alpha or beta of 0: not for others, nor where nothing
        // is to be done. Those with factors in device memory do not differ by them.
        assert_eq!(handle.plans(), 4 * (3 + 3 + 1));
    }

    #[test]
    fn what_blas_refuses_is_refused() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let mut handle = Handle::new(&device).unwrap();
        let none = DevicePointer::null();
        let mut call = |ops: [Op; 2], sizes: [usize; 3], lds: [usize; 3], alpha: Factor| {
            let ([m, n, k], [lda, ldb, ldc]) = (sizes, lds);
            let handle = &mut handle;
            // SAFETY: it does not get as far as the matrices, or there is nothing in them.
            unsafe {
                sgemm(handle, ops[0], ops[1], m, n, k, alpha, none, lda, none, ldb, 1.0, none, ldc)
            }
        };
        let (nn, tt) = ([Op::None; 2], [Op::Transpose; 2]);
        let one = Factor::Host(1.0);
        for (ops, lds, wrong) in [
            (nn, [4, 7, 5], ("lda", 8, 5)),
            (nn, [5, 6, 5], ("ldb", 10, 7)),
            (nn, [5, 7, 4], ("ldc", 13, 5)),
            (tt, [6, 6, 5], ("lda", 8, 7)),
            (tt, [7, 5, 5], ("ldb", 10, 6)),
        ] {
            let Err(Error::BlasArgument { what, parameter, least, .. }) =
                call(ops, [5, 6, 7], lds, one)
            else {
                panic!("{lds:?}")
            };
            assert_eq!((what, parameter, least), wrong);
        }
        let zero = call(nn, [0, 0, 0], [0, 1, 1], one);
        assert!(matches!(zero, Err(Error::BlasArgument { what: "lda", least: 1, .. })));
        let long = row_major("sgemm", [Op::None; 2], [MAX_DIMENSION + 1, 1, 1], [(1, 8); 3]);
        assert!(matches!(long, Err(Error::TooLarge { what: "m", .. })));
        call(nn, [0, 3, 0], [1, 1, 1], one).unwrap();
        call(nn, [2, 3, 0], [2, 1, 2], one).unwrap();
        let nan = call(nn, [1, 1, 1], [1, 1, 1], Factor::Host(f32::NAN));
        assert!(matches!(nan, Err(Error::NotFinite { what: "alpha", .. })));
        let mixed = call(nn, [1, 1, 1], [1, 1, 1], Factor::Device(none));
        assert!(matches!(mixed, Err(Error::MixedFactors)));
        assert_eq!(handle.plans(), 0);
    }

    /// Computes `C = A * B` of 8 x 8 matrices, of which A and B begin this many elements into their
    /// buffers, and compares it.
    fn multiply(device: &Device, handle: &mut Handle, [skip_a, skip_b]: [usize; 2], ldc: usize) {
        const SIZE: usize = 8;
        let (a, b, c) = (numbers(65, 2), numbers(65, 3), numbers(SIZE * ldc, 5));
        let (on_a, on_b, on_c) = (upload(device, &a), upload(device, &b), upload(device, &c));
        let at = |matrix: &DeviceMatrix, skip| {
            matrix.submatrix(0..1, skip..skip + SIZE * SIZE).unwrap().as_device_ptr()
        };
        let (pa, pb, pc) = (at(&on_a, skip_a), at(&on_b, skip_b), on_c.as_device_ptr());
        let (no, s) = (Op::None, SIZE);
        // SAFETY: the buffers have room for matrices of these sizes, and nothing else uses them.
        unsafe { sgemm(handle, no, no, s, s, s, 1.0, pa, s, pb, s, 0.0, pc, ldc) }.unwrap();
        let (a, b) = ((&a[skip_a..], SIZE), (&b[skip_b..], SIZE));
        let right = expected([no; 2], [SIZE; 3], [1.0, 0.0], a, b, (&c, ldc));
        assert_eq!(on_c.download().unwrap().as_slice(), right, "{skip_a} {skip_b} {ldc}");
    }

    #[test]
    fn a_full_handle_begins_anew() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        let mut handle = Handle::new(&device).unwrap();
        let (a, c) = (upload(&device, &[3.0]), upload(&device, &[0.0]));
        let (a, pc, no) = (a.as_device_ptr(), c.as_device_ptr(), Op::None);
        for ldc in 1..=MOST_PLANS + 1 {
            let alpha = ldc as f32;
            // SAFETY: matrices of one element, whatever the leading dimension, which nothing else uses.
            unsafe { sgemm(&mut handle, no, no, 1, 1, 1, alpha, a, 1, a, 1, 0.0, pc, ldc) }
                .unwrap();
            assert_eq!(handle.plans(), if ldc > MOST_PLANS { 1 } else { ldc });
        }
        assert_eq!(c.download().unwrap().at(0, 0), 9.0 * (MOST_PLANS + 1) as f32);
    }

    #[test]
    fn plans_differ_by_ldc_and_by_alignment() {
        let device = Device::open(DeviceChoice::Soft).unwrap();
        for [skips, lds] in [[[0, 0], [8, 12]], [[1, 0], [8, 8]], [[0, 1], [8, 8]]] {
            let mut handle = Handle::new(&device).unwrap();
            for _ in 0..2 {
                multiply(&device, &mut handle, [0; 2], lds[0]);
                multiply(&device, &mut handle, skips, lds[1]);
                assert_eq!(handle.plans(), 2, "{skips:?} {lds:?}");
            }
        }
    }
}
