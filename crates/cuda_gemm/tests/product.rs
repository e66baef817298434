//! `gemm(..)`: every type, layout, batch and part of a matrix, next to three loops of whole
//! numbers, whose sums are exact in every type.

use cuda_gemm::{
    Axis, Device, DeviceChoice, DeviceMatrix, DeviceMatrixRef, Element, Error, Layout, Matrix,
    OutputOf, Precision, Scalar, Stream, bf16, f16, gemm,
};

/// Small whole numbers.
fn numbers(rows: usize, cols: usize, seed: usize) -> Matrix {
    Matrix::from_fn(rows, cols, |row, col| ((7 * row + 5 * col + seed) % 5) as f32 - 2.0)
}

/// `alpha A B + beta C` of host matrices.
fn expected(a: &Matrix, b: &Matrix, c: &Matrix, [alpha, beta]: [f32; 2]) -> Matrix {
    Matrix::from_fn(a.rows(), b.cols(), |row, col| {
        let sum: f32 = (0..a.cols()).map(|at| a.at(row, at) * b.at(at, col)).sum();
        alpha * sum + beta * c.at(row, col)
    })
}

/// A matrix that lies as its transpose if so said, in the middle of its buffer.
fn placed<T: Scalar>(
    on: &Stream,
    matrix: &Matrix,
    transposed: bool,
    skip: usize,
) -> DeviceMatrix<T> {
    let stored = if transposed { matrix.transposed() } else { matrix.clone() };
    let layout = Layout { offset: skip, ld: stored.cols() + skip, tail: 0 };
    let mut on_device = DeviceMatrix::zeros_in(on, [stored.rows(), stored.cols()], layout).unwrap();
    on_device.upload(&stored).unwrap();
    on_device
}

fn op<T: Scalar>(matrix: &DeviceMatrix<T>, transposed: bool) -> DeviceMatrixRef<'_, T> {
    if transposed { matrix.t() } else { matrix.view() }
}

fn check<T: Scalar, U: OutputOf<T>>(on: &Stream, sizes: [usize; 3]) {
    let [m, n, k] = sizes;
    let (a, b, c) = (numbers(m, k, 1), numbers(k, n, 2), numbers(m, n, 3));
    for (i, [trans_a, trans_b]) in
        [[false, false], [true, false], [false, true], [true, true]].into_iter().enumerate()
    {
        for (factors, skip) in [([1.0, 0.0], 0), ([-1.0, 2.0], i), ([0.0, 1.0], 0), ([2.0, 0.0], 3)]
        {
            let [on_a, on_b] =
                [(&a, trans_a), (&b, trans_b)].map(|(of, trans)| placed::<T>(on, of, trans, skip));
            let mut on_c = placed::<U>(on, &c, false, skip);
            let [alpha, beta] = factors;
            // The second call has the first one's plan.
            for _ in 0..2 {
                on_c.upload(&c).unwrap();
                let product = gemm(op(&on_a, trans_a), op(&on_b, trans_b));
                product.alpha(alpha).beta(beta).run(&mut on_c).unwrap();
                let (result, right) = (on_c.download().unwrap(), expected(&a, &b, &c, factors));
                let what = (T::ELEMENT, U::ELEMENT, sizes, trans_a, trans_b, factors, skip);
                assert_eq!(result, right, "{what:?} on {}", on.device().info().name);
            }
        }
    }
}

#[test]
fn every_type_and_layout_agrees_with_three_loops() {
    for choice in [DeviceChoice::Soft, DeviceChoice::SoftSm90] {
        let device = Device::open(choice).unwrap();
        let stream = device.stream();
        for sizes in [[5, 9, 6], [1, 40, 33], [64, 8, 16], [3, 0, 2], [4, 3, 0], [7, 1, 5]] {
            check::<f32, f32>(&stream, sizes);
            check::<bf16, f32>(&stream, sizes);
            check::<bf16, bf16>(&stream, sizes);
            check::<f16, f32>(&stream, sizes);
            check::<f16, f16>(&stream, sizes);
        }
    }
}

/// Batches of both operands or of one, side by side and one below the other.
#[test]
fn batches_agree_with_three_loops() {
    fn heads<T: Scalar>(device: &Device) {
        let (count, m, n, k) = (3, 4, 5, 8);
        let (a, b) = (numbers(m, count * k, 1), numbers(count * n, k, 2));
        let one = |head: usize| {
            let a = Matrix::from_fn(m, k, |row, at| a.at(row, head * k + at));
            let b = Matrix::from_fn(k, n, |at, col| b.at(head * n + col, at));
            expected(&a, &b, &Matrix::zeros(m, n), [1.0, 0.0])
        };
        let on_a = DeviceMatrix::<T>::from_host(device, &a).unwrap();
        let on_b = DeviceMatrix::<T>::from_host(device, &b).unwrap();
        let mut c = DeviceMatrix::<T>::zeros(device, [count * m, n]).unwrap();
        let heads = gemm(on_a.view().batch_cols(count).unwrap(), on_b.batch(count).unwrap().t());
        heads.run(c.batch_mut(count).unwrap()).unwrap();
        let result = c.download().unwrap();
        for head in 0..count {
            let part = Matrix::from_fn(m, n, |row, col| result.at(head * m + row, col));
            assert_eq!(part, one(head), "{} head {head}", T::ELEMENT);
        }
        // One B for all.
        let shared = on_b.submatrix(0..n, 0..k).unwrap().t();
        let product = gemm(on_a.view().batch_cols(count).unwrap(), shared);
        product.run(c.batch_mut(count).unwrap()).unwrap();
        assert_eq!(c.submatrix(0..m, 0..n).unwrap().download().unwrap(), one(0));
        // A batch needs a C for each.
        let refused = product.run(c.submatrix_mut(0..m, 0..n).unwrap());
        assert!(matches!(refused, Err(Error::BatchCount { what: "C", count: 1, batch: 3 })));
        let two = on_b.view().batch(5).unwrap().t();
        let refused = gemm(on_a.view().batch_cols(3).unwrap().submatrix(0..m, 0..8).unwrap(), two)
            .builder(c.batch(3).unwrap());
        assert!(refused.is_err());
    }
    for choice in [DeviceChoice::Soft, DeviceChoice::SoftSm90] {
        let device = Device::open(choice).unwrap();
        heads::<f32>(&device);
        heads::<bf16>(&device);
        heads::<f16>(&device);
    }
}

#[test]
fn epilogues_and_precisions() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    let (a, b, residual) = (numbers(4, 8, 1), numbers(8, 6, 2), numbers(4, 6, 5));
    let (bias, scale) = (numbers(1, 6, 3), numbers(1, 4, 4));
    let on = |matrix: &Matrix| DeviceMatrix::<f32>::from_host(&device, matrix).unwrap();
    let (on_bias, on_scale, on_residual) = (on(&bias), on(&scale), on(&residual));
    let sums = expected(&a, &b, &residual, [1.0, 0.0]);
    let right = Matrix::from_fn(4, 6, |row, col| {
        let value = sums.at(row, col) * scale.at(0, row) + bias.at(0, col);
        value.max(0.0) + residual.at(row, col)
    });
    let (f32_a, f32_b) = (on(&a), on(&b));
    let mut c = DeviceMatrix::<f32>::zeros(&device, [4, 6]).unwrap();
    for precision in [Precision::F32, Precision::Tf32, Precision::Tf32x3] {
        let product = gemm(&f32_a, &f32_b).precision(precision).scale(Axis::Row, &on_scale);
        product.bias(&on_bias).relu().residual(&on_residual).run(&mut c).unwrap();
        assert_eq!(c.download().unwrap(), right, "{precision:?}");
    }
    let half = |matrix: &Matrix| DeviceMatrix::<bf16>::from_host(&device, matrix).unwrap();
    let (half_a, half_b) = (half(&a), half(&b));
    let product = gemm(&half_a, &half_b).scale(Axis::Row, &on_scale).bias(&on_bias).relu();
    let plan = product.residual(&on_residual).plan(&c).unwrap();
    plan.run(&half_a, &half_b, &mut c).unwrap();
    assert_eq!(c.download().unwrap(), right);
    // Factors in device memory.
    let factors = DeviceMatrix::from_slice(&device, [1, 2], &[3f32, 0.0]).unwrap();
    let [alpha, beta] = [0, 1].map(|at| factors.submatrix(0..1, at..at + 1).unwrap());
    gemm(&half_a, &half_b).device_factors(alpha, beta).run(&mut c).unwrap();
    assert_eq!(c.download().unwrap(), expected(&a, &b, &residual, [3.0, 0.0]));
}

/// A product of a kind that has run allocates nothing, so that it can be captured; and on another
/// stream it is of another kind.
#[test]
fn plans_are_found_again() {
    let device = Device::open(DeviceChoice::SoftSm90).unwrap();
    // Rows of 134 bytes, which the kernel has copied into memory of the plan's.
    let on = |stream: &Stream| {
        let matrix = DeviceMatrix::<bf16>::from_host(stream, &numbers(700, 67, 1)).unwrap();
        (matrix, DeviceMatrix::<f32>::zeros(stream, [700, 700]).unwrap())
    };
    let streams = [device.stream(), Stream::new(&device).unwrap()];
    let right = {
        let a = numbers(700, 67, 1);
        expected(&a, &a.transposed(), &Matrix::zeros(700, 700), [1.0, 0.0])
    };
    for stream in &streams {
        let (a, mut c) = on(stream);
        assert!(stream.capture(|| gemm(&a, a.t()).run(&mut c)).is_err(), "it allocates");
        gemm(&a, a.t()).run(&mut c).unwrap();
        let graph = stream.capture(|| gemm(&a, a.t()).alpha(2.0).run(&mut c)).unwrap();
        // SAFETY: the matrices are there, and the device's cache keeps the plan.
        unsafe { graph.launch() }.unwrap();
        let twice = right.as_slice().iter().map(|x| 2.0 * x);
        assert!(c.download().unwrap().as_slice().iter().copied().eq(twice));
    }
    let ((a, _), (_, mut other)) = (on(&streams[0]), on(&streams[1]));
    let refused = gemm(&a, a.t()).run(&mut other);
    assert!(matches!(refused, Err(Error::WrongStream { what: "C" })), "{refused:?}");
}

#[test]
fn what_does_not_go_together_is_refused() {
    let device = Device::open(DeviceChoice::Soft).unwrap();
    let zeros = |shape| DeviceMatrix::<f32>::zeros(&device, shape).unwrap();
    let (a, b, mut c, row) = (zeros([2, 3]), zeros([3, 4]), zeros([2, 4]), zeros([1, 3]));
    gemm(&a, &b).run(&mut c).unwrap();
    assert!(matches!(gemm(&a, &a).run(&mut c), Err(Error::Shape { what: "B", .. })));
    assert!(matches!(gemm(&a, b.t()).run(&mut c), Err(Error::Shape { what: "B", .. })));
    assert!(matches!(gemm(&a, &b).run(&mut zeros([4, 2])), Err(Error::Shape { what: "C", .. })));
    let refused = gemm(&a, &b).bias(&row).run(&mut c);
    assert!(matches!(refused, Err(Error::Shape { what: "the bias", .. })), "{refused:?}");
    let refused = gemm(&a, &b).alpha(f32::NAN).run(&mut c);
    assert!(matches!(refused, Err(Error::NotFinite { what: "alpha", .. })), "{refused:?}");
    // A plan is for views that lie as planned.
    let square = zeros([4, 4]);
    let mut out = zeros([4, 4]);
    let plan = gemm(&square, square.t()).plan(&out).unwrap();
    plan.run(&square, square.t(), &mut out).unwrap();
    let refused = plan.run(&square, &square, &mut out);
    assert!(matches!(refused, Err(Error::PlannedTranspose { what: "B", planned: true })));
    assert_eq!(square.element(), Element::F32);
}
