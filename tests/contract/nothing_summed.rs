//! Products in which nothing is summed, because K or alpha is 0: C becomes `beta * C`, or 0, bit
//! for bit, whatever the sign of alpha.

use std::fmt::Debug;

use host::kernels::abi::{KernelDescriptor, Target};
use host::kernels::f32_kernels;
use host::{Compute, Device, DeviceMatrix, Epilogue, Extras, Gemm, Matrix};

use crate::common::{devices, is_whole, runs_all};
use crate::tensor_core;

/// Alpha and K.
const EMPTY: [(f32, usize); 5] = [(-1.0, 0), (-2.5, 0), (3.0, 0), (0.0, 33), (-0.0, 33)];
const BETAS: [f32; 5] = [0.0, 1.0, 0.5, -1.0, -0.0];

/// What is in C before, of any type: in places -0 and infinities, everywhere NaN if beta is 0.
fn source(rows: usize, cols: usize, beta: f32) -> Matrix {
    const VALUES: [f32; 7] = [-0.0, 1.5, 0.0, -3.25, f32::INFINITY, -0.0, f32::NEG_INFINITY];
    Matrix::from_fn(rows, cols, |row, col| match beta == 0.0 {
        true => f32::NAN,
        false => VALUES[(3 * row + col) % VALUES.len()],
    })
}

/// Fails unless `result` is what BLAS makes of [`source`].
fn assert_is_right(result: &Matrix, beta: f32, name: &dyn Debug) {
    let before = source(result.rows(), result.cols(), beta);
    for (i, (found, old)) in result.as_slice().iter().zip(before.as_slice()).enumerate() {
        let expected = if beta == 0.0 { 0.0 } else { beta * old };
        let is_right = found.to_bits() == expected.to_bits();
        assert!(is_right, "{name:?}: element {i} is {found:?}, not {expected:?}");
    }
}

fn nan(rows: usize, cols: usize) -> Matrix {
    Matrix::from_fn(rows, cols, |_, _| f32::NAN)
}

fn on(device: &Device, matrix: &Matrix) -> DeviceMatrix<f32> {
    DeviceMatrix::<f32>::from_host(device, matrix).unwrap()
}

/// Runs a test for every kernel for f32 on every device that runs all of the contract.
fn for_each(test: impl Fn(&Device, &'static KernelDescriptor)) {
    for device in devices().into_iter().filter(runs_all) {
        let is_hopper = device.info().capability == (9, 0);
        for descriptor in f32_kernels().filter(|one| is_hopper || one.target() == Target::Sm80) {
            test(&device, descriptor);
        }
    }
}

/// Whole tiles, rows of C that begin anywhere, and few elements.
fn shapes([rows, cols]: [u32; 2]) -> [[usize; 2]; 3] {
    let [rows, cols] = [rows, cols].map(|size| size as usize);
    [[rows, cols], [rows + 1, cols + 3], [5, 8]]
}

/// Alphas and Ks, each with each beta for few elements. For a tile or more each has one beta, in
/// turn, unless `CONTRACT=whole`.
fn factors(
    [m, n]: [usize; 2],
    empty: &[(f32, usize)],
) -> impl Iterator<Item = (f32, usize, f32)> + use<> {
    let is_all = is_whole() || m * n < 100;
    let numbered = (0..).zip(empty.to_vec());
    let all = numbered.flat_map(|(i, of)| (i..).zip(BETAS).map(move |(at, beta)| (at, of, beta)));
    let chosen = all.filter(move |(at, ..)| is_all || (at + m) % BETAS.len() == 0);
    chosen.map(|(_, (alpha, k), beta)| (alpha, k, beta))
}

#[test]
fn every_kernel_for_f32() {
    for_each(|device, descriptor| {
        let kernel = device.kernel(descriptor).unwrap();
        let splits = if descriptor.abi().splits_k() { 2 } else { 1 };
        for [m, n] in shapes([descriptor.tile().bm, descriptor.tile().bn]) {
            for (alpha, k, beta) in factors([m, n], &EMPTY) {
                let gemm = Gemm::new(m, n, k).scaled(alpha, beta);
                let plan = kernel.plan(gemm).splits(splits).prepare().unwrap();
                let mut c = on(device, &source(m, n, beta));
                plan.run(&on(device, &nan(m, k)), &on(device, &nan(k, n)), &mut c).unwrap();
                assert_is_right(&c.download().unwrap(), beta, &(descriptor.name(), gemm));
            }
        }
    });
}

/// Alpha, which may be anything where K is 0, and beta lie in device memory.
#[test]
fn every_kernel_for_f32_with_factors_in_device_memory() {
    for_each(|device, descriptor| {
        if !descriptor.abi().has_epilogue() {
            return;
        }
        let kernel = device.kernel(descriptor).unwrap();
        let splits = if descriptor.abi().splits_k() { 2 } else { 1 };
        let empty: Vec<_> = EMPTY.into_iter().chain([(f32::NAN, 0)]).collect();
        for [m, n] in shapes([descriptor.tile().bm, descriptor.tile().bn]) {
            for (alpha, k, beta) in factors([m, n], &empty) {
                let gemm = Gemm::new(m, n, k).device_factors();
                let plan = kernel.plan(gemm).splits(splits).prepare().unwrap();
                let factors = on(device, &Matrix::from_vec(1, 2, vec![alpha, beta]));
                let one = |at| factors.submatrix(0..1, at..at + 1).unwrap();
                let mut c = on(device, &source(m, n, beta));
                let [a, b] = [nan(m, k), nan(k, n)].map(|matrix| on(device, &matrix));
                let extras = Extras::new().factors(one(0), one(1));
                plan.run_with(&a, &b, &mut c, extras).unwrap();
                let name = (descriptor.name(), gemm, alpha, beta);
                assert_is_right(&c.download().unwrap(), beta, &name);
            }
        }
    });
}

#[test]
fn every_kernel_for_16_bits() {
    tensor_core::for_each(|device, descriptor, compute| {
        let kernel = device.kernel(descriptor).unwrap();
        let outputs = match descriptor.takes_transposes() {
            true => &[Compute::F32, compute][..],
            false => &[Compute::F32],
        };
        for [m, n] in shapes([descriptor.tile().bm, descriptor.tile().bn]) {
            for (alpha, k, beta) in factors([m, n], &EMPTY) {
                for &output in outputs {
                    let gemm = Gemm::new(m, n, k).computed_in(compute);
                    let gemm = gemm.scaled(alpha, beta).stored_as(output.element());
                    let plan = kernel.prepare(gemm).unwrap();
                    let [a, b] = [nan(m, k), nan(k, n)]
                        .map(|matrix| tensor_core::on(device, compute, &matrix));
                    let mut c = tensor_core::on(device, output, &source(m, n, beta));
                    plan.run(&a, &b, &mut c).unwrap();
                    let name = (tensor_core::entry_point(descriptor, compute), gemm);
                    assert_is_right(&c.download().unwrap(), beta, &name);
                }
            }
        }
    });
}

/// With beta 1 every bit of C stays, of a NaN too; an epilogue still does what it does.
#[test]
fn what_is_not_changed_is_not_touched() {
    const BITS: u32 = 0xffc1_2345;
    for_each(|device, descriptor| {
        let gemm = Gemm::new(5, 8, 0).scaled(-1.0, 1.0);
        let kernel = device.kernel(descriptor).unwrap();
        let [a, b] = [[5, 0], [0, 8]].map(|[rows, cols]| on(device, &nan(rows, cols)));
        let mut c = on(device, &nan(5, 8));
        c.fill_buffer(BITS).unwrap();
        kernel.prepare(gemm).unwrap().run(&a, &b, &mut c).unwrap();
        let result = c.download().unwrap();
        assert!(result.as_slice().iter().all(|x| x.to_bits() == BITS), "{}", descriptor.name());

        if descriptor.abi().has_epilogue() {
            let plan = kernel.prepare(gemm.then(Epilogue::new().residual())).unwrap();
            let mut c = on(device, &source(5, 8, 1.0));
            let residual = on(device, &Matrix::from_fn(5, 8, |_, _| -0.0));
            plan.run_with(&a, &b, &mut c, Extras::new().residual(&residual)).unwrap();
            assert_is_right(&c.download().unwrap(), 1.0, &descriptor.name());
        }
    });
}
