use gemm_matrix::{Axis, Matrix};
use kernels_gpu::abi::tensor_core::InputType;
use kernels_gpu::ladder::tensor::sm_90a::{wgmma, wgmma_persistent};

use super::*;
use crate::device::{Device, DeviceChoice};
use crate::gemm::{Compute, Epilogue};
use crate::matrix::{DeviceHalfMatrix, DeviceHalfRef, DeviceMatrix};

#[test]
fn what_was_not_planned_is_refused() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    let (input, gemm) = (InputType::Bf16, Gemm::new(8, 8, 8));
    let kernel = device.tensor_core(&wgmma_persistent::TILE_64X64, input).unwrap();
    let plain = device.tensor_core(&wgmma::DESCRIPTOR, input).unwrap();
    let epilogue = gemm.then(Epilogue::new().residual());
    for (gemm, wrong) in [
        (gemm.transposed(true, false), "transposes"),
        (gemm.device_factors(), "alpha and beta in device memory"),
        (gemm.stacked(2), "batches"),
        (gemm.batched_pointers(2), "batches of pointers"),
        (epilogue, "epilogues"),
        (gemm.stored_as(Element::Bf16), "C in 16 bits"),
    ] {
        let refused = plain.prepare(gemm).unwrap_err();
        let is_right = matches!(refused, Error::TensorCoreShape { what, .. } if what == wrong);
        assert!(is_right, "{refused}");
        assert_eq!(kernel.prepare(gemm).is_ok(), !gemm.pointers, "{wrong}");
    }
    let refused = kernel.prepare(gemm.stored_as(Element::F16)).unwrap_err();
    assert!(matches!(refused, Error::Compute { .. }), "{refused}");
    for other in [Compute::F16, Compute::Tf32, Compute::Tf32x3] {
        let refused = kernel.prepare(gemm.computed_in(other)).unwrap_err().to_string();
        assert!(refused.contains(".computed_in(Compute::Bf16)"), "{refused}");
    }
    let own = kernel.prepare(gemm.computed_in(Compute::Bf16)).unwrap();
    assert_eq!(own.gemm(), kernel.prepare(gemm).unwrap().gemm());

    let other = Stream::new(&device).unwrap();
    let plan = kernel.prepare(gemm).unwrap();
    let half = |on: &Stream| DeviceHalfMatrix::zeros(on, input, 8, 8).unwrap();
    let (a, b) = (half(&device.stream()), half(&device.stream()));
    let mut c = DeviceMatrix::zeros(&device, 8, 8).unwrap();
    let mut wide = DeviceMatrix::zeros(&device, 8, 9).unwrap();
    let part = wide.submatrix_mut(0..8, 0..8).unwrap();
    let refused = plan.enqueue(&a, &b, part).unwrap_err();
    assert!(matches!(refused, Error::PlannedLd { what: "C", ld: 9, planned: 8 }), "{refused}");

    let mut other_c = DeviceMatrix::zeros(&other, 8, 8).unwrap();
    for (refused, wrong) in [
        (plan.enqueue(&half(&other), &b, &mut c), "A"),
        (plan.enqueue(&a, &half(&other), &mut c), "B"),
        (plan.enqueue(&a, &b, &mut other_c), "C"),
    ] {
        let is_right = matches!(refused, Err(Error::WrongStream { what }) if what == wrong);
        assert!(is_right, "{refused:?}");
    }
    let mut half_c = half(&device.stream());
    let f32_a = DeviceMatrix::zeros(&device, 8, 8).unwrap();
    for (refused, wrong) in
        [(plan.enqueue(&a, &b, &mut half_c), "C"), (plan.enqueue(&f32_a, &b, &mut c), "A")]
    {
        let is_right = matches!(refused, Err(Error::PlannedType { what, .. }) if what == wrong);
        assert!(is_right, "{refused:?}");
    }
    let refused = plan.enqueue(a.view().broadcast(2), &b, &mut c).unwrap_err();
    assert!(matches!(refused, Error::PlannedBatch { what: "A", count: 2, .. }), "{refused}");
    // Two of C with 8 elements between them, and without.
    let apart = kernel.prepare(gemm.batched(2, [0, 0, 72])).unwrap();
    let mut both = DeviceMatrix::zeros(&device, 16, 8).unwrap();
    let (a2, b2) = (a.view().broadcast(2), b.view().broadcast(2));
    let c2 = both.view_mut().split_rows(2).unwrap();
    let refused = apart.enqueue(a2, b2, c2).unwrap_err();
    let is_right =
        matches!(refused, Error::PlannedBatch { what: "C", stride: 64, planned_stride: 72, .. });
    assert!(is_right, "{refused}");
    let refused = apart.enqueue(a2, b2, &mut c).unwrap_err();
    let is_right = matches!(refused, Error::PlannedBatch { what: "C", count: 1, .. });
    assert!(is_right, "{refused}");

    // Rows of 16 bytes that do not begin on 16.
    let at = |matrix: &DeviceHalfMatrix, skip| DevicePointer::from_raw(matrix.address() + skip);
    for (skips, wrong) in [([2, 0], "A"), ([0, 8], "B")] {
        let [a, b] = [at(&a, skips[0]), at(&b, skips[1])];
        // SAFETY: nothing is enqueued.
        let refused = unsafe { plan.enqueue_raw(a, b, c.as_device_ptr()) }.unwrap_err();
        let is_right = matches!(refused, Error::PlannedAlignment { what, .. } if what == wrong);
        assert!(is_right, "{refused}");
    }
}

fn bf16(device: &Device, rows: usize, cols: usize, from: usize) -> DeviceHalfMatrix {
    let at = |row, col| ((from + 3 * row + col) % 8) as f32;
    DeviceHalfMatrix::from_host(device, InputType::Bf16, &Matrix::from_fn(rows, cols, at)).unwrap()
}

/// What the kernel computes of such matrices, by three loops.
fn expected(m: usize, n: usize, k: usize, [from_a, from_b]: [usize; 2]) -> Matrix {
    let at = |from, row, col| ((from + 3 * row + col) % 8) as f32;
    Matrix::from_fn(m, n, |row, col| (0..k).map(|i| at(from_a, row, i) * at(from_b, i, col)).sum())
}

fn planned(device: &Device, gemm: Gemm) -> TensorCorePlan {
    let kernel = device.tensor_core(&wgmma_persistent::TILE_64X64, InputType::Bf16).unwrap();
    kernel.plan(gemm).any_alignment().prepare().unwrap()
}

#[test]
fn the_last_tensor_maps_are_those_of_the_same_matrices() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    let plan = planned(&device, Gemm::new(8, 8, 16));
    let [a, other_a] = [0, 1].map(|from| bf16(&device, 8, 16, from));
    let [b, other_b] = [2, 3].map(|from| bf16(&device, 16, 8, from));
    let mut c = DeviceMatrix::zeros(&device, 8, 8).unwrap();
    for (a, b, from) in
        [(&a, &b, [0, 2]), (&a, &b, [0, 2]), (&other_a, &b, [1, 2]), (&other_a, &other_b, [1, 3])]
    {
        plan.enqueue(a, b, &mut c).unwrap();
        assert_eq!(c.download().unwrap(), expected(8, 8, 16, from), "{from:?}");
    }
}

/// The same memory, at other leading dimensions and strides.
#[test]
fn the_last_tensor_maps_are_those_of_the_same_leading_dimensions_and_strides() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    let (m, n, k, count) = (8, 8, 16, 2);
    let plan = planned(&device, Gemm::new(m, n, k).stacked(count));
    // No two parts are alike.
    let at = |i: usize| (37 * i % 101 % 8) as f32;
    let all = Matrix::from_fn(1, 1024, |_, i| at(i));
    let all = DeviceHalfMatrix::from_host(&device, InputType::Bf16, &all).unwrap();
    let view = |rows, cols, ld| {
        let (on, address) = (all.stream(), all.address());
        // SAFETY: the matrix has these elements, and nothing else uses it.
        unsafe { DeviceHalfRef::from_address(on, InputType::Bf16, address, rows, cols, ld) }
            .unwrap()
    };
    let matrices = |[rows, cols]: [usize; 2], [ld, stride]: [usize; 2]| {
        view(count, stride, stride).rows_as_matrices(rows, cols, ld).unwrap()
    };
    let run = |of_a: [usize; 2], of_b: [usize; 2]| {
        let mut c = DeviceMatrix::zeros(&device, count * m, n).unwrap();
        let to = c.view_mut().split_rows(count).unwrap();
        plan.enqueue(matrices([m, k], of_a), matrices([k, n], of_b), to).unwrap();
        let right = Matrix::from_fn(count * m, n, |row, col| {
            let (product, row) = (row / m, row % m);
            let a = |i| at(product * of_a[1] + row * of_a[0] + i);
            let b = |i| at(product * of_b[1] + i * of_b[0] + col);
            (0..k).map(|i| a(i) * b(i)).sum()
        });
        assert_eq!(c.download().unwrap(), right, "{of_a:?} {of_b:?}");
    };
    // One of them changes at a time.
    for (of_a, of_b) in [
        ([16, 256], [8, 256]),
        ([24, 256], [8, 256]),
        ([24, 192], [8, 256]),
        ([24, 192], [16, 256]),
        ([24, 192], [16, 248]),
    ] {
        run(of_a, of_b);
    }
}

/// What an epilogue reads is of each product, in whichever launch it is.
#[test]
fn each_product_has_its_own_extras() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    let (m, n, k, count) = (3, 5, 8, 5);
    let epilogue = Epilogue::new().scale(Axis::Row).bias(Axis::Column).residual();
    let mut plan = planned(&device, Gemm::new(m, n, k).stacked(count).then(epilogue));
    plan.most_products = 2;
    let (a, b) = (bf16(&device, count * m, k, 0), bf16(&device, count * k, n, 1));
    let from_host = |matrix: &Matrix| DeviceMatrix::from_host(&device, matrix).unwrap();
    let scale = Matrix::from_fn(count, m, |product, row| (1 + product + 2 * row) as f32);
    let bias = Matrix::from_fn(count, n, |product, col| (100 * product + col) as f32);
    let residual = Matrix::from_fn(count * m, n, |row, col| (1000 * row + 7 * col) as f32);
    let (on_scale, on_bias) = (from_host(&scale), from_host(&bias));
    let on_residual = from_host(&residual);
    let mut c = DeviceMatrix::zeros(&device, count * m, n).unwrap();
    let extras = Extras::new()
        .scale(on_scale.view().split_rows(count).unwrap())
        .bias(on_bias.view().split_rows(count).unwrap())
        .residual(on_residual.view().split_rows(count).unwrap());
    let (a, b) = (a.view().split_rows(count).unwrap(), b.view().split_rows(count).unwrap());
    plan.enqueue_with(a, b, c.view_mut().split_rows(count).unwrap(), extras).unwrap();
    let right = Matrix::from_fn(count * m, n, |at, col| {
        let (product, row) = (at / m, at % m);
        let sum = expected(m, n, k, [3 * product * m, 1 + 3 * product * k]).at(row, col);
        sum * scale.at(product, row) + bias.at(product, col) + residual.at(at, col)
    });
    assert_eq!(c.download().unwrap(), right);
}

#[test]
fn addresses_go_with_the_plans_leading_dimensions() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    let plan = planned(&device, Gemm::new(8, 8, 16).leading_dimensions(16, 8, 12));
    let (a, b) = (bf16(&device, 8, 16, 0), bf16(&device, 16, 8, 2));
    let c = DeviceMatrix::zeros(&device, 8, 12).unwrap();
    let [pa, pb] = [&a, &b].map(|matrix| DevicePointer::from_raw(matrix.address()));
    // SAFETY: the matrices lie as planned, and nothing else uses them.
    unsafe { plan.enqueue_raw(pa, pb, c.as_device_ptr()) }.unwrap();
    let (result, right) = (c.download().unwrap(), expected(8, 8, 16, [0, 2]));
    for row in 0..8 {
        assert_eq!((&result.row(row)[..8], &result.row(row)[8..]), (right.row(row), &[0.0; 4][..]));
    }
}

#[test]
fn copies_are_of_each_product_or_of_one_for_all() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    let (m, n, k, count) = (1, 3, 5, 5);
    let gemm = Gemm::new(m, n, k);
    let mut plan = planned(&device, gemm.stacked(count));
    // Without their first columns, no rows begin on 16 bytes.
    let a = bf16(&device, count * m, 1 + k, 0);
    let (b, one_b) = (bf16(&device, count * k, 1 + n, 1), bf16(&device, k, 1 + n, 1));
    fn part(matrix: &DeviceHalfMatrix) -> DeviceHalfRef<'_> {
        matrix.view().submatrix(0..matrix.rows(), 1..matrix.cols()).unwrap()
    }
    // Products of several launches.
    plan.copies.as_mut().unwrap().most_products = 2;
    let run = |plan: &TensorCorePlan, b: DeviceHalfRef<'_>| {
        let mut c = DeviceMatrix::zeros(&device, count * m, n).unwrap();
        let a = part(&a).split_rows(count)?;
        plan.enqueue(a, b, c.view_mut().split_rows(count)?)?;
        c.download()
    };
    let each_b = part(&b).split_rows(count).unwrap();
    let shared_b = part(&one_b).broadcast(count);
    let (each, shared) = (run(&plan, each_b).unwrap(), run(&plan, shared_b).unwrap());
    for product in 0..count {
        let right = expected(m, n, k, [1 + 3 * product, 2 + 3 * k * product]);
        assert_eq!(each.row(product), right.row(0), "{product}");
        let right = expected(m, n, k, [1 + 3 * product, 2]);
        assert_eq!(shared.row(product), right.row(0), "{product}");
    }

    let plan = planned(&device, gemm.batched(count, [m * k, 0, m * n]));
    assert_eq!(plan.copies.as_ref().unwrap().counts, [count, 1]);
    assert_eq!(run(&plan, shared_b).unwrap(), shared);
    let refused = run(&plan, each_b).unwrap_err();
    let is_right = matches!(refused, Error::PlannedBatch { what: "B", planned_stride: 0, .. });
    assert!(is_right, "{refused}");
}

/// Heads that lie side by side, and a C of odd strides.
#[test]
fn matrices_of_a_batch_may_lie_side_by_side() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    let (m, n, k, heads) = (5, 3, 8, 2);
    let gemm =
        Gemm::new(m, n, k).leading_dimensions(heads * k, heads * n, 8).stored_as(Element::Bf16);
    let plan = planned(&device, gemm.batched(heads, [k, n, n]));
    let (a, b) = (bf16(&device, m, heads * k, 0), bf16(&device, k, heads * n, 1));
    let mut c = DeviceHalfMatrix::zeros(&device, InputType::Bf16, m, heads * n).unwrap();
    let parts = c.view_mut().split_cols(heads).unwrap();
    let (a, b) = (a.view().split_cols(heads).unwrap(), b.view().split_cols(heads).unwrap());
    plan.enqueue(a, b, parts).unwrap();
    for head in 0..heads {
        let part = c.view().submatrix(0..m, head * n..(head + 1) * n).unwrap();
        let right = expected(m, n, k, [head * k, 1 + head * n]);
        assert_eq!(part.download().unwrap(), right.rounded(Element::Bf16), "{head}");
    }
}

#[test]
fn of_no_products_nothing_is_done() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    let (most, none) = (MAX_DIMENSION, DevicePointer::<u16>::null());
    let gemm = Gemm::new(most, most, most);
    let kernel = device.tensor_core(&wgmma_persistent::TILE_64X64, InputType::Bf16).unwrap();
    assert!(matches!(kernel.prepare(gemm), Err(Error::TooLarge { .. })));
    let plan = planned(&device, gemm.batched(0, [0; 3]));
    // SAFETY: there are no matrices.
    unsafe { plan.enqueue_raw(none, none, none.cast::<f32>()) }.unwrap();
}
