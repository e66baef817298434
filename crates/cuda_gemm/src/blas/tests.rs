//! Compares the routines with three loops, on whole numbers whose sums are exact in every type.

use cust::memory::DevicePointer;
use gemm_matrix::{Element, Matrix};

use super::arguments::row_major;
use super::*;
use crate::device::{Device, DeviceChoice};
use crate::error::Error;
use crate::matrix::{AnyMatrix, DeviceMatrix, Layout, PointerBatch};
use crate::problem::{Compute, MAX_DIMENSION};

const OPS: [Op; 2] = [Op::None, Op::Transpose];
/// Gap between columns, in elements.
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

fn upload(device: &Device, numbers: &[f32]) -> DeviceMatrix<f32> {
    DeviceMatrix::from_slice(device, [1, numbers.len()], numbers).unwrap()
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
                sgemm(&mut handle, transa, transb, m, n, k, alpha, pa, lda, pb, ldb, beta, pc, ldc)
            }
            .unwrap();
            let result = on_c.download().unwrap();
            assert_eq!(result.as_slice()[..strides[2]], right[..strides[2]], "{ops:?}");
            assert_eq!(result.as_slice()[strides[2]..], c[strides[2]..]);

            let on_c = upload(&device, &c);
            let [sa, sb, sc] = strides;
            // SAFETY: as above, for every product.
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
            let [pa, pb, pc] =
                views.each_ref().map(|parts| DevicePointer::from_raw(parts.address()));
            // SAFETY: as above; the arrays and the factors stay until the result is downloaded.
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
    // One plan for each set of transposes, and for alpha or beta of 0. Other factors share a plan,
    // and a call without work needs none. Factors in device memory do not distinguish plans.
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
        // SAFETY: the call is refused before it reads a matrix, or the matrices are empty.
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

/// Computes `C = A * B` of 8 x 8 matrices, whose A and B skip elements of their buffers, and checks
/// it.
fn multiply(device: &Device, handle: &mut Handle, [skip_a, skip_b]: [usize; 2], ldc: usize) {
    const SIZE: usize = 8;
    let (a, b, c) = (numbers(65, 2), numbers(65, 3), numbers(SIZE * ldc, 5));
    let (on_a, on_b, on_c) = (upload(device, &a), upload(device, &b), upload(device, &c));
    let at = |matrix: &DeviceMatrix<f32>, skip| {
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
    for ldc in 1..=MAX_PLANS + 1 {
        let alpha = ldc as f32;
        // SAFETY: matrices of one element, whatever the leading dimension, which nothing else uses.
        unsafe { sgemm(&mut handle, no, no, 1, 1, 1, alpha, a, 1, a, 1, 0.0, pc, ldc) }.unwrap();
        assert_eq!(handle.plans(), if ldc > MAX_PLANS { 1 } else { ldc });
    }
    assert_eq!(c.download().unwrap().at(0, 0), 9.0 * (MAX_PLANS + 1) as f32);
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

/// Uploads numbers in any element type.
fn upload_as(device: &Device, element: Element, numbers: &[f32]) -> AnyMatrix {
    let row = Matrix::from_vec(1, numbers.len(), numbers.to_vec());
    let layout = Layout::dense(numbers.len());
    let mut matrix = AnyMatrix::zeros_of(device, element, [1, numbers.len()], layout).unwrap();
    matrix.upload(&row).unwrap();
    matrix
}

/// Compares `gemm_strided_batched_ex`, or `gemm_ex` for one product, with three loops.
///
/// C has `c_type`, and all matrices skip `skip` elements of their buffers.
fn compare_ex(
    device: &Device,
    handle: &mut Handle,
    (compute, c_type): (Compute, Element),
    ops: [Op; 2],
    (pad, skip, count): (usize, usize, usize),
    factors: [f32; 2],
) -> Result<(), Error> {
    let sizes @ [m, n, k] = [5, 9, 6];
    let rows = [if ops[0] == Op::None { m } else { k }, if ops[1] == Op::None { k } else { n }, m];
    let cols = [m * k / rows[0], k * n / rows[1], n];
    let lds = rows.map(|rows| rows + pad);
    let strides = [0, 1, 2].map(|i| lds[i] * cols[i]);
    let [a, b, c] = [0, 1, 2].map(|i| numbers(skip + strides[i] * count, i + 2));
    let mut right = c.clone();
    for i in 0..count {
        let part = |x: usize| skip + i * strides[x]..skip + (i + 1) * strides[x];
        let [a, b, c] = [&a[part(0)], &b[part(1)], &c[part(2)]];
        let one = expected(ops, sizes, factors, (a, lds[0]), (b, lds[1]), (c, lds[2]));
        right[part(2)].copy_from_slice(&one);
    }
    let t = compute.element();
    let (on_a, on_b) = (upload_as(device, t, &a), upload_as(device, t, &b));
    let on_c = upload_as(device, c_type, &c);
    let at = |matrix: &AnyMatrix| {
        let bytes = (matrix.element().bytes() * skip) as u64;
        DevicePointer::<u8>::from_raw(matrix.address() + bytes)
    };
    let [pa, pb, pc] = [&on_a, &on_b, &on_c].map(at);
    let ([x, y], [lda, ldb, ldc], [sa, sb, sc]) = (ops, lds, strides);
    let (h, [alpha, beta], u) = (handle, factors, c_type);
    // SAFETY: the buffers have room for matrices of these sizes, and nothing else uses them.
    unsafe {
        match count {
            1 => {
                gemm_ex(h, x, y, m, n, k, alpha, pa, t, lda, pb, t, ldb, beta, pc, u, ldc, compute)
            }
            _ => gemm_strided_batched_ex(
                h, x, y, m, n, k, alpha, pa, t, lda, sa, pb, t, ldb, sb, beta, pc, u, ldc, sc,
                count, compute,
            ),
        }
    }?;
    let what = (compute, c_type, ops, pad, skip, count, factors);
    assert_eq!(on_c.download().unwrap().as_slice(), right, "{what:?} on {}", device.info().name);
    Ok(())
}

#[test]
fn every_type_agrees_with_three_loops() {
    for choice in [DeviceChoice::Soft, DeviceChoice::SoftSm90] {
        let device = Device::open(choice).unwrap();
        for compute in Compute::ALL {
            let mut handle = Handle::new(&device).unwrap();
            let own = compute.element();
            let c_types = if own == Element::F32 { &[own][..] } else { &[own, Element::F32] };
            for (c_type, ops) in c_types
                .iter()
                .flat_map(|c_type| OPS.map(|a| OPS.map(|b| (*c_type, [a, b]))).concat())
            {
                // Aligned rows, then rows of odd lengths, at the start of a buffer and after it.
                for at in [(3, 0, 1), (2, 1, 1), (3, 0, 3), (1, 3, 3)] {
                    for factors in [[1.0, 0.0], [2.0, -1.0], [0.0, 3.0]] {
                        let result =
                            compare_ex(&device, &mut handle, (compute, c_type), ops, at, factors);
                        result.unwrap();
                    }
                }
            }
            // Factors other than 0 belong to a call, not to a plan.
            let (plans, ops) = (handle.plans(), [Op::None; 2]);
            let types = (compute, Element::F32);
            for factors in [[3.0, 2.0], [-1.0, 1.0]] {
                let again = compare_ex(&device, &mut handle, types, ops, (3, 0, 1), factors);
                again.unwrap();
            }
            assert_eq!(handle.plans(), plans, "{compute}");
        }
    }
}

#[test]
fn types_go_together() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    let mut handle = Handle::new(&device).unwrap();
    let none = DevicePointer::<u16>::null();
    let (no, f32, bf16, f16) = (Op::None, Element::F32, Element::Bf16, Element::F16);
    let mut call = |types: [Element; 3], compute, [lda, ldb, ldc]: [usize; 3], count: usize| {
        let ([t, u, v], h, n) = (types, &mut handle, 4);
        // SAFETY: the call is refused.
        unsafe {
            match count {
                1 => gemm_ex(
                    h, no, no, n, n, n, 1.0, none, t, lda, none, u, ldb, 0.0, none, v, ldc, compute,
                ),
                _ => gemm_strided_batched_ex(
                    h, no, no, n, n, n, 1.0, none, t, lda, 16, none, u, ldb, 16, 0.0, none, v, ldc,
                    16, count, compute,
                ),
            }
        }
        .unwrap_err()
    };
    for (types, compute, says) in [
        ([bf16, f16, f32], Compute::Bf16, "A and B must hold bf16; A holds bf16, and B f16"),
        ([f32, f32, f32], Compute::F16, "A and B must hold f16; A holds f32, and B f32"),
        ([bf16, bf16, bf16], Compute::Tf32, "A and B must hold f32"),
        ([bf16, bf16, f16], Compute::Bf16, "C cannot be stored as f16"),
        ([f32, f32, bf16], Compute::Tf32x3, "C cannot be stored as bf16"),
    ] {
        for count in [1, 2] {
            let refused = call(types, compute, [4; 3], count).to_string();
            assert!(refused.contains(says), "{refused}");
        }
    }
    for (count, numbers) in [(1, [9, 12, 16]), (2, [9, 13, 18])] {
        for (i, number) in numbers.into_iter().enumerate() {
            let mut lds = [4; 3];
            lds[i] = 3;
            let refused = call([bf16; 3], Compute::Bf16, lds, count);
            let is_right =
                matches!(refused, Error::BlasArgument { parameter, .. } if parameter == number);
            assert!(is_right, "{refused}");
        }
    }
}

#[test]
fn sgemm_computes_as_the_handle_says() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    let mut handle = Handle::new(&device).unwrap();
    let refused = handle.compute_f32_in(Compute::F16).unwrap_err().to_string();
    assert!(refused.contains("use `gemm_ex`"), "{refused}");
    // One plus a fraction with two bits more than TF32 has. The mean of as many is the same.
    const SIZE: usize = 512;
    let number = 1.0 + 1.0 / 4096.0;
    let all = |value: f32| upload(&device, &[value; SIZE * SIZE]);
    let (a, b, c) = (all(number), all(1.0 / SIZE as f32), all(0.0));
    let (a, b, pc, no) = (a.as_device_ptr(), b.as_device_ptr(), c.as_device_ptr(), Op::None);
    for (compute, result) in
        [(Compute::F32, number), (Compute::Tf32, 1.0), (Compute::Tf32x3, number)]
    {
        handle.compute_f32_in(compute).unwrap();
        let n = SIZE;
        // SAFETY: square matrices, which nothing else uses.
        unsafe { sgemm(&mut handle, no, no, n, n, n, 1.0, a, n, b, n, 0.0, pc, n) }.unwrap();
        assert_eq!(c.download().unwrap().at(0, 0), result, "{compute}");
    }
    assert_eq!(handle.plans(), 3);
}

#[test]
fn what_a_batch_has_wrong_is_named_as_the_caller_named_it() {
    let device = Device::open(DeviceChoice::Soft).unwrap();
    let mut handle = Handle::new(&device).unwrap();
    let c = upload(&device, &[0.0; 12]);
    let (c, no) = (c.as_device_ptr(), Op::None);
    let mut refused = |[stride_a, stride_b, stride_c]: [usize; 3]| {
        // SAFETY: it is refused before anything is read.
        let result = unsafe {
            sgemm_strided_batched(
                &mut handle,
                no,
                no,
                2,
                3,
                1,
                1.0,
                c,
                2,
                stride_a,
                c,
                1,
                stride_b,
                0.0,
                c,
                2,
                stride_c,
                2,
            )
        };
        result.unwrap_err()
    };
    let error = refused([usize::MAX, 3, 6]);
    assert!(matches!(error, Error::StrideTooLarge { what: "stride_a", .. }), "{error}");
    let error = refused([2, usize::MAX, 6]);
    assert!(matches!(error, Error::StrideTooLarge { what: "stride_b", .. }), "{error}");
    assert!(matches!(refused([2, 3, 1]), Error::Overlap { stride: 1, m: 2, n: 3, ldc: 2 }));
}
