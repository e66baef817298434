//! The kernels for tensor cores that take f32.

use host::kernels::TF32;
use host::kernels::abi::{KernelDescriptor, Target};
use host::verify::{Arithmetic, Bound, Check, Method, Problem, Products, Reference, nearest_tf32};
use host::{Compute, Device, Gemm, Job, Matrix, Operands, RotatingBuffers};

use crate::case::{Case, SPLITS, edges};
use crate::common::devices;

/// Runs a test for every kernel on every device that can run it.
fn for_each(test: impl Fn(&Device, &'static KernelDescriptor, Products)) {
    for device in devices() {
        let is_hopper = device.info().capability == (9, 0);
        for descriptor in TF32.iter().filter(|one| is_hopper || one.target() == Target::Sm80) {
            let products = match Compute::of_kernel(descriptor) {
                Compute::Tf32x3 => Products::Tf32x3,
                _ => Products::TensorCore,
            };
            test(&device, descriptor, products);
        }
    }
}

/// A and B as they are multiplied.
fn multiplied(matrix: &Matrix, products: Products) -> Matrix {
    Matrix::from_fn(matrix.rows(), matrix.cols(), |row, col| match products {
        Products::Tf32x3 => matrix.at(row, col),
        _ => nearest_tf32(matrix.at(row, col)),
    })
}

fn verify(case: &Case, result: &Matrix, products: Products) -> Check {
    let Case { gemm: Gemm { alpha, beta, trans_a, trans_b, .. }, a, b, c, .. } = case;
    let op = |matrix: &Matrix, trans| if trans { matrix.transposed() } else { matrix.clone() };
    let [a, b] = [op(a, *trans_a), op(b, *trans_b)].map(|matrix| multiplied(&matrix, products));
    let bound = Bound::Probabilistic;
    let problem = Problem { a: &a, b: &b, c: Some(c), alpha: *alpha, beta: *beta, bound };
    let arithmetic = Arithmetic { products, ..Arithmetic::default() };
    let reference = Reference::compute(problem, Method::Full, 0).unwrap().computed_by(arithmetic);
    reference.check(result).unwrap()
}

#[test]
fn the_bound_knows_the_step_along_k() {
    for descriptor in Compute::Tf32x3.kernels() {
        assert_eq!(descriptor.tile().bk as usize, Products::TF32X3_STEP, "{}", descriptor.name());
    }
}

#[test]
fn every_shape_factor_and_split() {
    for_each(|device, descriptor, products| {
        let [bm, bn, bk] = [descriptor.tile().bm, descriptor.tile().bn, descriptor.tile().bk]
            .map(|size| size as usize);
        let shapes = edges([bm, bn, bk], bn + 4, 9);
        let factors = [(1.0, 0.0), (-1.5, 0.5), (0.0, 2.0)];
        for ([m, n, k], at) in shapes.into_iter().zip(0..) {
            // Rows that begin on 16 bytes, and others; so do rows of C on 8 bytes.
            let (lda, ldb) = (k + at % 3, n + at % 2);
            for splits in SPLITS.into_iter().take(if k > bk { SPLITS.len() } else { 1 }) {
                let (alpha, beta) = factors[(at + splits as usize) % 3];
                let gemm =
                    Gemm::new(m, n, k).leading_dimensions(lda, ldb, n + at % 4).scaled(alpha, beta);
                let case = Case { splits, ..Case::random(gemm, 7) };
                let check = verify(&case, &case.run(device, descriptor), products);
                let name = descriptor.name();
                assert!(check.passed(), "{name} on {}: {gemm:?}: {check:?}", device.info().name);
                assert_eq!(check.elements, (m * n) as u64);
            }
        }
    });
}

/// Whoever reads the wrong element, or one that is not there, gets another integer.
#[test]
fn integers_are_exact() {
    for_each(|device, descriptor, _| {
        let (m, n, k) = (descriptor.tile().bm as usize + 3, descriptor.tile().bn as usize + 5, 130);
        for gemm in [Gemm::new(m, n, k), Gemm::new(m, n, k).transposed(true, true)] {
            let make = |rows, cols, which: u64| {
                Matrix::from_fn(rows, cols, |row, col| {
                    ((row * 7 + col * 3) as u64 % (5 + which)) as f32
                })
            };
            let case = Case { splits: 2, ..Case::new(gemm, make) };
            let check = case.verify(&case.run(device, descriptor), Bound::WorstCase);
            assert_eq!(
                check.largest.map(|it| it.error),
                Some(0.0),
                "{}: {check:?}",
                descriptor.name()
            );
        }
    });
}

/// What the kernels' documentation says of numbers that are not finite, and of large and small
/// ones.
#[test]
fn what_is_not_finite_or_overflows() {
    for_each(|device, descriptor, products| {
        let gemm = Gemm::new(70, 80, 100);
        let mut case = Case::random(gemm, 3);
        let set = |matrix: &mut Matrix, at: [usize; 2], value| {
            let (rows, cols) = (matrix.rows(), matrix.cols());
            *matrix = Matrix::from_fn(rows, cols, |row, col| {
                if [row, col] == at { value } else { matrix.at(row, col) }
            });
        };
        set(&mut case.a, [3, 99], f32::INFINITY);
        // Infinities meet in row 3 and column 9, and zero and infinity in row 10.
        set(&mut case.b, [99, 9], f32::NEG_INFINITY);
        set(&mut case.a, [10, 99], 0.0);
        // Its parts in TF32 have a `small` of zero.
        set(&mut case.b, [99, 60], 0.5);
        // All bits set: adding to them carries into the sign.
        set(&mut case.b, [5, 7], f32::from_bits(u32::MAX));
        // It becomes infinite as TF32, and its product is finite.
        set(&mut case.a, [20, 30], f32::MAX);
        // These are exact in two parts, and so is their product.
        set(&mut case.a, [40, 10], f32::from_bits(0x3f80_0ffe));
        set(&mut case.b, [30, 50], 1.0 / 1024.0);
        let c = case.run(device, descriptor);
        for row in 0..70 {
            for col in 0..80 {
                let (value, name) = (c.at(row, col), descriptor.name());
                let in_f32: f32 = (0..100).map(|k| case.a.at(row, k) * case.b.at(k, col)).sum();
                let right = match (row, col) {
                    (20, _) if products != Products::Tf32x3 => !value.is_finite(),
                    _ if in_f32.is_nan() => value.is_nan(),
                    _ if in_f32.is_infinite() => value == in_f32,
                    _ => value.is_finite(),
                };
                assert!(right, "{name}: {row} {col}: {value}, in f32 {in_f32}");
            }
        }

        // Multiplied by 1, every number that has two parts comes back as it is, and one below the
        // least loses no more than that.
        let numbers =
            [1.0, -1.5e-39, f32::from_bits(0x3f80_0ffe), f32::MAX, 1e-36, f32::from_bits(1)];
        let make = |rows, cols, which: u64| {
            Matrix::from_fn(rows, cols, |row, col| match which {
                1 if col == 0 => numbers[row],
                2 if row == 0 => 1.0,
                _ => 0.0,
            })
        };
        let case = Case::new(Gemm::new(numbers.len(), 3, 5), make);
        let c = case.run(device, descriptor);
        for (row, number) in numbers.into_iter().enumerate() {
            let expected = if products == Products::Tf32x3 { number } else { nearest_tf32(number) };
            // Or, of the largest, three bits of the last.
            let least = if number == f32::MAX { 2.0f64.powi(107) } else { 2.0f64.powi(-137) };
            let off = (f64::from(c.at(row, 1)) - f64::from(expected)).abs();
            let right = off <= least || c.at(row, 1) == expected;
            assert!(right, "{}: {number:e} became {:e}", descriptor.name(), c.at(row, 1));
        }
    });
}

/// Vectors with gaps and without, as they are multiplied and as their transposes, wherever they
/// begin, of one product and of several: bulk copies read a column as a row.
#[test]
fn rows_and_columns() {
    for_each(|device, descriptor, products| {
        let compute = Compute::of_kernel(descriptor);
        for [m, n, k] in [[70, 1, 100], [1, 1, 103], [1, 140, 37], [260, 1, 1], [1, 40, 1]] {
            for (trans, pad, skip) in [
                (false, 0, 0),
                (true, 0, 0),
                (false, 2, 1),
                (true, 4, 3),
                (false, 2, 0),
                (true, 4, 1),
            ] {
                let gemm = Gemm::new(m, n, k).scaled(1.5, 0.5).transposed(trans, trans);
                // Without gaps, wherever they begin.
                let mut case = Case::random(gemm, 5);
                case.margins = [(skip, 0), (2 * skip, 0), (0, 0)];
                let check = verify(&case, &case.run(device, descriptor), products);
                assert!(check.passed(), "{}: {skip} {gemm:?}: {check:?}", descriptor.name());

                let gemm = gemm.leading_dimensions(gemm.lda + pad, gemm.ldb + pad, gemm.ldc + pad);
                for gemm in [gemm, gemm.stacked(3)].map(|gemm| gemm.computed_in(compute)) {
                    let plan = device.kernel(descriptor).unwrap().plan(gemm);
                    let plan = if skip == 0 { plan } else { plan.any_alignment() };
                    let job = Job::Kernel(plan.prepare().unwrap());
                    let operands = Operands::random(&gemm, 5);
                    let buffers = RotatingBuffers::within(device, &operands, 1, skip);
                    let result = buffers.unwrap().result(&job, operands.c()).unwrap();
                    let reference = operands.reference(Bound::Probabilistic, 11).unwrap();
                    let check = reference.check(&result).unwrap();
                    assert!(check.passed(), "{}: {skip} {gemm:?}: {check:?}", descriptor.name());
                }
            }
        }
    });
}

#[test]
fn the_same_bits_each_time() {
    for_each(|device, descriptor, _| {
        let case = Case { splits: 3, ..Case::random(Gemm::new(200, 300, 500), 5) };
        let [one, other] = [(); 2].map(|()| case.run(device, descriptor));
        assert!(one == other, "{}", descriptor.name());
    });
}
