//! Products of matrices of any element type.

use cust::memory::{DeviceCopy, DevicePointer};
use gemm_matrix::Element;

use super::arguments::{Factor, Op, row_major};
use super::handle::Handle;
use crate::error::Error;
use crate::problem::{Compute, Gemm};

/// Adds the element types to the product, if they go together.
fn typed(
    gemm: Gemm,
    [a_type, b_type, c_type]: [Element; 3],
    compute: Compute,
) -> Result<Gemm, Error> {
    let takes = compute.element();
    if [a_type, b_type] != [takes; 2] {
        let reason = format!("A and B must hold {takes}; A holds {a_type}, and B {b_type}");
        return Err(compute.refused(reason));
    }
    Ok(gemm.computed_in(compute).stored_as(c_type))
}

/// `C = alpha * op(A) * op(B) + beta * C` for column-major matrices of the given types.
///
/// op(A) is m x k, op(B) is k x n, and C is m x n. Sums, alpha and beta are f32. C is f32 or has
/// the type of A and B. The arguments are those of `cublasGemmEx`, except that `compute` names the
/// type of the multiplied elements:
///
/// | A and B | `compute` |
/// |---|---|
/// | `bf16` | [`Compute::Bf16`] |
/// | `f16` | [`Compute::F16`] |
/// | `f32` | any other |
///
/// Tensor core kernels use `mma.sync`, except on compute capability 9.0.
///
/// ```
/// use cuda_gemm::blas::{Handle, Op, gemm_ex};
/// use cuda_gemm::{Compute, Device, DeviceChoice, DeviceMatrix, Element, Matrix, bf16};
/// use cust::memory::DevicePointer;
///
/// let device = Device::open(DeviceChoice::SoftSm90)?;
/// let mut handle = Handle::new(&device)?;
/// // Columns of A: (1, 2), (3, 4), (5, 6); of B: (1, 0, 1), (0, 2, 0).
/// let numbers = |numbers: &[f32]| {
///     let row = Matrix::from_vec(1, numbers.len(), numbers.to_vec());
///     DeviceMatrix::<bf16>::from_host(&device, &row)
/// };
/// let a = numbers(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let b = numbers(&[1.0, 0.0, 1.0, 0.0, 2.0, 0.0])?;
/// let c = numbers(&[0.0; 4])?;
/// let (m, n, k, t) = (2, 2, 3, Element::Bf16);
/// let [pa, pb, pc] = [&a, &b, &c].map(|x| DevicePointer::<u16>::from_raw(x.address()));
/// let (no, by) = (Op::None, Compute::Bf16);
/// // SAFETY: the matrices have these sizes, and nothing else uses them.
/// unsafe { gemm_ex(&mut handle, no, no, m, n, k, 1.0, pa, t, m, pb, t, k, 0.0, pc, t, m, by)? };
/// assert_eq!(c.download()?.as_slice(), [6.0, 8.0, 6.0, 8.0]);
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`sgemm`](super::sgemm), [`Error::Compute`] for types that do not go together, and
/// [`Error::Unsuited`] if the device has no kernel for the product.
///
/// # Safety
///
/// The contract of [`sgemm`](super::sgemm), for elements of these types. Each matrix is aligned to
/// the size of its elements.
pub unsafe fn gemm_ex<T: DeviceCopy, U: DeviceCopy>(
    handle: &mut Handle,
    transa: Op,
    transb: Op,
    m: usize,
    n: usize,
    k: usize,
    alpha: impl Into<Factor>,
    a: DevicePointer<T>,
    a_type: Element,
    lda: usize,
    b: DevicePointer<T>,
    b_type: Element,
    ldb: usize,
    beta: impl Into<Factor>,
    c: DevicePointer<U>,
    c_type: Element,
    ldc: usize,
    compute: Compute,
) -> Result<(), Error> {
    // Parameter numbers as BLAS counts them, without the handle.
    let lds = [(lda, 9), (ldb, 12), (ldc, 16)];
    let gemm = row_major("gemm_ex", [transa, transb], [m, n, k], lds)?;
    let gemm = typed(gemm, [a_type, b_type, c_type], compute)?;
    let addresses = [b.as_raw(), a.as_raw(), c.as_raw()];
    // SAFETY: the caller's contract.
    unsafe { handle.enqueue(gemm, [alpha.into(), beta.into()], addresses) }
}

/// A strided batch of [`gemm_ex`] products, as `cublasGemmStridedBatchedEx`.
///
/// Strides count elements. A stride of 0 shares one A or B among all products.
///
/// # Errors
///
/// The errors of [`gemm_ex`], and [`Error::Overlap`] if two C overlap.
///
/// # Safety
///
/// The contract of [`gemm_ex`], for every product.
pub unsafe fn gemm_strided_batched_ex<T: DeviceCopy, U: DeviceCopy>(
    handle: &mut Handle,
    transa: Op,
    transb: Op,
    m: usize,
    n: usize,
    k: usize,
    alpha: impl Into<Factor>,
    a: DevicePointer<T>,
    a_type: Element,
    lda: usize,
    stride_a: usize,
    b: DevicePointer<T>,
    b_type: Element,
    ldb: usize,
    stride_b: usize,
    beta: impl Into<Factor>,
    c: DevicePointer<U>,
    c_type: Element,
    ldc: usize,
    stride_c: usize,
    batch_count: usize,
    compute: Compute,
) -> Result<(), Error> {
    let lds = [(lda, 9), (ldb, 13), (ldc, 18)];
    let gemm = row_major("gemm_strided_batched_ex", [transa, transb], [m, n, k], lds)?;
    let gemm = typed(gemm, [a_type, b_type, c_type], compute)?;
    let gemm = gemm.batched(batch_count, [stride_b, stride_a, stride_c]);
    let addresses = [b.as_raw(), a.as_raw(), c.as_raw()];
    // SAFETY: the caller's contract.
    unsafe { handle.enqueue(gemm, [alpha.into(), beta.into()], addresses) }
}
