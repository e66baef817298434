//! Batches of pointers.

use cuda_gemm::{
    Activation, Axis, DeviceMatrixMut, Epilogue, Error, Extras, PointerBatch, PointerBatchMut,
    Scalar, bf16, f16,
};
use host::kernels::abi::KernelDescriptor;
use host::verify::{Bound, Method, Problem, Reference};
use host::{Compute, Device, DeviceMatrix, Gemm, Layout, Limits, Matrix};

use crate::case::for_each_kernel;
use crate::common::devices;
use crate::tensor_core;

/// Matrices that lie anywhere, aligned or not, transposed or not, one of them twice, with splits,
/// panels, copies and an epilogue.
#[test]
fn every_kernel_of_batches_takes_pointers() {
    for_each_kernel(|device, descriptor| pointers::<f32, f32>(device, descriptor, Compute::F32));
    tensor_core::for_each(|device, descriptor, compute| match compute {
        Compute::F16 => pointers::<f16, f32>(device, descriptor, compute),
        _ => pointers::<bf16, bf16>(device, descriptor, compute),
    });
}

/// A and B have type `T`, and C has type `U`.
fn pointers<T: Scalar, U: Scalar>(
    device: &Device,
    descriptor: &'static KernelDescriptor,
    compute: Compute,
) {
    let kernel = device.kernel(descriptor).unwrap();
    if !descriptor.abi().has_pointer_batches() {
        let refused = Gemm::new(2, 2, 2).computed_in(compute).batched_pointers(2);
        assert!(matches!(kernel.prepare(refused), Err(Error::Unsuited { .. })));
        return;
    }
    for ([m, n, k], [trans_a, trans_b], staged, blocks) in [
        ([20, 36, 70], [false, false], false, u32::MAX),
        ([33, 65, 9], [true, false], true, 2),
        ([5, 7, 40], [false, true], true, u32::MAX),
        ([4, 8, 0], [false, false], false, u32::MAX),
    ] {
        let count = 3;
        let epilogue = Epilogue::new().bias(Axis::Column).activation(Activation::Relu);
        let gemm = Gemm::new(m, n, k).scaled(1.5, -0.5).transposed(trans_a, trans_b);
        let gemm = gemm.batched_pointers(count).then(epilogue);
        let gemm = gemm.computed_in(compute).stored_as(U::ELEMENT);
        let limits = Limits { grid: [blocks; 3], ..device.info().limits };
        let splits = if descriptor.abi().splits_k() { 2 } else { 1 };
        let plan = kernel.plan(gemm).splits(splits).staged(staged);
        let plan = plan.within(&limits.min(&device.info().limits)).prepare().unwrap();
        let host = |i: usize| {
            let [rows, cols] = gemm.shapes()[i];
            (0..count)
                .map(|product| {
                    let element = if i < 2 { T::ELEMENT } else { U::ELEMENT };
                    Matrix::random(rows, cols, 70 + product as u64, i as u64).rounded(element)
                })
                .collect::<Vec<_>>()
        };
        let [a, b, c] = [host(0), host(1), host(2)];
        let (on_a, on_b, mut on_c) = (
            place::<T>(device, &a, gemm.lda),
            place::<T>(device, &b, gemm.ldb),
            place::<U>(device, &c, gemm.ldc),
        );
        // Of each product.
        let bias = Matrix::random(count, n, 71, 9);
        let on_bias = DeviceMatrix::<f32>::from_host(device, &bias).unwrap();
        // The second product has the first one's B.
        let b_of = |product: usize| if product == 1 { 0 } else { product };
        let a_views: Vec<_> = on_a.iter().map(DeviceMatrix::view).collect();
        let b_views: Vec<_> = (0..count).map(|i| on_b[b_of(i)].view()).collect();
        let batch_a = PointerBatch::new(&a_views).unwrap();
        let batch_b = PointerBatch::new(&b_views).unwrap();
        let c_views = on_c.iter_mut().map(DeviceMatrix::view_mut).collect();
        let mut batch_c = PointerBatchMut::new(c_views).unwrap();
        let extras = Extras::new().bias(on_bias.batch(count).unwrap());
        plan.run_pointers(&batch_a, &batch_b, &mut batch_c, extras).unwrap();
        drop(batch_c);
        for product in 0..count {
            let op = |one: &Matrix, trans| if trans { one.transposed() } else { one.clone() };
            let (a, b) = (op(&a[product], trans_a), op(&b[b_of(product)], trans_b));
            let Gemm { alpha, beta, .. } = gemm;
            let (c, bound) = (Some(&c[product]), Bound::Probabilistic);
            let problem = Problem { a: &a, b: &b, c, alpha, beta, bound };
            let epilogue = host::verify::Epilogue {
                bias: Some((Axis::Column, bias.row(product))),
                activation: epilogue.activation,
                ..Default::default()
            };
            let reference = Reference::compute(problem, Method::Full, 0).unwrap();
            let reference = reference.then(epilogue).unwrap().stored_as(U::ELEMENT);
            let check = reference.check(&on_c[product].download().unwrap()).unwrap();
            assert!(check.passed(), "{} {gemm:?} {product}: {check:?}", descriptor.name());
        }
    }
}

/// Copies of matrices, each of which begins one element further behind its buffer's begin.
fn place<T: Scalar>(device: &Device, all: &[Matrix], ld: usize) -> Vec<DeviceMatrix<T>> {
    let on_device = all.iter().enumerate().map(|(offset, one)| {
        let layout = Layout { offset, ld, tail: 3 };
        let shape = [one.rows(), one.cols()];
        let mut copy = DeviceMatrix::<T>::zeros_in(device, shape, layout).unwrap();
        copy.upload(one).unwrap();
        copy
    });
    on_device.collect()
}

/// What is not as it was planned is refused.
#[test]
fn pointers_are_as_they_were_planned() {
    for device in devices() {
        let auto = device.auto().unwrap();
        let plan = auto.prepare(Gemm::new(2, 3, 4).batched_pointers(2)).unwrap();
        let zeros = |rows, cols| DeviceMatrix::<f32>::zeros(&device, [rows, cols]).unwrap();
        let (a, b) = (zeros(2, 4), zeros(4, 3));
        let [mut x, mut y] = [zeros(2, 3), zeros(2, 3)];
        let refused = plan.run(&a, &b, &mut x);
        assert!(matches!(refused, Err(Error::Extras { is_missing: true, .. })));
        let batch = |matrices: &[_]| PointerBatch::new(matrices).unwrap();
        let (two_a, two_b) = (batch(&[a.view(); 2]), batch(&[b.view(); 2]));
        let mut c = PointerBatchMut::new(vec![x.view_mut(), y.view_mut()]).unwrap();
        plan.run_pointers(&two_a, &two_b, &mut c, Extras::new()).unwrap();
        let one = batch(&[a.view()]);
        let refused = plan.run_pointers(&one, &two_b, &mut c, Extras::new());
        assert!(matches!(refused, Err(Error::PlannedBatch { what: "A", count: 1, .. })));
        let refused = plan.run_pointers(&two_b, &two_b, &mut c, Extras::new());
        assert!(matches!(refused, Err(Error::Shape { what: "A", .. })));
        let plain = auto.prepare(Gemm::new(2, 3, 4)).unwrap();
        let refused = plain.run_pointers(&two_a, &two_b, &mut c, Extras::new());
        assert!(matches!(refused, Err(Error::Extras { is_missing: false, .. })));
        assert!(matches!(PointerBatch::<f32>::new(&[]), Err(Error::NoMatrices)));
        let refused = PointerBatch::new(&[a.view(), b.view()]);
        assert!(matches!(refused, Err(Error::Shape { .. })));
        let none = Vec::<DeviceMatrixMut<'_, f32>>::new();
        assert!(matches!(PointerBatchMut::new(none), Err(Error::NoMatrices)));
    }
}
