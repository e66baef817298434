//! Epilogues, and alpha and beta in device memory.

use cuda_gemm::{Activation, Axis, Epilogue, Error, Extras};
use host::kernels::abi::{Arithmetic, KernelDescriptor};
use host::verify::{self, Bound, Method, Problem, Reference};
use host::{Device, DeviceMatrix, Gemm, Limits, Matrix};

use crate::case::{for_each_kernel, oriented};
use crate::common::devices;

/// What an epilogue reads, on the host and on the device, for products that lie one below the
/// other; vectors for all of them if `shared`.
struct Given {
    scale: Matrix,
    bias: Matrix,
    residual: Matrix,
    on_device: [DeviceMatrix<f32>; 3],
}

impl Given {
    fn new(device: &Device, gemm: &Gemm, is_shared: bool) -> Self {
        let Gemm { m, n, batch, epilogue, .. } = *gemm;
        let count = if is_shared { 1 } else { batch };
        let vector = |axis: Option<Axis>, stream| {
            let len = axis.map_or(0, |axis| axis.len(m, n));
            Matrix::random(count, len, 61, stream)
        };
        let (scale, bias) = (vector(epilogue.scale, 4), vector(epilogue.bias, 5));
        let residual = Matrix::random(m * batch, n, 61, 6);
        let on_device = [&scale, &bias, &residual]
            .map(|matrix| DeviceMatrix::<f32>::from_host(device, matrix).unwrap());
        Self { scale, bias, residual, on_device }
    }

    fn extras(&self, gemm: &Gemm) -> Extras<'_> {
        let [scale, bias, residual] = self.on_device.each_ref().map(DeviceMatrix::view);
        let count = self.scale.rows();
        let mut extras = Extras::new();
        if gemm.epilogue.scale.is_some() {
            extras = extras.scale(scale.batch(count).unwrap());
        }
        if gemm.epilogue.bias.is_some() {
            extras = extras.bias(bias.batch(count).unwrap());
        }
        if gemm.epilogue.residual {
            extras = extras.residual(residual.batch(gemm.batch).unwrap());
        }
        extras
    }

    /// Of one product, for the reference; `residual` is its part.
    fn of<'a>(&'a self, gemm: &Gemm, product: usize, residual: &'a Matrix) -> verify::Epilogue<'a> {
        let row = |matrix: &'a Matrix| matrix.row(product.min(matrix.rows() - 1));
        verify::Epilogue {
            scale: gemm.epilogue.scale.map(|axis| (axis, row(&self.scale))),
            bias: gemm.epilogue.bias.map(|axis| (axis, row(&self.bias))),
            activation: gemm.epilogue.activation,
            residual: gemm.epilogue.residual.then_some(residual),
        }
    }
}

/// The rows of one product.
fn part(all: &Matrix, rows: usize, product: usize) -> Matrix {
    Matrix::from_fn(rows, all.cols(), |row, col| all.at(product * rows + row, col))
}

/// Runs stacked products on a kernel, twice, and compares each with f64.
fn assert_right(
    device: &Device,
    descriptor: &'static KernelDescriptor,
    gemm: Gemm,
    [splits, blocks]: [u32; 2],
    is_shared: bool,
) {
    let name = format!("{} on {}: {gemm:?}", descriptor.name(), device.info().name);
    let shapes = gemm.shapes();
    let [a, b, c] = [0, 1, 2]
        .map(|i| Matrix::random(shapes[i][0] * gemm.batch, shapes[i][1], 60, i as u64 + 1));
    let given = Given::new(device, &gemm, is_shared);
    let splits = if descriptor.abi().splits_k() { splits } else { 1 };
    let limits = Limits { grid: [blocks; 3], ..device.info().limits }.min(&device.info().limits);
    let kernel = device.kernel(descriptor).unwrap();
    let plan = kernel.plan(gemm).splits(splits).within(&limits).prepare().unwrap();
    let [on_a, on_b] =
        [&a, &b].map(|matrix| DeviceMatrix::<f32>::from_host(device, matrix).unwrap());
    let mut on_c = DeviceMatrix::<f32>::zeros(device, [c.rows(), c.cols()]).unwrap();
    let mut before = None;
    for _ in 0..2 {
        match gemm.beta == 0.0 {
            true => on_c.fill_buffer(f32::NAN.to_bits()).unwrap(),
            false => on_c.upload(&c).unwrap(),
        }
        let split = |matrix: &DeviceMatrix<f32>| matrix.rows() / gemm.batch;
        assert_eq!(split(&on_c), gemm.m);
        let [batch_a, batch_b] = [&on_a, &on_b].map(|all| all.batch(gemm.batch).unwrap());
        let batch_a = oriented(&batch_a, gemm.trans_a);
        let batch_b = oriented(&batch_b, gemm.trans_b);
        let batch_c = on_c.view_mut().batch(gemm.batch).unwrap();
        plan.run_with(batch_a, batch_b, batch_c, given.extras(&gemm)).unwrap();
        let result = on_c.download().unwrap();
        for product in 0..gemm.batch {
            let op = |all: &Matrix, rows, trans| {
                let one = part(all, rows, product);
                if trans { one.transposed() } else { one }
            };
            let (a, b) = (op(&a, shapes[0][0], gemm.trans_a), op(&b, shapes[1][0], gemm.trans_b));
            let [old, residual, result] =
                [&c, &given.residual, &result].map(|all| part(all, gemm.m, product));
            let Gemm { alpha, beta, .. } = gemm;
            let bound = Bound::Probabilistic;
            let problem = Problem { a: &a, b: &b, c: Some(&old), alpha, beta, bound };
            let reference = Reference::compute(problem, Method::Full, 0).unwrap();
            let reference = reference.then(given.of(&gemm, product, &residual)).unwrap();
            let check = reference.check(&result).unwrap();
            assert!(check.passed(), "{name}, product {product}: {check:?}");
        }
        let bits: Vec<_> = result.as_slice().iter().map(|x| x.to_bits()).collect();
        assert!(before.is_none_or(|before| before == bits), "{name}: other bits");
        before = Some(bits);
    }
}

/// Epilogues with every step and every activation, once each at least, and all at once.
fn epilogues() -> [Epilogue; 6] {
    use Activation::{Gelu, GeluTanh, Relu, Silu};
    use Axis::{Column, Row};
    let new = Epilogue::new;
    [
        new().bias(Column).activation(Gelu),
        new().bias(Row).activation(Relu),
        new().scale(Row).activation(GeluTanh),
        new().scale(Column).residual(),
        new().activation(Silu),
        new().scale(Row).bias(Column).activation(Gelu).residual(),
    ]
}

/// Every kernel that `auto` may choose, on whole tiles and edges, aligned or not, with splits,
/// transposes, panels and batches. The others refuse them.
#[test]
fn every_kernel_of_auto_has_every_epilogue() {
    for_each_kernel(|device, descriptor| {
        let gemm = Gemm::new(20, 36, 70);
        if !descriptor.abi().has_epilogue() {
            let gemm = gemm.then(epilogues()[0]);
            let refused = device.kernel(descriptor).unwrap().prepare(gemm);
            assert!(matches!(refused, Err(Error::Unsuited { .. })), "{}", descriptor.name());
            return;
        }
        let whole = [descriptor.tile().bm as usize, descriptor.tile().bn as usize];
        let settings = [
            (gemm.scaled(1.5, 0.5), [2, u32::MAX], true),
            (Gemm::new(33, 65, 9), [1, 1], true),
            (gemm.stacked(3).scaled(-1.0, 2.0), [2, u32::MAX], false),
            (Gemm::new(5, 7, 40).transposed(true, true).stacked(2), [1, u32::MAX], true),
            (Gemm::new(9, 8, 0).scaled(1.0, 0.5), [1, u32::MAX], true),
            (Gemm::new(whole[0], whole[1], 20), [1, u32::MAX], true),
        ];
        for (epilogue, (gemm, splits, is_shared)) in epilogues().into_iter().zip(settings) {
            assert_right(device, descriptor, gemm.then(epilogue), splits, is_shared);
        }
        // All at once at the edges of each.
        for (gemm, splits, is_shared) in &settings[1..4] {
            assert_right(device, descriptor, gemm.then(epilogues()[5]), *splits, *is_shared);
        }
    });
}

/// `auto` never chooses a kernel without them, whatever the shape.
#[test]
fn auto_takes_epilogues() {
    for device in devices() {
        let auto = device.auto().unwrap();
        for [m, n, k] in [[1, 40, 30], [40, 1, 30], [70, 90, 3], [33, 30, 200], [200, 300, 16]] {
            let gemm = Gemm::new(m, n, k).then(epilogues()[0]);
            let choice = auto.choose(&gemm).unwrap();
            assert!(gemm.suits(choice.kernel), "{choice}");
            assert_right(&device, choice.kernel, gemm, [choice.splits, u32::MAX], true);
        }
    }
}

/// Alpha and beta that lie in device memory are those of the moment of the launch, and BLAS's rules
/// hold for them.
#[test]
fn factors_in_device_memory() {
    for_each_kernel(|device, descriptor| {
        let gemm = Gemm::new(20, 33, 40).device_factors();
        let kernel = device.kernel(descriptor).unwrap();
        if !descriptor.abi().has_epilogue() {
            assert!(matches!(kernel.prepare(gemm), Err(Error::Unsuited { .. })));
            return;
        }
        let splits = if descriptor.abi().splits_k() { 2 } else { 1 };
        let plan = kernel.plan(gemm).splits(splits).prepare().unwrap();
        let [a, b, c] = [0, 1, 2].map(|i| {
            let [rows, cols] = gemm.shapes()[i];
            Matrix::random(rows, cols, 62, i as u64)
        });
        let nan = |matrix: &Matrix| Matrix::from_fn(matrix.rows(), matrix.cols(), |_, _| f32::NAN);
        let mut factors = DeviceMatrix::<f32>::zeros(device, [1, 2]).unwrap();
        for (alpha, beta) in [(1.5, 0.5), (-2.0, 0.0), (0.0, 2.0), (0.0, 0.0)] {
            factors.upload(&Matrix::from_vec(1, 2, vec![alpha, beta])).unwrap();
            // What is not to be looked at is NaN.
            let on_a = if alpha == 0.0 { nan(&a) } else { a.clone() };
            let on_c = if beta == 0.0 { nan(&c) } else { c.clone() };
            let [on_a, on_b, mut on_c] =
                [&on_a, &b, &on_c].map(|one| DeviceMatrix::<f32>::from_host(device, one).unwrap());
            let one = |at| factors.submatrix(0..1, at..at + 1).unwrap();
            let extras = Extras::new().factors(one(0), one(1));
            plan.run_with(&on_a, &on_b, &mut on_c, extras).unwrap();
            let bound = Bound::Probabilistic;
            let problem = Problem { a: &a, b: &b, c: Some(&c), alpha, beta, bound };
            let reference = Reference::compute(problem, Method::Full, 0).unwrap();
            let check = reference.check(&on_c.download().unwrap()).unwrap();
            assert!(check.passed(), "{} {alpha} {beta}: {check:?}", descriptor.name());
        }
    });
}

/// What activations make of numbers that are not finite, of zeros, and far from them, where bounds
/// of rounding errors would take 0 for right. Values of GELU and SiLU by mpmath.
#[test]
fn activations_of_few_and_of_no_numbers() {
    const INF: f32 = f32::INFINITY;
    const NAN: f32 = f32::NAN;
    let rows: [(Activation, &[(f32, f64)]); 4] = [
        (Activation::Relu, &[(-INF, 0.0), (-1.0, 0.0), (2.5, 2.5)]),
        (
            Activation::Gelu,
            &[
                (-INF, 0.0),
                (-10.0, -7.619_853_024_16e-23),
                (-5.0, -1.433_257_859_4e-6),
                (-1.0, -0.158_655_253_931),
                (0.5, 0.345_731_230_637),
                (3.0, 2.995_950_305_91),
            ],
        ),
        (
            Activation::GeluTanh,
            &[
                (-5.0, -2.291_796_196_63e-7),
                (-1.0, -0.158_808_009_392),
                (0.5, 0.345_714_009_825),
                (3.0, 2.996_362_607_92),
            ],
        ),
        (
            Activation::Silu,
            &[
                (-10.0, -4.539_786_870_24e-4),
                (-5.0, -3.346_425_462_14e-2),
                (-1.0, -0.268_941_421_37),
                (0.5, 0.311_229_665_601),
                (3.0, 2.857_722_380_47),
            ],
        ),
    ];
    let of_all = [(NAN, f64::NAN), (INF, f64::INFINITY), (0.0, 0.0), (-0.0, 0.0)];
    for_each_kernel(|device, descriptor| {
        if !descriptor.abi().has_epilogue() || descriptor.arithmetic() != Arithmetic::Fma {
            return;
        }
        for (activation, values) in rows {
            let values: Vec<_> = of_all.iter().chain(values).collect();
            let a = Matrix::from_fn(values.len(), 1, |row, _| values[row].0);
            let b = Matrix::from_fn(1, 4, |_, _| 1.0);
            let gemm = Gemm::new(values.len(), 4, 1).then(Epilogue::new().activation(activation));
            let plan = device.kernel(descriptor).unwrap().prepare(gemm).unwrap();
            let [on_a, on_b] =
                [&a, &b].map(|one| DeviceMatrix::<f32>::from_host(device, one).unwrap());
            let mut on_c = DeviceMatrix::<f32>::zeros(device, [values.len(), 4]).unwrap();
            plan.run(&on_a, &on_b, &mut on_c).unwrap();
            let result = on_c.download().unwrap();
            for (row, &&(x, expected)) in values.iter().enumerate() {
                for &found in result.row(row) {
                    let found = f64::from(found);
                    // The exponential function of x^2 has as many times the error of its argument.
                    let error = 4.0 * 2f64.powi(-24) * f64::from(1.0 + x * x) * expected.abs();
                    let is_right = found == expected
                        || found.is_nan() && expected.is_nan()
                        || (found - expected).abs() <= error && error.is_finite();
                    let name = descriptor.name();
                    assert!(is_right, "{name}: {activation:?} of {x} is {found}, not {expected}");
                }
            }
        }
    });
}

/// What is missing, of another shape, or not asked for is refused, and C stays as it is.
#[test]
fn extras_are_as_they_were_planned() {
    for device in devices() {
        let auto = device.auto().unwrap();
        let gemm = Gemm::new(4, 6, 5).then(Epilogue::new().bias(Axis::Column).residual());
        let plan = auto.prepare(gemm).unwrap();
        let zeros = |rows, cols| DeviceMatrix::<f32>::zeros(&device, [rows, cols]).unwrap();
        let (a, b, mut c) = (zeros(4, 5), zeros(5, 6), zeros(4, 6));
        let (bias, residual) = (zeros(6, 1), zeros(4, 6));
        let right = Extras::new().bias(&bias).residual(&residual);
        plan.run_with(&a, &b, &mut c, right).unwrap();
        let wide = zeros(4, 7);
        for (extras, what) in [
            (Extras::new().bias(&bias), "the residual"),
            (Extras::new().residual(&residual), "the bias"),
            (right.scale(&bias), "the scale"),
            (right.factors(bias.view(), bias.view()), "the factors"),
        ] {
            let refused = plan.run_with(&a, &b, &mut c, extras);
            assert!(matches!(refused, Err(Error::Extras { what: found, .. }) if found == what));
        }
        for (extras, what) in
            [(right.bias(&a), "the bias"), (right.residual(&wide), "the residual")]
        {
            let refused = plan.run_with(&a, &b, &mut c, extras);
            assert!(matches!(refused, Err(Error::Shape { what: found, .. }) if found == what));
        }
        let other = Device::open(host::DeviceChoice::Soft).unwrap();
        let elsewhere = DeviceMatrix::<f32>::zeros(&other, [1, 6]).unwrap();
        let refused = plan.run_with(&a, &b, &mut c, right.bias(&elsewhere));
        assert!(matches!(refused, Err(Error::WrongDevice { what: "the bias" })));
        let addresses = [a.address(), b.address(), c.address()];
        // SAFETY: it does not get as far as the matrices.
        let refused = unsafe { plan.run_raw(addresses, Default::default()) };
        assert!(matches!(refused, Err(Error::Extras { is_missing: true, .. })));
    }
}
